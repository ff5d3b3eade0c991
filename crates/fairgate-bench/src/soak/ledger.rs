//! Comparison of the ledger with the clients' results, request by request.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use anyhow::Result;
use fairgate_store::GATEWAY_TENANT;
use tokio_postgres::Client;

use super::client_results::SoakResults;
use super::tenants::FILE_BUDGET_TOKENS;

/// Summary of a request's final rows in the ledger.
#[derive(Debug)]
pub(super) struct SoakLedgerRow {
    status: i64,
    outcome: String,
    /// Number of the request's final rows; 1 is correct.
    finals: u32,
    /// Description of all final rows of the request, for messages.
    summary: String,
}

/// Result of the comparison.
pub(super) struct LedgerComparison {
    /// Differences between the ledger and the clients' results, with one sentence for each kind.
    pub(super) problems: Vec<String>,
    /// Summary of the ledger in numbers, as text.
    pub(super) summary: String,
}

/// Waits until the database has no reservations, for at most `patience`. Reservations of a killed
/// gateway are charged when the gateway's lease has run out.
pub(super) async fn wait_nothing_reserved(database: &Client, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    while number(database, RESERVATIONS).await? > 0 && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Ok(())
}

/// Compares the ledger with the clients' results.
pub(super) async fn compare(database: &Client, seen: &SoakResults) -> Result<LedgerComparison> {
    let rows = rows(database).await?;
    let mut problems = check_rows(&rows, seen);
    let all = number(database, "SELECT COUNT(*) FROM attempts").await?;
    let reserved = number(database, RESERVATIONS).await?;
    if reserved != 0 {
        problems.push(format!("{reserved} reservations are left."));
    }
    let held =
        number(database, "SELECT COALESCE(SUM(tokens_reserved), 0)::bigint FROM sums").await?;
    if held != 0 {
        problems.push(format!("{held} tokens are still counted as reserved."));
    }
    let charged =
        number(database, "SELECT COALESCE(SUM(provider_tokens), 0)::bigint FROM attempts").await?;
    for period in ["day", "month"] {
        for scope in ["group", "tenant", "key"] {
            let sum = format!(
                "SELECT COALESCE(SUM(tokens_used), 0)::bigint FROM sums WHERE scope = '{scope}' AND period = '{period}'"
            );
            let summed = number(database, &sum).await?;
            if charged != summed {
                problems.push(format!(
                    "The rows have {charged} provider tokens, the sums by {scope} and {period} say {summed}."
                ));
            }
        }
    }
    let mut outcomes: BTreeMap<&str, u64> = BTreeMap::new();
    rows.values().for_each(|row| *outcomes.entry(&row.outcome).or_default() += 1);
    let outcomes: Vec<String> =
        outcomes.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
    let summary = format!(
        "the ledger has {all} rows of {} requests ({}); {charged} provider tokens",
        rows.len(),
        outcomes.join(", ")
    );
    Ok(LedgerComparison { problems, summary })
}

/// Returns a problem if the tenant that sends files used more than its budget.
pub(super) async fn file_budget_problem(database: &Client) -> Result<Option<String>> {
    let sql = "SELECT COALESCE(SUM(provider_tokens), 0)::bigint FROM attempts WHERE tenant = 'sends-files'";
    let used = number(database, sql).await?;
    Ok((used > FILE_BUDGET_TOKENS).then(|| {
        format!(
            "The tenant sends-files used {used} tokens; its budget is {FILE_BUDGET_TOKENS} tokens."
        )
    }))
}

const RESERVATIONS: &str = "SELECT COUNT(*) FROM reservations";

async fn number(database: &Client, sql: &str) -> Result<i64> {
    Ok(database.query_one(sql, &[]).await?.try_get(0)?)
}

async fn rows(database: &Client) -> Result<HashMap<String, SoakLedgerRow>> {
    // The gateway's own probes of a provider have rows too, but no client.
    let sql = "SELECT request, status, outcome, attempt, tenant FROM attempts WHERE last_attempt AND tenant <> $1";
    let mut rows: HashMap<String, SoakLedgerRow> = HashMap::new();
    for row in database.query(sql, &[&GATEWAY_TENANT]).await? {
        let (status, outcome): (i64, String) = (row.try_get(1)?, row.try_get(2)?);
        let (attempt, tenant): (i64, String) = (row.try_get(3)?, row.try_get(4)?);
        let summary = format!("attempt {attempt} of {tenant}: {status} {outcome}");
        let known = rows.entry(row.try_get(0)?);
        let known =
            known.or_insert(SoakLedgerRow { status, outcome, finals: 0, summary: String::new() });
        let comma = if known.finals > 0 { ", " } else { "" };
        known.finals += 1;
        known.summary += &format!("{comma}{summary}");
    }
    Ok(rows)
}

/// Checks that every complete answer has one final row with its status, and that every other final
/// row belongs to a request whose client left or lost its connection. A request that was refused
/// because no row could be kept may have a row or none, because the row may still be written when
/// the database is available again.
fn check_rows(rows: &HashMap<String, SoakLedgerRow>, seen: &SoakResults) -> Vec<String> {
    let mut problems = Vec::new();
    let doubled: Vec<_> = rows.iter().filter(|(_, row)| row.finals != 1).collect();
    if let Some((id, row)) = doubled.first() {
        let (count, summary) = (doubled.len(), &row.summary);
        problems.push(format!(
            "{count} requests have more than one final row, such as {id} ({summary})."
        ));
    }
    if seen.nameless != 0 {
        problems.push(format!("{} answers had no request id.", seen.nameless));
    }
    if let Some(first) = seen.doubled.first() {
        let count = seen.doubled.len();
        problems.push(format!("{count} ids were given to two answers, such as {first}."));
    }
    let accountable = || seen.ended.iter().filter(|(_, ended)| !ended.is_store_unavailable());
    let missing: Vec<_> = accountable().filter(|(id, _)| !rows.contains_key(*id)).collect();
    if let Some((id, ended)) = missing.first() {
        let count = missing.len();
        problems.push(format!(
            "{count} answers that ended have no row, such as {id}, which ended with {}.",
            ended.describe()
        ));
    }
    let differs = |id: &String, status: u16| {
        rows.get(id).filter(|row| row.status != i64::from(status)).map(|row| (id.clone(), row))
    };
    // A client gets an error even if the request's row cannot be kept. If the disk was full, the
    // row was lost with the killed process, and the next process wrote a row from the reservation.
    let is_guess = |row: &SoakLedgerRow, status: u16| row.outcome == "lost" && status >= 500;
    let differ: Vec<_> = accountable()
        .filter_map(|(id, ended)| differs(id, ended.status).zip(Some(ended)))
        .filter(|((_, row), ended)| !is_guess(row, ended.status))
        .collect();
    if let Some(((id, row), ended)) = differ.first() {
        let count = differ.len();
        problems.push(format!(
            "{count} rows have another status than the answer, such as {id}: it ended with {}, its row says {} {}.",
            ended.describe(),
            row.status,
            row.outcome
        ));
    }
    let known = seen.ended.keys().chain(&seen.cut).filter(|id| rows.contains_key(*id)).count();
    let others = rows.values().filter(|row| row.outcome != "lost").count().saturating_sub(known);
    if others as u64 > seen.unknown {
        let unknown = seen.unknown;
        problems.push(format!(
            "{others} rows belong to nobody: clients left or lost only {unknown} requests before their head."
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::client_results::{EndedAnswer, SoakRequestResult};
    use super::*;

    fn row(status: i64, outcome: &str) -> SoakLedgerRow {
        SoakLedgerRow { status, outcome: outcome.into(), finals: 1, summary: String::new() }
    }

    fn ended(status: u16, code: Option<&str>) -> EndedAnswer {
        EndedAnswer { tenant: 0, status, code: code.map(str::to_owned), at: Instant::now() }
    }

    fn agreed() -> (HashMap<String, SoakLedgerRow>, SoakResults) {
        let rows =
            [("a", row(200, "completed")), ("b", row(499, "client_left")), ("c", row(499, "lost"))];
        let rows = rows.into_iter().map(|(id, row)| (id.to_owned(), row)).collect();
        let mut seen = SoakResults::default();
        seen.note(SoakRequestResult::End("a".into(), ended(200, None)));
        seen.note(SoakRequestResult::End("refused".into(), ended(503, Some("store_unavailable"))));
        seen.note(SoakRequestResult::CutAfterId("b".into()));
        (rows, seen)
    }

    #[test]
    fn books_that_agree_are_no_problem() {
        let (mut rows, seen) = agreed();
        assert_eq!(check_rows(&rows, &seen), Vec::<String>::new());
        rows.insert("refused".into(), row(200, "completed"));
        assert_eq!(check_rows(&rows, &seen), Vec::<String>::new(), "it was kept after all");
    }

    #[test]
    fn each_kind_of_disagreement_is_seen() {
        let spoil = |spoil: &dyn Fn(&mut HashMap<String, SoakLedgerRow>, &mut SoakResults)| {
            let (mut rows, mut seen) = agreed();
            spoil(&mut rows, &mut seen);
            check_rows(&rows, &seen).len()
        };
        assert_eq!(spoil(&|rows, _| drop(rows.remove("a"))), 1);
        assert_eq!(spoil(&|rows, _| rows.entry("a".into()).or_insert(row(0, "")).finals = 2), 1);
        assert_eq!(spoil(&|rows, _| rows.entry("a".into()).or_insert(row(0, "")).status = 502), 1);
        assert_eq!(spoil(&|rows, _| drop(rows.insert("d".into(), row(200, "completed")))), 1);
        assert_eq!(spoil(&|_, seen| seen.note(SoakRequestResult::WithoutId)), 1);
        assert_eq!(
            spoil(&|_, seen| seen.note(SoakRequestResult::End("a".into(), ended(200, None)))),
            1
        );
        assert_eq!(
            spoil(&|_, seen| seen.note(SoakRequestResult::End("x".into(), ended(429, None)))),
            1
        );
        let left_early = |rows: &mut HashMap<String, SoakLedgerRow>, seen: &mut SoakResults| {
            rows.insert("d".into(), row(499, "client_left"));
            seen.unknown = 1;
        };
        assert_eq!(spoil(&left_early), 0);
    }
}

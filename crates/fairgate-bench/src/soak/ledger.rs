//! The ledger against what the clients saw, row by row.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use rusqlite::Connection;

use super::Seen;

/// How a request stands in the ledger.
#[derive(Debug)]
struct Row {
    status: u16,
    outcome: String,
    /// How many final rows it has: 1.
    finals: u32,
}

/// What does not agree, in words; nothing where all does.
pub(super) fn compare(file: &Path, seen: &Seen) -> Result<Vec<String>> {
    let named = || file.display().to_string();
    let database = Connection::open(file).with_context(named)?;
    let rows = rows(&database)?;
    let mut problems = books(&rows, seen);
    let one = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0));
    let reserved = one("SELECT COUNT(*) FROM reservations")?;
    if reserved != 0 {
        problems.push(format!("{reserved} reservations are left"));
    }
    let held = one("SELECT COALESCE(SUM(reserved), 0) FROM sums")?;
    if held != 0 {
        problems.push(format!("{held} tokens are still counted as reserved"));
    }
    let charged = one("SELECT COALESCE(SUM(charged), 0) FROM attempts")?;
    let summed =
        one("SELECT COALESCE(SUM(used), 0) FROM sums WHERE scope = 'tenant' AND period = 'month'")?;
    if charged != summed {
        problems.push(format!("the rows were charged {charged} tokens, the sums say {summed}"));
    }
    Ok(problems)
}

fn rows(database: &Connection) -> Result<HashMap<String, Row>> {
    let mut statement =
        database.prepare("SELECT request, status, outcome FROM attempts WHERE last_attempt = 1")?;
    let mut rows = HashMap::new();
    let mut found = statement.query([])?;
    while let Some(row) = found.next()? {
        let new = Row { status: row.get(1)?, outcome: row.get(2)?, finals: 0 };
        rows.entry(row.get(0)?).or_insert(new).finals += 1;
    }
    Ok(rows)
}

/// Every ended answer has one final row with its status; every other final row belongs to a request that its client
/// left, or lost with a connection.
fn books(rows: &HashMap<String, Row>, seen: &Seen) -> Vec<String> {
    let mut problems = Vec::new();
    let doubled = rows.values().filter(|row| row.finals != 1).count();
    if doubled != 0 {
        problems.push(format!("{doubled} requests have more than one final row"));
    }
    if seen.nameless != 0 {
        problems.push(format!("{} answers had no request id", seen.nameless));
    }
    let missing: Vec<&String> = seen.ended.keys().filter(|id| !rows.contains_key(*id)).collect();
    if let Some(first) = missing.first() {
        let count = missing.len();
        problems.push(format!("{count} answers that ended have no row, such as {first}"));
    }
    let differ =
        |(id, status): &(&String, &u16)| rows.get(*id).is_some_and(|r| r.status != **status);
    if let Some((id, status)) = seen.ended.iter().find(differ) {
        problems.push(format!("{id} ended with {status}, and its row says {:?}", rows.get(id)));
    }
    let cut = seen.cut.iter().filter(|id| rows.contains_key(*id)).count();
    let known = seen.ended.len() - missing.len() + cut;
    let others = rows.values().filter(|row| row.outcome != "lost").count().saturating_sub(known);
    if others as u64 > seen.unknown {
        let unknown = seen.unknown;
        problems.push(format!(
            "{others} rows belong to nobody; clients left or lost {unknown} requests before their head"
        ));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: u16, outcome: &str) -> Row {
        Row { status, outcome: outcome.into(), finals: 1 }
    }

    fn agreed() -> (HashMap<String, Row>, Seen) {
        let rows =
            [("a", row(200, "completed")), ("b", row(499, "client_left")), ("c", row(499, "lost"))];
        let rows = rows.into_iter().map(|(id, row)| (id.to_owned(), row)).collect();
        let ended = [("a".to_owned(), 200)].into_iter().collect();
        (rows, Seen { ended, cut: vec!["b".into()], unknown: 0, nameless: 0 })
    }

    #[test]
    fn books_that_agree_are_no_problem() {
        let (rows, seen) = agreed();
        assert_eq!(books(&rows, &seen), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_disagreement_is_seen() {
        let spoil = |spoil: &dyn Fn(&mut HashMap<String, Row>, &mut Seen)| {
            let (mut rows, mut seen) = agreed();
            spoil(&mut rows, &mut seen);
            books(&rows, &seen).len()
        };
        assert_eq!(spoil(&|rows, _| drop(rows.remove("a"))), 1);
        assert_eq!(spoil(&|rows, _| rows.entry("a".into()).or_insert(row(0, "")).finals = 2), 1);
        assert_eq!(spoil(&|rows, _| rows.entry("a".into()).or_insert(row(0, "")).status = 502), 1);
        assert_eq!(spoil(&|rows, _| drop(rows.insert("d".into(), row(200, "completed")))), 1);
        assert_eq!(spoil(&|_, seen| seen.nameless = 1), 1);
        let left_early = |rows: &mut HashMap<String, Row>, seen: &mut Seen| {
            rows.insert("d".into(), row(499, "client_left"));
            seen.unknown = 1;
        };
        assert_eq!(spoil(&left_early), 0);
    }
}

//! Writes a row of the ledger as one line of JSON, in the columns of [`crate::table`].

use fairgate_store::{NumberedAttempt, RemovedAttempt, UnixMicros};
use fairgate_time::UtcDay;
use serde::Serialize;

/// Last second of 2105-12-31, the last day that ClickHouse 18.16 can store.
const LAST_SECOND: i64 = 4_291_747_199;
const MICROS: i64 = 1_000_000;

/// One row of the table. The names are those of the columns.
#[derive(Default, Serialize)]
struct TableRow<'a> {
    day: String,
    tenant: &'a str,
    request: &'a str,
    attempt: u32,
    version: i64,
    removed: u8,
    last: u8,
    started_at: String,
    started_at_us: i64,
    group_name: &'a str,
    key_id: &'a str,
    agent: &'a str,
    session: &'a str,
    route: &'a str,
    stream: u8,
    model: &'a str,
    pool: &'a str,
    worker: &'a str,
    tier: u32,
    class: &'a str,
    project: &'a str,
    task: &'a str,
    epoch: u64,
    estimate: u64,
    estimate_uncached: u64,
    input_tokens: u64,
    cached_tokens: u64,
    cache_written_tokens: u64,
    cache_written_1h_tokens: u64,
    output_tokens: u64,
    charged: u64,
    charged_uncached: u64,
    occupied: u64,
    worker_us: u64,
    price_set: &'a str,
    provider_tokens: u64,
    money_micro: u64,
    price: &'a str,
    usage_source: &'a str,
    waited_us: u64,
    first_token_us: Option<u64>,
    total_us: u64,
    status: u16,
    outcome: &'a str,
    code: &'a str,
    brownout: u8,
}

/// Returns the version of a row: later rows have higher versions, and every version of a row is even.
pub(crate) fn version_of_row(number: i64) -> i64 {
    number.saturating_mul(2)
}

/// Returns the version of the removal of a row, which is above that of the row and below that of every later row.
pub(crate) fn version_of_removal(number: i64) -> i64 {
    version_of_row(number).saturating_add(1)
}

/// Returns a moment in seconds, limited to the range of ClickHouse's `DateTime`.
fn table_seconds(at: UnixMicros) -> i64 {
    at.0.div_euclid(MICROS).clamp(0, LAST_SECOND)
}

/// Returns a moment as seconds with ten digits. ClickHouse does not read shorter numbers as a time.
fn table_time(at: UnixMicros) -> String {
    format!("{:010}", table_seconds(at))
}

/// Returns the day of a moment, limited to the range of ClickHouse's `Date`.
fn table_day(at: UnixMicros) -> String {
    UtcDay::of(UnixMicros(table_seconds(at) * MICROS)).name()
}

/// Returns a text, which is empty in the table if it is absent.
fn text(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

/// Appends a row of the ledger as a line.
pub(crate) fn push_row(lines: &mut Vec<u8>, row: &NumberedAttempt) {
    let NumberedAttempt { number, attempt } = row;
    let claim = attempt.claim.as_ref();
    let started_at = attempt.started_at;
    push(
        lines,
        &TableRow {
            day: table_day(started_at),
            tenant: &attempt.tenant,
            request: &attempt.request,
            attempt: attempt.attempt,
            version: version_of_row(*number),
            removed: 0,
            last: attempt.last.into(),
            started_at: table_time(started_at),
            started_at_us: started_at.0,
            group_name: &attempt.group,
            key_id: &attempt.key,
            agent: text(&attempt.agent),
            session: text(&attempt.session),
            route: &attempt.route,
            stream: attempt.stream.into(),
            model: &attempt.model,
            pool: text(&attempt.pool),
            worker: text(&attempt.worker),
            tier: attempt.tier,
            class: text(&attempt.class),
            project: claim.map_or("", |claim| &claim.project),
            task: claim.map_or("", |claim| &claim.task),
            epoch: claim.map_or(0, |claim| claim.epoch),
            estimate: attempt.estimate,
            estimate_uncached: attempt.estimate_uncached,
            input_tokens: attempt.input_tokens,
            cached_tokens: attempt.cached_tokens,
            cache_written_tokens: attempt.cache_written_tokens,
            cache_written_1h_tokens: attempt.cache_written_1h_tokens,
            output_tokens: attempt.output_tokens,
            charged: attempt.charged,
            charged_uncached: attempt.charged_uncached,
            occupied: attempt.occupied,
            worker_us: attempt.worker_us,
            price_set: text(&attempt.price_set),
            provider_tokens: attempt.provider_tokens,
            money_micro: attempt.money.0,
            price: text(&attempt.price),
            usage_source: attempt.usage.into(),
            waited_us: attempt.waited_us,
            first_token_us: attempt.first_token_us,
            total_us: attempt.total_us,
            status: attempt.status,
            outcome: attempt.outcome.into(),
            code: text(&attempt.code),
            brownout: attempt.brownout.into(),
        },
    );
}

/// Appends a line that replaces a row which was removed from the ledger. Its tokens and its money are 0.
pub(crate) fn push_removal(lines: &mut Vec<u8>, removed: &RemovedAttempt) {
    let started_at = removed.started_at;
    push(
        lines,
        &TableRow {
            day: table_day(started_at),
            tenant: &removed.tenant,
            request: &removed.request,
            attempt: removed.attempt,
            version: version_of_removal(removed.number),
            removed: 1,
            started_at: table_time(started_at),
            started_at_us: started_at.0,
            outcome: "lost",
            ..TableRow::default()
        },
    );
}

fn push(lines: &mut Vec<u8>, row: &TableRow<'_>) {
    // Writing numbers and texts to memory cannot fail.
    let _ = serde_json::to_writer(&mut *lines, row);
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_stay_within_the_calendar_of_clickhouse() {
        for (at, time, day) in [
            (i64::MIN, "0000000000", "1970-01-01"),
            (-1, "0000000000", "1970-01-01"),
            (1_794_731_400_999_999, "1794731400", "2026-11-15"),
            (i64::MAX, "4291747199", "2105-12-31"),
        ] {
            let at = UnixMicros(at);
            assert_eq!((table_time(at).as_str(), table_day(at).as_str()), (time, day));
        }
    }

    #[test]
    fn versions_rise_from_a_row_to_its_removal_to_the_next_row() {
        assert!(version_of_row(7) < version_of_removal(7));
        assert!(version_of_removal(7) < version_of_row(8));
        assert_eq!(version_of_removal(i64::MAX), i64::MAX);
    }

    #[test]
    fn a_removal_counts_nothing() {
        let removed = RemovedAttempt {
            number: 3,
            request: "r\"1".to_owned(),
            attempt: 2,
            tenant: "chat".to_owned(),
            started_at: UnixMicros(1_794_731_400_000_000),
        };
        let mut lines = Vec::new();
        push_removal(&mut lines, &removed);
        let line: serde_json::Value = serde_json::from_slice(&lines).unwrap();
        assert_eq!(lines.last(), Some(&b'\n'));
        assert_eq!((&line["request"], &line["attempt"]), (&"r\"1".into(), &2.into()));
        assert_eq!((&line["version"], &line["removed"]), (&7.into(), &1.into()));
        assert_eq!((&line["money_micro"], &line["input_tokens"]), (&0.into(), &0.into()));
        let mut names: Vec<&str> = line.as_object().unwrap().keys().map(String::as_str).collect();
        let mut columns: Vec<&str> = crate::table::COLUMNS.iter().map(|(name, _)| *name).collect();
        columns.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, columns, "a line has the columns of the table");
    }
}

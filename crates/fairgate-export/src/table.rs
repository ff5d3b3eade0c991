//! The table in ClickHouse: its columns, the statement that creates it, and the check of a table that is there.
//!
//! The table replaces rows by its key (day, tenant, request, attempt) and keeps the highest version. Only types that
//! ClickHouse knows from version 18.16 on are used. Money is in micro-units, so sums are exact.

use crate::clickhouse_client::{ClickHouseClient, ClickHouseStatement, tab_separated};
use crate::export_error::ExportError;
use bytes::Bytes;

/// Name of the table.
pub const TABLE: &str = "fairgate_attempts";

/// Key by which the table replaces rows.
const SORTING_KEY: &str = "day, tenant, request, attempt";
/// Ending of the names of all engines that replace rows. The beginning of a name depends on the
/// kind of replication.
const ENGINE: &str = "ReplacingMergeTree";

/// Names and types of the columns, in order.
pub(crate) const COLUMNS: [(&str, &str); 46] = [
    ("day", "Date"),
    ("tenant", "String"),
    ("request", "String"),
    ("attempt", "UInt32"),
    ("version", "UInt64"),
    ("removed", "UInt8"),
    ("last", "UInt8"),
    ("started_at", "DateTime('UTC')"),
    ("started_at_us", "Int64"),
    ("group_name", "String"),
    ("key_id", "String"),
    ("agent", "String"),
    ("session", "String"),
    ("route", "String"),
    ("stream", "UInt8"),
    ("model", "String"),
    ("pool", "String"),
    ("worker", "String"),
    ("tier", "UInt32"),
    ("class", "String"),
    ("project", "String"),
    ("task", "String"),
    ("epoch", "UInt64"),
    ("estimate", "UInt64"),
    ("estimate_uncached", "UInt64"),
    ("input_tokens", "UInt64"),
    ("cached_tokens", "UInt64"),
    ("cache_written_tokens", "UInt64"),
    ("cache_written_1h_tokens", "UInt64"),
    ("output_tokens", "UInt64"),
    ("charged", "UInt64"),
    ("charged_uncached", "UInt64"),
    ("occupied", "UInt64"),
    ("worker_us", "UInt64"),
    ("price_set", "String"),
    ("provider_tokens", "UInt64"),
    ("money_micro", "UInt64"),
    ("price", "String"),
    ("usage_source", "String"),
    ("waited_us", "UInt64"),
    ("first_token_us", "Nullable(UInt64)"),
    ("total_us", "UInt64"),
    ("status", "UInt16"),
    ("outcome", "String"),
    ("code", "String"),
    ("brownout", "UInt8"),
];

/// Returns the statement that creates the table.
pub fn create_table_statement() -> String {
    let columns: Vec<String> =
        COLUMNS.iter().map(|(name, kind)| format!("    {name} {kind}")).collect();
    format!(
        "CREATE TABLE IF NOT EXISTS {TABLE} (\n{}\n) ENGINE = {ENGINE}(version)\nPARTITION BY toYYYYMM(day)\n\
         ORDER BY ({SORTING_KEY})",
        columns.join(",\n")
    )
}

/// Returns the statement that comes before the lines of rows. It names the columns, because a server may ignore fields
/// that it does not know.
pub(crate) fn insert_statement() -> String {
    let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    format!("INSERT INTO {TABLE} ({}) FORMAT JSONEachRow", names.join(", "))
}

/// The table as the server describes it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FoundTable {
    /// There is no such table.
    Missing,
    /// The table is as the export needs it.
    Fits,
}

fn query(kind: &'static str, sql: String) -> ClickHouseStatement {
    ClickHouseStatement { kind, sql, rows: Bytes::new(), settings: &[] }
}

/// Checks the table in ClickHouse. If there is a table that does not fit, the error lists all differences.
pub(crate) async fn find_table(client: &ClickHouseClient) -> Result<FoundTable, ExportError> {
    const KIND: &str = "the query for the table's engine";
    let sql = format!(
        "SELECT engine, sorting_key FROM system.tables WHERE database = currentDatabase() AND name = '{TABLE}' \
         FORMAT TabSeparated"
    );
    let answer = client.run(query(KIND, sql)).await?;
    let Some(cells) = tab_separated(&answer).next() else { return Ok(FoundTable::Missing) };
    let [engine, key] = cells[..] else { return Err(client.not_understood(KIND, &answer)) };
    let mut problems = engine_problems(engine, key);
    const COLUMNS_KIND: &str = "the query for the table's columns";
    let sql = format!(
        "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = '{TABLE}' \
         FORMAT TabSeparated"
    );
    let answer = client.run(query(COLUMNS_KIND, sql)).await?;
    let mut found = Vec::new();
    for cells in tab_separated(&answer) {
        let [name, kind] = cells[..] else {
            return Err(client.not_understood(COLUMNS_KIND, &answer));
        };
        found.push((name.to_owned(), kind.replace("\\'", "'")));
    }
    problems.extend(column_problems(&found));
    if problems.is_empty() {
        return Ok(FoundTable::Fits);
    }
    let table = format!("{}.{TABLE}", client.database());
    Err(ExportError::OtherTable { table, problems: problems.join("; ") })
}

/// Creates the table if there is none.
pub(crate) async fn create_table(client: &ClickHouseClient) -> Result<(), ExportError> {
    client.run(query("CREATE TABLE", create_table_statement())).await.map(drop)
}

fn engine_problems(engine: &str, key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if !engine.ends_with(ENGINE) {
        problems.push(format!("its engine is {engine}, not {ENGINE}: rows would count twice"));
    }
    if key != SORTING_KEY {
        problems.push(format!("its key is ({key}), not ({SORTING_KEY})"));
    }
    problems
}

/// Compares the columns of a table with those that the export needs. Additional columns are allowed; they get their
/// default values.
fn column_problems(found: &[(String, String)]) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, kind) in COLUMNS {
        match found.iter().find(|(found, _)| found == name) {
            None => problems.push(format!("the column {name} {kind} is missing")),
            Some((_, other)) if other != kind => {
                problems.push(format!("the column {name} is {other}, not {kind}"));
            }
            Some(_) => {}
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<(String, String)> {
        COLUMNS.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned())).collect()
    }

    #[test]
    fn every_difference_of_a_table_is_named() {
        assert!(column_problems(&columns()).is_empty());
        let mut found = columns();
        found.push(("note".to_owned(), "String".to_owned()));
        assert!(column_problems(&found).is_empty(), "a column of somebody else does no harm");
        found.retain(|(name, _)| name != "money_micro");
        found.iter_mut().find(|(name, _)| name == "charged").unwrap().1 = "UInt32".to_owned();
        let problems = column_problems(&found).join("; ");
        assert_eq!(
            problems,
            "the column charged is UInt32, not UInt64; the column money_micro UInt64 is missing"
        );
    }

    #[test]
    fn an_engine_that_counts_twice_is_refused() {
        for good in
            ["ReplacingMergeTree", "ReplicatedReplacingMergeTree", "SharedReplacingMergeTree"]
        {
            assert!(engine_problems(good, SORTING_KEY).is_empty());
        }
        assert_eq!(engine_problems("MergeTree", "day").len(), 2);
    }

    #[test]
    fn types_are_those_of_old_servers_too() {
        let statement = create_table_statement();
        assert!(!statement.contains("DateTime64") && !statement.contains("LowCardinality"));
        assert!(statement.contains("money_micro UInt64"), "{statement}");
    }
}

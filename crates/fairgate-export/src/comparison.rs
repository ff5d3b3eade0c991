//! Compares the ledger with its copy, day by day.

use std::time::Duration;

use bytes::Bytes;
use fairgate_store::LedgerDaySums;
use fairgate_time::UtcDay;
use tokio::time::sleep;

use crate::clickhouse_client::{ClickHouseStatement, tab_separated};
use crate::export_error::ExportError;
use crate::exporter::LedgerExport;
use crate::row_json::version_of_removal;
use crate::table::{FoundTable, TABLE, find_table};

/// Number of comparisons before a difference is returned. The two sides may differ for a moment while rows are
/// replaced.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(3);

/// Sums of the ledger and of its copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportComparison {
    /// Upper bound of the number of rows that are not compared, because they were not sent yet or
    /// were sent less than a minute ago. It is an upper bound because some row numbers have no row.
    pub rows_not_compared: u64,
    /// Compared days, in the order of time.
    pub days: Vec<DayComparison>,
}

/// Sums of one day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayComparison {
    /// UTC day on which the requests arrived.
    pub day: UtcDay,
    /// Sums over the ledger's rows.
    pub ledger: LedgerDaySums,
    /// Sums over the rows that ClickHouse has.
    pub clickhouse: LedgerDaySums,
}

impl DayComparison {
    /// Returns whether both sides have the same sums.
    pub fn is_equal(&self) -> bool {
        self.ledger == self.clickhouse
    }
}

impl ExportComparison {
    /// Returns whether both sides are equal on every day.
    pub fn is_equal(&self) -> bool {
        self.days.iter().all(DayComparison::is_equal)
    }
}

impl LedgerExport {
    /// Compares counts, tokens and money of each day from `first` to `last`, both included. Only rows that must have
    /// arrived are compared. If there is a difference, the comparison is repeated up to 2 times, 3 s apart, before it
    /// is returned.
    pub async fn check(
        &self,
        first: UtcDay,
        last: UtcDay,
    ) -> Result<ExportComparison, ExportError> {
        let mut tries = 1;
        loop {
            let compared = self.compare(first, last).await?;
            if compared.is_equal() || tries == TRIES {
                return Ok(compared);
            }
            tries += 1;
            sleep(PAUSE).await;
        }
    }

    /// Compares the two sides once.
    pub async fn compare(
        &self,
        first: UtcDay,
        last: UtcDay,
    ) -> Result<ExportComparison, ExportError> {
        if find_table(&self.client).await? == FoundTable::Missing {
            return Err(ExportError::NoTable {
                table: format!("{}.{TABLE}", self.client.database()),
            });
        }
        let (position, backlog) = self.store.export_progress(self.target.clone()).await?;
        let mut days = Vec::new();
        for day in (first.0..=last.0).map(UtcDay) {
            let ledger = self.store.day_sums(day, position.settled).await?;
            days.push(DayComparison { day, ledger, clickhouse: LedgerDaySums::default() });
        }
        for (name, sums) in self.clickhouse_sums(first, last, position.settled).await? {
            if let Some(day) = days.iter_mut().find(|compared| compared.day.name() == name) {
                day.clickhouse = sums;
            }
        }
        let unsettled = position.sent.saturating_sub(position.settled);
        let rows_not_compared = backlog.rows.saturating_add(u64::try_from(unsettled).unwrap_or(0));
        Ok(ExportComparison { rows_not_compared, days })
    }

    /// Sums up the copy. `FINAL` makes the server replace rows while it reads, even those that it has not merged yet.
    async fn clickhouse_sums(
        &self,
        first: UtcDay,
        last: UtcDay,
        settled: i64,
    ) -> Result<Vec<(String, LedgerDaySums)>, ExportError> {
        const KIND: &str = "the query for the sums of each day";
        let sql = format!(
            "SELECT toString(day), countIf(removed = 0), sum(input_tokens), sum(cached_tokens), sum(output_tokens), \
             sum(charged), sum(provider_tokens), sum(money_micro) FROM {TABLE} FINAL \
             WHERE day >= toDate('{}') AND day <= toDate('{}') AND version <= {} \
             GROUP BY day ORDER BY day FORMAT TabSeparated",
            first.name(),
            last.name(),
            version_of_removal(settled)
        );
        let query = ClickHouseStatement { kind: KIND, sql, rows: Bytes::new(), settings: &[] };
        let answer = self.client.run(query).await?;
        let read = |cells: Vec<&str>| -> Option<(String, LedgerDaySums)> {
            let [day, numbers @ ..] = &cells[..] else { return None };
            let numbers: Vec<u64> =
                numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>().ok()?;
            let [rows, input_tokens, cached_tokens, output_tokens, charged, provider_tokens, money] =
                numbers[..]
            else {
                return None;
            };
            let sums = LedgerDaySums {
                rows,
                input_tokens,
                cached_tokens,
                output_tokens,
                charged,
                provider_tokens,
                money,
            };
            Some(((*day).to_owned(), sums))
        };
        tab_separated(&answer)
            .map(|cells| read(cells).ok_or_else(|| self.client.not_understood(KIND, &answer)))
            .collect()
    }
}

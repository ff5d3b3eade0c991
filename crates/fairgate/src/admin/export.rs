//! The command `fairgate export`, which compares the ledger with its copy in ClickHouse.

use std::io::Write;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_api::admin::{ExportCheckBody, ExportDayBody, ExportSumsBody};
use fairgate_table::{TableCell, TextTable};
use serde_json::Value;

use super::{AdminOptions, understood};
use crate::output::StdoutWriter;

/// Look after the copy of the ledger in ClickHouse, which `store.clickhouse` in the configuration asks for.
#[derive(Debug, Args)]
pub(crate) struct ExportCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: ExportAction,
}

#[derive(Debug, Subcommand)]
enum ExportAction {
    /// Compare rows, tokens and money of each day between the ledger and ClickHouse. The exit status is 1 if they differ,
    /// or if they cannot be compared.
    Check {
        /// Number of UTC days, up to today. Days of which the ledger has removed rows are left out.
        #[arg(long, default_value_t = 7, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=366))]
        days: u32,
    },
    /// Print the statement that creates the table, for a database in which the gateway's user may not create it. Asks no
    /// gateway.
    Table,
}

impl ExportCommand {
    pub(crate) fn run(&self) -> Result<()> {
        match &self.action {
            ExportAction::Check { days } => {
                let path = format!("/api/v1/export/check?days={days}");
                self.print_check(&self.common.client()?.get(&path)?)
            }
            ExportAction::Table => {
                let mut out = StdoutWriter::stdout();
                writeln!(out, "{};", fairgate_export::create_table_statement())?;
                Ok(out.flush()?)
            }
        }
    }

    fn print_check(&self, answer: &Value) -> Result<()> {
        let body: ExportCheckBody = understood(answer)?;
        self.common.print_parsed(answer, |body: &ExportCheckBody, out| {
            table(body).write(&mut *out)?;
            if body.rows_not_compared > 0 {
                let rows = body.rows_not_compared;
                writeln!(
                    out,
                    "not compared: up to {rows} rows that wait or were sent a moment ago"
                )?;
            }
            Ok(())
        })?;
        let differ = body.days.iter().filter(|day| !day.equal).count();
        match differ {
            0 => Ok(()),
            1 => bail!("the ledger and ClickHouse differ on 1 day"),
            days => bail!("the ledger and ClickHouse differ on {days} days"),
        }
    }
}

/// Returns the table of days: one number where both sides agree, else the ledger's and ClickHouse's.
fn table(body: &ExportCheckBody) -> TextTable {
    let mut table = TextTable::new([
        "day",
        "rows",
        "input tokens",
        "cached",
        "output tokens",
        "charged",
        "provider tokens",
        "money",
        "ledger and ClickHouse",
    ]);
    for ExportDayBody { day, equal, ledger, clickhouse } in &body.days {
        let (ledger, clickhouse) = (numbers(ledger), numbers(clickhouse));
        let cell = |(one, other): (String, String)| match one == other {
            true => TableCell::Number(one),
            false => TableCell::Number(format!("{one} ≠ {other}")),
        };
        let mut cells = vec![TableCell::Text(day.clone())];
        cells.extend(ledger.into_iter().zip(clickhouse).map(cell));
        cells.push(TableCell::Text(if *equal { "equal" } else { "differ" }.to_owned()));
        table.row(cells);
    }
    table
}

fn numbers(sums: &ExportSumsBody) -> [String; 7] {
    [
        sums.rows.to_string(),
        sums.input_tokens.to_string(),
        sums.cached_tokens.to_string(),
        sums.output_tokens.to_string(),
        sums.charged.to_string(),
        sums.provider_tokens.to_string(),
        sums.money.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use fairgate_api::admin::MoneyText;
    use fairgate_store::MicroUnits;

    use super::*;

    #[test]
    fn a_difference_shows_both_numbers() {
        let sums = |rows, money| ExportSumsBody {
            rows,
            input_tokens: 5,
            cached_tokens: 0,
            output_tokens: 2,
            charged: 7,
            provider_tokens: 7,
            money: MoneyText(MicroUnits(money)),
        };
        let day = |day: &str, clickhouse: ExportSumsBody| ExportDayBody {
            day: day.to_owned(),
            equal: clickhouse == sums(3, 1),
            ledger: sums(3, 1),
            clickhouse,
        };
        let days = vec![day("2026-11-14", sums(3, 1)), day("2026-11-15", sums(2, 0))];
        let mut text = Vec::new();
        table(&ExportCheckBody { equal: false, rows_not_compared: 0, days })
            .write(&mut text)
            .unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("3 ≠ 2") && text.contains("0.000001 ≠ 0"), "{text}");
        assert!(text.lines().nth(1).is_some_and(|line| line.ends_with("equal")), "{text}");
    }
}

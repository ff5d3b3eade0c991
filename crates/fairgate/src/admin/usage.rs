//! The command `fairgate usage`, which shows sums over the rows of the ledger.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use fairgate_api::admin::{USAGE_ATTRIBUTES, UsageReportBody, UsageRowBody};
use fairgate_table::{TableCell, TextTable};

use super::{AdminOptions, escaped, or_dash, span, text_or_dash};
use crate::output::StdoutWriter;
use crate::text_format::one_line;

/// Show sums of usage and cost from the ledger.
#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    common: AdminOptions,
    /// Attribute to sum by.
    #[arg(long, default_value = "tenant", value_parser = grouping_names())]
    by: &'static str,
    /// Second attribute: sum each value of --by separately by this one.
    #[arg(long, value_name = "BY", value_parser = grouping_names())]
    split: Option<&'static str>,
    /// Start of the time range: an age such as 24h or 30d, or a time such as 2026-11-15T00:00:00Z.
    #[arg(long, default_value = "24h", value_name = "TIME")]
    since: String,
    /// End of the time range (exclusive), in the formats of --since. Default: now.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only usage of this tenant.
    #[arg(long)]
    tenant: Option<String>,
    /// Only usage of this model.
    #[arg(long)]
    model: Option<String>,
    /// Show the median and the 95 % quantile of the waits too, which takes longer.
    #[arg(long)]
    quantiles: bool,
    /// Print comma-separated values instead of a table.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Returns a parser that accepts the names of the columns by which usage is grouped.
fn grouping_names() -> impl TypedValueParser<Value = &'static str> {
    let known = |name: String| USAGE_ATTRIBUTES.iter().copied().find(|it| *it == name);
    PossibleValuesParser::new(USAGE_ATTRIBUTES)
        .try_map(move |name| known(name).ok_or("no such attribute"))
}

impl UsageArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let mut path = format!("/api/v1/usage?by={}&since={}", self.by, escaped(&self.since));
        if let Some(split) = self.split {
            path.push_str(&format!("&split={split}"));
        }
        let more = [("until", &self.until), ("tenant", &self.tenant), ("model", &self.model)];
        for (name, value) in
            more.iter().filter_map(|(name, value)| Some((name, (*value).as_ref()?)))
        {
            path.push_str(&format!("&{name}={}", escaped(value)));
        }
        if self.quantiles {
            path.push_str("&quantiles=true");
        }
        if self.csv {
            let csv = client.get_text(&format!("{path}&format=csv"))?;
            let mut out = StdoutWriter::stdout();
            write!(out, "{csv}")?;
            return Ok(out.flush()?);
        }
        let usage = client.get(&path)?;
        self.common.print_table(&usage, |usage: &UsageReportBody| {
            if usage.omitted > 0 {
                let omitted = usage.omitted;
                eprintln!(
                    "{omitted} more rows are not shown: narrow the time range or name a tenant"
                );
            }
            self.sums(usage)
        })
    }
}

impl UsageArgs {
    fn sums(&self, usage: &UsageReportBody) -> TextTable {
        let sums = ["requests", "failed", "input tokens", "cached", "output tokens"];
        let charges = ["charged tokens", "got", "provider tokens"];
        let times: &[&str] =
            if has_worker_time(usage) { &["worker time", "of worker time"] } else { &[] };
        let waits = ["money", "mean wait"];
        let quantiles: &[&str] = if self.quantiles { &["p50", "p95"] } else { &[] };
        let headings =
            [&[self.by], self.split.as_slice(), &sums, &charges, times, &waits, quantiles];
        let last = ["longest wait", "first token"];
        let mut table = TextTable::new(headings.concat().into_iter().chain(last));
        for row in &usage.rows {
            table.row(self.cells(row, usage));
        }
        table
    }

    fn cells(&self, row: &UsageRowBody, usage: &UsageReportBody) -> Vec<TableCell> {
        let number = |number: u64| TableCell::Number(number.to_string());
        let mut cells = vec![TableCell::Text(one_line(&row.name))];
        cells.extend(self.split.map(|_| TableCell::Text(text_or_dash(row.split.as_deref()))));
        cells.extend([
            number(row.requests),
            number(row.failed),
            number(row.input_tokens),
            number(row.cached_tokens),
            number(row.output_tokens),
            number(row.charged_tokens),
            TableCell::Number(percentage(row.got_share)),
            number(row.provider_tokens),
        ]);
        if has_worker_time(usage) {
            cells.extend([
                TableCell::Number(or_dash(row.worker_us.map(span))),
                TableCell::Number(percentage(row.share_of_worker_time)),
            ]);
        }
        cells.extend([
            TableCell::Number(money(row, usage)),
            TableCell::Number(span(row.waited_mean_us).to_string()),
        ]);
        if self.quantiles {
            let quantiles = [row.waited_p50_us, row.waited_p95_us];
            cells.extend(quantiles.map(|wait| TableCell::Number(or_dash(wait.map(span)))));
        }
        cells.extend([
            TableCell::Number(span(row.waited_max_us).to_string()),
            TableCell::Number(or_dash(row.first_token_mean_us.map(span))),
        ]);
        cells
    }
}

/// Returns true if any row has time of own workers.
fn has_worker_time(usage: &UsageReportBody) -> bool {
    usage.rows.iter().any(|row| row.worker_us.is_some_and(|time| time > 0))
}

/// Formats a part of a total in percent; `-` if the total is 0.
fn percentage(part: Option<f64>) -> String {
    or_dash(part.map(|part| format!("{:.1} %", part * 100.0)))
}

/// Formats the cost of a row with the currency; `-` if there has never been a price.
fn money(row: &UsageRowBody, usage: &UsageReportBody) -> String {
    or_dash(usage.currency.as_ref().map(|currency| format!("{} {currency}", row.money)))
}

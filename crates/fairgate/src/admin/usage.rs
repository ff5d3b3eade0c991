//! The command `fairgate usage`, which shows sums over the rows of the ledger.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use fairgate_store::UsageGrouping;
use serde_json::Value;

use super::{AdminOptions, escaped, span, text};
use crate::output::StdoutWriter;
use fairgate_table::{TableCell, TextTable};

/// Show sums of usage and cost from the ledger.
#[derive(Debug, Args)]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    common: AdminOptions,
    /// Attribute to sum by.
    #[arg(long, default_value = "tenant", value_parser = grouping_names())]
    by: &'static str,
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
    /// Print comma-separated values instead of a table.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Returns a parser that accepts the names of the columns by which usage is grouped.
fn grouping_names() -> impl TypedValueParser<Value = &'static str> {
    let known = |name: String| UsageGrouping::NAMES.iter().copied().find(|it| *it == name);
    PossibleValuesParser::new(UsageGrouping::NAMES)
        .try_map(move |name| known(name).ok_or("no such attribute"))
}

impl UsageArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let mut path = format!("/api/v1/usage?by={}&since={}", self.by, escaped(&self.since));
        let more = [("until", &self.until), ("tenant", &self.tenant), ("model", &self.model)];
        for (name, value) in
            more.iter().filter_map(|(name, value)| Some((name, (*value).as_ref()?)))
        {
            path.push_str(&format!("&{name}={}", escaped(value)));
        }
        if self.csv {
            let csv = client.get_text(&format!("{path}&format=csv"))?;
            let mut out = StdoutWriter::stdout();
            write!(out, "{csv}")?;
            return Ok(out.flush()?);
        }
        let usage = client.get(&path)?;
        self.common.print_table(&usage, |usage| sums(self.by, usage))
    }
}

fn sums(by: &'static str, usage: &Value) -> TextTable {
    let mut table = TextTable::new(vec![
        by,
        "requests",
        "failed",
        "input tokens",
        "cached",
        "output tokens",
        "charged tokens",
        "provider tokens",
        "money",
        "mean wait",
        "longest wait",
        "first token",
    ]);
    for row in usage["rows"].as_array().into_iter().flatten() {
        let number = |field: &str| TableCell::Number(text(row, field));
        let span = |field: &str| TableCell::Number(span(row, field));
        table.row(vec![
            TableCell::Text(text(row, "name")),
            number("requests"),
            number("failed"),
            number("input_tokens"),
            number("cached_tokens"),
            number("output_tokens"),
            number("charged_tokens"),
            number("provider_tokens"),
            TableCell::Number(money(row, usage)),
            span("waited_mean_us"),
            span("waited_max_us"),
            span("first_token_mean_us"),
        ]);
    }
    table
}

/// Formats the cost of a row with the currency; `-` if there has never been a price.
fn money(row: &Value, usage: &Value) -> String {
    match usage["currency"].as_str() {
        Some(currency) => format!("{} {currency}", text(row, "money")),
        None => "-".to_owned(),
    }
}

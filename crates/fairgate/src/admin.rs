//! The admin commands. Each command calls the gateway's admin API and prints the response as a table or as JSON.

mod audit;
mod budgets;
mod client;
mod directory;
mod fleet;
mod keys;
mod limits;
mod live;
mod pools;
mod reload;
mod request;
mod rights;
mod usage;
mod workers;

use std::io::Write;

use anyhow::Result;
use clap::Args;
use fairgate_core::units::Micros;
use serde_json::Value;

use crate::gateway_http::escaped;
use crate::output::StdoutWriter;
use crate::text_format::{TimeSpan, one_line};
use fairgate_table::{TableCell, TextTable};

pub(crate) use audit::AuditArgs;
pub(crate) use budgets::{HostedCommand, PriceCommand};
pub(crate) use client::{DEFAULT_TOKEN_FILE, GatewayArgs};
pub(crate) use directory::{GroupCommand, TenantCommand};
pub(crate) use fleet::{
    AgentCommand, FleetArgs, ProjectCommand, TaskCommand, WebhookCommand, WorkspaceCommand,
};
pub(crate) use keys::KeyCommand;
pub(crate) use live::LiveArgs;
pub(crate) use pools::PoolCommand;
pub(crate) use reload::ReloadArgs;
pub(crate) use request::RequestArgs;
pub(crate) use usage::UsageArgs;
pub(crate) use workers::WorkerCommand;

/// Options of all admin commands: the gateway's address, the token and the output format.
#[derive(Clone, Debug, Args)]
pub(crate) struct AdminOptions {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Print the JSON of the admin API instead of text.
    #[arg(long, global = true)]
    json: bool,
}

impl AdminOptions {
    fn client(&self) -> Result<client::AdminClient> {
        client::AdminClient::new(&self.gateway)
    }

    /// Prints a response as JSON with --json, else as the table that `table` builds from it.
    fn print_table(&self, answer: &Value, table: impl FnOnce(&Value) -> TextTable) -> Result<()> {
        let mut out = StdoutWriter::stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, answer)?;
            writeln!(out)?;
        } else {
            table(answer).write(&mut out)?;
        }
        Ok(out.flush()?)
    }

    /// Prints a response as JSON with --json, else prints `words` as one line of text.
    fn print_line(&self, answer: &Value, words: &str) -> Result<()> {
        let mut out = StdoutWriter::stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, answer)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{words}")?;
        }
        Ok(out.flush()?)
    }
}

/// Returns the names of an option that lists them. An empty text, which stands for no names, is left out.
fn given_names(list: &[String]) -> Vec<String> {
    list.iter().filter(|name| !name.is_empty()).cloned().collect()
}

/// Returns a field as text; `-` if it is null or absent.
fn text(value: &Value, field: &str) -> String {
    match value.get(field) {
        None | Some(Value::Null) => "-".to_owned(),
        // Models, sessions and questions are texts that callers chose.
        Some(Value::String(text)) => one_line(text),
        Some(Value::Array(items)) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            if items.is_empty() { "-".to_owned() } else { one_line(&items.join(",")) }
        }
        Some(other) => other.to_string(),
    }
}

/// Returns a field in microseconds as a time span; `-` if it is null or absent.
fn span(value: &Value, field: &str) -> String {
    let micros = value.get(field).and_then(Value::as_u64);
    micros.map_or("-".to_owned(), |micros| TimeSpan(Micros(micros)).to_string())
}

/// Builds a table from a list of objects. A column is (heading, name of the field, true if the field is a number).
fn listed(items: &Value, columns: &[(&'static str, &str, bool)]) -> TextTable {
    let mut table = TextTable::new(columns.iter().map(|(heading, ..)| *heading));
    for item in items.as_array().into_iter().flatten() {
        let cell = |(_, field, is_number): &(&str, &str, bool)| match is_number {
            true => TableCell::Number(text(item, field)),
            false => TableCell::Text(text(item, field)),
        };
        table.row(columns.iter().map(cell).collect());
    }
    table
}

/// Fetches all pages of a list from the API, and returns their items as one list.
fn fetch_all(client: &client::AdminClient, path: &str) -> Result<Value> {
    let mut items = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let joint = if path.contains('?') { '&' } else { '?' };
        let from = after.map(|after| format!("&after={}", escaped(&after))).unwrap_or_default();
        let mut page = client.get(&format!("{path}{joint}limit=1000{from}"))?;
        if let Some(Value::Array(more)) = page.get_mut("items").map(Value::take) {
            items.extend(more);
        }
        after = page.get("next").and_then(Value::as_str).map(str::to_owned);
        if after.is_none() {
            return Ok(Value::Array(items));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callers_wrote_cannot_play_with_the_terminal() {
        let row = serde_json::json!({"model": "m\x1b[2J", "taints": ["a\x07", "b"], "cost": 5});
        let fields = ["model", "taints", "cost", "none"].map(|field| text(&row, field));
        assert_eq!(fields, ["m\\u{1b}[2J", "a\\u{7},b", "5", "-"]);
    }

    #[test]
    fn names_go_through_a_path_as_they_are() {
        assert_eq!(escaped("team-a.b_c~1"), "team-a.b_c~1");
        assert_eq!(escaped("a/b c?ü"), "a%2Fb%20c%3F%C3%BC");
    }
}

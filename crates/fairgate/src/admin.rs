//! The admin commands: each is one call of the gateway's admin API, told as a table or as the API's own JSON.

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
mod show;
mod workers;

use std::io::Write;

use anyhow::Result;
use clap::Args;
use fairgate_core::units::Micros;
use serde_json::Value;

use crate::output::Output;
use crate::table::{Cell, Table};
use crate::words::Span;

pub(crate) use audit::AuditArgs;
pub(crate) use budgets::{HostedCommand, PriceCommand};
pub(crate) use client::{DEFAULT_TOKEN_FILE, DEFAULT_URL, GatewayArgs};
pub(crate) use directory::{GroupCommand, TenantCommand};
pub(crate) use fleet::{AgentCommand, FleetArgs, ProjectCommand, TaskCommand, WorkspaceCommand};
pub(crate) use keys::KeyCommand;
pub(crate) use live::LiveArgs;
pub(crate) use pools::PoolCommand;
pub(crate) use reload::ReloadArgs;
pub(crate) use request::RequestArgs;
pub(crate) use show::UsageArgs;
pub(crate) use workers::WorkerCommand;

/// Where the gateway is, and how the answer is told.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Print the API's own JSON.
    #[arg(long, global = true)]
    json: bool,
}

impl Common {
    fn client(&self) -> Result<client::Client> {
        client::Client::new(&self.gateway)
    }

    /// Prints an answer: as it is, or as `table` tells it.
    fn tell(&self, answer: &Value, table: impl FnOnce(&Value) -> Table) -> Result<()> {
        let mut out = Output::stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, answer)?;
            writeln!(out)?;
        } else {
            table(answer).write(&mut out)?;
        }
        Ok(out.flush()?)
    }

    /// Prints an answer: as it is, or as one line of words.
    fn say(&self, answer: &Value, words: &str) -> Result<()> {
        let mut out = Output::stdout();
        if self.json {
            serde_json::to_writer_pretty(&mut out, answer)?;
            writeln!(out)?;
        } else {
            writeln!(out, "{words}")?;
        }
        Ok(out.flush()?)
    }
}

/// A name as a part of a path or a query.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// A field as text; `-` where it is null or absent.
fn text(value: &Value, field: &str) -> String {
    match value.get(field) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(items)) => {
            let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
            if items.is_empty() { "-".to_owned() } else { items.join(",") }
        }
        Some(other) => other.to_string(),
    }
}

/// A field in microseconds as a span of time; `-` where it is null or absent.
fn span(value: &Value, field: &str) -> String {
    let micros = value.get(field).and_then(Value::as_u64);
    micros.map_or("-".to_owned(), |micros| Span(Micros(micros)).to_string())
}

/// A table over the objects of a list: heading, field, and whether it is a number.
fn listed(items: &Value, columns: &[(&'static str, &str, bool)]) -> Table {
    let mut table = Table::new(columns.iter().map(|(heading, ..)| *heading).collect());
    for item in items.as_array().into_iter().flatten() {
        let cell = |(_, field, is_number): &(&str, &str, bool)| match is_number {
            true => Cell::Number(text(item, field)),
            false => Cell::Text(text(item, field)),
        };
        table.row(columns.iter().map(cell).collect());
    }
    table
}

/// All pages of a list.
fn all(client: &client::Client, path: &str) -> Result<Value> {
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
    fn names_go_through_a_path_as_they_are() {
        assert_eq!(escaped("team-a.b_c~1"), "team-a.b_c~1");
        assert_eq!(escaped("a/b c?ü"), "a%2Fb%20c%3F%C3%BC");
    }
}

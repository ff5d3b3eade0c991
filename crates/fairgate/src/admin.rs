//! The admin commands. Each command calls the gateway's admin API and prints the response as a table or as JSON.

mod audit;
mod budgets;
mod calibrate;
mod client;
mod directory;
mod export;
mod fleet;
mod keys;
mod limits;
mod live;
mod log;
mod pools;
mod reload;
mod request;
mod rights;
mod top;
mod usage;
mod workers;

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::{Context, Result};
use clap::Args;
use fairgate_api::client::escaped;
use fairgate_core::units::Micros;
use fairgate_table::TextTable;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::output::StdoutWriter;
use crate::text_format::{TimeSpan, one_line};

pub(crate) use audit::AuditArgs;
pub(crate) use budgets::{HostedCommand, PriceCommand};
pub(crate) use calibrate::CalibrateArgs;
pub(crate) use client::{AdminClient, DEFAULT_TOKEN_FILE, GatewayArgs};
pub(crate) use directory::{GroupCommand, TenantCommand};
pub(crate) use export::ExportCommand;
pub(crate) use fleet::{
    AgentCommand, FleetArgs, ProjectCommand, TaskCommand, WebhookCommand, WorkspaceCommand,
};
pub(crate) use keys::KeyCommand;
pub(crate) use live::LiveArgs;
pub(crate) use log::LogArgs;
pub(crate) use pools::PoolCommand;
pub(crate) use reload::ReloadArgs;
pub(crate) use request::RequestArgs;
pub(crate) use top::TopArgs;
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

    /// Prints a response as JSON with --json, else as the table that `table` builds from the response as a `T`.
    fn print_table<T: DeserializeOwned>(
        &self,
        answer: &Value,
        table: impl FnOnce(&T) -> TextTable,
    ) -> Result<()> {
        self.print_parsed(answer, |answer, out| table(answer).write(out))
    }

    /// Prints a response as JSON with --json, else parses the response and prints it with `write`.
    fn print_parsed<T: DeserializeOwned>(
        &self,
        answer: &Value,
        write: impl FnOnce(&T, &mut StdoutWriter) -> io::Result<()>,
    ) -> Result<()> {
        if self.json {
            return self.print_line(answer, "");
        }
        let mut out = StdoutWriter::stdout();
        write(&understood(answer)?, &mut out)?;
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

/// Parses a response of the API as a `T`.
pub(crate) fn understood<T: DeserializeOwned>(answer: &Value) -> Result<T> {
    T::deserialize(answer).context(
        "the gateway's answer is not understood; is it of the same version as this command?",
    )
}

/// Formats a value that may be absent; `-` if it is. A text that a caller chose goes through `one_line` first.
fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// Formats a text that callers chose, such as a model, a session or a question; `-` if it is absent.
fn text_or_dash(text: Option<&str>) -> String {
    or_dash(text.map(one_line))
}

/// Formats a list of names that callers chose; `-` if it is empty.
fn names(list: &[String]) -> String {
    if list.is_empty() { "-".to_owned() } else { one_line(&list.join(",")) }
}

/// Returns a span in microseconds with its unit.
fn span(micros: u64) -> TimeSpan {
    TimeSpan(Micros(micros))
}

/// One page of a list, or a whole list. The items are kept as JSON, which --json prints unchanged.
#[derive(Deserialize)]
struct ListPage {
    items: Vec<Value>,
    /// Name to continue after; absent on the last page, and in lists without pages.
    next: Option<String>,
}

/// Returns the items of a list that has no pages.
fn items(list: &Value) -> Result<Value> {
    #[derive(Deserialize)]
    struct ListItems {
        items: Vec<Value>,
    }
    Ok(Value::Array(understood::<ListItems>(list)?.items))
}

/// Fetches all pages of a list from the API, and returns their items as one list.
fn fetch_all(client: &client::AdminClient, path: &str) -> Result<Value> {
    let mut items = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let joint = if path.contains('?') { '&' } else { '?' };
        let from = after.map(|after| format!("&after={}", escaped(&after))).unwrap_or_default();
        let page: ListPage = understood(&client.get(&format!("{path}{joint}limit=1000{from}"))?)?;
        items.extend(page.items);
        after = page.next;
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
        assert_eq!(text_or_dash(Some("m\x1b[2J")), "m\\u{1b}[2J");
        assert_eq!(names(&["a\x07".to_owned(), "b".to_owned()]), "a\\u{7},b");
        assert_eq!((text_or_dash(None), names(&[])), ("-".to_owned(), "-".to_owned()));
        assert_eq!(or_dash(Some(span(12_500))), "12.5 ms");
    }
}

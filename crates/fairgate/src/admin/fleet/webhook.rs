//! The command `fairgate webhook`, which lists webhooks and their events, and sends test events.

use std::io::Write;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_fleet::WebhookPendingEvent;
use fairgate_store::UnixMicros;
use fairgate_table::{TableCell, TextTable};
use http::Method;
use serde_json::Value;

use super::super::{AdminOptions, escaped, listed, text};
use super::{at, or_dash};
use crate::output::StdoutWriter;

/// Show the webhooks of the configuration, which are notified of questions, blocked tasks, budgets and lost agents.
#[derive(Debug, Args)]
pub(crate) struct WebhookCommand {
    #[command(flatten)]
    common: AdminOptions,
    #[command(subcommand)]
    action: WebhookAction,
}

#[derive(Debug, Subcommand)]
enum WebhookAction {
    /// List all webhooks with the numbers of events that wait, were delivered, failed or were dropped.
    List,
    /// List the events of a webhook that wait for their delivery, and the latest whose tries have all failed.
    Events {
        /// Name of the webhook.
        name: String,
    },
    /// Send a test event to a webhook once, and show what it answered.
    Test {
        /// Name of the webhook.
        name: String,
    },
}

impl WebhookCommand {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        match &self.action {
            WebhookAction::List => {
                let list = client.get("/api/v1/webhooks")?;
                self.common.print_table(&list["items"], webhooks)
            }
            WebhookAction::Events { name } => {
                let list = client.get(&format!("/api/v1/webhooks/{}/events", escaped(name)))?;
                self.common.print_parsed(&list["items"], |list: &Vec<WebhookPendingEvent>, out| {
                    events(list).write(out)
                })
            }
            WebhookAction::Test { name } => {
                let path = format!("/api/v1/webhooks/{}/test", escaped(name));
                self.print_test(name, &client.send(Method::POST, &path, None)?)
            }
        }
    }

    /// Prints the result of a test event. A failure is the command's failure.
    fn print_test(&self, name: &str, result: &Value) -> Result<()> {
        let (id, took) = (text(result, "id"), text(result, "took_ms"));
        if result["delivered"] == true {
            let status = text(result, "status");
            let words = format!("webhook {name} took {id} in {took} ms and answered {status}");
            return self.common.print_line(result, &words);
        }
        if self.common.json {
            let mut out = StdoutWriter::stdout();
            serde_json::to_writer_pretty(&mut out, result)?;
            writeln!(out)?;
            out.flush()?;
        }
        bail!("webhook {name} did not take {id}: {}", text(result, "error"));
    }
}

fn webhooks(items: &Value) -> TextTable {
    listed(
        items,
        &[
            ("webhook", "name", false),
            ("at", "origin", false),
            ("events", "events", false),
            ("pending", "pending", true),
            ("delivered", "delivered", true),
            ("failed", "failed", true),
            ("dropped", "dropped", true),
            ("last failure", "error", false),
        ],
    )
}

fn events(list: &[WebhookPendingEvent]) -> TextTable {
    let headings = vec!["event", "type", "at", "tries", "next try", "last failure"];
    let mut table = TextTable::new(headings);
    let moment = |moment: Option<UnixMicros>| moment.map_or("none".to_owned(), at);
    for event in list {
        table.row(vec![
            TableCell::Text(event.id.clone()),
            TableCell::Text(event.kind.clone()),
            TableCell::Text(at(event.at)),
            TableCell::Number(event.tries.to_string()),
            TableCell::Text(moment(event.next_try_at)),
            TableCell::Text(or_dash(event.error.as_deref())),
        ]);
    }
    table
}

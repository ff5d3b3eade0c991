//! The command `fairgate webhook`, which lists webhooks and their events, and sends test events.

use std::io::Write;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use fairgate_api::fleet::{WebhookPendingEvent, WebhookTestView, WebhookView};
use fairgate_store::UnixMicros;
use fairgate_table::{TableCell, TextTable};
use http::Method;
use serde_json::Value;

use super::super::{AdminOptions, escaped, items, names, or_dash, text_or_dash, understood};
use super::{at, name_or_dash};
use crate::output::StdoutWriter;
use crate::text_format::one_line;

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
                self.common.print_table(&items(&list)?, |list: &Vec<WebhookView>| webhooks(list))
            }
            WebhookAction::Events { name } => {
                let list = client.get(&format!("/api/v1/webhooks/{}/events", escaped(name)))?;
                self.common.print_parsed(&items(&list)?, |list: &Vec<WebhookPendingEvent>, out| {
                    events(list).write(out)
                })
            }
            WebhookAction::Test { name } => {
                let path = format!("/api/v1/webhooks/{}/test", escaped(name));
                self.print_test(name, &client.send(Method::POST, &path, None)?)
            }
        }
    }

    /// Prints the result of a test event. Returns an error if the event was not delivered.
    fn print_test(&self, name: &str, result: &Value) -> Result<()> {
        let WebhookTestView { id, delivered, status, error, took_ms: took } = understood(result)?;
        if delivered {
            let status = or_dash(status);
            let words = format!("webhook {name} took {id} in {took} ms and answered {status}");
            return self.common.print_line(result, &words);
        }
        if self.common.json {
            let mut out = StdoutWriter::stdout();
            serde_json::to_writer_pretty(&mut out, result)?;
            writeln!(out)?;
            out.flush()?;
        }
        bail!("webhook {name} did not take {id}: {}", text_or_dash(error.as_deref()));
    }
}

fn webhooks(list: &[WebhookView]) -> TextTable {
    let headings = vec![
        "webhook",
        "at",
        "events",
        "pending",
        "delivered",
        "failed",
        "dropped",
        "last failure",
    ];
    let mut table = TextTable::new(headings);
    for webhook in list {
        let events: Vec<String> =
            webhook.events.iter().map(|kind| kind.word().to_owned()).collect();
        table.row(vec![
            TableCell::Text(one_line(&webhook.name)),
            TableCell::Text(one_line(&webhook.origin)),
            TableCell::Text(names(&events)),
            TableCell::Number(webhook.pending.to_string()),
            TableCell::Number(webhook.delivered.to_string()),
            TableCell::Number(webhook.failed.to_string()),
            TableCell::Number(webhook.dropped.to_string()),
            TableCell::Text(text_or_dash(webhook.error.as_deref())),
        ]);
    }
    table
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
            TableCell::Text(name_or_dash(event.error.as_deref())),
        ]);
    }
    table
}

//! `fairgate log --follow`: prints requests as they end.
//!
//! The gateway's event stream has all rows, and this module selects those that meet the conditions.
//! The rows that ended before are listed first. The stream is opened before that list is read, so
//! that no row is missed between the two. A row that is in both is printed once.

use std::collections::{HashSet, VecDeque};
use std::io::Write;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use fairgate_api::admin::AttemptBody;
use fairgate_api::event_stream::ServerSentEvent;
use serde::Deserialize;
use serde_json::Value;

use super::super::audit::to_the_second;
use super::super::client::AdminClient;
use super::super::{escaped, span, text_or_dash, understood};
use super::{LogArgs, LogConditions};
use crate::output::StdoutWriter;
use crate::text_format::one_line;

/// Pause before a stream that ended is opened again.
const RETRY: Duration = Duration::from_secs(1);
/// Number of printed rows that are remembered.
const PRINTED_MAX: usize = 20_000;

/// Events that a reader missed because it was too slow.
#[derive(Deserialize)]
struct EventGap {
    missed: u64,
}

/// Prints each row once.
struct RowPrinter<'a> {
    args: &'a LogArgs,
    out: StdoutWriter,
    printed: HashSet<(String, u64)>,
    order: VecDeque<(String, u64)>,
}

/// Prints the last rows, and then each that ends, until the user stops the command.
pub(super) fn follow(args: &LogArgs, client: &AdminClient) -> Result<()> {
    let mut printer = RowPrinter {
        args,
        out: StdoutWriter::stdout(),
        printed: HashSet::new(),
        order: VecDeque::new(),
    };
    if !args.common.json {
        printer.heading()?;
    }
    let mut path = "/api/v1/events?kinds=ended".to_owned();
    if let Some(pool) = &args.conditions.pool {
        path.push_str(&format!("&pool={}", escaped(pool)));
    }
    let mut has_begun = false;
    loop {
        let followed = client.events(&path, |event| {
            match event {
                None => printer.rows_before(client)?,
                Some(event) => printer.event(&event)?,
            }
            has_begun = true;
            Ok(printer.out.flush()?)
        });
        match followed {
            // The output was closed, or the gateway refused the very first call.
            Err(error) if !has_begun || error.is::<std::io::Error>() => return Err(error),
            Err(error) => eprintln!("not connected: {error}; trying again"),
            Ok(()) => eprintln!("the gateway ended the stream; trying again"),
        }
        thread::sleep(RETRY);
    }
}

impl RowPrinter<'_> {
    fn heading(&mut self) -> Result<()> {
        let line = row_line([
            "at", "status", "code", "tenant", "model", "worker", "waited", "total", "tokens",
            "request",
        ]);
        Ok(writeln!(self.out, "{line}")?)
    }

    /// Prints the rows of requests that had ended before the command started, the oldest first.
    fn rows_before(&mut self, client: &AdminClient) -> Result<()> {
        let found = self.args.find(client)?;
        found.items.into_iter().rev().try_for_each(|row| self.row(row))
    }

    fn event(&mut self, event: &ServerSentEvent) -> Result<()> {
        let data: Value = serde_json::from_str(&event.data)?;
        match event.name.as_str() {
            "ended" => {
                let row: AttemptBody = understood(&data)?;
                let is_wanted = row.last || self.args.attempts;
                match is_wanted && self.args.conditions.hold_for(&row) {
                    true => self.row(data),
                    false => Ok(()),
                }
            }
            "gap" => {
                let EventGap { missed } = understood(&data)?;
                eprintln!(
                    "{missed} rows ended faster than they were read; `fairgate log` lists them"
                );
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn row(&mut self, row: Value) -> Result<()> {
        let body: AttemptBody = understood(&row)?;
        let key = (body.request.clone(), u64::from(body.attempt));
        if !self.printed.insert(key.clone()) {
            return Ok(());
        }
        self.order.push_back(key);
        if self.order.len() > PRINTED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.printed.remove(&oldest);
        }
        match self.args.common.json {
            true => Ok(writeln!(self.out, "{row}")?),
            false => Ok(writeln!(self.out, "{}", line_of(&body))?),
        }
    }
}

fn line_of(row: &AttemptBody) -> String {
    let cells = [
        to_the_second(&row.started_at),
        row.status.to_string(),
        text_or_dash(row.code.as_deref()),
        one_line(&row.tenant),
        one_line(&row.model),
        text_or_dash(row.worker.as_deref()),
        span(row.waited_us).to_string(),
        span(row.total_us).to_string(),
        row.charged_tokens.to_string(),
        one_line(&row.request),
    ];
    row_line(cells.each_ref().map(String::as_str))
}

/// Puts cells into columns of fixed width, because the rows that come later are not known yet.
fn row_line(
    [at, status, code, tenant, model, worker, waited, total, tokens, id]: [&str; 10],
) -> String {
    format!(
        "{at:<20}  {status:>6}  {code:<18}  {tenant:<16}  {model:<16}  {worker:<12}  {waited:>8}  {total:>8}  \
         {tokens:>8}  {id}"
    )
}

impl LogConditions {
    /// Returns true if all conditions hold for the row, by the rules of the gateway's search.
    fn hold_for(&self, row: &AttemptBody) -> bool {
        let named = [
            (&self.request, Some(&row.request)),
            (&self.tenant, Some(&row.tenant)),
            (&self.key, Some(&row.key)),
            (&self.agent, row.agent.as_ref()),
            (&self.project, row.project.as_ref()),
            (&self.task, row.task.as_ref()),
            (&self.pool, row.pool.as_ref()),
            (&self.worker, row.worker.as_ref()),
            (&self.model, Some(&row.model)),
            (&self.class, row.class.as_ref()),
            (&self.code, row.code.as_ref()),
            (&self.outcome, Some(&row.outcome)),
        ];
        let has_names = named.iter().all(|(wanted, is)| wanted.is_none() || wanted.as_ref() == *is);
        let status = row.status.to_string();
        let has_status =
            self.status.as_ref().is_none_or(|wanted| match wanted.strip_suffix("xx") {
                Some(class) => status.starts_with(class),
                None => *wanted == status,
            });
        let has_waited = self.waited_ms.is_none_or(|ms| row.waited_us >= ms.saturating_mul(1000));
        has_names && has_status && has_waited
    }
}

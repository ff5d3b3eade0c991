//! The command `fairgate log`, which lists ended requests.

mod follow;

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use fairgate_api::admin::{AttemptBody, SearchStopBody};
use fairgate_table::{TableCell, TextTable};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::audit::to_the_second;
use super::client::AdminClient;
use super::{AdminOptions, escaped, or_dash, span, text_or_dash, understood};
use crate::output::terminal_width;
use crate::text_format::one_line;

/// Greatest number of calls for one list. Each call looks back one day, or over one million rows.
const CALLS_MAX: usize = 62;
/// Greatest number of rows in one answer.
const PAGE_MAX: usize = 1_000;

/// List ended requests, newest first: who sent them, how they ended, and how long they waited.
///
/// All conditions must hold. A search by anything but request, tenant and time looks back up to two months, a day or a
/// million rows at a time; if it stops before that, a line on standard error says where.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  The last requests that were refused, of one tenant:
    fairgate log --tenant batch --status 4xx
  Those that waited more than ten seconds since this morning:
    fairgate log --waited-ms 10000 --since 2026-11-18T06:00:00Z
  Every attempt on a worker that failed, as JSON:
    fairgate log --worker gpu-1 --status 5xx --attempts --json
  What is refused from now on, as it happens:
    fairgate log --follow --outcome refused")]
pub(crate) struct LogArgs {
    #[command(flatten)]
    common: AdminOptions,
    #[command(flatten)]
    conditions: LogConditions,
    /// List every attempt. Default: the last attempt of each request.
    #[arg(long)]
    attempts: bool,
    /// Earliest arrival: an age such as 24h, or a time such as 2026-11-15T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Latest arrival (exclusive), in the formats of --since.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Go on and print each request when it ends, until the command is stopped, with the last ones of --limit before
    /// them, oldest first. With --json each is a line. Shows the requests that this gateway answers.
    #[arg(long, short, conflicts_with = "until")]
    follow: bool,
    /// Greatest number of requests to list.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

/// Conditions that a listed request must all meet.
#[derive(Clone, Debug, Args)]
pub(super) struct LogConditions {
    /// Only the request with this id.
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// Only requests of this tenant.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Only requests with the key of this id.
    #[arg(long, value_name = "ID")]
    key: Option<String>,
    /// Only requests whose client named this agent.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Only requests for tasks of this project.
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// Only requests for this task.
    #[arg(long, value_name = "ID")]
    task: Option<String>,
    /// Only requests in this pool.
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Only requests on this worker.
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Only requests for this model.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Only requests that were queued in this policy class.
    #[arg(long, value_name = "NAME")]
    class: Option<String>,
    /// Only requests with this HTTP status, such as 429, or of a class, such as 4xx.
    #[arg(long)]
    status: Option<String>,
    /// Only requests with this error code, such as queue_full.
    #[arg(long)]
    code: Option<String>,
    /// Only requests with this outcome.
    #[arg(long, value_parser = PossibleValuesParser::new(OUTCOMES))]
    outcome: Option<String>,
    /// Only requests that waited at least this long for their slot, in milliseconds.
    #[arg(long, value_name = "MS")]
    waited_ms: Option<u64>,
}

const OUTCOMES: [&str; 7] =
    ["completed", "refused", "upstream_error", "timeout", "client_left", "retried", "lost"];

impl LogConditions {
    /// Returns the conditions as a query string without its `?`; each ends in `&`.
    fn query(&self) -> String {
        let waited = self.waited_ms.map(|ms| ms.to_string());
        let conditions = [
            ("request", &self.request),
            ("tenant", &self.tenant),
            ("key", &self.key),
            ("agent", &self.agent),
            ("project", &self.project),
            ("task", &self.task),
            ("pool", &self.pool),
            ("worker", &self.worker),
            ("model", &self.model),
            ("class", &self.class),
            ("status", &self.status),
            ("code", &self.code),
            ("outcome", &self.outcome),
            ("waited_min_ms", &waited),
        ];
        let given = conditions.iter().filter_map(|(name, value)| Some((name, (*value).as_ref()?)));
        given.map(|(name, value)| format!("{name}={}&", escaped(value))).collect()
    }
}

/// A page of the ledger. The rows are kept as JSON, which --json prints unchanged.
#[derive(Default, Deserialize, Serialize)]
struct FoundRows {
    items: Vec<Value>,
    next: Option<String>,
    stopped: Option<SearchStopBody>,
}

impl LogArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        if self.follow {
            return follow::follow(self, &client);
        }
        let found = self.find(&client)?;
        let (items, stopped) = (Value::Array(found.items.clone()), found.stopped.clone());
        if self.common.json {
            return self.common.print_line(&serde_json::to_value(found)?, "");
        }
        self.common.print_parsed(&items, |rows: &Vec<AttemptBody>, out| {
            table(rows).write_within(out, terminal_width())
        })?;
        if let Some(stopped) = stopped {
            let at = to_the_second(&stopped.at);
            eprintln!("looked back to {at}; for older ones: --until {at}");
        }
        Ok(())
    }

    /// Fetches pages until there are enough rows, or no older ones.
    fn find(&self, client: &AdminClient) -> Result<FoundRows> {
        let mut query = self.conditions.query();
        for (name, value) in [("since", &self.since), ("until", &self.until)] {
            if let Some(value) = value {
                query.push_str(&format!("{name}={}&", escaped(value)));
            }
        }
        if !self.attempts {
            query.push_str("last=true&");
        }
        let wanted = usize::try_from(self.limit).unwrap_or(PAGE_MAX);
        let mut found = FoundRows::default();
        for _ in 0..CALLS_MAX {
            let limit = (wanted - found.items.len()).min(PAGE_MAX);
            let cursor = found.next.as_deref().map(|next| format!("&cursor={}", escaped(next)));
            let cursor = cursor.unwrap_or_default();
            let answer = client.get(&format!("/api/v1/attempts?{query}limit={limit}{cursor}"))?;
            let FoundRows { items, next, stopped } = understood(&answer)?;
            found.items.extend(items);
            (found.next, found.stopped) = (next, stopped);
            if found.next.is_none() || found.items.len() >= wanted {
                break;
            }
        }
        Ok(found)
    }
}

fn table(rows: &[AttemptBody]) -> TextTable {
    let headings = [
        "at",
        "request",
        "tenant",
        "model",
        "worker",
        "status",
        "code",
        "waited",
        "first token",
        "total",
        "tokens",
    ];
    let mut table = TextTable::new(headings);
    for row in rows {
        table.row(vec![
            TableCell::Text(to_the_second(&row.started_at)),
            TableCell::Text(one_line(&row.request)),
            TableCell::Text(one_line(&row.tenant)),
            TableCell::Text(one_line(&row.model)),
            TableCell::Text(text_or_dash(row.worker.as_deref())),
            TableCell::Number(row.status.to_string()),
            TableCell::Text(text_or_dash(row.code.as_deref())),
            TableCell::Number(span(row.waited_us).to_string()),
            TableCell::Number(or_dash(row.first_token_us.map(span))),
            TableCell::Number(span(row.total_us).to_string()),
            TableCell::Number(row.charged_tokens.to_string()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_escaped() {
        let none = LogConditions {
            request: None,
            tenant: Some("a&b=c".to_owned()),
            key: None,
            agent: None,
            project: None,
            task: None,
            pool: None,
            worker: None,
            model: None,
            class: None,
            status: Some("4xx".to_owned()),
            code: None,
            outcome: None,
            waited_ms: Some(5),
        };
        assert_eq!(none.query(), "tenant=a%26b%3Dc&status=4xx&waited_min_ms=5&");
    }
}

//! The command `fairgate request`, which shows the state of a request, the requests ahead of it, and how it ended.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use fairgate_journal::explain_text::place_in_line;
use serde_json::Value;

use super::{AdminOptions, client::AdminClient, escaped, span, text};
use crate::output::StdoutWriter;
use crate::text_format::counted;
use fairgate_table::{TableCell, TextTable};

/// Show the state of a request, the requests ahead of it, and the reason why it waits, or how it ended.
#[derive(Debug, Args)]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    common: AdminOptions,
    /// Id of the request, from the response header x-fairgate-request-id. Without it, all requests that wait or are in
    /// flight are listed.
    id: Option<String>,
}

impl RequestArgs {
    pub(crate) fn run(&self) -> Result<()> {
        let client = self.common.client()?;
        let Some(id) = &self.id else {
            let list = client.get("/api/v1/requests")?;
            return self.common.print_table(&list["items"], list_of);
        };
        let found = client.get(&format!("/api/v1/requests/{}", escaped(id)))?;
        if self.common.json {
            return self.common.print_line(&found, "");
        }
        let pool = pool_of(&client, &found);
        let mut out = StdoutWriter::stdout();
        for line in lines(&found, &pool) {
            writeln!(out, "{line}")?;
        }
        if found["attempts"].as_array().is_some_and(|rows| !rows.is_empty()) {
            writeln!(out)?;
            attempts(&found["attempts"]).write(&mut out)?;
        }
        Ok(out.flush()?)
    }
}

fn list_of(items: &Value) -> TextTable {
    let headings = vec![
        "request",
        "pool",
        "state",
        "tenant",
        "project",
        "task",
        "worker",
        "cost tokens",
        "waited",
        "in flight",
    ];
    let mut table = TextTable::new(headings);
    for item in items.as_array().into_iter().flatten() {
        let named = |field: &str| TableCell::Text(text(item, field));
        table.row(vec![
            named("id"),
            named("pool"),
            named("state"),
            named("tenant"),
            named("project"),
            named("task"),
            named("worker"),
            TableCell::Number(text(item, "cost_tokens")),
            TableCell::Number(span(item, "waited_us")),
            TableCell::Number(span(item, "in_flight_us")),
        ]);
    }
    table
}

/// Returns the view of the pool that a request waits in; `Null` if the request does not wait, or if the view cannot be
/// fetched.
fn pool_of(client: &AdminClient, found: &Value) -> Value {
    match found["request"]["pool"].as_str() {
        Some(pool) => client.get(&format!("/api/v1/pools/{}", escaped(pool))).unwrap_or_default(),
        None => Value::Null,
    }
}

/// Describes a request in lines of text, first the request's state, then its tenant and group, then the reason why it
/// waits.
fn lines(found: &Value, pool: &Value) -> Vec<String> {
    let request = &found["request"];
    let whose = || {
        let group = text(request, "group");
        format!(
            "tenant {}, in group {group}{}; it is expected to use {} tokens{}",
            text(request, "tenant"),
            work(request),
            text(request, "cost_tokens"),
            chosen(request)
        )
    };
    match found["state"].as_str() {
        Some("waiting") => {
            let mut lines = vec![waiting(found, pool), whose()];
            let story = found["story"].as_array().into_iter().flatten();
            lines.extend(story.filter_map(Value::as_str).map(str::to_owned));
            lines
        }
        Some("in_flight") => {
            let (in_flight, waited) = (span(request, "in_flight_us"), span(request, "waited_us"));
            let (worker, pool) = (text(request, "worker"), text(request, "pool"));
            let first = format!(
                "in flight for {in_flight} on worker {worker} of pool {pool}, after a wait of {waited}"
            );
            vec![first, whose()]
        }
        _ => vec![ended(&found["attempts"])],
    }
}

/// Names the task that a request was made for, such as `, for task web-3 of project web`; empty if there is none.
fn work(request: &Value) -> String {
    match (request["project"].is_string(), request["task"].is_string()) {
        (false, _) => String::new(),
        (true, false) => format!(", for project {}", text(request, "project")),
        (true, true) => {
            format!(", for task {} of project {}", text(request, "task"), text(request, "project"))
        }
    }
}

/// Lists the choices that a request made, such as `; class batch, priority -1`; empty if the request made none.
fn chosen(request: &Value) -> String {
    let mut parts = Vec::new();
    if request["class"].is_string() {
        parts.push(format!("class {}", text(request, "class")));
    }
    if request["priority"].as_i64().is_some_and(|priority| priority != 0) {
        parts.push(format!("priority {}", text(request, "priority")));
    }
    if request["weight"].is_number() {
        parts.push(format!("weight {}", text(request, "weight")));
    }
    if request["pin"].is_string() {
        parts.push(format!("only on worker {}", text(request, "pin")));
    }
    if request["requires"].as_array().is_some_and(|taints| !taints.is_empty()) {
        parts.push(format!("only on workers with {}", text(request, "requires")));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!("; {}", parts.join(", ")),
    }
}

fn waiting(found: &Value, pool: &Value) -> String {
    let mut parts = vec![format!(
        "waiting for {} in pool {}",
        span(&found["request"], "waited_us"),
        text(&found["request"], "pool")
    )];
    if let (Some(used), Some(all)) = (pool["in_flight"].as_u64(), pool["capacity"].as_u64()) {
        parts.push(match used >= all {
            true => format!("all {} are in use", counted(all, "slot")),
            false => format!("{used} of {} are in use", counted(all, "slot")),
        });
    }
    parts.push(place_in_line(found["waiting"]["grants_ahead"].as_u64()));
    parts.join("; ")
}

fn ended(rows: &Value) -> String {
    let mut rows = rows.as_array().into_iter().flatten();
    let Some(last) = rows.find(|row| row["last"] == true) else {
        return "it has not ended, and nothing more is known of it now".to_owned();
    };
    let code = last["code"].as_str().map(|code| format!(" ({code})")).unwrap_or_default();
    let class = last["class"].as_str().map(|class| format!(", class {class}")).unwrap_or_default();
    format!(
        "ended with status {}{code} after {}; tenant {}{}, model {}{class}",
        text(last, "status"),
        span(last, "total_us"),
        text(last, "tenant"),
        work(last),
        text(last, "model")
    )
}

fn attempts(rows: &Value) -> TextTable {
    let mut table = TextTable::new(vec![
        "attempt",
        "worker",
        "outcome",
        "status",
        "code",
        "waited",
        "first token",
        "total",
        "input tokens",
        "cached",
        "output tokens",
        "charged tokens",
    ]);
    let mut rows: Vec<&Value> = rows.as_array().into_iter().flatten().collect();
    rows.sort_by_key(|row| row["attempt"].as_u64());
    for row in rows {
        let (named, number) = (
            |field: &str| TableCell::Text(text(row, field)),
            |field: &str| TableCell::Number(text(row, field)),
        );
        let span = |field: &str| TableCell::Number(span(row, field));
        table.row(vec![
            named("attempt"),
            named("worker"),
            named("outcome"),
            number("status"),
            named("code"),
            span("waited_us"),
            span("first_token_us"),
            span("total_us"),
            number("input_tokens"),
            number("cached_tokens"),
            number("output_tokens"),
            number("charged_tokens"),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_of_an_agent_names_its_task() {
        let mut request = json!({
            "in_flight_us": 5, "waited_us": 0, "worker": "w", "pool": "p", "tenant": "t", "group": "g", "cost_tokens": 9,
        });
        for (field, value, shown) in [
            ("group", "g", ""),
            ("project", "web", ", for project web"),
            ("task", "web-1", ", for task web-1 of project web"),
        ] {
            request[field] = json!(value);
            let found = json!({"state": "in_flight", "request": request});
            let expected = format!("tenant t, in group g{shown}; it is expected to use 9 tokens");
            assert_eq!(lines(&found, &Value::Null)[1], expected);
        }
    }

    #[test]
    fn the_first_line_says_what_a_person_wants_to_know() {
        let found = |ahead: Value| {
            json!({
                "state": "waiting",
                "request": {"waited_us": 1_200_000, "pool": "llama", "tenant": "chat", "group": "prod", "cost_tokens": 9},
                "waiting": {"grants_ahead": ahead},
                "story": ["why"],
            })
        };
        let pool = json!({"in_flight": 4, "capacity": 4});
        let shown = lines(&found(json!(9)), &pool);
        assert_eq!(
            shown[0],
            "waiting for 1.2 s in pool llama; all 4 slots are in use; if nothing else came, 9 grants would come before its own"
        );
        assert_eq!(shown[1], "tenant chat, in group prod; it is expected to use 9 tokens");
        assert_eq!(shown[2], "why");
        let mut choosy = found(json!(9));
        choosy["request"]["class"] = json!("batch");
        choosy["request"]["priority"] = json!(-3);
        choosy["request"]["weight"] = json!(2.5);
        choosy["request"]["pin"] = json!("w/1");
        choosy["request"]["requires"] = json!(["eu", "h100"]);
        assert_eq!(
            lines(&choosy, &pool)[1],
            "tenant chat, in group prod; it is expected to use 9 tokens; class batch, priority -3, weight 2.5, only on worker w/1, \
             only on workers with eu,h100"
        );
        let shown = lines(&found(json!(0)), &json!({"in_flight": 1, "capacity": 4}));
        assert_eq!(
            shown[0],
            "waiting for 1.2 s in pool llama; 1 of 4 slots are in use; next in line for a slot"
        );
        let shown = lines(&found(Value::Null), &Value::Null);
        assert_eq!(
            shown[0],
            "waiting for 1.2 s in pool llama; as things are, it would never be granted"
        );
    }
}

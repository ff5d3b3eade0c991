//! The command `fairgate request`, which shows the state of a request, the requests ahead of it,
//! and the end of an ended request.

use std::io::Write;

use anyhow::Result;
use clap::Args;
use fairgate_api::admin::{AttemptBody, PoolBody, RequestBody, RequestDetail, RequestState};
use fairgate_journal::explain_text::place_in_line;
use fairgate_table::{TableCell, TextTable};

use super::client::AdminClient;
use super::{AdminOptions, escaped, items, names, or_dash, span, text_or_dash, understood};
use crate::output::StdoutWriter;
use crate::text_format::{counted, one_line};

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
            let list = items(&list)?;
            return self.common.print_table(&list, |list: &Vec<RequestBody>| list_of(list));
        };
        let found = client.get(&format!("/api/v1/requests/{}", escaped(id)))?;
        if self.common.json {
            return self.common.print_line(&found, "");
        }
        let found: RequestDetail = understood(&found)?;
        let pool = pool_of(&client, &found);
        let mut out = StdoutWriter::stdout();
        for line in lines(&found, pool.as_ref()) {
            writeln!(out, "{line}")?;
        }
        if !found.attempts.is_empty() {
            writeln!(out)?;
            attempts(&found.attempts).write(&mut out)?;
        }
        Ok(out.flush()?)
    }
}

fn list_of(requests: &[RequestBody]) -> TextTable {
    let headings = vec![
        "request",
        "pool",
        "state",
        "tenant",
        "project",
        "task",
        "worker",
        "cost",
        "waited",
        "in flight",
    ];
    let mut table = TextTable::new(headings);
    for request in requests {
        let named = |name: &Option<String>| TableCell::Text(text_or_dash(name.as_deref()));
        table.row(vec![
            TableCell::Text(one_line(&request.id)),
            TableCell::Text(one_line(&request.pool)),
            TableCell::Text(request.state.word().to_owned()),
            named(&request.tenant),
            named(&request.project),
            named(&request.task),
            named(&request.worker),
            TableCell::Number(cost(request)),
            TableCell::Number(span(request.waited_us).to_string()),
            TableCell::Number(or_dash(request.in_flight_us.map(span))),
        ]);
    }
    table
}

/// Returns the view of the pool that a request waits in; `None` if the request does not wait, or if the view cannot be
/// fetched.
fn pool_of(client: &AdminClient, found: &RequestDetail) -> Option<PoolBody> {
    let pool = escaped(&found.request.as_ref()?.pool);
    understood(&client.get(&format!("/api/v1/pools/{pool}")).ok()?).ok()
}

/// Formats the expected cost of a request with its unit.
fn cost(request: &RequestBody) -> String {
    match &*request.unit {
        "worker_time" => format!("{} µs", request.cost),
        "money" => format!("{} micro-units", request.cost),
        _ => format!("{} tokens", request.cost),
    }
}

/// Describes a request in lines of text, first the request's state, then its tenant and group, then the reason why it
/// waits.
fn lines(found: &RequestDetail, pool: Option<&PoolBody>) -> Vec<String> {
    let Some(request) = &found.request else { return vec![ended(&found.attempts)] };
    let whose = format!(
        "tenant {}, in group {}{}; it is expected to use {}{}",
        text_or_dash(request.tenant.as_deref()),
        text_or_dash(request.group.as_deref()),
        work(request.project.as_deref(), request.task.as_deref()),
        cost(request),
        chosen(request)
    );
    match request.state {
        RequestState::Waiting => {
            let mut lines = vec![waiting(found, request, pool), whose];
            lines.extend(found.story.iter().cloned());
            lines
        }
        RequestState::InFlight => {
            let first = format!(
                "in flight for {} on worker {} of pool {}, after a wait of {}",
                or_dash(request.in_flight_us.map(span)),
                text_or_dash(request.worker.as_deref()),
                one_line(&request.pool),
                span(request.waited_us)
            );
            vec![first, whose]
        }
    }
}

/// Names the task that a request was made for, such as `, for task web-3 of project web`; empty if there is none.
fn work(project: Option<&str>, task: Option<&str>) -> String {
    match (project.map(one_line), task.map(one_line)) {
        (None, _) => String::new(),
        (Some(project), None) => format!(", for project {project}"),
        (Some(project), Some(task)) => format!(", for task {task} of project {project}"),
    }
}

/// Lists the choices that a request made, such as `; class batch, priority -1`; empty if the request made none.
fn chosen(request: &RequestBody) -> String {
    let mut parts = Vec::new();
    parts.extend(request.class.as_ref().map(|class| format!("class {}", one_line(class))));
    if request.priority != 0 {
        parts.push(format!("priority {}", request.priority));
    }
    parts.extend(request.weight.map(|weight| format!("weight {weight}")));
    parts.extend(request.pin.as_ref().map(|pin| format!("only on worker {}", one_line(pin))));
    if !request.requires.is_empty() {
        parts.push(format!("only on workers with {}", names(&request.requires)));
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!("; {}", parts.join(", ")),
    }
}

fn waiting(found: &RequestDetail, request: &RequestBody, pool: Option<&PoolBody>) -> String {
    let pool_name = one_line(&request.pool);
    let mut parts = vec![format!("waiting for {} in pool {pool_name}", span(request.waited_us))];
    if let Some(&PoolBody { in_flight: used, capacity: all, .. }) = pool {
        parts.push(match used >= all {
            true => format!("all {} are in use", counted(all, "slot")),
            false => format!("{used} of {} are in use", counted(all, "slot")),
        });
    }
    parts.push(place_in_line(found.waiting.as_ref().and_then(|waiting| waiting.grants_ahead)));
    parts.join("; ")
}

fn ended(rows: &[AttemptBody]) -> String {
    let Some(last) = rows.iter().find(|row| row.last) else {
        return "it has not ended, and nothing more is known of it now".to_owned();
    };
    let code = last.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
    let class = last.class.as_ref().map(|class| format!(", class {class}")).unwrap_or_default();
    format!(
        "ended with status {}{code} after {}; tenant {}{}, model {}{class}",
        last.status,
        span(last.total_us),
        one_line(&last.tenant),
        work(last.project.as_deref(), last.task.as_deref()),
        one_line(&last.model)
    )
}

fn attempts(rows: &[AttemptBody]) -> TextTable {
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
    let mut rows: Vec<&AttemptBody> = rows.iter().collect();
    rows.sort_by_key(|row| row.attempt);
    for row in rows {
        table.row(vec![
            TableCell::Text(row.attempt.to_string()),
            TableCell::Text(text_or_dash(row.worker.as_deref())),
            TableCell::Text(one_line(&row.outcome)),
            TableCell::Number(row.status.to_string()),
            TableCell::Text(text_or_dash(row.code.as_deref())),
            TableCell::Number(span(row.waited_us).to_string()),
            TableCell::Number(or_dash(row.first_token_us.map(span))),
            TableCell::Number(span(row.total_us).to_string()),
            TableCell::Number(row.input_tokens.to_string()),
            TableCell::Number(row.cached_tokens.to_string()),
            TableCell::Number(row.output_tokens.to_string()),
            TableCell::Number(row.charged_tokens.to_string()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use fairgate_api::WeightNumber;
    use fairgate_api::admin::WaitingBody;

    use super::*;

    /// Returns a request of tenant `chat` in group `prod` with an expected cost of 9 tokens.
    fn request(state: RequestState) -> RequestBody {
        RequestBody {
            id: "r".into(),
            pool: "llama".into(),
            state,
            group: Some("prod".into()),
            tenant: Some("chat".into()),
            key: None,
            project: None,
            task: None,
            class: None,
            agent: None,
            session: None,
            priority: 0,
            weight: None,
            pin: None,
            requires: Vec::new(),
            unit: "tokens".into(),
            cost: 9,
            cost_uncached: None,
            cost_tokens: Some(9),
            cost_uncached_tokens: None,
            submitted_at: String::new(),
            waited_us: 1_200_000,
            expected_wait_ms: None,
            in_flight_us: None,
            worker: None,
        }
    }

    fn detail(request: RequestBody, grants_ahead: Option<u64>) -> RequestDetail {
        let waiting = WaitingBody {
            grants_ahead,
            ahead_in_queue: 0,
            expected_wait_ms: None,
            ahead: Vec::new(),
            levels: Vec::new(),
        };
        RequestDetail {
            id: "r".into(),
            state: "waiting".into(),
            summary: String::new(),
            expected_wait_ms: None,
            request: Some(request),
            waiting: Some(waiting),
            story: vec!["why".into()],
            attempts: Vec::new(),
        }
    }

    fn pool(in_flight: u64) -> PoolBody {
        let counts = serde_json::json!({
            "granted": 0, "rejected": 0, "expired": 0, "left": 0, "settled": 0, "failed": 0,
        });
        let pool = serde_json::json!({
            "name": "llama", "models": [], "algorithm": "", "capacity": 4, "in_flight": in_flight, "queued": 0,
            "queued_max": 9, "queue_timeout_ms": 9, "draining": false, "held": [], "workers": [],
            "journal": {"status": "off", "events_lost": 0, "gaps": 0}, "counts": counts,
        });
        serde_json::from_value(pool).unwrap()
    }

    #[test]
    fn a_call_of_an_agent_names_its_task() {
        for (project, task, shown) in [
            (None, None, ""),
            (Some("web"), None, ", for project web"),
            (Some("web"), Some("web-1"), ", for task web-1 of project web"),
        ] {
            let (project, task) = (project.map(str::to_owned), task.map(str::to_owned));
            let request = RequestBody { project, task, ..request(RequestState::InFlight) };
            let expected =
                format!("tenant chat, in group prod{shown}; it is expected to use 9 tokens");
            assert_eq!(lines(&detail(request, None), None)[1], expected);
        }
    }

    #[test]
    fn the_first_line_says_what_a_person_wants_to_know() {
        let found = |ahead| detail(request(RequestState::Waiting), ahead);
        let shown = lines(&found(Some(9)), Some(&pool(4)));
        assert_eq!(
            shown[0],
            "waiting for 1.2 s in pool llama; all 4 slots are in use; if nothing else came, 9 grants would come before its own"
        );
        assert_eq!(shown[1], "tenant chat, in group prod; it is expected to use 9 tokens");
        assert_eq!(shown[2], "why");
        let choosy = RequestBody {
            class: Some("batch".into()),
            priority: -3,
            weight: WeightNumber::from_thousandths(2500),
            pin: Some("w/1".into()),
            requires: vec!["eu".into(), "h100".into()],
            ..request(RequestState::Waiting)
        };
        assert_eq!(
            lines(&detail(choosy, Some(9)), Some(&pool(4)))[1],
            "tenant chat, in group prod; it is expected to use 9 tokens; class batch, priority -3, weight 2.5, only on worker w/1, \
             only on workers with eu,h100"
        );
        let shown = lines(&found(Some(0)), Some(&pool(1)));
        assert_eq!(
            shown[0],
            "waiting for 1.2 s in pool llama; 1 of 4 slots are in use; next in line for a slot"
        );
        let shown = lines(&found(None), None);
        assert_eq!(
            shown[0],
            "waiting for 1.2 s in pool llama; as things are, it would never be granted"
        );
    }
}

//! Reads the journals to compute what another policy would have decided, and why an ended request
//! waited.
//!
//! Only one journal is read at a time, on a thread of its own, so that the pools' threads stay
//! free.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use fairgate_api::JsonWholeNumber;
use fairgate_api::admin::FlowAttribute;
use fairgate_api::error::ConfigProblem;
use fairgate_config::CostUnit;
use fairgate_core::attribute::Attribute;
use fairgate_core::units::Weight;
use fairgate_replay::{
    DiffRun, FlowWeight, HistoryCollector, OtherPolicy, ReplayError, ReplayJournal, ReplayPlan,
    ReplayRange, ShownUnit, policy_diff, replay,
};
use fairgate_store::{AttemptRow, LedgerQuery, UnixMicros};
use http::header::CONTENT_TYPE;
use http::{HeaderName, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::AdminCaller;
use super::body::JsonBody;
use super::moment::TypedTime;
use super::path::PathName;
use super::pools::pool_by_name;
use crate::control_plane::ControlPlane;
use fairgate_proxy::pools::journal_folder;
use fairgate_time::wall_clock;

/// Time before a request's arrival and after its end that the request's history covers, in
/// microseconds. The ledger and the journal may have slightly different clocks.
const MARGIN_US: i64 = 1_000_000;
/// Name in error messages of the policy in the request's body.
const POLICY: &str = "policy";

const JOURNAL_LINES: HeaderName = HeaderName::from_static("x-fairgate-journal-lines");
const TOOK_MS: HeaderName = HeaderName::from_static("x-fairgate-took-ms");

/// A pool, a time range, and the difference to compute. Exactly one of `policy`, `policy_file` and
/// `weights` is given.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WhatIf)]
pub(super) struct WhatIfRequest {
    /// Name of the pool, as in the configuration.
    pool: String,
    /// Beginning of the time range, inclusive: RFC 3339, seconds since 1970, or an age such as `1h`. Default: where the
    /// newest unbroken run of journal files begins.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    since: Option<TypedTime>,
    /// End of the time range, exclusive, in the same formats (default now).
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    until: Option<TypedTime>,
    /// Attribute whose values are the flows of the result. Default: the attribute of the policy's root, or `class` with a
    /// `policy_file`.
    #[serde(default)]
    by: Option<FlowAttribute>,
    /// Policy node that replaces the pool's policy, such as `{"share": {"by": "tenant"}}`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    policy: Option<Map<String, Value>>,
    /// Text of a file with a policy: a policy node, or a policy file with classes.
    #[serde(default)]
    policy_file: Option<String>,
    /// Weights of flows under the pool's own policy; 1 to 64 weights.
    #[serde(default)]
    #[schema(min_items = 1, max_items = 64)]
    weights: Option<Vec<WhatIfWeight>>,
}

/// Weight of a flow in a what-if.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = WhatIfWeight)]
pub(super) struct WhatIfWeight {
    /// Attribute by which the flow is named.
    by: FlowAttribute,
    /// Name of the flow; for a key, its id.
    flow: String,
    /// Weight of the flow, or its quantum in the unit of the pool; 1 or more.
    #[schema(value_type = u64, minimum = 1, maximum = 1_000_000)]
    weight: JsonWholeNumber,
}

/// Results of each flow, as recorded and as they would have been.
#[derive(ToSchema)]
#[schema(as = WhatIfResult)]
#[allow(dead_code, reason = "only its schema is used: the result is written by fairgate-replay")]
pub(super) struct WhatIfResultSchema {
    /// Attribute whose values are the flows.
    by: String,
    /// Unit of `tokens`: `tokens`, `worker_time` (microseconds of a full worker) or `money` (micro-units).
    unit: String,
    /// The flows, sorted by name.
    flows: Vec<WhatIfFlowSchema>,
    /// Results of all flows together.
    all: WhatIfRunsSchema,
}

/// Results of one flow under both policies.
#[derive(ToSchema)]
#[schema(as = WhatIfFlow)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct WhatIfFlowSchema {
    /// Name of the flow.
    flow: String,
    /// Number of the flow's requests.
    requests: u64,
    /// Number of the flow's requests under the other policy; absent if it is the same.
    #[schema(nullable = false)]
    requests_what_if: Option<u64>,
    /// Results under the recorded policy.
    recorded: WhatIfRunSchema,
    /// Results under the other policy or weights.
    what_if: WhatIfRunSchema,
}

/// Results of all flows under both policies.
#[derive(ToSchema)]
#[schema(as = WhatIfRuns)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct WhatIfRunsSchema {
    /// Number of requests of all flows.
    requests: u64,
    /// Number of requests under the other policy; absent if it is the same.
    #[schema(nullable = false)]
    requests_what_if: Option<u64>,
    /// Results under the recorded policy.
    recorded: WhatIfRunSchema,
    /// Results under the other policy or weights.
    what_if: WhatIfRunSchema,
}

/// Results under one policy. Waits are those of granted requests, exact, by nearest rank; null if none was granted.
#[derive(ToSchema)]
#[schema(as = WhatIfRun)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct WhatIfRunSchema {
    /// Number of granted requests.
    granted: u64,
    /// Sum of the costs of the granted requests, in the `unit` of the result.
    tokens: u64,
    /// Number of requests that were rejected or expired.
    refused: u64,
    /// Median wait, in microseconds.
    wait_p50_us: Option<u64>,
    /// 95th percentile of the waits, in microseconds.
    wait_p95_us: Option<u64>,
    /// Longest wait, in microseconds.
    wait_max_us: Option<u64>,
}

/// History of an ended request, from the pool's journal.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = RequestJournal)]
pub(super) struct RequestJournalBody {
    /// History in sentences: when the request came, what happened while it waited, why it was
    /// granted before the next request, and how it ended. If there is no history, one sentence says
    /// why.
    story: Vec<String>,
    /// Unit of all costs and counters of the history, also of those whose names end in `_tokens`: `tokens`, `worker_time`
    /// (microseconds of a full worker) or `money` (micro-units). Null if there is no history.
    unit: Option<&'static str>,
    /// History with all numbers, as `fairgate replay --explain --json` prints it; null if there is none.
    #[schema(value_type = Option<Object>)]
    history: Option<Value>,
}

/// Replays the requests of a time range under another policy, or with other weights, and compares
/// the results of each flow.
///
/// Takes up to some seconds. One runs at a time. The response equals what `fairgate replay --diff --json --unit UNIT` prints
/// for the same files and the unit of the pool. The header `x-fairgate-journal-lines` has the number of lines that were read.
#[utoipa::path(
    post, path = "/api/v1/what-if", tag = "operation", request_body = WhatIfRequest,
    responses(
        (status = 200, description = "Both results", body = WhatIfResultSchema),
        (status = 404, description = "There is no such pool", body = super::ErrorBody),
        (status = 409, description = "There is no journal, or it was interrupted within the time range", body = super::ErrorBody),
        (status = 413, description = "The time range has more than 5 million lines", body = super::ErrorBody),
        (status = 429, description = "Another look into the journal runs", body = super::ErrorBody),
    ),
)]
pub(super) async fn what_if(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    JsonBody(asked): JsonBody<WhatIfRequest>,
) -> Result<Response, ApiError> {
    let handle = pool_by_name(&app, &asked.pool)?;
    let other = other_policy(&asked)?;
    let folder = folder(&app, &handle.name)?;
    let now = wall_clock::now();
    let range = ReplayRange {
        since: asked.since.map(|since| since.at(now)),
        until: Some(asked.until.map_or(now, |until| until.at(now))),
    };
    let (by, unit) = (asked.by.map(Attribute::from), shown_unit(handle.setup().unit()));
    let (began, lines_max) = (Instant::now(), app.journal_lines_max());
    let (text, lines) = look(&app, move || {
        let plan = ReplayPlan::of_folder(&folder, range)?.with_lines_max(lines_max);
        let DiffRun { mut diff, lines } = policy_diff(&other, by, &|_| ReplayJournal::open(&plan))?;
        diff.set_unit(unit);
        let mut text = Vec::new();
        diff.write_json(&mut text).map_err(ReplayError::Output)?;
        Ok((text, lines))
    })
    .await?;
    let headers = [
        (CONTENT_TYPE, "application/json".to_owned()),
        (JOURNAL_LINES, lines.to_string()),
        (TOOK_MS, began.elapsed().as_millis().to_string()),
    ];
    Ok((headers, text).into_response())
}

/// Runs `work`, which reads a journal, on a thread of its own. Returns an error if another one
/// runs.
async fn look<T: Send + 'static>(
    app: &ControlPlane,
    work: impl FnOnce() -> Result<T, ReplayError> + Send + 'static,
) -> Result<T, ApiError> {
    let Ok(permit) = app.journal_looks.clone().try_acquire_owned() else {
        let message =
            "another what-if or history is being read from a journal; try again in a few seconds";
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "what_if_busy", message);
        return Err(error.retry_after(Duration::from_secs(2)));
    };
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(permit);
        done
    });
    match done.await {
        Ok(done) => done.map_err(ApiError::from),
        Err(_) => Err(ApiError::unavailable("journal_unreadable", "the gateway is ending")),
    }
}

/// Returns the folder of a pool's journal. Without a journal, the error has the lines that switch
/// it on.
fn folder(app: &ControlPlane, pool: &str) -> Result<PathBuf, ApiError> {
    let config = app.data.config.load();
    match &config.journal {
        Some(journal) => Ok(journal_folder(journal, pool)),
        None => Err(no_journal()),
    }
}

fn no_journal() -> ApiError {
    let message = "this needs the pool's journal, which is not there: add the line `journal: {}` to the configuration file \
                   and restart the gateway";
    ApiError::new(StatusCode::CONFLICT, "no_journal", message)
}

fn other_policy(asked: &WhatIfRequest) -> Result<OtherPolicy, ApiError> {
    let text = match (&asked.policy, &asked.policy_file, &asked.weights) {
        (None, None, Some(weights)) => return other_weights(weights),
        (Some(policy), None, None) => Value::Object(policy.clone()).to_string(),
        (None, Some(text), None) => text.clone(),
        _ => {
            let message = "exactly one of policy, policy_file and weights must be given";
            return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", message)
                .in_field(POLICY));
        }
    };
    Ok(OtherPolicy::parse(&text, Path::new(POLICY))?)
}

fn other_weights(weights: &[WhatIfWeight]) -> Result<OtherPolicy, ApiError> {
    let invalid = |field: String, problem: &str| {
        let message = format!("{field}: {problem}");
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", message).in_field(field)
    };
    if weights.is_empty() || weights.len() > 64 {
        return Err(invalid("weights".to_owned(), "must have 1 to 64 entries"));
    }
    let mut checked = Vec::new();
    for (place, WhatIfWeight { by, flow, weight: JsonWholeNumber(weight) }) in
        weights.iter().enumerate()
    {
        let valid = Weight::new(*weight).ok().filter(|_| *weight <= 1_000_000);
        let field = format!("weights[{place}].weight");
        let weight = valid.ok_or_else(|| invalid(field, "must be 1 to 1000000"))?;
        checked.push(FlowWeight { by: (*by).into(), flow: flow.as_str().into(), weight });
    }
    Ok(OtherPolicy::of_weights(checked))
}

/// Shows the history of a request that has ended, from the journal of its pool: why it waited, and
/// why it was granted when it was.
///
/// Takes up to some seconds, because the journal's file is replayed. Only one history or what-if is
/// computed at a time.
#[utoipa::path(
    get, path = "/api/v1/requests/{id}/journal", tag = "operation",
    params(("id" = String, Path, description = "The request's id, as in the header x-fairgate-request-id of its answer")),
    responses(
        (status = 200, description = "Its history", body = RequestJournalBody),
        (status = 413, description = "The journal has more than 5 million lines for the time of the request", body = super::ErrorBody),
        (status = 429, description = "Another look into the journal runs", body = super::ErrorBody),
    ),
)]
pub(super) async fn request_journal(
    State(app): State<Arc<ControlPlane>>,
    _: AdminCaller,
    PathName(id): PathName,
) -> Result<Json<RequestJournalBody>, ApiError> {
    let query = LedgerQuery { request: Some(id.clone()), ..LedgerQuery::default() };
    let rows = app.data.store.attempts(query).await?;
    if rows.is_empty() {
        return Err(ApiError::not_found("request that has ended", &id));
    }
    history(&app, &rows).await.map(Json)
}

/// Returns the unit in which replay shows the costs of a pool that counts in this unit.
fn shown_unit(unit: CostUnit) -> ShownUnit {
    match unit {
        CostUnit::Tokens => ShownUnit::Tokens,
        CostUnit::WorkerTime => ShownUnit::WorkerTime,
        CostUnit::Money => ShownUnit::Money,
    }
}

/// Returns the unit in which the scheduler counted an attempt. The pool may count in another unit now.
fn unit_of_attempt(app: &ControlPlane, pool: &str, row: &AttemptRow) -> ShownUnit {
    if row.price_set.is_some() {
        return ShownUnit::WorkerTime;
    }
    let unit = app.data.pools.named(pool).map(|pool| pool.setup().unit());
    match (unit, row.worker_us) {
        // Without a price of the worker's time, or if the pool counts money, the row does not show
        // its unit.
        (Some(CostUnit::WorkerTime), 0) => ShownUnit::WorkerTime,
        (Some(CostUnit::Money), _) => ShownUnit::Money,
        _ => ShownUnit::Tokens,
    }
}

async fn history(app: &ControlPlane, rows: &[AttemptRow]) -> Result<RequestJournalBody, ApiError> {
    let none =
        |sentence: String| RequestJournalBody { story: vec![sentence], unit: None, history: None };
    let last = rows.iter().find(|row| row.last).or(rows.first());
    let Some((row, pool)) = last.and_then(|row| Some((row, row.pool.as_deref()?))) else {
        return Ok(none("it reached no pool, so no journal tells of it".to_owned()));
    };
    let config = app.data.config.load();
    let Some(journal) = &config.journal else {
        return Ok(none(
            "there is no journal: add the line `journal: {}` to the configuration file and restart"
                .to_owned(),
        ));
    };
    let folder = journal_folder(journal, pool);
    let took = i64::try_from(row.total_us).unwrap_or(i64::MAX);
    let came = row.started_at;
    let range = ReplayRange {
        since: Some(UnixMicros(came.0.saturating_sub(MARGIN_US))),
        until: Some(UnixMicros(row.started_at.0.saturating_add(took).saturating_add(MARGIN_US))),
    };
    let (id, lines_max) = (row.request.clone(), app.journal_lines_max());
    let unit = unit_of_attempt(app, pool, row);
    let found = look(app, move || {
        let plan = ReplayPlan::of_folder(&folder, range).or_else(|error| match error {
            // The request came within the margin after the journal's beginning.
            ReplayError::NotKept { .. } => {
                ReplayPlan::of_folder(&folder, ReplayRange { since: Some(came), ..range })
            }
            error => Err(error),
        });
        let plan = match plan {
            Ok(plan) => plan.with_lines_max(lines_max),
            Err(
                error @ (ReplayError::NotKept { .. }
                | ReplayError::Interrupted { .. }
                | ReplayError::NoFiles { .. }
                | ReplayError::NoClock { .. }),
            ) => return Ok(Err(error.to_string())),
            Err(error) => return Err(error),
        };
        let mut collector = HistoryCollector::new(&id);
        let (mut pool, mut journal) = ReplayJournal::open(&plan)?;
        replay(&mut pool, &mut journal, &mut collector)?;
        collector.finish();
        let (mut words, mut json) = (Vec::new(), Vec::new());
        collector.write_words(&mut words, unit).map_err(ReplayError::Output)?;
        let other = journal.other_edition();
        collector.write_json(&mut json, unit, other).map_err(ReplayError::Output)?;
        let is_empty = collector.is_empty();
        Ok(if is_empty { Err(String::new()) } else { Ok((words, json)) })
    });
    Ok(match found.await? {
        Ok((words, json)) => RequestJournalBody {
            story: String::from_utf8_lossy(&words)
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .map(str::to_owned)
                .collect(),
            unit: Some(unit.name()),
            history: serde_json::from_slice(&json).ok(),
        },
        Err(reason) if reason.is_empty() => {
            none("the journal does not have this request".to_owned())
        }
        Err(reason) => none(reason),
    })
}

impl From<ReplayError> for ApiError {
    fn from(error: ReplayError) -> Self {
        let message = error.to_string();
        let invalid = |message: String| {
            Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_policy", message).in_field(POLICY)
        };
        match error {
            ReplayError::NoFiles { .. } => no_journal(),
            ReplayError::Input { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                no_journal()
            }
            ReplayError::Policy { source, .. } => {
                let problem = ConfigProblem {
                    file: None,
                    line: usize::try_from(source.line()).ok(),
                    column: None,
                    field: source.field().unwrap_or_default().to_owned(),
                    message: source.to_string(),
                };
                invalid(format!("the policy is wrong: {source}")).with_problems(vec![problem])
            }
            ReplayError::PolicyFile(errors) => {
                let problems = errors.iter().map(|error| ConfigProblem {
                    file: None,
                    line: error.place.map(|place| place.line),
                    column: error.place.map(|place| place.column),
                    field: error.field.clone(),
                    message: error.message.clone(),
                });
                invalid(format!("the policy is wrong: {errors}")).with_problems(problems.collect())
            }
            ReplayError::UnusablePolicy { .. } | ReplayError::Weight(_) => invalid(message),
            ReplayError::NotKept { .. } => Self::bad_request("not_kept", message).in_field("since"),
            ReplayError::EmptyRange { .. } => {
                Self::bad_request("empty_range", message).in_field("until")
            }
            ReplayError::Interrupted { .. } => {
                Self::new(StatusCode::CONFLICT, "journal_interrupted", message).in_field("since")
            }
            ReplayError::NoClock { .. } => Self::new(StatusCode::CONFLICT, "no_clock", message),
            ReplayError::TooLong { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_long", message).in_field("until")
            }
            ReplayError::Journal { name, source } => {
                Self::unavailable("journal_unreadable", format!("{name}: {source}"))
            }
            ReplayError::Input { name, source } => {
                Self::unavailable("journal_unreadable", format!("{name}: {source}"))
            }
            ReplayError::Time(_) | ReplayError::Output(_) => {
                Self::unavailable("journal_unreadable", message)
            }
        }
    }
}

//! Leases, which are slots for programs that call a provider themselves.
//!
//! ```text
//! POST   /v1/leases                     submit; waits up to wait_ms for the grant
//! GET    /v1/leases?client=…&after=…    the leases of a client program that changed; renews them all
//! GET    /v1/leases/ID                  one lease; waits up to wait_ms while it is queued, and renews it
//! POST   /v1/leases/ID/renew            renews one lease
//! POST   /v1/leases/ID/limited          the provider refused the call for a rate limit: returns the lease to the queue
//! POST   /v1/leases/ID/settle           ends a lease, with the usage of its call
//! DELETE /v1/leases/ID                  cancels a lease
//! ```
//!
//! A lease is a request whose call is made by the client. Each lease has a task (`lease_task`) that takes the lease's
//! request through the same steps, and behind the same guard, as any other request. Instead of an upstream's answer,
//! the task waits for a message of the client. Handlers find the lease in the `table` and send the message to its task.
//!
//! A pool of leases has one worker, which stands for the provider and is created by the roster. So rates, pauses, the
//! live view and the ledger need no code of their own for leases.

mod connection_leases;
mod lease;
mod lease_source;
mod lease_task;
mod table;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairgate_api::leases::{
    DialectErrorBody, LEASES, LeaseBody, LeaseChangesBody, LeaseLimitedBody, LeaseSettlementBody,
    LeaseSubmissionBody,
};
use fairgate_config::LimitsConfig;
use fairgate_dialect::Dialect;
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use utoipa::OpenApi;

pub(crate) use self::connection_leases::ConnectionLeases;
pub(crate) use self::table::LeaseTable;

use self::lease::{LeaseChanges, LeaseHandle, LeaseMessage, LeaseResult, LeaseStatus};
use super::body;
use super::data_plane::DataPlane;
use super::request_guard::RequestGuard;
use crate::identity::Caller;
use crate::pools::PoolHandle;
use crate::refusal::{self, Refusal};
use crate::reply::{self, Reply};

/// The largest request body of the lease API, in bytes.
const BODY_BYTES_MAX: u64 = 64 << 10;
/// Longest time that a client's settle call waits for the settlement. The row is written by then, unless the store is
/// down.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// The part of the OpenAPI document about leases.
#[derive(OpenApi)]
#[openapi(
    paths(submit, news, look, renew, limited, settle, cancel),
    tags((name = "leases", description = "Slots for programs that call a provider themselves")),
)]
pub struct LeasesApi;

/// The operation of a request to the lease API, and the id of its lease.
enum LeaseOperation<'a> {
    Submit,
    News,
    Look(&'a str),
    Renew(&'a str),
    Limited(&'a str),
    Settle(&'a str),
    Cancel(&'a str),
}

/// Serves a request to the lease API. `connection` is dropped when the connection of the request closes.
pub(crate) async fn leases(
    app: Arc<DataPlane>,
    connection: &ConnectionLeases,
    request: Request<Incoming>,
) -> Reply {
    let id = app.request_ids.next();
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().strip_prefix(LEASES).unwrap_or_default();
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    let asked = match (&parts.method, &steps[..]) {
        (&Method::POST, []) => LeaseOperation::Submit,
        (&Method::GET, []) => LeaseOperation::News,
        (&Method::GET, [lease]) => LeaseOperation::Look(lease),
        (&Method::DELETE, [lease]) => LeaseOperation::Cancel(lease),
        (&Method::POST, [lease, "renew"]) => LeaseOperation::Renew(lease),
        (&Method::POST, [lease, "limited"]) => LeaseOperation::Limited(lease),
        (&Method::POST, [lease, "settle"]) => LeaseOperation::Settle(lease),
        (_, steps) => {
            let allowed = match steps {
                [] => Some("GET, POST"),
                [_] => Some("GET, DELETE"),
                [_, "renew" | "limited" | "settle"] => Some("POST"),
                _ => None,
            };
            let (code, reply) = match allowed {
                Some(allowed) => refusal::wrong_method(allowed, Dialect::OpenAi, &id),
                None => {
                    let refusal = refusal::unknown_path(parts.uri.path());
                    (refusal.code, refusal.reply(Dialect::OpenAi, &id))
                }
            };
            app.metrics.count_refusal(code);
            return reply;
        }
    };
    match serve(&app, &id, connection, asked, &parts, body).await {
        Ok(reply) => reply,
        Err(refusal) => {
            app.metrics.count_refusal(refusal.code);
            refusal.reply(Dialect::OpenAi, &id)
        }
    }
}

async fn serve(
    app: &Arc<DataPlane>,
    id: &str,
    connection: &ConnectionLeases,
    asked: LeaseOperation<'_>,
    parts: &Parts,
    body: Incoming,
) -> Result<Reply, Refusal> {
    let caller = app.caller(&parts.headers).await?;
    let known = |lease: &str| {
        app.leases.find(&caller.key, lease).ok_or_else(|| refusal::unknown_lease(lease))
    };
    match asked {
        LeaseOperation::Submit => {
            let body = read(app, &caller, &parts.headers, body).await?;
            submit(app, id, &caller, wire::submission(&body)?).await
        }
        LeaseOperation::News => {
            let query = LeaseQuery::read(parts.uri.query().unwrap_or_default())?;
            news(app, id, connection, &caller, query).await
        }
        LeaseOperation::Look(lease) => {
            let wait = LeaseQuery::read(parts.uri.query().unwrap_or_default())?.wait;
            Ok(look(app, known(lease)?, wait).await)
        }
        LeaseOperation::Renew(lease) => {
            let lease = known(lease)?;
            Ok(renew(&lease))
        }
        LeaseOperation::Limited(lease) => {
            let lease = known(lease)?;
            let body = read(app, &caller, &parts.headers, body).await?;
            limited(&lease, LeaseMessage::Limited(wire::limited(&body)?)).await
        }
        LeaseOperation::Settle(lease) => {
            let lease = known(lease)?;
            let body = read(app, &caller, &parts.headers, body).await?;
            settle(&lease, LeaseMessage::Settle(wire::report(&body)?)).await
        }
        LeaseOperation::Cancel(lease) => {
            let lease = known(lease)?;
            Ok(cancel(&lease).await)
        }
    }
}

async fn read(
    app: &Arc<DataPlane>,
    caller: &Caller,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Bytes, Refusal> {
    let config = app.config.load_full();
    let body_bytes_max = config.limits.body_bytes_max.min(BODY_BYTES_MAX);
    let limits = LimitsConfig { body_bytes_max, ..config.limits.clone() };
    let held = app.body_memory.start_body(&caller.tenant);
    Ok(body::read(headers, body, &limits, held).await?.bytes)
}

/// Returns the named pool, or the only pool that leases its slots.
fn pool(app: &DataPlane, named: Option<&str>) -> Result<Arc<PoolHandle>, Refusal> {
    let mut leasing = app.pools.all();
    leasing.retain(|pool| pool.setup().config.leases.is_some());
    let found = match (named, &leasing[..]) {
        (None, [only]) => Some(only.clone()),
        (None, _) => None,
        (Some(name), pools) => pools.iter().find(|pool| *pool.name == *name).cloned(),
    };
    found.ok_or_else(|| {
        let names: Vec<&str> = leasing.iter().map(|pool| &*pool.name).collect();
        refusal::no_lease_pool(named, &names)
    })
}

/// Submits a lease, and waits up to `wait_ms` for its grant.
#[utoipa::path(
    post, path = "/v1/leases", tag = "leases", security(("tenant" = [])), request_body = LeaseSubmissionBody,
    responses(
        (status = 200, description = "The lease, queued or granted", body = LeaseBody),
        (status = 403, description = "The key may not open leases, use this model, or choose this class or priority", body = DialectErrorBody),
        (status = 404, description = "No pool of that name leases its slots", body = DialectErrorBody),
        (status = 409, description = "A lease of that id is lost", body = DialectErrorBody),
        (status = 429, description = "A queue is full, or a limit or budget is used up", body = DialectErrorBody),
    ),
)]
async fn submit(
    app: &Arc<DataPlane>,
    id: &str,
    caller: &Arc<Caller>,
    mut submission: LeaseSubmissionBody,
) -> Result<Reply, Refusal> {
    if !caller.rights.may_lease {
        return Err(refusal::forbidden_lease());
    }
    let wait = Duration::from_millis(submission.wait_ms);
    let own_id = submission.id.take();
    if let Some(known) = own_id.as_ref().and_then(|own| app.leases.find_own(&caller.key, own)) {
        return Ok(look(app, known, wait).await);
    }
    let pool = pool(app, submission.pool.as_deref())?;
    let ttl = pool.setup().config.leases.as_ref().map(|leases| leases.ttl).unwrap_or_default();
    let mailbox = match &submission.client {
        Some(client) => app.leases.mailbox(&caller.key, client)?,
        None => Arc::new(LeaseChanges::default()),
    };
    let (lease, words) = LeaseHandle::new(id.into(), own_id, pool.name.clone(), ttl, mailbox);
    if let Some(known) = app.leases.open(&caller.key, &lease)? {
        return Ok(look(app, known, wait).await);
    }
    let guard = RequestGuard::for_lease(app.clone(), caller.clone(), id.into());
    tokio::spawn(lease_task::run_lease(guard, lease.clone(), words, pool, submission));
    // The checks before queueing take only a moment.
    let checked = Instant::now() + SETTLED_WITHIN;
    lease.wait_until(checked, |state| !matches!(state, LeaseStatus::Opening)).await;
    Ok(look(app, lease, wait).await)
}

/// Renews a lease, waits up to `wait_ms` while it is queued, and returns it.
#[utoipa::path(
    get, path = "/v1/leases/{id}", tag = "leases", security(("tenant" = [])),
    params(
        ("id" = String, Path, description = "The gateway's id of the lease"),
        ("wait_ms" = Option<u64>, Query, description = "How long to wait while it is queued; at most half of its life"),
    ),
    responses(
        (status = 200, description = "The lease", body = LeaseBody),
        (status = 404, description = "There is no such lease", body = DialectErrorBody),
        (status = 409, description = "It is lost", body = DialectErrorBody),
        (status = 429, description = "It was refused: a queue is full, or a limit or budget is used up", body = DialectErrorBody),
    ),
)]
async fn look(app: &DataPlane, lease: Arc<LeaseHandle>, wait: Duration) -> Reply {
    lease.renew();
    let due = Instant::now() + wait.min(lease.ttl / 2);
    let waits = |state: &LeaseStatus| matches!(state, LeaseStatus::Opening | LeaseStatus::Queued);
    let state = lease.wait_until(due, |state| !waits(state)).await;
    lease.renew();
    let wait = if waits(&state) { expected_wait_ms(app, &lease).await } else { None };
    lease_reply(&lease, &state, wait)
}

/// Renews a lease, which would otherwise be lost after its TTL.
#[utoipa::path(
    post, path = "/v1/leases/{id}/renew", tag = "leases", security(("tenant" = [])),
    params(("id" = String, Path, description = "The gateway's id of the lease")),
    responses(
        (status = 200, description = "The lease", body = LeaseBody),
        (status = 404, description = "There is no such lease", body = DialectErrorBody),
        (status = 409, description = "It is lost", body = DialectErrorBody),
        (status = 429, description = "It was refused", body = DialectErrorBody),
    ),
)]
fn renew(lease: &LeaseHandle) -> Reply {
    lease.renew();
    lease_reply(lease, &lease.state(), None)
}

/// Cancels a lease. If the lease had its slot, its tenant is charged for the time in the slot.
#[utoipa::path(
    delete, path = "/v1/leases/{id}", tag = "leases", security(("tenant" = [])),
    params(("id" = String, Path, description = "The gateway's id of the lease")),
    responses(
        (status = 200, description = "The lease, cancelled", body = LeaseBody),
        (status = 404, description = "There is no such lease", body = DialectErrorBody),
        (status = 409, description = "It was lost before", body = DialectErrorBody),
        (status = 429, description = "It was refused before", body = DialectErrorBody),
    ),
)]
async fn cancel(lease: &LeaseHandle) -> Reply {
    lease.send_message(LeaseMessage::Cancel);
    let due = Instant::now() + SETTLED_WITHIN;
    let state = lease.wait_until(due, |state| matches!(state, LeaseStatus::Over(_))).await;
    lease_reply(lease, &state, None)
}

/// Returns the expected wait of the last request in the lease's flow, in milliseconds.
async fn expected_wait_ms(app: &DataPlane, lease: &LeaseHandle) -> Option<u64> {
    let gate = &app.pools.named(&lease.pool)?.gate;
    let wait = gate.expected_wait(&lease.id).await.ok()??;
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
}

/// Returns the response about one lease: the lease itself, or an error if the lease was refused or lost.
fn lease_reply(lease: &LeaseHandle, state: &LeaseStatus, expected_wait_ms: Option<u64>) -> Reply {
    if let LeaseStatus::Over(over) = state {
        let refused = match &**over {
            LeaseResult::Refused(refusal) => Some(refusal.reply(Dialect::OpenAi, &lease.id)),
            LeaseResult::Lost(charge) => {
                let lost = refusal::lease_lost(lease.ttl, charge.charged);
                Some(lost.reply(Dialect::OpenAi, &lease.id))
            }
            LeaseResult::Settled(_) | LeaseResult::Cancelled(_) => None,
        };
        if let Some(reply) = refused {
            return reply;
        }
    }
    document(&lease.id, &wire::lease_body(lease, state, expected_wait_ms))
}

fn document(id: &str, value: &impl Serialize) -> Reply {
    // Structs of strings and numbers always serialize.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut reply = reply::json(StatusCode::OK, Bytes::from(text));
    refusal::set_request_id(&mut reply, Dialect::OpenAi, id);
    reply
}

/// Settles a granted lease. A repeated call gets the same response, and nothing is charged twice.
#[utoipa::path(
    post, path = "/v1/leases/{id}/settle", tag = "leases", security(("tenant" = [])), request_body = LeaseSettlementBody,
    params(("id" = String, Path, description = "The gateway's id of the lease")),
    responses(
        (status = 200, description = "The lease, settled, and what it was charged", body = LeaseBody),
        (status = 404, description = "There is no such lease", body = DialectErrorBody),
        (status = 409, description = "It is not granted, or was cancelled or lost", body = DialectErrorBody),
        (status = 429, description = "It was refused before", body = DialectErrorBody),
    ),
)]
async fn settle(lease: &LeaseHandle, word: LeaseMessage) -> Result<Reply, Refusal> {
    if matches!(lease.state(), LeaseStatus::Opening | LeaseStatus::Queued) {
        return Err(refusal::lease_not_granted());
    }
    lease.send_message(word);
    let due = Instant::now() + SETTLED_WITHIN;
    let state = lease.wait_until(due, |state| matches!(state, LeaseStatus::Over(_))).await;
    match state {
        LeaseStatus::Over(over) if matches!(*over, LeaseResult::Cancelled(_)) => {
            Err(refusal::lease_cancelled())
        }
        LeaseStatus::Over(_) => Ok(lease_reply(lease, &state, None)),
        _ => Err(refusal::lease_not_granted()),
    }
}

/// Returns a granted lease to the queue, because its provider has refused the call for a rate limit.
#[utoipa::path(
    post, path = "/v1/leases/{id}/limited", tag = "leases", security(("tenant" = [])), request_body = LeaseLimitedBody,
    params(("id" = String, Path, description = "The gateway's id of the lease")),
    responses(
        (status = 200, description = "The lease, queued or granted again", body = LeaseBody),
        (status = 404, description = "There is no such lease", body = DialectErrorBody),
        (status = 409, description = "It is not granted, or is lost", body = DialectErrorBody),
        (status = 429, description = "It cannot wait again: its time or its attempts are used up", body = DialectErrorBody),
    ),
)]
async fn limited(lease: &LeaseHandle, word: LeaseMessage) -> Result<Reply, Refusal> {
    let LeaseStatus::Granted { attempt: refused, .. } = lease.state() else {
        return match lease.is_over() {
            true => Ok(lease_reply(lease, &lease.state(), None)),
            false => Err(refusal::lease_not_granted()),
        };
    };
    lease.renew();
    lease.send_message(word);
    let due = Instant::now() + SETTLED_WITHIN;
    let is_next = |state: &LeaseStatus| match state {
        LeaseStatus::Granted { attempt, .. } => *attempt > refused,
        _ => true,
    };
    let state = lease.wait_until(due, is_next).await;
    Ok(lease_reply(lease, &state, None))
}

/// The query parameters of the lease API.
#[derive(Default)]
struct LeaseQuery<'a> {
    client: Option<&'a str>,
    after: u64,
    wait: Duration,
    ends_with_connection: bool,
}

impl<'a> LeaseQuery<'a> {
    fn read(text: &'a str) -> Result<Self, Refusal> {
        let mut query = Self::default();
        let bad = |field| refusal::bad_lease(field, "must be a whole number");
        let not_bool = |_| refusal::bad_lease("ends_with_connection", "must be true or false");
        for (name, value) in text.split('&').filter_map(|pair| pair.split_once('=')) {
            match name {
                "client" => {
                    wire::client(value)?;
                    query.client = Some(value);
                }
                "after" => query.after = value.parse().map_err(|_| bad("after"))?,
                "wait_ms" => {
                    let millis = value.parse().map_err(|_| bad("wait_ms"))?;
                    query.wait = Duration::from_millis(millis);
                }
                "ends_with_connection" => {
                    query.ends_with_connection = value.parse().map_err(not_bool)?;
                }
                _ => {}
            }
        }
        Ok(query)
    }
}

/// Longest time that a client without an open lease waits for changes.
const NEWS_WAIT_MAX: Duration = Duration::from_secs(30);

/// Returns the leases of a client program that have changed since change number `after`, and renews all of its leases.
#[utoipa::path(
    get, path = "/v1/leases", tag = "leases", security(("tenant" = [])),
    params(
        ("client" = String, Query, description = "What the program calls itself in its submissions"),
        ("after" = Option<u64>, Query, description = "The `latest` of the last answer"),
        ("wait_ms" = Option<u64>, Query, description = "How long to wait for news; at most half of the shortest life among them"),
        ("ends_with_connection" = Option<bool>, Query, description = "Whether the queued leases end with this connection, unless the program listens on another one within a second"),
    ),
    responses(
        (status = 200, description = "The leases that have changed", body = LeaseChangesBody),
        (status = 429, description = "The key has too many client programs", body = DialectErrorBody),
    ),
)]
async fn news(
    app: &Arc<DataPlane>,
    id: &str,
    connection: &ConnectionLeases,
    caller: &Arc<Caller>,
    query: LeaseQuery<'_>,
) -> Result<Reply, Refusal> {
    let LeaseQuery { client, after, wait, ends_with_connection } = query;
    let client = client.ok_or_else(|| {
        refusal::bad_lease("client", "is missing: the name that the leases were submitted with")
    })?;
    let mailbox = app.leases.mailbox(&caller.key, client)?;
    if ends_with_connection {
        connection.set_listener(app, &caller.key, &mailbox);
    }
    // A number from an earlier process means nothing here.
    let after = if after > mailbox.latest() { 0 } else { after };
    let open = || {
        let all = app.leases.of_client(&caller.key, &mailbox);
        all.iter().for_each(|lease| lease.renew());
        all
    };
    let ttl = open().iter().filter(|lease| !lease.is_over()).map(|lease| lease.ttl / 2).min();
    let due = Instant::now() + wait.min(ttl.unwrap_or(NEWS_WAIT_MAX));
    let changed = loop {
        let mut news = std::pin::pin!(mailbox.changed_notify.notified());
        news.as_mut().enable();
        let mut changed = open();
        changed.retain(|lease| lease.changed() > after);
        if !changed.is_empty() || timeout_at(due, news).await.is_err() {
            break changed;
        }
    };
    let latest = changed.iter().map(|lease| lease.changed()).max().unwrap_or(after);
    let leases =
        changed.iter().map(|lease| wire::lease_body(lease, &lease.state(), None)).collect();
    Ok(document(id, &LeaseChangesBody { leases, latest }))
}

//! Leases: slots for programs that call a provider themselves.
//!
//! ```text
//! POST   /v1/leases                     submit; waits up to wait_ms for the grant
//! GET    /v1/leases?client=…&after=…    the leases of a client program that changed; renews them all
//! GET    /v1/leases/ID                  one lease; waits up to wait_ms while it is queued, and renews it
//! POST   /v1/leases/ID/renew            it is still needed
//! POST   /v1/leases/ID/limited          the provider refused the call for a limit: it waits again
//! POST   /v1/leases/ID/settle           the call is over, and used this
//! DELETE /v1/leases/ID                  it is not needed any more
//! ```
//!
//! Each lease has a task (`drive`) that takes its request the same way as any other, behind the same guard. Handlers
//! find the lease in the `table` and leave a word for its task.

mod drive;
mod lease;
mod table;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use fairgate_config::LimitsConfig;
use fairgate_core::explain::Whereabouts;
use fairgate_dialect::Dialect;
use http::request::Parts;
use http::{HeaderMap, Method, Request, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use utoipa::OpenApi;

pub(crate) use self::table::Leases;

use self::lease::{Lease, Mailbox, Over, State, Word};
use self::wire::{ErrorInDialect, LeaseBody, LeaseNews, Limited, Settlement, Submission};
use super::body;
use super::passage::Passage;
use crate::app::App;
use crate::identity::Caller;
use crate::pools::PoolHandle;
use crate::refusal::{self, Refusal};
use crate::reply::{self, Reply};

/// Where leases are.
pub(crate) const LEASES: &str = "/v1/leases";

/// The largest body, in bytes.
const BODY_BYTES_MAX: u64 = 64 << 10;
/// How long a settlement may take: its row is written by then, or the store is away.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);

/// What the OpenAPI document says of leases.
#[derive(OpenApi)]
#[openapi(
    paths(submit, news, look, renew, limited, settle, cancel),
    tags((name = "leases", description = "Slots for programs that call a provider themselves")),
)]
pub(crate) struct LeasesApi;

/// What is asked of which lease.
enum Asked<'a> {
    Submit,
    News,
    Look(&'a str),
    Renew(&'a str),
    Limited(&'a str),
    Settle(&'a str),
    Cancel(&'a str),
}

/// Answers a request about leases.
pub(crate) async fn leases(app: Arc<App>, request: Request<Incoming>) -> Reply {
    let id = app.ids.next();
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().strip_prefix(LEASES).unwrap_or_default();
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    let asked = match (&parts.method, &steps[..]) {
        (&Method::POST, []) => Asked::Submit,
        (&Method::GET, []) => Asked::News,
        (&Method::GET, [lease]) => Asked::Look(lease),
        (&Method::DELETE, [lease]) => Asked::Cancel(lease),
        (&Method::POST, [lease, "renew"]) => Asked::Renew(lease),
        (&Method::POST, [lease, "limited"]) => Asked::Limited(lease),
        (&Method::POST, [lease, "settle"]) => Asked::Settle(lease),
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
                    (refusal.problem.code, refusal.reply(Dialect::OpenAi, &id))
                }
            };
            app.metrics.turned_away(code);
            return reply;
        }
    };
    match answered(&app, &id, asked, &parts, body).await {
        Ok(reply) => reply,
        Err(refusal) => {
            app.metrics.turned_away(refusal.problem.code);
            refusal.reply(Dialect::OpenAi, &id)
        }
    }
}

async fn answered(
    app: &Arc<App>,
    id: &str,
    asked: Asked<'_>,
    parts: &Parts,
    body: Incoming,
) -> Result<Reply, Refusal> {
    let caller = app.caller(&parts.headers).await?;
    let known = |lease: &str| {
        app.leases.find(&caller.key, lease).ok_or_else(|| refusal::unknown_lease(lease))
    };
    match asked {
        Asked::Submit => {
            let body = read(app, &caller, &parts.headers, body).await?;
            submit(app, id, &caller, Submission::read(&body)?).await
        }
        Asked::News => news(app, id, &caller, parts.uri.query().unwrap_or_default()).await,
        Asked::Look(lease) => {
            let wait = Query::read(parts.uri.query().unwrap_or_default())?.wait;
            Ok(look(app, known(lease)?, wait).await)
        }
        Asked::Renew(lease) => {
            let lease = known(lease)?;
            Ok(renew(&lease))
        }
        Asked::Limited(lease) => {
            let lease = known(lease)?;
            let body = read(app, &caller, &parts.headers, body).await?;
            limited(&lease, Word::Limited(wire::limited(&body)?)).await
        }
        Asked::Settle(lease) => {
            let lease = known(lease)?;
            let body = read(app, &caller, &parts.headers, body).await?;
            settle(&lease, Word::Settle(wire::report(&body)?)).await
        }
        Asked::Cancel(lease) => {
            let lease = known(lease)?;
            Ok(cancel(&lease).await)
        }
    }
}

async fn read(
    app: &Arc<App>,
    caller: &Caller,
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Bytes, Refusal> {
    let config = app.config.load_full();
    let body_bytes_max = config.limits.body_bytes_max.min(BODY_BYTES_MAX);
    let limits = LimitsConfig { body_bytes_max, ..config.limits.clone() };
    let held = app.held.part(&caller.tenant);
    Ok(body::read(headers, body, &limits, held).await?.bytes)
}

/// The pool of that name, or the only one that leases.
fn pool(app: &App, named: Option<&str>) -> Result<Arc<PoolHandle>, Refusal> {
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

/// Submits a lease. It waits for its grant for up to `wait_ms`.
#[utoipa::path(
    post, path = "/v1/leases", tag = "leases", security(("tenant" = [])), request_body = Submission,
    responses(
        (status = 200, description = "The lease, queued or granted", body = LeaseBody),
        (status = 403, description = "The key may not use this model, or choose this class or priority", body = ErrorInDialect),
        (status = 404, description = "No pool of that name leases its slots", body = ErrorInDialect),
        (status = 409, description = "A lease of that id is lost", body = ErrorInDialect),
        (status = 429, description = "A queue is full, or a limit or budget is used up", body = ErrorInDialect),
    ),
)]
async fn submit(
    app: &Arc<App>,
    id: &str,
    caller: &Arc<Caller>,
    mut submission: Submission,
) -> Result<Reply, Refusal> {
    let wait = Duration::from_millis(submission.wait_ms);
    let own_id = submission.id.take();
    if let Some(known) = own_id.as_ref().and_then(|own| app.leases.find_own(&caller.key, own)) {
        return Ok(look(app, known, wait).await);
    }
    let pool = pool(app, submission.pool.as_deref())?;
    let ttl = pool.setup().config.leases.as_ref().map(|leases| leases.ttl).unwrap_or_default();
    let mailbox = match &submission.client {
        Some(client) => app.leases.mailbox(&caller.key, client)?,
        None => Arc::new(Mailbox::default()),
    };
    let (lease, words) = Lease::new(id.into(), own_id, pool.name.clone(), ttl, mailbox);
    if let Some(known) = app.leases.open(&caller.key, &lease)? {
        return Ok(look(app, known, wait).await);
    }
    let passage = Passage::elsewhere(app.clone(), caller.clone(), id.into());
    tokio::spawn(drive::drive(passage, lease.clone(), words, pool, submission));
    // Whether it may be queued at all is known in a moment.
    let checked = Instant::now() + SETTLED_WITHIN;
    lease.until(checked, |state| !matches!(state, State::Opening)).await;
    Ok(look(app, lease, wait).await)
}

/// Waits for so long while a lease is queued, renews it, and tells how it is.
#[utoipa::path(
    get, path = "/v1/leases/{id}", tag = "leases", security(("tenant" = [])),
    params(
        ("id" = String, Path, description = "The gateway's id of the lease"),
        ("wait_ms" = Option<u64>, Query, description = "How long to wait while it is queued; at most half of its life"),
    ),
    responses(
        (status = 200, description = "The lease", body = LeaseBody),
        (status = 404, description = "There is no such lease", body = ErrorInDialect),
        (status = 409, description = "It is lost", body = ErrorInDialect),
        (status = 429, description = "It was refused: a queue is full, or a limit or budget is used up", body = ErrorInDialect),
    ),
)]
async fn look(app: &App, lease: Arc<Lease>, wait: Duration) -> Reply {
    lease.renew();
    let due = Instant::now() + wait.min(lease.ttl / 2);
    let waits = |state: &State| matches!(state, State::Opening | State::Queued);
    let state = lease.until(due, |state| !waits(state)).await;
    lease.renew();
    let place = if waits(&state) { place(app, &lease).await } else { None };
    told(&lease, &state, place)
}

/// Says that a lease is still needed.
#[utoipa::path(
    post, path = "/v1/leases/{id}/renew", tag = "leases", security(("tenant" = [])),
    params(("id" = String, Path, description = "The gateway's id of the lease")),
    responses(
        (status = 200, description = "The lease", body = LeaseBody),
        (status = 404, description = "There is no such lease", body = ErrorInDialect),
        (status = 409, description = "It is lost", body = ErrorInDialect),
        (status = 429, description = "It was refused", body = ErrorInDialect),
    ),
)]
fn renew(lease: &Lease) -> Reply {
    lease.renew();
    told(lease, &lease.state(), None)
}

/// Cancels a lease. One that had its slot pays for its time in it.
#[utoipa::path(
    delete, path = "/v1/leases/{id}", tag = "leases", security(("tenant" = [])),
    params(("id" = String, Path, description = "The gateway's id of the lease")),
    responses(
        (status = 200, description = "The lease, cancelled", body = LeaseBody),
        (status = 404, description = "There is no such lease", body = ErrorInDialect),
        (status = 409, description = "It was lost before", body = ErrorInDialect),
        (status = 429, description = "It was refused before", body = ErrorInDialect),
    ),
)]
async fn cancel(lease: &Lease) -> Reply {
    lease.say(Word::Cancel);
    let due = Instant::now() + SETTLED_WITHIN;
    let state = lease.until(due, |state| matches!(state, State::Over(_))).await;
    told(lease, &state, None)
}

/// How many grants come before its own.
async fn place(app: &App, lease: &Lease) -> Option<u64> {
    let gate = &app.pools.named(&lease.pool)?.gate;
    match gate.whereabouts(&lease.id).await {
        Ok(Some(Whereabouts::Waiting(waiting))) => waiting.place,
        _ => None,
    }
}

/// What is told of one lease: how it is, or why it was refused or lost.
fn told(lease: &Lease, state: &State, place: Option<u64>) -> Reply {
    if let State::Over(over) = state {
        let refused = match &**over {
            Over::Refused(refusal) => Some(refusal.reply(Dialect::OpenAi, &lease.id)),
            Over::Lost(charge) => {
                let lost = refusal::lease_lost(lease.ttl, charge.charged);
                Some(lost.reply(Dialect::OpenAi, &lease.id))
            }
            Over::Settled(_) | Over::Cancelled(_) => None,
        };
        if let Some(reply) = refused {
            return reply;
        }
    }
    document(&lease.id, &wire::shown(lease, state, place))
}

fn document(id: &str, value: &impl Serialize) -> Reply {
    // Plain structs of texts and numbers always have a JSON form.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut reply = reply::json(StatusCode::OK, Bytes::from(text));
    refusal::name(&mut reply, Dialect::OpenAi, id);
    reply
}

/// Ends a lease that is held. Said again, it is answered again, and nothing is charged twice.
#[utoipa::path(
    post, path = "/v1/leases/{id}/settle", tag = "leases", security(("tenant" = [])), request_body = Settlement,
    params(("id" = String, Path, description = "The gateway's id of the lease")),
    responses(
        (status = 200, description = "The lease, settled, and what it was charged", body = LeaseBody),
        (status = 404, description = "There is no such lease", body = ErrorInDialect),
        (status = 409, description = "It is not granted, or was cancelled or lost", body = ErrorInDialect),
        (status = 429, description = "It was refused before", body = ErrorInDialect),
    ),
)]
async fn settle(lease: &Lease, word: Word) -> Result<Reply, Refusal> {
    if matches!(lease.state(), State::Opening | State::Queued) {
        return Err(refusal::lease_not_granted());
    }
    lease.say(word);
    let due = Instant::now() + SETTLED_WITHIN;
    let state = lease.until(due, |state| matches!(state, State::Over(_))).await;
    match state {
        State::Over(over) if matches!(*over, Over::Cancelled(_)) => Err(refusal::lease_cancelled()),
        State::Over(_) => Ok(told(lease, &state, None)),
        _ => Err(refusal::lease_not_granted()),
    }
}

/// Has a lease that is held wait again: its provider has refused the call because of a limit.
#[utoipa::path(
    post, path = "/v1/leases/{id}/limited", tag = "leases", security(("tenant" = [])), request_body = Limited,
    params(("id" = String, Path, description = "The gateway's id of the lease")),
    responses(
        (status = 200, description = "The lease, queued or granted again", body = LeaseBody),
        (status = 404, description = "There is no such lease", body = ErrorInDialect),
        (status = 409, description = "It is not granted, or is lost", body = ErrorInDialect),
        (status = 429, description = "It cannot wait again: its time or its attempts are used up", body = ErrorInDialect),
    ),
)]
async fn limited(lease: &Lease, word: Word) -> Result<Reply, Refusal> {
    let State::Granted { attempt: refused, .. } = lease.state() else {
        return match lease.is_over() {
            true => Ok(told(lease, &lease.state(), None)),
            false => Err(refusal::lease_not_granted()),
        };
    };
    lease.renew();
    lease.say(word);
    let due = Instant::now() + SETTLED_WITHIN;
    let is_next = |state: &State| match state {
        State::Granted { attempt, .. } => *attempt > refused,
        _ => true,
    };
    let state = lease.until(due, is_next).await;
    Ok(told(lease, &state, None))
}

/// What stands in a query.
#[derive(Default)]
struct Query<'a> {
    client: Option<&'a str>,
    after: u64,
    wait: Duration,
}

impl<'a> Query<'a> {
    fn read(text: &'a str) -> Result<Self, Refusal> {
        let mut query = Self::default();
        let bad = |field| refusal::bad_lease(field, "must be a whole number");
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
                _ => {}
            }
        }
        Ok(query)
    }
}

/// The longest wait for news, where no lease says how long it lives.
const NEWS_WAIT_MAX: Duration = Duration::from_secs(30);

/// Tells which leases of a client program have changed since the change of that number, and renews all of them.
#[utoipa::path(
    get, path = "/v1/leases", tag = "leases", security(("tenant" = [])),
    params(
        ("client" = String, Query, description = "What the program calls itself in its submissions"),
        ("after" = Option<u64>, Query, description = "The `latest` of the last answer"),
        ("wait_ms" = Option<u64>, Query, description = "How long to wait for news; at most half of the shortest life among them"),
    ),
    responses(
        (status = 200, description = "The leases that have changed", body = LeaseNews),
        (status = 429, description = "The key has too many client programs", body = ErrorInDialect),
    ),
)]
async fn news(
    app: &Arc<App>,
    id: &str,
    caller: &Arc<Caller>,
    query: &str,
) -> Result<Reply, Refusal> {
    let Query { client, after, wait } = Query::read(query)?;
    let client = client.ok_or_else(|| {
        refusal::bad_lease("client", "is missing: the name that the leases were submitted with")
    })?;
    let mailbox = app.leases.mailbox(&caller.key, client)?;
    // A number of an earlier process means nothing here.
    let after = if after > mailbox.latest() { 0 } else { after };
    let open = || {
        let all = app.leases.of_client(&caller.key, &mailbox);
        all.iter().for_each(|lease| lease.renew());
        all
    };
    let ttl = open().iter().filter(|lease| !lease.is_over()).map(|lease| lease.ttl / 2).min();
    let due = Instant::now() + wait.min(ttl.unwrap_or(NEWS_WAIT_MAX));
    let changed = loop {
        let mut news = std::pin::pin!(mailbox.news.notified());
        news.as_mut().enable();
        let mut changed = open();
        changed.retain(|lease| lease.changed() > after);
        if !changed.is_empty() || timeout_at(due, news).await.is_err() {
            break changed;
        }
    };
    let latest = changed.iter().map(|lease| lease.changed()).max().unwrap_or(after);
    let leases = changed.iter().map(|lease| wire::shown(lease, &lease.state(), None)).collect();
    Ok(document(id, &LeaseNews { leases, latest }))
}

//! Clients that take leases and call no model. They hold a slot for a moment and then report usage, as if they had
//! called a model.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use fairgate_api::leases::{
    DialectErrorBody, LEASES, LeaseBody, LeaseSettlementBody, LeaseState, LeaseSubmissionBody,
};
use fairgate_testkit::workload::SeededRng;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::client_results::{EndedAnswer, SoakRequestResult};
use super::clients::ANSWER_TIMEOUT;
use super::tenants::{ClientHabit, LEASE_POOL};
use crate::http::{self, BenchRequest};

/// Time for which an honest client holds a lease, in milliseconds.
const HONEST_HOLD_MS: std::ops::RangeInclusive<u64> = 50..=250;
/// Longest time for which a call waits for a grant, in milliseconds.
const WAIT_MS: u64 = 5000;

/// Takes one lease, holds it and reports its end. An honest client's result is a settled lease if
/// the lease was granted and the report accepted.
pub(super) async fn one(
    request: BenchRequest,
    habit: ClientHabit,
    tenant: usize,
    rng: &mut SeededRng,
) -> SoakRequestResult {
    let is_honest = habit == ClientHabit::HonestLease;
    let hold_ms = if is_honest { rng.range(HONEST_HOLD_MS) } else { 1000 };
    // An honest client uses 10 tokens per millisecond.
    let cost = if is_honest { hold_ms * 10 } else { 1 };
    let open = LeaseSubmissionBody {
        pool: Some(LEASE_POOL.into()),
        cost: Some(cost),
        wait_ms: WAIT_MS,
        ..LeaseSubmissionBody::default()
    };
    let Some(opened) =
        call(&BenchRequest { body: json!(open).to_string(), ..request.clone() }).await
    else {
        return SoakRequestResult::CutBeforeId;
    };
    let Ok(LeaseBody { id, state, .. }) = serde_json::from_slice(&opened.body) else {
        return opened.refusal(tenant);
    };
    if state != LeaseState::Granted {
        return SoakRequestResult::CutAfterId(id);
    }
    sleep(Duration::from_millis(hold_ms)).await;
    let used = LeaseSettlementBody { tokens: Some(cost), ..LeaseSettlementBody::default() };
    let (end, body) = if is_honest { ("settle", json!(used)) } else { lie(rng) };
    let path = format!("{LEASES}/{id}/{end}").into();
    match call(&BenchRequest { path, body: body.to_string(), ..request }).await {
        Some(LeaseCallAnswer { status: 200, .. }) if is_honest => {
            SoakRequestResult::LeaseSettled(id, tenant, Instant::now())
        }
        _ => SoakRequestResult::CutAfterId(id),
    }
}

/// Draws a false report at random, which avoids the cost of the slot or tries to stop the other clients. Returns the
/// last part of the call's path and the body.
fn lie(rng: &mut SeededRng) -> (&'static str, Value) {
    match rng.range(0..=4) {
        0 => ("settle", json!({"tokens": 0})),
        1 => ("settle", json!({"tokens": 0, "outcome": "failed"})),
        2 => (
            "settle",
            json!({"tokens": 1, "status": 200, "headers": {"x-ratelimit-limit-requests": "1"}}),
        ),
        3 => ("limited", json!({"status": 429, "headers": {"retry-after": "60"}})),
        _ => ("settle", json!({"status": 429, "headers": {"retry-after": "60"}})),
    }
}

/// The answer to one call about a lease.
struct LeaseCallAnswer {
    status: u16,
    request_id: Option<String>,
    body: Vec<u8>,
}

impl LeaseCallAnswer {
    fn refusal(self, tenant: usize) -> SoakRequestResult {
        let Self { status, request_id, body } = self;
        let Some(id) = request_id else { return SoakRequestResult::WithoutId };
        let refusal: Option<DialectErrorBody> = serde_json::from_slice(&body).ok();
        let code = refusal.map(|refusal| refusal.error.code);
        SoakRequestResult::End(id, EndedAnswer { tenant, status, code, at: Instant::now() })
    }
}

/// Sends one call and returns its answer; `None` if the connection broke.
async fn call(request: &BenchRequest) -> Option<LeaseCallAnswer> {
    let answer =
        http::send(request, ANSWER_TIMEOUT, |_, _| ControlFlow::Continue(())).await.ok()?;
    Some(LeaseCallAnswer {
        status: answer.status()?,
        request_id: answer.header("x-fairgate-request-id").map(str::to_owned),
        body: answer.body().to_vec(),
    })
}

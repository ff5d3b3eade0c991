//! The refusals of the data plane, with their messages and the time to try again. Their stable
//! codes, HTTP statuses and retry rules are in `refusal/code.rs` only.

mod budget;
mod code;
mod fleet;
mod leases;
mod rights;

use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use fairgate_core::decision::RejectionReason;
use fairgate_dialect::{
    Dialect, DialectError, InvalidRequestError, ReachedLimit, UnsearchableBodyError,
};
use fairgate_runtime::AdmitError;
use fairgate_store::AttemptOutcome;
use http::header::{ALLOW, CONNECTION, CONTENT_LENGTH, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::reply::{Reply, json, reason_phrase};
use crate::upstream_failure::{FailureKind, UpstreamFailure};

use self::code::RetryRule;

pub(crate) use self::budget::budget_exhausted;
pub(crate) use self::code::EndCode;
pub use self::code::RefusalCode;
pub(crate) use self::fleet::{
    project_budget_exhausted, task_cap_reached, task_lost, unknown_task_key,
};
pub(crate) use self::leases::{
    bad_lease, lease_cancelled, lease_lost, lease_not_granted, no_lease_pool, not_a_limit,
    too_many_leases, unknown_lease, unread_lease,
};
pub(crate) use self::rights::{
    bad_deadline, bad_priority, bad_taints, bad_weight, bad_workers, classes_of_other_pools,
    default_class_only, forbidden_class, forbidden_deadline, forbidden_lease, forbidden_pin,
    forbidden_priority, forbidden_taint, forbidden_weight, forbidden_worker, foreign_id, listed,
    no_worker_as_chosen, strict_class, unknown_rank, unknown_worker, weight_without_effect,
    workers_of_other_pools,
};

/// Header with the request's id, on every response.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-fairgate-request-id");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const ANTHROPIC_REQUEST_ID: HeaderName = HeaderName::from_static("request-id");
/// Header that tells OpenAI's and Anthropic's SDKs whether to try again.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Refusal of a request, with the error for the caller and the outcome for the ledger.
#[derive(Debug)]
pub struct Refusal {
    /// Stable code, which decides the status and the retry rule.
    pub code: RefusalCode,
    /// The code as text, with the status and the message for the caller.
    pub(crate) problem: DialectError,
    /// Time after which to try again, for the `Retry-After` header.
    pub(crate) retry_after: Option<Duration>,
    /// The request's outcome in the ledger.
    pub(crate) outcome: AttemptOutcome,
}

impl Refusal {
    pub(crate) fn new(code: RefusalCode, message: impl Into<String>) -> Self {
        let problem = DialectError {
            status: code.status(),
            code: code.as_str(),
            is_quota: code.is_quota(),
            message: message.into(),
            param: None,
            reached: None,
            expected_wait_ms: None,
        };
        let retry_after = match code.retry() {
            RetryRule::After(time) => Some(time),
            _ => None,
        };
        Self { code, problem, retry_after, outcome: AttemptOutcome::Refused }
    }

    /// Returns the HTTP status.
    pub fn status(&self) -> StatusCode {
        self.problem.status
    }

    /// Returns the message for the caller.
    pub fn into_message(self) -> String {
        self.problem.message
    }

    /// Sets the time after which to try again, for a code whose retry rule is a computed time.
    pub(crate) fn with_retry_after(mut self, retry_after: Option<Duration>) -> Self {
        let rule = self.code.retry();
        debug_assert!(matches!(rule, RetryRule::Computed | RetryRule::PointlessBefore), "{self:?}");
        self.retry_after = retry_after;
        self
    }

    fn with_status(mut self, status: StatusCode) -> Self {
        self.problem.status = status;
        self
    }

    /// Sets the expected wait of one more request of the same flow; `None` if it is not known.
    pub(crate) fn with_expected_wait(mut self, wait: Option<Duration>) -> Self {
        self.problem.expected_wait_ms =
            wait.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Adds the choice of workers to the message. `None` means all workers of the pool; the message
    /// is then unchanged.
    pub(crate) fn with_worker_choice(mut self, choice: Option<String>) -> Self {
        if let Some(choice) = choice {
            let _ = write!(self.problem.message, " (The request may go only to {choice}.)");
        }
        self
    }

    fn with_param(mut self, param: &'static str) -> Self {
        self.problem.param = Some(param);
        self
    }

    fn with_outcome(mut self, outcome: AttemptOutcome) -> Self {
        self.outcome = outcome;
        self
    }

    /// Builds the response, in the caller's dialect.
    pub(crate) fn reply(&self, dialect: Dialect, request_id: &str) -> Reply {
        let mut reply = json(self.problem.status, self.problem.body(dialect, request_id));
        let headers = reply.headers_mut();
        if let Some(wait) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        if self.code.is_retry_pointless() {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        match self.problem.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // The rest of the body is still to come, so no other request can follow on this
            // connection.
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        set_request_id(&mut reply, dialect, request_id);
        reply
    }
}

impl Refusal {
    /// Returns the bytes of the response for an HTTP/1 connection that is closed afterwards. The
    /// body is in OpenAI's dialect, because without a request the caller's dialect is unknown.
    pub(crate) fn raw(&self, request_id: &str) -> Bytes {
        let reply = self.reply(Dialect::OpenAi, request_id);
        let body = self.problem.body(Dialect::OpenAi, request_id);
        let status = self.problem.status;
        let phrase = reason_phrase(status);
        let mut raw = format!("HTTP/1.1 {} {phrase}\r\n", status.as_u16()).into_bytes();
        let length = HeaderValue::from(body.len());
        let close = HeaderValue::from_static("close");
        let ours = [(CONNECTION, close), (CONTENT_LENGTH, length)];
        let theirs = reply.headers().iter().filter(|(name, _)| **name != CONNECTION);
        for (name, value) in ours.iter().map(|(name, value)| (name, value)).chain(theirs) {
            raw.extend_from_slice(name.as_str().as_bytes());
            raw.extend_from_slice(b": ");
            raw.extend_from_slice(value.as_bytes());
            raw.extend_from_slice(b"\r\n");
        }
        raw.extend_from_slice(b"\r\n");
        raw.extend_from_slice(&body);
        raw.into()
    }
}

/// Sets the request id on a response, also under the header names that the SDKs read. Ids from the
/// upstream are kept.
pub(crate) fn set_request_id(reply: &mut Reply, dialect: Dialect, request_id: &str) {
    let Ok(id) = HeaderValue::from_str(request_id) else { return };
    let headers = reply.headers_mut();
    if dialect == Dialect::Anthropic && !headers.contains_key(ANTHROPIC_REQUEST_ID) {
        headers.insert(ANTHROPIC_REQUEST_ID, id.clone());
    }
    if !headers.contains_key(X_REQUEST_ID) {
        headers.insert(X_REQUEST_ID, id.clone());
    }
    headers.insert(REQUEST_ID, id);
}

/// Converts a wait to whole seconds, rounded up; at least 1.
fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1)
}

impl From<InvalidRequestError> for Refusal {
    fn from(bad: InvalidRequestError) -> Self {
        let mut refusal = Self::new(bad.code.into(), bad.message);
        refusal.problem.param = bad.param;
        refusal
    }
}

impl Refusal {
    /// Converts a pool's refusal to one for the caller. `overloaded` is the HTTP status for
    /// [`RejectionReason::Overloaded`] in that pool.
    pub(crate) fn by_pool(refused: AdmitError, overloaded: u16) -> Self {
        let message = match &refused {
            AdmitError::Rejected { reason, .. } => rejection_message(*reason).to_owned(),
            AdmitError::Expired { waited, .. } => format!(
                "The request waited {} ms for its turn, as long as this pool lets requests wait. Try again later.",
                waited.as_millis()
            ),
            AdmitError::Invalid { field, problem } => {
                format!("The request cannot be queued: field {field:?}: {problem}.")
            }
            AdmitError::Draining => {
                "This gateway is about to stop and takes no new requests. Try again; another one may answer.".to_owned()
            }
            AdmitError::Gone => {
                "The pool's scheduler has stopped: this is a fault of the gateway. Tell its operator.".to_owned()
            }
        };
        let mut refusal = Self::new(RefusalCode::from(&refused), message);
        if refusal.code == RefusalCode::Overloaded {
            let status = StatusCode::from_u16(overloaded);
            refusal = refusal.with_status(status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE));
        }
        // The number of waiting cached tokens depends on what other tenants have sent, so it is not
        // shown.
        let counts_cached = matches!(
            refused,
            AdmitError::Rejected { reason: RejectionReason::ClassCachedTokens, .. }
        );
        if let Some(limit) = refused.limit().filter(|_| !counts_cached) {
            let of = limit.class.as_deref().map(|class| format!(" of class {class:?}"));
            let _ = write!(
                refusal.problem.message,
                " (The limit{} is {}, and {} are there.)",
                of.unwrap_or_default(),
                limit.limit,
                limit.current
            );
            let class = limit.class.as_deref().map(str::to_owned);
            let reached = ReachedLimit { class, current: limit.current, bound: limit.limit };
            refusal.problem.reached = Some(Box::new(reached));
        }
        refusal.retry_after = refused.retry_after().or(refusal.retry_after);
        refusal.with_expected_wait(refused.expected_wait())
    }
}

/// Returns the message for the reason why a pool rejected a request.
fn rejection_message(reason: RejectionReason) -> &'static str {
    match reason {
        RejectionReason::QueueFull => {
            "The queue is full, and your flow has the most requests in it. Send fewer at once."
        }
        RejectionReason::PushedOut => {
            "The queue was full, and this request made room for a flow with fewer requests in it. Send fewer at once."
        }
        RejectionReason::ClassRequests => "Too many requests of this class wait.",
        RejectionReason::ClassInputTokens => "Too many input tokens of this class wait.",
        RejectionReason::ClassCachedTokens => "Too many cached tokens of this class wait.",
        RejectionReason::NoWorker => {
            "No worker can take this request now: none that could is there, or all of them are drained."
        }
        RejectionReason::Overloaded => {
            "Every worker that could take this request is unhealthy now. Try again later."
        }
        RejectionReason::Duplicate => {
            "Two requests had the same id: this is a fault of the gateway. Try again, and tell its operator."
        }
    }
}

impl From<&UpstreamFailure> for Refusal {
    fn from(failure: &UpstreamFailure) -> Self {
        let code = RefusalCode::from(failure.kind);
        let outcome = match code.status() {
            StatusCode::GATEWAY_TIMEOUT => AttemptOutcome::Timeout,
            _ => AttemptOutcome::UpstreamError,
        };
        let comfort = match failure.kind {
            FailureKind::Credentials => "; your key is fine",
            _ => "",
        };
        let what = failure.kind.words();
        let message = format!("The upstream {:?} {what}{comfort}.", &*failure.worker);
        Self::new(code, message).with_outcome(outcome)
    }
}

/// The origin of a deadline, for the refusal's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadlineSource {
    Request,
    Key,
    Class,
}

/// Refuses with 504 because the request's own deadline passed before the request had a slot.
pub(crate) fn deadline_passed(allowed: Duration, source: DeadlineSource) -> Refusal {
    let (whose, instead) = match source {
        DeadlineSource::Request => ("that it states", "State a longer one"),
        DeadlineSource::Key => ("of its key", "Have the gateway's operator set a longer one"),
        DeadlineSource::Class => ("of its class", "State a longer one with x-fairgate-deadline"),
    };
    let message = format!(
        "The deadline {whose} has passed: {} after its arrival it had no slot. {instead}, or send less at once.",
        rights::millis(allowed)
    );
    Refusal::new(RefusalCode::DeadlinePassed, message)
}

/// Refuses with 503 because a provider's limit has delayed the request as long as the request may
/// wait.
pub(crate) fn provider_limited(
    worker: &str,
    counted: &str,
    limit: Option<u64>,
    after: Duration,
) -> Refusal {
    let limit = limit.map_or_else(String::new, |limit| format!(" ({limit} at a time)"));
    let seconds = after.as_secs_f64();
    let message = format!(
        "The provider behind {worker:?} has accepted no more {counted}{limit} for as long as requests may wait; it accepts \
         some again in {seconds:.1} s. Try again then."
    );
    Refusal::new(RefusalCode::ProviderLimited, message).with_retry_after(Some(after))
}

/// Refuses a lease with 429, because its tenant alone has reported that the provider accepts no
/// calls for some time.
pub(crate) fn lease_limited(pool: &str, after: Duration) -> Refusal {
    let seconds = after.as_secs_f64();
    let message = format!(
        "A lease of this tenant in the pool {pool:?} was reported as refused by its provider for another {seconds:.1} s. \
         No other tenant reports that, so the tenant's new leases wait outside of the queue. Try again then."
    );
    let refusal = Refusal::new(RefusalCode::ProviderLimited, message);
    refusal.with_status(StatusCode::TOO_MANY_REQUESTS).with_retry_after(Some(after))
}

/// Refuses with 503 because a provider's account is spent or blocked, and no other worker can take the request.
pub(crate) fn provider_out(worker: &str, reason: &str) -> Refusal {
    let message = format!(
        "The provider behind {worker:?} accepts no more requests: {reason}. Your key is fine; the gateway's operator must \
         see to the provider's account."
    );
    Refusal::new(RefusalCode::ProviderOut, message)
}

/// Refuses with 400 because the request is larger than a provider's whole limit.
pub(crate) fn larger_than_quota(limit: Option<u64>, requested: Option<u64>) -> Refusal {
    let part = |words: &str, number: Option<u64>| {
        number.map_or_else(String::new, |number| format!(" {words}{number} tokens"))
    };
    let message = format!(
        "The request is larger than the provider's whole limit:{}{}. Send a smaller max_tokens or a shorter \
         prompt.",
        part("it may take ", requested),
        part("of at most ", limit),
    );
    Refusal::new(RefusalCode::LargerThanQuota, message)
}

/// Refuses with 400 because the earlier response does not exist or is another tenant's; the message does not say which.
pub(crate) fn unknown_response(id: &str) -> Refusal {
    let shown: String = id.chars().take(128).collect();
    let message = format!("Previous response with id {shown:?} not found.");
    Refusal::new(RefusalCode::PreviousResponseNotFound, message).with_param("previous_response_id")
}

/// Refuses with 400 because the conversation does not exist or is another tenant's; the message does not say which.
pub(crate) fn unknown_conversation(id: &str) -> Refusal {
    let shown: String = id.chars().take(128).collect();
    let message = format!("Conversation with id {shown:?} not found.");
    Refusal::new(RefusalCode::ConversationNotFound, message).with_param("conversation")
}

/// Refuses with 400 because the item does not exist or is another tenant's; the message does not say which.
pub(crate) fn unknown_item(id: &str) -> Refusal {
    let shown: String = id.chars().take(128).collect();
    let message = format!("Item with id {shown:?} not found.");
    Refusal::new(RefusalCode::ItemNotFound, message).with_param("input")
}

/// Refuses with 400 because ids in the body cannot be checked.
pub(crate) fn unsearchable_ids(error: &UnsearchableBodyError) -> Refusal {
    let message = format!("The ids in this request cannot be checked: {error}. Send fewer parts.");
    Refusal::new(RefusalCode::IdsNotSearchable, message)
}

/// Refuses with 503 because the owners of the ids in a request are in the database, which does not answer.
pub(crate) fn ids_unavailable() -> Refusal {
    let message = "The gateway's database does not answer, so the ids in this request cannot be checked. Try again soon.";
    Refusal::new(RefusalCode::StoreUnavailable, message)
}

/// Refuses with 400 because a field of the body must not go to the upstream. Names the field, which is the client's own
/// text.
pub(crate) fn field_not_allowed(name: &str) -> Refusal {
    let shown: String = name.chars().take(64).collect();
    let message = format!("The field {shown:?} may not be sent to this model; leave it out.");
    Refusal::new(RefusalCode::FieldNotAllowed, message)
}

/// Refuses with 400 because a header must not go to the upstream.
pub(crate) fn header_not_allowed(name: &str) -> Refusal {
    let message = format!("The header {name:?} may not be sent to this model; leave it out.");
    Refusal::new(RefusalCode::HeaderNotAllowed, message)
}

/// Refuses with `status` because the received bytes are not a valid HTTP request, or because the request's head is
/// larger than `head_max` bytes.
pub(crate) fn malformed_request(status: StatusCode, head_max: u32) -> Refusal {
    let too_large = match status {
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => RefusalCode::HeaderTooLarge,
        StatusCode::URI_TOO_LONG => RefusalCode::TargetTooLong,
        _ => {
            let message = "The bytes are not an HTTP request.";
            return Refusal::new(RefusalCode::BadRequest, message).with_status(status);
        }
    };
    let message =
        format!("The request's head is too large: {head_max} bytes and 100 headers are allowed.");
    Refusal::new(too_large, message)
}

pub(crate) fn header_timeout(after: Duration) -> Refusal {
    let message = format!("The request's head did not arrive within {} s.", after.as_secs_f64());
    Refusal::new(RefusalCode::HeaderTimeout, message)
}

pub(crate) fn body_too_large(max: u64) -> Refusal {
    let message =
        format!("The request's body is larger than {max} bytes, the largest size that is allowed.");
    Refusal::new(RefusalCode::BodyTooLarge, message)
}

pub(crate) fn body_timeout(after: Duration) -> Refusal {
    let message = format!("The request's body did not arrive within {} s.", after.as_secs());
    Refusal::new(RefusalCode::BodyTimeout, message)
}

pub(crate) fn body_broken() -> Refusal {
    Refusal::new(RefusalCode::BodyIncomplete, "The request's body is incomplete.")
        .with_outcome(AttemptOutcome::ClientLeft)
}

pub(crate) fn memory_full() -> Refusal {
    let message = "The gateway holds the greatest allowed number of bytes of waiting requests. Try again soon.";
    Refusal::new(RefusalCode::MemoryFull, message)
}

pub(crate) fn encoded_body() -> Refusal {
    let message =
        "Compressed request bodies are not supported: send the body without Content-Encoding.";
    Refusal::new(RefusalCode::UnsupportedContentEncoding, message)
}

pub(crate) fn unknown_model(model: &str) -> Refusal {
    let shown: String = model.chars().take(128).collect();
    let message = format!("There is no model {shown:?} here. GET /v1/models lists what there is.");
    Refusal::new(RefusalCode::ModelNotFound, message).with_param("model")
}

pub(crate) fn forbidden_model(model: &str, allowed: &[String]) -> Refusal {
    let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
    let message = format!(
        "This key may not ask for the model {model:?}. It may ask for: {}. GET /v1/models lists those that are served.",
        rights::listed(&allowed)
    );
    Refusal::new(RefusalCode::ModelNotAllowed, message).with_param("model")
}

/// Refuses a lease with 403 because its key has a list of models and the lease names a model of
/// another pool.
pub(crate) fn model_of_another_pool(model: &str, pool: &str) -> Refusal {
    let message = format!(
        "The pool {pool:?} serves the model {model:?}, so this key's right to it opens no leases. Name a model of the leased \
         calls that is in the key's list, or send requests for {model:?} to the gateway."
    );
    Refusal::new(RefusalCode::ModelNotAllowed, message).with_param("model")
}

/// Refuses with 403 because only hosted workers have the model, and the caller may not use them.
pub(crate) fn hosted_not_allowed(model: &str) -> Refusal {
    let shown: String = model.chars().take(128).collect();
    let message = format!(
        "The model {shown:?} runs on hosted workers only, or this request may go to no others, and this key may not use those. \
         Ask for another model, or have the gateway's operator allow it."
    );
    Refusal::new(RefusalCode::HostedNotAllowed, message).with_param("model")
}

/// Refuses with 403 because a budget counts money, and the model has no price by which money could be counted.
pub(crate) fn model_has_no_price(model: &str) -> Refusal {
    let shown: String = model.chars().take(128).collect();
    let message = format!(
        "A budget of this key counts money, and the model {shown:?} has no price here. Ask for another model, or have the \
         gateway's operator add a price (0 if it costs nothing)."
    );
    Refusal::new(RefusalCode::ModelHasNoPrice, message).with_param("model")
}

/// Refuses with 403 because the pool counts money, and no worker that the request may go to has a price now.
pub(crate) fn model_has_no_price_in_pool(model: &str) -> Refusal {
    let shown: String = model.chars().take(128).collect();
    let message = format!(
        "The pool counts money, and the model {shown:?} has no price today on a worker that this request may go to. Ask for \
         another model, or have the gateway's operator add a price."
    );
    Refusal::new(RefusalCode::ModelHasNoPrice, message).with_param("model")
}

pub(crate) fn unserved_dialect(model: &str, instead: &str) -> Refusal {
    let message =
        format!("The upstreams of the model {model:?} do not serve this route. Use {instead}.");
    Refusal::new(RefusalCode::DialectNotServed, message).with_param("model")
}

pub(crate) fn bad_name(header: &str) -> Refusal {
    let message = format!("The header {header} must be 1 to 128 visible ASCII characters.");
    Refusal::new(RefusalCode::InvalidHeader, message)
}

pub(crate) fn store_unavailable() -> Refusal {
    let message =
        "The gateway's database does not answer, so budgets cannot be checked. Try again soon.";
    Refusal::new(RefusalCode::StoreUnavailable, message)
}

/// Refuses with 503 because rows cannot be written, and the configuration wants no request served without one.
pub(crate) fn rows_not_writable() -> Refusal {
    let message =
        "The gateway cannot keep a record of requests now, so it serves none. Try again soon.";
    Refusal::new(RefusalCode::StoreUnavailable, message)
}

pub(crate) fn unknown_path(path: &str) -> Refusal {
    let shown: String = path.chars().take(128).collect();
    let hint = match path {
        _ if path.starts_with("/v1/v1/") => {
            "The client adds /v1 to a base URL that ends in /v1 already: leave one of them out."
        }
        _ if is_admin_path(path) => "The admin API has an address of its own: admin.listen.",
        _ => "The API is under /v1.",
    };
    let message = format!("There is nothing at the path {shown:?}. {hint}");
    Refusal::new(RefusalCode::NotFound, message)
}

/// Returns true if a path belongs to the admin API.
pub(crate) fn is_admin_path(path: &str) -> bool {
    path == "/api/v1" || path.starts_with("/api/v1/")
}

/// Refuses with 405 because the path exists, but not with this method. Sets the required `Allow` header.
pub(crate) fn wrong_method(
    allowed: &'static str,
    dialect: Dialect,
    request_id: &str,
) -> (RefusalCode, Reply) {
    let message = format!("This path takes {allowed} only.");
    let refusal = Refusal::new(RefusalCode::MethodNotAllowed, message);
    let mut reply = refusal.reply(dialect, request_id);
    reply.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    (refusal.code, reply)
}

#[cfg(test)]
mod tests {
    use fairgate_core::decision::RejectionLimit;

    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_never_none() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(1_001)), 2);
        assert_eq!(whole_seconds(Duration::from_secs(3)), 3);
    }

    #[test]
    fn every_reason_of_a_pool_has_its_status() {
        for reason in RejectionReason::ALL {
            let refused = AdmitError::Rejected {
                reason,
                limit: None,
                expected_wait: None,
                retry_after: Some(Duration::from_secs(2)),
            };
            let refusal = Refusal::by_pool(refused, 529);
            assert_eq!(refusal.code.as_str(), reason.code());
            let status = match reason {
                RejectionReason::NoWorker => StatusCode::SERVICE_UNAVAILABLE,
                RejectionReason::Overloaded => StatusCode::from_u16(529).unwrap(),
                RejectionReason::Duplicate => StatusCode::INTERNAL_SERVER_ERROR,
                _ => StatusCode::TOO_MANY_REQUESTS,
            };
            assert_eq!(refusal.problem.status, status);
            assert!(!refusal.code.is_retry_pointless());
        }
    }

    #[test]
    fn a_limit_is_told_in_words_and_in_fields() {
        for dialect in [Dialect::OpenAi, Dialect::Anthropic] {
            let refused = AdmitError::Rejected {
                reason: RejectionReason::ClassInputTokens,
                limit: Some(RejectionLimit {
                    class: Some("batch".into()),
                    current: 108,
                    limit: 10,
                }),
                expected_wait: Some(Duration::from_secs(90)),
                retry_after: Some(Duration::from_millis(1_500)),
            };
            let refusal = Refusal::by_pool(refused, 529);
            let body: serde_json::Value =
                serde_json::from_slice(&refusal.problem.body(dialect, "r")).unwrap();
            let limit = serde_json::json!({"class": "batch", "current": 108, "bound": 10});
            assert_eq!(body["error"]["limit"], limit);
            assert_eq!(body["error"]["code"], "class_input_tokens");
            assert_eq!(body["error"]["expected_wait_ms"], 90_000);
            let reply = refusal.reply(dialect, "r");
            assert_eq!(
                (reply.status().as_u16(), &reply.headers()[RETRY_AFTER]),
                (429, &HeaderValue::from(2))
            );
        }
    }

    #[test]
    fn an_upstream_that_fails_and_one_that_is_slow_are_told_apart() {
        for kind in FailureKind::ALL {
            let refusal = Refusal::from(&UpstreamFailure { kind, worker: "w".into() });
            let slow = refusal.code.as_str().contains("timeout");
            let status = if slow { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
            assert_eq!(refusal.problem.status, status, "{kind:?}");
            assert_eq!(refusal.outcome == AttemptOutcome::Timeout, slow, "{kind:?}");
        }
    }
}

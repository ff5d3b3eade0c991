//! The codes of all refusals of the data plane. Each code has a text, an HTTP status, a rule for
//! retries and one line for the documentation. The table of codes in `docs/gateway.md` is made from
//! this list; a test fails if the two differ.
//!
//! To add a refusal, add a line here, build it in `refusal.rs` or one of its modules, and make the table again:
//! `FAIRGATE_UPDATE_DOCS=1 cargo test -p fairgate-gateway --lib refusal::code`.

use std::time::Duration;

use fairgate_core::decision::RejectionReason;
use fairgate_dialect::InvalidRequestCode;
use fairgate_runtime::AdmitError;
use http::StatusCode;

use crate::upstream_failure::FailureKind;

/// Headers of a refusal that tell the client if and when to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryRule {
    /// A retry would get the same refusal. The response has `x-should-retry: false`.
    Pointless,
    /// A retry soon would get the same refusal, so the response has `x-should-retry: false`. It also has a
    /// `retry-after` that is computed for each refusal, if it is known when a retry can succeed.
    PointlessBefore,
    /// The response has neither header.
    Unstated,
    /// The response has this fixed time as `retry-after`, because it is not known when the cause ends.
    After(Duration),
    /// The response has a `retry-after` that is computed for each refusal.
    Computed,
}

const ONE_SECOND: RetryRule = RetryRule::After(Duration::from_secs(1));
const TWO_SECONDS: RetryRule = RetryRule::After(Duration::from_secs(2));

/// Declares the codes. An entry is the meaning as a doc comment, then `Variant = STATUS "text" rule;`. If the rule
/// computes the wait, the rule is followed by a text that describes the wait.
macro_rules! refusal_codes {
    ($(
        $(#[doc = $line:literal])+
        $variant:ident = $status:literal $text:literal $rule:expr $(, $wait:literal)?;
    )+) => {
        /// The stable code of a refusal. Several codes have the same text if they differ in status or retry rule.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum RefusalCode {
            $($(#[doc = $line])+ $variant,)+
        }

        impl RefusalCode {
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$variant,)+];

            /// Returns the code's text in responses, rows, logs and metrics.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Returns the status as a number.
            const fn status_number(self) -> u16 {
                match self { $(Self::$variant => $status,)+ }
            }

            pub(crate) const fn retry(self) -> RetryRule {
                #[allow(clippy::enum_glob_use, reason = "the rules of the list below")]
                use RetryRule::*;
                match self { $(Self::$variant => $rule,)+ }
            }

            /// Returns the meaning for the documentation.
            #[cfg(test)]
            fn meaning(self) -> &'static str {
                match self { $(Self::$variant => concat!($($line),+),)+ }
            }

            /// Returns the description of a computed wait for the documentation; empty for other retry rules.
            #[cfg(test)]
            fn wait(self) -> &'static str {
                match self { $(Self::$variant => concat!($($wait)?),)+ }
            }
        }
    };
}

refusal_codes! {
    /// The body is not JSON.
    InvalidJson = 400 "invalid_json" Pointless;
    /// The body names no model.
    MissingModel = 400 "missing_model" Pointless;
    /// A field of the body has a wrong type or value.
    InvalidValue = 400 "invalid_value" Pointless;
    /// A field has a value that Fairgate does not serve, such as `background: true`.
    UnsupportedValue = 400 "unsupported_value" Pointless;
    /// A field is twice in the body.
    DuplicateField = 400 "duplicate_field" Pointless;
    /// The model's workers do not serve this route.
    DialectNotServed = 400 "dialect_not_served" Pointless;
    /// A header with a name of an agent or a session is not 1 to 128 visible ASCII characters.
    InvalidHeader = 400 "invalid_header" Pointless;
    /// The priority is no integer, or is out of range.
    InvalidPriority = 400 "invalid_priority" Pointless;
    /// The weight cannot be read, or is out of range.
    InvalidWeight = 400 "invalid_weight" Pointless;
    /// The request states a weight, and the policy of the model's pool has no `load` node.
    WeightWithoutEffect = 400 "weight_without_effect" Pointless;
    /// The deadline cannot be read.
    InvalidDeadline = 400 "invalid_deadline" Pointless;
    /// The required taints cannot be read, or are too many.
    InvalidTaints = 400 "invalid_taints" Pointless;
    /// The list of workers cannot be read, or is too long.
    InvalidWorkers = 400 "invalid_workers" Pointless;
    /// The pinned worker, or one of those that the request lists, is not a worker of this model.
    UnknownWorker = 400 "unknown_worker" Pointless;
    /// The pinned worker does not have this rank.
    UnknownRank = 400 "unknown_rank" Pointless;
    /// A field may not be sent to this model.
    FieldNotAllowed = 400 "field_not_allowed" Pointless;
    /// A header may not be sent to this model.
    HeaderNotAllowed = 400 "header_not_allowed" Pointless;
    /// The response that the request continues is not known, or belongs to another tenant.
    PreviousResponseNotFound = 400 "previous_response_not_found" Pointless;
    /// The conversation is not known, or belongs to another tenant.
    ConversationNotFound = 400 "conversation_not_found" Pointless;
    /// An item of an earlier response is not known, or belongs to another tenant.
    ItemNotFound = 400 "item_not_found" Pointless;
    /// The body has too many parts to look for ids in it.
    IdsNotSearchable = 400 "ids_not_searchable" Pointless;
    /// The body ended before its announced length.
    BodyIncomplete = 400 "body_incomplete" Pointless;
    /// The request alone is larger than the provider's whole limit.
    LargerThanQuota = 400 "larger_than_quota" Pointless;
    /// The body of a lease cannot be read, or one of its fields is wrong.
    InvalidLease = 400 "invalid_lease" Pointless;
    /// The provider's answer to a leased call was not a refusal because of a limit.
    NotALimit = 400 "not_a_limit" Pointless;
    /// The bytes are not an HTTP request.
    BadRequest = 400 "bad_request" Pointless;
    /// A name cannot be written to a journal.
    Invalid = 400 "invalid" Pointless;
    /// The key is missing, malformed or unknown.
    InvalidApiKey = 401 "invalid_api_key" Pointless;
    /// The key was revoked.
    KeyRevoked = 401 "key_revoked" Pointless;
    /// The key has expired.
    KeyExpired = 401 "key_expired" Pointless;
    /// The task of a [task key](#task-keys) has ended, or another agent has it.
    TaskKeyLost = 401 "lease_lost" Pointless;
    /// An operator has disabled the tenant.
    TenantDisabled = 403 "tenant_disabled" Pointless;
    /// The key may not ask for this model.
    ModelNotAllowed = 403 "model_not_allowed" Pointless;
    /// The key may not use this class.
    ClassNotAllowed = 403 "class_not_allowed" Pointless;
    /// The key may not ask for so high a priority.
    PriorityNotAllowed = 403 "priority_not_allowed" Pointless;
    /// The key may not state so short a deadline.
    DeadlineNotAllowed = 403 "deadline_not_allowed" Pointless;
    /// The key may not state so high a weight.
    WeightNotAllowed = 403 "weight_not_allowed" Pointless;
    /// The key may not choose the worker.
    PinNotAllowed = 403 "pin_not_allowed" Pointless;
    /// The key may not use this worker, or none of the workers of this model.
    WorkerNotAllowed = 403 "worker_not_allowed" Pointless;
    /// The key may not open leases.
    LeaseNotAllowed = 403 "lease_not_allowed" Pointless;
    /// The key may not name files, vector stores, containers or stored prompts of the upstream's account.
    ForeignIdNotAllowed = 403 "foreign_id_not_allowed" Pointless;
    /// The key may not require this taint.
    TaintNotAllowed = 403 "taint_not_allowed" Pointless;
    /// Only hosted workers have the model, and the key may not use them.
    HostedNotAllowed = 403 "hosted_not_allowed" Pointless;
    /// A budget of the key or the pool counts money, and the model has no price on a worker that the request may go to.
    ModelHasNoPrice = 403 "model_has_no_price" Pointless;
    /// There is no such model.
    ModelNotFound = 404 "model_not_found" Pointless;
    /// There is nothing at this path.
    NotFound = 404 "not_found" Pointless;
    /// There is no such lease, or it is another key's, or it ended too long ago.
    LeaseNotFound = 404 "lease_not_found" Pointless;
    /// No pool of that name leases its slots, or several do and the request names none.
    LeasePoolNotFound = 404 "lease_pool_not_found" Pointless;
    /// The path does not take this method.
    MethodNotAllowed = 405 "method_not_allowed" Pointless;
    /// The request's head did not arrive in time.
    HeaderTimeout = 408 "header_timeout" Unstated;
    /// The request's body did not arrive in time.
    BodyTimeout = 408 "body_timeout" Unstated;
    /// The lease was not renewed in time, and its slot is gone.
    LeaseLost = 409 "lease_lost" Pointless;
    /// The lease was cancelled before.
    LeaseCancelled = 409 "lease_cancelled" Pointless;
    /// The lease has no slot yet.
    LeaseNotGranted = 409 "lease_not_granted" Pointless;
    /// The body is larger than `limits.body_bytes_max`.
    BodyTooLarge = 413 "body_too_large" Pointless;
    /// The request's target is too long.
    TargetTooLong = 414 "header_too_large" Pointless;
    /// The body is compressed.
    UnsupportedContentEncoding = 415 "unsupported_content_encoding" Pointless;
    /// The request's head has too many bytes or headers.
    HeaderTooLarge = 431 "header_too_large" Pointless;
    /// The queue is full, and this flow has the most requests in it.
    QueueFull = 429 "queue_full" Computed, "expected wait";
    /// The queue was full, and the request made room for a flow with fewer requests in it.
    PushedOut = 429 "pushed_out" Computed, "expected wait";
    /// Too many requests of the class wait.
    ClassRequests = 429 "class_requests" Computed, "expected wait";
    /// The waiting requests of the class have too many input tokens.
    ClassInputTokens = 429 "class_input_tokens" Computed, "expected wait";
    /// The waiting requests of the class have too many cached tokens.
    ClassCachedTokens = 429 "class_cached_tokens" Computed, "expected wait";
    /// The tenant or key has used its requests per minute.
    RateLimitedRequests = 429 "rate_limited_requests" Computed, "until the bucket has room";
    /// The tenant or key has used its tokens per minute.
    RateLimitedTokens = 429 "rate_limited_tokens" Computed, "until the bucket has room";
    /// The tenant or key has too many waiting requests.
    QueueRequestsExceeded = 429 "queue_requests_exceeded" Computed, "owner's wait";
    /// The tenant or key has too many bytes of waiting requests.
    QueueBytesExceeded = 429 "queue_bytes_exceeded" Computed, "owner's wait";
    /// A budget has too little left.
    BudgetExhausted = 429 "budget_exhausted" PointlessBefore,
        "until the budget starts again; none if the request is larger than the whole budget";
    /// A budget has too little left only because of reservations of requests in flight.
    BudgetReserved = 429 "budget_reserved" TWO_SECONDS;
    /// The budget of a project or of the fleet has too little left.
    ProjectBudgetExhausted = 429 "project_budget_exhausted" PointlessBefore,
        "until enough of the oldest usage has left the window, or the next part of it begins to leave; none if the call is larger than the whole budget, or if there is no usage that could leave the window";
    /// The budget of a project or of the fleet has too little left only because of reservations for tasks.
    ProjectBudgetReserved = 429 "project_budget_exhausted" TWO_SECONDS;
    /// The task may use no more tokens or money than its cap allows. Give the task up; the fleet blocks it, and a person
    /// may raise the cap and restart it.
    TaskCapReached = 429 "task_cap_reached" Pointless;
    /// The key has as many leases or client programs as a key may have.
    TooManyLeases = 429 "too_many_leases" ONE_SECOND;
    /// Two requests had the same id; a fault of the gateway.
    Duplicate = 500 "duplicate" Unstated;
    /// No connection to the upstream could be made.
    UpstreamUnreachable = 502 "upstream_unreachable" Unstated;
    /// The upstream's certificate is not trusted, or the upstream does not speak TLS.
    UpstreamTls = 502 "upstream_tls" Unstated;
    /// The upstream's connection broke.
    UpstreamReset = 502 "upstream_reset" Unstated;
    /// The upstream's answer is not HTTP.
    UpstreamGarbage = 502 "upstream_garbage" Unstated;
    /// The upstream's answer broke off.
    UpstreamIncomplete = 502 "upstream_incomplete" Unstated;
    /// The upstream's answer is compressed in a way that cannot be decoded.
    UpstreamEncoding = 502 "upstream_encoding" Unstated;
    /// The upstream answered with a redirect.
    UpstreamRedirect = 502 "upstream_redirect" Unstated;
    /// The upstream refused Fairgate's own credential.
    UpstreamCredentials = 502 "upstream_credentials" Unstated;
    /// The request waited as long as the pool lets requests wait.
    QueueTimeout = 503 "queue_timeout" Computed, "expected wait";
    /// The pool has no worker that could take the request, or all such workers are drained.
    NoWorker = 503 "no_worker" Unstated;
    /// The pool has no worker that the request's own pin, list or taints allow, or all such workers are drained.
    NoWorkerAsChosen = 503 "no_worker" Pointless;
    /// A provider's limit has delayed the request for as long as it may wait. The status is 429 for a new lease if only its own tenant has reported the limit.
    ProviderLimited = 503 "provider_limited" Computed,
        "until the time that the provider stated, or until its pause ends";
    /// The operator's account at the provider has no credit left, or the provider has blocked it.
    ProviderOut = 503 "provider_out" Pointless;
    /// The gateway is about to stop.
    Draining = 503 "draining" ONE_SECOND;
    /// The gateway holds as many bytes of waiting requests as it may.
    MemoryFull = 503 "memory_full" ONE_SECOND;
    /// The database does not answer, so budgets cannot be checked or rows cannot be written.
    StoreUnavailable = 503 "store_unavailable" ONE_SECOND;
    /// The gateway has as many connections as it may.
    ConnectionsFull = 503 "connections_full" ONE_SECOND;
    /// The lease of a [task key](#task-keys) ran out a moment ago.
    LeaseUnclear = 503 "lease_unclear" ONE_SECOND;
    /// The pool's scheduler has stopped; a fault of the gateway.
    Gone = 503 "gone" Unstated;
    /// The request's own deadline passed before it had a slot.
    DeadlinePassed = 504 "deadline_passed" Pointless;
    /// No connection to the upstream was made in time.
    UpstreamConnectTimeout = 504 "upstream_connect_timeout" Unstated;
    /// The upstream's answer did not begin in time.
    UpstreamTimeout = 504 "upstream_timeout" Unstated;
    /// The upstream's answer stopped.
    UpstreamIdleTimeout = 504 "upstream_idle_timeout" Unstated;
    /// The upstream's answer did not end in time.
    UpstreamTotalTimeout = 504 "upstream_total_timeout" Unstated;
    /// Every worker that could take the request is unhealthy. The status is 503 or 429 if the pool's `overloaded_status` says so.
    Overloaded = 529 "overloaded" Computed,
        "until a worker is tried again: the end of its `open_for`, or its next health check";
}

impl RefusalCode {
    /// Returns the HTTP status. `Overloaded` may get another one from its pool.
    pub(crate) fn status(self) -> StatusCode {
        StatusCode::from_u16(self.status_number()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Returns true if the response has `x-should-retry: false`.
    pub(crate) fn is_retry_pointless(self) -> bool {
        matches!(self.retry(), RetryRule::Pointless | RetryRule::PointlessBefore)
    }

    /// Returns true if a budget of the directory is used up. OpenAI's clients then see a used-up quota, which they do
    /// not retry, instead of a rate limit, which they do.
    pub(super) fn is_quota(self) -> bool {
        matches!(self, Self::BudgetExhausted | Self::BudgetReserved)
    }

    /// Returns true if the pool has no worker for the request, or no healthy one.
    pub(crate) fn is_no_worker(self) -> bool {
        matches!(self, Self::NoWorker | Self::NoWorkerAsChosen | Self::Overloaded)
    }
}

impl From<InvalidRequestCode> for RefusalCode {
    fn from(code: InvalidRequestCode) -> Self {
        match code {
            InvalidRequestCode::InvalidJson => Self::InvalidJson,
            InvalidRequestCode::MissingModel => Self::MissingModel,
            InvalidRequestCode::InvalidValue => Self::InvalidValue,
            InvalidRequestCode::UnsupportedValue => Self::UnsupportedValue,
            InvalidRequestCode::DuplicateField => Self::DuplicateField,
        }
    }
}

impl From<RejectionReason> for RefusalCode {
    fn from(reason: RejectionReason) -> Self {
        match reason {
            RejectionReason::Duplicate => Self::Duplicate,
            RejectionReason::QueueFull => Self::QueueFull,
            RejectionReason::PushedOut => Self::PushedOut,
            RejectionReason::NoWorker => Self::NoWorker,
            RejectionReason::Overloaded => Self::Overloaded,
            RejectionReason::ClassRequests => Self::ClassRequests,
            RejectionReason::ClassInputTokens => Self::ClassInputTokens,
            RejectionReason::ClassCachedTokens => Self::ClassCachedTokens,
        }
    }
}

impl From<&AdmitError> for RefusalCode {
    fn from(error: &AdmitError) -> Self {
        match error {
            AdmitError::Rejected { reason, .. } => (*reason).into(),
            AdmitError::Expired { .. } => Self::QueueTimeout,
            AdmitError::Invalid { .. } => Self::Invalid,
            AdmitError::Draining => Self::Draining,
            AdmitError::Gone => Self::Gone,
        }
    }
}

impl From<FailureKind> for RefusalCode {
    fn from(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Connect => Self::UpstreamUnreachable,
            FailureKind::Tls => Self::UpstreamTls,
            FailureKind::Reset => Self::UpstreamReset,
            FailureKind::Garbage => Self::UpstreamGarbage,
            FailureKind::Incomplete => Self::UpstreamIncomplete,
            FailureKind::Encoding => Self::UpstreamEncoding,
            FailureKind::Redirect => Self::UpstreamRedirect,
            FailureKind::Credentials => Self::UpstreamCredentials,
            FailureKind::ConnectTimeout => Self::UpstreamConnectTimeout,
            FailureKind::FirstByteTimeout => Self::UpstreamTimeout,
            FailureKind::IdleTimeout => Self::UpstreamIdleTimeout,
            FailureKind::TotalTimeout => Self::UpstreamTotalTimeout,
        }
    }
}

/// The code of an attempt or a connection that ended without success. It is the code of a refusal,
/// or of an end for which the gateway writes no response of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum EndCode {
    Refused(RefusalCode),
    /// The client left before the answer was complete.
    ClientLeft,
    /// The attempt was cut off at the end of `drain_grace`.
    Drained,
    /// The upstream's own error was passed on.
    UpstreamStatus,
    /// The upstream reported an error in the middle of its stream.
    UpstreamFailed,
    /// The gateway failed while it served the request.
    InternalError,
    /// The client of a lease reported that its call failed.
    LeaseFailed,
    /// The connection had no TLS, or was gone before the first byte.
    ConnectionBroken,
}

impl EndCode {
    /// Returns the code's text in rows, logs and metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Refused(code) => code.as_str(),
            Self::ClientLeft => "client_left",
            Self::Drained => "drained",
            Self::UpstreamStatus => "upstream_status",
            Self::UpstreamFailed => "upstream_failed",
            Self::InternalError => "internal_error",
            Self::LeaseFailed => "lease_failed",
            Self::ConnectionBroken => "connection_broken",
        }
    }
}

impl From<RefusalCode> for EndCode {
    fn from(code: RefusalCode) -> Self {
        Self::Refused(code)
    }
}

#[cfg(test)]
mod tests;

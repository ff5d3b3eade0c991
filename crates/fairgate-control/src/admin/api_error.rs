//! Errors of the admin API. All of them have one JSON shape, with stable codes.

use std::sync::LazyLock;
use std::time::Duration;

use axum::Json;
use axum::response::{IntoResponse, Response};
use fairgate_api::error::{ConfigProblem, ErrorBody, ErrorDetail};
use fairgate_api::fleet::FleetAgentState;
use fairgate_fleet::FleetError;
use fairgate_store::{LogThrottle, StoreError};
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use crate::live::PoolUnavailableError;

/// Limits how often the log reports that the database does not answer, counted over all requests.
static STORE_ERROR_THROTTLE: LazyLock<LogThrottle<()>> = LazyLock::new(LogThrottle::default);

/// An error response of the admin API before it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    detail: ErrorDetail,
    retry_after: Option<Duration>,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> Self {
        let detail = ErrorDetail {
            code: code.to_owned(),
            message: message.into(),
            field: None,
            problems: Vec::new(),
        };
        Self { status, detail, retry_after: None }
    }

    pub(super) fn bad_request(code: &str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(super) fn invalid(field: &str, problem: impl std::fmt::Display) -> Self {
        let message = format!("{field}: {problem}");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", message).in_field(field)
    }

    pub(super) fn not_found(what: &str, name: &str) -> Self {
        let message = format!("there is no {what} {name:?}");
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(super) fn no_path() -> Self {
        let message = "there is nothing at this path; see /api/v1/openapi.json for what there is";
        Self::new(StatusCode::NOT_FOUND, "unknown_path", message)
    }

    pub(super) fn wrong_method() -> Self {
        let message = "this path does not take this method; the Allow header names those it takes";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    pub(super) fn in_field(mut self, field: impl Into<String>) -> Self {
        self.detail.field = Some(field.into());
        self
    }

    pub(super) fn with_problems(mut self, problems: Vec<ConfigProblem>) -> Self {
        self.detail.problems = problems;
        self
    }

    pub(super) fn retry_after(mut self, time: Duration) -> Self {
        self.retry_after = Some(time);
        self
    }

    pub(super) fn unavailable(code: &str, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        error.retry_after(Duration::from_secs(1))
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let message = error.to_string();
        match error {
            StoreError::NotFound { what, .. } => {
                Self::new(StatusCode::NOT_FOUND, "not_found", message).in_field(what)
            }
            StoreError::Exists { .. } => Self::new(StatusCode::CONFLICT, "exists", message),
            StoreError::Declared { .. } => {
                Self::new(StatusCode::CONFLICT, "declared_in_file", message)
            }
            StoreError::InUse { .. } => Self::new(StatusCode::CONFLICT, "in_use", message),
            StoreError::ChangedSince { .. } => {
                Self::new(StatusCode::CONFLICT, "changed_since", message)
            }
            StoreError::NotUndoable { .. } => {
                Self::new(StatusCode::CONFLICT, "not_undoable", message)
            }
            // A conflict instead of an invalid value: the time is well-formed, and has merely passed.
            StoreError::Invalid { field: "expires_at", problem } => {
                Self::new(StatusCode::CONFLICT, "expiry_conflict", format!("expires_at {problem}"))
                    .in_field("expires_at")
            }
            // The only possible problem of an existing key's id: the key was revoked.
            StoreError::Invalid { field: "id", .. } => {
                Self::new(StatusCode::CONFLICT, "key_revoked", message)
            }
            StoreError::Invalid { field, .. } => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_value", message)
                    .in_field(field)
            }
            StoreError::Full(_) => {
                log_store_error(&message);
                let message = "the disk of the database is full, and nothing was changed; try again when there is room";
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "store_full", message)
                    .retry_after(Duration::from_secs(5))
            }
            StoreError::Url { .. }
            | StoreError::TooNew { .. }
            | StoreError::Locked { .. }
            | StoreError::SpoolLocked { .. }
            | StoreError::Unrecorded(_)
            | StoreError::Database(_)
            | StoreError::Closed => {
                log_store_error(&message);
                Self::unavailable("store_unavailable", "the database does not answer; try again")
            }
        }
    }
}

fn log_store_error(error: &str) {
    if let Some(left_out) = STORE_ERROR_THROTTLE.admit((), Instant::now()) {
        tracing::error!(error, left_out, "the store did not do what it was asked");
    }
}

impl From<FleetError> for ApiError {
    fn from(error: FleetError) -> Self {
        let message = error.to_string();
        let conflict = |code| Self::new(StatusCode::CONFLICT, code, message.clone());
        match error {
            FleetError::NotFound { what, .. } => {
                Self::new(StatusCode::NOT_FOUND, "not_found", message).in_field(what)
            }
            FleetError::Exists { .. } => conflict("exists"),
            FleetError::InUse { .. } => conflict("in_use"),
            FleetError::Invalid { field, problem } => Self::invalid(&field, problem),
            FleetError::Transition { .. } => conflict("illegal_transition"),
            FleetError::Cycle(_) => {
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "cycle", message).in_field("needs")
            }
            FleetError::LeaseLost { .. } => conflict("lease_lost"),
            FleetError::Unknown { field, .. } => {
                Self::new(StatusCode::NOT_FOUND, "not_found", message).in_field(field)
            }
            FleetError::Passed { field, .. } => conflict("passed").in_field(field),
            FleetError::Archived { field, .. } => conflict("archived").in_field(field),
            FleetError::Agent { state, .. } => {
                let code = match state {
                    FleetAgentState::Retired => "agent_retired",
                    FleetAgentState::Paused | FleetAgentState::Active => "agent_paused",
                };
                Self::new(StatusCode::FORBIDDEN, code, message)
            }
            FleetError::Store(error) => error.into(),
        }
    }
}

impl From<PoolUnavailableError> for ApiError {
    fn from(error: PoolUnavailableError) -> Self {
        Self::unavailable("pool_unavailable", format!("{error}; try again"))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = Json(ErrorBody { error: self.detail });
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(time) = self.retry_after {
            // Rounded up: a client that comes back too early is refused again.
            let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

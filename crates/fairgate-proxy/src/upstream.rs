//! One upstream, with its connections, its condition, and the requests that are sent to it.
//!
//! Connections use HTTP/1.1 and are kept open between requests. The request that uses a connection
//! also polls it (`connection.rs`), so a request and its answer stay in one task. The upstream's
//! condition reaches the core as worker events (`watch.rs`), because the core chooses the worker of
//! each request, and the journal must contain every input of that choice.

mod account;
mod chunk_joiner;
mod circuit_breaker;
mod connect;
mod connection;
mod decode;
mod engine;
mod failure_log;
mod framing;
mod health;
mod idle_connections;
mod probe;
mod quota_view;
mod scrape;
mod slot_division;
mod status;
mod watch;

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use fairgate_config::{OverloadConfig, UpstreamConfig};
use fairgate_dialect::Dialect;
use http::header::{AUTHORIZATION, HOST};
use http::uri::PathAndQuery;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
};
use http_body_util::Full;
use tokio::time::{Instant, timeout_at};

pub(crate) use self::account::{
    AccountMember, LeaseRefusalReport, PROBE_EVERY, ProbeOutcome, ProbeTarget, ProviderAccount,
    QuotaTicket, ReportedRefusal,
};
pub use self::circuit_breaker::UpstreamOutage;
pub(crate) use self::circuit_breaker::{CircuitEpoch, UpstreamCondition, UpstreamStanding};
pub(crate) use self::engine::{EngineHook, EngineSnapshot, UpstreamEngine};
pub(crate) use self::failure_log::FailureCause;
pub(crate) use self::idle_connections::UpstreamBody;
pub use self::probe::{UpstreamProbe, probe_upstream};
pub use self::quota_view::QuotaView;
pub(crate) use self::status::StatusClass;
pub(crate) use self::watch::{PoolOfWorker, UpstreamWatcher};
pub(crate) use crate::upstream_failure::{FailureKind, FaultParty, UpstreamFailure};

use self::connect::UpstreamConnector;
use self::failure_log::FailureLog;
use self::idle_connections::IdleConnections;
use crate::tls::TlsError;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Response of an upstream to the gateway's own request, such as a health check.
pub(crate) struct FetchedResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Body of the response; `None` if the body is longer than the limit, or broke off.
    pub(crate) text: Option<Vec<u8>>,
}

/// An upstream with its connections, condition, engine and account.
pub(crate) struct Upstream {
    /// Name of the upstream; also the worker's name in the ledger and the metrics.
    pub(crate) name: Arc<str>,
    pub(crate) config: UpstreamConfig,
    pub(crate) condition: UpstreamCondition,
    /// State of the upstream's engine, as read from the engine's metrics.
    pub(crate) engine: UpstreamEngine,
    failure_log: FailureLog,
    connector: UpstreamConnector,
    idle_connections: Arc<IdleConnections>,
    host: HeaderValue,
    /// Value of the header `Authorization`: `Bearer` and the secret. `None` if the upstream has no
    /// credential.
    bearer: Option<HeaderValue>,
    /// Value of the header `x-api-key`: the secret. `None` if the upstream has no credential.
    api_key: Option<HeaderValue>,
}

/// Reason why an upstream cannot be created from its configuration.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// The `ca` file of the upstream cannot be used.
    #[error("upstream {upstream:?}: {source}")]
    Tls {
        /// Name of the upstream.
        upstream: String,
        /// Error that names the file and the problem.
        source: TlsError,
    },
    /// The address or credential of the upstream cannot be used.
    #[error("upstream {upstream:?}: {problem}")]
    Unusable {
        /// Name of the upstream.
        upstream: String,
        /// Reason why the address or credential cannot be used.
        problem: &'static str,
    },
}

/// A request to send, without the address, credential and headers that each upstream adds.
#[derive(Clone, Debug)]
pub(crate) struct OutgoingRequest {
    pub(crate) dialect: Dialect,
    /// Path of the route, with the client's query.
    pub(crate) path: PathAndQuery,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Upstream {
    pub(crate) fn new(config: UpstreamConfig) -> Result<Self, UpstreamError> {
        let unusable = |problem| UpstreamError::Unusable { upstream: config.name.clone(), problem };
        let connector = UpstreamConnector::new(&config)?;
        let authority = config.url.authority().ok_or_else(|| unusable("its url has no host"))?;
        let host = HeaderValue::from_str(authority.as_str())
            .map_err(|_| unusable("its host is no header value"))?;
        let secret = config.credential.as_ref().map(|credential| credential.secret.expose());
        let hidden = |text: &str| {
            let mut value = HeaderValue::from_str(text)
                .map_err(|_| unusable("its credential has characters that no header may have"))?;
            value.set_sensitive(true);
            Ok::<_, UpstreamError>(value)
        };
        Ok(Self {
            name: config.name.as_str().into(),
            condition: UpstreamCondition::new(config.breaker),
            engine: UpstreamEngine::new(&config),
            failure_log: FailureLog::default(),
            connector,
            idle_connections: Arc::new(IdleConnections::new(
                config.idle_connections_max,
                IdleConnections::unstated_idle_time(&config.url),
            )),
            host,
            bearer: secret.map(|secret| hidden(&format!("Bearer {secret}"))).transpose()?,
            api_key: secret.map(hidden).transpose()?,
            config,
        })
    }

    /// Returns true if the upstream serves the API of this dialect.
    pub(crate) fn speaks(&self, dialect: Dialect) -> bool {
        match dialect {
            Dialect::OpenAi => self.config.dialects.openai,
            Dialect::Anthropic => self.config.dialects.anthropic,
        }
    }

    /// Sends a request and waits for the head of its answer, at most until `deadline`. Connecting
    /// and the first byte have timeouts of their own.
    pub(crate) async fn send(
        &self,
        outgoing: OutgoingRequest,
        deadline: Instant,
    ) -> Result<Response<UpstreamBody>, UpstreamFailure> {
        let request = self.request(Method::POST, self.config.path_prefix(), outgoing)?;
        let failed = |kind| UpstreamFailure { kind, worker: self.name.clone() };
        let answered = self.exchange(request, deadline).await.and_then(|answer| {
            // Dropping the answer closes its connection. It cannot be reused, because the end of
            // the body is ambiguous.
            if framing::is_ambiguous(answer.headers()) {
                return Err(failed(FailureKind::Garbage));
            }
            idle_connections::decoded(answer).map_err(|_| failed(FailureKind::Encoding))
        });
        let cause = match &answered {
            Err(failure) => Some(FailureCause::Failed(failure.kind)),
            Ok(answer) => StatusClass::failure_cause(answer.status().as_u16()),
        };
        if let Some(cause) = cause {
            self.log_failure(cause);
        }
        answered
    }

    /// Returns true if these bytes contain the upstream's credential.
    pub(crate) fn is_credential_in(&self, bytes: &[u8]) -> bool {
        let secret = self.config.credential.as_ref().map(|credential| credential.secret.expose());
        secret.is_some_and(|secret| {
            let secret = secret.as_bytes();
            !secret.is_empty() && bytes.windows(secret.len()).any(|part| part == secret)
        })
    }

    /// Logs the cause of a failed request; repeated log lines are throttled.
    pub(crate) fn log_failure(&self, cause: FailureCause) {
        if let Some(left_out) = self.failure_log.record_request(cause, Instant::now()) {
            tracing::warn!(worker = %self.name, %cause, left_out, "a request failed on an upstream");
        }
    }

    /// Returns the slots of the upstream over all its ranks; `None` if unlimited.
    pub(crate) fn total_slots(&self) -> Option<u64> {
        self.engine.slots().map(|slots| slots.saturating_mul(engine::ranks(&self.config)))
    }

    /// Describes the last failed health check; `None` if no check has failed.
    pub(crate) fn check_problem(&self) -> Option<String> {
        self.failure_log.last_check().map(|cause| cause.to_string())
    }

    /// Describes the last failed request; `None` if no request has failed.
    pub(crate) fn request_problem(&self) -> Option<String> {
        self.failure_log.last_request().map(|cause| cause.to_string())
    }

    /// Sets the thresholds above which the upstream counts as overloaded.
    pub(crate) fn set_overload_thresholds(&self, overload: OverloadConfig) {
        if self.engine.set_overload_thresholds(overload) {
            self.condition.changed.notify_one();
        }
    }

    /// Sends a GET request of the gateway itself and reads the answer; the body is `None` if it is longer than
    /// `bytes_max` or broke off.
    async fn fetch(
        &self,
        path: &PathAndQuery,
        due: Instant,
        bytes_max: usize,
    ) -> Result<FetchedResponse, FailureKind> {
        let dialect =
            if self.config.dialects.openai { Dialect::OpenAi } else { Dialect::Anthropic };
        let headers = HeaderMap::new();
        let question = OutgoingRequest { dialect, path: path.clone(), headers, body: Bytes::new() };
        let answer = self.get(question, due).await.map_err(|failure| failure.kind)?;
        read_whole(answer, due, bytes_max).await
    }

    /// Sends a POST request of the gateway itself and reads the answer; the body is `None` if it is longer than
    /// `bytes_max` or broke off.
    pub(crate) async fn ask(
        &self,
        outgoing: OutgoingRequest,
        due: Instant,
        bytes_max: usize,
    ) -> Result<FetchedResponse, UpstreamFailure> {
        let answer = self.send(outgoing, due).await?;
        let failed = |kind| UpstreamFailure { kind, worker: self.name.clone() };
        read_whole(answer, due, bytes_max).await.map_err(failed)
    }

    /// Sends a GET request of the gateway itself. The path is appended to the upstream's path
    /// prefix, because a proxy may serve several servers at different prefixes, and only paths
    /// below this prefix belong to this upstream.
    async fn get(
        &self,
        outgoing: OutgoingRequest,
        deadline: Instant,
    ) -> Result<Response<UpstreamBody>, UpstreamFailure> {
        let request = self.request(Method::GET, self.config.path_prefix(), outgoing)?;
        self.exchange(request, deadline).await
    }

    /// Sends a request over an idle connection or a new one. If an idle connection turns out to be closed before any
    /// byte was sent, another connection is tried.
    async fn exchange(
        &self,
        mut request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Response<UpstreamBody>, UpstreamFailure> {
        let failed = |kind| UpstreamFailure { kind, worker: self.name.clone() };
        while let Some(connection) = self.idle_connections.take() {
            let due = deadline.min(Instant::now() + self.config.timeouts.first_byte);
            let again = request.method().is_idempotent().then(|| copy(&request));
            match timeout_at(due, connection.send(request)).await {
                Ok(Ok(answer)) => return Ok(self.idle_connections.attach_connection(answer)),
                // The connection was closed and nothing was sent: try the same request on another one.
                Ok(Err(connection::UpstreamSendError { unsent: Some(back), .. })) => {
                    request = *back
                }
                // The connection was closed after bytes of the request were sent. The upstream may have run it, so only
                // a request that may run twice is sent again (RFC 9110, 9.2.2), on a new connection.
                Ok(Err(error)) => match again.filter(|_| error.kind == FailureKind::Reset) {
                    Some(again) => {
                        request = again;
                        break;
                    }
                    None => return Err(failed(error.kind)),
                },
                Err(_) => return Err(failed(FailureKind::FirstByteTimeout)),
            }
        }
        let due = deadline.min(Instant::now() + self.config.timeouts.connect);
        let connection = match timeout_at(due, Box::pin(self.connector.connect())).await {
            Ok(connected) => connected.map_err(failed)?,
            Err(_) => return Err(failed(FailureKind::ConnectTimeout)),
        };
        let due = deadline.min(Instant::now() + self.config.timeouts.first_byte);
        match timeout_at(due, connection.send(request)).await {
            Ok(Ok(answer)) => Ok(self.idle_connections.attach_connection(answer)),
            Ok(Err(error)) => Err(failed(error.kind)),
            Err(_) => Err(failed(FailureKind::FirstByteTimeout)),
        }
    }

    fn request(
        &self,
        method: Method,
        prefix: &str,
        outgoing: OutgoingRequest,
    ) -> Result<Request<Full<Bytes>>, UpstreamFailure> {
        let OutgoingRequest { dialect, path, headers, body } = outgoing;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.version_mut() = Version::HTTP_11;
        *request.uri_mut() = self.target(prefix, path)?;
        *request.headers_mut() = headers;
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        match (dialect, &self.bearer, &self.api_key) {
            (Dialect::OpenAi, Some(bearer), _) => {
                headers.insert(AUTHORIZATION, bearer.clone());
            }
            (Dialect::Anthropic, _, Some(key)) => {
                headers.insert(X_API_KEY, key.clone());
            }
            _ => {}
        }
        Ok(request)
    }

    fn target(&self, prefix: &str, path: PathAndQuery) -> Result<Uri, UpstreamFailure> {
        if prefix.is_empty() {
            return Ok(Uri::from(path));
        }
        // Both parts are valid, so the whole is valid too.
        Uri::try_from(format!("{prefix}{path}"))
            .map_err(|_| UpstreamFailure { kind: FailureKind::Connect, worker: self.name.clone() })
    }

    /// Closes connections that have been idle too long, or that the upstream has closed.
    pub(crate) fn sweep(&self) {
        self.idle_connections.sweep();
    }
}

/// Reads an answer until `due`. The body is `None` if it is longer than `bytes_max` or broke off.
async fn read_whole(
    answer: Response<UpstreamBody>,
    due: Instant,
    bytes_max: usize,
) -> Result<FetchedResponse, FailureKind> {
    let (head, mut body) = answer.into_parts();
    let read = async {
        let mut text = Vec::new();
        while let Some(chunk) = poll_fn(|cx| body.poll_chunk(cx)).await {
            let Ok(chunk) = chunk else { return None };
            if text.len() + chunk.len() > bytes_max {
                return None;
            }
            text.extend_from_slice(&chunk);
        }
        Some(text)
    };
    let text = timeout_at(due, read).await.map_err(|_| FailureKind::IdleTimeout)?;
    Ok(FetchedResponse { status: head.status, headers: head.headers, text })
}

/// Copies a request. The copy shares the bytes of the body.
fn copy(request: &Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    let mut again = Request::new(request.body().clone());
    *again.method_mut() = request.method().clone();
    *again.version_mut() = request.version();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    again
}

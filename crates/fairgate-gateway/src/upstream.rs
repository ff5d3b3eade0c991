//! One backend: how it is reached, how it is doing, and what is sent to it.
//!
//! Connections speak HTTP/1.1 and are kept open between requests. Each is driven by whoever uses it at the moment
//! (`lane.rs`), so a request and its answer never change tasks. How the backend is doing is told to the core as events
//! about a worker (`watch.rs`): what is placed where is the core's to decide, and is in its journal.

mod account;
mod complaints;
mod condition;
mod connect;
mod decode;
mod engine;
mod failure;
mod framing;
mod health;
mod lane;
mod lanes;
mod scrape;
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

pub(crate) use self::account::{Account, Member, Ticket};
pub(crate) use self::complaints::Cause;
pub(crate) use self::condition::{Condition, Epoch, Standing};
pub(crate) use self::engine::{Engine, EngineHook, EngineSight};
pub(crate) use self::failure::{Blame, Failure, FailureKind};
pub(crate) use self::lanes::LaneBody;
pub(crate) use self::status::StatusClass;
pub(crate) use self::watch::{Employer, Watcher};

use self::complaints::Complaints;
use self::connect::Connector;
use self::lanes::Lanes;
use crate::tls::TlsError;

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What a backend answered to something beside what clients ask for.
struct Fetched {
    status: StatusCode,
    headers: HeaderMap,
    /// `None` where it is longer than was asked for, or broke off.
    text: Option<Vec<u8>>,
}

/// A backend.
pub(crate) struct Upstream {
    /// Its name: the worker's in the core, the ledger and the metrics.
    pub(crate) name: Arc<str>,
    pub(crate) config: UpstreamConfig,
    pub(crate) condition: Condition,
    /// What its engine says of itself.
    pub(crate) engine: Engine,
    /// The provider's account that it draws on, where it is hosted.
    pub(crate) account: Option<Arc<Account>>,
    complaints: Complaints,
    connector: Connector,
    lanes: Arc<Lanes>,
    host: HeaderValue,
    /// `Authorization: Bearer …` and `x-api-key: …`.
    bearer: Option<HeaderValue>,
    api_key: Option<HeaderValue>,
}

/// What an upstream cannot be made of.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamError {
    /// Its `ca` file.
    #[error("upstream {upstream:?}: {source}")]
    Tls {
        /// Its name.
        upstream: String,
        /// The file, and what is wrong with it.
        source: TlsError,
    },
    /// Its address or credential.
    #[error("upstream {upstream:?}: {problem}")]
    Unusable {
        /// Its name.
        upstream: String,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// What is sent, but for what each upstream adds.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) dialect: Dialect,
    /// The route's path, and the client's query.
    pub(crate) path: PathAndQuery,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Upstream {
    pub(crate) fn new(
        config: UpstreamConfig,
        account: Option<Arc<Account>>,
    ) -> Result<Self, UpstreamError> {
        let unusable = |problem| UpstreamError::Unusable { upstream: config.name.clone(), problem };
        let connector = Connector::new(&config)?;
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
            condition: Condition::new(config.breaker),
            engine: Engine::new(&config),
            account,
            complaints: Complaints::default(),
            connector,
            lanes: Arc::new(Lanes::new(config.idle_connections_max)),
            host,
            bearer: secret.map(|secret| hidden(&format!("Bearer {secret}"))).transpose()?,
            api_key: secret.map(hidden).transpose()?,
            config,
        })
    }

    /// Whether it speaks this dialect.
    pub(crate) fn speaks(&self, dialect: Dialect) -> bool {
        match dialect {
            Dialect::OpenAi => self.config.dialects.openai,
            Dialect::Anthropic => self.config.dialects.anthropic,
        }
    }

    /// Sends a request and waits for the head of its answer, no longer than its first byte may take nor after
    /// `deadline`.
    pub(crate) async fn send(
        &self,
        outgoing: Outgoing,
        deadline: Instant,
    ) -> Result<Response<LaneBody>, Failure> {
        let request = self.request(Method::POST, self.config.path_prefix(), outgoing)?;
        let failed = |kind| Failure { kind, worker: self.name.clone() };
        let answered = self.exchange(request, deadline).await.and_then(|answer| {
            // Dropped here, the answer closes its connection: where it ends is anybody's guess.
            if framing::is_ambiguous(answer.headers()) {
                return Err(failed(FailureKind::Garbage));
            }
            lanes::decoded(answer).map_err(|_| failed(FailureKind::Encoding))
        });
        let cause = match &answered {
            Err(failure) => Some(Cause::Failed(failure.kind)),
            Ok(answer) => StatusClass::complaint(answer.status().as_u16()),
        };
        if let Some(cause) = cause {
            self.complain(cause);
        }
        answered
    }

    /// Says in the log what went wrong, now and then.
    pub(crate) fn complain(&self, cause: Cause) {
        if let Some(left_out) = self.complaints.of_request(cause, Instant::now()) {
            tracing::warn!(worker = %self.name, %cause, left_out, "a request failed on an upstream");
        }
    }

    /// How many requests it takes at once, over all its ranks; any number where absent.
    pub(crate) fn slots_in_all(&self) -> Option<u64> {
        self.engine.slots().map(|slots| slots.saturating_mul(engine::ranks(&self.config)))
    }

    /// Why the last bad health check was bad, in words.
    pub(crate) fn check_problem(&self) -> Option<String> {
        self.complaints.last_check().map(|cause| cause.to_string())
    }

    /// Why the last request failed, in words.
    pub(crate) fn request_problem(&self) -> Option<String> {
        self.complaints.last_request().map(|cause| cause.to_string())
    }

    /// From now on it counts as overloaded by these thresholds.
    pub(crate) fn judge_by(&self, overload: OverloadConfig) {
        if self.engine.judge_by(overload) {
            self.condition.changed.notify_one();
        }
    }

    /// Asks for something beside what clients ask for, and reads the answer; no body where it is longer than that.
    async fn fetch(
        &self,
        path: &PathAndQuery,
        due: Instant,
        bytes_max: usize,
    ) -> Result<Fetched, FailureKind> {
        let dialect =
            if self.config.dialects.openai { Dialect::OpenAi } else { Dialect::Anthropic };
        let headers = HeaderMap::new();
        let question = Outgoing { dialect, path: path.clone(), headers, body: Bytes::new() };
        let answer = self.get(question, due).await.map_err(|failure| failure.kind)?;
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
        Ok(Fetched { status: head.status, headers: head.headers, text })
    }

    /// Asks for something beside what clients ask for. Where a proxy has several servers below paths of its own, only what
    /// is below the backend's path is about this backend.
    async fn get(
        &self,
        outgoing: Outgoing,
        deadline: Instant,
    ) -> Result<Response<LaneBody>, Failure> {
        let request = self.request(Method::GET, self.config.path_prefix(), outgoing)?;
        self.exchange(request, deadline).await
    }

    async fn exchange(
        &self,
        mut request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<Response<LaneBody>, Failure> {
        let failed = |kind| Failure { kind, worker: self.name.clone() };
        while let Some(lane) = self.lanes.take() {
            let due = deadline.min(Instant::now() + self.config.timeouts.first_byte);
            let again = copy(&request);
            match timeout_at(due, lane.send(request)).await {
                Ok(Ok(answer)) => return Ok(self.lanes.lend(answer)),
                // The connection had been closed and nothing was sent: the same again, on another one.
                Ok(Err(lane::SendError { unsent: Some(back), .. })) => request = *back,
                // It was sent as the connection was being closed: once more, on one that is certainly open.
                Ok(Err(lane::SendError { kind: FailureKind::Reset, .. })) => {
                    request = again;
                    break;
                }
                Ok(Err(error)) => return Err(failed(error.kind)),
                Err(_) => return Err(failed(FailureKind::FirstByteTimeout)),
            }
        }
        let due = deadline.min(Instant::now() + self.config.timeouts.connect);
        let lane = match timeout_at(due, Box::pin(self.connector.connect())).await {
            Ok(connected) => connected.map_err(failed)?,
            Err(_) => return Err(failed(FailureKind::ConnectTimeout)),
        };
        let due = deadline.min(Instant::now() + self.config.timeouts.first_byte);
        match timeout_at(due, lane.send(request)).await {
            Ok(Ok(answer)) => Ok(self.lanes.lend(answer)),
            Ok(Err(error)) => Err(failed(error.kind)),
            Err(_) => Err(failed(FailureKind::FirstByteTimeout)),
        }
    }

    fn request(
        &self,
        method: Method,
        prefix: &str,
        outgoing: Outgoing,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let Outgoing { dialect, path, headers, body } = outgoing;
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

    fn target(&self, prefix: &str, path: PathAndQuery) -> Result<Uri, Failure> {
        if prefix.is_empty() {
            return Ok(Uri::from(path));
        }
        // Both parts are valid by themselves, so that their sum is no address cannot happen.
        Uri::try_from(format!("{prefix}{path}"))
            .map_err(|_| Failure { kind: FailureKind::Connect, worker: self.name.clone() })
    }

    /// Closes connections that have been idle for long, or that the other side has closed.
    pub(crate) fn sweep(&self) {
        self.lanes.sweep();
    }
}

/// The same request once more. Its body is shared.
fn copy(request: &Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    let mut again = Request::new(request.body().clone());
    *again.method_mut() = request.method().clone();
    *again.version_mut() = request.version();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    again
}

//! A client that keeps one connection, sends a request, reads the answer and repeats. The client
//! counts its results itself, without any code of the gateway.

mod lease_calls;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use fairgate_sim::SimFault;

use crate::answer_parser::{StreamParser, StreamProgress, parse_whole};
use crate::evidence::{AnswerEnd, ClientResult};
use crate::judge::DEADLINE_PASSED;
use crate::scenario::{ClientBehaviour, RequestPattern};

/// Models that clients request. The first pool serves the first model, and the second pool the
/// second.
pub(crate) const MODELS: [&str; 2] = ["sim", "second"];
/// Model of a hosted scenario that refuses every request, because its limit is used up.
pub(crate) const LIMITED_MODEL: &str = "limited";
/// Fault with which the simulated backend answers every request for [`LIMITED_MODEL`].
const MODEL_LIMIT: SimFault = SimFault::Status { code: 429, retry_after_seconds: Some(30) };

/// Time limit of one request, from the first byte sent to the last byte read.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

/// Progress counters of one tenant's clients, read by the experiment while it runs.
#[derive(Debug, Default)]
pub(crate) struct ClientProgress {
    /// Number of clients that are connected and ready to send.
    pub(crate) ready: AtomicU64,
    /// Number of requests that ended, with any result.
    pub(crate) ended: AtomicU64,
    /// Sum of input and output tokens of completed answers.
    pub(crate) tokens: AtomicU64,
}

/// One client of a tenant.
pub(crate) struct ProveClient {
    pub(crate) gateway: SocketAddr,
    pub(crate) tenant: usize,
    /// Model that the client requests, which selects the pool.
    pub(crate) model: &'static str,
    /// Index of this client among the clients of its tenant, from 0.
    pub(crate) number: usize,
    /// Value of the `Authorization` header: `Bearer` and the key.
    pub(crate) credential: String,
    pub(crate) pattern: RequestPattern,
    /// True if this client sends one request before all other clients start, so that the prompt of
    /// its topic is cached.
    pub(crate) warms_up: bool,
    pub(crate) tally: Arc<ClientProgress>,
}

/// An open connection to the gateway, which is closed on drop.
struct ClientConnection {
    sender: RequestSender,
    driver: JoinHandle<()>,
}

enum RequestSender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Initial HTTP/2 stream window of clients that do not read, in bytes. 1 is the smallest window
/// that lets an answer begin.
const NARROW_BYTES: u32 = 1;

impl ClientConnection {
    async fn open(gateway: SocketAddr, narrow: bool) -> Result<Self, String> {
        Self::try_open(gateway, narrow).await.map_err(|error| error.to_string())
    }

    async fn try_open(
        gateway: SocketAddr,
        narrow: bool,
    ) -> Result<Self, Box<dyn Error + Send + Sync>> {
        let stream = TcpStream::connect(gateway).await?;
        stream.set_nodelay(true)?;
        let stream = TokioIo::new(stream);
        // A closed connection shows up as an error of the next send or read.
        if narrow {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(NARROW_BYTES);
            let (sender, connection) = builder.handshake(stream).await?;
            let driver = tokio::spawn(async { drop(connection.await) });
            return Ok(Self { sender: RequestSender::Http2(sender), driver });
        }
        let (sender, connection) = http1::handshake(stream).await?;
        let driver = tokio::spawn(async { drop(connection.await) });
        Ok(Self { sender: RequestSender::Http1(sender), driver })
    }

    fn is_closed(&self) -> bool {
        match &self.sender {
            RequestSender::Http1(sender) => sender.is_closed(),
            RequestSender::Http2(sender) => sender.is_closed(),
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            RequestSender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            RequestSender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

impl ProveClient {
    /// Connects, sends requests from the signal `start` until the signal `stop`, and finishes the
    /// last request. Returns the result of each request.
    pub(crate) async fn run(
        self,
        mut start: watch::Receiver<bool>,
        mut stop: watch::Receiver<bool>,
    ) -> Vec<ClientResult> {
        // A failed connection is reported by the first request.
        let mut connection = ClientConnection::open(self.gateway, self.is_narrow()).await.ok();
        let mut sightings = Vec::new();
        if self.warms_up {
            let (request, end) = self.request(&mut connection, 0).await;
            sightings.push(ClientResult { tenant: self.tenant, request, end });
        }
        self.tally.ready.fetch_add(1, Ordering::Relaxed);
        // An error means that the experiment was dropped; there is nothing to wait for then.
        let _ = start.wait_for(|started| *started).await;
        while !*stop.borrow_and_update() {
            let (request, end) = self.request(&mut connection, sightings.len() as u64).await;
            self.tally.ended.fetch_add(1, Ordering::Relaxed);
            if let AnswerEnd::Completed { input, output } = end {
                self.tally.tokens.fetch_add(input + output, Ordering::Relaxed);
            }
            let hopeless = matches!(end, AnswerEnd::Failed { .. }) && !self.pattern.expects(&end);
            sightings.push(ClientResult { tenant: self.tenant, request, end });
            if hopeless {
                // The bar has failed already; slow down, more failures would add nothing.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        sightings
    }

    /// Sends one request and returns the request's id and result.
    async fn request(
        &self,
        kept: &mut Option<ClientConnection>,
        number: u64,
    ) -> (Option<String>, AnswerEnd) {
        let mut id = None;
        let seen = match timeout(REQUEST_TIMEOUT, self.exchange(kept, number, &mut id)).await {
            Ok(seen) => seen,
            Err(_) => AnswerEnd::Broken { how: format!("no end within {REQUEST_TIMEOUT:?}") },
        };
        // An expected failure keeps the connection, because the answer was read to its end.
        if !matches!(seen, AnswerEnd::Completed { .. }) && !self.pattern.expects(&seen) {
            *kept = None;
        }
        (id, seen)
    }

    async fn exchange(
        &self,
        kept: &mut Option<ClientConnection>,
        number: u64,
        id: &mut Option<String>,
    ) -> AnswerEnd {
        let failed = |how: String| AnswerEnd::Failed { status: None, how };
        let open = kept.take().filter(|connection| !connection.is_closed());
        let connection = match open {
            Some(connection) => connection,
            None => match ClientConnection::open(self.gateway, self.is_narrow()).await {
                Ok(connection) => connection,
                Err(error) => return failed(error),
            },
        };
        let connection = kept.insert(connection);
        if let ClientBehaviour::LeasesSlots { held, report } = self.pattern.manner {
            return self.lease(connection, (held, report), id).await;
        }
        let stream = self.is_streaming();
        let request = match self.build(number, stream) {
            Ok(request) => request,
            Err(error) => return failed(error.to_string()),
        };
        let response = match connection.send(request).await {
            Ok(response) => response,
            Err(error) => return failed(error.to_string()),
        };
        *id = request_id(&response);
        match (response.status(), self.pattern.manner) {
            (StatusCode::OK, ClientBehaviour::ReadsNothing { until }) => {
                tokio::time::sleep(until).await;
                AnswerEnd::Left
            }
            (StatusCode::OK, manner) if stream => read_stream(response, manner).await,
            (StatusCode::OK, _) => read_whole(response).await,
            _ => read_error(response).await,
        }
    }

    fn is_narrow(&self) -> bool {
        matches!(self.pattern.manner, ClientBehaviour::ReadsNothing { .. })
    }

    /// Returns whether this client requests streams. Clients that leave early or do not read always
    /// request streams; of the others, every second one does.
    fn is_streaming(&self) -> bool {
        match self.pattern.manner {
            ClientBehaviour::Honest
            | ClientBehaviour::HasDeadlines { .. }
            | ClientBehaviour::Embeds { .. }
            | ClientBehaviour::LeasesSlots { .. }
            | ClientBehaviour::MeetsModelLimit { .. }
            | ClientBehaviour::Resets
            | ClientBehaviour::Fails { .. } => self.number % 2 == 1 && self.embeds().is_none(),
            ClientBehaviour::LeavesAfter(_)
            | ClientBehaviour::LeavesAtFinish { .. }
            | ClientBehaviour::ReadsNothing { .. } => true,
        }
    }

    /// Returns the factor by which this client's texts are longer than ordinary prompts; `None` if the client does not
    /// ask for embeddings.
    fn embeds(&self) -> Option<u64> {
        match self.pattern.manner {
            ClientBehaviour::Embeds { every, times } if self.number.is_multiple_of(every) => {
                Some(times)
            }
            _ => None,
        }
    }

    /// Returns whether this client asks for the model whose limit is used up.
    fn meets_model_limit(&self) -> bool {
        matches!(self.pattern.manner, ClientBehaviour::MeetsModelLimit { every }
            if self.number.is_multiple_of(every))
    }

    fn build(&self, number: u64, stream: bool) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let model = if self.meets_model_limit() { LIMITED_MODEL } else { self.model };
        let mut body = json!({
            "model": model,
            "messages": [{"role": "user", "content": self.prompt(number)}],
            "max_tokens": self.pattern.max_tokens,
        });
        if stream {
            body["stream"] = Value::Bool(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        // HTTP/2 needs the absolute URI.
        let origin =
            if self.is_narrow() { format!("http://{}", self.gateway) } else { String::new() };
        let path = match self.embeds() {
            Some(_) => {
                body = json!({"model": self.model, "input": self.prompt(number)});
                "/v1/embeddings"
            }
            None => "/v1/chat/completions",
        };
        let mut request = Request::post(origin + path);
        if let Some(millis) = self.pattern.deadline_ms(self.number) {
            request = request.header("x-fairgate-deadline", format!("{millis}ms"));
        }
        request
            .header(HOST, self.gateway.to_string())
            .header(AUTHORIZATION, &self.credential)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
    }

    /// Builds a prompt of the required length, which tells the simulated model how long its answer must be. Without
    /// topics each request has its own prompt; with topics all requests of a topic have the same prompt.
    fn prompt(&self, number: u64) -> String {
        let (least, most) = self.pattern.output_tokens;
        let turn = number * 7 + self.number as u64 * 3;
        let output = |turn: u64| least + turn % (most - least + 1);
        let mut prompt = match self.pattern.topics {
            None => format!(
                "[sim:tokens={}] client {}.{} request {number} ",
                output(turn),
                self.tenant,
                self.number
            ),
            Some(topics) => {
                let topic = turn % topics.max(1);
                format!("[sim:tokens={}] topic {topic} ", output(topic))
            }
        };
        let limit = self.meets_model_limit().then_some(MODEL_LIMIT);
        if let Some(fault) = limit.or(self.pattern.manner.fault()) {
            prompt.insert_str(0, &format!("[sim:fault={fault}] "));
        }
        let times = self.pattern.prompt_times;
        let tokens = self.pattern.prompt_tokens
            * self.embeds().unwrap_or(1)
            * times[(usize::try_from(number).unwrap_or(0) + self.number) % times.len()];
        let bytes = usize::try_from(tokens).unwrap_or(0) * BYTES_PER_TOKEN;
        while prompt.len() < bytes {
            prompt.push_str("tell me more ");
        }
        prompt.truncate(bytes.max(40));
        prompt
    }
}

impl ClientBehaviour {
    /// Returns the fault that the client's prompts provoke in the simulated model, if any.
    fn fault(self) -> Option<SimFault> {
        match self {
            Self::Honest
            | Self::LeavesAfter(_)
            | Self::HasDeadlines { .. }
            | Self::Embeds { .. }
            | Self::LeasesSlots { .. }
            | Self::MeetsModelLimit { .. }
            | Self::ReadsNothing { .. } => None,
            Self::Resets => Some(SimFault::ResetBefore),
            Self::LeavesAtFinish { hidden } => Some(SimFault::HiddenTokens { tokens: hidden }),
            Self::Fails { status: code, after } if after.is_zero() => {
                Some(SimFault::Status { code, retry_after_seconds: None })
            }
            Self::Fails { status: code, after } => Some(SimFault::SlowStatus { code, after }),
        }
    }
}

impl RequestPattern {
    /// Returns whether this result is the failure that the client's prompts provoke.
    pub(crate) fn expects(&self, seen: &AnswerEnd) -> bool {
        match (self.manner, seen) {
            (
                ClientBehaviour::Fails { status, .. },
                AnswerEnd::Failed { status: Some(met), .. },
            ) => status == *met,
            (ClientBehaviour::Resets, AnswerEnd::Failed { status: Some(502), how }) => {
                how == "upstream_reset"
            }
            (
                ClientBehaviour::HasDeadlines { .. },
                AnswerEnd::Failed { status: Some(504), how },
            ) => how == DEADLINE_PASSED,
            // The provider refuses the request, or the request times out in the queue.
            (
                ClientBehaviour::MeetsModelLimit { .. },
                AnswerEnd::Failed { status: Some(429 | 503), .. },
            ) => true,
            _ => false,
        }
    }
}

/// Bytes of a prompt that the simulated models count as one token by default.
const BYTES_PER_TOKEN: usize = 4;

fn request_id(response: &Response<Incoming>) -> Option<String> {
    let id = response.headers().get("x-fairgate-request-id")?;
    id.to_str().ok().map(str::to_owned)
}

async fn read_stream(response: Response<Incoming>, manner: ClientBehaviour) -> AnswerEnd {
    let mut body = response.into_body();
    let mut stream = StreamParser::default();
    loop {
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    stream.read(&data);
                }
            }
            Some(Err(error)) => return AnswerEnd::Broken { how: error.to_string() },
            None => return stream.end(),
        }
        match (stream.reading(), manner) {
            (StreamProgress::Broken(how), _) => return AnswerEnd::Broken { how: how.clone() },
            (StreamProgress::Tokens(tokens), ClientBehaviour::LeavesAfter(most))
                if *tokens >= most =>
            {
                return AnswerEnd::Left;
            }
            (_, ClientBehaviour::LeavesAtFinish { .. }) if stream.has_finished() => {
                return AnswerEnd::Left;
            }
            _ => {}
        }
    }
}

async fn read_whole(response: Response<Incoming>) -> AnswerEnd {
    match response.into_body().collect().await {
        Ok(body) => parse_whole(&body.to_bytes()),
        Err(error) => AnswerEnd::Broken { how: error.to_string() },
    }
}

async fn read_error(response: Response<Incoming>) -> AnswerEnd {
    let status = Some(response.status().as_u16());
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let code = serde_json::from_slice::<Value>(&body).ok();
    let code = code.as_ref().and_then(|value| value["error"]["code"].as_str());
    AnswerEnd::Failed { status, how: code.unwrap_or("an answer without a code").to_owned() }
}

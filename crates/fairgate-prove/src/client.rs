//! A client: it asks, reads the answer, and asks again, on a connection of its own that it keeps. It counts what it sees
//! itself; nothing here knows how the gateway reads answers.

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

use fairgate_sim::Fault;

use crate::answer::{Reading, Stream, whole};
use crate::evidence::{Seen, Sighting};
use crate::scenario::{Ask, Manner};

/// The models that clients ask for, one for each pool.
pub(crate) const MODELS: [&str; 2] = ["sim", "second"];

/// The longest that one request may take, from the first byte sent to the last one read.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the clients of a tenant have seen so far, for whoever watches.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Clients that have their connection and are ready to ask.
    pub(crate) ready: AtomicU64,
    /// Requests that ended, however they did.
    pub(crate) ended: AtomicU64,
    /// Tokens of completed answers.
    pub(crate) tokens: AtomicU64,
}

/// One client.
pub(crate) struct Client {
    pub(crate) gateway: SocketAddr,
    pub(crate) tenant: usize,
    /// What it asks for.
    pub(crate) model: &'static str,
    /// Its number among the clients of its tenant.
    pub(crate) number: usize,
    /// `Bearer` and its key.
    pub(crate) credential: String,
    pub(crate) ask: Ask,
    /// Whether it is the first to ask for its prompt of several topics: it does so before anybody else asks.
    pub(crate) warms_up: bool,
    pub(crate) tally: Arc<Tally>,
}

/// An open connection; closed when it is dropped.
struct Connection {
    sender: Sender,
    driver: JoinHandle<()>,
}

enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The window of those who do not read: as narrow as HTTP/2 allows.
const NARROW_BYTES: u32 = 1;

impl Connection {
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
        // The end of a connection shows in what is sent or read.
        if narrow {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(NARROW_BYTES);
            let (sender, connection) = builder.handshake(stream).await?;
            let driver = tokio::spawn(async { drop(connection.await) });
            return Ok(Self { sender: Sender::Http2(sender), driver });
        }
        let (sender, connection) = http1::handshake(stream).await?;
        let driver = tokio::spawn(async { drop(connection.await) });
        Ok(Self { sender: Sender::Http1(sender), driver })
    }

    fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<Response<Incoming>> {
        match &mut self.sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

impl Client {
    /// Connects, and asks from `start` until `stop`; then finishes what it is at. Returns all that it saw.
    pub(crate) async fn run(
        self,
        mut start: watch::Receiver<bool>,
        mut stop: watch::Receiver<bool>,
    ) -> Vec<Sighting> {
        // Where it cannot connect, its first request says so.
        let mut connection = Connection::open(self.gateway, self.is_narrow()).await.ok();
        let mut sightings = Vec::new();
        if self.warms_up {
            let (request, end) = self.request(&mut connection, 0).await;
            sightings.push(Sighting { tenant: self.tenant, request, end });
        }
        self.tally.ready.fetch_add(1, Ordering::Relaxed);
        // Nobody is left to say so: then there is nothing to do.
        let _ = start.wait_for(|started| *started).await;
        while !*stop.borrow_and_update() {
            let (request, end) = self.request(&mut connection, sightings.len() as u64).await;
            self.tally.ended.fetch_add(1, Ordering::Relaxed);
            if let Seen::Completed { input, output } = end {
                self.tally.tokens.fetch_add(input + output, Ordering::Relaxed);
            }
            let hopeless = matches!(end, Seen::Failed { .. }) && !self.ask.expects(&end);
            sightings.push(Sighting { tenant: self.tenant, request, end });
            if hopeless {
                // The bar has failed; a storm of failures would tell no more.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        sightings
    }

    /// One request and what became of it.
    async fn request(&self, kept: &mut Option<Connection>, number: u64) -> (Option<String>, Seen) {
        let mut id = None;
        let seen = match timeout(PATIENCE, self.exchange(kept, number, &mut id)).await {
            Ok(seen) => seen,
            Err(_) => Seen::Broken { how: format!("no end within {PATIENCE:?}") },
        };
        // Who tries to make trouble keeps its connection for that too, where an answer came to its end on it.
        if !matches!(seen, Seen::Completed { .. }) && !self.ask.expects(&seen) {
            *kept = None;
        }
        (id, seen)
    }

    async fn exchange(
        &self,
        kept: &mut Option<Connection>,
        number: u64,
        id: &mut Option<String>,
    ) -> Seen {
        let failed = |how: String| Seen::Failed { status: None, how };
        let open = kept.take().filter(|connection| !connection.is_closed());
        let connection = match open {
            Some(connection) => connection,
            None => match Connection::open(self.gateway, self.is_narrow()).await {
                Ok(connection) => connection,
                Err(error) => return failed(error),
            },
        };
        let connection = kept.insert(connection);
        let stream = self.streams();
        let request = match self.build(number, stream) {
            Ok(request) => request,
            Err(error) => return failed(error.to_string()),
        };
        let response = match connection.send(request).await {
            Ok(response) => response,
            Err(error) => return failed(error.to_string()),
        };
        *id = request_id(&response);
        match (response.status(), self.ask.manner) {
            (StatusCode::OK, Manner::ReadsNothing { until }) => {
                tokio::time::sleep(until).await;
                Seen::Left
            }
            (StatusCode::OK, manner) if stream => read_stream(response, manner).await,
            (StatusCode::OK, _) => read_whole(response).await,
            _ => read_error(response).await,
        }
    }

    fn is_narrow(&self) -> bool {
        matches!(self.ask.manner, Manner::ReadsNothing { .. })
    }

    /// Half of the clients stream, and all who leave.
    fn streams(&self) -> bool {
        match self.ask.manner {
            Manner::Honest | Manner::Fails { .. } => self.number % 2 == 1,
            Manner::LeavesAfter(_)
            | Manner::LeavesAtFinish { .. }
            | Manner::ReadsNothing { .. } => true,
        }
    }

    fn build(&self, number: u64, stream: bool) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut body = json!({
            "model": self.model,
            "messages": [{"role": "user", "content": self.prompt(number)}],
            "max_tokens": self.ask.max_tokens,
        });
        if stream {
            body["stream"] = Value::Bool(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        // HTTP/2 wants to know the whole of it.
        let origin =
            if self.is_narrow() { format!("http://{}", self.gateway) } else { String::new() };
        Request::post(origin + "/v1/chat/completions")
            .header(HOST, self.gateway.to_string())
            .header(AUTHORIZATION, &self.credential)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
    }

    /// A prompt of its own for each request, or one of a few topics, as long as asked for, with the answer's length in it.
    fn prompt(&self, number: u64) -> String {
        let (least, most) = self.ask.output_tokens;
        let turn = number * 7 + self.number as u64 * 3;
        let output = |turn: u64| least + turn % (most - least + 1);
        let mut prompt = match self.ask.topics {
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
        if let Some(fault) = self.ask.manner.fault() {
            prompt.insert_str(0, &format!("[sim:fault={fault}] "));
        }
        let times = self.ask.prompt_times;
        let tokens = self.ask.prompt_tokens
            * times[(usize::try_from(number).unwrap_or(0) + self.number) % times.len()];
        let bytes = usize::try_from(tokens).unwrap_or(0) * BYTES_PER_TOKEN;
        while prompt.len() < bytes {
            prompt.push_str("tell me more ");
        }
        prompt.truncate(bytes.max(40));
        prompt
    }
}

impl Manner {
    /// What it asks of the simulated model.
    fn fault(self) -> Option<Fault> {
        match self {
            Self::Honest | Self::LeavesAfter(_) | Self::ReadsNothing { .. } => None,
            Self::LeavesAtFinish { hidden } => Some(Fault::HiddenTokens { tokens: hidden }),
            Self::Fails { status: code, after } if after.is_zero() => {
                Some(Fault::Status { code, retry_after_seconds: None })
            }
            Self::Fails { status: code, after } => Some(Fault::SlowStatus { code, after }),
        }
    }
}

impl Ask {
    /// Whether this is the failure that it asked for.
    pub(crate) fn expects(&self, seen: &Seen) -> bool {
        match (self.manner, seen) {
            (Manner::Fails { status, .. }, Seen::Failed { status: Some(met), .. }) => {
                status == *met
            }
            _ => false,
        }
    }
}

/// The simulated models' default.
const BYTES_PER_TOKEN: usize = 4;

fn request_id(response: &Response<Incoming>) -> Option<String> {
    let id = response.headers().get("x-fairgate-request-id")?;
    id.to_str().ok().map(str::to_owned)
}

async fn read_stream(response: Response<Incoming>, manner: Manner) -> Seen {
    let mut body = response.into_body();
    let mut stream = Stream::default();
    loop {
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    stream.read(&data);
                }
            }
            Some(Err(error)) => return Seen::Broken { how: error.to_string() },
            None => return stream.end(),
        }
        match (stream.reading(), manner) {
            (Reading::Broken(how), _) => return Seen::Broken { how: how.clone() },
            (Reading::Tokens(tokens), Manner::LeavesAfter(most)) if *tokens >= most => {
                return Seen::Left;
            }
            (_, Manner::LeavesAtFinish { .. }) if stream.has_finished() => return Seen::Left,
            _ => {}
        }
    }
}

async fn read_whole(response: Response<Incoming>) -> Seen {
    match response.into_body().collect().await {
        Ok(body) => whole(&body.to_bytes()),
        Err(error) => Seen::Broken { how: error.to_string() },
    }
}

async fn read_error(response: Response<Incoming>) -> Seen {
    let status = Some(response.status().as_u16());
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let code = serde_json::from_slice::<Value>(&body).ok();
    let code = code.as_ref().and_then(|value| value["error"]["code"].as_str());
    Seen::Failed { status, how: code.unwrap_or("an answer without a code").to_owned() }
}

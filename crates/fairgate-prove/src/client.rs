//! A client: it asks, reads the answer, and asks again, on a connection of its own that it keeps. It counts what it sees
//! itself; nothing here knows how the gateway reads answers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::answer::{Reading, Stream, whole};
use crate::evidence::{Seen, Sighting};
use crate::scenario::Ask;

/// The model that all clients ask for.
pub(crate) const MODEL: &str = "sim";

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
    /// Its number among the clients of its tenant.
    pub(crate) number: usize,
    /// `Bearer` and its key.
    pub(crate) credential: String,
    pub(crate) ask: Ask,
    pub(crate) tally: Arc<Tally>,
}

/// An open connection; closed when it is dropped.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    async fn open(gateway: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(gateway).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        let driver = tokio::spawn(async move {
            // Its end shows in what is sent or read.
            let _ = connection.await;
        });
        Ok(Self { sender, driver })
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
        let mut connection = Connection::open(self.gateway).await.ok();
        self.tally.ready.fetch_add(1, Ordering::Relaxed);
        // Nobody is left to say so: then there is nothing to do.
        let _ = start.wait_for(|started| *started).await;
        let mut sightings = Vec::new();
        while !*stop.borrow_and_update() {
            let (request, end) = self.request(&mut connection, sightings.len() as u64).await;
            self.tally.ended.fetch_add(1, Ordering::Relaxed);
            if let Seen::Completed { input, output } = end {
                self.tally.tokens.fetch_add(input + output, Ordering::Relaxed);
            }
            let hopeless = matches!(end, Seen::Failed { .. });
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
        if !matches!(seen, Seen::Completed { .. }) {
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
        let open = kept.take().filter(|connection| !connection.sender.is_closed());
        let connection = match open {
            Some(connection) => connection,
            None => match Connection::open(self.gateway).await {
                Ok(connection) => connection,
                Err(error) => return failed(error),
            },
        };
        let connection = kept.insert(connection);
        if let Err(error) = connection.sender.ready().await {
            return failed(error.to_string());
        }
        let stream = self.ask.leaves_after.is_some() || self.number % 2 == 1;
        let request = match self.build(number, stream) {
            Ok(request) => request,
            Err(error) => return failed(error.to_string()),
        };
        let response = match connection.sender.send_request(request).await {
            Ok(response) => response,
            Err(error) => return failed(error.to_string()),
        };
        *id = request_id(&response);
        match response.status() {
            StatusCode::OK if stream => read_stream(response, self.ask.leaves_after).await,
            StatusCode::OK => read_whole(response).await,
            _ => read_error(response).await,
        }
    }

    fn build(&self, number: u64, stream: bool) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
        let mut body = json!({
            "model": MODEL,
            "messages": [{"role": "user", "content": self.prompt(number)}],
            "max_tokens": self.ask.max_tokens,
        });
        if stream {
            body["stream"] = Value::Bool(true);
            body["stream_options"] = json!({"include_usage": true});
        }
        Request::post("/v1/chat/completions")
            .header(HOST, self.gateway.to_string())
            .header(AUTHORIZATION, &self.credential)
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))
    }

    /// A prompt of its own for each request, as long as asked for, with the answer's length in it.
    fn prompt(&self, number: u64) -> String {
        let (least, most) = self.ask.output_tokens;
        let spread = (number * 7 + self.number as u64 * 3) % (most - least + 1);
        let mut prompt =
            format!("[sim:tokens={}] client {} request {number} ", least + spread, self.number);
        let bytes = usize::try_from(self.ask.prompt_tokens).unwrap_or(0) * BYTES_PER_TOKEN;
        while prompt.len() < bytes {
            prompt.push_str("tell me more ");
        }
        prompt.truncate(bytes.max(40));
        prompt
    }
}

/// The simulated models' default.
const BYTES_PER_TOKEN: usize = 4;

fn request_id(response: &Response<Incoming>) -> Option<String> {
    let id = response.headers().get("x-fairgate-request-id")?;
    id.to_str().ok().map(str::to_owned)
}

async fn read_stream(response: Response<Incoming>, leaves_after: Option<u64>) -> Seen {
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
        match (stream.reading(), leaves_after) {
            (Reading::Broken(how), _) => return Seen::Broken { how: how.clone() },
            (Reading::Tokens(tokens), Some(most)) if *tokens >= most => return Seen::Left,
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

//! A backend whose answers the test scripts step by step.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::SOON;

/// A backend whose requests wait for the test to answer them.
pub struct Scripted {
    pub addr: SocketAddr,
    calls: mpsc::UnboundedReceiver<Call>,
    accepting: JoinHandle<()>,
}

/// A request that has arrived and waits for its answer.
pub struct Call {
    pub request: Request<Bytes>,
    answer: oneshot::Sender<Option<Response<Pieces>>>,
}

/// The pieces of a body.
pub struct Pieces(mpsc::UnboundedReceiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

impl Scripted {
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (calls_in, calls) = mpsc::unbounded_channel();
        let accepting = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let calls = calls_in.clone();
                let service =
                    service_fn(move |request: Request<Incoming>| serve(calls.clone(), request));
                connections.spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { addr, calls, accepting }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// Waits for the next request, for a limited time.
    pub async fn call(&mut self) -> Call {
        timeout(SOON, self.calls.recv()).await.expect("a request comes").unwrap()
    }

    /// Waits for the next request, however long it takes.
    pub async fn call_whenever(&mut self) -> Call {
        self.calls.recv().await.unwrap()
    }

    /// Returns true if a request has arrived that the test has not taken yet.
    pub fn has_call(&mut self) -> bool {
        !self.calls.is_empty()
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(
    calls: mpsc::UnboundedSender<Call>,
    request: Request<Incoming>,
) -> io::Result<Response<Pieces>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let (answer, answered) = oneshot::channel();
    let _ = calls.send(Call { request: Request::from_parts(head, body), answer });
    match answered.await {
        Ok(Some(answer)) => Ok(answer),
        Ok(None) => Err(io::ErrorKind::ConnectionReset.into()),
        // The test has no answer: hang until the connection goes.
        Err(_) => std::future::pending().await,
    }
}

impl Call {
    /// Breaks the connection without an answer.
    pub fn break_off(self) {
        let _ = self.answer.send(None);
    }

    /// Answers with this head, and with a body of one piece.
    pub fn answer_with(self, head: http::response::Builder, body: impl Into<Bytes>) {
        let (pieces, receiver) = mpsc::unbounded_channel();
        pieces.send(body.into()).unwrap();
        let _ = self.answer.send(Some(head.body(Pieces(receiver)).unwrap()));
    }

    /// Answers with a body of one piece.
    pub fn answer(self, status: u16, content_type: &str, body: impl Into<Bytes>) {
        let body = body.into();
        let response = Response::builder()
            .status(status)
            .header("content-type", content_type)
            .header("content-length", body.len());
        let (pieces, receiver) = mpsc::unbounded_channel();
        pieces.send(body).unwrap();
        let _ = self.answer.send(Some(response.body(Pieces(receiver)).unwrap()));
    }

    /// Answers with a head and, later, pieces. The body ends when the sender is dropped.
    pub fn stream(self, content_type: &str) -> mpsc::UnboundedSender<Bytes> {
        self.stream_with(Response::builder().header("content-type", content_type))
    }

    /// Answers with this head and, later, pieces. The body ends when the sender is dropped.
    pub fn stream_with(self, head: http::response::Builder) -> mpsc::UnboundedSender<Bytes> {
        let (pieces, receiver) = mpsc::unbounded_channel();
        let _ = self.answer.send(Some(head.body(Pieces(receiver)).unwrap()));
        pieces
    }
}

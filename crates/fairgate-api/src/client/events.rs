//! Reads a response of events as they happen.

use std::collections::VecDeque;

use http::Uri;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

use super::connection::ConnectionTask;
use super::{
    GatewayHttpClient, GatewayHttpError, GatewayHttpRequest, GatewayHttpResponse, HttpCallError,
    whole,
};
use crate::event_stream::{EventStreamReader, ServerSentEvent};

/// Response to a request for events.
#[derive(Debug)]
pub enum EventStreamReply {
    /// The response is a stream of events.
    Open(Box<EventStream>),
    /// The status of the response is not 200, or its content is not a stream of events.
    Refused(GatewayHttpResponse),
}

/// Events of a response, in the order of their arrival. Dropping this value closes the connection.
pub struct EventStream {
    url: Uri,
    body: Incoming,
    reader: EventStreamReader,
    /// Events that have arrived and were not taken yet. They come from one chunk of the body, so
    /// their number is bounded.
    ready: VecDeque<ServerSentEvent>,
    _connection: ConnectionTask,
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream").field("url", &self.url).finish_non_exhaustive()
    }
}

impl GatewayHttpClient {
    /// Sends a request for events, and waits for the head of the response at most as long as the request says.
    pub async fn open_events(
        &self,
        request: GatewayHttpRequest,
    ) -> Result<EventStreamReply, GatewayHttpError> {
        let limit = request.timeout;
        let opened = async {
            let (response, connection) = self.open(request).await?;
            let kind = response.headers().get(http::header::CONTENT_TYPE);
            let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
            let is_stream =
                kind.split(';').next().is_some_and(|kind| kind.trim() == "text/event-stream");
            if response.status() != http::StatusCode::OK || !is_stream {
                return whole(response).await.map(EventStreamReply::Refused);
            }
            Ok(EventStreamReply::Open(Box::new(EventStream {
                url: self.url.clone(),
                body: response.into_body(),
                reader: EventStreamReader::default(),
                ready: VecDeque::new(),
                _connection: connection,
            })))
        };
        let opened = timeout(limit, opened).await.unwrap_or(Err(HttpCallError::Timeout(limit)));
        opened.map_err(|source| self.error(source))
    }
}

impl EventStream {
    /// Waits for the next event. Returns `None` after the end of the response. An incomplete last
    /// event is left out.
    ///
    /// Cancel safe: an event is not lost if the future is dropped before it is ready.
    pub async fn next(&mut self) -> Result<Option<ServerSentEvent>, GatewayHttpError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let events = match self.body.frame().await {
                None => return Ok(None),
                Some(Ok(frame)) => {
                    let bytes = frame.into_data().unwrap_or_default();
                    self.reader.push(&bytes).map_err(HttpCallError::from)
                }
                Some(Err(error)) => Err(HttpCallError::BrokenBody(error.into())),
            };
            let events =
                events.map_err(|source| GatewayHttpError { url: self.url.clone(), source })?;
            self.ready.extend(events);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, Method};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::super::JSON;
    use super::*;

    /// Sends a request to a server that answers with this response, and returns the reply.
    async fn asked(response: &'static str) -> EventStreamReply {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(response.as_bytes()).await;
        });
        let url = format!("http://{address}").parse().expect("a URL");
        let client = GatewayHttpClient { url, token: "t".into(), ca: None };
        let request = GatewayHttpRequest {
            method: Method::GET,
            path: "/api/v1/events".into(),
            content_type: JSON,
            body: Bytes::new(),
            headers: HeaderMap::new(),
            timeout: Duration::from_secs(10),
        };
        client.open_events(request).await.expect("a response")
    }

    #[tokio::test]
    async fn events_come_in_order_until_the_response_ends() {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
                    event: a\ndata: 1\n\ndata: 2\n\ndata: not whole";
        let EventStreamReply::Open(mut stream) = asked(head).await else { panic!("open") };
        let mut seen = Vec::new();
        while let Some(event) = stream.next().await.expect("no error") {
            seen.push((event.name, event.data));
        }
        assert_eq!(seen, [("a".into(), "1".into()), (String::new(), "2".into())]);
    }

    #[tokio::test]
    async fn a_refusal_is_read_as_a_whole() {
        let refusal = "HTTP/1.1 404 Not Found\r\ncontent-length: 56\r\n\r\n\
                       {\"error\":{\"code\":\"not_found\",\"message\":\"no such pool\"}} ";
        let EventStreamReply::Refused(response) = asked(refusal).await else { panic!("refused") };
        assert_eq!(response.status.as_u16(), 404);
        assert_eq!(response.error().message.as_deref(), Some("no such pool"));
    }
}

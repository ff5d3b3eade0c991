//! Sends requests to the gateway over HTTP. Each request has its own connection.
//!
//! [`GatewayHttpClient::send`] reads a whole response, whatever its status.
//! [`GatewayHttpClient::open_events`] reads a response of events as they happen.

mod connection;
mod events;

use std::io;
use std::path::PathBuf;
use std::string::FromUtf8Error;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri, header};
use http_body_util::{BodyExt, Limited};
use hyper::Response;
use hyper::body::Incoming;
use rustls::pki_types::{InvalidDnsNameError, pem};

use crate::error::ErrorFields;
use crate::event_stream::EventTooLargeError;

pub use events::{EventStream, EventStreamReply};

/// Size of the largest response that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Content type of JSON bodies.
pub const JSON: &str = "application/json";

/// Default address of the gateway, for clients and for the admin API.
pub const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// The gateway's address, and the token to send.
// It does not implement `Debug`, so that the token never gets into a log.
pub struct GatewayHttpClient {
    /// Address of the gateway. A path `/api/v1` at its end is left out of requests.
    pub url: Uri,
    /// Token that is sent as a bearer token; none is sent if it is empty.
    pub token: String,
    /// PEM file of the certificate authorities to trust, instead of the built-in ones.
    pub ca: Option<PathBuf>,
}

/// One HTTP request to the gateway.
#[derive(Clone, Debug)]
pub struct GatewayHttpRequest {
    /// Method of the request.
    pub method: Method,
    /// Path below the gateway's URL, with the query, such as `/api/v1/…`.
    pub path: String,
    /// Content type of the body.
    pub content_type: &'static str,
    /// Body of the request; may be empty.
    pub body: Bytes,
    /// Further headers of the request. The client itself adds those for the content type and the
    /// token.
    pub headers: HeaderMap,
    /// Longest time for the whole request, from connecting to the last byte of the response. For a
    /// response of events, the time ends with the head of the response.
    pub timeout: Duration,
}

/// The gateway's response to one request.
#[derive(Debug)]
pub struct GatewayHttpResponse {
    /// Status of the response.
    pub status: StatusCode,
    /// Time of the server's clock, to the second; `None` if the response has no date.
    pub date: Option<SystemTime>,
    /// Body of the response.
    pub text: String,
}

/// Failure of a request to get a response. The text names the gateway's address, and `source` is
/// the cause.
#[derive(Debug, thiserror::Error)]
#[error("gateway {url}")]
pub struct GatewayHttpError {
    url: Uri,
    source: HttpCallError,
}

/// Reason why a request got no response.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpCallError {
    /// The URL names no host.
    #[error("the URL has no host")]
    NoHost,
    /// Nothing accepts connections at the address.
    #[error("cannot connect; is `fairgate serve` running there?")]
    Connect(#[source] io::Error),
    /// The response did not end in time.
    #[error("no answer within {} s", .0.as_secs_f32())]
    Timeout(Duration),
    /// No certificate can be checked for the name of the host.
    #[error(transparent)]
    HostName(#[from] InvalidDnsNameError),
    /// The file of certificate authorities cannot be read.
    #[error("{}", file.display())]
    Authorities {
        /// Path of the file, as it was given.
        file: PathBuf,
        /// Reason why the file cannot be read.
        source: pem::Error,
    },
    /// A certificate is not accepted, or TLS cannot be set up.
    #[error(transparent)]
    Certificate(#[from] rustls::Error),
    /// The connection failed after it was opened.
    #[error(transparent)]
    Connection(#[from] io::Error),
    /// The request or its response is not valid HTTP.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The request could not be built.
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The body of the response was cut off, or is too large.
    #[error("the answer broke off: {0}")]
    BrokenBody(Box<dyn std::error::Error + Send + Sync>),
    /// The body of the response is not valid UTF-8.
    #[error(transparent)]
    NoText(#[from] FromUtf8Error),
    /// An event of the response is too large.
    #[error(transparent)]
    EventTooLarge(#[from] EventTooLargeError),
}

impl GatewayHttpError {
    /// Returns the cause of the failure, without the gateway's address.
    pub fn problem(&self) -> &HttpCallError {
        &self.source
    }
}

impl GatewayHttpClient {
    /// Sends a request and reads the whole response, whatever its status.
    pub async fn send(
        &self,
        request: GatewayHttpRequest,
    ) -> Result<GatewayHttpResponse, GatewayHttpError> {
        let timeout = request.timeout;
        let answer = async {
            let (response, _connection) = self.open(request).await?;
            whole(response).await
        };
        let answer = tokio::time::timeout(timeout, answer).await;
        answer.unwrap_or(Err(HttpCallError::Timeout(timeout))).map_err(|source| self.error(source))
    }

    fn error(&self, source: HttpCallError) -> GatewayHttpError {
        GatewayHttpError { url: self.url.clone(), source }
    }
}

impl GatewayHttpResponse {
    /// Returns the parts of an error response.
    pub fn error(&self) -> ErrorFields {
        ErrorFields::read(&self.text)
    }
}

/// Reads the body of a response to its end.
async fn whole(response: Response<Incoming>) -> Result<GatewayHttpResponse, HttpCallError> {
    let status = response.status();
    let date = response.headers().get(header::DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(HttpCallError::BrokenBody)?.to_bytes();
    Ok(GatewayHttpResponse { status, date, text: String::from_utf8(body.to_vec())? })
}

/// Percent-encodes a name for a path or a query.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Returns the part of the URL's path to which the API's paths are appended. A path `/api/v1` at the end of the URL is
/// left out.
pub fn base_path(url: &Uri) -> &str {
    let path = url.path().trim_end_matches('/');
    path.strip_suffix("/api/v1").unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_apis_own_path_may_be_in_the_url() {
        let base_of = |url: &str| url.parse().map(|url: Uri| base_path(&url).to_owned()).ok();
        assert_eq!(base_of("http://h:1").as_deref(), Some(""));
        assert_eq!(base_of("http://h:1/api/v1").as_deref(), Some(""));
        assert_eq!(base_of("http://h:1/api/v1/").as_deref(), Some(""));
        assert_eq!(base_of("http://h:1/fairgate/api/v1").as_deref(), Some("/fairgate"));
        assert_eq!(base_of("http://h:1/fairgate/").as_deref(), Some("/fairgate"));
    }

    #[test]
    fn names_go_through_a_path_as_they_are() {
        assert_eq!(escaped("team-a.b_c~1"), "team-a.b_c~1");
        assert_eq!(escaped("a/b c?ü"), "a%2Fb%20c%3F%C3%BC");
    }
}

//! Sends one event to a webhook: one POST request over a new connection, signed with the webhook's secret.
//!
//! ```text
//!     x-fairgate-event: evt-…                       the event's id, the same in each try
//!     x-fairgate-timestamp: 1795000000              the time of this try, in seconds since 1970
//!     x-fairgate-signature: sha256=HEX              HMAC-SHA256 over TIMESTAMP.BODY
//! ```
//!
//! The timestamp is signed, so that a receiver can refuse old requests that somebody repeats.
//!
//! # Server-side request forgery
//! Only the operator's configuration names URLs, and a host that resolves to a private address is the operator's choice.
//! Nothing that tenants or agents write becomes part of a request line or a header. Redirects are not followed, because a
//! receiver could otherwise point the gateway at hosts that the operator did not name, and the answer's body is not read.

use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use fairgate_config::WebhookConfig;
use fairgate_fleet::WebhookDelivery;
use fairgate_time::wall_clock;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::Scheme;
use http::{HeaderName, Method, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use ring::hmac;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use fairgate_proxy::maybe_tls_stream::MaybeTlsStream;
use fairgate_proxy::tls;

/// Longest time for one request, from the look-up of the name to the status of the answer. It must be shorter than the
/// pause after a first try.
pub(crate) const SEND_TIMEOUT: Duration = Duration::from_secs(10);

const EVENT: HeaderName = HeaderName::from_static("x-fairgate-event");
const TIMESTAMP: HeaderName = HeaderName::from_static("x-fairgate-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("x-fairgate-signature");
const AGENT: &str = concat!("fairgate/", env!("CARGO_PKG_VERSION"));

/// Address and keys of one webhook.
pub(crate) struct WebhookSender {
    url: Uri,
    host: String,
    port: u16,
    secure: Option<(TlsConnector, ServerName<'static>)>,
    key: hmac::Key,
}

/// Returns the scheme and host of a webhook's URL. The rest may hold a token, and is not shown.
pub(crate) fn origin(webhook: &WebhookConfig) -> String {
    let url: Option<Uri> = webhook.url.expose().parse().ok();
    let shown = |url: Uri| Some(format!("{}://{}", url.scheme_str()?, url.authority()?));
    url.and_then(shown).unwrap_or_default()
}

impl WebhookSender {
    /// Creates a sender. Fails if the file of certificate authorities cannot be used.
    pub(crate) fn new(webhook: &WebhookConfig) -> Result<Self, String> {
        let url: Uri = webhook.url.expose().parse().map_err(|_| "its url is no URL".to_owned())?;
        let host = url.host().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let is_secure = url.scheme() == Some(&Scheme::HTTPS);
        let port = url.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let secure = if is_secure {
            let name = ServerName::try_from(host.clone())
                .map_err(|_| "its host is no name that a certificate could carry".to_owned())?;
            let trust =
                tls::for_upstreams(webhook.ca.as_deref()).map_err(|error| error.to_string())?;
            Some((TlsConnector::from(trust), name))
        } else {
            // The configuration has checked this; nothing else may be sent without encryption.
            let address: Option<IpAddr> = host.parse().ok();
            if !address.is_some_and(|address| address.is_loopback()) {
                return Err("its url is neither https nor an address of this machine".to_owned());
            }
            None
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, webhook.secret.expose().as_bytes());
        Ok(Self { url, host, port, secure, key })
    }

    /// Sends an event. Returns the status of a successful answer, or else the reason for the
    /// failure, without the URL.
    pub(crate) async fn send(&self, delivery: &WebhookDelivery) -> Result<StatusCode, String> {
        let answered = timeout(SEND_TIMEOUT, self.ask(delivery)).await;
        let status = answered
            .map_err(|_| format!("it did not answer within {} s", SEND_TIMEOUT.as_secs()))??;
        match status {
            status if status.is_success() => Ok(status),
            status if status.is_redirection() => {
                Err(format!("it answered {status}, and redirects are not followed"))
            }
            status => Err(format!("it answered {status}")),
        }
    }

    async fn ask(&self, delivery: &WebhookDelivery) -> Result<StatusCode, String> {
        let stream = self.connect().await?;
        let (mut sender, link) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        let request = self.request(delivery, wall_clock::now().0 / 1_000_000)?;
        // The connection is polled only here, so it ends with this call, whatever the receiver still sends.
        let mut answer = pin!(sender.send_request(request));
        let answered = tokio::select! {
            answered = &mut answer => answered,
            // The receiver may have closed the connection right after its answer.
            _ = link => answer.await,
        };
        answered.map(|answer| answer.status()).map_err(|error| error.to_string())
    }

    fn request(
        &self,
        delivery: &WebhookDelivery,
        timestamp: i64,
    ) -> Result<Request<Full<Bytes>>, String> {
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        Request::builder()
            .method(Method::POST)
            .uri(self.url.path_and_query().map_or("/", |path| path.as_str()))
            .header(HOST, authority)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, AGENT)
            .header(EVENT, &delivery.id)
            .header(TIMESTAMP, timestamp)
            .header(SIGNATURE, self.signature(timestamp, &delivery.body))
            .body(Full::new(Bytes::from(delivery.body.clone())))
            .map_err(|error| error.to_string())
    }

    fn signature(&self, timestamp: i64, body: &str) -> String {
        let tag = hmac::sign(&self.key, format!("{timestamp}.{body}").as_bytes());
        let digits: String = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        format!("sha256={digits}")
    }

    async fn connect(&self) -> Result<MaybeTlsStream<TlsStream<TcpStream>>, String> {
        let tcp = self.reach().await.map_err(|error| format!("it cannot be reached: {error}"))?;
        match &self.secure {
            None => Ok(MaybeTlsStream::Plain(tcp)),
            Some((connector, name)) => {
                let secured = connector.connect(name.clone(), tcp).await;
                let secured = secured.map_err(|error| format!("TLS failed: {error}"))?;
                Ok(MaybeTlsStream::Secure(Box::new(secured)))
            }
        }
    }

    async fn reach(&self) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in tokio::net::lookup_host((self.host.as_str(), self.port)).await? {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

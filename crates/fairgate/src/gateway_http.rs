//! Sends one HTTP request to the gateway on its own connection.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Size of the largest response that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Content type of JSON bodies.
pub(crate) const JSON: &str = "application/json";

/// Default address of the gateway, for clients and for the admin API.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:8080";

/// The gateway's address, and the token to send.
pub(crate) struct GatewayHttpClient {
    pub(crate) url: Uri,
    pub(crate) token: String,
    pub(crate) ca: Option<PathBuf>,
}

/// One HTTP request to the gateway.
pub(crate) struct GatewayHttpRequest {
    pub(crate) method: Method,
    /// Path below the gateway's URL, with the query, such as `/api/v1/…`.
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    pub(crate) headers: HeaderMap,
    /// Longest time for the whole request, from connecting to the last byte of the response.
    pub(crate) timeout: Duration,
}

/// The gateway's response to one request.
#[derive(Debug)]
pub(crate) struct GatewayHttpResponse {
    pub(crate) status: StatusCode,
    /// Time of the server's clock, to the second; `None` if the response has no date.
    pub(crate) date: Option<SystemTime>,
    pub(crate) text: String,
}

impl GatewayHttpClient {
    /// Sends a request and reads the whole response, whatever its status.
    pub(crate) async fn send(&self, ask: GatewayHttpRequest) -> Result<GatewayHttpResponse> {
        let timeout = ask.timeout;
        let answer = tokio::time::timeout(timeout, self.send_request(ask)).await;
        let answer = answer.map_err(|_| anyhow!("no answer within {} s", timeout.as_secs_f32()));
        answer.and_then(|answer| answer).with_context(|| format!("gateway {}", self.url))
    }

    async fn send_request(&self, ask: GatewayHttpRequest) -> Result<GatewayHttpResponse> {
        let authority = self.url.authority().context("the URL has no host")?;
        let secure = self.url.scheme_str() == Some("https");
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.context("cannot connect; is `fairgate serve` running there?")?;
        let mut request = Request::builder()
            .method(ask.method)
            .uri(format!("{}{}", base(&self.url), ask.path))
            .header(header::HOST, authority.as_str())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, ask.content_type)
            .body(Full::new(ask.body))?;
        request.headers_mut().extend(ask.headers);
        if secure {
            let name = ServerName::try_from(host.to_owned())?;
            let connector = TlsConnector::from(Arc::new(self.tls()?));
            over(connector.connect(name, stream).await?, request).await
        } else {
            over(stream, request).await
        }
    }

    fn tls(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        match &self.ca {
            Some(file) => {
                let named = || file.display().to_string();
                for certificate in CertificateDer::pem_file_iter(file).with_context(named)? {
                    roots.add(certificate.with_context(named)?)?;
                }
            }
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions()?;
        Ok(builder.with_root_certificates(roots).with_no_client_auth())
    }
}

/// Percent-encodes a name for a path or a query.
pub(crate) fn escaped(text: &str) -> String {
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

async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<GatewayHttpResponse> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let date = response.headers().get(header::DATE).and_then(|date| date.to_str().ok());
    let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!("the answer broke off: {error}"))?.to_bytes();
    driver.abort();
    Ok(GatewayHttpResponse { status, date, text: String::from_utf8(body.to_vec())? })
}

/// Returns the part of the URL's path to which the API's paths are appended. A path `/api/v1` at the end of the URL is
/// left out.
pub(crate) fn base(url: &Uri) -> &str {
    let path = url.path().trim_end_matches('/');
    path.strip_suffix("/api/v1").unwrap_or(path)
}

/// Returns a text field of the object `error` in a response's body; `None` if there is none.
pub(crate) fn error_field(body: &Value, name: &str) -> Option<String> {
    let field = body.pointer(&format!("/error/{name}"))?;
    field.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_apis_own_path_may_be_in_the_url() {
        let base_of = |url: &str| url.parse().map(|url: Uri| base(&url).to_owned()).ok();
        assert_eq!(base_of("http://h:1").as_deref(), Some(""));
        assert_eq!(base_of("http://h:1/api/v1").as_deref(), Some(""));
        assert_eq!(base_of("http://h:1/api/v1/").as_deref(), Some(""));
        assert_eq!(base_of("http://h:1/fairgate/api/v1").as_deref(), Some("/fairgate"));
        assert_eq!(base_of("http://h:1/fairgate/").as_deref(), Some("/fairgate"));
    }
}

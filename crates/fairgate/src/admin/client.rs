//! The admin API's client: one request, one connection.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use clap::Args;
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long the gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Where the gateway is, unless told otherwise.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// Where the admin token is, unless told otherwise.
pub(crate) const DEFAULT_TOKEN_FILE: &str = "fairgate-data/admin-token";
/// The variable that holds the admin token itself.
const TOKEN_VARIABLE: &str = "FAIRGATE_ADMIN_TOKEN";
/// The header that says who asks, for the audit trail.
const ACTOR: &str = "x-fairgate-actor";
/// How long that may be.
const LONGEST_ACTOR: usize = 64;

/// Where the gateway is, and who asks.
#[derive(Clone, Debug, Args)]
pub(crate) struct GatewayArgs {
    /// The address of the gateway's admin API, as `fairgate serve` prints it.
    #[arg(
        long,
        env = "FAIRGATE_URL",
        default_value = DEFAULT_URL,
        value_name = "URL",
        global = true
    )]
    url: Uri,
    /// The file that holds the admin token. The variable FAIRGATE_ADMIN_TOKEN goes before it.
    #[arg(
        long,
        env = "FAIRGATE_ADMIN_TOKEN_FILE",
        default_value = DEFAULT_TOKEN_FILE,
        value_name = "FILE",
        global = true
    )]
    token_file: PathBuf,
    /// A PEM file of certificate authorities to trust, instead of the usual ones.
    #[arg(long, env = "FAIRGATE_CA", value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
}

/// What the admin API says is wrong.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// All of it, for people.
    words: String,
    /// What is wrong, in the API's own words; empty where it was no answer of the API.
    pub(crate) message: String,
    /// The field that is to blame.
    pub(crate) field: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for Refusal {}

/// A way to the admin API.
pub(crate) struct Client {
    url: Uri,
    token: Token,
    ca: Option<PathBuf>,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// Finds the token; nothing is sent yet.
    pub(crate) fn new(args: &GatewayArgs) -> Result<Self> {
        let token = Token::find(&args.token_file)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { url: args.url.clone(), token, ca: args.ca.clone(), runtime })
    }

    /// What is at a path.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        json(&self.text(Method::GET, path, None)?)
    }

    /// What is at a path, as text.
    pub(crate) fn get_text(&self, path: &str) -> Result<String> {
        self.text(Method::GET, path, None)
    }

    /// Sends a change; `Null` where the answer has no body.
    pub(crate) fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let text = self.text(method, path, body)?;
        if text.is_empty() { Ok(Value::Null) } else { json(&text) }
    }

    fn text(&self, method: Method, path: &str, body: Option<&Value>) -> Result<String> {
        let answer = self.exchange(method, path, body);
        let timed = async { tokio::time::timeout(PATIENCE, answer).await };
        let answer = self.runtime.block_on(timed);
        let answer = answer.map_err(|_| anyhow!("no answer within {} s", PATIENCE.as_secs()));
        let (status, text) =
            answer.and_then(|answer| answer).with_context(|| format!("gateway {}", self.url))?;
        if status.is_success() {
            return Ok(text);
        }
        Err(self.refusal(status, &text).into())
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, String)> {
        let authority = self.url.authority().context("the URL has no host")?;
        let secure = self.url.scheme_str() == Some("https");
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let stream = TcpStream::connect((host, port)).await;
        let stream = stream.context("cannot connect; is `fairgate serve` running there?")?;
        let text = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", base(&self.url)))
            .header(header::HOST, authority.as_str())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token.text))
            .header(header::CONTENT_TYPE, "application/json");
        let request = match actor() {
            Some(actor) => request.header(ACTOR, actor),
            None => request,
        };
        let request = request.body(Full::new(Bytes::from(text)))?;
        if secure {
            let name = ServerName::try_from(host.to_owned())?;
            let connector = TlsConnector::from(Arc::new(self.tls()?));
            over(connector.connect(name, stream).await?, request).await
        } else {
            over(stream, request).await
        }
    }

    /// What the API says is wrong, and what to do where that is about how it was asked.
    fn refusal(&self, status: StatusCode, text: &str) -> Refusal {
        let told: Option<Value> = serde_json::from_str(text).ok();
        let field = |name: &str| told.as_ref()?.pointer(&format!("/error/{name}"))?.as_str();
        let (Some(message), Some(code)) = (field("message"), field("code")) else {
            let words = format!("the gateway answered {status}");
            return Refusal { words, message: String::new(), field: None };
        };
        let (url, found) = (&self.url, &self.token.found);
        let words = match status {
            StatusCode::UNAUTHORIZED => {
                format!(
                    "the admin token is wrong: the gateway at {url} does not know the one from {found} ({code})"
                )
            }
            StatusCode::FORBIDDEN => format!("{message}; this one is from {found} ({code})"),
            // Errors for clients have a type, those of the admin API have none.
            StatusCode::NOT_FOUND if field("type").is_some() => format!(
                "there is no admin API at {url}; it may have an address of its own, `admin.listen` in the \
                 configuration, which `fairgate serve` prints: name it with --url or FAIRGATE_URL ({code})"
            ),
            _ => format!("{message} ({code})"),
        };
        Refusal { words, message: message.to_owned(), field: field("field").map(str::to_owned) }
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

async fn over(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, String)> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let response = sender.send_request(request).await?;
    let status = response.status();
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow!("the answer broke off: {error}"))?.to_bytes();
    driver.abort();
    Ok((status, String::from_utf8(body.to_vec())?))
}

/// The admin token.
struct Token {
    text: String,
    /// Where it was taken from, in words.
    found: String,
}

impl Token {
    /// From the variable, else from the file. An empty variable counts as not set.
    fn find(file: &Path) -> Result<Self> {
        let variable = std::env::var(TOKEN_VARIABLE).unwrap_or_default();
        if !variable.trim().is_empty() {
            let found = format!("the variable {TOKEN_VARIABLE}");
            return Ok(Self { text: variable.trim().to_owned(), found });
        }
        let text = fs::read_to_string(file).with_context(|| {
            format!(
                "no admin token: set {TOKEN_VARIABLE}, or name its file with --token-file ({} cannot be read)",
                file.display()
            )
        })?;
        if text.trim().is_empty() {
            bail!("no admin token: {} is empty", file.display());
        }
        Ok(Self { text: text.trim().to_owned(), found: format!("the file {}", file.display()) })
    }
}

/// The URL's path, to which the API's paths are added. It may be given with the API's own path at its end.
fn base(url: &Uri) -> &str {
    let path = url.path().trim_end_matches('/');
    path.strip_suffix("/api/v1").unwrap_or(path)
}

/// Who asks: the user, where the name is one that the API takes.
fn actor() -> Option<String> {
    let name = std::env::var("USER").ok()?;
    let fits = (1..=LONGEST_ACTOR).contains(&name.len());
    (fits && name.bytes().all(|byte| byte.is_ascii_graphic())).then_some(name)
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).context("the gateway's answer is no JSON; is that a Fairgate?")
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

    #[test]
    fn a_refusal_is_told_in_its_own_words() {
        let client = Client {
            url: Uri::from_static(DEFAULT_URL),
            token: Token { text: "t".into(), found: "the file f".into() },
            ca: None,
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
        };
        let text = r#"{"error":{"code":"not_found","message":"there is no tenant \"x\""}}"#;
        let told = client.refusal(StatusCode::NOT_FOUND, text);
        assert_eq!(told.to_string(), r#"there is no tenant "x" (not_found)"#);
        let told = client.refusal(StatusCode::BAD_GATEWAY, "<html>");
        assert_eq!(told.to_string(), "the gateway answered 502 Bad Gateway");
    }
}

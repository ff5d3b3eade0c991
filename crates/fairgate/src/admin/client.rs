//! The client of the admin API, which opens one connection per request.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Args;
use fairgate_api::client::{
    DEFAULT_URL, EventStreamReply, GatewayHttpClient, GatewayHttpRequest, GatewayHttpResponse, JSON,
};
use fairgate_api::error::ErrorFields;
use fairgate_api::event_stream::ServerSentEvent;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde_json::Value;

/// Longest time that the client waits for the gateway's response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Default path of the file with the admin token, which `fairgate serve` writes.
pub(crate) const DEFAULT_TOKEN_FILE: &str = "fairgate-data/admin-token";
/// Environment variable that holds the admin token itself.
const TOKEN_VARIABLE: &str = "FAIRGATE_ADMIN_TOKEN";
/// Header with the user's name for the audit trail.
const ACTOR: HeaderName = HeaderName::from_static("x-fairgate-actor");
/// Longest user name that the API accepts, in bytes.
const LONGEST_ACTOR: usize = 64;

/// Options for the gateway's address and the admin token.
#[derive(Clone, Debug, Args)]
pub(crate) struct GatewayArgs {
    /// Address of the gateway's admin API, as `fairgate serve` prints it.
    #[arg(
        long,
        env = "FAIRGATE_URL",
        default_value = DEFAULT_URL,
        value_name = "URL",
        global = true
    )]
    url: Uri,
    /// File that holds the admin token. The variable FAIRGATE_ADMIN_TOKEN takes precedence.
    #[arg(
        long,
        env = "FAIRGATE_ADMIN_TOKEN_FILE",
        default_value = DEFAULT_TOKEN_FILE,
        value_name = "FILE",
        global = true
    )]
    token_file: PathBuf,
    /// PEM file of the certificate authorities to trust, instead of the built-in ones.
    #[arg(long, env = "FAIRGATE_CA", value_name = "FILE", global = true)]
    ca: Option<PathBuf>,
}

impl GatewayArgs {
    pub(crate) fn new(url: Uri, token_file: PathBuf, ca: Option<PathBuf>) -> Self {
        Self { url, token_file, ca }
    }
}

/// An error response of the admin API.
#[derive(Debug)]
pub(crate) struct AdminApiError {
    /// Full text of the error to print, with advice.
    words: String,
    /// The API's own message; empty if the response was not from the API.
    pub(crate) message: String,
    /// Name of the invalid field; `None` if no field is the cause.
    pub(crate) field: Option<String>,
}

impl fmt::Display for AdminApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl std::error::Error for AdminApiError {}

/// A client of the admin API.
pub(crate) struct AdminClient {
    wire: GatewayHttpClient,
    /// Description of the variable or file that the token came from, for messages.
    token_source: String,
    runtime: tokio::runtime::Runtime,
}

impl AdminClient {
    /// Creates a client and reads the token. Sends nothing yet.
    pub(crate) fn new(args: &GatewayArgs) -> Result<Self> {
        let AdminToken { text: token, source: found } = AdminToken::find(&args.token_file)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let wire = GatewayHttpClient { url: args.url.clone(), token, ca: args.ca.clone() };
        Ok(Self { wire, token_source: found, runtime })
    }

    /// Gets the JSON at a path of the API.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        json(&self.text(Method::GET, path, None)?)
    }

    /// Gets the text at a path of the API.
    pub(crate) fn get_text(&self, path: &str) -> Result<String> {
        self.text(Method::GET, path, None)
    }

    /// Sends a change and returns the JSON of the response; `Null` if the response has no body.
    pub(crate) fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let text = self.text(method, path, body)?;
        if text.is_empty() { Ok(Value::Null) } else { json(&text) }
    }

    /// Reads the events at a path of the API until the gateway ends them. `take` is called with `None` once the stream is
    /// open, and then with each event.
    pub(crate) fn events(
        &self,
        path: &str,
        mut take: impl FnMut(Option<ServerSentEvent>) -> Result<()>,
    ) -> Result<()> {
        let request = self.request(Method::GET, path, None);
        let mut stream = match self.runtime.block_on(self.wire.open_events(request))? {
            EventStreamReply::Open(stream) => stream,
            EventStreamReply::Refused(response) => return Err(self.refusal(&response).into()),
        };
        take(None)?;
        while let Some(event) = self.runtime.block_on(stream.next())? {
            take(Some(event))?;
        }
        Ok(())
    }

    fn request(&self, method: Method, path: &str, body: Option<&Value>) -> GatewayHttpRequest {
        GatewayHttpRequest {
            method,
            path: path.to_owned(),
            content_type: JSON,
            body: Bytes::from(body.map(Value::to_string).unwrap_or_default()),
            headers: actor().map(|actor| (ACTOR, actor)).into_iter().collect::<HeaderMap>(),
            timeout: RESPONSE_TIMEOUT,
        }
    }

    fn text(&self, method: Method, path: &str, body: Option<&Value>) -> Result<String> {
        let request = self.request(method, path, body);
        let response = self.runtime.block_on(self.wire.send(request))?;
        if response.status.is_success() {
            return Ok(response.text);
        }
        Err(self.refusal(&response).into())
    }

    /// Builds the error for an error response, with advice if the address or the token is the cause.
    fn refusal(&self, response: &GatewayHttpResponse) -> AdminApiError {
        let status = response.status;
        let ErrorFields { code, message, field, kind } = response.error();
        let (Some(message), Some(code)) = (message, code) else {
            let words = format!("the gateway answered {status}");
            return AdminApiError { words, message: String::new(), field: None };
        };
        let (url, found) = (&self.wire.url, &self.token_source);
        let words = match status {
            StatusCode::UNAUTHORIZED => {
                format!(
                    "the admin token is wrong: the gateway at {url} does not know the one from {found} ({code})"
                )
            }
            StatusCode::FORBIDDEN => format!("{message}; this one is from {found} ({code})"),
            // Errors for clients have a type, those of the admin API have none.
            StatusCode::NOT_FOUND if kind.is_some() => format!(
                "there is no admin API at {url}; it may have an address of its own, `admin.listen` in the \
                 configuration, which `fairgate serve` prints: name it with --url or FAIRGATE_URL ({code})"
            ),
            _ => format!("{message} ({code})"),
        };
        AdminApiError { words, message, field }
    }
}

/// The admin token and its source.
struct AdminToken {
    text: String,
    /// Description of the variable or file that the token came from, for messages.
    source: String,
}

impl AdminToken {
    /// Reads the token from the variable FAIRGATE_ADMIN_TOKEN, or from the file if the variable is empty or not set.
    fn find(file: &Path) -> Result<Self> {
        let variable = std::env::var(TOKEN_VARIABLE).unwrap_or_default();
        if !variable.trim().is_empty() {
            let found = format!("the variable {TOKEN_VARIABLE}");
            return Ok(Self { text: variable.trim().to_owned(), source: found });
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
        Ok(Self { text: text.trim().to_owned(), source: format!("the file {}", file.display()) })
    }
}

/// Returns the user's name for the audit trail; `None` if there is none that the API accepts.
fn actor() -> Option<HeaderValue> {
    let name = std::env::var("USER").ok()?;
    let fits = (1..=LONGEST_ACTOR).contains(&name.len());
    let plain = name.bytes().all(|byte| byte.is_ascii_graphic());
    if fits && plain { HeaderValue::from_str(&name).ok() } else { None }
}

fn json(text: &str) -> Result<Value> {
    serde_json::from_str(text).context("the gateway's answer is no JSON; is that a Fairgate?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_its_own_words() {
        let client = AdminClient {
            wire: GatewayHttpClient {
                url: Uri::from_static(DEFAULT_URL),
                token: "t".into(),
                ca: None,
            },
            token_source: "the file f".into(),
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
        };
        let text = r#"{"error":{"code":"not_found","message":"there is no tenant \"x\""}}"#;
        let refusal = |status, text: &str| {
            client.refusal(&GatewayHttpResponse { status, date: None, text: text.to_owned() })
        };
        let error = refusal(StatusCode::NOT_FOUND, text);
        assert_eq!(error.to_string(), r#"there is no tenant "x" (not_found)"#);
        let error = refusal(StatusCode::BAD_GATEWAY, "<html>");
        assert_eq!(error.to_string(), "the gateway answered 502 Bad Gateway");
    }
}

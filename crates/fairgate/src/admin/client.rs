//! The admin API's client: one request, one connection.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde_json::Value;

use crate::wire::{Ask, JSON, Wire, error_field};

/// How long the gateway may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Where the gateway is, unless told otherwise.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:8080";
/// Where the admin token is, unless told otherwise.
pub(crate) const DEFAULT_TOKEN_FILE: &str = "fairgate-data/admin-token";
/// The variable that holds the admin token itself.
const TOKEN_VARIABLE: &str = "FAIRGATE_ADMIN_TOKEN";
/// The header that says who asks, for the audit trail.
const ACTOR: HeaderName = HeaderName::from_static("x-fairgate-actor");
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
    wire: Wire,
    /// Where the token was taken from, in words.
    found: String,
    runtime: tokio::runtime::Runtime,
}

impl Client {
    /// Finds the token; nothing is sent yet.
    pub(crate) fn new(args: &GatewayArgs) -> Result<Self> {
        let Token { text: token, found } = Token::find(&args.token_file)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let wire = Wire { url: args.url.clone(), token, ca: args.ca.clone() };
        Ok(Self { wire, found, runtime })
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
        let ask = Ask {
            method,
            path: path.to_owned(),
            content_type: JSON,
            body: Bytes::from(body.map(Value::to_string).unwrap_or_default()),
            headers: actor().map(|actor| (ACTOR, actor)).into_iter().collect::<HeaderMap>(),
            timeout: PATIENCE,
        };
        let told = self.runtime.block_on(self.wire.exchange(ask))?;
        if told.status.is_success() {
            return Ok(told.text);
        }
        Err(self.refusal(told.status, &told.text).into())
    }

    /// What the API says is wrong, and what to do where that is about how it was asked.
    fn refusal(&self, status: StatusCode, text: &str) -> Refusal {
        let told: Option<Value> = serde_json::from_str(text).ok();
        let field = |name: &str| error_field(told.as_ref()?, name);
        let (Some(message), Some(code)) = (field("message"), field("code")) else {
            let words = format!("the gateway answered {status}");
            return Refusal { words, message: String::new(), field: None };
        };
        let (url, found) = (&self.wire.url, &self.found);
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
        Refusal { words, message, field: field("field") }
    }
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

/// Who asks: the user, where the name is one that the API takes.
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
        let client = Client {
            wire: Wire { url: Uri::from_static(DEFAULT_URL), token: "t".into(), ca: None },
            found: "the file f".into(),
            runtime: tokio::runtime::Builder::new_current_thread().build().unwrap(),
        };
        let text = r#"{"error":{"code":"not_found","message":"there is no tenant \"x\""}}"#;
        let told = client.refusal(StatusCode::NOT_FOUND, text);
        assert_eq!(told.to_string(), r#"there is no tenant "x" (not_found)"#);
        let told = client.refusal(StatusCode::BAD_GATEWAY, "<html>");
        assert_eq!(told.to_string(), "the gateway answered 502 Bad Gateway");
    }
}

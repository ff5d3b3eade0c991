//! Serves MCP over streamable HTTP.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::session::McpSession;
use super::tool_calls::McpFleetTools;
use crate::agent_api::StatusCallback;

/// Path of the MCP endpoint.
const PATH: &str = "/mcp";
/// Pause between two checks for idle clients.
const LOOK: Duration = Duration::from_secs(1);

type McpService = StreamableHttpService<McpFleetTools, LocalSessionManager>;
type McpHttpResponse = Response<BoxBody<Bytes, Infallible>>;

/// Serves MCP until the future is dropped. Clients must send the agent's token.
pub(super) async fn serve(
    address: SocketAddr,
    session: Arc<McpSession>,
    token: &str,
    idle_max: Duration,
    say: &StatusCallback,
) -> Result<()> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    let mcp = mcp(address, session.clone());
    say(&format!("MCP listens on http://{}{PATH}", listener.local_addr()?));
    let token = blake3::hash(token.as_bytes());
    tokio::select! {
        error = accept(&listener, mcp, token) => error,
        () = give_back_when_idle(&session, idle_max) => Ok(()),
    }
}

fn mcp(address: SocketAddr, session: Arc<McpSession>) -> McpService {
    let config = StreamableHttpServerConfig::default();
    // The names of this machine are not known here. The token keeps out web pages that trick a browser into calling
    // this.
    let config = if address.ip().is_loopback() { config } else { config.disable_allowed_hosts() };
    let tools = move || Ok(McpFleetTools::new(session.clone()));
    StreamableHttpService::new(tools, Arc::new(LocalSessionManager::default()), config)
}

async fn accept(listener: &TcpListener, mcp: McpService, token: blake3::Hash) -> Result<()> {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of file descriptors: wait until a connection closes.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        let mcp = mcp.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let mcp = mcp.clone();
                async move {
                    Ok::<_, Infallible>(match refusal(&request, token) {
                        Some(refusal) => refusal,
                        None => mcp.handle(request).await,
                    })
                }
            });
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
            // A client that disconnects is no error of the server.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Returns an error response for a request to another path, or without the agent's token.
fn refusal(request: &Request<Incoming>, token: blake3::Hash) -> Option<McpHttpResponse> {
    let answer = |status, text: &'static str| {
        let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
        *answer.status_mut() = status;
        answer
    };
    if request.uri().path() != PATH {
        return Some(answer(StatusCode::NOT_FOUND, "MCP is at /mcp\n"));
    }
    let shown = bearer(request.headers()).map(|shown| blake3::hash(shown.as_bytes()));
    if shown == Some(token) {
        return None;
    }
    let why = "send the agent's token as \"Authorization: Bearer TOKEN\"\n";
    let mut answer = answer(StatusCode::UNAUTHORIZED, why);
    let asks = http::HeaderValue::from_static("Bearer");
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, asks);
    Some(answer)
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Gives the task back after a time of `idle_max` without a tool call. This is needed because HTTP does not report that
/// a client will not return, and a task without an agent must not be kept for ever.
async fn give_back_when_idle(session: &McpSession, idle_max: Duration) {
    loop {
        sleep(LOOK).await;
        if session.idle() > idle_max {
            session.release("its agent did not call for too long").await;
        }
    }
}

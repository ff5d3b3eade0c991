//! The command `fairgate mcp`, which offers the fleet's tasks as tools of the Model Context Protocol.

mod http;
mod session;
mod task_names;
mod tool_calls;
mod tool_schemas;

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use rmcp::ServiceExt;
use tokio::signal::unix::{SignalKind, signal};

use crate::agent_api::{AgentApi, AgentArgs, StatusCallback};
use fairgate_journal::explain_text::one_line;
use session::{McpSession, last_release};
use tool_calls::McpFleetTools;

/// Offer the fleet's tasks to an agent as MCP tools: claim, progress, ask, complete, fail, add_tasks, why, my_share.
///
/// Speaks MCP on standard input and output, which is how coding agents run their tools. With --http, it speaks
/// streamable HTTP instead. While the agent holds a task, this command sends heartbeats for it, so that the agent keeps
/// the task while the model thinks. The heartbeats end with complete, fail or ask. When standard input closes, or on
/// SIGTERM, a task that is still held is given back.
#[derive(Debug, Args)]
pub struct McpArgs {
    #[command(flatten)]
    agent: AgentArgs,
    /// Serve streamable HTTP at http://ADDRESS/mcp instead of standard input. Clients send the agent's token as bearer
    /// token.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<SocketAddr>,
    /// With --http: seconds without a tool call after which the task is given back.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, requires = "http")]
    idle: u64,
}

/// Serves until standard input closes or a signal comes.
pub fn run(args: &McpArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(serve(args));
    // A read of standard input cannot be cancelled.
    runtime.shutdown_timeout(Duration::from_millis(200));
    ended
}

async fn serve(args: &McpArgs) -> Result<()> {
    let say: StatusCallback = Arc::new(|text: &str| {
        // The text may repeat something that another program wrote.
        let _ = writeln!(io::stderr(), "fairgate: {}", one_line(text));
    });
    let session = Arc::new(McpSession::new(Arc::new(AgentApi::new(&args.agent)?), say.clone()));
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let served = async {
        match args.http {
            Some(address) => {
                let idle_max = Duration::from_secs(args.idle);
                http::serve(address, session.clone(), args.agent.token(), idle_max, &say).await
            }
            None => over_stdio(session.clone()).await,
        }
    };
    let ended = tokio::select! {
        ended = served => ended,
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    last_release(&session, "its MCP server ended").await;
    ended
}

async fn over_stdio(session: Arc<McpSession>) -> Result<()> {
    match McpFleetTools::new(session).serve(rmcp::transport::stdio()).await {
        Ok(running) => {
            running.waiting().await?;
            Ok(())
        }
        // A client that disconnects before the handshake is no error.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

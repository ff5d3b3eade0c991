//! The command `fairgate health`, which asks a running gateway whether it can serve.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::Args;
use fairgate_api::client::{DEFAULT_URL, GatewayHttpClient, GatewayHttpRequest, JSON};
use http::{HeaderMap, Method, Uri};
use serde::Deserialize;

use crate::output::StdoutWriter;

/// Ask the running gateway whether it can serve requests, as `/readyz` reports it.
///
/// Prints one sentence. The exit status is 0 if the gateway is ready, also if a pool has no worker that is up or the
/// database is away; it is 1 if the gateway is not ready or does not answer. No token is needed. The container image
/// has it as its health check.
#[derive(Debug, Args)]
pub(crate) struct HealthArgs {
    /// Address of the gateway: that of its clients or that of its admin API.
    #[arg(long, env = "FAIRGATE_URL", default_value = DEFAULT_URL, value_name = "URL")]
    url: Uri,
    /// PEM file of the certificate authorities to trust, instead of the built-in ones.
    #[arg(long, env = "FAIRGATE_CA", value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Longest time to wait for the answer, in seconds.
    #[arg(long, default_value_t = 4, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=300))]
    timeout: u64,
}

/// Body of the response of `/readyz`.
#[derive(Debug, Deserialize)]
struct ReadinessReport {
    ready: bool,
    reasons: Vec<String>,
    degraded: Vec<String>,
    warnings: Vec<String>,
}

pub(crate) fn run(args: &HealthArgs) -> Result<()> {
    let wire =
        GatewayHttpClient { url: args.url.clone(), token: String::new(), ca: args.ca.clone() };
    let request = GatewayHttpRequest {
        method: Method::GET,
        path: "/readyz".into(),
        content_type: JSON,
        body: Bytes::new(),
        headers: HeaderMap::new(),
        timeout: Duration::from_secs(args.timeout),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let response = runtime.block_on(wire.send(request))?;
    let report: ReadinessReport = serde_json::from_str(&response.text).with_context(|| {
        format!("{} answered {}, which is no answer of a Fairgate", args.url, response.status)
    })?;
    if !report.ready {
        bail!("not ready: {}", report.reasons.join("; "));
    }
    let mut out = StdoutWriter::stdout();
    writeln!(out, "{}", report.sentence())?;
    Ok(out.flush()?)
}

impl ReadinessReport {
    /// Returns `ready`, with the warnings and the pools without a worker that is up.
    fn sentence(&self) -> String {
        let mut notes = self.warnings.clone();
        if !self.degraded.is_empty() {
            notes.push(format!("no worker is up in {}", self.degraded.join(", ")));
        }
        if notes.is_empty() { "ready".into() } else { format!("ready, but {}", notes.join("; ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_ready_gateway_is_said() {
        let report = |degraded: &[&str], warnings: &[&str]| ReadinessReport {
            ready: true,
            reasons: Vec::new(),
            degraded: degraded.iter().map(ToString::to_string).collect(),
            warnings: warnings.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(report(&[], &[]).sentence(), "ready");
        let all = report(&["llama", "gpt"], &["the database does not answer"]).sentence();
        assert_eq!(all, "ready, but the database does not answer; no worker is up in llama, gpt");
    }
}

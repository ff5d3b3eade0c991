//! The load generators: wrk for the greatest throughput of a target, and oha for its latency at a
//! fixed rate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::http::BenchRequest;

/// Throughput measured by wrk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrkThroughput {
    pub(crate) requests: f64,
    pub(crate) per_second: f64,
    pub(crate) errors: u64,
}

pub(crate) const CONNECTIONS: &str = "32";

/// Measures the target's greatest throughput with wrk, which sends the next request as soon as the
/// last one is answered.
pub(crate) fn max_throughput(
    request: &BenchRequest,
    folder: &Path,
    time: Duration,
) -> Result<WrkThroughput> {
    let script = folder.join("wrk.lua");
    fs::write(&script, lua(request))?;
    let seconds = format!("{}s", time.as_secs());
    let output = Command::new("wrk")
        .args(["-t", "1", "-c", CONNECTIONS, "-d", &seconds, "--timeout", "10s", "-s"])
        .arg(&script)
        .arg(format!("http://{}/v1/chat/completions", request.addr))
        .output()
        .context("cannot run wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("MEASURED "));
    let Some(line) = line else {
        bail!("wrk said: {text}{}", String::from_utf8_lossy(&output.stderr))
    };
    let numbers: Vec<f64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [requests, micros, errors] = numbers[..] else { bail!("wrk said: {line}") };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let errors = errors as u64;
    Ok(WrkThroughput { requests, per_second: requests / (micros / 1e6), errors })
}

fn lua(request: &BenchRequest) -> String {
    let header = |(name, value): &(String, String)| format!("wrk.headers[{name:?}] = {value:?}\n");
    let headers: String = request.headers.iter().map(header).collect();
    let body = &request.body;
    format!(
        "wrk.method = \"POST\"\n{headers}wrk.body = [==[{body}]==]\n\
         function done(summary)\n\
           local e = summary.errors\n\
           io.write(string.format(\"MEASURED %d %d %d\\n\", summary.requests, summary.duration,\n\
             e.connect + e.read + e.write + e.status + e.timeout))\n\
         end\n"
    )
}

/// Latency measured by oha at a fixed rate, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OhaLatency {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
}

/// Measures the target's latency with oha, which sends `rate` requests per second.
pub(crate) fn latency_at_rate(
    oha: &PathBuf,
    request: &BenchRequest,
    rate: f64,
    time: Duration,
) -> Result<OhaLatency> {
    let mut command = Command::new(oha);
    let seconds = format!("{}s", time.as_secs());
    command.args([
        "--no-tui",
        "--output-format",
        "json",
        "--latency-correction",
        "-c",
        CONNECTIONS,
    ]);
    command.args(["-z", &seconds, "-q", &format!("{rate:.0}"), "-m", "POST", "-d", &request.body]);
    for (name, value) in &request.headers {
        command.args(["-H", &format!("{name}: {value}")]);
    }
    command.arg(format!("http://{}/v1/chat/completions", request.addr));
    let output = command.output().context("cannot run oha")?;
    let report: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("oha said: {}", String::from_utf8_lossy(&output.stderr)))?;
    let number = |path: &str| report.pointer(path).and_then(serde_json::Value::as_f64);
    let needed = |path: &str| number(path).with_context(|| format!("oha says no {path}"));
    let good = needed("/summary/successRate")?;
    if good < 0.9999 {
        bail!("only {:.2} % of the requests at {rate:.0}/s succeeded", good * 100.0);
    }
    Ok(OhaLatency {
        p50: needed("/latencyPercentiles/p50")?,
        p99: needed("/latencyPercentiles/p99")?,
    })
}

//! Measures the gateway's memory with a thousand streams in flight and ten thousand queued
//! requests, and counts the requests that are not served.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Result, bail};
use fairgate_testkit::programs::RunningProgram;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::http::{self, BenchRequest};

/// Number of streamed requests, which are in flight while the others are queued.
pub(crate) const STREAMS: usize = 1_000;
/// Number of requests that are queued behind the streams.
pub(crate) const WAITING: usize = 10_000;
/// Size of each queued request's body, in bytes.
pub(crate) const BODY_BYTES: usize = 4096;

/// Memory and errors of the gateway over the whole measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuedMemory {
    /// Greatest resident memory of the gateway, in bytes.
    pub(crate) resident_max: u64,
    /// Number of responses other than 200, and of connections that broke.
    pub(crate) errors: usize,
}

/// Starts the streams and then the requests that will be queued, and waits until all have ended.
/// `queued` must return two numbers of the gateway: its requests in flight, then its queued
/// requests.
pub(crate) async fn measure(
    gateway: &RunningProgram,
    stream: &BenchRequest,
    waiting: &BenchRequest,
    queued: impl AsyncFn() -> Result<(usize, usize)>,
    say: impl Fn(&str),
) -> Result<QueuedMemory> {
    let mut set = JoinSet::new();
    for _ in 0..STREAMS {
        spawn(&mut set, stream.clone());
    }
    wait_for_counts(&queued, |(flying, _)| flying >= STREAMS, &mut set).await?;
    say("1 000 streams fly");
    for n in 0..WAITING {
        spawn(&mut set, waiting.clone());
        // Connections are opened in bursts and not all at once, because the accept backlog is
        // short.
        if n % 200 == 199 {
            sleep(Duration::from_millis(20)).await;
        }
    }
    wait_for_counts(&queued, |(_, queued)| queued >= WAITING, &mut set).await?;
    let mut resident_max = gateway.resident();
    say(&format!("10 000 wait; {} MB resident", resident_max / 1_000_000));
    let mut errors = 0;
    let mut ended = 0;
    while let Some(good) = set.join_next().await {
        errors += usize::from(!good?);
        ended += 1;
        if ended % 500 == 0 {
            resident_max = resident_max.max(gateway.resident());
        }
    }
    Ok(QueuedMemory { resident_max, errors })
}

fn spawn(set: &mut JoinSet<bool>, request: BenchRequest) {
    set.spawn(async move {
        let answer =
            http::send(&request, Duration::from_secs(300), |_, _| ControlFlow::Continue(())).await;
        answer.is_ok_and(|answer| answer.status() == Some(200) && answer.is_whole())
    });
}

/// Waits until `enough` returns true for the numbers of requests in flight and queued. Fails if a
/// request ends before that, or after 60 s.
async fn wait_for_counts(
    queued: &impl AsyncFn() -> Result<(usize, usize)>,
    enough: impl Fn((usize, usize)) -> bool,
    set: &mut JoinSet<bool>,
) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let now = queued().await?;
        if enough(now) {
            return Ok(());
        }
        if set.try_join_next().is_some() {
            bail!("a request ended before all were there: {} fly, {} wait", now.0, now.1);
        }
        if Instant::now() > deadline {
            bail!("only {} fly and {} wait after a minute", now.0, now.1);
        }
        sleep(Duration::from_millis(100)).await;
    }
}

//! A thousand streams and ten thousand who wait: how much memory that takes, and whether all are served.

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Result, bail};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::http::{self, Ask};
use crate::processes::Program;

/// How many requests are answered as streams while the others wait.
pub(crate) const STREAMS: usize = 1_000;
/// How many wait.
pub(crate) const WAITING: usize = 10_000;
/// The body of each request that waits, in bytes.
pub(crate) const BODY_BYTES: usize = 4096;

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// The most memory of the gateway, in bytes.
    pub(crate) resident_max: u64,
    /// Answers other than 200, and connections that broke.
    pub(crate) errors: usize,
}

/// Starts the streams, then those who wait, and sees all of them to their end. `queued` says how many wait now.
pub(crate) async fn hold(
    gateway: &Program,
    stream: &Ask,
    waiting: &Ask,
    queued: impl AsyncFn() -> Result<(usize, usize)>,
    say: impl Fn(&str),
) -> Result<Held> {
    let mut set = JoinSet::new();
    for _ in 0..STREAMS {
        spawn(&mut set, stream.clone());
    }
    reach(&queued, |(flying, _)| flying >= STREAMS, &mut set).await?;
    say("1 000 streams fly");
    for n in 0..WAITING {
        spawn(&mut set, waiting.clone());
        // A listening queue is short: connections come in bursts, not all at once.
        if n % 200 == 199 {
            sleep(Duration::from_millis(20)).await;
        }
    }
    reach(&queued, |(_, queued)| queued >= WAITING, &mut set).await?;
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
    Ok(Held { resident_max, errors })
}

fn spawn(set: &mut JoinSet<bool>, ask: Ask) {
    set.spawn(async move {
        let answer =
            http::ask(&ask, Duration::from_secs(300), |_, _| ControlFlow::Continue(())).await;
        answer.is_ok_and(|answer| answer.status() == Some(200) && answer.is_whole())
    });
}

/// Waits until enough fly or wait; nobody may have ended before.
async fn reach(
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

//! Being told to stop: once to end in order, twice to end at once.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How often `agent run` was told to stop.
#[derive(Clone)]
pub(super) struct Stop(watch::Receiver<u32>);

impl Stop {
    /// Listens to SIGINT, SIGTERM and SIGHUP from now on.
    pub(super) fn listen() -> Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let (times, stop) = watch::channel(0);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                times.send_modify(|times| *times += 1);
            }
        });
        Ok(Self(stop))
    }

    /// Whether it was told.
    pub(super) fn is_told(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits until it is told.
    pub(super) async fn told(&self) {
        self.told_times(1).await;
    }

    /// Waits until it is told a second time.
    pub(super) async fn told_twice(&self) {
        self.told_times(2).await;
    }

    async fn told_times(&self, least: u32) {
        let mut times = self.0.clone();
        if times.wait_for(|&times| times >= least).await.is_err() {
            // Nobody listens any more, so nobody will tell.
            std::future::pending::<()>().await;
        }
    }
}

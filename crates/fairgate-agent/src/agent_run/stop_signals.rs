//! Stop signals. The first signal ends `agent run` in order, the second ends it at once.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Number of stop signals that `agent run` has received.
#[derive(Clone)]
pub(super) struct StopSignals(watch::Receiver<u32>);

impl StopSignals {
    /// Starts listening to SIGINT, SIGTERM and SIGHUP.
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

    /// Returns true if a stop signal was received.
    pub(super) fn is_stopping(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits for the first stop signal.
    pub(super) async fn wait_first(&self) {
        self.wait_times(1).await;
    }

    /// Waits for the second stop signal.
    pub(super) async fn wait_second(&self) {
        self.wait_times(2).await;
    }

    async fn wait_times(&self, least: u32) {
        let mut times = self.0.clone();
        if times.wait_for(|&times| times >= least).await.is_err() {
            // The listening task has ended, so no signal will come.
            std::future::pending::<()>().await;
        }
    }
}

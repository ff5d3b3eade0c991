//! The gateway's phase: serving, draining or closing. Every module can read the phase; it only ever advances.

use tokio::sync::watch;

/// A phase of the gateway. A later variant is a later phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GatewayPhase {
    /// New requests are accepted.
    Serving,
    /// New requests are refused; those in flight may finish.
    Draining,
    /// The time for draining is up, and requests in flight are cut off.
    Closing,
}

/// Holds the gateway's current phase.
#[derive(Debug)]
pub struct GatewayLifecycle {
    stage: watch::Sender<GatewayPhase>,
}

impl Default for GatewayLifecycle {
    fn default() -> Self {
        Self { stage: watch::Sender::new(GatewayPhase::Serving) }
    }
}

impl GatewayLifecycle {
    /// Returns the gateway's current phase.
    pub fn now(&self) -> GatewayPhase {
        *self.stage.borrow()
    }

    /// Returns true if the gateway accepts new requests, as `/readyz` reports.
    pub fn is_serving(&self) -> bool {
        self.now() == GatewayPhase::Serving
    }

    /// Advances to a later phase. Does nothing if `to` is not later than the current phase.
    pub fn advance(&self, to: GatewayPhase) {
        self.stage.send_if_modified(|stage| {
            let later = to > *stage;
            if later {
                *stage = to;
            }
            later
        });
    }

    /// Returns a receiver that sees the current phase and every later one.
    pub fn watch(&self) -> watch::Receiver<GatewayPhase> {
        self.stage.subscribe()
    }
}

//! Whether the gateway serves, drains or closes: a word that everybody may read, and that only goes forward.

use tokio::sync::watch;

/// What the gateway is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It takes requests.
    Serving,
    /// It takes none; what is in flight may finish.
    Draining,
    /// Time is up: what is still in flight is cut off.
    Closing,
}

/// The stage that the gateway is in.
#[derive(Debug)]
pub struct Phase {
    stage: watch::Sender<Stage>,
}

impl Phase {
    pub(crate) fn new() -> Self {
        Self { stage: watch::Sender::new(Stage::Serving) }
    }

    /// The stage now.
    pub fn now(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Whether it takes requests: what `/readyz` says.
    pub fn is_serving(&self) -> bool {
        self.now() == Stage::Serving
    }

    /// Goes on to a later stage. An earlier one changes nothing.
    pub(crate) fn advance(&self, to: Stage) {
        self.stage.send_if_modified(|stage| {
            let later = to > *stage;
            if later {
                *stage = to;
            }
            later
        });
    }

    /// Hears of every later stage.
    pub(crate) fn watch(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }
}

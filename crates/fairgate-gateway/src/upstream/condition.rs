//! How a backend is doing: its health checks, and a circuit breaker over the requests sent to it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fairgate_config::BreakerConfig;
use tokio::sync::Notify;
use tokio::time::Instant;

/// What is known of a backend. Whoever learns something says so; the watcher passes on what follows from it.
pub(crate) struct Condition {
    breaker: BreakerConfig,
    inner: Mutex<Inner>,
    /// Rung when the standing may have changed.
    pub(super) changed: Notify,
}

struct Inner {
    healthy: bool,
    circuit: Circuit,
    /// Rises when the circuit changes: what was sent before says nothing about what is now.
    epoch: u64,
    /// When its health is asked for next.
    next_check: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Circuit {
    /// Requests go through; so many in a row have failed.
    Closed { failures: u32 },
    /// It is left alone until then.
    Open { until: Instant },
    /// One request at a time may try.
    Trial,
}

/// Where a backend stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It takes requests.
    Up,
    /// Its health checks fail.
    Unhealthy,
    /// Requests have failed on it, and it is left alone for a while.
    Broken,
    /// It was broken, and one request may try it.
    Trial,
}

/// The circuit as it was when a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

impl Condition {
    pub(super) fn new(breaker: BreakerConfig) -> Self {
        let circuit = Circuit::Closed { failures: 0 };
        let inner = Inner { healthy: true, circuit, epoch: 0, next_check: None };
        Self { breaker, inner: Mutex::new(inner), changed: Notify::new() }
    }

    /// To be remembered with a request that is about to be sent.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.lock().epoch)
    }

    /// The head of an answer came: one that was tried is back.
    pub(crate) fn answers(&self, epoch: Epoch) {
        let mut inner = self.lock();
        if inner.epoch == epoch.0 && inner.circuit == Circuit::Trial {
            self.turn(&mut inner, Circuit::Closed { failures: 0 });
        }
    }

    /// An answer came to its end: failures are no more in a row.
    pub(crate) fn succeeded(&self, epoch: Epoch) {
        let mut inner = self.lock();
        if inner.epoch == epoch.0
            && let Circuit::Closed { failures } = &mut inner.circuit
        {
            *failures = 0;
        }
    }

    /// A request failed on it.
    pub(crate) fn failed(&self, epoch: Epoch) {
        let mut inner = self.lock();
        if inner.epoch != epoch.0 {
            return;
        }
        match &mut inner.circuit {
            Circuit::Closed { failures } => {
                *failures = failures.saturating_add(1);
                if *failures >= self.breaker.failures {
                    self.open(&mut inner);
                }
            }
            Circuit::Trial => self.open(&mut inner),
            Circuit::Open { .. } => {}
        }
    }

    /// A health check said so.
    pub(super) fn set_healthy(&self, healthy: bool) {
        let mut inner = self.lock();
        if inner.healthy != healthy {
            inner.healthy = healthy;
            self.changed.notify_one();
        }
    }

    /// Its health will be asked for then.
    pub(super) fn checked_next_at(&self, at: Instant) {
        self.lock().next_check = Some(at);
    }

    /// When it may be well again at the earliest; `None` where it is not known to be unwell.
    pub(crate) fn tried_again_at(&self) -> Option<Instant> {
        let inner = self.lock();
        let closes = match inner.circuit {
            Circuit::Open { until } => Some(until),
            _ => None,
        };
        closes.max(inner.next_check.filter(|_| !inner.healthy))
    }

    /// Where it stands, and until when that holds if nothing happens.
    pub(super) fn look(&self, now: Instant) -> (Standing, Option<Instant>) {
        let mut inner = self.lock();
        if let Circuit::Open { until } = inner.circuit
            && until <= now
        {
            self.turn(&mut inner, Circuit::Trial);
        }
        let standing = inner.standing();
        match inner.circuit {
            Circuit::Open { until } => (standing, Some(until)),
            _ => (standing, None),
        }
    }

    /// Where it stands.
    pub(crate) fn standing(&self) -> Standing {
        self.lock().standing()
    }

    fn open(&self, inner: &mut Inner) {
        self.turn(inner, Circuit::Open { until: Instant::now() + self.breaker.open_for });
    }

    fn turn(&self, inner: &mut Inner, circuit: Circuit) {
        inner.circuit = circuit;
        inner.epoch += 1;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is one assignment.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn standing(&self) -> Standing {
        match (self.healthy, self.circuit) {
            (false, _) => Standing::Unhealthy,
            (true, Circuit::Closed { .. }) => Standing::Up,
            (true, Circuit::Open { .. }) => Standing::Broken,
            (true, Circuit::Trial) => Standing::Trial,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn condition() -> Condition {
        Condition::new(BreakerConfig { failures: 2, open_for: Duration::from_secs(10) })
    }

    #[tokio::test(start_paused = true)]
    async fn it_breaks_after_failures_in_a_row_and_is_tried_once_again() {
        let condition = condition();
        let epoch = condition.epoch();
        condition.failed(epoch);
        condition.succeeded(epoch);
        condition.failed(epoch);
        assert_eq!(condition.standing(), Standing::Up);
        condition.failed(epoch);
        let until = Instant::now() + Duration::from_secs(10);
        assert_eq!(condition.look(Instant::now()), (Standing::Broken, Some(until)));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(condition.look(Instant::now()), (Standing::Trial, None));
        condition.failed(condition.epoch());
        assert_eq!(condition.standing(), Standing::Broken);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(condition.look(Instant::now()), (Standing::Trial, None));
        condition.answers(condition.epoch());
        assert_eq!(condition.standing(), Standing::Up);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_sent_before_it_broke_says_nothing_about_the_trial() {
        let condition = condition();
        let old = condition.epoch();
        condition.failed(old);
        condition.failed(old);
        tokio::time::advance(Duration::from_secs(10)).await;
        condition.look(Instant::now());
        condition.answers(old);
        condition.failed(old);
        assert_eq!(condition.standing(), Standing::Trial);
    }

    #[test]
    fn bad_health_hides_everything_else() {
        let condition = condition();
        condition.set_healthy(false);
        assert_eq!(condition.standing(), Standing::Unhealthy);
        condition.set_healthy(true);
        assert_eq!(condition.standing(), Standing::Up);
    }
}

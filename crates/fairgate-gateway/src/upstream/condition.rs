//! How a backend is doing: its health checks, a circuit breaker over the connections to it, and a suspicion that failing
//! requests raise.
//!
//! A connection that cannot be made speaks against the backend, whoever wanted it. An answer that fails may be the
//! request's own fault: a server that answers 500 to an image it cannot read is well. So failed answers open no circuit by
//! themselves. They raise a suspicion, where enough of the last attempts failed and not for one tenant alone; then the
//! backend is asked (`probe.rs`), and its own answer decides.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fairgate_config::BreakerConfig;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many attempts are remembered.
const ATTEMPTS: usize = 20;

/// What is known of a backend. Whoever learns something says so; the watcher passes on what follows from it.
pub(crate) struct Condition {
    breaker: BreakerConfig,
    inner: Mutex<Inner>,
    /// Tells tenants apart without keeping their names.
    names: RandomState,
    /// Rung when the standing may have changed.
    pub(super) changed: Notify,
    /// Rung when the backend is to be asked whether it is well.
    pub(super) suspected: Notify,
}

struct Inner {
    healthy: bool,
    circuit: Circuit,
    /// Rises when the circuit changes: what was sent before says nothing about what is now.
    epoch: u64,
    /// When its health is asked for next.
    next_check: Option<Instant>,
    /// The last attempts that reached it, oldest first.
    attempts: VecDeque<Attempt>,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    tenant: u64,
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Circuit {
    /// Requests go through; so many connections in a row have failed.
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
    /// It cannot be reached or answers nobody, and is left alone for a while.
    Broken,
    /// It was broken, and one request may try it.
    Trial,
}

/// The circuit as it was when a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u64);

impl Condition {
    pub(super) fn new(breaker: BreakerConfig) -> Self {
        let inner = Inner {
            healthy: true,
            circuit: Circuit::Closed { failures: 0 },
            epoch: 0,
            next_check: None,
            attempts: VecDeque::new(),
        };
        Self {
            breaker,
            inner: Mutex::new(inner),
            names: RandomState::new(),
            changed: Notify::new(),
            suspected: Notify::new(),
        }
    }

    /// To be remembered with a request that is about to be sent.
    pub(crate) fn epoch(&self) -> Epoch {
        Epoch(self.lock().epoch)
    }

    /// The head of an answer came that is no failure: one that was tried is back.
    pub(crate) fn answers(&self, epoch: Epoch) {
        let mut inner = self.lock();
        if inner.epoch == epoch.0 && inner.circuit == Circuit::Trial {
            self.turn(&mut inner, Circuit::Closed { failures: 0 });
        }
    }

    /// An answer to a tenant came to its end as it should.
    pub(crate) fn succeeded(&self, epoch: Epoch, tenant: &str) {
        let mut inner = self.lock();
        if inner.epoch == epoch.0 {
            if let Circuit::Closed { failures } = &mut inner.circuit {
                *failures = 0;
            }
            inner.note(Attempt { tenant: self.names.hash_one(tenant), failed: false });
        }
    }

    /// No connection, or one that was fresh and broke before it gave anything back: the backend's own fault. Says whether
    /// that opened the circuit.
    pub(crate) fn unreachable(&self, epoch: Epoch) -> bool {
        let mut inner = self.lock();
        if inner.epoch != epoch.0 {
            return false;
        }
        match &mut inner.circuit {
            Circuit::Closed { failures } => {
                *failures = failures.saturating_add(1);
                if *failures < self.breaker.failures {
                    return false;
                }
            }
            Circuit::Trial => {}
            Circuit::Open { .. } => return false,
        }
        self.open(&mut inner);
        true
    }

    /// It answered a tenant's request with an error of its own, or not in time, or not to the end. Whose fault that is, is
    /// not known yet.
    pub(crate) fn failed(&self, epoch: Epoch, tenant: &str) {
        let mut inner = self.lock();
        if inner.epoch != epoch.0 {
            return;
        }
        inner.note(Attempt { tenant: self.names.hash_one(tenant), failed: true });
        if inner.circuit == Circuit::Trial || inner.is_suspect(self.breaker.failures) {
            self.suspected.notify_one();
        }
    }

    /// What it answered when it was asked because of a suspicion.
    pub(super) fn probed(&self, well: bool) {
        let mut inner = self.lock();
        inner.attempts.clear();
        match (well, inner.circuit) {
            (true, Circuit::Trial) => self.turn(&mut inner, Circuit::Closed { failures: 0 }),
            (true, _) | (false, Circuit::Open { .. }) => {}
            (false, _) => self.open(&mut inner),
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
        inner.attempts.clear();
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

    fn note(&mut self, attempt: Attempt) {
        if self.attempts.len() == ATTEMPTS {
            self.attempts.pop_front();
        }
        self.attempts.push_back(attempt);
    }

    /// Whether so many of the last attempts failed that it may not be the requests' fault: at least `least`, more than
    /// half, and for two tenants or for the only one there is.
    fn is_suspect(&self, least: u32) -> bool {
        let failed: Vec<u64> =
            self.attempts.iter().filter(|one| one.failed).map(|one| one.tenant).collect();
        let Some(first) = failed.first() else { return false };
        let is_one_of_many = failed.iter().all(|tenant| tenant == first)
            && self.attempts.iter().any(|one| one.tenant != *first);
        failed.len() >= least as usize && 2 * failed.len() > self.attempts.len() && !is_one_of_many
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn condition() -> Condition {
        Condition::new(BreakerConfig { failures: 2, open_for: Duration::from_secs(10) })
    }

    /// Whether it is to be asked how it is.
    async fn is_suspected(condition: &Condition) -> bool {
        tokio::time::timeout(Duration::ZERO, condition.suspected.notified()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn it_breaks_after_connections_that_failed_in_a_row_and_is_tried_once_again() {
        let condition = condition();
        let epoch = condition.epoch();
        assert!(!condition.unreachable(epoch));
        condition.succeeded(epoch, "a");
        assert!(!condition.unreachable(epoch));
        assert_eq!(condition.standing(), Standing::Up);
        assert!(condition.unreachable(epoch));
        let until = Instant::now() + Duration::from_secs(10);
        assert_eq!(condition.look(Instant::now()), (Standing::Broken, Some(until)));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(condition.look(Instant::now()), (Standing::Trial, None));
        assert!(condition.unreachable(condition.epoch()));
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
        condition.unreachable(old);
        condition.unreachable(old);
        tokio::time::advance(Duration::from_secs(10)).await;
        condition.look(Instant::now());
        condition.answers(old);
        condition.unreachable(old);
        condition.failed(old, "a");
        assert_eq!(condition.standing(), Standing::Trial);
        assert!(!is_suspected(&condition).await);
    }

    #[tokio::test(start_paused = true)]
    async fn one_tenant_of_several_raises_no_suspicion_however_often_it_fails() {
        let condition = condition();
        let epoch = condition.epoch();
        condition.succeeded(epoch, "victim");
        for _ in 0..18 {
            condition.failed(epoch, "attacker");
        }
        assert!(!is_suspected(&condition).await);
        condition.failed(epoch, "victim");
        assert!(is_suspected(&condition).await);
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_attempts_is_not_enough() {
        let condition = condition();
        let epoch = condition.epoch();
        for _ in 0..ATTEMPTS {
            condition.succeeded(epoch, "a");
        }
        for tenant in ["a", "b", "a", "b", "a", "b", "a", "b", "a", "b"] {
            condition.failed(epoch, tenant);
        }
        assert!(!is_suspected(&condition).await);
        condition.failed(epoch, "a");
        assert!(is_suspected(&condition).await);
    }

    #[tokio::test(start_paused = true)]
    async fn its_own_answer_decides() {
        let condition = condition();
        let epoch = condition.epoch();
        condition.failed(epoch, "alone");
        condition.failed(epoch, "alone");
        assert!(is_suspected(&condition).await);
        condition.probed(true);
        assert_eq!(condition.standing(), Standing::Up);
        // What made it suspect is forgotten.
        condition.failed(epoch, "alone");
        assert!(!is_suspected(&condition).await);
        condition.failed(epoch, "alone");
        assert!(is_suspected(&condition).await);
        condition.probed(false);
        assert_eq!(condition.standing(), Standing::Broken);
        // A request that fails while it is tried says nothing either.
        tokio::time::advance(Duration::from_secs(10)).await;
        condition.look(Instant::now());
        condition.failed(condition.epoch(), "alone");
        assert_eq!(condition.standing(), Standing::Trial);
        assert!(is_suspected(&condition).await);
        condition.probed(true);
        assert_eq!(condition.standing(), Standing::Up);
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

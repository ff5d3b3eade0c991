//! The condition of an upstream: the result of the health checks, a circuit breaker that counts
//! failed connections, and a suspicion after failed requests.
//!
//! A connection that cannot be made counts against the upstream, whichever request needed it. Once
//! a request was sent, the request itself may be the cause of its failure. For example, a server
//! that answers 500 to an image that it cannot read is healthy, and so is one whose handler resets
//! the connection. A connection that breaks before the head of the answer, and an answer that is
//! not HTTP, therefore count as failed answers, like a server error.
//!
//! Failed answers alone do not open the circuit. They cause a suspicion if more than half of the
//! last attempts failed, and if not all failed ones belong to one tenant while other tenants have
//! attempts too. Then the upstream is probed (`health.rs`), and the result of the probe decides.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fairgate_config::BreakerConfig;
use fairgate_time::{UnixMicros, wall_clock};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Number of recent attempts that are remembered.
const ATTEMPTS: usize = 20;

/// The condition of an upstream. Observers record events here; the watcher reports the standing
/// that follows.
pub(crate) struct UpstreamCondition {
    breaker: BreakerConfig,
    inner: Mutex<UpstreamConditionState>,
    /// Seed of the hashes that distinguish tenants, so that their names need not be kept.
    names: RandomState,
    /// Notified when the standing may have changed.
    pub(super) changed: Notify,
    /// Notified when the upstream is to be probed.
    pub(super) suspected: Notify,
}

struct UpstreamConditionState {
    healthy: bool,
    circuit: CircuitState,
    /// Number of changes of the circuit. Results of requests that were sent before the last change are ignored.
    epoch: u64,
    /// Time of the next health check.
    next_check: Option<ShownInstant>,
    /// Time since which the standing is not [`UpstreamStanding::Up`]; `None` while it is.
    down_since: Option<UnixMicros>,
    /// Latest attempts that reached the upstream, oldest first.
    attempts: VecDeque<RecentAttempt>,
}

#[derive(Clone, Copy, Debug)]
struct RecentAttempt {
    tenant: u64,
    failed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CircuitState {
    /// Requests pass. `failures` is the number of failed connections in a row.
    Closed { failures: u32 },
    /// No requests pass until this time.
    Open { until: ShownInstant },
    /// One request at a time may pass, as a trial.
    Trial,
}

/// A future time on two clocks. The time of day is computed once, so that all views show the same
/// value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShownInstant {
    instant: Instant,
    time_of_day: UnixMicros,
}

impl ShownInstant {
    fn of(instant: Instant) -> Self {
        let left = instant.saturating_duration_since(Instant::now());
        let left = i64::try_from(left.as_micros()).unwrap_or(i64::MAX);
        Self { instant, time_of_day: UnixMicros(wall_clock::now().0.saturating_add(left)) }
    }
}

/// The period in which an upstream takes no requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamOutage {
    /// Time since which the health checks fail or the circuit is not closed.
    pub since: UnixMicros,
    /// Time at which the upstream is tried again; `None` if the next request tries it at once.
    pub retry_at: Option<UnixMicros>,
}

/// Standing of an upstream, which decides whether it takes requests. It follows from the health
/// checks and the circuit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamStanding {
    /// The upstream takes requests.
    Up,
    /// The health checks fail, whatever the state of the circuit is.
    Unhealthy,
    /// The upstream cannot be reached or failed its probe, and gets no requests while the circuit is open.
    Broken,
    /// The upstream was broken, and one request at a time may try it.
    Trial,
}

/// Number of changes of the circuit at the time when a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CircuitEpoch(u64);

impl UpstreamCondition {
    pub(super) fn new(breaker: BreakerConfig) -> Self {
        let inner = UpstreamConditionState {
            healthy: true,
            circuit: CircuitState::Closed { failures: 0 },
            epoch: 0,
            next_check: None,
            down_since: None,
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

    /// Returns the current epoch, to be kept with a request that is about to be sent.
    pub(crate) fn epoch(&self) -> CircuitEpoch {
        CircuitEpoch(self.lock().epoch)
    }

    /// Records the head of an answer that is not a failure. If the upstream is on trial, this ends the trial
    /// successfully.
    pub(crate) fn record_answer_head(&self, epoch: CircuitEpoch) {
        let mut inner = self.lock();
        if inner.epoch == epoch.0 && inner.circuit == CircuitState::Trial {
            self.set_circuit(&mut inner, CircuitState::Closed { failures: 0 });
        }
    }

    /// Records that an answer to a tenant completed.
    pub(crate) fn record_success(&self, epoch: CircuitEpoch, tenant: &str) {
        let mut inner = self.lock();
        if inner.epoch == epoch.0 {
            if let CircuitState::Closed { failures } = &mut inner.circuit {
                *failures = 0;
            }
            inner.note(RecentAttempt { tenant: self.names.hash_one(tenant), failed: false });
        }
    }

    /// Records that no connection could be made, which is the upstream's own fault. Returns true if this opened the
    /// circuit.
    pub(crate) fn record_unreachable(&self, epoch: CircuitEpoch) -> bool {
        let mut inner = self.lock();
        if inner.epoch != epoch.0 {
            return false;
        }
        match &mut inner.circuit {
            CircuitState::Closed { failures } => {
                *failures = failures.saturating_add(1);
                if *failures < self.breaker.failures {
                    return false;
                }
            }
            CircuitState::Trial => {}
            CircuitState::Open { .. } => return false,
        }
        self.open(&mut inner);
        true
    }

    /// Records that a tenant's request got a server error or an invalid answer, timed out or broke
    /// off. It is not known yet whether the request or the upstream is the cause.
    pub(crate) fn record_failure(&self, epoch: CircuitEpoch, tenant: &str) {
        let mut inner = self.lock();
        if inner.epoch != epoch.0 {
            return;
        }
        inner.note(RecentAttempt { tenant: self.names.hash_one(tenant), failed: true });
        if inner.circuit == CircuitState::Trial || inner.is_suspect(self.breaker.failures) {
            self.suspected.notify_one();
        }
    }

    /// Records the result of a probe.
    pub(super) fn record_probe(&self, well: bool) {
        let mut inner = self.lock();
        inner.attempts.clear();
        match (well, inner.circuit) {
            (true, CircuitState::Trial) => {
                self.set_circuit(&mut inner, CircuitState::Closed { failures: 0 })
            }
            (true, _) | (false, CircuitState::Open { .. }) => {}
            (false, _) => self.open(&mut inner),
        }
    }

    /// Records the result of the health checks.
    pub(super) fn set_healthy(&self, healthy: bool) {
        let mut inner = self.lock();
        if inner.healthy != healthy {
            inner.healthy = healthy;
            inner.note_standing();
            self.changed.notify_one();
        }
    }

    /// Sets the time of the next health check.
    pub(super) fn set_next_check(&self, at: Instant) {
        self.lock().next_check = Some(ShownInstant::of(at));
    }

    /// Returns the earliest time at which the upstream may be healthy again; `None` if no failure
    /// is known.
    pub(crate) fn tried_again_at(&self) -> Option<Instant> {
        self.lock().next_try().map(|at| at.instant)
    }

    /// Returns the period in which the upstream takes no requests; `None` if it takes them.
    pub(crate) fn outage(&self) -> Option<UpstreamOutage> {
        let inner = self.lock();
        let retry_at = inner.next_try().map(|at| at.time_of_day);
        inner.down_since.map(|since| UpstreamOutage { since, retry_at })
    }

    /// Returns the standing. Also returns the time at which the standing changes without any event;
    /// `None` if there is no such time. Begins a trial if the circuit has been open long enough.
    pub(super) fn update_standing(&self, now: Instant) -> (UpstreamStanding, Option<Instant>) {
        let mut inner = self.lock();
        if let CircuitState::Open { until } = inner.circuit
            && until.instant <= now
        {
            self.set_circuit(&mut inner, CircuitState::Trial);
        }
        let standing = inner.standing();
        match inner.circuit {
            CircuitState::Open { until } => (standing, Some(until.instant)),
            _ => (standing, None),
        }
    }

    /// Returns the current standing.
    pub(crate) fn standing(&self) -> UpstreamStanding {
        self.lock().standing()
    }

    fn open(&self, inner: &mut UpstreamConditionState) {
        let until = ShownInstant::of(Instant::now() + self.breaker.open_for);
        self.set_circuit(inner, CircuitState::Open { until });
    }

    fn set_circuit(&self, inner: &mut UpstreamConditionState, circuit: CircuitState) {
        inner.circuit = circuit;
        inner.epoch += 1;
        inner.note_standing();
        inner.attempts.clear();
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, UpstreamConditionState> {
        // Every change is one assignment, so poison is harmless.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UpstreamConditionState {
    fn standing(&self) -> UpstreamStanding {
        match (self.healthy, self.circuit) {
            (false, _) => UpstreamStanding::Unhealthy,
            (true, CircuitState::Closed { .. }) => UpstreamStanding::Up,
            (true, CircuitState::Open { .. }) => UpstreamStanding::Broken,
            (true, CircuitState::Trial) => UpstreamStanding::Trial,
        }
    }

    /// Updates the time since which the upstream takes no requests.
    fn note_standing(&mut self) {
        self.down_since = match self.standing() {
            UpstreamStanding::Up => None,
            _ => Some(self.down_since.unwrap_or_else(wall_clock::now)),
        };
    }

    /// Returns the end of the open circuit, or the time of the next check after a failed one,
    /// whichever is later.
    fn next_try(&self) -> Option<ShownInstant> {
        let closes = match self.circuit {
            CircuitState::Open { until } => Some(until),
            _ => None,
        };
        let checked = self.next_check.filter(|_| !self.healthy);
        closes.into_iter().chain(checked).max_by_key(|at| at.instant)
    }

    fn note(&mut self, attempt: RecentAttempt) {
        if self.attempts.len() == ATTEMPTS {
            self.attempts.pop_front();
        }
        self.attempts.push_back(attempt);
    }

    /// Returns true if the upstream is probably the cause of the failures, and not the requests: at
    /// least `least` of the kept attempts failed, and these are more than half of the kept
    /// attempts. If all failures belong to one tenant, the result is true only if no other tenant
    /// has a kept attempt.
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

    fn condition() -> UpstreamCondition {
        UpstreamCondition::new(BreakerConfig { failures: 2, open_for: Duration::from_secs(10) })
    }

    /// Returns true if a probe of the upstream was requested.
    async fn suspected(condition: &UpstreamCondition) -> bool {
        tokio::time::timeout(Duration::ZERO, condition.suspected.notified()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn it_breaks_after_connections_that_failed_in_a_row_and_is_tried_once_again() {
        let condition = condition();
        let epoch = condition.epoch();
        assert!(!condition.record_unreachable(epoch));
        condition.record_success(epoch, "a");
        assert!(!condition.record_unreachable(epoch));
        assert_eq!(condition.standing(), UpstreamStanding::Up);
        assert!(condition.record_unreachable(epoch));
        let until = Instant::now() + Duration::from_secs(10);
        assert_eq!(
            condition.update_standing(Instant::now()),
            (UpstreamStanding::Broken, Some(until))
        );
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(condition.update_standing(Instant::now()), (UpstreamStanding::Trial, None));
        assert!(condition.record_unreachable(condition.epoch()));
        assert_eq!(condition.standing(), UpstreamStanding::Broken);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(condition.update_standing(Instant::now()), (UpstreamStanding::Trial, None));
        condition.record_answer_head(condition.epoch());
        assert_eq!(condition.standing(), UpstreamStanding::Up);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_sent_before_it_broke_says_nothing_about_the_trial() {
        let condition = condition();
        let old = condition.epoch();
        condition.record_unreachable(old);
        condition.record_unreachable(old);
        tokio::time::advance(Duration::from_secs(10)).await;
        condition.update_standing(Instant::now());
        condition.record_answer_head(old);
        condition.record_unreachable(old);
        condition.record_failure(old, "a");
        assert_eq!(condition.standing(), UpstreamStanding::Trial);
        assert!(!suspected(&condition).await);
    }

    #[tokio::test(start_paused = true)]
    async fn one_tenant_of_several_raises_no_suspicion_however_often_it_fails() {
        let condition = condition();
        let epoch = condition.epoch();
        condition.record_success(epoch, "victim");
        for _ in 0..18 {
            condition.record_failure(epoch, "attacker");
        }
        assert!(!suspected(&condition).await);
        condition.record_failure(epoch, "victim");
        assert!(suspected(&condition).await);
    }

    #[tokio::test(start_paused = true)]
    async fn half_of_the_attempts_is_not_enough() {
        let condition = condition();
        let epoch = condition.epoch();
        for _ in 0..ATTEMPTS {
            condition.record_success(epoch, "a");
        }
        for tenant in ["a", "b", "a", "b", "a", "b", "a", "b", "a", "b"] {
            condition.record_failure(epoch, tenant);
        }
        assert!(!suspected(&condition).await);
        condition.record_failure(epoch, "a");
        assert!(suspected(&condition).await);
    }

    #[tokio::test(start_paused = true)]
    async fn its_own_answer_decides() {
        let condition = condition();
        let epoch = condition.epoch();
        condition.record_failure(epoch, "alone");
        condition.record_failure(epoch, "alone");
        assert!(suspected(&condition).await);
        condition.record_probe(true);
        assert_eq!(condition.standing(), UpstreamStanding::Up);
        // What made it suspect is forgotten.
        condition.record_failure(epoch, "alone");
        assert!(!suspected(&condition).await);
        condition.record_failure(epoch, "alone");
        assert!(suspected(&condition).await);
        condition.record_probe(false);
        assert_eq!(condition.standing(), UpstreamStanding::Broken);
        // A request that fails while it is tried says nothing either.
        tokio::time::advance(Duration::from_secs(10)).await;
        condition.update_standing(Instant::now());
        condition.record_failure(condition.epoch(), "alone");
        assert_eq!(condition.standing(), UpstreamStanding::Trial);
        assert!(suspected(&condition).await);
        condition.record_probe(true);
        assert_eq!(condition.standing(), UpstreamStanding::Up);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_has_one_beginning_and_names_the_next_try() {
        let condition = condition();
        assert_eq!(condition.outage(), None);
        let before = wall_clock::now().0;
        condition.record_unreachable(condition.epoch());
        assert_eq!(condition.outage(), None, "one failure is no outage");
        condition.record_unreachable(condition.epoch());
        let first = condition.outage().expect("the circuit is open");
        assert!((before..=wall_clock::now().0).contains(&first.since.0), "{first:?}");
        let left = first.retry_at.expect("it is tried again").0 - first.since.0;
        assert!((9_000_000..=11_000_000).contains(&left), "tried again after {left} µs");
        assert_eq!(condition.outage(), Some(first), "every view shows the same times");
        tokio::time::advance(Duration::from_secs(10)).await;
        condition.update_standing(Instant::now());
        let trial = UpstreamOutage { retry_at: None, ..first };
        assert_eq!(condition.outage(), Some(trial), "the next request tries it");
        condition.record_unreachable(condition.epoch());
        let again = condition.outage().expect("the trial failed");
        assert_eq!(again.since, first.since);
        assert!(again.retry_at.is_some());
        tokio::time::advance(Duration::from_secs(10)).await;
        condition.update_standing(Instant::now());
        condition.record_answer_head(condition.epoch());
        assert_eq!(condition.outage(), None);
        condition.set_healthy(false);
        condition.set_next_check(Instant::now() + Duration::from_secs(5));
        assert!(condition.outage().is_some_and(|outage| outage.retry_at.is_some()));
    }

    #[test]
    fn bad_health_hides_everything_else() {
        let condition = condition();
        condition.set_healthy(false);
        assert_eq!(condition.standing(), UpstreamStanding::Unhealthy);
        condition.set_healthy(true);
        assert_eq!(condition.standing(), UpstreamStanding::Up);
    }
}

//! Computes the longest wait for a slot from the request's deadline and its pool's `queue_timeout`.
//!
//! The deadline is the one that the request states, else that of its key, else that of its class. It counts from the
//! arrival of the request, across all of its attempts. A request in flight is never cut off because of it.
//!
//! In an `edf` queue the earliest deadline goes first, so a client could get ahead by stating a
//! short deadline. There a request may therefore state no deadline shorter than its key's
//! `deadline_min`. If the key has none, the bound is the shorter of the deadlines of its key and
//! its class. If neither has one, the bound is the pool's `queue_timeout`.

use std::time::Duration;

use fairgate_core::policy::QueueOrder;
use fairgate_core::units::Micros;
use tokio::time::Instant;

use super::request_checks;
use super::request_guard::RequestIn;
use super::stage::AcceptedRequest;
use crate::refusal::{self, DeadlineSource, Refusal};

/// The time until which a request may wait for a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestDeadline {
    at: Instant,
    /// The deadline as a duration from the request's arrival.
    allowed: Duration,
    source: DeadlineSource,
}

/// The longest wait of one submit of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubmitTimeout {
    pub(super) timeout: Micros,
    /// The request's own deadline, if it comes before the pool's `queue_timeout` ends.
    own: Option<RequestDeadline>,
}

impl RequestDeadline {
    /// Returns the deadline of a request; `None` if neither the request nor its key nor its class has one. Refuses a
    /// stated deadline that the key does not allow.
    pub(super) fn of(
        accepted: &RequestIn<'_, AcceptedRequest>,
        stated: Option<Duration>,
    ) -> Result<Option<Self>, Refusal> {
        let arrival = accepted.arrival();
        let setup = accepted.pool.setup();
        let rights = &arrival.caller.rights;
        let class = accepted.terms.class.as_deref();
        let of_key = rights.deadline_ms.map(Duration::from_millis);
        let of_class = class.and_then(|class| setup.config.class_deadlines.get(class)).copied();
        if let Some(stated) = stated.filter(|_| setup.has_edf_queues) {
            let attributes = request_checks::attributes(arrival, accepted, &setup);
            let queue = setup.config.policy.queue_of(|by| attributes.get(by));
            let least = rights.deadline_min_ms.map(Duration::from_millis);
            let unstated = of_key.into_iter().chain(of_class).min();
            let least = least.or(unstated).unwrap_or(setup.config.queue_timeout);
            if queue.order == QueueOrder::Edf && stated < least {
                return Err(refusal::forbidden_deadline(stated, least));
            }
        }
        let by = |allowed: Option<Duration>, source| allowed.map(|allowed| (allowed, source));
        let deadline = by(stated, DeadlineSource::Request)
            .or(by(of_key, DeadlineSource::Key))
            .or(by(of_class, DeadlineSource::Class));
        Ok(deadline.map(|(allowed, source)| Self { at: arrival.at + allowed, allowed, source }))
    }

    /// Returns the refusal of a request whose deadline has passed.
    pub(super) fn passed(&self) -> Refusal {
        refusal::deadline_passed(self.allowed, self.source)
    }
}

impl SubmitTimeout {
    /// Returns the wait that is left from now: the shorter of the pool's `queue_timeout` and the rest of the request's
    /// own deadline. Refuses the request if nothing is left.
    pub(super) fn from_now(
        queue_timeout: Duration,
        deadline: Option<RequestDeadline>,
    ) -> Result<Self, Refusal> {
        let Some(deadline) = deadline else { return Ok(Self::new(queue_timeout, None)) };
        let left = deadline.at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(deadline.passed());
        }
        match left < queue_timeout {
            true => Ok(Self::new(left, Some(deadline))),
            false => Ok(Self::new(queue_timeout, None)),
        }
    }

    fn new(wait: Duration, own: Option<RequestDeadline>) -> Self {
        Self { timeout: Micros(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX)), own }
    }

    /// Returns the refusal of a request that waited this long, if its own deadline was the limit; `None` if the pool's
    /// `queue_timeout` was the limit.
    pub(super) fn own_refusal(&self) -> Option<Refusal> {
        self.own.map(|deadline| deadline.passed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deadline(allowed: Duration) -> Option<RequestDeadline> {
        Some(RequestDeadline {
            at: Instant::now() + allowed,
            allowed,
            source: DeadlineSource::Class,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn the_lesser_one_counts_from_arrival() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let pools = SubmitTimeout::from_now(minute, None).unwrap();
        assert_eq!((pools.timeout, pools.own.is_some()), (Micros(60_000_000), false));
        let own = deadline(second);
        tokio::time::advance(Duration::from_millis(400)).await;
        let left = SubmitTimeout::from_now(minute, own).unwrap();
        assert_eq!((left.timeout, left.own.is_some()), (Micros(600_000), true));
        let pools = SubmitTimeout::from_now(second / 2, own).unwrap();
        assert_eq!((pools.timeout, pools.own.is_some()), (Micros(500_000), false));
        tokio::time::advance(Duration::from_millis(600)).await;
        let refusal = SubmitTimeout::from_now(minute, own).unwrap_err();
        assert_eq!(
            (refusal.code.as_str(), refusal.code.is_retry_pointless()),
            ("deadline_passed", true)
        );
        assert_eq!(refusal.problem.status.as_u16(), 504);
    }
}

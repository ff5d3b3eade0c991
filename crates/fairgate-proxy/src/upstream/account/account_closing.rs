//! Decides when a model of a spent or blocked account is closed, and when it is opened again. If
//! all models share the account's limits, they are closed together.
//!
//! A refusal because of the credit or the key may concern only one request. For example, the credit
//! may be enough for a shorter answer, and a 401 may be about a tool of the request. If one such
//! answer closed the account, one tenant could stop all others. The answer is therefore only a
//! suspicion. The gateway then sends a request of its own, the probe, and closes the account only
//! if the provider refuses the probe too. A closed account is probed once a minute, and is opened
//! as soon as a probe is not refused.
//!
//! Tenants can cause probes, at most one a minute. The operator pays for them, and they are in the ledger.
//!
//! If the operator forbids probes, an account is closed when two tenants get such a refusal within
//! a minute, and is opened after five minutes. So two tenants together can close the account.
//!
//! Times are durations since a fixed moment, the same for all.

use std::sync::Arc;
use std::time::Duration;

use fairgate_dialect::Route;

/// Minimum time between two probes of an account.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(60);
/// Maximum time between the refusals of two tenants that together close an account without probes.
const SUSPECT_FOR: Duration = Duration::from_secs(60);
/// Time for which an account that was closed without a probe stays closed.
pub(super) const CLOSED_FOR: Duration = Duration::from_secs(300);

/// The model, pool, upstream and route of a request that the provider refused because the account is spent or blocked.
/// A probe repeats such a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProbeTarget {
    pub(crate) pool: Arc<str>,
    pub(crate) upstream: Arc<str>,
    /// The model, as clients name it.
    pub(crate) model: Arc<str>,
    pub(crate) route: Route,
}

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProbeOutcome {
    /// The provider refused the probe because the account is spent or blocked. The value is the provider's code.
    Refused(Arc<str>),
    /// The provider gave another answer, so the account is usable. A probe also has this result if a reload
    /// has removed the model or worker of its target.
    Usable,
    /// No answer came, or the answer does not show whether the account is usable.
    Unknown,
}

/// The state of an account's credit and key: open, suspect or closed.
#[derive(Debug, Default)]
pub(super) struct AccountClosing {
    closed: Option<ClosedAccount>,
    suspicion: Option<AccountSuspicion>,
    /// Target of the next probe of a suspect or closed account.
    target: Option<ProbeTarget>,
    /// Time at which the last probe was sent. A probe ends long before the next is due.
    probed_at: Option<Duration>,
}

#[derive(Debug)]
struct ClosedAccount {
    reason: Arc<str>,
    since: Duration,
}

/// The last refusal of a tenant's request while the account was open.
#[derive(Debug)]
struct AccountSuspicion {
    tenant: Arc<str>,
    at: Duration,
}

impl AccountClosing {
    /// Returns the provider's code if the account is closed.
    pub(super) fn reason(&self) -> Option<&Arc<str>> {
        self.closed.as_ref().map(|closed| &closed.reason)
    }

    /// Records that the provider refused a tenant's request because the account is spent or blocked. `probes` is false
    /// if the operator forbids probes. Returns true if this closes the account.
    pub(super) fn record_refusal(
        &mut self,
        tenant: &Arc<str>,
        reason: &str,
        target: ProbeTarget,
        probes: bool,
        now: Duration,
    ) -> bool {
        if self.closed.is_some() {
            // The request was sent before the account was closed.
            return false;
        }
        let is_confirmed = |last: &AccountSuspicion| {
            last.tenant != *tenant && now.saturating_sub(last.at) <= SUSPECT_FOR
        };
        let closes = !probes && self.suspicion.as_ref().is_some_and(is_confirmed);
        self.target = Some(target);
        self.suspicion = Some(AccountSuspicion { tenant: tenant.clone(), at: now });
        if closes {
            self.close(reason.into(), now);
        }
        closes
    }

    /// Returns true if a probe is due.
    pub(super) fn needs_probe(&self, probes: bool, now: Duration) -> bool {
        let is_wanted = probes && (self.closed.is_some() || self.suspicion.is_some());
        let is_early = self.probed_at.is_some_and(|at| now.saturating_sub(at) < PROBE_EVERY);
        is_wanted && !is_early
    }

    /// Returns the time at which the last probe was sent; `None` before the first.
    pub(super) fn probed_at(&self) -> Option<Duration> {
        self.probed_at
    }

    /// Returns the target of a probe if one is due, and counts the probe as sent. Its result must be recorded.
    pub(super) fn take_probe(&mut self, probes: bool, now: Duration) -> Option<ProbeTarget> {
        if !self.needs_probe(probes, now) {
            return None;
        }
        let target = self.target.clone()?;
        self.probed_at = Some(now);
        Some(target)
    }

    /// Records the result of a probe. Returns true if the account was closed or opened by it.
    pub(super) fn record_probe(&mut self, outcome: ProbeOutcome, now: Duration) -> bool {
        let was_closed = self.closed.is_some();
        match outcome {
            ProbeOutcome::Refused(reason) => self.close(reason, now),
            ProbeOutcome::Usable => *self = Self { probed_at: self.probed_at, ..Self::default() },
            // An open account stays open until the next refusal of a tenant's request.
            ProbeOutcome::Unknown => self.suspicion = None,
        }
        was_closed != self.closed.is_some()
    }

    /// Opens an account that was closed without a probe, once [`CLOSED_FOR`] has passed. Returns true if it was opened.
    pub(super) fn open_after_time(&mut self, probes: bool, now: Duration) -> bool {
        let is_over = |closed: &ClosedAccount| now.saturating_sub(closed.since) >= CLOSED_FOR;
        let opens = !probes && self.closed.as_ref().is_some_and(is_over);
        if opens {
            (self.closed, self.suspicion) = (None, None);
        }
        opens
    }

    fn close(&mut self, reason: Arc<str>, now: Duration) {
        self.suspicion = None;
        self.closed = Some(ClosedAccount { reason, since: now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn target() -> ProbeTarget {
        ProbeTarget {
            pool: "p".into(),
            upstream: "u".into(),
            model: "m".into(),
            route: Route::ChatCompletions,
        }
    }

    fn refuse(closing: &mut AccountClosing, tenant: &str, probes: bool, at: u64) -> bool {
        closing.record_refusal(&tenant.into(), "payment_required", target(), probes, seconds(at))
    }

    #[test]
    fn only_a_probe_closes_an_account_and_a_probe_opens_it() {
        let mut closing = AccountClosing::default();
        assert_eq!(closing.take_probe(true, seconds(0)), None, "nothing was refused");
        for tenant in ["one", "two", "three"] {
            assert!(!refuse(&mut closing, tenant, true, 1));
        }
        assert_eq!(closing.take_probe(true, seconds(1)), Some(target()));
        assert!(closing.record_probe(ProbeOutcome::Refused("spent".into()), seconds(2)));
        assert_eq!(closing.reason().map(|reason| &**reason), Some("spent"));
        assert_eq!(closing.take_probe(true, seconds(60)), None, "at most one a minute");
        assert!(!closing.open_after_time(true, seconds(10_000)), "only a probe opens it");
        assert!(closing.take_probe(true, seconds(61)).is_some());
        assert!(!closing.record_probe(ProbeOutcome::Unknown, seconds(62)), "stays closed");
        assert!(closing.take_probe(true, seconds(121)).is_some());
        assert!(closing.record_probe(ProbeOutcome::Usable, seconds(122)));
        assert_eq!(closing.reason(), None);
        assert_eq!(closing.take_probe(true, seconds(1000)), None, "an open account is not probed");
    }

    #[test]
    fn a_refusal_that_concerns_one_request_costs_at_most_one_probe_a_minute() {
        let mut closing = AccountClosing::default();
        let mut probes = 0;
        for at in 0..600 {
            assert!(!refuse(&mut closing, "one", true, at));
            if closing.take_probe(true, seconds(at)).is_some() {
                probes += 1;
                assert!(!closing.record_probe(ProbeOutcome::Usable, seconds(at)));
            }
            assert_eq!(closing.reason(), None);
        }
        assert_eq!(probes, 10);
    }

    #[test]
    fn without_probes_two_tenants_within_a_minute_close_it_for_five_minutes() {
        let mut closing = AccountClosing::default();
        assert!(!refuse(&mut closing, "one", false, 0));
        assert!(!refuse(&mut closing, "one", false, 10), "one tenant alone");
        assert!(!refuse(&mut closing, "two", false, 71), "more than a minute later");
        assert_eq!(closing.take_probe(false, seconds(72)), None);
        assert!(refuse(&mut closing, "one", false, 131));
        assert!(!closing.open_after_time(false, seconds(430)));
        assert!(closing.open_after_time(false, seconds(431)));
        assert!(!refuse(&mut closing, "two", false, 432), "it takes two again");
    }

    #[test]
    fn an_account_that_was_closed_before_probes_were_forbidden_is_opened_by_time() {
        let mut closing = AccountClosing::default();
        refuse(&mut closing, "one", true, 0);
        closing.take_probe(true, seconds(0));
        closing.record_probe(ProbeOutcome::Refused("spent".into()), seconds(1));
        assert_eq!(closing.take_probe(false, seconds(100)), None);
        assert!(closing.open_after_time(false, seconds(301)));
    }
}

//! Applies the reports of lease holders to an account. `lease_reports` decides which reports count
//! for all tenants.

use std::time::Duration;

use fairgate_dialect::quota::{self, PAUSE_FIRST, QuotaTicket};
use fairgate_dialect::rate_limit_headers::{LimitUnit, RateLimitHeaders};
use tokio::time::Instant;

use super::pause_recovery::PauseRecovery;
use super::{ProviderAccount, ProviderAccountState, ProviderPause};
use crate::worker_reporter::RemainingQuota;

/// The result of a refusal that the holder of a lease reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportedRefusal {
    pub(crate) pause: ProviderPause,
    /// True if the whole pool pauses; false if the report concerns its tenant alone.
    pub(crate) is_for_all: bool,
}

/// A refusal as the holder of a lease reports it.
pub(crate) enum LeaseRefusalReport<'a> {
    /// A rate limit was reached.
    Rate { ticket: QuotaTicket, told: &'a RateLimitHeaders, counted: Option<LimitUnit> },
    /// The provider is overloaded, independently of the account's limits.
    Overloaded,
}

impl ProviderAccount {
    /// Records that a tenant opens a lease. The reports of a tenant count for all only while it is
    /// the only active tenant. So if this tenant becomes the second active one, the limits and the
    /// pause that the first has reported are forgotten.
    pub(crate) fn record_lease_opened(&self, tenant: &str) {
        let mut inner = self.lock();
        let now = Instant::now();
        let span = inner.span(now);
        if inner.lease_reports.record_opened(tenant, span) {
            inner.forget_statements(now);
        }
    }

    /// Returns the time until which a tenant's new leases are refused, because this tenant alone has reported a limit.
    /// `None` if they are not refused.
    pub(crate) fn lease_limited_until(&self, tenant: &str) -> Option<Instant> {
        let inner = self.lock();
        let until = inner.lease_reports.limited_until(tenant, inner.span(Instant::now()))?;
        Some(inner.started + until)
    }

    /// Records the headers of an accepted call, as the holder of its lease reports them.
    pub(crate) fn record_lease_accepted(
        &self,
        tenant: &str,
        ticket: QuotaTicket,
        told: &RateLimitHeaders,
    ) {
        let believed = {
            let mut inner = self.lock();
            let span = inner.span(Instant::now());
            inner.lease_reports.confirm(tenant, told, span)
        };
        self.accepted(ticket, &believed);
    }

    /// Records that a provider has refused a call, as the holder of its lease reports it. `asked` is the wait that the
    /// provider asked for.
    pub(crate) fn record_lease_refused(
        &self,
        tenant: &str,
        report: &LeaseRefusalReport<'_>,
        asked: Option<Duration>,
    ) -> ReportedRefusal {
        let mut inner = self.lock();
        let now = Instant::now();
        let span = inner.span(now);
        let until = inner.lease_reports.record_refused(tenant, asked.unwrap_or(PAUSE_FIRST), span);
        let (counted, believed) = match report {
            LeaseRefusalReport::Rate { told, counted, .. } => {
                (*counted, inner.lease_reports.confirm(tenant, told, span))
            }
            LeaseRefusalReport::Overloaded => (None, RateLimitHeaders::default()),
        };
        let Some(until) = until else {
            let until = inner.lease_reports.limited_until(tenant, span).unwrap_or(span);
            let pause = inner.dated(quota::QuotaPause { until, counted, asked });
            return ReportedRefusal { pause, is_for_all: false };
        };
        if matches!(report, LeaseRefusalReport::Rate { .. }) {
            inner.recovery.record_refusal(span);
        }
        // If the provider asked for no time, the quota makes each pause longer than the one before.
        let asked = asked.map(|_| until.saturating_sub(span));
        let pause = inner.pause_as(now, |quota, now| match report {
            LeaseRefusalReport::Rate { ticket, counted, .. } => {
                quota.record_refused(*ticket, &believed, *counted, asked, now)
            }
            LeaseRefusalReport::Overloaded => quota.record_overloaded(asked, now),
        });
        inner.report_rates();
        ReportedRefusal { pause, is_for_all: true }
    }
}

impl ProviderAccountState {
    /// Forgets the limits and the pause that leases reported. Then only the rates of the
    /// configuration file apply.
    fn forget_statements(&mut self, now: Instant) {
        self.quota.forget_statements();
        self.recovery = PauseRecovery::default();
        self.report_rates();
        for reporter in self.members.iter().filter_map(|it| Some((it, it.reporter.upgrade()?))) {
            let (member, reporter) = reporter;
            reporter.pause_until(&member.worker, now, RemainingQuota::default());
        }
    }
}

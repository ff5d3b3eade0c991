//! Reports of lease holders about their provider, and the rule that decides which reports count for all tenants.
//!
//! The gateway does not see the calls of leases, so anybody who holds a lease can report a refusal
//! or a limit that did not happen. A report therefore concerns only the tenant that makes it, until
//! a second tenant reports the same:
//!
//! - A report of a refusal delays the tenant's new leases until the time that it states. The pool
//!   pauses until the second-latest of the times that the tenants report. This is the latest time
//!   that two tenants confirm.
//! - A limit or a remaining quota in headers counts for all only if another tenant has stated the
//!   same kind of limit a short time before. The higher of the two numbers counts.
//!
//! If only one tenant is active, its reports count at once, because no other tenant can be harmed.
//! A tenant is active for ten minutes after it has opened a lease or reported a refusal. When a
//! second tenant becomes active, the limits and the pause that the first has reported are
//! forgotten.
//!
//! This module decides only which reports are believed. At most 1024 tenants are remembered, each with at most one
//! refusal and one set of headers.

use std::collections::BTreeMap;
use std::time::Duration;

use fairgate_dialect::quota::PAUSE_MAX;
use fairgate_dialect::rate_limit_headers::{RateLimit, RateLimitHeaders};

/// Time for which a tenant counts as active after it has opened a lease or reported a refusal.
const PRESENT_FOR: Duration = Duration::from_secs(600);
/// Maximum age of another tenant's statement that confirms a limit.
const LIMIT_AGE_MAX: Duration = Duration::from_secs(60);
/// Maximum age of another tenant's statement that confirms a remaining quota.
const REMAINING_AGE_MAX: Duration = Duration::from_secs(3);
/// Maximum number of tenants that are remembered. Beyond it, the tenant that was inactive for the
/// longest time is dropped.
const TENANTS_MAX: usize = 1024;

/// Reports of leases on one account, by tenant. Times are durations since a fixed moment, the same
/// for all.
#[derive(Debug, Default)]
pub(super) struct LeaseReports {
    tenants: BTreeMap<Box<str>, TenantReports>,
}

#[derive(Debug, Default)]
struct TenantReports {
    /// Time at which the tenant last opened a lease or reported a refusal.
    seen: Duration,
    /// Time until which the provider refuses calls; the latest such time that the tenant has reported.
    limited_until: Duration,
    /// Time and limits of the tenant's last report that stated any limits; `None` before such a
    /// report.
    stated: Option<(Duration, Vec<RateLimit>)>,
}

impl LeaseReports {
    /// Records that a tenant opens a lease. Returns true if the tenant thereby becomes the second
    /// active one, so that the reports of the first no longer count for all.
    pub(super) fn record_opened(&mut self, tenant: &str, now: Duration) -> bool {
        let (was_there, others) = (self.is_there(tenant, now), self.others(tenant, now));
        self.reports_of(tenant, now);
        !was_there && others == 1
    }

    /// Records a tenant's report that its provider refuses calls for `wait` from now on; more than a minute counts as a
    /// minute. Returns the time until which the pool must pause; `None` if other tenants are active and none of them
    /// reports a refusal.
    pub(super) fn record_refused(
        &mut self,
        tenant: &str,
        wait: Duration,
        now: Duration,
    ) -> Option<Duration> {
        let until = now + wait.min(PAUSE_MAX);
        let reports = self.reports_of(tenant, now);
        reports.limited_until = reports.limited_until.max(until);
        self.pause_until(now)
    }

    /// Records the limits that a tenant's headers state. Returns the headers with only those limits that count for all.
    pub(super) fn confirm(
        &mut self,
        tenant: &str,
        told: &RateLimitHeaders,
        now: Duration,
    ) -> RateLimitHeaders {
        let believed = match self.others(tenant, now) {
            0 => told.limits.clone(),
            _ => {
                told.limits.iter().filter_map(|limit| self.supported(tenant, *limit, now)).collect()
            }
        };
        if !told.limits.is_empty()
            && let Some(reports) = self.tenants.get_mut(tenant)
        {
            reports.stated = Some((now, told.limits.clone()));
        }
        RateLimitHeaders { limits: believed, ..told.clone() }
    }

    /// Returns the time until which a tenant's new leases are refused. They are refused if the
    /// tenant has reported a refusal that lasts longer than the pool's pause. `None` if they are
    /// not refused.
    pub(super) fn limited_until(&self, tenant: &str, now: Duration) -> Option<Duration> {
        let until = self.tenants.get(tenant)?.limited_until;
        let is_longer = self.pause_until(now).is_none_or(|pause| until > pause);
        (until > now && is_longer).then_some(until)
    }

    /// Returns the time until which the pool must pause: the time that the only active tenant has reported, or the
    /// second-latest of all active tenants' times. `None` if that time has passed.
    fn pause_until(&self, now: Duration) -> Option<Duration> {
        let mut ends: Vec<Duration> = self.present(now).map(|(_, it)| it.limited_until).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let end = if ends.len() == 1 { ends.first() } else { ends.get(1) };
        end.copied().filter(|until| *until > now)
    }

    /// Returns the given limit, confirmed by another tenant, with the higher of the two tenants'
    /// numbers. `None` if no other active tenant has stated the same kind of limit within
    /// [`LIMIT_AGE_MAX`].
    fn supported(&self, tenant: &str, limit: RateLimit, now: Duration) -> Option<RateLimit> {
        let is_same = |it: &&RateLimit| (it.counted, it.window) == (limit.counted, limit.window);
        let others = self.present(now).filter(|(name, _)| **name != *tenant);
        let stated = others.filter_map(|(_, reports)| {
            let (at, limits) = reports.stated.as_ref()?;
            let age = now.saturating_sub(*at);
            let same = limits.iter().find(is_same).filter(|_| age <= LIMIT_AGE_MAX)?;
            let remaining = same.remaining.filter(|_| age <= REMAINING_AGE_MAX);
            Some(RateLimit { remaining, ..*same })
        });
        // Of several other tenants, the one with the lowest number counts.
        let other = stated.min_by_key(|it| (it.limit.unwrap_or(u64::MAX), it.remaining))?;
        let higher = |a: Option<u64>, b: Option<u64>| Some(a?.max(b?));
        Some(RateLimit {
            limit: higher(limit.limit, other.limit),
            remaining: higher(limit.remaining, other.remaining),
            ..limit
        })
    }

    /// Returns the reports of a tenant, and marks the tenant as active now.
    fn reports_of(&mut self, tenant: &str, now: Duration) -> &mut TenantReports {
        if !self.tenants.contains_key(tenant) && self.tenants.len() >= TENANTS_MAX {
            let oldest = self.tenants.iter().min_by_key(|(_, reports)| reports.seen);
            let oldest = oldest.map(|(tenant, _)| tenant.clone());
            oldest.map(|tenant| self.tenants.remove(&tenant));
        }
        let reports = self.tenants.entry(tenant.into()).or_default();
        reports.seen = now;
        reports
    }

    fn present(&self, now: Duration) -> impl Iterator<Item = (&str, &TenantReports)> {
        let is_there =
            move |reports: &TenantReports| now.saturating_sub(reports.seen) <= PRESENT_FOR;
        let all = self.tenants.iter().filter(move |(_, reports)| is_there(reports));
        all.map(|(tenant, reports)| (&**tenant, reports))
    }

    fn is_there(&self, tenant: &str, now: Duration) -> bool {
        self.present(now).any(|(name, _)| name == tenant)
    }

    /// Returns the number of other tenants that are active.
    fn others(&self, tenant: &str, now: Duration) -> usize {
        self.present(now).filter(|(name, _)| *name != tenant).count()
    }
}

#[cfg(test)]
mod tests {
    use fairgate_dialect::rate_limit_headers::{EpochMicros, read_rate_limits};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const START: Duration = Duration::from_secs(1000);

    fn headers(limit: &str, remaining: &str) -> RateLimitHeaders {
        let headers = [
            ("x-ratelimit-limit-requests", limit.as_bytes()),
            ("x-ratelimit-remaining-requests", remaining.as_bytes()),
        ];
        read_rate_limits(headers, EpochMicros(0))
    }

    fn stated(told: &RateLimitHeaders) -> Option<(Option<u64>, Option<u64>)> {
        told.requests().map(|limit| (limit.limit, limit.remaining))
    }

    #[test]
    fn the_only_tenant_is_believed_until_a_second_one_comes() {
        let mut reports = LeaseReports::default();
        assert!(!reports.record_opened("a", START));
        assert_eq!(reports.record_refused("a", 30 * SECOND, START), Some(START + 30 * SECOND));
        assert_eq!(reports.limited_until("a", START), None, "its leases wait for the pause");
        assert_eq!(
            stated(&reports.confirm("a", &headers("1", "0"), START)),
            Some((Some(1), Some(0)))
        );
        assert!(reports.record_opened("b", START));
        assert!(!reports.record_opened("b", START), "once");
        assert_eq!(reports.limited_until("a", START), Some(START + 30 * SECOND));
        assert_eq!(reports.limited_until("b", START), None);
        assert_eq!(stated(&reports.confirm("a", &headers("1", "0"), START)), None);
    }

    #[test]
    fn two_tenants_pause_the_pool_for_as_long_as_both_say() {
        let mut reports = LeaseReports::default();
        for tenant in ["a", "b", "c"] {
            reports.record_opened(tenant, START);
        }
        assert_eq!(reports.record_refused("a", 3600 * SECOND, START), None);
        assert_eq!(
            reports.limited_until("a", START),
            Some(START + 60 * SECOND),
            "a minute at most"
        );
        assert_eq!(reports.record_refused("a", SECOND, START), None, "one tenant says it twice");
        assert_eq!(reports.record_refused("b", 5 * SECOND, START), Some(START + 5 * SECOND));
        assert_eq!(reports.limited_until("b", START), None);
        assert_eq!(reports.limited_until("a", START), Some(START + 60 * SECOND));
        assert_eq!(reports.limited_until("a", START + 61 * SECOND), None);
        // What b said has passed, so a is alone again.
        assert_eq!(reports.record_refused("a", SECOND, START + 6 * SECOND), None);
    }

    #[test]
    fn of_two_statements_the_higher_one_counts() {
        let mut reports = LeaseReports::default();
        reports.record_opened("a", START);
        reports.record_opened("b", START);
        assert_eq!(stated(&reports.confirm("a", &headers("1", "0"), START)), None);
        let both = reports.confirm("b", &headers("500", "80"), START + SECOND);
        assert_eq!(stated(&both), Some((Some(500), Some(80))));
        let lower = reports.confirm("a", &headers("1", "0"), START + 2 * SECOND);
        assert_eq!(stated(&lower), Some((Some(500), Some(80))));
        // A remaining quota is old after three seconds, a limit after a minute.
        let later = reports.confirm("a", &headers("1", "0"), START + 10 * SECOND);
        assert_eq!(stated(&later), Some((Some(500), None)));
        assert_eq!(stated(&reports.confirm("a", &headers("1", "0"), START + 62 * SECOND)), None);
    }

    #[test]
    fn so_many_tenants_are_remembered_and_no_more() {
        let mut reports = LeaseReports::default();
        for number in 0..2 * TENANTS_MAX {
            reports.record_opened(&format!("t{number}"), START);
        }
        assert_eq!(reports.tenants.len(), TENANTS_MAX);
    }
}

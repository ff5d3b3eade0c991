//! Reports of lease holders about their provider, and the rule which of them count for all tenants.
//!
//! The gateway does not see the calls of leases, so anybody who holds a lease can report a refusal or a limit that never
//! was. A report therefore concerns its own tenant alone, until a second tenant says the same:
//!
//! - A refusal delays the tenant's new leases until the stated time. The pool pauses until the time by which two tenants
//!   say that the provider takes calls again, which is the second-latest of all tenants' times.
//! - A limit or a remaining quota in headers counts only where another tenant has stated the same one lately. Of two
//!   statements the higher one counts.
//!
//! If only one tenant is there, its reports count at once: they can harm nobody else. A tenant is there if it has opened
//! a lease within the last ten minutes. When a second one comes, whatever the first has reported is forgotten.
//!
//! This module decides only what is believed. At most 1024 tenants are remembered, each with at most one refusal and one
//! set of headers.

use std::collections::BTreeMap;
use std::time::Duration;

use fairgate_dialect::limits::{RateLimit, RateLimitHeaders};
use fairgate_dialect::quota::PAUSE_MAX;

/// Time for which a tenant counts as there after it has opened a lease.
const PRESENT_FOR: Duration = Duration::from_secs(600);
/// Greatest age of a statement of another tenant that supports a limit.
const LIMIT_AGE_MAX: Duration = Duration::from_secs(60);
/// Greatest age of a statement of another tenant that supports a remaining quota.
const REMAINING_AGE_MAX: Duration = Duration::from_secs(3);
/// The most tenants that are remembered; the one that opened its last lease first is dropped.
const TENANTS_MAX: usize = 1024;

/// Reports of leases on one account, by tenant. Times are durations since any fixed moment.
#[derive(Debug, Default)]
pub(super) struct LeaseReports {
    tenants: BTreeMap<Box<str>, TenantReports>,
}

#[derive(Debug, Default)]
struct TenantReports {
    /// Time at which the tenant opened its last lease.
    seen: Duration,
    /// Time until which the provider refuses calls, by the tenant's last report of a refusal.
    limited_until: Duration,
    /// Limits that the tenant's last report with limits states, and the time of that report.
    stated: Option<(Duration, Vec<RateLimit>)>,
}

impl LeaseReports {
    /// Records that a tenant opens a lease. Returns true if it is the second one that is there, so that the reports of
    /// the first do not count for all any more.
    pub(super) fn record_opened(&mut self, tenant: &str, now: Duration) -> bool {
        let (was_there, others) = (self.is_there(tenant, now), self.others(tenant, now));
        self.reports_of(tenant, now);
        !was_there && others == 1
    }

    /// Records that a tenant reports a refusal of its provider for `wait` from now on, at most a minute. Returns the
    /// time until which the pool must pause; `None` if no other tenant says that there is a limit.
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

    /// Returns the limits of a report that count for all.
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

    /// Returns the time until which a tenant's new leases are refused, because it alone says that its provider refuses
    /// calls; `None` if they are not.
    pub(super) fn limited_until(&self, tenant: &str, now: Duration) -> Option<Duration> {
        let until = self.tenants.get(tenant)?.limited_until;
        let is_longer = self.pause_until(now).is_none_or(|pause| until > pause);
        (until > now && is_longer).then_some(until)
    }

    /// Returns the time until which the pool must pause: that of the only tenant that is there, or the second-latest of
    /// all tenants'.
    fn pause_until(&self, now: Duration) -> Option<Duration> {
        let mut ends: Vec<Duration> = self.present(now).map(|(_, it)| it.limited_until).collect();
        ends.sort_unstable_by(|a, b| b.cmp(a));
        let end = if ends.len() == 1 { ends.first() } else { ends.get(1) };
        end.copied().filter(|until| *until > now)
    }

    /// Returns the more generous of a limit and the same one of another tenant; `None` if no other tenant has stated it
    /// lately.
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
        // Of several others the strictest: two tenants say that it is no higher.
        let other = stated.min_by_key(|it| (it.limit.unwrap_or(u64::MAX), it.remaining))?;
        let higher = |a: Option<u64>, b: Option<u64>| Some(a?.max(b?));
        Some(RateLimit {
            limit: higher(limit.limit, other.limit),
            remaining: higher(limit.remaining, other.remaining),
            ..limit
        })
    }

    /// Returns the reports of a tenant that is there now.
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

    /// Returns the number of other tenants that are there.
    fn others(&self, tenant: &str, now: Duration) -> usize {
        self.present(now).filter(|(name, _)| *name != tenant).count()
    }
}

#[cfg(test)]
mod tests {
    use fairgate_dialect::limits::{EpochMicros, read_rate_limits};

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

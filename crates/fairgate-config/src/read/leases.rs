//! Pools whose slots are leased to programs that call a provider themselves.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::{LeasesConfig, QuotaConfig};
use crate::defaults;
use crate::field::{Field, Section};
use crate::read::upstream::{PER_MINUTE_MAX, Upstream};

const LEASES: &[&str] = &["ttl", "requests_per_minute", "tokens_per_minute", "burst_seconds"];

/// What such a pool cannot have: it sends nothing anywhere.
const WITHOUT_MEANING: &[&str] = &[
    "models",
    "workers",
    "policy_file",
    "prefix_index",
    "brownout",
    "retries",
    "down_wait",
    "overloaded_status",
    "sticky_sessions",
    "observe",
    "hosted_over_budget",
];

/// From what a client can renew in time to what others can wait for.
const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);

/// `true`, `false`, or a mapping, which means `true`.
pub(super) fn leases(field: Field<'_>) -> Option<Option<LeasesConfig>> {
    if field.scalar().is_some() {
        let on = || LeasesConfig { ttl: defaults::LEASE_TTL, quota: defaults::QUOTA };
        return field.boolean().map(|leases| leases.then(on));
    }
    let section = field.section(LEASES)?;
    let ttl = section.or("ttl", defaults::LEASE_TTL, |field| field.duration(TTL));
    let rate = |name| section.optional(name, |field| field.integer(1..=PER_MINUTE_MAX));
    let requests_per_minute = rate("requests_per_minute");
    let tokens_per_minute = rate("tokens_per_minute");
    let default_burst = defaults::QUOTA.burst_seconds;
    let burst_seconds = section.or("burst_seconds", default_burst, |field| field.integer(1..=60));
    Some(Some(LeasesConfig {
        ttl: ttl?,
        quota: QuotaConfig {
            account: None,
            requests_per_minute: requests_per_minute?,
            tokens_per_minute: tokens_per_minute?,
            burst_seconds: burst_seconds?,
        },
    }))
}

/// Says what a pool of leases has that it cannot have.
pub(super) fn check(section: &Section<'_>, name: Option<&str>, upstreams: Option<&[Upstream<'_>]>) {
    for option in WITHOUT_MEANING {
        if let Some(field) = section.stated(option) {
            field.wrong::<()>(
                "has no meaning in a pool of leases, whose clients call a provider themselves: remove it, or `leases`",
            );
        }
    }
    if !section.has("capacity") {
        section.missing::<()>("capacity", "how many leases may be held at once");
    }
    let is_taken = |upstream: &Upstream<'_>| name.is_some() && upstream.name.as_deref() == name;
    if upstreams.into_iter().flatten().any(is_taken) {
        section.field.wrong::<()>(
            "a pool of leases is a worker of the same name, and an upstream is called so: rename one of them",
        );
    }
}

//! Reads the settings of pools whose slots are leased to programs that call a provider themselves.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::config::{LeasesConfig, QuotaConfig};
use crate::defaults;
use crate::field::{ConfigField, ConfigSection};
use crate::read::upstream::{PER_MINUTE_MAX, UpstreamDraft};

const LEASES: &[&str] = &["ttl", "requests_per_minute", "tokens_per_minute", "burst_seconds"];

/// Settings that a pool of leases cannot have, because it forwards no requests.
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
    "overlap_credit",
    "observe",
    "hosted_over_budget",
];

/// Range of a lease's lifetime. The shortest leaves a client enough time to renew, and the longest is still acceptable
/// as the wait for the slot of a dead client.
const TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);

/// Reads `leases`, which is `true`, `false`, or a mapping of settings. A mapping means `true`. Returns `None` after
/// recording an error, and `Some(None)` for `false`.
pub(super) fn leases(field: ConfigField<'_>) -> Option<Option<LeasesConfig>> {
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
            ..defaults::QUOTA
        },
    }))
}

/// Records an error for each setting that a pool of leases cannot have, for each missing setting
/// that it needs, and for a pool name that an upstream also has.
pub(super) fn check(
    section: &ConfigSection<'_>,
    name: Option<&str>,
    upstreams: Option<&[UpstreamDraft<'_>]>,
) {
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
    let is_taken =
        |upstream: &UpstreamDraft<'_>| name.is_some() && upstream.name.as_deref() == name;
    if upstreams.into_iter().flatten().any(is_taken) {
        section.field.wrong::<()>(
            "a pool of leases is a worker of the same name, and an upstream is called so: rename one of them",
        );
    }
}

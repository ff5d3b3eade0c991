//! Settings of upstreams that concern engines and DNS: automatic slots, metrics and discovery.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::Uri;

use crate::config::{AutoSlots, DiscoverConfig, MetricsConfig, OverloadConfig};
use crate::defaults;
use crate::field::{ConfigField, ConfigSection};
use crate::read::url::metrics_path;

/// Range of the intervals at which metrics are read or a DNS name is looked up.
const EVERY: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

const SLOTS: RangeInclusive<u64> = 1..=1_000_000;

/// Initial slots of an upstream, if limited, and their automatic adjustment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UpstreamSlots {
    pub(super) first: Option<u64>,
    pub(super) auto: Option<AutoSlots>,
}

/// Reads `slots` and `slots_max` of an upstream.
pub(super) fn slots(section: &ConfigSection<'_>) -> Option<UpstreamSlots> {
    let mut is_auto = false;
    let stated = section.optional("slots", |field| match field.scalar() {
        Some("auto") => {
            is_auto = true;
            Some(defaults::AUTO_SLOTS_FIRST)
        }
        _ => field.integer(SLOTS),
    });
    let most = section.optional("slots_max", |field| match is_auto {
        true => field.integer(SLOTS),
        false => field.wrong("has no meaning without slots: auto"),
    });
    let (first, most) = (stated?, most?.unwrap_or(defaults::AUTO_SLOTS_MOST));
    Some(match is_auto {
        true => UpstreamSlots {
            first: first.map(|first| first.min(most)),
            auto: Some(AutoSlots { most }),
        },
        false => UpstreamSlots { first, auto: None },
    })
}

/// Reads `metrics`. An upstream with automatic slots gets the default metrics settings if it states none.
pub(super) fn metrics(
    section: &ConfigSection<'_>,
    slots: Option<UpstreamSlots>,
) -> Option<Option<MetricsConfig>> {
    let stated = section.optional("metrics", |field| {
        let section = field.section(&["path", "every", "overload_waiting", "overload_cache"])?;
        let path = section.or("path", defaults::METRICS_PATH.to_owned(), metrics_path);
        let every = section.or("every", defaults::METRICS_EVERY, |field| field.duration(EVERY));
        let waiting = section.optional("overload_waiting", |field| field.integer(0..=1_000_000));
        let cache_milli = section.optional("overload_cache", |field| field.thousandths(1..=1000));
        let overload = OverloadConfig { waiting: waiting?, cache_milli: cache_milli? };
        Some(MetricsConfig { path: path?, every: every?, overload })
    })?;
    let needed = slots.is_some_and(|slots| slots.auto.is_some());
    Some(stated.or_else(|| needed.then(default_metrics)))
}

fn default_metrics() -> MetricsConfig {
    MetricsConfig {
        path: defaults::METRICS_PATH.to_owned(),
        every: defaults::METRICS_EVERY,
        overload: OverloadConfig::default(),
    }
}

/// Reads `discover`. Host and port default to those of the upstream's url.
pub(super) fn discover(
    section: &ConfigSection<'_>,
    url: Option<&Uri>,
) -> Option<Option<DiscoverConfig>> {
    section.optional("discover", |field| {
        let section = field.section(&["dns", "port", "every"])?;
        let host = url.and_then(Uri::host).unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let dns = section.or("dns", host, dns_name);
        let port =
            section.or("port", url.map_or(80, default_port), |field| field.integer(1..=u16::MAX));
        let every = section.or("every", defaults::DISCOVER_EVERY, |field| field.duration(EVERY));
        Some(DiscoverConfig { dns: dns?, port: port?, every: every? })
    })
}

fn default_port(url: &Uri) -> u16 {
    let usual = if url.scheme_str() == Some("https") { 443 } else { 80 };
    url.port_u16().unwrap_or(usual)
}

/// Reads a DNS name or an IP address.
fn dns_name(field: ConfigField<'_>) -> Option<String> {
    let text = field.scalar().unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    match (1..=253).contains(&text.len()) && text.chars().all(fits) {
        true => Some(text.to_owned()),
        false => {
            field.wrong("must be a name that DNS knows, such as vllm.default.svc.cluster.local")
        }
    }
}

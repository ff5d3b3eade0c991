//! Finds workers by DNS: each address of a name is one worker. Names are looked up at intervals,
//! independently of requests.
//!
//! The system's resolver is used, because it knows `/etc/hosts`, search domains and the other settings of the machine.
//! The resolver does not report the time to live of an answer, so names are looked up at a configured interval. The
//! default is as short as the time for which Kubernetes' DNS lets answers for a headless service be cached (5 s).

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fairgate_config::DiscoverConfig;
use fairgate_store::LogThrottle;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::Pools;

/// Interval at which the list of names to look up is refreshed.
const REVIEW_EVERY: Duration = Duration::from_secs(1);
/// Number of answers in a row that must lack an address before its worker is drained. A single answer may come from a
/// DNS server with old data.
const MISSES_MAX: u32 = 2;
/// Maximum wait for a DNS answer. The system's resolver may wait minutes for servers that no longer
/// exist.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Maximum number of addresses of one name. Each address becomes a worker, which needs connections
/// and memory for the prefix index.
const ADDRESSES_MAX: usize = 1024;
const UNKNOWN: &str = "a name could not be looked up; the workers that were found last stay";
const REFUSED: &str = "workers that were found cannot be put to use";

/// Future of the addresses that DNS returns for a name.
pub type DnsAnswer<'a> = Pin<Box<dyn Future<Output = io::Result<BTreeSet<IpAddr>>> + Send + 'a>>;

/// Resolves DNS names to addresses.
pub trait DnsResolver: Send + Sync {
    /// Returns all addresses of a name.
    fn addresses<'a>(&'a self, name: &'a str) -> DnsAnswer<'a>;
}

/// Resolver of the operating system.
pub(super) struct SystemResolver;

impl DnsResolver for SystemResolver {
    fn addresses<'a>(&'a self, name: &'a str) -> DnsAnswer<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// A DNS name that is looked up at intervals.
struct DiscoveredName {
    config: DiscoverConfig,
    due: Instant,
    /// True while a look-up is running.
    asked: bool,
    known: KnownAddresses,
}

/// Addresses of a name. An address stays until [`MISSES_MAX`] answers in a row lacked it.
#[derive(Debug, Default, PartialEq, Eq)]
struct KnownAddresses {
    /// Number of answers in a row without the address, by address.
    misses: BTreeMap<IpAddr, u32>,
}

impl KnownAddresses {
    /// Counts an answer, and returns the addresses that are kept after it.
    fn update(&mut self, answer: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        self.misses.values_mut().for_each(|misses| *misses += 1);
        self.misses.extend(answer.iter().map(|address| (*address, 0)));
        self.misses.retain(|_, misses| *misses < MISSES_MAX);
        self.misses.keys().copied().collect()
    }
}

/// Waits for a DNS answer. Returns an error if the answer does not come within [`ANSWER_WITHIN`], or has more than
/// [`ADDRESSES_MAX`] addresses.
async fn wait_for_answer(answer: DnsAnswer<'_>) -> io::Result<BTreeSet<IpAddr>> {
    let found = timeout(ANSWER_WITHIN, answer).await.unwrap_or_else(|_| {
        let late = format!("no answer within {} s", ANSWER_WITHIN.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, late))
    })?;
    if found.len() > ADDRESSES_MAX {
        let many = format!("{} addresses, and {ADDRESSES_MAX} are allowed", found.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, many));
    }
    Ok(found)
}

/// Looks up the DNS names of all upstreams at their intervals, forever.
pub(crate) async fn follow_names(pools: Arc<Pools>, log_throttle: Arc<LogThrottle<&'static str>>) {
    let mut names: BTreeMap<String, DiscoveredName> = BTreeMap::new();
    let mut asked = JoinSet::new();
    loop {
        refresh_names(&mut names, pools.discovered_upstreams().await);
        let now = Instant::now();
        for (upstream, name) in names.iter_mut().filter(|(_, name)| !name.asked && name.due <= now)
        {
            name.asked = true;
            name.due = now + name.config.every;
            let (pools, upstream, dns) = (pools.clone(), upstream.clone(), name.config.dns.clone());
            asked.spawn(async move {
                let answer = wait_for_answer(pools.resolver().addresses(&dns)).await;
                (upstream, dns, answer)
            });
        }
        let idle = names.values().filter(|name| !name.asked).map(|name| name.due);
        let wake_at = idle.fold(now + REVIEW_EVERY, Instant::min);
        tokio::select! {
            Some(answered) = asked.join_next() => {
                if let Ok((upstream, dns, answer)) = answered {
                    apply_answer(&pools, &log_throttle, &mut names, upstream, &dns, answer).await;
                }
            }
            () = sleep_until(wake_at) => {}
        }
    }
}

/// Adds names that are new in the configuration, and removes names that are gone or whose settings changed.
fn refresh_names(
    names: &mut BTreeMap<String, DiscoveredName>,
    wanted: Vec<(String, DiscoverConfig)>,
) {
    names.retain(|upstream, name| {
        wanted.iter().any(|(wanted, config)| wanted == upstream && *config == name.config)
    });
    for (upstream, config) in wanted {
        let due = Instant::now();
        names.entry(upstream).or_insert(DiscoveredName {
            config,
            due,
            asked: false,
            known: KnownAddresses::default(),
        });
    }
}

async fn apply_answer(
    pools: &Pools,
    log_throttle: &LogThrottle<&'static str>,
    names: &mut BTreeMap<String, DiscoveredName>,
    upstream: String,
    dns: &str,
    answer: io::Result<BTreeSet<IpAddr>>,
) {
    // Meanwhile the upstream may have been removed from the file, or may use another name.
    let Some(name) = names.get_mut(&upstream).filter(|name| name.config.dns == dns) else { return };
    name.asked = false;
    let complain = |what: &'static str, error: String| {
        if let Some(left_out) = log_throttle.admit(what, Instant::now()) {
            tracing::warn!(upstream, name = dns, error, left_out, "{what}");
        }
    };
    let addresses = match answer {
        Ok(answer) => name.known.update(&answer),
        Err(error) => return complain(UNKNOWN, error.to_string()),
    };
    let count = addresses.len();
    match pools.set_addresses(&upstream, addresses).await {
        Ok(super::ChangeEffect::Yes) => {
            tracing::info!(
                upstream,
                name = dns,
                workers = count,
                "the addresses of a name have changed"
            );
        }
        Ok(super::ChangeEffect::No) => {}
        Err(error) => complain(REFUSED, error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_gone_when_two_answers_in_a_row_lack_it() {
        let set = |hosts: &[u8]| -> BTreeSet<IpAddr> {
            hosts.iter().map(|host| IpAddr::from([10, 0, 0, *host])).collect()
        };
        let mut known = KnownAddresses::default();
        assert_eq!(known.update(&set(&[1, 2])), set(&[1, 2]));
        assert_eq!(known.update(&set(&[2, 3])), set(&[1, 2, 3]));
        assert_eq!(known.update(&set(&[1, 2, 3])), set(&[1, 2, 3]));
        assert_eq!(known.update(&set(&[2])), set(&[1, 2, 3]));
        assert_eq!(known.update(&set(&[2])), set(&[2]));
        assert_eq!(known.update(&set(&[])), set(&[2]));
        assert_eq!(known.update(&set(&[])), set(&[]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_or_has_too_many_addresses_is_none() {
        let silence: DnsAnswer<'_> = Box::pin(std::future::pending());
        let late = wait_for_answer(silence).await.map_err(|error| error.to_string());
        assert_eq!(late, Err("no answer within 10 s".to_owned()));

        let addresses = |count: u32| -> DnsAnswer<'_> {
            Box::pin(async move { Ok((0..count).map(|n| IpAddr::from(n.to_be_bytes())).collect()) })
        };
        let many = wait_for_answer(addresses(1025)).await.map_err(|error| error.to_string());
        assert_eq!(many, Err("1025 addresses, and 1024 are allowed".to_owned()));
        assert_eq!(
            wait_for_answer(addresses(1024)).await.map(|found| found.len()).ok(),
            Some(1024)
        );
    }
}

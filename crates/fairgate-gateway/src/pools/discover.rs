//! Names that stand for many workers: looked up now and then, off the way of requests.
//!
//! The system's resolver is asked, which knows `/etc/hosts`, search domains and whatever else the machine is set up with. It
//! does not say for how long an answer holds, so names are looked up at an interval of their own. That is as short as the
//! time for which Kubernetes' DNS lets a headless service's answer be kept (5 s).

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use fairgate_config::DiscoverConfig;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::app::App;

/// How often it is looked whether other names are to be looked up.
const REVIEW_EVERY: Duration = Duration::from_secs(1);
/// How many answers in a row an address must be missing from before its worker is drained: one may come from a server that is
/// behind.
const MISSES_MAX: u32 = 2;
/// How long an answer is waited for. The system's resolver may wait for minutes for servers that are gone.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The most addresses that one name may have: each becomes a worker with connections and a part of the prefix index.
const ADDRESSES_MAX: usize = 1024;
const UNKNOWN: &str = "a name could not be looked up; the workers that were found last stay";
const REFUSED: &str = "workers that were found cannot be put to use";

/// An answer on its way.
pub type Answer<'a> = Pin<Box<dyn Future<Output = io::Result<BTreeSet<IpAddr>>> + Send + 'a>>;

/// Who knows the addresses of names.
pub trait Resolve: Send + Sync {
    /// All addresses of a name.
    fn addresses<'a>(&'a self, name: &'a str) -> Answer<'a>;
}

/// The system's resolver.
pub(super) struct SystemResolver;

impl Resolve for SystemResolver {
    fn addresses<'a>(&'a self, name: &'a str) -> Answer<'a> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// A name that is looked up.
struct Name {
    config: DiscoverConfig,
    due: Instant,
    /// Whether an answer is on its way.
    asked: bool,
    known: Known,
}

/// The addresses of a name, and those that were missing from the last answers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Known {
    /// By address, how many answers in a row it has been missing from.
    misses: BTreeMap<IpAddr, u32>,
}

impl Known {
    /// The addresses after an answer.
    fn after(&mut self, answer: &BTreeSet<IpAddr>) -> BTreeSet<IpAddr> {
        self.misses.values_mut().for_each(|misses| *misses += 1);
        self.misses.extend(answer.iter().map(|address| (*address, 0)));
        self.misses.retain(|_, misses| *misses < MISSES_MAX);
        self.misses.keys().copied().collect()
    }
}

/// The answer, if it comes in time and is not too long to be meant.
async fn usable(answer: Answer<'_>) -> io::Result<BTreeSet<IpAddr>> {
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

/// Looks names up, for ever.
pub(crate) async fn follow_names(app: Arc<App>) {
    let mut names: BTreeMap<String, Name> = BTreeMap::new();
    let mut asked = JoinSet::new();
    loop {
        review(&mut names, app.pools.looked_up().await);
        let now = Instant::now();
        for (upstream, name) in names.iter_mut().filter(|(_, name)| !name.asked && name.due <= now)
        {
            name.asked = true;
            name.due = now + name.config.every;
            let (app, upstream, dns) = (app.clone(), upstream.clone(), name.config.dns.clone());
            asked.spawn(async move {
                let answer = usable(app.pools.resolver().addresses(&dns)).await;
                (upstream, dns, answer)
            });
        }
        let idle = names.values().filter(|name| !name.asked).map(|name| name.due);
        let wake_at = idle.fold(now + REVIEW_EVERY, Instant::min);
        tokio::select! {
            Some(answered) = asked.join_next() => {
                if let Ok((upstream, dns, answer)) = answered {
                    take(&app, &mut names, upstream, &dns, answer).await;
                }
            }
            () = sleep_until(wake_at) => {}
        }
    }
}

/// Makes the names those that are to be looked up.
fn review(names: &mut BTreeMap<String, Name>, wanted: Vec<(String, DiscoverConfig)>) {
    names.retain(|upstream, name| {
        wanted.iter().any(|(wanted, config)| wanted == upstream && *config == name.config)
    });
    for (upstream, config) in wanted {
        let due = Instant::now();
        names.entry(upstream).or_insert(Name {
            config,
            due,
            asked: false,
            known: Known::default(),
        });
    }
}

async fn take(
    app: &App,
    names: &mut BTreeMap<String, Name>,
    upstream: String,
    dns: &str,
    answer: io::Result<BTreeSet<IpAddr>>,
) {
    // It may have been taken out of the file, or be another name by now.
    let Some(name) = names.get_mut(&upstream).filter(|name| name.config.dns == dns) else { return };
    name.asked = false;
    let complain = |what: &'static str, error: String| {
        if let Some(left_out) = app.complaints.admit(what, Instant::now()) {
            tracing::warn!(upstream, name = dns, error, left_out, "{what}");
        }
    };
    let addresses = match answer {
        Ok(answer) => name.known.after(&answer),
        Err(error) => return complain(UNKNOWN, error.to_string()),
    };
    let count = addresses.len();
    match app.pools.found(&upstream, addresses).await {
        Ok(super::Changed::Yes) => {
            tracing::info!(
                upstream,
                name = dns,
                workers = count,
                "the addresses of a name have changed"
            );
        }
        Ok(super::Changed::No) => {}
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
        let mut known = Known::default();
        assert_eq!(known.after(&set(&[1, 2])), set(&[1, 2]));
        assert_eq!(known.after(&set(&[2, 3])), set(&[1, 2, 3]));
        assert_eq!(known.after(&set(&[1, 2, 3])), set(&[1, 2, 3]));
        assert_eq!(known.after(&set(&[2])), set(&[1, 2, 3]));
        assert_eq!(known.after(&set(&[2])), set(&[2]));
        assert_eq!(known.after(&set(&[])), set(&[2]));
        assert_eq!(known.after(&set(&[])), set(&[]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_or_has_too_many_addresses_is_none() {
        let silence: Answer<'_> = Box::pin(std::future::pending());
        let late = usable(silence).await.map_err(|error| error.to_string());
        assert_eq!(late, Err("no answer within 10 s".to_owned()));

        let addresses = |count: u32| -> Answer<'_> {
            Box::pin(async move { Ok((0..count).map(|n| IpAddr::from(n.to_be_bytes())).collect()) })
        };
        let many = usable(addresses(1025)).await.map_err(|error| error.to_string());
        assert_eq!(many, Err("1025 addresses, and 1024 are allowed".to_owned()));
        assert_eq!(usable(addresses(1024)).await.map(|found| found.len()).ok(), Some(1024));
    }
}

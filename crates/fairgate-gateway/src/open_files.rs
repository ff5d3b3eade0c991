//! How many files and sockets the process may have open, and how many connections of clients that is enough for.
//!
//! A connection that the system cannot open waits in the kernel until another one closes, which may take as long as a
//! client likes. So no more are accepted than there are descriptors for, and the others are told at once.

use fairgate_config::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::reply::length;

/// Beyond this a higher limit helps nobody; some systems refuse more.
const LIMIT_MAX: u64 = 1 << 20;
/// Descriptors that are not for connections: listeners, database, journals, files that are read.
const RESERVED: u64 = 64;
/// The least part of the limit that is for clients, whatever upstreams may need: a quarter.
const LEAST_PART: u64 = 4;

/// The limit of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// What it was.
    pub before: u64,
    /// What it is now.
    pub now: u64,
}

/// Raises the soft limit to the hard one. Where the system does not let us, it stays what it was.
pub fn raise() -> OpenFiles {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let before = current.unwrap_or(LIMIT_MAX);
    let wanted = maximum.unwrap_or(LIMIT_MAX).min(LIMIT_MAX);
    if wanted > before {
        // What came of it is looked at below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    OpenFiles { before, now: limit() }
}

/// The limit of open files.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(LIMIT_MAX)
}

/// How many connections of clients there may be: as the configuration says, and no more than there are descriptors for.
pub fn connections_max(config: &Config) -> u64 {
    connections_within(limit(), config)
}

/// The same for this limit of open files. Descriptors for clients: the limit, less 64, less the slots of all pools and the
/// idle connections of all upstreams, which may all be connections to upstreams at once; at least a quarter of the limit.
pub(crate) fn connections_within(limit: u64, config: &Config) -> u64 {
    let slots = config.pools.iter().map(|pool| pool.capacity);
    let idle = config.upstreams.iter().map(|upstream| length(upstream.idle_connections_max));
    let taken = slots.chain(idle).fold(RESERVED, u64::saturating_add);
    let possible = limit.saturating_sub(taken).max(limit / LEAST_PART).max(1);
    length(config.limits.connections_max).min(possible)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_upstreams_and_files_do_not_need() {
        let url = "http://127.0.0.1:1".parse().unwrap();
        let mut config = Config::embedded("data".into(), ([127, 0, 0, 1], 0).into(), url);
        // 8 slots, 64 idle connections, 64 files.
        assert_eq!(connections_within(256, &config), 120);
        assert_eq!(connections_within(100_000, &config), 20_000);
        config.pools[0].capacity = 1000;
        assert_eq!(connections_within(256, &config), 64);
        config.limits.connections_max = 5;
        assert_eq!(connections_within(256, &config), 5);
    }

    #[test]
    fn the_limit_never_falls() {
        let OpenFiles { before, now } = raise();
        assert!(now >= before);
        assert_eq!(raise(), OpenFiles { before: now, now });
    }
}

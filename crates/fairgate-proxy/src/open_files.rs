//! The limit of open files and sockets of the process, and the client connections that it allows.
//!
//! A new connection for which no descriptor is free would wait in the kernel until another
//! connection closes, which may take as long as a client likes. So the gateway accepts only as many
//! connections as it has descriptors for, and refuses the others at once.

use fairgate_config::Config;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::reply::content_length;

/// Highest soft limit of open files that [`raise`] sets. A higher limit is of no use, and some
/// systems refuse it.
const LIMIT_MAX: u64 = 1 << 20;
/// Descriptors that are not for connections: listeners, database, journals, other files.
const RESERVED: u64 = 64;
/// At least the limit of open files divided by this number is kept for connections of clients,
/// however many descriptors the upstreams may need.
const LEAST_PART: u64 = 4;

/// The process's limit of open files, before and after raising it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFileLimit {
    /// Soft limit of open files before it was raised.
    pub before: u64,
    /// Soft limit of open files after it was raised; equal to `before` if the system refused.
    pub now: u64,
}

/// Raises the soft limit of open files to the hard limit, but not above 2²⁰. If the system refuses, the soft limit
/// stays as it was.
pub fn raise() -> OpenFileLimit {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let before = current.unwrap_or(LIMIT_MAX);
    let wanted = maximum.unwrap_or(LIMIT_MAX).min(LIMIT_MAX);
    if wanted > before {
        // The result is read below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
    OpenFileLimit { before, now: limit() }
}

/// Returns the soft limit of open files; 2²⁰ if the system sets none.
pub(crate) fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(LIMIT_MAX)
}

/// Returns the maximum number of client connections: the configured number, or fewer if there are
/// not enough descriptors.
pub fn connections_max(config: &Config) -> u64 {
    connections_within(limit(), config)
}

/// Computes [`connections_max`] for this limit of open files. Each slot of a pool and each idle
/// connection of an upstream may need a descriptor at the same time. So the descriptors for clients
/// are limit − 64 − slots of all pools − idle connections of all upstreams, but at least a quarter
/// of the limit.
pub(crate) fn connections_within(limit: u64, config: &Config) -> u64 {
    let slots = config.pools.iter().map(|pool| pool.capacity);
    let idle =
        config.upstreams.iter().map(|upstream| content_length(upstream.idle_connections_max));
    let taken = slots.chain(idle).fold(RESERVED, u64::saturating_add);
    let possible = limit.saturating_sub(taken).max(limit / LEAST_PART).max(1);
    content_length(config.limits.connections_max).min(possible)
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
        let OpenFileLimit { before, now } = raise();
        assert!(now >= before);
        assert_eq!(raise(), OpenFileLimit { before: now, now });
    }
}

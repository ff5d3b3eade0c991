//! Decides which workers a request may go to, by the request's pin, list of workers and taints, and
//! by the list of workers of its key.
//!
//! Workers are named here as in the configuration. An upstream with several models is several
//! workers in the core, but has one name here. A request can only narrow down the workers of its
//! key, and only if the key may choose workers.

use std::sync::Arc;

use fairgate_config::UpstreamConfig;
use fairgate_core::event::Pin;
use fairgate_store::KeyRights;
use http::{HeaderMap, HeaderName};

use super::request_checks::read_name;
use crate::pools::PoolSetup;
use crate::refusal::{self, Refusal};

const WORKER: HeaderName = HeaderName::from_static("x-fairgate-worker");
const WORKERS: HeaderName = HeaderName::from_static("x-fairgate-workers");
const REQUIRES: HeaderName = HeaderName::from_static("x-fairgate-requires");
/// The most workers that a request may list.
const WORKERS_MAX: usize = 64;
/// The most taints that a request may require.
const TAINTS_MAX: usize = 16;
/// The longest name of a worker or a taint, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// The workers that both the request and its key allow.
#[derive(Debug, Default)]
pub(super) struct WorkerFilter {
    pub(super) pin: Option<Pin>,
    /// Names of the pool's upstreams that the request may go to, in the pool's order; `None` means
    /// all. They come from the request's own list if it has one, else from its key's list.
    pub(super) listed: Option<Vec<Arc<str>>>,
    /// Taints that the worker must have, sorted and without duplicates.
    pub(super) requires: Vec<Box<str>>,
    /// True if the request itself lists its workers.
    is_own_list: bool,
}

impl WorkerFilter {
    /// Reads the choice of a request, and refuses what its key may not choose. `hinted_taints` are the taints in the
    /// body; they are used only if there is no taint header.
    pub(super) fn read(
        rights: &KeyRights,
        setup: &PoolSetup,
        headers: &HeaderMap,
        hinted_taints: Vec<String>,
    ) -> Result<Self, Refusal> {
        let of_key = Self::of_key(rights, setup)?;
        let taints = match headers.contains_key(&REQUIRES) {
            true => names_of(headers, &REQUIRES)
                .ok_or_else(|| refusal::bad_taints(TAINTS_MAX, NAME_BYTES_MAX))?,
            false => hinted_taints,
        };
        let pin = read_name(headers, &WORKER)?;
        let pin = pin.map(|name| read_pin(rights, setup, &of_key, &name)).transpose()?;
        let is_own_list = headers.contains_key(&WORKERS);
        let listed = match is_own_list {
            true => Some(read_list(rights, setup, &of_key, headers)?),
            false => of_key.listed,
        };
        Ok(Self { pin, listed, requires: checked_taints(rights, taints)?, is_own_list })
    }

    /// Returns the workers that requests of a key may go to. Refuses a key that may use none of the pool's workers.
    pub(super) fn of_key(rights: &KeyRights, setup: &PoolSetup) -> Result<Self, Refusal> {
        let Some(list) = &rights.workers else { return Ok(Self::default()) };
        let has = |name: &str| list.iter().any(|allowed| allowed == name);
        let listed = upstreams(setup)
            .filter(|upstream| has(&upstream.name) || has(upstream.name_in_file()))
            .map(|upstream| upstream.name.as_str().into())
            .collect::<Vec<Arc<str>>>();
        match listed.is_empty() && !setup.workers.is_empty() {
            true => Err(refusal::workers_of_other_pools(list)),
            false => Ok(Self { listed: Some(listed), ..Self::default() }),
        }
    }

    /// Returns true if the request may go to this upstream.
    pub(super) fn allows(&self, upstream: &UpstreamConfig) -> bool {
        self.pin.as_ref().is_none_or(|pin| *pin.worker == *upstream.name)
            && self.is_listed(&upstream.name)
            && self.requires.iter().all(|taint| upstream.taints.iter().any(|has| **has == **taint))
    }

    /// Returns true if this upstream is in the list of workers, or if there is no list.
    pub(super) fn is_listed(&self, upstream: &str) -> bool {
        self.listed.as_ref().is_none_or(|names| names.iter().any(|name| **name == *upstream))
    }

    /// Returns true if the request itself restricts the workers that it may go to.
    pub(super) fn is_of_request(&self) -> bool {
        self.pin.is_some() || self.is_own_list || !self.requires.is_empty()
    }

    /// Describes the workers that the request may go to, for a refusal; `None` if it may go to all.
    pub(super) fn description(&self) -> Option<String> {
        let quoted =
            |names: &mut dyn Iterator<Item = &str>| refusal::listed(&names.collect::<Vec<_>>());
        let mut parts = Vec::new();
        if let Some(Pin { worker, rank }) = &self.pin {
            parts.push(match rank {
                Some(rank) => format!("rank {rank} of the worker {worker:?} (x-fairgate-worker)"),
                None => format!("the worker {worker:?} (x-fairgate-worker)"),
            });
        }
        if let Some(names) = &self.listed {
            let by = if self.is_own_list { "x-fairgate-workers" } else { "the key's list" };
            let names = quoted(&mut names.iter().map(|name| &**name));
            parts.push(format!("the workers {names} ({by})"));
        }
        if !self.requires.is_empty() {
            let names = quoted(&mut self.requires.iter().map(|taint| &**taint));
            parts.push(format!("workers that have all of the taints {names}"));
        }
        (!parts.is_empty()).then(|| parts.join(", and only to "))
    }

    /// Returns the names of the pool's upstreams that are in the list, for a message.
    fn names_in<'a>(&self, setup: &'a PoolSetup) -> Vec<&'a str> {
        upstreams(setup)
            .map(|upstream| upstream.name.as_str())
            .filter(|name| self.is_listed(name))
            .collect()
    }
}

/// Returns the pool's upstreams, each once. Relies on the order of the workers: those of one upstream are adjacent.
fn upstreams(setup: &PoolSetup) -> impl Iterator<Item = &UpstreamConfig> {
    let mut last: Option<&str> = None;
    setup
        .workers
        .iter()
        .map(|worker| &worker.upstream.config)
        .filter(move |upstream| last.replace(&upstream.name) != Some(&upstream.name))
}

/// Parses `WORKER` or `WORKER/RANK`. Refuses a key that may not choose its worker, a worker that the pool does not have
/// or the key may not use, and a rank that the worker does not have.
fn read_pin(
    rights: &KeyRights,
    setup: &PoolSetup,
    of_key: &WorkerFilter,
    stated: &str,
) -> Result<Pin, Refusal> {
    if !rights.may_pin {
        return Err(refusal::forbidden_pin(WORKER.as_str(), stated));
    }
    // A name may contain a slash itself, so the whole text is tried first.
    let ranked = || {
        let (name, rank) = stated.rsplit_once('/')?;
        Some((setup.worker(name)?, Some(rank.parse::<u32>().ok()?)))
    };
    let whole = setup.worker(stated).map(|worker| (worker, None));
    let Some((worker, rank)) = whole.or_else(ranked) else {
        return Err(refusal::unknown_worker(stated, &of_key.names_in(setup)));
    };
    let UpstreamConfig { name, ranks, .. } = &worker.upstream.config;
    if !of_key.is_listed(name) {
        return Err(refusal::forbidden_worker(name, &of_key.names_in(setup)));
    }
    match rank {
        Some(rank) if rank >= *ranks => Err(refusal::unknown_rank(name, rank, *ranks)),
        _ => Ok(Pin { worker: name.as_str().into(), rank }),
    }
}

/// Reads the workers that a request lists. Refuses a key that may not choose its worker, and a worker that the pool does
/// not have or the key may not use.
fn read_list(
    rights: &KeyRights,
    setup: &PoolSetup,
    of_key: &WorkerFilter,
    headers: &HeaderMap,
) -> Result<Vec<Arc<str>>, Refusal> {
    let names = names_of(headers, &WORKERS).unwrap_or_default();
    if !(1..=WORKERS_MAX).contains(&names.len()) || !names.iter().all(is_name) {
        return Err(refusal::bad_workers(WORKERS.as_str(), WORKERS_MAX, NAME_BYTES_MAX));
    }
    if !rights.may_pin {
        return Err(refusal::forbidden_pin(WORKERS.as_str(), &names.join(",")));
    }
    for name in &names {
        let is_it = |upstream: &UpstreamConfig| {
            upstream.name == *name || upstream.name_in_file() == name.as_str()
        };
        let mut named = upstreams(setup).filter(|upstream| is_it(upstream)).peekable();
        if named.peek().is_none() {
            return Err(refusal::unknown_worker(name, &of_key.names_in(setup)));
        }
        if !named.any(|upstream| of_key.is_listed(&upstream.name)) {
            return Err(refusal::forbidden_worker(name, &of_key.names_in(setup)));
        }
    }
    // The pool's order without duplicates makes equal lists equal constraints in the core.
    let is_named = |upstream: &&UpstreamConfig| {
        of_key.is_listed(&upstream.name)
            && names.iter().any(|name| upstream.name == *name || upstream.name_in_file() == name)
    };
    Ok(upstreams(setup).filter(is_named).map(|upstream| upstream.name.as_str().into()).collect())
}

/// Reads a comma-separated list of names, which may continue in further headers of the same name. Returns `None` if a
/// header is not visible ASCII.
fn names_of(headers: &HeaderMap, header: &HeaderName) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for value in headers.get_all(header) {
        names.extend(value.to_str().ok()?.split(',').map(|name| name.trim().to_owned()));
    }
    Some(names)
}

fn is_name(name: impl AsRef<str>) -> bool {
    let name = name.as_ref();
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

fn checked_taints(rights: &KeyRights, mut taints: Vec<String>) -> Result<Vec<Box<str>>, Refusal> {
    taints.sort_unstable();
    taints.dedup();
    if taints.len() > TAINTS_MAX || !taints.iter().all(is_name) {
        return Err(refusal::bad_taints(TAINTS_MAX, NAME_BYTES_MAX));
    }
    if let Some(allowed) = &rights.taints
        && let Some(taint) = taints.iter().find(|taint| !allowed.contains(taint))
    {
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        return Err(refusal::forbidden_taint(taint, &allowed));
    }
    Ok(taints.into_iter().map(String::into_boxed_str).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: Result<T, Refusal>) -> Result<T, &'static str> {
        result.map_err(|refusal| refusal.code.as_str())
    }

    #[test]
    fn taints_are_few_short_and_allowed() {
        let taints = |allowed: Option<&[&str]>, asked: &[&str]| {
            let list = allowed.map(|list| list.iter().map(|&name| name.into()).collect());
            let rights = KeyRights { taints: list, ..KeyRights::default() };
            code(checked_taints(&rights, asked.iter().map(|&name| name.into()).collect()))
                .map(|taints| taints.len())
        };
        assert_eq!(taints(Some(&[]), &[]), Ok(0));
        assert_eq!(taints(Some(&[]), &["eu"]), Err("taint_not_allowed"));
        assert_eq!(taints(Some(&["eu"]), &["eu", "eu"]), Ok(1));
        assert_eq!(taints(None, &["anything"]), Ok(1));
        let long = "x".repeat(129);
        for bad in [vec![""], vec!["a b"], vec!["ü"], vec![long.as_str()]] {
            assert_eq!(taints(None, &bad), Err("invalid_taints"));
        }
        let many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(taints(None, &many), Err("invalid_taints"));
    }

    #[test]
    fn a_description_names_the_pin_the_rank_the_list_and_the_taints() {
        assert_eq!(WorkerFilter::default().description(), None);
        let choice = WorkerFilter {
            pin: Some(Pin { worker: "a".into(), rank: Some(1) }),
            listed: Some(vec!["a".into(), "b".into()]),
            requires: vec!["eu".into()],
            is_own_list: true,
        };
        assert_eq!(
            choice.description().unwrap(),
            "rank 1 of the worker \"a\" (x-fairgate-worker), and only to the workers \"a\", \"b\" \
             (x-fairgate-workers), and only to workers that have all of the taints \"eu\""
        );
        let of_key = WorkerFilter { listed: Some(vec!["b".into()]), ..WorkerFilter::default() };
        assert_eq!(of_key.description().unwrap(), "the workers \"b\" (the key's list)");
        assert!(choice.is_of_request() && !of_key.is_of_request());
    }
}

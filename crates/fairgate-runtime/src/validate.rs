//! Rejects requests and changes that the journal's reader would reject, before they reach the pool.

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{MAX_RANKS, Submit, WorkerChange};

use crate::admit_error::{AdmitError, GateChangeError};

/// Maximum size of the text in one submit (id, attributes, names of workers and taints): 64 KiB.
pub const MAX_SUBMIT_TEXT_BYTES: usize = 64 << 10;

/// Checks that a request can be submitted.
pub(crate) fn submit(submit: &Submit) -> Result<(), AdmitError> {
    let mut cached: Vec<&str> = submit.cached.iter().map(|(worker, _)| &**worker).collect();
    cached.sort_unstable();
    if cached.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(AdmitError::Invalid { field: "cached", problem: "names a worker twice" });
    }
    if text_bytes(submit) > MAX_SUBMIT_TEXT_BYTES {
        return Err(AdmitError::Invalid {
            field: "id",
            problem: "more than 64 KiB of text in all",
        });
    }
    Ok(())
}

fn text_bytes(submit: &Submit) -> usize {
    let attributes = Attribute::ALL.into_iter().filter_map(|by| submit.attributes.get(by));
    let cached = submit.cached.iter().map(|(worker, _)| &**worker);
    let pin = submit.pin.iter().map(|pin| &*pin.worker);
    let allow = submit.allow.iter().flatten().map(|worker| &**worker);
    let requires = submit.requires.iter().map(|taint| &**taint);
    let names = cached.chain(pin).chain(allow).chain(requires).map(|name| name.len() + 1);
    submit.id.len() + attributes.map(str::len).sum::<usize>() + names.sum::<usize>()
}

/// Checks that a worker's change has at most as many ranks as the journal's reader accepts.
pub(crate) fn worker(change: &WorkerChange) -> Result<(), GateChangeError> {
    match change.ranks {
        Some(ranks) if ranks > MAX_RANKS => {
            Err(GateChangeError::Invalid { field: "ranks", problem: "at most 65536" })
        }
        _ => Ok(()),
    }
}

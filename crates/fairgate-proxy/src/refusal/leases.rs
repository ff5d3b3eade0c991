//! Refusals for holders of leases.

use std::time::Duration;

use super::rights::listed;
use super::{Refusal, RefusalCode};

/// Refuses with 400 because the body is not JSON of the right form. `problem` names the field and
/// its position.
pub(crate) fn unread_lease(problem: &str) -> Refusal {
    let message = format!("The body cannot be read: {problem}.");
    Refusal::new(RefusalCode::InvalidLease, message)
}

pub(crate) fn bad_lease(field: &'static str, problem: &str) -> Refusal {
    let message = format!("The field {field} {problem}.");
    Refusal::new(RefusalCode::InvalidLease, message).with_param(field)
}

/// Refuses with 404 because no pool leases its slots, because no leasing pool has that name, or
/// because several pools lease their slots and the request names none.
pub(crate) fn no_lease_pool(named: Option<&str>, pools: &[&str]) -> Refusal {
    let what = match named {
        Some(name) => format!("There is no pool {name:?} that leases its slots"),
        None if pools.is_empty() => {
            "No pool of this gateway leases its slots: one needs leases: true".to_owned()
        }
        None => "Several pools lease their slots: name one".to_owned(),
    };
    let message = format!("{what}. There are: {}.", listed(pools));
    Refusal::new(RefusalCode::LeasePoolNotFound, message).with_param("pool")
}

pub(crate) fn too_many_leases(what: &str, most: usize) -> Refusal {
    let message =
        format!("This key has {most} {what}, as many as a key may have. Settle or cancel some.");
    Refusal::new(RefusalCode::TooManyLeases, message)
}

/// Refuses with 404 because the lease does not exist, belongs to another key, or ended too long ago to be remembered;
/// the message does not say which.
pub(crate) fn unknown_lease(id: &str) -> Refusal {
    let shown: String = id.chars().take(64).collect();
    let message = format!(
        "There is no lease {shown:?}. Leases are forgotten two minutes after their end, and when the gateway restarts."
    );
    Refusal::new(RefusalCode::LeaseNotFound, message)
}

pub(crate) fn lease_lost(ttl: Duration, charged: u64) -> Refusal {
    let message = format!(
        "The lease is lost: it was not renewed within {} s, so its slot went to the next, and its tenant was charged \
         {charged} tokens for its time in the slot. What is reported now changes nothing.",
        ttl.as_secs_f64()
    );
    Refusal::new(RefusalCode::LeaseLost, message)
}

pub(crate) fn lease_cancelled() -> Refusal {
    let message = "The lease was cancelled before. What is reported now changes nothing.";
    Refusal::new(RefusalCode::LeaseCancelled, message)
}

pub(crate) fn lease_not_granted() -> Refusal {
    let message = "The lease is not granted yet: wait for its grant, or cancel it.";
    Refusal::new(RefusalCode::LeaseNotGranted, message)
}

pub(crate) fn not_a_limit() -> Refusal {
    let message = "What the provider answered is no refusal for a limit. Settle the lease with what the call used.";
    Refusal::new(RefusalCode::NotALimit, message)
}

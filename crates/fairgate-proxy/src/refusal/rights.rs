//! Refusals of a request's choices, because its key may not make them or because they are not valid.

use std::fmt::Write as _;
use std::time::Duration;

use fairgate_config::{DEADLINE_FORMS, format_thousandths};
use fairgate_core::units::TaskWeight;
use fairgate_store::{PRIORITY_MAX, PRIORITY_MIN};

use super::{Refusal, RefusalCode};

/// Maximum number of allowed names that a message lists.
const NAMES_SHOWN: usize = 16;

/// Formats names as `"a", "b" and 3 more`, or `none`.
pub(crate) fn listed(names: &[&str]) -> String {
    if names.is_empty() {
        return "none".to_owned();
    }
    let shown: Vec<String> =
        names.iter().take(NAMES_SHOWN).map(|name| format!("{name:?}")).collect();
    let mut list = shown.join(", ");
    if names.len() > NAMES_SHOWN {
        let _ = write!(list, " and {} more", names.len() - NAMES_SHOWN);
    }
    list
}

pub(crate) fn forbidden_class(class: &str, allowed: &[&str]) -> Refusal {
    let message = format!(
        "This key may not use the class {class:?}. It may name: {}. Without a name, its default is used.",
        listed(allowed)
    );
    Refusal::new(RefusalCode::ClassNotAllowed, message)
}

/// Refuses with 403 because a key without a list of classes names a class other than the default, although the classes
/// have a strict order.
pub(crate) fn strict_class(class: &str, defaults: &[Box<str>]) -> Refusal {
    let defaults: Vec<&str> = defaults.iter().map(|name| &**name).collect();
    let message = format!(
        "This key may not use the class {class:?}. The classes of this pool have a strict order: requests of a higher class go \
         before all others. A key without a list of classes gets the default class. It may name: {}. Leave the class out, or \
         have the gateway's operator give the key a list of classes (`fairgate key set --classes`).",
        listed(&defaults)
    );
    Refusal::new(RefusalCode::ClassNotAllowed, message)
}

/// Refuses with 403 because a key with an empty list of classes names a class that is not the default.
pub(crate) fn default_class_only(class: &str, defaults: &[Box<str>]) -> Refusal {
    let defaults: Vec<&str> = defaults.iter().map(|name| &**name).collect();
    let message = format!(
        "This key may not use the class {class:?}: it gets the default class of each pool. It may name: {}. Leave the class \
         out, or have the gateway's operator open classes for the key (`fairgate key set --classes`) or for the project of \
         a task key (`fairgate project set --classes`).",
        listed(&defaults)
    );
    Refusal::new(RefusalCode::ClassNotAllowed, message)
}

/// Refuses with 403 because the key may not open leases.
pub(crate) fn forbidden_lease() -> Refusal {
    let message = "This key may not open leases. It may send requests through the gateway (POST /v1/chat/completions and the \
                   other routes of the API). To open leases, have the gateway's operator allow them for the key (`fairgate \
                   key set --may-lease true`) or for the project of a task key (`fairgate project set --may-lease true`).";
    Refusal::new(RefusalCode::LeaseNotAllowed, message)
}

/// Refuses with 403 because the body has an id of something that the upstream stores, and the owner of the id is not
/// known.
pub(crate) fn foreign_id(field: &str) -> Refusal {
    let message = format!(
        "This key may not use `{field}`: it names something that the upstream stores for all who use this gateway. The key may \
         send files in the body, and name responses and items that it got through the gateway. Leave it out, or have the \
         gateway's operator allow such ids for the key (`fairgate key set --may-use-foreign-ids true`) or for the project of \
         a task key (`fairgate project set --may-use-foreign-ids true`)."
    );
    Refusal::new(RefusalCode::ForeignIdNotAllowed, message)
}

/// Refuses with 403 because none of the key's classes belongs to this pool.
pub(crate) fn classes_of_other_pools(list: &[String]) -> Refusal {
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    let message = format!(
        "This key may use the classes {}, and the pool of this model has none of them. Have a class of this pool added to the \
         key, or ask for another model.",
        listed(&list)
    );
    Refusal::new(RefusalCode::ClassNotAllowed, message)
}

pub(crate) fn forbidden_priority(asked: i64, most: i64) -> Refusal {
    let message = format!(
        "This key may ask for priorities up to {most}, and the request asks for {asked}. Leave it out, lower it, or have \
         the gateway's operator raise the key's priority_max."
    );
    Refusal::new(RefusalCode::PriorityNotAllowed, message)
}

/// Refuses with 403 because the deadline would bring the request to the front of an `edf` queue.
pub(crate) fn forbidden_deadline(asked: Duration, least: Duration) -> Refusal {
    let message = format!(
        "The queue of this request serves the earliest deadline first, and there this key may state deadlines from {} on; the \
         request states {}. Leave it out, state a longer one, or have the gateway's operator lower the key's deadline_min.",
        millis(least),
        millis(asked)
    );
    Refusal::new(RefusalCode::DeadlineNotAllowed, message)
}

/// Formats a time as `2500 ms`, with fractions of a millisecond.
pub(super) fn millis(time: Duration) -> String {
    format!("{} ms", time.as_secs_f64() * 1000.0)
}

pub(crate) fn bad_deadline(header: &str) -> Refusal {
    let message = format!("A deadline ({header}) {DEADLINE_FORMS}.");
    Refusal::new(RefusalCode::InvalidDeadline, message)
}

pub(crate) fn forbidden_pin(header: &str, asked: &str) -> Refusal {
    let message = format!(
        "This key may not choose the worker of a request, and this one asks for {asked:?}. It may use every worker that the \
         scheduler chooses. Leave {header} out, or have the gateway's operator allow it (may_pin)."
    );
    Refusal::new(RefusalCode::PinNotAllowed, message)
}

/// Refuses with 403 because the request chooses a worker that its key may not use.
pub(crate) fn forbidden_worker(worker: &str, allowed: &[&str]) -> Refusal {
    let message = format!(
        "This key may not use the worker {worker:?}. Of the workers of this model it may use: {}.",
        listed(allowed)
    );
    Refusal::new(RefusalCode::WorkerNotAllowed, message)
}

/// Refuses with 403 because none of the key's workers belongs to this pool.
pub(crate) fn workers_of_other_pools(list: &[String]) -> Refusal {
    let list: Vec<&str> = list.iter().map(String::as_str).collect();
    let message = format!(
        "This key may use these workers: {}; none of them serves this model. Ask for another model, or have the gateway's \
         operator add a worker to the list of the key (`fairgate key set --workers`) or of the project of a task key \
         (`fairgate project set --workers`).",
        listed(&list)
    );
    Refusal::new(RefusalCode::WorkerNotAllowed, message)
}

pub(crate) fn bad_workers(header: &str, count_max: usize, bytes_max: usize) -> Refusal {
    let message = format!(
        "The workers of a request ({header}) must be 1 to {count_max} names of 1 to {bytes_max} visible ASCII characters \
         each, with commas between them."
    );
    Refusal::new(RefusalCode::InvalidWorkers, message)
}

/// Refuses with 503 because the request itself restricts its workers, and none of those workers is
/// available. `choice` describes the allowed workers.
pub(crate) fn no_worker_as_chosen(choice: &str) -> Refusal {
    let message = format!(
        "No worker can take this request: it may go only to {choice}. None of them is there, or all are drained. Leave the \
         choice out, or choose another."
    );
    Refusal::new(RefusalCode::NoWorkerAsChosen, message)
}

pub(crate) fn forbidden_taint(taint: &str, allowed: &[&str]) -> Refusal {
    let message = format!(
        "This key may not require the taint {taint:?} of a worker. It may require: {}.",
        listed(allowed)
    );
    Refusal::new(RefusalCode::TaintNotAllowed, message)
}

pub(crate) fn unknown_worker(stated: &str, workers: &[&str]) -> Refusal {
    let message = format!(
        "There is no worker {stated:?} for this model. Name one of {}, with /RANK behind it for one of its ranks.",
        listed(workers)
    );
    Refusal::new(RefusalCode::UnknownWorker, message)
}

pub(crate) fn unknown_rank(worker: &str, rank: u32, ranks: u32) -> Refusal {
    let message = format!(
        "The worker {worker:?} has no rank {rank}. Its ranks are 0 to {}.",
        ranks.saturating_sub(1)
    );
    Refusal::new(RefusalCode::UnknownRank, message)
}

pub(crate) fn bad_priority(header: &str) -> Refusal {
    let message =
        format!("A priority ({header}) must be an integer from {PRIORITY_MIN} to {PRIORITY_MAX}.");
    Refusal::new(RefusalCode::InvalidPriority, message)
}

pub(crate) fn bad_weight(header: &str) -> Refusal {
    let message = format!(
        "A weight ({header}) must be a number from 0.001 to 1000000 with at most three decimals."
    );
    Refusal::new(RefusalCode::InvalidWeight, message)
}

/// Refuses with 400 because the request states a weight in a pool where weights have no effect.
pub(crate) fn weight_without_effect() -> Refusal {
    let message = "A weight has no effect on this model, because the policy of its pool has no load node. Leave \
                   x-fairgate-weight out.";
    Refusal::new(RefusalCode::WeightWithoutEffect, message)
}

/// Refuses with 403 because the weight is above that of the model, and also above the key's
/// `weight_max`, if it has one.
pub(crate) fn forbidden_weight(
    stated: TaskWeight,
    of_model: TaskWeight,
    most_milli: Option<u64>,
) -> Refusal {
    let of_model = u64::from(of_model.thousandths());
    let of_key = match most_milli {
        Some(most) => format!("its weight_max is {}", format_thousandths(most)),
        None => "it has no weight_max".to_owned(),
    };
    let message = format!(
        "The request states a weight of {}, and this key may state weights up to {}: the weight of the model is {}, and {of_key}. \
         Leave the weight out, lower it, or have the gateway's operator raise it for the key (`fairgate key set \
         --weight-max`) or for the project of a task key (`fairgate project set --weight-max`).",
        format_thousandths(stated.thousandths().into()),
        format_thousandths(of_model.max(most_milli.unwrap_or(0))),
        format_thousandths(of_model),
    );
    Refusal::new(RefusalCode::WeightNotAllowed, message)
}

pub(crate) fn bad_taints(count_max: usize, bytes_max: usize) -> Refusal {
    let message = format!(
        "Required taints (x-fairgate-requires) must be at most {count_max} names of 1 to {bytes_max} visible ASCII \
         characters each, with commas between them."
    );
    Refusal::new(RefusalCode::InvalidTaints, message)
}

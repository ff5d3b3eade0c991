//! Reads one class of a policy file.

use std::ops::RangeInclusive;
use std::time::Duration;

use fairgate_core::policy::{BusyThresholds, ClassLimits, QueueOrder};
use fairgate_core::units::{BatchFraction, Tokens, Weight};

use crate::classes::{
    ClassArbiter, ClassBucket, ClassCell, ClassInside, PolicyClass, PolicyClassName, queue,
};
use crate::field::{ConfigField, ConfigSection};
use crate::read::{TIMEOUT, policy};
use crate::suggest::did_you_mean;
use crate::values::parse_thousandths;

pub(super) const CLASS: &[&str] = &[
    "name",
    "policy_family",
    "cache_bucket",
    "quantum",
    "cap",
    "queue_policy",
    "prefill_busy_threshold",
    "prefill_busy_threshold_frac",
    "busy_worker_ratio",
    "request_queue_limit_per_worker",
    "raw_isl_token_queue_limit_per_worker",
    "cached_token_queue_limit_per_worker",
    "inside",
    "max_wait",
    "deadline",
];

const MAX_WAIT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(86_400);

/// Reads a name that is also valid as a metric label and in a header: letters, digits, `_`, `.` and `-`.
pub(super) fn identifier(field: ConfigField<'_>) -> Option<String> {
    let text = field.scalar().unwrap_or_default();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    match (1..=256).contains(&text.len()) && text.bytes().all(fits) {
        true => Some(text.to_owned()),
        false => field.wrong("must be a name of 1 to 256 letters, digits, _, . and -"),
    }
}

/// Reads a class. `buckets` or `arbiter` is `None` if reading it failed and an error was recorded.
pub(super) fn class(
    section: &ConfigSection<'_>,
    buckets: Option<&[ClassBucket]>,
    arbiter: Option<ClassArbiter>,
) -> Option<PolicyClass> {
    let name =
        section.required("name", "what journals, metrics and the live view call it", identifier);
    let cell = cell(section, buckets);
    let (quantum, cap) = (quantum(section, arbiter), cap(section, arbiter));
    let inside = section.nullable("inside", inside);
    let has_tree = matches!(inside, Some(Some(ClassInside::Tree(_))));
    let order = section.nullable("queue_policy", |field| {
        let order = field.clone().one_of(&QueueOrder::ALL.map(|order| (order.name(), order)))?;
        beside_tree(&field, has_tree, "queue: {order: …}").map(|()| order)
    });
    let max_wait = section.nullable("max_wait", |field| {
        let wait = field.clone().duration(MAX_WAIT)?;
        beside_tree(&field, has_tree, "queue: {max_wait_us: …}").map(|()| wait)
    });
    let deadline = section.nullable("deadline", |field| field.duration(TIMEOUT));
    let (busy, limits) = (busy(section), limits(section));
    let busy_worker_ratio = section.nullable("busy_worker_ratio", busy_worker_ratio);
    Some(PolicyClass {
        name: PolicyClassName(name?.into()),
        cell: cell?,
        quantum: quantum?,
        cap: cap?,
        queue: queue(order?.unwrap_or_default(), max_wait?),
        inside: inside?.unwrap_or(ClassInside::Owners),
        busy: busy?,
        limits: limits?,
        deadline: busy_worker_ratio.and(deadline)?,
    })
}

/// Reads the fraction of the eligible workers that must be busy before the requests of a class are queued. Only 1,
/// which is also the default, is supported.
fn busy_worker_ratio(field: ConfigField<'_>) -> Option<()> {
    let number = field.plain().and_then(|text| text.parse::<f64>().ok());
    match number.filter(|number| *number > 0.0 && *number <= 1.0) {
        Some(1.0..) => Some(()),
        Some(_) => field.wrong(
            "must be 1.0: a request is queued when all workers that may take it are busy, not a part of them, because it \
             could be placed on one of the others; remove it, or lower the class's prefill_busy_threshold",
        ),
        None => field.expected("a decimal over 0 and at most 1, and here 1.0"),
    }
}

/// Reads the quantum of a class. Under bands, where the order of the file decides, a quantum is an error.
fn quantum(section: &ConfigSection<'_>, arbiter: Option<ClassArbiter>) -> Option<Option<Weight>> {
    if arbiter == Some(ClassArbiter::Bands) {
        return section.nullable("quantum", |field| {
            field.wrong(
                "does nothing with arbiter: bands, where a class goes before all that are listed after it: remove it, and \
                 state cap to leave slots for the classes below",
            )
        });
    }
    let what = "the tokens that it may spend in each round, or its weight with arbiter: share";
    let quantum =
        section.required("quantum", what, |field| Weight::new(field.integer(1..=u64::MAX)?).ok());
    quantum.map(Some)
}

/// Reads the cap of a class, which is the largest number of its requests in flight. Under drr, which has no caps, a cap
/// is an error.
fn cap(section: &ConfigSection<'_>, arbiter: Option<ClassArbiter>) -> Option<Option<u64>> {
    section.nullable("cap", |field| match arbiter {
        Some(ClassArbiter::Drr) => field.wrong(
            "does nothing with arbiter: drr, which knows no caps: remove it, or use arbiter: share or arbiter: bands",
        ),
        _ => field.integer(1..=1_000_000),
    })
}

/// Records an error at a queue setting of a class that has a tree inside. A tree has its own queues, so queue settings
/// of the class would have no effect.
fn beside_tree(field: &ConfigField<'_>, has_tree: bool, instead: &str) -> Option<()> {
    match has_tree {
        false => Some(()),
        true => field.wrong(format!(
            "does nothing beside a tree in inside, which has its own queues: remove it, and write {instead} into the tree"
        )),
    }
}

/// Reads the family and bucket that a class serves; a class states both or neither.
fn cell(section: &ConfigSection<'_>, buckets: Option<&[ClassBucket]>) -> Option<Option<ClassCell>> {
    let family = section.nullable("policy_family", identifier);
    let bucket = section.nullable("cache_bucket", |field| known_bucket(field, buckets));
    match (family?, bucket?) {
        (None, None) => Some(None),
        (Some(family), Some(bucket)) => Some(Some(ClassCell { family, bucket })),
        (Some(_), None) => section.missing(
            "cache_bucket",
            "a class of a family serves one bucket of it; name it, or remove policy_family to make it an explicit class",
        ),
        (None, Some(_)) => section.missing(
            "policy_family",
            "a bucket is a bucket of a family; name it, or remove cache_bucket to make it an explicit class",
        ),
    }
}

fn known_bucket(field: ConfigField<'_>, buckets: Option<&[ClassBucket]>) -> Option<String> {
    let name = identifier(field.clone())?;
    let Some(buckets) = buckets else { return Some(name) };
    let names = || buckets.iter().map(|bucket| &*bucket.name);
    if names().any(|known| known == name) {
        return Some(name);
    }
    let guess = did_you_mean(&name, names());
    let list = names().collect::<Vec<_>>().join(", ");
    field.wrong(format!("uncached_isl_buckets has no bucket {name:?}{guess} (it has {list})"))
}

fn inside(field: ConfigField<'_>) -> Option<ClassInside> {
    match field.scalar() {
        Some("queue") => Some(ClassInside::Queue),
        Some(_) => field.expected(
            "a node (share, drr, load or bands), or queue for one queue of the whole class",
        ),
        None => policy(field).map(ClassInside::Tree),
    }
}

fn busy(section: &ConfigSection<'_>) -> Option<BusyThresholds> {
    let tokens =
        section.nullable("prefill_busy_threshold", |field| field.integer(0..=u64::MAX).map(Tokens));
    let fraction = section.nullable("prefill_busy_threshold_frac", fraction);
    Some(BusyThresholds { tokens: tokens?, fraction: fraction? })
}

/// Reads a decimal and rounds it to thousandths. Any precision is accepted, because Dynamo reads a float here.
fn fraction(field: ConfigField<'_>) -> Option<BatchFraction> {
    let number = field.plain().and_then(|text| text.parse::<f64>().ok());
    let number = number.filter(|number| (0.0..=1e6).contains(number));
    let thousandths = number.and_then(|number| parse_thousandths(&format!("{number:.3}")));
    let fraction = thousandths.and_then(|number| BatchFraction::from_thousandths(number).ok());
    fraction.or_else(|| field.expected("a decimal from 0 to 1000000, a part of a worker's batch"))
}

fn limits(section: &ConfigSection<'_>) -> Option<ClassLimits> {
    let read = |name| {
        section.nullable(name, |field| match field.plain() {
            Some("0") => field.wrong(
                "must be 1 or more: 0 would refuse every request of the class; remove it for no limit",
            ),
            _ => field.integer(1..=u64::MAX),
        })
    };
    let requests = read("request_queue_limit_per_worker");
    let input = read("raw_isl_token_queue_limit_per_worker");
    let cached = read("cached_token_queue_limit_per_worker");
    Some(ClassLimits {
        requests_per_worker: requests?,
        input_tokens_per_worker: input?.map(Tokens),
        cached_tokens_per_worker: cached?.map(Tokens),
    })
}

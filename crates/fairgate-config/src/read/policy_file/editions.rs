//! Fields of other editions of Dynamo's policy files. Each is refused with an error that names the field and says what
//! to use instead.

/// Fields that newer or older editions have, each with the message of its error.
///
/// `worker_selection`, `queue_admission` and `stages` choose code that is compiled into Dynamo's router. Ignoring them
/// would serve requests by other rules than the file says. The other fields were replaced in Dynamo itself.
pub(super) const UNSUPPORTED: &[(&str, &str)] = &[
    (
        "worker_selection",
        "is not supported: it names a selection policy that is compiled into Dynamo's router; Fairgate always takes the \
         open worker with the fewest waiting tokens less its cached ones: remove it, and state overlap_credit in the pool \
         to weigh cached tokens",
    ),
    (
        "queue_admission",
        "is not supported: it names an admission policy that is compiled into Dynamo's router; Fairgate queues a request \
         when all workers that may take it are full or busy: remove it, and state prefill_busy_threshold in the classes",
    ),
    (
        "stages",
        "is not supported: it names steps that are compiled into Dynamo's router, and Fairgate has none of them: remove it",
    ),
    (
        "default_policy_class",
        "is of an older edition of Dynamo, without families: state default_policy_family instead, and policy_family and \
         cache_bucket in its class",
    ),
    (
        "request_queue_limit",
        "is of an older edition of Dynamo, and counts for all workers together: state request_queue_limit_per_worker, \
         which is times the workers",
    ),
    (
        "token_queue_limit",
        "is of an older edition of Dynamo, and counts for all workers together: state \
         raw_isl_token_queue_limit_per_worker, which is times the workers",
    ),
    (
        "cached_token_queue_limit",
        "is of an older edition of Dynamo, and counts for all workers together: state \
         cached_token_queue_limit_per_worker, which is times the workers",
    ),
];

/// Returns true if a field belongs to another edition.
pub(super) fn is_unsupported(name: &str) -> bool {
    UNSUPPORTED.iter().any(|(other, _)| *other == name)
}

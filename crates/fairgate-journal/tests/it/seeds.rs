//! How many random journals to try.

/// `FAIRGATE_JOURNALS` where it is set, else this many. The first one's seed is `FAIRGATE_SEED`.
pub(crate) fn journals(usual: u64) -> u64 {
    match std::env::var("FAIRGATE_JOURNALS") {
        Ok(count) => count.parse().expect("FAIRGATE_JOURNALS is a number"),
        Err(_) => usual,
    }
}

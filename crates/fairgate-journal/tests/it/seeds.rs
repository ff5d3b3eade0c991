//! Number of random journals to try.

/// Returns `FAIRGATE_JOURNALS` if it is set, else `usual`. The seed of the first journal is
/// `FAIRGATE_SEED`.
pub(crate) fn journals(usual: u64) -> u64 {
    match std::env::var("FAIRGATE_JOURNALS") {
        Ok(count) => count.parse().expect("FAIRGATE_JOURNALS is a number"),
        Err(_) => usual,
    }
}

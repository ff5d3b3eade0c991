//! placeholder
/// Faults put into the machine on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    TimeJumps,
    OldDirectoryCounts,
    OrphansAreFreedAtOnce,
    NothingIsCut,
}
pub(crate) fn stop_if_asked(id: &str) {
    if id.starts_with("stops-") {
        std::panic::resume_unwind(Box::new(()));
    }
}

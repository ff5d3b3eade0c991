//! The handle of a worker in a prefix index.

/// A worker of a [`PrefixIndex`](crate::PrefixIndex), from [`PrefixIndex::add`](crate::PrefixIndex::add) until
/// [`PrefixIndex::remove`](crate::PrefixIndex::remove). After the removal the value is invalid, even if a new worker
/// has got the same index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PrefixWorker {
    pub(crate) place: u32,
    pub(crate) generation: u32,
}

//! Live views of the pools. Taking a snapshot of a pool is expensive, so all readers within 200 ms share one snapshot.

mod activity;
mod classes;
mod due_share;
mod flows;
mod policy_description;
mod pool_snapshots;
mod tiers;
mod view;
mod worker;

pub use self::classes::ClassView;
pub(crate) use self::policy_description::describe_policy;
pub(crate) use self::pool_snapshots::{PoolSnapshot, PoolSnapshotCache, PoolUnavailableError};
pub use self::tiers::{TierUseView, TiersView};
pub use self::view::{GroupView, LedgerView, LiveView, PoolView, ServiceView, TenantView};
pub(crate) use self::worker::workers;
pub use self::worker::{EngineBody, QuotaBody, WorkerBody};

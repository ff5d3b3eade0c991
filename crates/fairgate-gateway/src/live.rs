//! What the pools look like now: asked of them seldom, shown to as many as want to see it.

mod activity;
mod algorithm;
mod classes;
mod due;
mod flows;
mod sights;
mod tiers;
mod view;
mod worker;

pub(crate) use self::algorithm::algorithm;
pub use self::classes::ClassView;
pub(crate) use self::sights::{Sight, Sights, Unavailable};
pub use self::tiers::{TierUseView, TiersView};
pub use self::view::{GroupView, LedgerView, LiveView, PoolView, ServiceView, TenantView};
pub(crate) use self::worker::workers;
pub use self::worker::{EngineBody, QuotaBody, WorkerBody};

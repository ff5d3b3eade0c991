//! What the pools look like now: asked of them seldom, shown to as many as want to see it.

mod activity;
mod algorithm;
mod classes;
mod flows;
mod sights;
mod view;

pub(crate) use self::algorithm::algorithm;
pub use self::classes::ClassView;
pub(crate) use self::sights::{Sight, Sights, Unavailable};
pub use self::view::{GroupView, LedgerView, LiveView, PoolView, ServiceView, TenantView};

//! Live views of the pools, and the pools' histories.
//!
//! Views are made from the flows of a pool. All readers within 200 ms share one copy of the flows.
//! Only a call that needs single requests gets a snapshot with the queues.

mod activity;
mod classes;
mod due_share;
mod flow_now;
mod flows;
mod owner_rows;
mod policy_description;
mod pool_histories;
mod pool_snapshots;
mod recent_flows;
mod tiers;
mod view;
mod worker;

pub(crate) use self::flow_now::{FlowNowSource, add_counts, hide_tokens, only_counts};
pub(crate) use self::policy_description::describe_policy;
pub(crate) use self::pool_histories::{PoolHistories, sample_until_closing};
pub(crate) use self::pool_snapshots::{PoolSnapshot, PoolSnapshotCache, PoolUnavailableError};
pub(crate) use self::recent_flows::RecentFlowsCache;
pub(crate) use self::view::{
    service_of, with_never_seen, with_tiers, with_unit, with_window, without_names, without_rows,
    without_tokens,
};
pub(crate) use self::worker::workers;

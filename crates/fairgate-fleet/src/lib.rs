//! The fleet: projects with tasks, agents that work on them, and the loop that gives every project its share.
//!
//! The calls of this crate take and return the wire types of `fairgate_api::fleet`, which also has
//! the state machine of a task. `fleet` is the handle for callers; each of its methods is one
//! transaction of the store. `round` is one step of the loop, in one transaction: it ends expired
//! leases and pauses, loads a snapshot, lets `proportional` decide, and applies the decision. No
//! code of this crate knows HTTP. `fairgate_core::proportional` decides which project is furthest
//! below its share.

mod add_tasks;
mod agent_access;
mod agent_id;
mod agent_reports;
mod agents;
mod baseline;
mod call_context;
mod claim_ref;
mod claim_waiters;
mod claims;
mod completion_queue;
mod counting_transaction;
mod credit;
mod dependency_cycle;
mod error;
mod explain;
mod fleet;
mod fleet_clock;
mod fleet_view;
mod human_format;
mod json_rows;
mod lease_outage;
mod model_calls;
mod options;
mod project_account;
mod project_baseline;
mod projects;
mod retry_policy;
mod rights;
mod round;
mod round_journal;
mod round_loop;
mod round_timer;
#[cfg(test)]
mod simulation;
mod sql_placeholders;
mod task_actions;
mod task_history;
mod task_key;
mod task_logs;
mod task_results;
mod tasks;
mod tenant_baseline;
#[cfg(test)]
mod testing;
mod transition;
mod undo;
mod unfit_tasks;
mod validate;
mod webhooks;
mod window_usage;
mod workspace_machines;
mod workspaces;

pub use agent_access::check_required_labels;
pub use agent_id::AgentId;
pub use agent_reports::{TaskCompletion, TaskFailure, TaskHeartbeat, TaskQuestion, TaskRelease};
pub use claims::LimitCause;
pub use error::FleetError;
pub use fleet::{Fleet, FleetFuture};
pub use fleet_clock::{FleetClock, SystemClock};
pub use options::{FleetCredit, FleetOptions, FleetShare};
pub use projects::project_weights;
pub use rights::rights_body;
pub use round_loop::RoundStats;
pub use task_key::TaskKey;
pub use tasks::TaskQuery;
pub use webhooks::{
    WebhookDelivery, WebhookResult, WebhookSubscription, WebhookSubscriptions, WebhookTotals,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

//! The fleet: projects with tasks, agents that work on them, and the loop that gives every project its share.
//!
//! `model` has the types of the API, and `state` the state machine of a task. `fleet` is the handle that callers use;
//! each call of a method is one transaction of the store. `round` is one step of the loop, in one transaction: expired
//! leases and pauses end, a snapshot is loaded, `proportional` decides, and the decision is applied. No code of this
//! crate knows HTTP. `fairgate_core::proportional` decides which project is furthest below its share.

mod add_tasks;
mod agent_access;
mod agents;
mod call_context;
mod claim_waiters;
mod claims;
mod counting_transaction;
mod credit;
mod dependency_cycle;
mod error;
mod explain;
mod fleet;
mod fleet_view;
mod human_format;
mod json_rows;
mod lease_outage;
mod model;
mod model_calls;
mod project_account;
mod project_baseline;
mod projects;
mod retry_policy;
mod rights_body;
mod round;
mod round_journal;
mod round_loop;
mod round_timer;
#[cfg(test)]
mod simulation;
mod sql_placeholders;
mod state;
mod task_actions;
mod task_history;
mod task_key;
mod task_logs;
mod task_results;
mod tasks;
mod tenant_baseline;
#[cfg(test)]
mod test_database;
#[cfg(test)]
mod testing;
mod transition;
mod unfit_tasks;
mod validate;
mod webhooks;
mod weight_number;
mod whole_number;
mod window_usage;
mod workspace_machines;
mod workspaces;

pub use agent_access::check_required_labels;
pub use claims::LimitCause;
pub use credit::FleetCredit;
pub use error::FleetError;
pub use fleet::{
    AgentId, Fleet, FleetClock, FleetFuture, FleetOptions, FleetShare, RoundStats, SystemClock,
};
pub use model::*;
pub use projects::project_weights;
pub use rights_body::{RightsBody, RightsPatchBody};
pub use state::{FleetAgentState, FleetProjectStatus, TaskState};
pub use webhooks::{
    WebhookDelivery, WebhookEventKind, WebhookPendingEvent, WebhookResult, WebhookSubscription,
    WebhookSubscriptions, WebhookTotals,
};
pub use weight_number::WeightNumber;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

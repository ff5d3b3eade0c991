//! The fleet: projects with tasks, agents that work on them, and the loop that gives every project its share.
//!
//! `model` says what there is, `state` what may become of it. `fleet` is the handle that shells call; each call is one
//! transaction of the store. `round` is the loop's one step: what ran out ends, the snapshot is taken, `proportional`
//! decides, the decision is applied, all in one transaction. Nothing here knows HTTP; nothing here decides who is owed
//! most, which is `fairgate_core::proportional`'s.

mod actions;
mod activity;
mod add;
mod agents;
mod call;
mod claims;
mod counted;
mod dispatch;
mod error;
mod fleet;
mod graph;
mod history;
mod journal;
mod json_rows;
mod keys;
mod logs;
mod model;
mod pace;
mod projects;
mod retry;
mod round;
mod rows;
#[cfg(test)]
mod scratch;
#[cfg(test)]
mod simulation;
mod spent;
mod state;
mod step;
mod tasks;
#[cfg(test)]
mod testing;
mod text;
mod usage;
mod view;
mod waiters;
mod whole;
mod why;
mod words;
mod workspaces;

pub use error::FleetError;
pub use fleet::{AgentId, Answer, Clock, Fleet, FleetOptions, Rounds, SystemClock};
pub use model::*;
pub use state::{AgentState, ProjectStatus, TaskState};

//! Cases with numbers that were computed by hand. They test what the pages of the four schedulers promise, what these
//! schedulers were observed to do, their weaknesses that ours must not have, and the wishes of users.
//!
//! Each case runs in a `Scene`, which applies events to one pool. After every event, the scene compares the pool with
//! the naive scheduler, and checks the capacity and the bound of each flow.

mod crowd;
mod scene;

mod abuse;
mod bands;
mod bounds;
mod demand;
mod dynamo;
mod dynamo_admission;
mod dynamo_page;
mod dynamo_turns;
mod explain;
mod loco;
mod loco_holes;
mod meter;
mod obleth;
mod obleth_holes;
mod recorded;
mod share_rules;
mod whereabouts;

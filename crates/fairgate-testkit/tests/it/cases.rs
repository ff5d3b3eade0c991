//! Cases written out by hand, with their numbers: what the four schedulers' pages promise, what they were
//! seen to do, the holes that ours must not have, and what people ask for.
//!
//! Each runs in a `Scene`: one pool that is told step by step what happens, and is held at every step
//! against the naive scheduler, its capacity and its live bound.

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

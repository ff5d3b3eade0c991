//! Tests of the scheduler against references that do not use its code: the conformance vectors, the naive scheduler,
//! the published pages, and service that is measured from the decisions.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that fails here should stop here, and random ones print their seed"
)]

mod cases;
mod closed_loop;
mod corpus;
mod fair_service;
mod features;
mod properties;
mod proportional;
mod recipes;
mod regressions;
mod vectors;
mod workload;

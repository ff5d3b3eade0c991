//! The scheduler against everything that was not made from its code: the conformance vectors, the naive scheduler, the
//! published pages, and service as an outsider can measure it.

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

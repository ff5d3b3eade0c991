//! What the tests and benchmarks share.

pub mod naive_proportional;

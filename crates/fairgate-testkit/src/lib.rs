//! What the tests and benchmarks share.
//!
//! [`naive`] is the oracle: the replay rules written down as directly as they read, slow and plain.
//! [`workload`] makes random journals from a seed, and makes failing ones small; [`seeds`] runs tests over them. [`fuzz`] is what the fuzz
//! targets call, and what the tests call with the inputs that were kept.

pub mod fuzz;
pub mod naive;
pub mod naive_proportional;
pub mod seeds;
pub mod workload;

/// The README's example of the library, which must compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

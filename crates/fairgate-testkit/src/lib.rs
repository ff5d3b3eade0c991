//! Code that the tests and benchmarks of several crates share.
//!
//! [`naive`] is the oracle, a slow and simple scheduler that follows the replay rules sentence by sentence.
//! [`workload`] generates random journals from a seed and minimises failing journals; [`seeds`] runs tests over many
//! seeds. [`test_data`] finds the conformance vectors and traces. [`fuzz`] has the functions of the fuzz targets, which
//! the tests also call with the stored inputs. With the feature `programs`, `programs` starts gateways and other
//! processes, and `postgres_server` starts PostgreSQL.

pub mod fuzz;
pub mod naive;
pub mod naive_proportional;
#[cfg(feature = "programs")]
pub mod postgres_server;
#[cfg(feature = "programs")]
pub mod programs;
pub mod seeds;
pub mod test_data;
pub mod workload;

/// The README's example of the library, as a doc test that must compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

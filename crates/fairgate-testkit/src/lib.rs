//! What the tests and benchmarks share.
//!
//! [`naive`] is the oracle: the replay rules written down as directly as they read, slow and plain.

pub mod naive;

//! What the tests and benchmarks share.

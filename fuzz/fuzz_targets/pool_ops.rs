//! Any bytes as a policy and a sequence of operations on a pool: the pool's invariants hold throughout.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fairgate_testkit::fuzz::pool_ops(data));

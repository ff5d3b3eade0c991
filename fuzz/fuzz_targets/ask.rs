//! Any bytes as a request's body: read or refused, and changed only where it should be.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fairgate_dialect::fuzz::ask(data));

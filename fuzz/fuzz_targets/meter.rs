//! Any bytes as an answer, cut anywhere: the same bytes forwarded, the same tokens measured, no panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fairgate_dialect::fuzz::meter(data));

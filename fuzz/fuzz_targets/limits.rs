//! Any bytes as the headers and the body of an error: no panic, and nothing outside its bounds.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fairgate_dialect::fuzz::limits(data));

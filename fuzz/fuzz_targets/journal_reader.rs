//! Any bytes as a journal: an error that names the line, or decisions; never a panic or a hang.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fairgate_testkit::fuzz::journal_bytes(data));

//! Measures the time and memory to write, read and restore a snapshot of a million waiting
//! requests: `cargo bench -p fairgate-journal --bench snapshot`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Instant;

use fairgate_core::Pool;
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::{JournalReader, JournalWriter, parse_policy};

const WAITING: u64 = 1_000_000;
const TENANTS: u64 = 100_000;

fn crowded() -> Pool {
    let tree = r#"{"share":{"by":"tenant","inside":{"share":{"by":"session"}}}}"#;
    let mut pool = Pool::new(PoolConfig::new(0, parse_policy(tree).unwrap()));
    for i in 0..WAITING {
        let mut submit = Submit::new(&format!("request-{i}"));
        submit.attributes = Attributes::none()
            .with(Attribute::Tenant, &format!("tenant-{}", i % TENANTS))
            .with(Attribute::Session, &format!("s{}", i % 3));
        submit.cost = Some(Tokens(i % 5000));
        pool.apply(Micros(i), Event::Submit(Box::new(submit)), &mut Vec::new()).unwrap();
    }
    pool
}

/// Returns the peak memory of the process in MiB, if the system reports it.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|kib| kib.trim().split(' ').next()?.parse::<u64>().ok())
        .map_or(0, |kib| kib >> 10)
}

fn timed<T>(name: &str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    println!("{name:28} {:6} ms   peak {:5} MiB", start.elapsed().as_millis(), peak_mib());
    result
}

fn main() {
    if !std::env::args().any(|argument| argument == "--bench") {
        return; // Built and started as one of the tests: there is nothing to test.
    }
    let pool = timed("a million submits", crowded);
    let snapshot = timed("snapshot taken", || pool.snapshot());
    drop(pool);
    let text = timed("written", || {
        let mut writer = JournalWriter::new(Vec::new());
        writer.write_snapshot(&snapshot).unwrap();
        writer.into_inner()
    });
    println!("{:28} {:6} MiB", "  of text", text.len() >> 20);
    drop(snapshot);
    let start = timed("read", || JournalReader::open(&text[..]).unwrap().0);
    drop(text);
    let pool = timed("restored", || start.into_pool().unwrap());
    assert_eq!(pool.waiting(), WAITING);
}

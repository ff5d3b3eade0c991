//! Divides the instructions of a gateway into the parts of its work.
//!
//! Every instruction counts for exactly one part, so the parts add up. All instructions of the writer's thread are one
//! part. In other threads, functions that copy memory or allocate it are parts of their own. For all other code, the
//! source file decides. Code of the standard library counts for the function into which it was inlined, if that
//! function belongs to a part.

use std::collections::BTreeMap;

use super::profile::{CodePlace, ThreadProfile};

/// One part of the work for a request. The order is that of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkPart {
    LedgerWriter,
    Core,
    Gate,
    History,
    Settlement,
    RowLine,
    Metrics,
    AnswerMeter,
    WorkerTimeMeter,
    RequestReader,
    GatewayRest,
    Headers,
    HyperTokio,
    Allocation,
    Copies,
    Hashing,
    StandardLibrary,
    Rest,
}

impl WorkPart {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::LedgerWriter => "SQLite's writer thread",
            Self::Core => "pool: the core's decisions",
            Self::Gate => "pool: gate and task",
            Self::History => "history: counts of flows, samples",
            Self::Settlement => "settlement: end of the attempt, its charge, row",
            Self::RowLine => "the row's line: JSON, checksum, spool",
            Self::Metrics => "metrics",
            Self::AnswerMeter => "meter of the answer",
            Self::WorkerTimeMeter => "meter of worker time",
            Self::RequestReader => "reading the request, estimate",
            Self::GatewayRest => "gateway: all other code",
            Self::Headers => "headers and URIs (http)",
            Self::HyperTokio => "hyper and tokio",
            Self::Allocation => "allocation (malloc, free)",
            Self::Copies => "copies and comparisons of memory",
            Self::Hashing => "hashing, hash tables",
            Self::StandardLibrary => "standard library, not inlined",
            Self::Rest => "other libraries",
        }
    }
}

/// Pieces of paths, and the part whose code is below them. The first that matches decides.
const PATHS: [(&str, WorkPart); 44] = [
    ("jemalloc", WorkPart::Allocation),
    ("/fairgate-core/", WorkPart::Core),
    // What the history needs of each request, and its samples. They have no switch, so this is how their cost is known.
    ("/fairgate-history/", WorkPart::History),
    ("/fairgate-control/src/live/pool_histories", WorkPart::History),
    ("/fairgate-runtime/src/flow_totals", WorkPart::History),
    ("/fairgate-runtime/src/flow_counts", WorkPart::History),
    ("/fairgate-runtime/", WorkPart::Gate),
    ("/fairgate-journal/", WorkPart::Gate),
    ("/fairgate-store/", WorkPart::RowLine),
    ("/serde_json-", WorkPart::RowLine),
    ("/serde_core-", WorkPart::RowLine),
    ("/serde-", WorkPart::RowLine),
    // This code hashes keys.
    ("/blake3-", WorkPart::GatewayRest),
    ("/crc32c-", WorkPart::RowLine),
    ("/itoa-", WorkPart::RowLine),
    ("/fairgate-proxy/src/metrics", WorkPart::Metrics),
    ("/prometheus-client-", WorkPart::Metrics),
    ("/fairgate-proxy/src/forward/settlement", WorkPart::Settlement),
    ("/fairgate-proxy/src/forward/request_guard", WorkPart::Settlement),
    ("/fairgate-proxy/src/forward/attempt_charge", WorkPart::Settlement),
    ("/fairgate-proxy/src/forward/row_write", WorkPart::Settlement),
    ("/fairgate-money/", WorkPart::Settlement),
    ("/fairgate-price/src/worker_time", WorkPart::WorkerTimeMeter),
    ("/fairgate-proxy/src/worker_time", WorkPart::WorkerTimeMeter),
    ("/fairgate-dialect/src/meter", WorkPart::AnswerMeter),
    ("/fairgate-dialect/", WorkPart::RequestReader),
    ("/tiktoken-rs-", WorkPart::RequestReader),
    ("/fairgate", WorkPart::GatewayRest),
    ("/http-1", WorkPart::Headers),
    ("/hyper-", WorkPart::HyperTokio),
    ("/tokio-", WorkPart::HyperTokio),
    ("/mio-", WorkPart::HyperTokio),
    ("/httparse-", WorkPart::HyperTokio),
    ("/http-body-", WorkPart::HyperTokio),
    ("/bytes-", WorkPart::HyperTokio),
    ("/futures-", WorkPart::HyperTokio),
    ("/tower-", WorkPart::HyperTokio),
    ("malloc/", WorkPart::Allocation),
    ("/multiarch/mem", WorkPart::Copies),
    ("/hashbrown-", WorkPart::Hashing),
    ("/siphasher-", WorkPart::Hashing),
    ("/foldhash-", WorkPart::Hashing),
    ("/core/src/hash/", WorkPart::Hashing),
    ("/std/src/hash/", WorkPart::Hashing),
];

/// Returns the part of a source file; `None` for the standard library, whose code may belong to any
/// part.
fn of_file(file: &str) -> Option<WorkPart> {
    let known = PATHS.iter().find(|(piece, _)| file.contains(piece)).map(|(_, part)| *part);
    let is_std = file.contains("/library/") || file.starts_with("/rustc/");
    known.or((!is_std).then_some(WorkPart::Rest))
}

/// Returns the part to which a place in the code belongs.
fn of_place(place: &CodePlace) -> WorkPart {
    let copies = ["memcpy", "memmove", "memset", "memcmp", "bcmp"];
    let allocates = ["malloc", "calloc", "realloc", "free", "cfree", "posix_memalign"];
    let function = place.function.trim_start_matches('_').trim_start_matches("rjem_");
    if copies.iter().any(|name| function.starts_with(name)) {
        return WorkPart::Copies;
    }
    if allocates.contains(&function)
        || function.starts_with("int_malloc")
        || function.starts_with("int_free")
    {
        return WorkPart::Allocation;
    }
    let part = of_file(&place.code_file).or_else(|| of_file(&place.function_file));
    part.unwrap_or(WorkPart::StandardLibrary)
}

/// Returns the number of instructions of each part, over all threads.
pub(crate) fn divide(threads: &[ThreadProfile]) -> BTreeMap<WorkPart, u64> {
    let mut parts = BTreeMap::new();
    for thread in threads {
        let writes = is_ledger_writer(thread);
        for (place, count) in &thread.own {
            let part = if writes { WorkPart::LedgerWriter } else { of_place(place) };
            *parts.entry(part).or_default() += count;
        }
    }
    parts
}

/// Returns whether most instructions of a thread are SQLite's.
fn is_ledger_writer(thread: &ThreadProfile) -> bool {
    let of_sqlite = |(place, _): &(&CodePlace, &u64)| {
        place.code_file.contains("sqlite3") || place.function.starts_with("sqlite3")
    };
    let sqlite: u64 = thread.own.iter().filter(of_sqlite).map(|(_, count)| count).sum();
    sqlite * 2 > thread.total()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(function: &str, function_file: &str, code_file: &str) -> CodePlace {
        let [function, function_file, code_file] =
            [function, function_file, code_file].map(str::to_owned);
        CodePlace { function, function_file, code_file }
    }

    #[test]
    fn code_belongs_to_the_part_of_its_file() {
        let std = "/rustc/1a2b/library/core/src/ptr/mod.rs";
        let core = "/home/x/crates/fairgate-core/src/pool.rs";
        let hyper = "/registry/src/index/hyper-1.12.0/src/proto.rs";
        for (function, function_file, code_file, part) in [
            ("a", core, core, WorkPart::Core),
            ("a", core, std, WorkPart::Core),
            ("a", core, hyper, WorkPart::HyperTokio),
            ("a", std, std, WorkPart::StandardLibrary),
            ("a", "/rustc/1/library/core/src/hash/sip.rs", std, WorkPart::Hashing),
            ("a", "/crates/fairgate-proxy/src/metrics.rs", std, WorkPart::Metrics),
            ("a", "/crates/fairgate-proxy/src/limits.rs", std, WorkPart::GatewayRest),
            (
                "a",
                "/crates/fairgate-price/src/worker_time/meter.rs",
                std,
                WorkPart::WorkerTimeMeter,
            ),
            ("a", "/crates/fairgate-history/src/ring.rs", std, WorkPart::History),
            ("a", "/crates/fairgate-runtime/src/flow_totals.rs", std, WorkPart::History),
            ("a", "/crates/fairgate-runtime/src/gate.rs", std, WorkPart::Gate),
            ("a", "/crates/fairgate-proxy/src/worker_time.rs", std, WorkPart::WorkerTimeMeter),
            ("a", "/r/http-1.5.0/src/header/map.rs", std, WorkPart::Headers),
            ("a", "/r/http-body-1.1.0/src/lib.rs", std, WorkPart::HyperTokio),
            ("malloc", "./malloc/malloc.c", "./malloc/arena.c", WorkPart::Allocation),
            ("__memcpy_avx_unaligned_erms", "???", "???", WorkPart::Copies),
            ("epoll_wait", "./misc/epoll.c", "./misc/epoll.c", WorkPart::Rest),
        ] {
            let place = place(function, function_file, code_file);
            assert_eq!(of_place(&place), part, "{place:?}");
        }
    }

    #[test]
    fn the_writers_thread_is_one_part_and_the_parts_add_up() {
        let mut writer = ThreadProfile::default();
        writer.own.insert(place("sqlite3VdbeExec", "sqlite3.c", "sqlite3.c"), 60);
        writer.own.insert(place("malloc", "malloc.c", "malloc.c"), 40);
        let mut worker = ThreadProfile::default();
        worker.own.insert(place("malloc", "./malloc/malloc.c", "./malloc/malloc.c"), 7);
        let parts = divide(&[writer, worker]);
        let expected = [(WorkPart::LedgerWriter, 100), (WorkPart::Allocation, 7)];
        assert_eq!(parts, BTreeMap::from(expected));
    }
}

//! `cargo xtask bench instructions`: the instructions that one request costs the gateway and a proxy built from hyper
//! alone, counted by callgrind.
//!
//! Both programs run under callgrind in front of the same upstream, which sends prebuilt answers of 1 KB. Both get
//! chats of 1 KB over 8 connections. After a first part that is not counted, each round sets callgrind's counters to
//! zero, sends its requests, and makes callgrind write the counters to files. Only instructions of the program itself
//! are counted, and not those of the kernel. Other load of the machine changes which requests are handled together, but
//! it hardly changes the number of instructions.

mod bars;
mod chunk_server;
mod load;
mod parts;
mod profile;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use fairgate_testkit::programs::{GatewayConfigFile, RunningProgram, free_addr, start};
use serde_json::json;

use crate::http::{BenchRequest, CHAT_PATH};
use crate::table::columns;
use crate::{instructions, machine};
use parts::WorkPart;
use profile::{CallCost, ThreadProfile};

/// Options of `bench instructions`.
#[derive(Args)]
pub(crate) struct RequestInstructionsOptions {
    /// Path of the gateway's binary, built as it is packaged, with symbols and line tables.
    #[arg(long)]
    fairgate: PathBuf,
    /// Path of the binary of the proxy built from hyper alone, built in the same way as the gateway.
    #[arg(long)]
    proxy: PathBuf,
    /// Path of the simulated backend's binary.
    #[arg(long)]
    sim: PathBuf,
    /// Number of requests in each round.
    #[arg(long, default_value_t = 2000)]
    requests: usize,
    /// Number of rounds; the table shows the median round.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Also print the functions and files with the most instructions.
    #[arg(long)]
    details: bool,
    /// Print the tables as Markdown.
    #[arg(long)]
    markdown: bool,
}

/// Number of bytes of the text in each chat request. The whole body has about 1 KB.
const PROMPT_BYTES: usize = 920;
/// Sizes of the chunks in which the same stream is sent, in bytes.
const CHUNK_BYTES: [usize; 2] = [1024, 1];
/// Divisor of the number of requests in a round of streams: it has the requests of an ordinary round ÷ this number.
const STREAM_PART: usize = 20;
/// Number of requests before the first round, which open the connections and make tables grow to their usual size.
const WARM_UP: usize = 500;
/// Greatest thread number for which a file of callgrind is searched. On two cores there are about ten threads.
const THREADS_MAX: usize = 999;
/// Number of lines that `--details` prints of each list.
const DETAILS: usize = 40;

/// Counts both programs and prints the tables on stdout.
pub(crate) fn run(options: &RequestInstructionsOptions) -> Result<ExitCode> {
    if !instructions::are_countable() {
        bail!(
            "valgrind does not run here, so instructions cannot be counted; on Debian \
             `apt-get install valgrind` installs it"
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let folder = tempfile::tempdir()?;
    let upstream = free_addr()?;
    let mut sim = Command::new(&options.sim);
    sim.args(["--trivial", "--listen", &upstream.to_string()]);
    let _sim = start("upstream", &mut sim, folder.path(), upstream)?;
    let unmetered = free_addr()?;
    let mut sim = Command::new(&options.sim);
    sim.args(["--trivial", "--listen", &unmetered.to_string()]);
    let _unmetered_sim = start("unmetered", &mut sim, folder.path(), unmetered)?;
    let since = Instant::now();
    let say = |what: &str| eprintln!("{:4.0} s  {what}", since.elapsed().as_secs_f64());
    say("the proxy of hyper alone");
    let proxy = count_proxy(options, &runtime, folder.path(), upstream)?;
    say("the gateway");
    let gateway = count_gateway(options, &runtime, folder.path(), [upstream, unmetered])?;
    say("done");
    print_tables(options, &proxy, &gateway.chats);
    let holds = bars::print_totals(&proxy, &gateway.chats)
        & bars::print_chunks(&gateway)
        & bars::print_metering(&gateway)
        & bars::print_history(&gateway.chats);
    if options.details {
        println!("The stream in one-byte chunks:");
        print_details(median(&gateway.streams[1]));
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Profiles of the gateway's rounds.
struct GatewayProfiles {
    chats: Vec<RoundProfile>,
    /// The same streamed answer in chunks of [`CHUNK_BYTES`], first in the larger chunks.
    streams: [Vec<RoundProfile>; 2],
    /// The chats, and the streams in larger chunks, on workers whose time is not metered.
    unmetered: [Vec<RoundProfile>; 2],
}

fn count_proxy(
    options: &RequestInstructionsOptions,
    runtime: &tokio::runtime::Runtime,
    folder: &Path,
    upstream: SocketAddr,
) -> Result<Vec<RoundProfile>> {
    let addr = free_addr()?;
    let mut target = CountedProgram::start("proxy", &options.proxy, folder, addr, |command| {
        let (addr, upstream) = (addr.to_string(), upstream.to_string());
        command.args(["--listen", &addr, "--upstream", &upstream]);
    })?;
    target.rounds(options.requests, options.rounds, runtime, &chat(addr, "none"))
}

fn count_gateway(
    options: &RequestInstructionsOptions,
    runtime: &tokio::runtime::Runtime,
    folder: &Path,
    [upstream, unmetered]: [SocketAddr; 2],
) -> Result<GatewayProfiles> {
    let streams = || runtime.block_on(chunk_server::start(CHUNK_BYTES[0]));
    let (large, unmetered_large) = (streams()?, streams()?);
    let small = runtime.block_on(chunk_server::start(CHUNK_BYTES[1]))?;
    let upstream_line = |name: &str, addr: SocketAddr| {
        format!("  - {{ name: {name}, url: \"http://{addr}\", slots: 256 }}\n")
    };
    let pool_line = |name: &str, more: &str| {
        format!("  - {{ name: {name}, models: [{name}], workers: [{name}]{more} }}\n")
    };
    // With `observe: false`, a pool does not meter the time of its workers.
    let off = ", observe: false";
    let config = [
        "upstreams:\n",
        &upstream_line("bench", upstream),
        &upstream_line("large", large),
        &upstream_line("small", small),
        &upstream_line("unmetered", unmetered),
        &upstream_line("unmetered-large", unmetered_large),
        "pools:\n",
        &pool_line("bench", ""),
        &pool_line("large", ""),
        &pool_line("small", ""),
        &pool_line("unmetered", off),
        &pool_line("unmetered-large", off),
    ];
    let config = GatewayConfigFile::write(folder, "fairgate", &config.concat())?;
    let addr = config.addr;
    let mut target =
        CountedProgram::start("gateway", &options.fairgate, folder, addr, |command| {
            command.args(["serve", "--config"]).arg(&config.file);
        })?;
    let secret = &config.add_key(&options.fairgate, &[])?;
    let chats = target.rounds(options.requests, options.rounds, runtime, &chat(addr, secret))?;
    let request = with_body(addr, secret, "unmetered", false);
    let unmetered = target.rounds(options.requests, options.rounds, runtime, &request)?;
    let requests = options.requests.div_ceil(STREAM_PART);
    let mut streamed = |model| {
        let request = with_body(addr, secret, model, true);
        target.rounds(requests, options.rounds, runtime, &request)
    };
    let streams = [streamed("large")?, streamed("small")?];
    let unmetered = [unmetered, streamed("unmetered-large")?];
    Ok(GatewayProfiles { chats, streams, unmetered })
}

fn chat(addr: SocketAddr, secret: &str) -> BenchRequest {
    with_body(addr, secret, "bench", false)
}

fn with_body(addr: SocketAddr, secret: &str, model: &str, stream: bool) -> BenchRequest {
    let body = json!({
        "model": model, "max_tokens": 64, "stream": stream,
        "messages": [{"role": "user", "content": "word ".repeat(PROMPT_BYTES / 5)}],
    });
    let headers = [
        ("authorization", format!("Bearer {secret}")),
        ("content-type", "application/json".to_owned()),
    ];
    let headers = headers.map(|(name, value)| (name.to_owned(), value)).to_vec();
    BenchRequest { addr, path: CHAT_PATH.into(), headers, body: body.to_string() }
}

/// A program that runs under callgrind.
struct CountedProgram {
    program: RunningProgram,
    /// Beginning of the names of the files that callgrind writes.
    files: PathBuf,
    written: usize,
}

impl CountedProgram {
    fn start(
        name: &str,
        binary: &Path,
        folder: &Path,
        addr: SocketAddr,
        arguments: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let files = folder.join(format!("{name}.callgrind"));
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--separate-threads=yes"]);
        command.arg(format!("--callgrind-out-file={}", files.display())).arg(binary);
        arguments(&mut command);
        let program = start(name, &mut command, folder, addr)?;
        Ok(Self { program, files, written: 0 })
    }

    fn rounds(
        &mut self,
        requests: usize,
        count: usize,
        runtime: &tokio::runtime::Runtime,
        request: &BenchRequest,
    ) -> Result<Vec<RoundProfile>> {
        runtime.block_on(load::send(request, WARM_UP.min(requests)))?;
        let mut rounds = Vec::new();
        for _ in 0..count.max(1) {
            self.control("--zero")?;
            let requests = runtime.block_on(load::send(request, requests))?;
            // Waits, because the writer stores the last rows a moment after their answers.
            std::thread::sleep(Duration::from_secs(1));
            self.control("--dump")?;
            self.written += 1;
            rounds.push(RoundProfile { requests, threads: self.read_threads()? });
        }
        rounds.sort_by(|a, b| a.per_request().total_cmp(&b.per_request()));
        Ok(rounds)
    }

    /// Makes callgrind set its counters to zero or write the counters to files.
    fn control(&self, what: &str) -> Result<()> {
        let output = Command::new("callgrind_control")
            .args([what, &self.program.id().to_string()])
            .output()
            .context("cannot run callgrind_control, which is part of valgrind")?;
        let output_text = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success() && output_text.contains("OK"),
            "callgrind_control {what} failed; it needs the right to attach to a process (ptrace): {output_text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    fn read_threads(&self) -> Result<Vec<ThreadProfile>> {
        let mut threads = Vec::new();
        // The number of a thread that has ended is missing.
        for thread in 1..=THREADS_MAX {
            let name = format!("{}.{}-{thread:02}", self.files.display(), self.written);
            let Ok(text) = fs::read_to_string(&name) else { continue };
            threads.push(ThreadProfile::parse(&text).with_context(|| name.clone())?);
            fs::remove_file(&name)?;
        }
        let has_files = |thread: &ThreadProfile| {
            thread.own.keys().any(|place| place.code_file.ends_with(".rs"))
        };
        ensure!(
            threads.iter().any(has_files),
            "callgrind found no source files: build with symbols and line tables, as `cargo xtask bench \
             instructions` does"
        );
        Ok(threads)
    }
}

/// The instructions of one round.
struct RoundProfile {
    requests: usize,
    threads: Vec<ThreadProfile>,
}

impl RoundProfile {
    fn per_request(&self) -> f64 {
        self.divided(self.threads.iter().map(ThreadProfile::total).sum())
    }

    fn parts(&self) -> BTreeMap<WorkPart, u64> {
        parts::divide(&self.threads)
    }

    #[expect(clippy::cast_precision_loss, reason = "an average")]
    fn divided(&self, number: u64) -> f64 {
        number as f64 / self.requests as f64
    }

    /// Sums the costs of the calls into a set of functions, over all threads.
    fn calls_into(&self, is_inside: impl Fn(&str) -> bool) -> CallCost {
        let of_threads = self.threads.iter().map(|thread| thread.calls_into(&is_inside));
        of_threads.fold(CallCost::default(), |sum, cost| CallCost {
            count: sum.count + cost.count,
            instructions: sum.instructions + cost.instructions,
        })
    }
}

/// Functions that the table shows in a line of their own, together with all functions that they call.
struct WatchedFunctions {
    name: &'static str,
    /// Returns whether the function with this name is one of the watched functions.
    is_inside: fn(&str) -> bool,
}

/// Sets of watched functions. Their instructions overlap with each other and with those of the parts, so the numbers do
/// not add up.
const WATCHED: [WatchedFunctions; 6] = [
    WatchedFunctions {
        name: "`Pool::apply`, with all that it calls",
        is_inside: |name| name.contains("fairgate_core::pool::Pool") && name.ends_with("apply"),
    },
    WatchedFunctions { name: "BLAKE3", is_inside: |name| name.contains("blake3") },
    WatchedFunctions {
        name: "SipHash",
        is_inside: |name| name.contains("hash::sip::") || name.contains("hash_one"),
    },
    WatchedFunctions {
        name: "allocations",
        is_inside: |name| {
            let name = name.trim_start_matches("_rjem_");
            let system = ["malloc", "calloc", "realloc", "posix_memalign"];
            system.contains(&name) || ["mallocx", "rallocx"].contains(&name)
        },
    },
    WatchedFunctions {
        name: "frees",
        is_inside: |name| ["free", "_rjem_free", "_rjem_sdallocx"].contains(&name),
    },
    WatchedFunctions {
        name: "copies (memcpy, memmove)",
        is_inside: |name| name.contains("memcpy") || name.contains("memmove"),
    },
];

fn median(rounds: &[RoundProfile]) -> &RoundProfile {
    &rounds[rounds.len() / 2]
}

/// Returns the difference between the greatest and the least round, in percent of the median.
fn spread(rounds: &[RoundProfile]) -> f64 {
    let least = rounds.first().map_or(0.0, RoundProfile::per_request);
    let most = rounds.last().map_or(0.0, RoundProfile::per_request);
    (most - least) / median(rounds).per_request() * 100.0
}

fn print_tables(
    options: &RequestInstructionsOptions,
    proxy: &[RoundProfile],
    gateway: &[RoundProfile],
) {
    println!(
        "Measured {}; {} rounds of {} requests over {} connections, instructions a request in the median round. \
         The rounds differ by {:.1} % (gateway) and {:.1} % (proxy).\n",
        machine::describe(),
        options.rounds,
        options.requests,
        load::CONNECTIONS,
        spread(gateway),
        spread(proxy),
    );
    let (proxy, gateway) = (median(proxy), median(gateway));
    println!("{}", columns(&part_rows(proxy, gateway), options.markdown));
    println!("{}", columns(&watched_rows(proxy, gateway), options.markdown));
    if options.details {
        print_details(gateway);
    }
}

fn part_rows(proxy: &RoundProfile, gateway: &RoundProfile) -> Vec<[String; 4]> {
    let head = ["part", "Fairgate", "of it", "bare proxy"].map(str::to_owned);
    let (of_proxy, of_gateway) = (proxy.parts(), gateway.parts());
    let total = gateway.per_request();
    let mut rows = vec![head];
    let all: std::collections::BTreeSet<WorkPart> =
        of_proxy.keys().chain(of_gateway.keys()).copied().collect();
    for part in all {
        let of = |parts: &BTreeMap<WorkPart, u64>| parts.get(&part).copied().unwrap_or(0);
        let ours = gateway.divided(of(&of_gateway));
        let theirs = proxy.divided(of(&of_proxy));
        let share = format!("{:.1} %", ours / total * 100.0);
        rows.push([part.name().to_owned(), hundreds(ours), share, hundreds(theirs)]);
    }
    let ratio = format!("{:.2}× the proxy", total / proxy.per_request());
    rows.push(["all".to_owned(), hundreds(total), ratio, hundreds(proxy.per_request())]);
    rows
}

fn watched_rows(proxy: &RoundProfile, gateway: &RoundProfile) -> Vec<[String; 5]> {
    let head = ["function", "Fairgate", "calls", "bare proxy", "calls"].map(str::to_owned);
    let mut rows = vec![head];
    for WatchedFunctions { name, is_inside } in WATCHED {
        let cell = |round: &RoundProfile| {
            let cost = round.calls_into(is_inside);
            if cost.count == 0 {
                return ("inlined, or not called".to_owned(), "0.0".to_owned());
            }
            (
                hundreds(round.divided(cost.instructions)),
                format!("{:.1}", round.divided(cost.count)),
            )
        };
        let ((ours, our_calls), (theirs, their_calls)) = (cell(gateway), cell(proxy));
        rows.push([name.to_owned(), ours, our_calls, theirs, their_calls]);
    }
    rows
}

/// Prints the functions and the source files of the gateway with the most instructions.
fn print_details(gateway: &RoundProfile) {
    let mut functions: BTreeMap<&str, u64> = BTreeMap::new();
    let mut files: BTreeMap<&str, u64> = BTreeMap::new();
    for (place, count) in gateway.threads.iter().flat_map(|thread| &thread.own) {
        *functions.entry(&place.function).or_default() += count;
        *files.entry(&place.code_file).or_default() += count;
    }
    for list in [functions, files] {
        let mut list: Vec<(&str, u64)> = list.into_iter().collect();
        list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        for (name, count) in list.iter().take(DETAILS) {
            println!("{:>9}  {name}", hundreds(gateway.divided(*count)));
        }
        println!();
    }
}

/// Formats a number rounded to hundreds, with a space before the last three digits.
fn hundreds(number: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let number = ((number / 100.0).round() * 100.0) as u64;
    if number < 1000 {
        return number.to_string();
    }
    format!("{} {:03}", number / 1000, number % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_to_hundreds() {
        assert_eq!(hundreds(49.0), "0");
        assert_eq!(hundreds(191_149.0), "191 100");
        assert_eq!(hundreds(999.0), "1 000");
        assert_eq!(hundreds(1_000_049.0), "1000 000");
    }

    #[test]
    fn the_history_is_a_part_of_a_request() {
        let mut thread = ThreadProfile::default();
        for (file, instructions) in [
            ("/crates/fairgate-history/src/ring.rs", 7),
            ("/crates/fairgate-runtime/src/flow_totals.rs", 5),
            ("/crates/fairgate-core/src/pool.rs", 988),
        ] {
            let place = profile::CodePlace {
                function: "a".into(),
                function_file: file.into(),
                code_file: file.into(),
            };
            thread.own.insert(place, instructions);
        }
        let round = || RoundProfile { requests: 10, threads: Vec::new() };
        let with = RoundProfile { threads: vec![thread], ..round() };
        assert!((bars::history_part(&with) - 0.012).abs() < 1e-9);
        assert!(!bars::print_history(&[with]), "1.2 % is more than the bar");
    }

    #[test]
    fn the_parts_and_the_ratio_are_in_the_table() {
        let round = |instructions: u64| {
            let mut thread = ThreadProfile::default();
            let place = profile::CodePlace {
                function: "a".into(),
                function_file: "/r/hyper-1.0/src/a.rs".into(),
                code_file: "/r/hyper-1.0/src/a.rs".into(),
            };
            thread.own.insert(place, instructions);
            RoundProfile { requests: 10, threads: vec![thread] }
        };
        let rows = part_rows(&round(10_000), &round(25_000));
        assert_eq!(rows[1], ["hyper and tokio", "2 500", "100.0 %", "1 000"]);
        assert_eq!(rows[2], ["all", "2 500", "2.50× the proxy", "1 000"]);
        assert!(spread(&[round(99_000), round(100_000), round(101_000)]) - 2.0 < 1e-9);
    }
}

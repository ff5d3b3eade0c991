//! The benchmarks: `cargo xtask bench core`, `bench prefix`, `bench gateway`, `bench instructions`,
//! `bench router`, `bench fleet`, `bench store` and `bench watcher`.
//!
//! Each benchmark measures two or more subjects in turns within one run, and its bars are mostly on
//! the ratios between them. Ratios, unlike times, are comparable between machines. If valgrind is
//! installed, instructions are counted too, because their number does not depend on other load of
//! the machine.
#![allow(clippy::print_stdout, reason = "a command line program talks on stdout")]

mod all_cases;
mod allocation;
mod cases;
mod fleet;
mod gateway;
mod http;
mod instructions;
mod machine;
mod measure;
mod memory;
mod prefix;
mod proportional;
mod replay;
mod report;
mod request_instructions;
mod router;
mod scenarios;
mod soak;
mod steady;
mod store;
mod table;
mod watcher;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};

/// The benchmarks of Fairgate. Most results are ratios of two measurements.
#[derive(Parser)]
struct BenchArguments {
    #[command(subcommand)]
    command: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Measures all cases of the core and prints one table. Fails if a bar fails.
    Core(report::CoreBenchOptions),
    /// Measures the prefix index, and the choice of workers by cached tokens. Fails if a bar fails.
    Prefix(report::CoreBenchOptions),
    /// Measures Fairgate, nginx, LiteLLM and Portkey in the same run. Fails if a bar fails.
    Gateway(gateway::GatewayBenchOptions),
    /// Counts the instructions that one request costs the gateway and a proxy built from hyper alone, divided into
    /// parts of the work. Needs valgrind.
    Instructions(request_instructions::RequestInstructionsOptions),
    /// Routes conversations and agents through Fairgate and other routers to simulated workers with
    /// prefix caches. Fails if a bar fails.
    Router(router::RouterBenchOptions),
    /// Lets agents claim and complete tasks as fast as they can, on SQLite and PostgreSQL. Fails if
    /// a bar fails.
    Fleet(fleet::FleetBenchOptions),
    /// Writes rows to the ledger as fast as it takes them, on SQLite and PostgreSQL, and prints the
    /// speeds.
    Store(store::StoreBenchOptions),
    /// Measures what a reader of the stream of events costs the requests of a pool with 10 000 waiting
    /// requests. Fails if a bar fails.
    Watcher(watcher::WatcherBenchOptions),
    /// Runs the gateway at load while clients leave and programs are killed. Fails if a request is
    /// lost or memory leaks.
    Soak(soak::SoakOptions),
    /// Times one side of one case, for profilers, and prints the nanoseconds per operation.
    One {
        /// Name of the case, as in the table.
        case: String,
        /// Side of the case to time.
        side: CaseSideName,
        /// Number of operations to time.
        #[arg(long, default_value_t = 1000)]
        operations: u64,
    },
    /// Fills a pool with a million waiting requests and prints three numbers of bytes per request:
    /// its texts, the allocated bytes beyond the texts, and the resident bytes beyond the texts.
    Memory {
        /// Name of the memory case.
        case: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum CaseSideName {
    Base,
    Big,
}

fn main() -> Result<ExitCode> {
    match BenchArguments::parse().command {
        BenchCommand::Core(options) => report::run(&options),
        BenchCommand::Prefix(options) => report::run_prefix(&options),
        BenchCommand::Fleet(options) => fleet::run(&options),
        BenchCommand::Gateway(options) => gateway::run(&options),
        BenchCommand::Instructions(options) => request_instructions::run(&options),
        BenchCommand::Router(options) => router::run(&options),
        BenchCommand::Soak(options) => soak::run(&options),
        BenchCommand::Store(options) => store::run(&options),
        BenchCommand::Watcher(options) => watcher::run(&options),
        BenchCommand::One { case, side, operations } => {
            let case = all_cases::find(&case).context("no such case")?;
            let side = match side {
                CaseSideName::Base => &case.base,
                CaseSideName::Big => &case.big,
            };
            println!("{:.1}", (side.open)().time(operations));
            Ok(ExitCode::SUCCESS)
        }
        BenchCommand::Memory { case } => {
            let [texts, asked, resident] = memory::fill(&case)?;
            println!("{texts} {asked} {resident}");
            Ok(ExitCode::SUCCESS)
        }
    }
}

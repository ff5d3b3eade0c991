//! The benchmarks: `cargo xtask bench core`, `bench prefix`, `bench gateway`,
//! `bench router` and `bench fleet`.
//!
//! Everything is compared with something else in the same run, in turns, so that the numbers mean the same on
//! any machine: a table of ratios. Where valgrind is there the instructions are counted too, which do not
//! depend on what else the machine does.
#![allow(clippy::print_stdout, reason = "a command line program talks on stdout")]

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
mod processes;
mod proportional;
mod replay;
mod report;
mod router;
mod scenarios;
mod soak;
mod steady;
mod table;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};

/// The benchmarks of Fairgate, as ratios.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures everything and prints one table. Fails where a bar does.
    Core(report::Options),
    /// Measures the prefix index, and placing by cached tokens. Fails where a bar does.
    Prefix(report::Options),
    /// Measures the gateway beside nginx, LiteLLM and Portkey. Fails where a bar does.
    Gateway(gateway::Options),
    /// Routes conversations and agents through Fairgate and its peers to simulated workers with prefix caches. Fails
    /// where a bar does.
    Router(router::Options),
    /// Has agents claim and complete tasks, on SQLite and PostgreSQL. Fails where a bar does.
    Fleet(fleet::Options),
    /// Runs the gateway at load while clients leave and programs are killed. Fails where anything is lost or leaks.
    Soak(soak::Options),
    /// Times one side of one case, and prints the nanoseconds per operation: for profilers.
    One {
        /// The name of the case.
        case: String,
        /// Which of the two.
        side: SideName,
        /// How many operations.
        #[arg(long, default_value_t = 1000)]
        operations: u64,
    },
    /// Fills a pool with a million waiting requests, and prints the bytes of each: texts, asked for and resident
    /// beside them.
    Memory {
        /// The name of the case.
        case: String,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum SideName {
    Base,
    Big,
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().command {
        Command::Core(options) => report::run(&options),
        Command::Prefix(options) => report::run_prefix(&options),
        Command::Fleet(options) => fleet::run(&options),
        Command::Gateway(options) => gateway::run(&options),
        Command::Router(options) => router::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::One { case, side, operations } => {
            let case = cases::find(&case).context("no such case")?;
            let side = match side {
                SideName::Base => &case.base,
                SideName::Big => &case.big,
            };
            println!("{:.1}", (side.open)().time(operations));
            Ok(ExitCode::SUCCESS)
        }
        Command::Memory { case } => {
            let [texts, asked, resident] = memory::fill(&case)?;
            println!("{texts} {asked} {resident}");
            Ok(ExitCode::SUCCESS)
        }
    }
}

//! The `fairgate` command.

mod output;
mod prove_command;
mod replay_command;
mod schedule_command;
mod table;
mod words;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Fair shares of scarce models: token-fair scheduling that is exact, replayable and explained.
#[derive(Debug, Parser)]
#[command(name = "fairgate", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Prove(prove_command::ProveArgs),
    Replay(replay_command::ReplayArgs),
    Schedule(schedule_command::ScheduleArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Prove(args) => prove_command::run(&args),
        Command::Replay(args) => replay_command::run(&args),
        Command::Schedule(args) => schedule_command::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::exit_code(&error),
    }
}

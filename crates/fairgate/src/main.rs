//! The `fairgate` command.

mod admin;
mod agent_api;
mod agent_run;
mod check_command;
mod input;
mod mcp_command;
mod output;
mod prove_command;
mod replay_command;
mod schedule_command;
mod serve_command;
mod table;
mod wire;
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
    Serve(serve_command::ServeArgs),
    Check(check_command::CheckArgs),
    Prove(prove_command::ProveArgs),
    Replay(replay_command::ReplayArgs),
    Schedule(schedule_command::ScheduleArgs),
    Group(admin::GroupCommand),
    Tenant(admin::TenantCommand),
    Key(admin::KeyCommand),
    Hosted(admin::HostedCommand),
    Price(admin::PriceCommand),
    Usage(admin::UsageArgs),
    Live(admin::LiveArgs),
    Request(admin::RequestArgs),
    Pool(admin::PoolCommand),
    Worker(admin::WorkerCommand),
    Fleet(admin::FleetArgs),
    Project(admin::ProjectCommand),
    Task(admin::TaskCommand),
    Agent(admin::AgentCommand),
    Workspace(admin::WorkspaceCommand),
    Mcp(mcp_command::McpArgs),
    #[command(hide = true)]
    AgentGuard(agent_run::GuardArgs),
    Audit(admin::AuditArgs),
    Reload(admin::ReloadArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Serve(args) => serve_command::run(&args),
        Command::Check(args) => check_command::run(&args),
        Command::Prove(args) => prove_command::run(&args),
        Command::Replay(args) => replay_command::run(&args),
        Command::Schedule(args) => schedule_command::run(&args),
        Command::Group(command) => command.run(),
        Command::Tenant(command) => command.run(),
        Command::Key(command) => command.run(),
        Command::Hosted(command) => command.run(),
        Command::Price(command) => command.run(),
        Command::Usage(args) => args.run(),
        Command::Live(args) => args.run(),
        Command::Request(args) => args.run(),
        Command::Pool(command) => command.run(),
        Command::Worker(command) => command.run(),
        Command::Fleet(args) => args.run(),
        Command::Project(command) => command.run(),
        Command::Task(command) => command.run(),
        Command::Agent(command) => command.run(),
        Command::Workspace(command) => command.run(),
        Command::Mcp(args) => mcp_command::run(&args),
        Command::AgentGuard(args) => agent_run::run_guard(&args),
        Command::Audit(args) => args.run(),
        Command::Reload(args) => args.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::exit_code(&error),
    }
}

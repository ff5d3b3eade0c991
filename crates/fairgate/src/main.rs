//! The `fairgate` command: parses the arguments and calls the subcommand.

mod admin;
mod check_command;
mod completions_command;
mod health_command;
mod input;
mod manual_command;
mod output;
mod prove_command;
mod replay_command;
mod schedule_command;
mod serve_command;
mod text_format;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use fairgate_agent::{agent_run, mcp};

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Fair shares of scarce models: token-fair scheduling that is exact, replayable and explained.
#[derive(Debug, Parser)]
#[command(name = "fairgate", version, max_term_width = 100)]
struct FairgateCli {
    #[command(subcommand)]
    command: FairgateCommand,
}

#[derive(Debug, Subcommand)]
enum FairgateCommand {
    Serve(serve_command::ServeArgs),
    Check(check_command::CheckArgs),
    Health(health_command::HealthArgs),
    Prove(prove_command::ProveArgs),
    Replay(replay_command::ReplayArgs),
    Schedule(schedule_command::ScheduleArgs),
    Group(admin::GroupCommand),
    Tenant(admin::TenantCommand),
    Key(admin::KeyCommand),
    Hosted(admin::HostedCommand),
    Price(admin::PriceCommand),
    Usage(admin::UsageArgs),
    Export(admin::ExportCommand),
    Live(admin::LiveArgs),
    Log(admin::LogArgs),
    Top(admin::TopArgs),
    Request(admin::RequestArgs),
    Pool(admin::PoolCommand),
    Calibrate(admin::CalibrateArgs),
    Worker(admin::WorkerCommand),
    Fleet(admin::FleetArgs),
    Project(admin::ProjectCommand),
    Task(admin::TaskCommand),
    Agent(admin::AgentCommand),
    Workspace(admin::WorkspaceCommand),
    Webhook(admin::WebhookCommand),
    Mcp(mcp::McpArgs),
    #[command(hide = true)]
    AgentGuard(agent_run::GuardArgs),
    Audit(admin::AuditArgs),
    Reload(admin::ReloadArgs),
    Completions(completions_command::CompletionsArgs),
    #[command(hide = true)]
    Manual(manual_command::ManualArgs),
}

fn main() -> ExitCode {
    let outcome = match FairgateCli::parse().command {
        FairgateCommand::Serve(args) => serve_command::run(&args),
        FairgateCommand::Check(args) => check_command::run(&args),
        FairgateCommand::Health(args) => health_command::run(&args),
        FairgateCommand::Prove(args) => prove_command::run(&args),
        FairgateCommand::Replay(args) => replay_command::run(&args),
        FairgateCommand::Schedule(args) => schedule_command::run(&args),
        FairgateCommand::Group(command) => command.run(),
        FairgateCommand::Tenant(command) => command.run(),
        FairgateCommand::Key(command) => command.run(),
        FairgateCommand::Hosted(command) => command.run(),
        FairgateCommand::Price(command) => command.run(),
        FairgateCommand::Usage(args) => args.run(),
        FairgateCommand::Export(command) => command.run(),
        FairgateCommand::Live(args) => args.run(),
        FairgateCommand::Log(args) => args.run(),
        FairgateCommand::Top(args) => args.run(),
        FairgateCommand::Request(args) => args.run(),
        FairgateCommand::Pool(command) => command.run(),
        FairgateCommand::Calibrate(args) => args.run(),
        FairgateCommand::Worker(command) => command.run(),
        FairgateCommand::Fleet(args) => args.run(),
        FairgateCommand::Project(command) => command.run(),
        FairgateCommand::Task(command) => command.run(),
        FairgateCommand::Agent(command) => command.run(),
        FairgateCommand::Workspace(command) => command.run(),
        FairgateCommand::Webhook(command) => command.run(),
        FairgateCommand::Mcp(args) => mcp::run(&args),
        FairgateCommand::AgentGuard(args) => agent_run::run_guard(&args),
        FairgateCommand::Audit(args) => args.run(),
        FairgateCommand::Reload(args) => args.run(),
        FairgateCommand::Completions(args) => {
            completions_command::run(&args, &FairgateCli::command())
        }
        FairgateCommand::Manual(args) => manual_command::run(&args, FairgateCli::command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::exit_code(&error),
    }
}

//! The log: standard error, as text for people or as JSON for machines.

use std::io;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::SubscriberBuilder;

use super::log_writer::{self, LogGuard};

/// How the log looks.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text for each event.
    Text,
    /// One JSON object for each event.
    Json,
}

/// Starts logging for the rest of the process, which lasts until the guard is dropped.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<LogGuard> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter:?}"))?;
    let (writer, guard) = log_writer::start(io::stderr()).context("the log does not start")?;
    // What goes wrong inside the subscriber would be said with `eprintln!`, which panics where nothing can be written.
    let builder = SubscriberBuilder::default().with_env_filter(filter).log_internal_errors(false);
    let started = match format {
        LogFormat::Text => builder.with_ansi(false).with_writer(writer).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_writer(writer).try_init(),
    };
    started.map_err(|error| anyhow!("the log does not start: {error}"))?;
    // A panic is told as any other event: the usual way writes to standard error itself, and waits where nobody reads it.
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a panic")));
    Ok(guard)
}

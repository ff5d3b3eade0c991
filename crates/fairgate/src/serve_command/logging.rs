//! The log on standard error, as text for people or as JSON for machines.

use std::io;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::SubscriberBuilder;

use super::log_writer::{self, LogGuard};

/// Format of the log.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// One line of text for each event.
    Text,
    /// One JSON object for each event.
    Json,
}

/// Starts logging. Keep the guard until the end of the process, because dropping it waits for the last lines.
pub(crate) fn start(filter: &str, format: LogFormat) -> Result<LogGuard> {
    let filter = EnvFilter::try_new(filter).with_context(|| format!("--log {filter:?}"))?;
    let (writer, guard) = log_writer::start(io::stderr()).context("the log does not start")?;
    // The subscriber would report its own errors with `eprintln!`, which panics if nothing can be written.
    let builder = SubscriberBuilder::default().with_env_filter(filter).log_internal_errors(false);
    let started = match format {
        LogFormat::Text => builder.with_ansi(false).with_writer(writer).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_writer(writer).try_init(),
    };
    started.map_err(|error| anyhow!("the log does not start: {error}"))?;
    // Logs a panic like any other event: the default hook writes to standard error itself, and blocks if no one reads
    // it.
    std::panic::set_hook(Box::new(|panic| tracing::error!(%panic, "a panic")));
    Ok(guard)
}

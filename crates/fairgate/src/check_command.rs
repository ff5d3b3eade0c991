//! `fairgate check`: whether a file is right, what it makes of a pool, and which class a request would get.

mod drawing;
mod measured;
mod question;
mod sizes;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use fairgate_config::{Arbiter, Classes, Config, PolicyFile, PoolConfig, ProcessEnvironment};

use self::drawing::Branch;
use self::question::Question;
use crate::input::read_text;
use crate::output::Output;
use crate::serve_command::tell_pools;

/// Check a configuration or a policy file: errors with line, column and what to do, else what it makes.
///
/// A configuration is checked as `fairgate serve --check` does, and each pool's policy is drawn as a tree. A policy file
/// (docs/dynamo.md) is checked by itself; what depends on the pool that uses it is checked with the configuration.
///
/// With --input or --class it says instead which class such a request gets, and why.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// The file; its fields tell whether it is a configuration or a policy file. `-` reads standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    question: Question,
}

pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    let text = read_text(&args.file).with_context(|| args.file.display().to_string())?;
    let mut out = Output::stdout();
    match PolicyFile::is_meant(&text) {
        true => check_policy(&PolicyFile::parse(&text, &args.file)?, &args.question, &mut out)?,
        false => {
            let config = Config::parse(&text, &args.file, &ProcessEnvironment)?;
            check_config(&config, &args.question, &mut out)?;
        }
    }
    Ok(out.flush()?)
}

fn check_policy(file: &PolicyFile, question: &Question, out: &mut Output) -> Result<()> {
    if let Some(classes) = question.profile(file)? {
        return question.answer(classes, out);
    }
    if let Some(classes) = &file.root {
        Branch::of_classes("for all models", classes).write(out)?;
        tell_measured(classes, out)?;
    }
    for (model, classes) in &file.models {
        Branch::of_classes(&format!("for the model {model}"), classes).write(out)?;
        tell_measured(classes, out)?;
    }
    writeln!(
        out,
        "\nprefill_busy_threshold_frac needs workers that state batch_tokens, and cached_token_queue_limit_per_worker a \
         pool\nwith a prefix_index: check the configuration that names this file, too."
    )?;
    Ok(())
}

fn check_config(config: &Config, question: &Question, out: &mut Output) -> Result<()> {
    if let Some(classes) = question.pool(config)? {
        return question.answer(classes, out);
    }
    tell_pools(&mut *out, config)?;
    for pool in &config.pools {
        writeln!(out)?;
        match &pool.classes {
            Some(classes) => {
                Branch::of_classes(&format!("pool {}", pool.name), classes).write(out)?;
                tell_index(pool, classes, out)?;
                tell_measured(classes, out)?;
            }
            None => Branch::of_policy(&format!("pool {}", pool.name), &pool.policy).write(out)?,
        }
    }
    Ok(())
}

/// Without an index nobody knows of cached tokens in advance.
fn tell_index(pool: &PoolConfig, classes: &Classes, out: &mut Output) -> Result<()> {
    if pool.prefix_index.is_none() && classes.buckets().len() > 1 {
        writeln!(
            out,
            "\nThe pool has no prefix_index: every input token counts as uncached, so a request's bucket depends on the \
             length of\nits prompt alone. To count cached tokens, add prefix_index: {{}} to the pool."
        )?;
    }
    Ok(())
}

/// What quanta come to under drr, and what they would under share.
fn tell_measured(classes: &Classes, out: &mut Output) -> Result<()> {
    if classes.arbiter() == Arbiter::Share || classes.all().len() < 2 {
        return Ok(());
    }
    writeln!(
        out,
        "\nQuanta are not shares under drr. Measured now, in the scheduler itself, with the sizes of real requests and every \
         class\nalways backlogged:"
    )?;
    measured::table(classes).write(&mut *out)?;
    writeln!(
        out,
        "drr charges the estimated uncached input and does not count output. With `arbiter: share` the quanta are weights, \
         and\neach class gets its part of the tokens really used."
    )?;
    Ok(())
}

//! The command `fairgate check`, which checks a file, draws its policy, and finds the class of a request.

mod against;
mod class_lookup;
mod measured_shares;
mod policy_tree;
mod probe;
mod sizes;

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use fairgate_config::{
    ClassArbiter, Config, EQUAL_WEIGHTS_WARNING, PolicyClasses, PolicyFile, PolicyWarning,
    PoolConfig, ProcessEnvironment,
};

use self::against::AgainstArgs;
use self::class_lookup::ClassLookupArgs;
use self::policy_tree::PolicyTreeLine;
use crate::input::read_text;
use crate::output::StdoutWriter;
use crate::serve_command::print_pools;

/// Check a configuration or a policy file. Print errors with line, column and advice, or the resulting pools.
///
/// A configuration is checked as `fairgate serve --check` does, and each pool's policy is drawn as a tree. A policy
/// file (docs/dynamo.md) is checked by itself; settings that depend on the pool are checked with the configuration.
/// Warnings are about valid settings that let a request wait without end, and about weights that are far from what
/// workers spend; the exit status is 0 with them.
///
/// With --input or --class, print instead the class that such a request gets, and the reason.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// File to check; its fields decide if it is a configuration or a policy file. `-` reads standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    question: ClassLookupArgs,
    #[command(flatten)]
    against: AgainstArgs,
    /// Send a request to every upstream of the configuration, to see if it answers and accepts its credential. The exit
    /// status is 1 if one does not.
    #[arg(long, conflicts_with = "against")]
    probe: bool,
}

pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    let text = read_text(&args.file).with_context(|| args.file.display().to_string())?;
    let mut out = StdoutWriter::stdout();
    if let Some(url) = args.against.gateway() {
        return args.against.print(url, &text, &mut out);
    }
    match PolicyFile::is_policy_file(&text) {
        true => check_policy(&PolicyFile::parse(&text, &args.file)?, &args.question, &mut out)?,
        false => {
            let config = Config::parse(&text, &args.file, &ProcessEnvironment)?;
            check_config(&config, &args.question, &mut out)?;
            if args.probe {
                probe::print_probes(&config, &mut out)?;
            }
        }
    }
    Ok(out.flush()?)
}

fn check_policy(
    file: &PolicyFile,
    question: &ClassLookupArgs,
    out: &mut StdoutWriter,
) -> Result<()> {
    if let Some(classes) = question.profile(file)? {
        return question.answer(classes, out);
    }
    if let Some(classes) = &file.root {
        PolicyTreeLine::of_classes("for all models", classes).write(out)?;
        print_warnings(&classes.warnings(), out)?;
        print_measured(classes, out)?;
    }
    for (model, classes) in &file.models {
        PolicyTreeLine::of_classes(&format!("for the model {model}"), classes).write(out)?;
        print_warnings(&classes.warnings(), out)?;
        print_measured(classes, out)?;
    }
    writeln!(
        out,
        "\nprefill_busy_threshold_frac needs workers that state batch_tokens, and cached_token_queue_limit_per_worker a \
         pool\nwith a prefix_index: check the configuration that names this file, too."
    )?;
    Ok(())
}

fn check_config(config: &Config, question: &ClassLookupArgs, out: &mut StdoutWriter) -> Result<()> {
    if let Some(classes) = question.pool(config)? {
        return question.answer(classes, out);
    }
    print_pools(&mut *out, config)?;
    for pool in &config.pools {
        writeln!(out)?;
        match &pool.classes {
            Some(classes) => {
                PolicyTreeLine::of_classes(&format!("pool {}", pool.name), classes).write(out)?;
                print_warnings(&config.warnings(pool), out)?;
                print_index_note(pool, classes, out)?;
                print_measured(classes, out)?;
            }
            None => {
                PolicyTreeLine::of_policy(&format!("pool {}", pool.name), &pool.policy)
                    .write(out)?;
                print_warnings(&config.warnings(pool), out)?;
            }
        }
    }
    let equal = config.pools.iter().filter(|pool| config.has_equal_weights(pool));
    let equal: Vec<&str> = equal.map(|pool| &*pool.name).collect();
    if !equal.is_empty() {
        writeln!(out, "\nwarning: cost of {}: {EQUAL_WEIGHTS_WARNING}.", equal.join(", "))?;
    }
    Ok(())
}

/// Prints warnings about valid settings that let a request wait without end.
fn print_warnings(warnings: &[PolicyWarning], out: &mut StdoutWriter) -> Result<()> {
    for warning in warnings {
        writeln!(out, "\nwarning: {warning}.")?;
    }
    Ok(())
}

/// Prints a note if the pool has no prefix index, without which cached tokens are not known in advance.
fn print_index_note(
    pool: &PoolConfig,
    classes: &PolicyClasses,
    out: &mut StdoutWriter,
) -> Result<()> {
    if pool.prefix_index.is_none() && classes.buckets().len() > 1 {
        writeln!(
            out,
            "\nThe pool has no prefix_index: every input token counts as uncached, so a request's bucket depends on the \
             length of\nits prompt alone. To count cached tokens, add prefix_index: {{}} to the pool."
        )?;
    }
    Ok(())
}

/// Prints the shares that the classes' quanta give under drr, and the shares that the same numbers would give as
/// weights under share.
fn print_measured(classes: &PolicyClasses, out: &mut StdoutWriter) -> Result<()> {
    if classes.arbiter() != ClassArbiter::Drr || classes.all().len() < 2 {
        return Ok(());
    }
    writeln!(
        out,
        "\nQuanta are not shares under drr. Measured now, in the scheduler itself, with the sizes of real requests and every \
         class\nalways backlogged:"
    )?;
    measured_shares::table(classes).write(&mut *out)?;
    writeln!(
        out,
        "drr charges the estimated uncached input and does not count output. With `arbiter: share` the quanta are weights, \
         and\neach class gets its part of the tokens really used."
    )?;
    Ok(())
}

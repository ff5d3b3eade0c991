//! A small process that ends a command when `agent run` itself is killed.
//!
//! Nothing that is killed with SIGKILL can clean up after itself. Without the guard the command would go on alone: its task
//! is given to somebody else, and two commands would work in the same folder. The guard reads from a pipe that only
//! `agent run` holds; where the pipe ends without a word, `agent run` is gone.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use super::group::Group;

/// End a command's process group when whoever holds the other end of standard input is gone.
#[derive(Debug, Args)]
pub(crate) struct GuardArgs {
    /// The process group.
    group: u32,
    /// How many seconds it has after SIGTERM.
    grace_s: u64,
}

/// Waits for the end of standard input.
pub(crate) fn run(args: &GuardArgs) -> Result<()> {
    let group = Group::of(args.group).context("no process group of its own")?;
    let mut byte = [0];
    if matches!(io::stdin().read(&mut byte), Ok(1)) {
        return Ok(());
    }
    if !group.is_alive() {
        return Ok(());
    }
    let _ = writeln!(io::stderr(), "fairgate: agent run is gone; its command is ended");
    group.terminate();
    let start = Instant::now();
    while group.is_alive() && start.elapsed() < Duration::from_secs(args.grace_s) {
        std::thread::sleep(Duration::from_millis(50));
    }
    group.kill();
    Ok(())
}

/// The guard of one command.
pub(super) struct Guard {
    process: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// Starts a guard, in a process group of its own, so that a signal from the terminal does not reach it.
    pub(super) fn start(group: Group, grace: Duration) -> io::Result<Self> {
        use std::os::unix::process::CommandExt;
        let mut process = Command::new(program()?)
            .arg("agent-guard")
            .args([group.number().to_string(), grace.as_secs().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = process.stdin.take();
        Ok(Self { process, pipe })
    }
}

impl Drop for Guard {
    /// The command has ended: there is nothing left to guard.
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(b"d");
        }
        let _ = self.process.wait();
    }
}

/// This program, also where its file was replaced since it was started.
fn program() -> io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { std::env::current_exe() }
}

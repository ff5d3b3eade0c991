//! A small process that ends a command if `agent run` itself is killed.
//!
//! A process that gets SIGKILL cannot clean up. Without the guard the command would continue alone, while its task is
//! given to another agent, and two commands would work in the same folder. The guard reads from a pipe whose other end
//! only `agent run` holds. If the pipe ends without a byte, `agent run` is gone.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use super::process_group::ProcessGroup;

/// End a command's process group when the process at the other end of standard input is gone.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Id of the process group.
    group: u32,
    /// Seconds between SIGTERM and SIGKILL.
    grace_s: u64,
}

/// Waits for the end of standard input. If it ends without a byte, ends the command's process group.
pub fn run(args: &GuardArgs) -> Result<()> {
    let group = ProcessGroup::of(args.group).context("no process group of its own")?;
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

/// The guard process of one command.
pub(super) struct CommandGuard {
    process: Child,
    pipe: Option<ChildStdin>,
}

impl CommandGuard {
    /// Starts a guard in its own process group, so that a signal from the terminal does not reach it.
    pub(super) fn start(group: ProcessGroup, grace: Duration) -> io::Result<Self> {
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

impl Drop for CommandGuard {
    /// Ends the guard process, because the command has ended.
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(b"d");
        }
        let _ = self.process.wait();
    }
}

/// Returns the path of this program, even if its file was replaced since the start.
fn program() -> io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { std::env::current_exe() }
}

//! Instructions per operation, counted by callgrind. Unlike times, the counts are repeatable.
//!
//! Callgrind runs this program again with one side of one case, and counts only inside the timed
//! function. So the setup of the pool is not counted, and neither is the untimed copy of the pool
//! that runs ahead (see `steady`).

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, process};

use anyhow::{Context, Result, bail};

use crate::measure::TIMED_FUNCTION;

/// Text in the table for a case in which callgrind did not find the timed function.
pub(crate) const NO_SYMBOLS: &str = "not counted: no symbols";

/// Result of one run of callgrind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum InstructionCount {
    /// Average number of instructions per operation.
    PerOperation(f64),
    /// No instructions were counted, because the binary has no symbol for the timed function.
    NoSymbols,
}

/// Returns whether valgrind, which counts the instructions, is installed.
pub(crate) fn are_countable() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Counts the instructions per operation of one side of a case.
pub(crate) fn per_operation(case: &str, side: &str, operations: u64) -> Result<InstructionCount> {
    let profile = profile_file(case, side);
    let valgrind = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--toggle-collect=*{TIMED_FUNCTION}*"))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(env::current_exe()?)
        .args(["one", case, side, "--operations", &operations.to_string()])
        .output();
    let _ = std::fs::remove_file(profile);
    let output = valgrind.context("valgrind cannot be started")?;
    let output_text = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("callgrind of {case} {side} failed: {output_text}");
    }
    let collected = collected(&output_text)
        .with_context(|| format!("callgrind tells nothing: {output_text}"))?;
    Ok(counted(collected, operations))
}

/// Divides the collected instructions by the operations. If callgrind collected none, it did not
/// find the timed function by its name, and the result is [`InstructionCount::NoSymbols`].
fn counted(collected: f64, operations: u64) -> InstructionCount {
    if collected > 0.0 {
        InstructionCount::PerOperation(collected / operations as f64)
    } else {
        InstructionCount::NoSymbols
    }
}

fn profile_file(case: &str, side: &str) -> PathBuf {
    env::temp_dir().join(format!("fairgate-bench-{}-{case}-{side}.callgrind", process::id()))
}

/// Parses the number in callgrind's line `==123== Collected : 4567`.
fn collected(output_text: &str) -> Option<f64> {
    let line = output_text.lines().find(|line| line.contains("Collected : "))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callgrind_collected_is_found() {
        let output_text = "==9== Events    : Ir\n==9== Collected : 1234567\n==9==\n";
        assert_eq!(collected(output_text), Some(1_234_567.0));
        assert_eq!(collected("==9== nothing\n"), None);
        assert_eq!(counted(5000.0, 10), InstructionCount::PerOperation(500.0));
        assert_eq!(counted(0.0, 10), InstructionCount::NoSymbols);
    }
}

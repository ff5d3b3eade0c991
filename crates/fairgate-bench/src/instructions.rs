//! How many instructions an operation takes, counted by callgrind: repeatable where times are not.
//!
//! Callgrind runs this program again with one side of one case, and counts only inside the function that is
//! timed. So neither the opening of the pool nor the scout that runs ahead is in the number.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, process};

use anyhow::{Context, Result, bail};

use crate::measure::TIMED_FUNCTION;

/// Whether valgrind can be called.
pub(crate) fn are_countable() -> bool {
    let version = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// The instructions that one side of a case takes per operation.
pub(crate) fn per_operation(case: &str, side: &str, operations: u64) -> Result<f64> {
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
    let told = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("callgrind of {case} {side} failed: {told}");
    }
    let collected = collected(&told).with_context(|| format!("callgrind tells nothing: {told}"))?;
    Ok(collected / operations as f64)
}

fn profile_file(case: &str, side: &str) -> PathBuf {
    env::temp_dir().join(format!("fairgate-bench-{}-{case}-{side}.callgrind", process::id()))
}

/// The number in callgrind's line `==123== Collected : 4567`.
fn collected(told: &str) -> Option<f64> {
    let line = told.lines().find(|line| line.contains("Collected : "))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callgrind_collected_is_found() {
        let told = "==9== Events    : Ir\n==9== Collected : 1234567\n==9==\n";
        assert_eq!(collected(told), Some(1_234_567.0));
        assert_eq!(collected("==9== nothing\n"), None);
    }
}

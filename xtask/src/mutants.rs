//! `cargo xtask mutants`: changes the core's decision code in one place at a time, and checks that
//! some test fails after each change. `.cargo/mutants.toml` lists the code to change and the tests.

use crate::step::XtaskStep;
use crate::{cargo, tools};

/// Returns the steps of `cargo xtask mutants`. Arguments such as `--list`, `--re` or `--shard` are
/// passed on to cargo-mutants. The variable for cargo's target folder is removed, because mutants
/// are built beside their copy of the source.
pub(crate) fn steps(args: &[&str]) -> Vec<XtaskStep> {
    let mut steps = Vec::from_iter(tools::need_cargo("cargo-mutants"));
    let mutants = cargo("mutants", &[&["mutants", "--package", "fairgate-core"], args].concat());
    steps.push(mutants.without_env("CARGO_TARGET_DIR"));
    steps
}

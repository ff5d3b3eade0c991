//! `cargo xtask mutants`: changes the core's decision code, one place at a time, and sees that a test
//! fails each time. What is changed and which tests run stands in `.cargo/mutants.toml`.

use crate::step::Step;
use crate::{cargo, tools};

/// Arguments go on to cargo-mutants, such as `--list`, `--file` or `--shard`.
pub(crate) fn steps(args: &[&str]) -> Vec<Step> {
    let mut steps = Vec::from_iter(tools::need_cargo("cargo-mutants"));
    steps.push(cargo("mutants", &[&["mutants"], args].concat()));
    steps
}

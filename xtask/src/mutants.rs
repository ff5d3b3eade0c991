//! `cargo xtask mutants`: changes the core's decision code, one place at a time, and sees that a test
//! fails each time. What is changed and which tests run stands in `.cargo/mutants.toml`.

use crate::step::Step;
use crate::{cargo, tools};

/// Arguments go on to cargo-mutants, such as `--list`, `--re` or `--shard`. A target folder that is set
/// for all of cargo is not for mutants: they are built beside their copy of the source.
pub(crate) fn steps(args: &[&str]) -> Vec<Step> {
    let mut steps = Vec::from_iter(tools::need_cargo("cargo-mutants"));
    let mutants = cargo("mutants", &[&["mutants", "--package", "fairgate-core"], args].concat());
    steps.push(mutants.without_env("CARGO_TARGET_DIR"));
    steps
}

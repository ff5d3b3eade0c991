//! `cargo xtask test`: everything that must hold before a change lands.

use crate::step::Step;
use crate::{cargo, lint, tools};

pub(crate) fn steps() -> Vec<Step> {
    let mut steps = lint::steps();
    steps.extend(tools::need_postgresql());
    steps.push(cargo("tests", &["test", "--workspace", "--no-fail-fast"]));
    steps
}

//! `cargo xtask test`: everything that must hold before a change lands.

use crate::step::Step;
use crate::{cargo, lint};

pub(crate) fn steps() -> Vec<Step> {
    let mut steps = lint::steps();
    steps.push(cargo("tests", &["test", "--workspace", "--no-fail-fast"]));
    steps
}

//! `cargo xtask test`: everything that must hold before a change lands.

use std::path::Path;

use crate::step::Step;
use crate::{Refusal, cargo, gateway, lint, python, tools};

pub(crate) fn steps(root: &Path) -> Result<Vec<Step>, Refusal> {
    let mut steps = lint::steps();
    steps.extend(tools::need_postgresql());
    steps.push(cargo("tests", &["test", "--workspace", "--no-fail-fast"]));
    steps.extend(gateway::sdk_steps(root)?);
    steps.extend(python::steps(root)?);
    Ok(steps)
}

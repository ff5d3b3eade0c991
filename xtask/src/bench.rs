//! `cargo xtask bench core`: the benchmarks, which live in the crate `fairgate-bench`.

use std::path::Path;

use crate::step::Step;
use crate::{Refusal, cargo, tools};

/// Benchmarks print instruction counts beside the ratios where valgrind is there.
pub(crate) fn steps(root: &Path, what: &str) -> Result<Vec<Step>, Refusal> {
    if what != "core" {
        return Err(Refusal(format!("no such benchmark: `{what}`; there is `core`")));
    }
    if !root.join("crates/fairgate-bench/Cargo.toml").is_file() {
        return Err(Refusal(
            "the benchmarks are not written yet: no crate at crates/fairgate-bench".into(),
        ));
    }
    let mut steps = tools::need_debian("valgrind", "valgrind");
    steps.push(cargo("bench core", &["run", "--release", "-p", "fairgate-bench", "--", "core"]));
    Ok(steps)
}

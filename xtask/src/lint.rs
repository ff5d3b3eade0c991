//! `cargo xtask lint`: checks format, lints and documentation. Warnings count as errors.

use std::process::{Command, Stdio};

use crate::step::XtaskStep;
use crate::{cargo, tidy};

const FUZZ: &str = "fuzz/Cargo.toml";

/// Returns the steps of `cargo xtask lint`. The fuzz targets are a separate workspace. They are
/// linted without libFuzzer, which needs a C++ compiler.
pub(crate) fn steps() -> Vec<XtaskStep> {
    let mut steps = vec![
        format(),
        tidy::step(),
        cargo("format of fuzz", &["fmt", "--manifest-path", FUZZ, "--check"]),
        clippy(),
        cargo(
            "clippy of fuzz",
            &["clippy", "--manifest-path", FUZZ, "--no-default-features", "--", "-Dwarnings"],
        ),
        cargo("docs", &["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings"),
    ];
    steps.extend(dependencies());
    steps
}

/// Returns the step that checks licences, bans and sources of dependencies by `deny.toml`; `None`
/// if cargo-deny is not installed. The lint does not install cargo-deny, because building it takes
/// longer than all other steps together.
fn dependencies() -> Option<XtaskStep> {
    let installed = Command::new("cargo-deny")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    installed.then(|| {
        cargo("dependencies", &["deny", "--offline", "check", "bans", "licenses", "sources"])
    })
}

/// Returns the step that checks the format of the whole workspace.
pub(crate) fn format() -> XtaskStep {
    cargo("format", &["fmt", "--all", "--check"])
}

/// Returns the step that runs clippy on the whole workspace.
pub(crate) fn clippy() -> XtaskStep {
    cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"])
}

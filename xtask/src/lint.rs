//! `cargo xtask lint`: form, lints and documentation, with warnings as errors.

use crate::cargo;
use crate::step::Step;

const FUZZ: &str = "fuzz/Cargo.toml";

/// The fuzz targets are a workspace of their own; they are linted without libFuzzer, which only a C++
/// compiler can build.
pub(crate) fn steps() -> Vec<Step> {
    vec![
        format(),
        cargo("format of fuzz", &["fmt", "--manifest-path", FUZZ, "--check"]),
        clippy(),
        cargo(
            "clippy of fuzz",
            &["clippy", "--manifest-path", FUZZ, "--no-default-features", "--", "-Dwarnings"],
        ),
        cargo("docs", &["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings"),
    ]
}

/// The form of the whole workspace.
pub(crate) fn format() -> Step {
    cargo("format", &["fmt", "--all", "--check"])
}

/// The lints of the whole workspace.
pub(crate) fn clippy() -> Step {
    cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"])
}

//! `cargo xtask lint`: form, lints and documentation, with warnings as errors.

use crate::cargo;
use crate::step::Step;

const FUZZ: &str = "fuzz/Cargo.toml";

/// The fuzz targets are a workspace of their own; they are linted without libFuzzer, which only a C++
/// compiler can build.
pub(crate) fn steps() -> Vec<Step> {
    vec![
        cargo("format", &["fmt", "--all", "--check"]),
        cargo("format of fuzz", &["fmt", "--manifest-path", FUZZ, "--check"]),
        cargo("clippy", &["clippy", "--workspace", "--all-targets", "--", "-Dwarnings"]),
        cargo(
            "clippy of fuzz",
            &["clippy", "--manifest-path", FUZZ, "--no-default-features", "--", "-Dwarnings"],
        ),
        cargo("docs", &["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-Dwarnings"),
    ]
}

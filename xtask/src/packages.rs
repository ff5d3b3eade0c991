//! `cargo xtask test packages`: builds the container image, the compose file, the Debian package, the chart and the site,
//! and uses each of them. The checks that take seconds are part of `cargo xtask test`.
//!
//! The tests are in `tests/packages`: `quick` needs a built program and small tools, `full` builds images and packages.

use std::path::{Path, PathBuf};

use crate::python::{Venv, target, venv};
use crate::step::XtaskStep;
use crate::{FEATURES_OF_PACKAGES, PROFILE_OF_PACKAGES, XtaskError, cargo, dist, tools};

/// Folder of the tests of packages.
const TESTS: &str = "tests/packages";

/// Programs of the quick checks, with the Debian packages that have them.
const QUICK_TOOLS: [(&str, &str); 4] =
    [("mandoc", "mandoc"), ("zsh", "zsh"), ("fish", "fish"), ("systemd-analyze", "systemd")];

/// Programs that build and run images and packages, with the Debian packages that have them.
const FULL_TOOLS: [(&str, &str); 8] = [
    // jemalloc is built with it.
    ("make", "make"),
    ("buildah", "buildah"),
    ("podman", "podman"),
    ("runc", "runc"),
    ("mmdebstrap", "mmdebstrap"),
    ("lintian", "lintian"),
    ("minisign", "minisign"),
    ("strip", "binutils"),
];

/// Returns the steps of the quick checks. The program `fairgate` must have been built in the profile `dev`, for example
/// by `cargo test --workspace`.
pub(crate) fn quick_steps(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut steps = tools::need_all_debian(&QUICK_TOOLS);
    steps.extend(need_prometheus(root));
    let mut tests = Environment::new(root)?;
    steps.extend(tests.take_steps());
    steps.push(tests.pytest(
        root,
        "quick checks of packages",
        "quick",
        &target(root).join("debug"),
    ));
    Ok(steps)
}

/// Returns the steps of `cargo xtask test packages`. `--profile PROFILE` packs programs of another profile than `dist`,
/// which is much faster to build.
pub(crate) fn steps(root: &Path, args: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    let profile = match args {
        [] => PROFILE_OF_PACKAGES,
        ["--profile", profile] => profile,
        other => {
            let other = other.join(" ");
            return Err(XtaskError(format!(
                "no such options of test packages: `{other}`; there is `--profile PROFILE`"
            )));
        }
    };
    let programs = ["-p", "fairgate", "-p", "fairgate-sim", "--features", FEATURES_OF_PACKAGES];
    let build = [&["build", "--locked", "--profile", profile], &programs[..]].concat();
    let mut steps = tools::need_all_debian(&[&QUICK_TOOLS[..], &FULL_TOOLS].concat());
    steps.extend(tools::need_postgresql());
    steps.extend(need_prometheus(root));
    let mut tests = Environment::new(root)?;
    steps.extend(tests.take_steps());
    steps.extend(need_tool(root, &dist::CARGO_DEB));
    steps.extend(need_tool(root, &dist::MDBOOK));
    steps.push(cargo("programs for packages", &build));
    let folder = if profile == "dev" { "debug" } else { profile };
    let programs = target(root).join(folder);
    steps.push(tests.pytest(root, "quick checks of packages", "quick", &programs));
    steps.push(tests.pytest(root, "packages", "full", &programs));
    steps.extend(dist::verify_steps(root, &["fairgate-sim"])?);
    Ok(steps)
}

/// The virtual environments of the tests.
struct Environment {
    tests: Venv,
    helm: Venv,
}

impl Environment {
    fn new(root: &Path) -> Result<Self, XtaskError> {
        Ok(Self {
            tests: venv(root, "packages", &format!("{TESTS}/requirements.txt"))?,
            helm: venv(root, "helm", &format!("{TESTS}/helm.txt"))?,
        })
    }

    fn take_steps(&mut self) -> Vec<XtaskStep> {
        let mut steps = self.tests.take_steps();
        steps.extend(self.helm.take_steps());
        steps
    }

    /// Returns the step that runs one folder of the tests with the programs of `programs`.
    fn pytest(&self, root: &Path, name: &str, which: &str, programs: &Path) -> XtaskStep {
        let folder = format!("{TESTS}/{which}");
        let pytest = ["-m", "pytest", "--quiet", "-p", "no:cacheprovider", &folder];
        self.tests
            .step(name, "python", &pytest)
            .env("FAIRGATE_PROGRAMS", &programs.to_string_lossy())
            .env("FAIRGATE_TOOLS", &tools_folder(root).to_string_lossy())
            .env("FAIRGATE_WORK", &work_folder(root).to_string_lossy())
            .env("FAIRGATE_HELM", &self.helm.program("helm"))
            .env("FAIRGATE_COMPOSE", &self.tests.program("podman-compose"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
    }
}

/// Returns the folder of tools that are installed for this workspace alone.
pub(crate) fn tools_folder(root: &Path) -> PathBuf {
    target(root).join("tools")
}

/// Returns the folder in which packages are put together. cargo-deb finds it from the manifest, so it does not move with
/// cargo's target folder.
pub(crate) fn work_folder(root: &Path) -> PathBuf {
    root.join("target/packages")
}

/// A program from crates.io, in one version.
pub(crate) struct CargoTool {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Further arguments of `cargo install`.
    pub(crate) options: &'static [&'static str],
}

/// Returns the step that installs a program from crates.io into the folder of tools, if that version is not there.
pub(crate) fn need_tool(root: &Path, tool: &CargoTool) -> Option<XtaskStep> {
    let CargoTool { name, version, options } = *tool;
    let folder = tools_folder(root);
    let list = std::fs::read_to_string(folder.join(".crates.toml")).unwrap_or_default();
    if list.contains(&format!("\"{name} {version} ")) {
        return None;
    }
    let folder = folder.to_string_lossy().into_owned();
    let install = ["install", "--locked", "--root", &folder, "--version", version, name];
    Some(cargo(&format!("install {name}"), &[&install[..], options].concat()))
}

/// Returns the steps that unpack Debian's Prometheus into the folder of tools. It is not installed, because an installed
/// Prometheus starts as a service.
fn need_prometheus(root: &Path) -> Vec<XtaskStep> {
    let folder = tools_folder(root).join("prometheus");
    if folder.join("usr/bin/promtool").is_file() {
        return Vec::new();
    }
    let mut steps = tools::list_debian();
    let script = "mkdir -p \"$1\" && cd \"$1\" && apt-get --quiet download prometheus && dpkg-deb -x prometheus_*.deb . \
                  && rm prometheus_*.deb";
    let folder = folder.to_string_lossy();
    let unpack = XtaskStep::new("unpack prometheus", "sh", &["-c", script, "sh", &folder]);
    steps.push(unpack.in_background());
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace")
    }

    #[test]
    fn quick_checks_build_nothing() {
        let steps = format!("{:?}", quick_steps(root()).expect("the lists are there"));
        assert!(steps.contains("tests/packages/quick") && !steps.contains("\"build\""), "{steps}");
        assert!(!steps.contains("cargo-deb") && !steps.contains("mdbook"), "{steps}");
    }

    #[test]
    fn packages_have_programs_of_the_profile_that_is_named() {
        let run = |args: &[&str]| steps(root(), args).map(|steps| format!("{steps:?}"));
        assert!(run(&[]).is_ok_and(|steps| steps.contains("target/dist")));
        assert!(run(&["--profile", "dev"]).is_ok_and(|steps| steps.contains("target/debug")));
        for bad in [&["--profile"][..], &["deb"]] {
            assert!(run(bad).is_err(), "{bad:?}");
        }
    }
}

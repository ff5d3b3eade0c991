//! Installation of tools that a chore needs and that may be missing on a new machine.

use std::env;
use std::path::Path;

use crate::cargo;
use crate::step::XtaskStep;

/// Returns the steps that install a Debian package. The list is empty if `program` is already in
/// `PATH`.
pub(crate) fn need_debian(program: &str, package: &str) -> Vec<XtaskStep> {
    if on_path(program) { Vec::new() } else { install_debian(package) }
}

/// Returns the steps that install PostgreSQL's server, if it is missing. On Debian its programs are
/// not in `PATH`.
pub(crate) fn need_postgresql() -> Vec<XtaskStep> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let installed =
        versions.map(|version| version.path().join("bin/initdb")).any(|it| it.is_file());
    if installed { Vec::new() } else { need_debian("initdb", "postgresql") }
}

/// Returns the steps that install a Debian package with apt-get.
pub(crate) fn install_debian(package: &str) -> Vec<XtaskStep> {
    install_all_debian(&[package])
}

/// Returns the steps that install those of the Debian packages whose programs are not in `PATH`. Each pair is a program
/// and its package.
pub(crate) fn need_all_debian(tools: &[(&str, &str)]) -> Vec<XtaskStep> {
    let missing = tools.iter().filter(|(program, _)| !on_path(program));
    let packages: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if packages.is_empty() { Vec::new() } else { install_all_debian(&packages) }
}

fn install_all_debian(packages: &[&str]) -> Vec<XtaskStep> {
    let install = ["install", "--yes", "--no-install-recommends"];
    let mut steps = list_debian();
    let name = format!("install {}", packages.join(", "));
    steps.push(apt(&name, &[&install, packages].concat()));
    steps
}

/// Returns the step that updates the lists of Debian's packages.
pub(crate) fn list_debian() -> Vec<XtaskStep> {
    vec![apt("list Debian packages", &["update"])]
}

fn apt(name: &str, args: &[&str]) -> XtaskStep {
    let quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"];
    let sudo: &[&str] = if on_path("sudo") { &["sudo"] } else { &[] };
    let words = [sudo, &quiet, args].concat();
    XtaskStep::new(name, words[0], &words[1..]).in_background()
}

/// Returns the step that installs a cargo subcommand from crates.io; `None` if it is already
/// installed.
pub(crate) fn need_cargo(package: &str) -> Option<XtaskStep> {
    let install = || cargo(&format!("install {package}"), &["install", "--locked", package]);
    (!on_path(package) && !in_cargo_home(package)).then(install)
}

/// Returns whether a program is installed, either in `PATH` or in cargo's home.
pub(crate) fn has(program: &str) -> bool {
    on_path(program) || in_cargo_home(program)
}

fn on_path(program: &str) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .any(|dir| dir.join(program).is_file())
}

/// Returns whether a program is in cargo's home. Cargo finds its subcommands there even if that
/// folder is not in `PATH`.
fn in_cargo_home(program: &str) -> bool {
    env::var_os("CARGO_HOME")
        .is_some_and(|home| Path::new(&home).join("bin").join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_not_installed_again() {
        assert!(need_debian("sh", "dash").is_empty());
        assert!(need_all_debian(&[("sh", "dash"), ("env", "coreutils")]).is_empty());
    }

    #[test]
    fn what_is_missing_is_installed() {
        assert_eq!(need_debian("no-such-program-of-ours", "anything").len(), 2);
        let tools = [("sh", "dash"), ("no-such-program-of-ours", "anything")];
        let steps = format!("{:?}", need_all_debian(&tools));
        assert!(steps.contains("anything") && !steps.contains("dash"), "{steps}");
        assert!(need_cargo("no-such-program-of-ours").is_some());
    }
}

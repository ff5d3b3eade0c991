//! What a chore needs and a fresh machine may lack.

use std::env;
use std::path::Path;

use crate::cargo;
use crate::step::Step;

/// The steps that install a Debian package, where `program` is not on the path.
pub(crate) fn need_debian(program: &str, package: &str) -> Vec<Step> {
    if on_path(program) { Vec::new() } else { install_debian(package) }
}

/// The steps that install PostgreSQL's server, whose programs Debian keeps off the path.
pub(crate) fn need_postgresql() -> Vec<Step> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let installed =
        versions.map(|version| version.path().join("bin/initdb")).any(|it| it.is_file());
    if installed { Vec::new() } else { need_debian("initdb", "postgresql") }
}

fn install_debian(package: &str) -> Vec<Step> {
    let apt = |name: &str, args: &[&str]| {
        let quiet = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "--quiet"];
        let sudo: &[&str] = if on_path("sudo") { &["sudo"] } else { &[] };
        let words = [sudo, &quiet, args].concat();
        Step::new(name, words[0], &words[1..])
    };
    vec![
        apt("list Debian packages", &["update"]),
        apt(
            &format!("install {package}"),
            &["install", "--yes", "--no-install-recommends", package],
        ),
    ]
}

/// The step that installs a cargo subcommand from crates.io, where it is missing.
pub(crate) fn need_cargo(package: &str) -> Option<Step> {
    let install = || cargo(&format!("install {package}"), &["install", "--locked", package]);
    (!on_path(package) && !in_cargo_home(package)).then(install)
}

fn on_path(program: &str) -> bool {
    env::split_paths(&env::var_os("PATH").unwrap_or_default())
        .any(|dir| dir.join(program).is_file())
}

/// Cargo finds its subcommands there even when the path does not lead there.
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
    }

    #[test]
    fn what_is_missing_is_installed() {
        assert_eq!(need_debian("no-such-program-of-ours", "anything").len(), 2);
        assert!(need_cargo("no-such-program-of-ours").is_some());
    }
}

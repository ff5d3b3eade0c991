//! `cargo xtask test pythons`: runs the tests of the Python package on every supported version of
//! Python that is installed, to check that one wheel works on all versions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::python::{self, PACKAGE, TEST_REQUIREMENTS};
use crate::step::XtaskStep;
use crate::{XtaskError, cargo};

/// Versions of Python that the package supports.
const VERSIONS: [&str; 4] = ["3.10", "3.11", "3.12", "3.13"];

/// Test files that do not depend on the version of Python, and that these steps leave out. They
/// test type checkers, a source build and the documentation. `cargo xtask test python` runs them.
const LEFT_OUT: [&str; 2] = ["test_docs.py", "test_install.py"];

/// Returns the steps for every installed version of Python. For each missing version, a step prints
/// that it is missing.
pub(crate) fn steps(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let build = cargo("programs for pytest", &["build", "-p", "fairgate", "-p", "fairgate-sim"]);
    let mut steps = vec![build];
    steps.extend(python::wheel_steps(root)?);
    let mut missing = Vec::new();
    for version in VERSIONS {
        match interpreter(version) {
            Some(interpreter) => steps.extend(tests_on(root, version, &interpreter)?),
            None => missing.push(version),
        }
    }
    if missing.len() == VERSIONS.len() {
        let wanted = VERSIONS.join(", ");
        return Err(XtaskError(format!(
            "none of Python {wanted} is here, neither on the path nor among pyenv's: install one"
        )));
    }
    steps.extend(missing.into_iter().map(|version| {
        let words = format!("Python {version} is not installed here: nothing was run on it");
        XtaskStep::new(&format!("no Python {version}"), "echo", &[&words])
    }));
    Ok(steps)
}

fn tests_on(root: &Path, version: &str, interpreter: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let name = format!("python-tests-{version}");
    let mut venv = python::venv_with(root, &name, TEST_REQUIREMENTS, interpreter)?;
    let mut steps = venv.take_steps();
    steps.push(python::install_wheel(root, &venv));
    let left_out = LEFT_OUT.map(|file| format!("--ignore={PACKAGE}/tests/{file}"));
    let left_out: Vec<&str> = left_out.iter().map(String::as_str).collect();
    steps.push(python::pytest(root, &venv, &format!("pytest on {version}"), &left_out));
    Ok(steps)
}

/// Finds an interpreter of that version that can create virtual environments. Prefers the
/// interpreter in `PATH`, else takes pyenv's newest. The programs that pyenv itself puts into
/// `PATH` may refuse to run if another version is selected in pyenv.
fn interpreter(version: &str) -> Option<PathBuf> {
    let program = format!("python{version}");
    let on_path = PathBuf::from(&program);
    let of_pyenv = pyenv_versions(version).into_iter().map(|dir| dir.join("bin").join(&program));
    std::iter::once(on_path).chain(of_pyenv).find(|program| makes_environments(program, version))
}

fn makes_environments(program: &Path, version: &str) -> bool {
    let script = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])";
    let output = Command::new(program).args(["-c", script]).output();
    output.is_ok_and(|output| {
        output.status.success() && String::from_utf8_lossy(&output.stdout).trim() == version
    })
}

/// Returns pyenv's folders for that version, with the newest patch release first. The list is empty
/// if pyenv is not installed.
fn pyenv_versions(version: &str) -> Vec<PathBuf> {
    let Ok(output) = Command::new("pyenv").arg("root").output() else { return Vec::new() };
    let root = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let entries = fs::read_dir(root.join("versions")).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let patch = name.strip_prefix(version)?.strip_prefix('.')?.parse().ok()?;
            Some((patch, entry.path()))
        })
        .collect();
    found.sort_unstable_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interpreter_is_of_the_version_that_was_asked_for() {
        let python3 = Path::new("python3");
        assert!(!makes_environments(python3, "3.1"), "not by its first letters");
        assert!(!makes_environments(Path::new("no-such-program-of-ours"), "3.11"));
        assert_eq!(interpreter("2.99"), None);
    }

    #[test]
    fn every_version_is_run_or_named() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let Ok(steps) = steps(root) else { return };
        let shown = format!("{steps:?}");
        for version in VERSIONS {
            let is_run = shown.contains(&format!("pytest on {version}"));
            assert!(is_run != shown.contains(&format!("no Python {version}")), "{version}");
        }
    }

    #[test]
    fn what_is_left_out_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        for file in LEFT_OUT {
            assert!(root.join(PACKAGE).join("tests").join(file).is_file(), "{file}");
        }
    }
}

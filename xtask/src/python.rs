//! Virtual environments for chores that need Python packages from PyPI, and the chores of
//! `bindings/python`.

use std::path::{Path, PathBuf};
use std::{env, fs};

use crate::node::node_modules;
use crate::step::XtaskStep;
use crate::{XtaskError, cargo, tools};

/// Folder of the Python package.
pub(crate) const PACKAGE: &str = "bindings/python";
/// Requirements file of the Python package's tests.
pub(crate) const TEST_REQUIREMENTS: &str = "bindings/python/requirements-test.txt";
/// Options of pytest-xdist. The tests mostly wait for programs that they started, so two tests run
/// at once.
pub(crate) const PYTEST_WORKERS: [&str; 2] = ["--numprocesses", "2"];
const MANIFEST: &str = "bindings/python/Cargo.toml";

/// A Python virtual environment under `target/`.
pub(crate) struct Venv {
    folder: PathBuf,
    /// Steps that create the environment; empty if it exists with the right packages.
    steps: Vec<XtaskStep>,
}

impl Venv {
    /// Returns the steps that create the environment, which must run before any of its programs. A
    /// second call returns an empty list.
    pub(crate) fn take_steps(&mut self) -> Vec<XtaskStep> {
        std::mem::take(&mut self.steps)
    }

    /// Returns a step that runs one of the environment's programs, such as `python` or `pytest`.
    pub(crate) fn step(&self, name: &str, program: &str, args: &[&str]) -> XtaskStep {
        XtaskStep::new(name, &self.program(program), args)
    }

    /// Returns the environment's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of one of the environment's programs.
    pub(crate) fn program(&self, program: &str) -> String {
        self.folder.join("bin").join(program).to_string_lossy().into_owned()
    }
}

/// Returns the virtual environment of that name, with the packages of a requirements file. The path
/// of this file is relative to the root. The environment is created again if the file has changed.
pub(crate) fn venv(root: &Path, name: &str, requirements: &str) -> Result<Venv, XtaskError> {
    let mut venv = venv_with(root, name, requirements, Path::new("python3"))?;
    if !venv.steps.is_empty() {
        venv.steps.splice(..0, need_python());
    }
    Ok(venv)
}

/// Does the same as [`venv`] with the given Python interpreter.
pub(crate) fn venv_with(
    root: &Path,
    name: &str,
    requirements: &str,
    interpreter: &Path,
) -> Result<Venv, XtaskError> {
    let wanted = fs::read_to_string(root.join(requirements))
        .map_err(|error| XtaskError(format!("cannot read {requirements}: {error}")))?;
    let folder = target(root).join("venv").join(name);
    // This file is written after all packages are installed, so that a partial environment does not
    // count as complete.
    let stamp = folder.join("requirements-installed.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(Venv { folder, steps: Vec::new() });
    }
    let mut venv = Venv { folder, steps: Vec::new() };
    let place = venv.folder.to_string_lossy().into_owned();
    let make = ["-m", "venv", "--clear", &*place];
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
    let install = venv.step(
        &format!("packages of {name}"),
        "python",
        &[&pip, &[requirements] as &[&str]].concat(),
    );
    let done = ["-f", requirements, &*stamp.to_string_lossy()];
    let steps = [
        XtaskStep::new(&format!("venv {name}"), &interpreter.to_string_lossy(), &make),
        install,
        XtaskStep::new(&format!("venv {name} is whole"), "cp", &done),
    ];
    venv.steps.extend(steps.map(XtaskStep::in_background));
    Ok(venv)
}

/// `cargo xtask wheel`: builds a wheel of the Python package in `target/wheels`, which can be
/// installed without Rust.
pub(crate) fn wheel_steps(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut venv = test_venv(root)?;
    let mut steps = venv.take_steps();
    steps.push(build_wheel(root, &venv));
    Ok(steps)
}

/// `cargo xtask test python`: builds the programs that the tests run, then runs [`steps`].
pub(crate) fn steps_alone(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let build = cargo("programs for pytest", &["build", "-p", "fairgate", "-p", "fairgate-sim"]);
    let mut steps = vec![build];
    steps.extend(self::steps(root)?);
    Ok(steps)
}

/// Returns the steps that lint the Rust and Python code of the package, build a wheel, install it
/// into the tests' environment, and run pytest. The tests use the command `fairgate` and the
/// simulated model, which must have been built before.
pub(crate) fn steps(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut venv = test_venv(root)?;
    let mut steps = venv.take_steps();
    let pyright = node_modules(root, "pyright", "bindings/python/pyright")?;
    steps.extend(pyright.steps);
    steps.extend(lint_steps(root, &venv));
    steps.push(build_wheel(root, &venv));
    steps.push(install_wheel(root, &venv));
    let pyright = pyright.modules.join("pyright/index.js");
    let tests = pytest(root, &venv, "pytest", &PYTEST_WORKERS);
    let tests = tests.env("FAIRGATE_PYRIGHT", &pyright.to_string_lossy());
    steps.push(tests.with_second_run());
    Ok(steps)
}

/// Returns the step that runs the package's tests with pytest, in an environment that has the
/// package. The tests use the command `fairgate` and the simulated model.
pub(crate) fn pytest(root: &Path, venv: &Venv, name: &str, options: &[&str]) -> XtaskStep {
    let program = |name| target(root).join("debug").join(name).to_string_lossy().into_owned();
    let pytest = ["-m", "pytest", "--quiet", "-c", "bindings/python/pyproject.toml"];
    let tests = ["--rootdir", PACKAGE, "bindings/python/tests"];
    venv.step(name, "python", &[&pytest[..], &tests, options].concat())
        .env("FAIRGATE_BINARY", &program("fairgate"))
        .env("FAIRGATE_SIM_BINARY", &program("fairgate-sim"))
        .env("FAIRGATE_WHEELS", &wheels(root))
}

fn lint_steps(root: &Path, venv: &Venv) -> Vec<XtaskStep> {
    let clippy = ["clippy", "--manifest-path", MANIFEST, "--all-targets", "--", "-Dwarnings"];
    let mypy = ["--config-file", "bindings/python/pyproject.toml", "-p", "fairgate"];
    let source = root.join(PACKAGE).join("python");
    vec![
        cargo("format of Python", &["fmt", "--manifest-path", MANIFEST, "--check"]),
        cargo("clippy of Python", &clippy),
        venv.step("mypy", "mypy", &mypy).env("MYPYPATH", &source.to_string_lossy()),
    ]
}

/// `cargo xtask bench python`: measures the grants per second of the Python package and of
/// loco-agent, and counts the instructions of a slot. Only the benchmark's environment contains
/// loco-agent.
pub(crate) fn bench_steps(root: &Path, args: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut tests = test_venv(root)?;
    let mut bench = venv(root, "python-bench", "bindings/python/bench/requirements.txt")?;
    let mut steps = tests.take_steps();
    steps.extend(bench.take_steps());
    steps.push(build_wheel(root, &tests));
    steps.push(install_wheel(root, &bench));
    let run = [&["bindings/python/bench/grants.py"], args].concat();
    steps.push(bench.step("bench python", "python", &run));
    steps.extend(tools::need_debian("valgrind", "valgrind"));
    let count = ["bindings/python/bench/instructions.py"];
    steps.push(bench.step("instructions of a slot", "python", &count));
    Ok(steps)
}

fn test_venv(root: &Path) -> Result<Venv, XtaskError> {
    venv(root, "python-tests", TEST_REQUIREMENTS)
}

fn build_wheel(root: &Path, venv: &Venv) -> XtaskStep {
    let args = ["build", "--release", "--locked", "--manifest-path", MANIFEST, "--out"];
    venv.step("wheel", "maturin", &[&args, &[&*wheels(root)] as &[&str]].concat())
}

pub(crate) fn install_wheel(root: &Path, venv: &Venv) -> XtaskStep {
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let fresh = ["--force-reinstall", "--no-deps", "--no-index", "--find-links"];
    let wheels = wheels(root);
    let args = [&pip[..], &fresh, &[&*wheels, "fairgate"]].concat();
    venv.step("install wheel", "python", &args)
}

fn wheels(root: &Path) -> String {
    target(root).join("wheels").to_string_lossy().into_owned()
}

/// Returns cargo's target folder.
pub(crate) fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |dir| root.join(dir))
}

/// Returns the steps that install Python, if it is missing, with the modules that virtual
/// environments need. On Debian these are separate packages.
fn need_python() -> Vec<XtaskStep> {
    let mut steps = tools::need_debian("python3", "python3");
    let made =
        std::process::Command::new("python3").args(["-c", "import ensurepip, venv"]).output();
    if !made.is_ok_and(|output| output.status.success()) {
        steps.extend(tools::install_debian("python3-venv"));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_made_once_for_each_list() {
        let root = env::temp_dir().join(format!("fairgate-xtask-{}", std::process::id()));
        let folder = target(&root).join("venv/test-of-xtask");
        fs::create_dir_all(&folder).expect("a folder");
        fs::create_dir_all(&root).expect("a root");
        fs::write(root.join("list.txt"), "one==1\n").expect("a list");
        let steps = || venv(&root, "test-of-xtask", "list.txt").map(|venv| venv.steps.len());
        assert!(steps().is_ok_and(|count| count >= 3));
        fs::write(folder.join("requirements-installed.txt"), "one==1\n").expect("a stamp");
        assert_eq!(steps(), Ok(0));
        fs::write(root.join("list.txt"), "one==2\n").expect("another list");
        assert!(steps().is_ok_and(|count| count >= 3));
        assert!(venv(&root, "test-of-xtask", "no-list.txt").is_err());
        fs::remove_dir_all(&folder).expect("it is ours");
        fs::remove_dir_all(&root).expect("it is ours");
    }
}

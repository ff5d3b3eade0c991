//! `cargo xtask test clickhouse`: tests the export of the ledger to Debian's ClickHouse and to a current ClickHouse,
//! while both sides are killed repeatedly.

use std::path::Path;

use crate::packages::tools_folder;
use crate::python::{target, venv};
use crate::step::XtaskStep;
use crate::{XtaskError, cargo, tools};

/// Folder of the tests.
const TESTS: &str = "tests/clickhouse";

/// Returns the steps of the chore. The arguments `args`, such as `-k NAME`, are passed on to
/// pytest.
pub(crate) fn steps(root: &Path, args: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut steps = tools::need_postgresql();
    steps.extend(need_server(root));
    let mut tests = venv(root, "clickhouse", &format!("{TESTS}/requirements.txt"))?;
    steps.extend(tests.take_steps());
    let build = ["build", "--locked", "-p", "fairgate", "-p", "fairgate-sim"];
    steps.push(cargo("programs", &build));
    let pytest = ["-m", "pytest", "--quiet", "-rsP", "-p", "no:cacheprovider", TESTS];
    let pytest = tests.step("clickhouse", "python", &[&pytest, args].concat());
    steps.push(
        pytest
            .env("FAIRGATE_PROGRAMS", &target(root).join("debug").to_string_lossy())
            .env("FAIRGATE_TOOLS", &tools_folder(root).to_string_lossy())
            .env("PYTHONDONTWRITEBYTECODE", "1"),
    );
    Ok(steps)
}

/// Returns the steps that unpack Debian's ClickHouse and the libraries that the machine lacks into the folder of tools.
/// ClickHouse is not installed, because an installed server starts as a service.
fn need_server(root: &Path) -> Vec<XtaskStep> {
    let folder = tools_folder(root).join("clickhouse");
    if folder.join("usr/sbin/clickhouse-server").is_file() {
        return Vec::new();
    }
    let mut steps = tools::list_debian();
    let script = "sudo=$(command -v sudo || true); mkdir -p \"$1/packages/partial\" && cd \"$1\" \
                  && $sudo apt-get --quiet --yes --no-install-recommends --download-only \
                  -o Dir::Cache::archives=\"$1/packages\" install clickhouse-server \
                  && for package in packages/*.deb; do dpkg-deb -x \"$package\" . || exit 1; done \
                  && rm -rf packages && test -x usr/sbin/clickhouse-server";
    let folder = folder.to_string_lossy();
    let unpack = XtaskStep::new("unpack clickhouse", "sh", &["-c", script, "sh", &folder]);
    steps.push(unpack.in_background());
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_are_built_before_they_are_tested() {
        let root =
            Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace");
        let steps = format!("{:?}", steps(root, &["-k", "full"]).expect("the list is there"));
        let (build, test) = (steps.find("\"--locked\""), steps.find("tests/clickhouse\" \"-k\""));
        assert!(build.is_some() && build < test, "{steps}");
    }
}

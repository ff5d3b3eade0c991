//! The chores of the dashboard, which are its tests in a browser and the pictures of the documents.

use std::path::Path;

use crate::node::node_modules;
use crate::python::target;
use crate::step::XtaskStep;
use crate::{XtaskError, cargo, tools};

/// Folder of the tests and of the list of packages that the tests need.
const UI_TESTS: &str = "tests/ui";

/// Files of the tests. They run one after another, because each file starts its own programs and some tests measure how
/// long a page takes.
const UI_TEST_FILES: [&str; 8] = [
    "format.test.mjs",
    "colors.test.mjs",
    "needs.test.mjs",
    "vendor.test.mjs",
    "types.test.mjs",
    "grafana.test.mjs",
    "pages.test.mjs",
    "real.test.mjs",
];

/// `cargo xtask test ui`: builds the binaries, then runs [`ui_steps`].
pub(crate) fn ui_steps_alone(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    // One test runs the gateway on PostgreSQL. In the whole suite, an earlier step has already installed it.
    let mut steps = tools::need_postgresql();
    steps.push(cargo("fairgate for the pages", &["build", "-p", "fairgate", "-p", "fairgate-sim"]));
    steps.extend(ui_steps(root)?);
    Ok(steps)
}

/// Returns the steps that check the dashboard's types against the API of `fairgate serve`, and that test the pages in
/// chromium. The binaries must have been built, for example by `cargo test --workspace`.
pub(crate) fn ui_steps(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut steps = tools::need_debian("chromium", "chromium");
    let mut node = node_modules(root, "ui", UI_TESTS)?;
    steps.append(&mut node.steps);
    let files = UI_TEST_FILES.map(|file| format!("{UI_TESTS}/{file}"));
    let options = ["--test", "--test-concurrency=1", "--test-reporter=spec"];
    let words: Vec<&str> = options.into_iter().chain(files.iter().map(String::as_str)).collect();
    let program = |name: &str| target(root).join("debug").join(name).display().to_string();
    let packages = target(root).join("npm").join("ui").display().to_string();
    steps.push(
        XtaskStep::new("dashboard", "node", &words)
            .env("FAIRGATE_BIN", &program("fairgate"))
            .env("FAIRGATE_SIM_BIN", &program("fairgate-sim"))
            .env("FAIRGATE_UI_PACKAGES", &packages)
            .with_second_run(),
    );
    Ok(steps)
}

/// `cargo xtask pictures`: takes the pictures of the documents again. They show invented data, so no program is built.
pub(crate) fn picture_steps(root: &Path) -> Result<Vec<XtaskStep>, XtaskError> {
    let mut steps = tools::need_debian("chromium", "chromium");
    let mut node = node_modules(root, "ui", UI_TESTS)?;
    steps.append(&mut node.steps);
    let packages = target(root).join("npm").join("ui").display().to_string();
    let pictures = XtaskStep::new("pictures", "node", &[&format!("{UI_TESTS}/pictures.mjs")]);
    steps.push(pictures.env("FAIRGATE_UI_PACKAGES", &packages));
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use super::*;

    /// A file that is not listed would never be run.
    #[test]
    fn every_test_file_is_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(UI_TESTS);
        let entries = fs::read_dir(folder).expect("the tests are there").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let there: BTreeSet<String> = names.filter(|name| name.ends_with(".test.mjs")).collect();
        assert_eq!(there, UI_TEST_FILES.map(str::to_owned).into());
    }
}

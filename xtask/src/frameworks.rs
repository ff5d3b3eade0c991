//! `cargo xtask test frameworks`: runs the recipes of `docs/python/frameworks.md` exactly as the
//! page shows them, with the real packages from PyPI and against the simulated model.
//!
//! Each framework has its own virtual environment, because different frameworks need different
//! versions of the same packages. The versions are pinned in `bindings/python/frameworks/NAME.txt`.

use std::path::Path;

use crate::python::{install_wheel, target, venv, wheel_steps};
use crate::step::XtaskStep;
use crate::{XtaskError, cargo};

/// Names of the recipes, in the order of the page.
const FRAMEWORKS: [&str; 9] = [
    "openai-agents",
    "pydantic-ai",
    "litellm",
    "langchain",
    "autogen",
    "crewai",
    "google-genai",
    "google-adk",
    "bedrock",
];

/// Returns the steps for the frameworks with these names, or for all frameworks if `names` is
/// empty.
pub(crate) fn steps(root: &Path, names: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    if let Some(unknown) = names.iter().find(|name| !FRAMEWORKS.contains(name)) {
        let known = FRAMEWORKS.join(", ");
        return Err(XtaskError(format!("no recipe for `{unknown}`; there are {known}")));
    }
    let names = if names.is_empty() { &FRAMEWORKS } else { names };
    let mut steps = vec![cargo("simulated model", &["build", "-p", "fairgate-sim"])];
    steps.extend(wheel_steps(root)?);
    let sim = target(root).join("debug").join("fairgate-sim").to_string_lossy().into_owned();
    for name in names {
        let requirements = format!("bindings/python/frameworks/{name}.txt");
        let mut environment = venv(root, &format!("framework-{name}"), &requirements)?;
        steps.extend(environment.take_steps());
        steps.push(install_wheel(root, &environment));
        let run = ["bindings/python/frameworks/run.py", name];
        steps.push(
            environment
                .step(&format!("recipe of {name}"), "python", &run)
                .env("FAIRGATE_SIM_BINARY", &sim),
        );
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace")
    }

    #[test]
    fn every_recipe_has_a_list_of_packages_and_a_place_on_the_page() {
        let page = std::fs::read_to_string(root().join("docs/python/frameworks.md"));
        let page = page.expect("the page of the recipes");
        for name in FRAMEWORKS {
            assert!(steps(root(), &[name]).is_ok_and(|steps| steps.len() >= 4), "{name}");
            assert!(
                page.contains(&format!("<!-- recipe: {name} -->")),
                "{name} is not on the page"
            );
            let list = root().join(format!("bindings/python/frameworks/{name}.txt"));
            let list = std::fs::read_to_string(list).expect("a list of packages");
            for line in list.lines().filter(|line| !line.starts_with('#')) {
                let (package, version) = line.split_once("==").expect("an exact version");
                let row = format!("{package} {version}");
                assert!(page.contains(&row), "the page's table does not have {row} for {name}");
            }
        }
        assert!(steps(root(), &["no-such"]).is_err());
    }
}

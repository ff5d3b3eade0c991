//! `cargo xtask test agents`: runs the recipes of `examples/recipes` with the real coding agents from npm and PyPI, and
//! the story of `docs/team.md` in full. Both run against the gateway and the simulated model.
//!
//! The versions are pinned in `tests/agents`. The tests themselves are in `crates/fairgate/tests/cli`. They are marked
//! as ignored, and run only with `--ignored`.

use std::path::Path;

use crate::node::node_modules;
use crate::python::venv;
use crate::step::XtaskStep;
use crate::{XtaskError, cargo, tools};

/// Folder with the lists of packages and their pinned versions.
const LISTS: &str = "tests/agents";

/// Returns the steps for the recipes with these names and for the story, which is named `team`. Without names, returns the
/// steps for all recipes and the story.
pub(crate) fn steps(root: &Path, names: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    let known = recipes(root)?;
    let is_known = |name: &&&str| **name == "team" || known.iter().any(|it| it == **name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let known = known.join(", ");
        return Err(XtaskError(format!("no recipe `{unknown}`; there are {known}, and `team`")));
    }
    let mut steps = tools::need_debian("git", "git");
    steps.extend(tools::need_debian("curl", "curl"));
    steps.extend(tools::need_debian("jq", "jq"));
    let recipes: Vec<&str> = names.iter().copied().filter(|name| *name != "team").collect();
    if names.is_empty() || !recipes.is_empty() {
        let mut node = node_modules(root, "agents", LISTS)?;
        let mut aider = venv(root, "agents", &format!("{LISTS}/requirements.txt"))?;
        steps.append(&mut node.steps);
        steps.extend(own_installations(&node.modules));
        steps.extend(aider.take_steps());
        let programs = node.modules.join(".bin");
        let path = format!("{}:{}", programs.display(), aider.folder().join("bin").display());
        steps.push(
            ignored("recipes of agents", "recipes_make_their_calls")
                .env("FAIRGATE_AGENTS_PATH", &path)
                .env("FAIRGATE_RECIPES", &recipes.join(",")),
        );
    }
    if names.is_empty() || names.contains(&"team") {
        steps.push(ignored("a team's night", "team_story_in_full"));
    }
    Ok(steps)
}

/// Returns the steps that run the installation scripts of packages that have one. npm itself runs no scripts here,
/// because most packages need none. The scripts of these two packages install the program for this machine.
fn own_installations(modules: &Path) -> Vec<XtaskStep> {
    let scripts = [
        ("claude", "@anthropic-ai/claude-code/install.cjs"),
        ("opencode", "opencode-ai/postinstall.mjs"),
    ];
    let step = |(name, script): (&str, &str)| {
        let script = modules.join(script).display().to_string();
        XtaskStep::new(&format!("program of {name}"), "node", &[&script]).in_background()
    };
    scripts.map(step).into()
}

/// Returns the step that runs those ignored tests of the command line whose names contain `filter`.
fn ignored(name: &str, filter: &str) -> XtaskStep {
    let test = ["test", "--workspace", "--test", "cli"];
    cargo(name, &[&test[..], &["--", "--ignored", "--nocapture", filter]].concat())
}

/// Returns the names of the recipes, which are the scripts in `examples/recipes`.
fn recipes(root: &Path) -> Result<Vec<String>, XtaskError> {
    let folder = root.join("examples/recipes");
    let unreadable = |error| XtaskError(format!("cannot read {}: {error}", folder.display()));
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "sh") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is in the workspace")
    }

    #[test]
    fn all_recipes_and_the_story_are_run_unless_some_are_named() {
        assert_eq!(
            recipes(root()),
            Ok(["aider", "claude", "codex", "gemini", "opencode"].map(str::to_owned).into())
        );
        let run = |names: &[&str]| format!("{:?}", steps(root(), names).expect("they are known"));
        let all = run(&[]);
        assert!(all.contains("recipes_make_their_calls") && all.contains("team_story_in_full"));
        let one = run(&["codex"]);
        assert!(one.contains("\"codex\"") && !one.contains("team_story_in_full"), "{one}");
        assert!(!run(&["team"]).contains("recipes_make_their_calls"));
        assert!(steps(root(), &["no-such"]).is_err());
    }
}

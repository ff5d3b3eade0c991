//! Node: packages from npm for chores that need them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::python::target;
use crate::step::Step;
use crate::{Refusal, tools};

/// Packages from npm, in a folder under `target/`.
pub(crate) struct NodeModules {
    pub(crate) modules: PathBuf,
    /// The steps that install them; none where they are there.
    pub(crate) steps: Vec<Step>,
}

/// What the package.json and package-lock.json of a folder list, installed as they list it.
pub(crate) fn node_modules(root: &Path, name: &str, source: &str) -> Result<NodeModules, Refusal> {
    let folder = target(root).join("npm").join(name);
    let modules = folder.join("node_modules");
    let lock = root.join(source).join("package-lock.json");
    let wanted = fs::read_to_string(&lock)
        .map_err(|error| Refusal(format!("cannot read {}: {error}", lock.display())))?;
    // Copied when everything is installed, so that half an installation is not taken for a whole one.
    let stamp = folder.join("installed.json");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(NodeModules { modules, steps: Vec::new() });
    }
    fs::create_dir_all(&folder)
        .map_err(|error| Refusal(format!("cannot make {}: {error}", folder.display())))?;
    let mut steps = tools::need_debian("node", "nodejs");
    steps.extend(tools::need_debian("npm", "npm"));
    let (place, lock) = (folder.display().to_string(), lock.display().to_string());
    let package = root.join(source).join("package.json").display().to_string();
    steps.extend([
        Step::new(&format!("list of {name}"), "cp", &["-f", &package, &lock, &place]),
        Step::new(
            &format!("npm packages of {name}"),
            "npm",
            &["ci", "--prefix", &place, "--no-audit", "--no-fund", "--ignore-scripts"],
        ),
        Step::new(
            &format!("npm packages of {name} are whole"),
            "cp",
            &["-f", &lock, &stamp.display().to_string()],
        ),
    ]);
    Ok(NodeModules { modules, steps })
}

//! Installs packages from npm, for chores that need Node.

use std::fs;
use std::path::{Path, PathBuf};

use crate::python::target;
use crate::step::XtaskStep;
use crate::{XtaskError, tools};

/// Packages from npm that are installed in a folder under `target/`.
pub(crate) struct NodeModules {
    pub(crate) modules: PathBuf,
    /// Steps that install the packages; empty if they are already installed.
    pub(crate) steps: Vec<XtaskStep>,
}

/// Returns the packages that a folder's package.json lists, in the versions of its
/// package-lock.json, with the steps that install them.
pub(crate) fn node_modules(
    root: &Path,
    name: &str,
    source: &str,
) -> Result<NodeModules, XtaskError> {
    let folder = target(root).join("npm").join(name);
    let modules = folder.join("node_modules");
    let lock = root.join(source).join("package-lock.json");
    let wanted = fs::read_to_string(&lock)
        .map_err(|error| XtaskError(format!("cannot read {}: {error}", lock.display())))?;
    // This file is written after all packages are installed, so that a partial installation does not count as complete.
    let stamp = folder.join("installed.json");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(NodeModules { modules, steps: Vec::new() });
    }
    fs::create_dir_all(&folder)
        .map_err(|error| XtaskError(format!("cannot make {}: {error}", folder.display())))?;
    let mut steps = tools::need_debian("node", "nodejs");
    steps.extend(tools::need_debian("npm", "npm"));
    let (place, lock) = (folder.display().to_string(), lock.display().to_string());
    let package = root.join(source).join("package.json").display().to_string();
    let install = [
        XtaskStep::new(&format!("list of {name}"), "cp", &["-f", &package, &lock, &place]),
        XtaskStep::new(
            &format!("npm packages of {name}"),
            "npm",
            &["ci", "--prefix", &place, "--no-audit", "--no-fund", "--ignore-scripts"],
        ),
        XtaskStep::new(
            &format!("npm packages of {name} are whole"),
            "cp",
            &["-f", &lock, &stamp.display().to_string()],
        ),
    ];
    steps.extend(install.map(XtaskStep::in_background));
    Ok(NodeModules { modules, steps })
}

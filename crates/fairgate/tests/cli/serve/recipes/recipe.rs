//! Recipes as files: shell scripts whose first comments describe them.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// One recipe: a script that runs an agent's program.
pub(super) struct AgentRecipe {
    /// Name of the script and of the program.
    pub(super) name: String,
    pub(super) path: PathBuf,
    title: String,
    registry: String,
    package: String,
    /// Version of the program that is pinned in tests/agents.
    pub(super) version: String,
    /// Line that the gateway's configuration needs.
    pub(super) gateway: Option<String>,
    /// Reason why the program cannot be used.
    pub(super) untested: Option<String>,
    /// Text that the program prints if it cannot be used.
    pub(super) seen: Option<String>,
    notes: String,
    /// The script without its first comments.
    script: String,
    /// Hash of the whole file.
    hash: String,
    /// The run that is recorded in tests/agents, if it had this version and this script.
    pub(super) run: Option<RecipeRun>,
}

/// A successful run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RecipeRun {
    name: String,
    version: String,
    hash: String,
}

pub(super) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(file: &str) -> String {
    fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns all recipes, in the order of their names.
pub(super) fn recipes() -> Vec<AgentRecipe> {
    let folder = fs::read_dir(repository().join("examples/recipes")).expect("a folder");
    let scripts = folder.map(|entry| entry.expect("an entry").path());
    let mut scripts: Vec<PathBuf> =
        scripts.filter(|path| path.extension().is_some_and(|it| it == "sh")).collect();
    scripts.sort();
    let runs: Vec<RecipeRun> =
        read("examples/recipes/tested.txt").lines().filter_map(RecipeRun::parse).collect();
    scripts.into_iter().map(|path| AgentRecipe::read(path, &runs)).collect()
}

impl AgentRecipe {
    fn read(path: PathBuf, runs: &[RecipeRun]) -> Self {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("a script");
        let rest = text.strip_prefix("#!/bin/sh\n").expect("a shell's script");
        let (mut fields, mut script) = (Vec::new(), rest);
        while let Some((line, after)) = script.split_once('\n')
            && let Some((field, value)) = line.strip_prefix("# ").and_then(|it| it.split_once(": "))
            && ["title", "package", "gateway", "untested", "seen", "note"].contains(&field)
        {
            fields.push((field, value));
            script = after;
        }
        let all = |name: &str| {
            let values = fields.iter().filter(|(field, _)| *field == name).map(|(_, value)| *value);
            Some(values.collect::<Vec<_>>().join(" ")).filter(|text| !text.is_empty())
        };
        let package = all("package").expect("a package");
        let (registry, package) = package.split_once(' ').expect("a registry and a name");
        let hash = format!("{:016x}", hash(&text));
        let version = pinned(registry, package);
        let run = RecipeRun { name: name.clone(), version: version.clone(), hash: hash.clone() };
        Self {
            run: runs.contains(&run).then_some(run),
            path: path.canonicalize().expect("it is there"),
            title: all("title").expect("a title"),
            registry: registry.to_owned(),
            package: package.to_owned(),
            version,
            gateway: all("gateway"),
            untested: all("untested"),
            seen: all("seen"),
            notes: all("note").unwrap_or_default(),
            script: script.to_owned(),
            hash,
            name,
        }
    }
}

/// Returns the version of a package that `cargo xtask test agents` installs.
fn pinned(registry: &str, package: &str) -> String {
    let version = match registry {
        "npm" => {
            let list: Value =
                serde_json::from_str(&read("tests/agents/package.json")).expect("JSON");
            list["dependencies"][package].as_str().map(str::to_owned)
        }
        _ => {
            let list = read("tests/agents/requirements.txt");
            let mut lines = list.lines().filter_map(|line| line.split_once("=="));
            lines.find(|(name, _)| *name == package).map(|(_, version)| version.to_owned())
        }
    };
    let version = version.unwrap_or_else(|| panic!("{package} has no version in tests/agents"));
    assert!(
        version.starts_with(|c: char| c.is_ascii_digit()),
        "{package}: {version} is no version"
    );
    version
}

/// Returns the FNV-1a hash of a text, which shows whether a script has changed since its run.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}

impl RecipeRun {
    pub(super) fn of(recipe: &AgentRecipe) -> Self {
        let AgentRecipe { name, version, hash, .. } = recipe;
        Self { name: name.clone(), version: version.clone(), hash: hash.clone() }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ').map(str::to_owned);
        Some(Self { name: words.next()?, version: words.next()?, hash: words.next()? })
    }

    pub(super) fn line(&self) -> String {
        format!("{} {} {}\n", self.name, self.version, self.hash)
    }
}

/// Returns the content of the file that records runs.
pub(super) fn tested(lines: &[String]) -> String {
    let about = "# Written by `FAIRGATE_UPDATE_DOCS=1 cargo xtask test agents`: the version and the hash of each script that ran.\n";
    format!("{about}{}", lines.concat())
}

/// Returns the page of all recipes.
pub(super) fn page(recipes: &[AgentRecipe]) -> String {
    let mut page = "# Recipes\n\n\
        Each recipe is the command of an agent, for `fairgate agent run -- examples/recipes/NAME.sh`. It runs a coding agent's CLI for \
        one task, with the task's key, so that the gateway counts its calls for the task. The model is `sim`; another one is named by the \
        variable `MODEL`. The exit status of the CLI decides what becomes of [the task](agents.md#how-the-command-ends).\n\n\
        This page is made from [the scripts](../examples/recipes). `cargo xtask test agents` installs the programs in these versions, runs \
        each for one task against the gateway and the simulated model, and compares the ledger: the calls must be there, all of them under \
        the task's key. The version is the one that ran with the script as it is printed here.\n\n\
        | program | package | version that ran |\n|---|---|---|\n"
        .to_owned();
    for recipe in recipes {
        let AgentRecipe { title, registry, package, .. } = recipe;
        page.push_str(&format!("| {title} | {registry} `{package}` | {} |\n", recipe.standing()));
    }
    for recipe in recipes {
        page.push_str(&recipe.section());
    }
    page
}

impl AgentRecipe {
    fn standing(&self) -> &str {
        self.run.as_ref().filter(|_| self.untested.is_none()).map_or("untested", |run| &run.version)
    }

    fn section(&self) -> String {
        let mut text = format!("\n## {}\n", self.title);
        if let Some(reason) = &self.untested {
            text.push_str(&format!("\nUntested: {reason}\n"));
        }
        if !self.notes.is_empty() {
            text.push_str(&format!("\n{}\n", self.notes));
        }
        if let Some(line) = &self.gateway {
            text.push_str(&format!("\nThe gateway's file needs:\n\n```text\n{line}\n```\n"));
        }
        text + &format!("\n`examples/recipes/{}.sh`:\n\n```sh\n{}```\n", self.name, self.script)
    }
}

//! Tests of the recipes in examples/recipes. The page docs/recipes.md is generated from them.
//! `cargo xtask test agents` runs each recipe with the real program, the gateway and the simulated
//! model.

mod recipe;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use fairgate_sim::SimOptions;
use serde_json::Value;

use super::running::{Folder, Gateway, Model, one_pool};
use crate::run::command;
use recipe::{AgentRecipe, RecipeRun, page, recipes, repository};

/// Longest time that a program may take for its task.
const RUN_TIME_MAX: Duration = Duration::from_secs(180);

/// Returns whether files are written instead of compared.
fn is_update() -> bool {
    env::var_os("FAIRGATE_UPDATE_DOCS").is_some()
}

fn compare_or_write(file: &str, expected: &str) {
    let path = repository().join(file);
    if is_update() {
        fs::write(path, expected).expect("a file");
        return;
    }
    let hint = "`FAIRGATE_UPDATE_DOCS=1 cargo xtask test agents` writes it";
    assert_eq!(fs::read_to_string(path).unwrap_or_default(), expected, "{file}: {hint}");
}

#[test]
fn the_page_of_recipes_is_made_from_their_files() {
    compare_or_write("docs/recipes.md", &page(&recipes()));
}

/// Result of a recipe's task.
struct RecipeOutcome {
    task: Value,
    /// Rows of the ledger; all are of the task.
    calls: Vec<Value>,
    log: String,
}

/// Runs a recipe for one task, with the programs of `cargo xtask test agents`.
fn run(recipe: &AgentRecipe) -> RecipeOutcome {
    let (folder, model) = (Folder::new(), Model::start(SimOptions::instant()));
    let more = recipe.gateway.as_ref().map_or(String::new(), |line| format!("{line}\n"));
    let config =
        one_pool(&model, &more).replace("slots: 16", "slots: 16, dialects: [openai, anthropic]");
    fs::write(folder.join("fairgate.yaml"), config).expect("a file");
    let gateway = Gateway::configured(&folder);
    gateway.fairgate(&["group", "add", "people"]).ok();
    gateway.fairgate(&["tenant", "add", "demo", "--group", "people"]).ok();
    gateway.fairgate(&["project", "add", "web", "--tenant", "demo"]).ok();
    let (home, checkout) = (folder.join("home"), folder.join("checkout"));
    fs::create_dir(&home).expect("a folder");
    let git = Command::new("git").args(["init", "--quiet"]).arg(&checkout).status();
    assert!(git.expect("git runs").success());
    let path = checkout.display().to_string();
    gateway.fairgate(&["workspace", "add", "w-1", "--project", "web", "--path", &path]).ok();
    let made = gateway.json(&["agent", "add", "a-1"]);
    let prompt = "Say in one sentence what fair queueing is. Change no files.";
    gateway
        .fairgate(&["task", "add", "--project", "web", "--id", "one", "--retries", "0", prompt])
        .ok();
    let mut agent = command(&["agent", "run", "--once", "--url", &gateway.url, "--name", "a-1"]);
    let limit = RUN_TIME_MAX.as_secs().to_string();
    let log = fs::File::create(folder.join("agent.log")).expect("a file");
    let status = agent
        .args(["--timeout", &limit, "--"])
        .arg(&recipe.path)
        .env("FAIRGATE_AGENT_TOKEN", made["token"].as_str().expect("a token"))
        .env("PATH", programs())
        .env("HOME", &home)
        .env("TMPDIR", folder.path())
        .env_remove("MODEL")
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file"))
        .stderr(log)
        .status()
        .expect("it starts");
    let log = fs::read_to_string(folder.join("agent.log")).expect("a log");
    assert!(status.success(), "{}: {log}", recipe.name);
    let rows = gateway.api("/api/v1/attempts?limit=1000")["items"].as_array().cloned();
    let calls = rows.expect("rows of the ledger");
    for row in &calls {
        assert_eq!(row["task"], "one", "{}: {row}", recipe.name);
    }
    RecipeOutcome { task: gateway.json(&["task", "show", "one"]), calls, log }
}

/// Returns the search path, with the programs that `cargo xtask test agents` has installed.
fn programs() -> String {
    let installed = env::var("FAIRGATE_AGENTS_PATH");
    let installed =
        installed.expect("FAIRGATE_AGENTS_PATH: run this with `cargo xtask test agents`");
    format!("{installed}:{}", env::var("PATH").unwrap_or_default())
}

/// Returns the version that a program prints.
fn version(recipe: &AgentRecipe, home: &Path) -> String {
    let mut program = Command::new("sh");
    let output = program
        .args(["-c", &format!("{} --version", recipe.name)])
        .env("PATH", programs())
        .env("HOME", home)
        .stdin(Stdio::null())
        .output()
        .expect("a shell runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
#[ignore = "needs the programs: cargo xtask test agents"]
fn recipes_make_their_calls_with_the_key_of_the_task() {
    let only = env::var("FAIRGATE_RECIPES").unwrap_or_default();
    let mut ran = Vec::new();
    for recipe in recipes() {
        if !only.is_empty() && !only.split(',').any(|name| name == recipe.name) {
            ran.extend(recipe.run.clone());
            continue;
        }
        let home = Folder::new();
        let said = version(&recipe, home.path());
        assert!(
            said.contains(&recipe.version),
            "{}: {said:?} is not {}",
            recipe.name,
            recipe.version
        );
        let start = Instant::now();
        let RecipeOutcome { task, calls, log } = run(&recipe);
        let took = start.elapsed().as_secs_f32();
        let answered = calls.iter().filter(|call| call["status"] == 200).count();
        let seen: Vec<String> =
            calls.iter().map(|call| format!("{} {}", call["route"], call["status"])).collect();
        let state = &task["state"];
        eprintln!("{}: {said}, {took:.1} s, {state}, calls of the task: {seen:?}", recipe.name);
        if recipe.untested.is_some() {
            assert_eq!(answered, 0, "{}: it works now; remove `# untested:`\n{log}", recipe.name);
            let seen = recipe.seen.as_deref().expect("what was seen");
            assert!(log.contains(seen), "{}: {seen:?} is not in\n{log}", recipe.name);
            continue;
        }
        assert_eq!(task["state"], "COMPLETED", "{}: {task}\n{log}", recipe.name);
        assert!(answered > 0, "{}: no call came through\n{log}", recipe.name);
        assert_eq!(task["calls"].as_u64().map(usize::try_from), Some(Ok(calls.len())), "{task}");
        ran.push(RecipeRun::of(&recipe));
    }
    let lines: Vec<String> = ran.iter().map(RecipeRun::line).collect();
    compare_or_write("examples/recipes/tested.txt", &recipe::tested(&lines));
    if is_update() {
        compare_or_write("docs/recipes.md", &page(&recipes()));
    }
}

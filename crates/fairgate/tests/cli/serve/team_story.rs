//! Test of the story of docs/team.md: a team's fleet through a night with many faults. The commands
//! are those of the page.

mod counted;
mod page;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use fairgate_sim::{OutputLength, SimOptions};
use serde_json::Value;

use super::running::{Folder, Gateway, Model};
use crate::run::finished;
use page::StoryPage;

/// Number of agents on the machine without a folder, and on all machines.
const AGENTS: [usize; 2] = [4, 20];
/// Longest time that one part of the story may take.
const PART_TIME_MAX: Duration = Duration::from_secs(120);

/// All processes of the story. Dropping this value ends the agents before the gateway.
struct Story {
    agents: Vec<AgentShell>,
    gateway: Gateway,
    folder: Folder,
    _model: Model,
}

/// The shell that has started the agents, with all of them in its process group.
struct AgentShell(Child);

impl Drop for AgentShell {
    fn drop(&mut self) {
        let group = format!("-{}", self.0.id());
        let _ = Command::new("kill").args(["-TERM", "--", &group]).status();
        let _ = self.0.wait();
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Story {
    /// Starts the gateway of the page, and runs the page's commands up to the start of the agents.
    fn set_up(page: &StoryPage, options: SimOptions) -> Self {
        let (folder, model) = (Folder::new(), Model::start(options));
        for file in ["work.sh", "tasks.yaml"] {
            let from = repository().join("examples/team").join(file);
            fs::copy(from, folder.join(file)).expect("a copy");
        }
        let configure = |listen: &str| {
            let text = page.configuration().replace("http://127.0.0.1:9000", &model.url);
            let text = text.replace("127.0.0.1:8080", listen);
            fs::write(folder.join("fairgate.yaml"), text).expect("a file");
        };
        configure("127.0.0.1:0");
        let gateway = Gateway::configured(&folder);
        // The same address after a restart.
        configure(gateway.url.trim_start_matches("http://"));
        let story = Self { agents: Vec::new(), gateway, folder, _model: model };
        for script in page.set_up() {
            story.shell(&script);
        }
        story
    }

    /// Starts agents with a script of the page, and waits until all of them wait for tasks.
    fn start_agents(&mut self, script: &str, number: usize) {
        let mut shell = self.command(&format!("{script}\nwait"));
        let shell = shell.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.agents.push(AgentShell(shell.expect("a shell runs")));
        self.until("the agents wait for tasks", |story| {
            let connected = story.gateway.json(&["fleet"])["connected"].as_array()?.len();
            (connected == number).then_some(())
        });
    }

    /// Returns a shell in the story's folder, with the admin's environment.
    fn command(&self, script: &str) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_fairgate"));
        let others = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{others}", binary.parent().expect("a folder").display());
        let mut shell = Command::new("sh");
        shell
            .args(["-ec", script])
            .env("PATH", path)
            .env("FAIRGATE_URL", &self.gateway.admin_url)
            .env("FAIRGATE_ADMIN_TOKEN_FILE", &self.gateway.token_file)
            .env_remove("FAIRGATE_ADMIN_TOKEN")
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        shell
    }

    /// Runs a script that must succeed, and returns its output.
    fn shell(&self, script: &str) -> String {
        finished(self.command(script).output().expect("a shell runs")).ok()
    }

    fn until<T>(&self, what: &str, mut attempt: impl FnMut(&Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(done) = attempt(self) {
                return done;
            }
            if start.elapsed() > PART_TIME_MAX {
                let fleet = self.gateway.fairgate(&["fleet"]).stdout;
                panic!("{what}: not within {PART_TIME_MAX:?}\n{fleet}\n{}", self.logs());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the last lines of each agent's log.
    fn logs(&self) -> String {
        self.shell("tail -n 5 m*.log")
    }

    /// Returns all tasks, as a list shows them.
    fn tasks(&self) -> Vec<Value> {
        let list = self.gateway.api("/api/v1/tasks?limit=1000");
        list["items"].as_array().expect("a list").clone()
    }

    fn completed(&self) -> usize {
        self.tasks().iter().filter(|task| task["state"] == "COMPLETED").count()
    }

    fn state(&self, task: &str) -> Value {
        self.gateway.api(&format!("/api/v1/tasks/{task}"))["state"].clone()
    }

    /// Kills the gateway as soon as this many tasks are completed, and starts it again.
    fn kill_after(&mut self, completed: usize) -> Killed {
        self.until("enough is completed", |story| (story.completed() >= completed).then_some(()));
        let completed = self.completed();
        let start = Instant::now();
        self.gateway.signal("KILL");
        self.gateway.ended();
        self.gateway = Gateway::configured(&self.folder);
        Killed { completed, away: start.elapsed() }
    }
}

/// The moment at which the server was killed.
struct Killed {
    completed: usize,
    away: Duration,
}

/// Returns a task of `shop` whose call was refused because the project's budget was used up.
fn stopped_by_budget(story: &Story) -> Option<String> {
    let tasks = story.tasks();
    let stopped = tasks.iter().find(|task| {
        let reason = task["reason"].as_str().unwrap_or_default();
        task["project"] == "shop" && task["state"] == "PAUSED" && reason.contains("budget")
    });
    Some(stopped?["id"].as_str()?.to_owned())
}

/// Runs the story once. The server is killed when `kill_after` tasks are completed.
fn run(page: &mut StoryPage, options: SimOptions, kill_after: usize, off_max: u64) {
    let start = Instant::now();
    let mut story = Story::set_up(page, options);
    let [first, others] = page.start_agents();
    story.start_agents(&first, AGENTS[0]);
    page.record(
        &story,
        "guide",
        &[r#"fairgate task add --project docs --id docs-guide "Write the guide.""#],
    );
    story.until("all agents of the machine gave it back", |story| {
        (counted::given_back(story, "docs-guide") == AGENTS[0]).then_some(())
    });
    page.record(&story, "folder", &["fairgate task why docs-guide"]);
    story.start_agents(&others, AGENTS[1]);
    page.record(&story, "added", &["fairgate task add -f tasks.yaml | head -5"]);
    story.until("a person is asked", |story| {
        (story.state("core-colours") == "WAITING_INPUT").then_some(())
    });
    page.record(&story, "question", &["fairgate task list --state waiting_input"]);
    let killed = story.kill_after(kill_after);
    assert_eq!(story.state("core-colours"), "WAITING_INPUT", "the question is still there");
    page.record(&story, "answer", &["fairgate task answer core-colours \"Blue.\""]);
    let stopped = story.until("the budget has ended", stopped_by_budget);
    page.record(&story, "budget", &[&format!("fairgate task why {stopped}")]);
    let resume = format!("fairgate task resume {stopped}");
    page.record(&story, "raised", &["fairgate project set shop --budget none", &resume]);
    story.until("all tasks are completed", |story| {
        // Others of the project may have met the end of the budget too.
        if let Some(stopped) = stopped_by_budget(story) {
            story.shell(&format!("fairgate task resume {stopped}"));
        }
        (story.completed() == counted::TASKS).then_some(())
    });
    page.record(&story, "history", &["fairgate task show docs-guide | grep -A 20 '^at '"]);
    page.record(&story, "projects", &["fairgate project list"]);
    page.record(&story, "last", &["fairgate task show core-release | grep -A 20 '^result'"]);
    let sums = counted::count(&story);
    page.record_text("counted", &sums.text(&killed, start.elapsed()));
    sums.check(off_max);
}

/// Returns a model whose answers all have 400 tokens.
fn model(decode_us: u64) -> SimOptions {
    SimOptions {
        slots: 24,
        decode_per_token: Duration::from_micros(decode_us),
        output_tokens: OutputLength::exactly(400),
        ..SimOptions::instant()
    }
}

#[test]
fn team_story_in_short() {
    let mut page = StoryPage::read();
    // Tasks take a tenth of a second, and twenty agents ask at once: chance decides about some of them. The full form
    // judges the shares.
    run(&mut page, model(200), 15, 100);
    page.compare();
}

/// The full story. It also writes the page's output if `FAIRGATE_UPDATE_DOCS` is set.
#[test]
#[ignore = "takes minutes: cargo xtask test agents"]
fn team_story_in_full() {
    for kill_after in [3, 30, 15] {
        let mut page = StoryPage::read();
        run(&mut page, model(2_500), kill_after, 30);
        page.compare_or_write();
    }
}

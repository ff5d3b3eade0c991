//! Tests of faults in a fleet, with `fairgate serve` and `fairgate agent run` as processes: the
//! database hangs, the disk is full, and every process is killed at random times.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use std::{env, fs};

use fairgate_testkit::postgres_server::PostgresServer;
use fairgate_testkit::workload::SeededRng;
use fairgate_time::wall_clock;
use serde_json::{Value, json};

use super::http::{Answer, ask};
use super::running::{Folder, Gateway, until};
use crate::run::command;

const MODEL: &str = "upstreams:\n  - { name: sim, url: \"http://127.0.0.1:1\", slots: 4 }\n\
     pools:\n  - { name: sim, models: [sim], workers: [sim], capacity: 4 }\n";

/// Writes a configuration with these lines.
fn configure(folder: &Folder, listen: &str, more: &str) {
    let config = format!("listen: {listen}\ndata_dir: data\n{more}{MODEL}");
    fs::write(folder.join("fairgate.yaml"), config).expect("a file");
}

/// Adds a tenant and its project.
fn furnish(gateway: &Gateway) {
    gateway.fairgate(&["group", "add", "people"]).ok();
    gateway.fairgate(&["tenant", "add", "demo", "--group", "people"]).ok();
    gateway.fairgate(&["project", "add", "web", "--tenant", "demo", "--concurrency", "4"]).ok();
}

/// An agent, with its token.
struct Agent {
    name: &'static str,
    token: String,
}

impl Agent {
    fn new(gateway: &Gateway, name: &'static str) -> Self {
        let made = gateway.json(&["agent", "add", name]);
        Self { name, token: made["token"].as_str().expect("a token").to_owned() }
    }

    fn say(&self, gateway: &Gateway, what: &str, body: &Value) -> Answer {
        let path = format!("/api/v1/agents/{}/{what}", self.name);
        ask(&gateway.url, "POST", &path, &self.token, &body.to_string()).expect("an answer")
    }

    /// Claims a task, and returns it.
    fn claims(&self, gateway: &Gateway) -> Value {
        let answer = self.say(gateway, "claim", &json!({"wait_s": 10}));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Starts `fairgate agent run` with this script.
    fn run(&self, gateway: &Gateway, folder: &Folder, script: &str) -> Child {
        let log = folder.join(&format!("{}.log", self.name));
        let log = fs::File::options().create(true).append(true).open(log).expect("a file");
        let mut run = command(&["agent", "run", "--url", &gateway.url, "--name", self.name]);
        run.args(["--grace", "1", "--", "bash", "-c", script])
            .env("FAIRGATE_AGENT_TOKEN", &self.token)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        run.spawn().expect("it starts")
    }
}

fn kill(child: &mut Child) {
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
}

/// Checks for a temporary error with this status and code.
fn for_now(answer: &Answer, status: u16, code: &str) {
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (status, &code.into()),
        "{answer:?}"
    );
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
}

fn completions(task: &Value) -> usize {
    let steps = task["history"].as_array().expect("a history");
    steps.iter().filter(|step| step["to"] == "COMPLETED").count()
}

#[test]
fn the_database_is_away_for_longer_than_a_lease() {
    let server = PostgresServer::start_for_tests().expect("PostgreSQL starts");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let database = runtime.block_on(server.create_database()).expect("a database");
    let url = server.socket_url(&database);
    let (folder, work) = (Folder::new(), Folder::new());
    let more = format!("store: {{ url: \"{url}\" }}\nfleet: {{ lease: 6s }}\n");
    configure(&folder, "127.0.0.1:0", &more);
    let gateway = Gateway::configured(&folder);
    furnish(&gateway);
    let [runs, holds, waits] = ["runs", "holds", "waits"].map(|name| Agent::new(&gateway, name));
    let add = |id| gateway.fairgate(&["task", "add", "--project", "web", "--id", id, "do it"]);
    add("long").ok();
    let script = "echo begin >>begun; until [ -e go ]; do sleep 0.05; done; echo done";
    let mut agent = runs.run(&gateway, &work, script);
    until("it runs", || fs::exists(work.join("begun")).ok()?.then_some(()));
    add("two").ok();
    let two = holds.claims(&gateway);
    let (key, epoch) = (two["key"].as_str().expect("a key"), &two["epoch"]);
    let about = json!({ "epoch": epoch });
    assert_eq!(holds.say(&gateway, "tasks/two/heartbeat", &about).status, 200);

    server.hang().expect("it hangs");
    let away = Instant::now();
    let given = std::thread::scope(|scope| {
        // One whose wait is longer than the outage gets its task when all is well again.
        let waiting = scope.spawn(|| {
            loop {
                let answer = waits.say(&gateway, "claim", &json!({"wait_s": 20}));
                if answer.status == 200 {
                    return answer.json();
                }
                assert!(matches!(answer.status, 204 | 503), "{answer:?}");
                sleep(Duration::from_millis(100));
            }
        });
        for_now(&holds.say(&gateway, "claim", &json!({})), 503, "store_unavailable");
        for_now(&holds.say(&gateway, "tasks/two/heartbeat", &about), 503, "store_unavailable");
        for_now(&holds.say(&gateway, "tasks/two/complete", &about), 503, "store_unavailable");
        for_now(&gateway.chat(key, "a poem"), 503, "store_unavailable");
        sleep(Duration::from_secs(8).saturating_sub(away.elapsed()));
        server.go_on().expect("it goes on");
        until("tasks can be added", || (add("three").status == 0).then_some(()));
        waiting.join().expect("it is given a task")
    });
    assert_eq!(given["task"], "three");
    for _ in 0..2 {
        let answer = holds.say(&gateway, "tasks/two/complete", &about);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let two = gateway.json(&["task", "show", "two"]);
    assert_eq!(
        (&two["epoch"], &two["retries"], completions(&two)),
        (&1.into(), &0.into(), 1),
        "{two}"
    );
    // The command of the other one has run on all the time.
    fs::write(work.join("go"), "").expect("a file");
    let long = until("it is completed", || {
        let task = gateway.json(&["task", "show", "long"]);
        (task["state"] == "COMPLETED").then_some(task)
    });
    assert_eq!(
        (&long["epoch"], &long["retries"], completions(&long)),
        (&1.into(), &0.into(), 1),
        "{long}"
    );
    assert_eq!(fs::read_to_string(work.join("begun")).expect("a file"), "begin\n");
    kill(&mut agent);
}

#[test]
fn a_full_disk_refuses_in_plain_words_and_costs_no_lease() {
    let folder = Folder::new();
    configure(&folder, "127.0.0.1:0", "fleet: { lease: 2s }\n");
    let file = folder.join("fairgate.yaml").display().to_string();
    let serve = command(&["serve", "--config", &file]);
    let mut patient = Command::new("sh");
    patient.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]);
    patient.arg(serve.get_program()).args(serve.get_args());
    let gateway = Gateway::start(&folder, patient);
    furnish(&gateway);
    let (holds, other) = (Agent::new(&gateway, "holds"), Agent::new(&gateway, "other"));
    let token = fs::read_to_string(&gateway.token_file).expect("a token");
    let add = |id: &str| {
        let task = json!({"tasks": [{"project": "web", "id": id, "prompt": "do it"}]});
        let body = task.to_string();
        ask(&gateway.url, "POST", "/api/v1/tasks", token.trim(), &body).expect("an answer")
    };
    assert_eq!(add("t-0").status, 201);
    let held = holds.claims(&gateway);
    let about = json!({ "epoch": held["epoch"] });
    assert_eq!(holds.say(&gateway, "tasks/t-0/heartbeat", &about).status, 200);
    // No file may grow beyond this: its writes fail then, as on a full disk.
    let room = |bytes: &str| {
        let limit = [format!("--pid={}", gateway.pid()), format!("--fsize={bytes}:unlimited")];
        assert!(Command::new("prlimit").args(limit).status().expect("prlimit runs").success());
    };
    room("1");
    let full = Instant::now();
    // For longer than a lease.
    while full.elapsed() < Duration::from_secs(4) {
        let refusal = add("t-1");
        for_now(&refusal, 507, "store_full");
        assert!(refusal.body.contains("is full, and nothing was changed"), "{refusal:?}");
        for_now(&holds.say(&gateway, "tasks/t-0/heartbeat", &about), 507, "store_full");
        for_now(&other.say(&gateway, "claim", &json!({})), 507, "store_full");
        assert_eq!(gateway.json(&["task", "list"]).as_array().map(Vec::len), Some(1));
        sleep(Duration::from_millis(300));
    }
    room("unlimited");
    until("there is room", || (add("t-1").status == 201).then_some(()));
    assert_eq!(other.claims(&gateway)["task"], "t-1");
    let answer = holds.say(&gateway, "tasks/t-0/complete", &about);
    assert_eq!(answer.status, 200, "{answer:?}");
    let held = gateway.json(&["task", "show", "t-0"]);
    assert_eq!(
        (&held["epoch"], &held["retries"], completions(&held)),
        (&1.into(), &0.into(), 1),
        "{held}"
    );
}

/// Returns a random generator with the seed `FAIRGATE_SEED`, or a seed from the clock. Prints the
/// seed.
fn random_numbers() -> SeededRng {
    let clock = wall_clock::since_1970();
    let seed = env::var("FAIRGATE_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(u64::from(clock.subsec_nanos()));
    eprintln!("FAIRGATE_SEED={seed}");
    SeededRng::new(seed)
}

const KILLS: usize = 10;
const TASKS: usize = 16;

#[test]
fn killed_at_any_moment_no_task_is_lost_or_done_twice() {
    let mut dice = random_numbers();
    let (folder, work) = (Folder::new(), Folder::new());
    let more = "fleet: { lease: 5s, backoff: 1s, backoff_max: 1s }\n";
    configure(&folder, "127.0.0.1:0", more);
    let mut gateway = Gateway::configured(&folder);
    let listen = gateway.url.trim_start_matches("http://").to_owned();
    configure(&folder, &listen, more);
    furnish(&gateway);
    for name in ["w-1", "w-2", "w-3"] {
        fs::create_dir(work.join(name)).expect("a folder");
        let path = work.join(name).display().to_string();
        gateway.fairgate(&["workspace", "add", name, "--project", "web", "--path", &path]).ok();
    }
    let agents = ["a-1", "a-2"].map(|name| Agent::new(&gateway, name));
    for number in 0..TASKS {
        let id = format!("t-{number}");
        let task = ["task", "add", "--project", "web", "--retries", "50", "--id", &id, "do it"];
        gateway.fairgate(&task).ok();
    }
    let script = "echo begun; sleep 0.1; echo done";
    let mut running = agents.each_ref().map(|agent| agent.run(&gateway, &work, script));
    for _ in 0..KILLS {
        sleep(Duration::from_millis(50 + dice.below(300)));
        let (which, victim) = (dice.below(3), usize::try_from(dice.below(2)).expect("small"));
        if which != 0 {
            kill(&mut running[victim]);
        }
        if which != 1 {
            gateway.signal("KILL");
            gateway.ended();
            gateway = Gateway::configured(&folder);
        }
        if which != 0 {
            running[victim] = agents[victim].run(&gateway, &work, script);
        }
    }
    let start = Instant::now();
    let left = |gateway: &Gateway| {
        let tasks = gateway.json(&["task", "list"]);
        let tasks = tasks.as_array().cloned().expect("a list");
        assert_eq!(tasks.len(), TASKS, "none is lost");
        tasks.into_iter().filter(|task| task["state"] != "COMPLETED").collect::<Vec<_>>()
    };
    while let Some(task) = left(&gateway).first() {
        assert!(start.elapsed() < Duration::from_secs(60), "{task}");
        sleep(Duration::from_millis(100));
    }
    for number in 0..TASKS {
        let task = gateway.json(&["task", "show", &format!("t-{number}")]);
        assert_eq!(completions(&task), 1, "{task}");
    }
    let workspaces = gateway.json(&["workspace", "list"]);
    for workspace in workspaces.as_array().expect("a list") {
        assert_eq!(workspace["task"], Value::Null, "{workspace}");
    }
    let project = gateway.json(&["project", "show", "web"]);
    assert_eq!((&project["reserved"], &project["running"]), (&0.into(), &0.into()), "{project}");
    running.iter_mut().for_each(kill);
}

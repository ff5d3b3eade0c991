//! Tests of `fairgate agent run` with `fairgate serve`, both as processes, also if one of them
//! dies.

mod count;
mod page;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::running::{Folder, Gateway, until};
use crate::run::command;

/// Script that calls the gateway like an OpenAI client, with the variables of the environment, and
/// writes the answer as the result.
const CALLS: &str = r#"
address=${OPENAI_BASE_URL#http://}; address=${address%/v1}
body='{"model":"sim","max_tokens":20,"messages":[{"role":"user","content":"a poem, please"}]}'
exec 3<>"/dev/tcp/${address%:*}/${address##*:}"
printf 'POST /v1/chat/completions HTTP/1.1\r\nhost: %s\r\nauthorization: Bearer %s\r\nconnection: close\r\n' \
    "$address" "$OPENAI_API_KEY" >&3
printf 'content-type: application/json\r\ncontent-length: %d\r\n\r\n%s' "${#body}" "$body" >&3
cat <&3 >answer
head -n 1 answer
grep -q '^HTTP/1.1 200' answer
"#;

/// A gateway with one project and one agent.
struct Fleet {
    gateway: Gateway,
    token: String,
}

impl Fleet {
    fn new(gateway: Gateway) -> Self {
        gateway.fairgate(&["project", "add", "web", "--tenant", "demo"]).ok();
        let made = gateway.json(&["agent", "add", "a-1"]);
        let token = made["token"].as_str().expect("a token").to_owned();
        Self { gateway, token }
    }

    fn add(&self, id: &str) {
        self.gateway.fairgate(&["task", "add", "--project", "web", "--id", id, "do it"]).ok();
    }

    fn task(&self, id: &str) -> Value {
        self.gateway.json(&["task", "show", id])
    }

    /// Waits until a task is in this state, and returns the task.
    fn until(&self, id: &str, state: &str) -> Value {
        until(&format!("{id} is {state}"), || {
            let task = self.task(id);
            (task["state"] == state).then_some(task)
        })
    }

    fn run(&self, folder: &Folder, script: &str) -> Runner {
        let mut run = command(&["agent", "run", "--url", &self.gateway.url, "--name", "a-1"]);
        let log = fs::File::create(folder.join("agent.log")).expect("a file");
        run.args(["--grace", "2", "--", "bash", "-c", script])
            .env("FAIRGATE_AGENT_TOKEN", &self.token)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        Runner(run.spawn().expect("it starts"))
    }
}

/// A process that gets SIGTERM when this value is dropped, so that its command ends too.
struct Runner(Child);

impl Runner {
    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").args(["-s", name, &pid]).status();
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.signal("TERM");
        }
        let _ = self.0.wait();
    }
}

/// Starts a gateway with leases of this length, on a fixed address that is the same after a
/// restart.
fn with_leases(folder: &Folder, lease: &str, listen: &str) -> Gateway {
    let model = "upstreams:\n  - { name: sim, url: \"http://127.0.0.1:1\", slots: 4 }\n\
         pools:\n  - { name: sim, models: [sim], workers: [sim], capacity: 4 }\n";
    let config = format!("listen: {listen}\ndata_dir: data\nfleet: {{ lease: {lease} }}\n{model}");
    fs::write(folder.join("fairgate.yaml"), config).expect("a file");
    Gateway::configured(folder)
}

fn with_tenant(gateway: Gateway) -> Fleet {
    gateway.fairgate(&["group", "add", "people"]).ok();
    gateway.fairgate(&["tenant", "add", "demo", "--group", "people"]).ok();
    Fleet::new(gateway)
}

#[test]
fn a_script_that_calls_the_gateway_is_counted_for_its_project() {
    let (folder, work) = (Folder::new(), Folder::new());
    let fleet = Fleet::new(Gateway::embedded(&folder));
    fleet.add("one");
    let _agent = fleet.run(&work, CALLS);
    let done = fleet.until("one", "COMPLETED");
    assert_eq!(done["result"], "HTTP/1.1 200 OK", "{done}");
    assert_eq!(done["calls"], 1, "{done}");
    let used = done["used"].as_u64().expect("a number");
    assert!(used > 0, "{done}");
    let project = fleet.gateway.json(&["project", "show", "web"]);
    assert_eq!(project["used"].as_u64(), Some(used), "{project}");
    assert_eq!(fleet.gateway.fairgate(&["task", "log", "one"]).ok(), "HTTP/1.1 200 OK\r\n");
    // Not before the last word of the log is there.
    let log = fs::read_to_string(work.join("agent.log")).expect("a log");
    assert!(log.contains("task one is completed") && !log.contains("fgt-"), "{log}");
}

#[test]
fn a_cancelled_task_ends_its_command() {
    let (folder, work) = (Folder::new(), Folder::new());
    let fleet = with_tenant(with_leases(&folder, "3s", "127.0.0.1:0"));
    fleet.add("long");
    let agent = fleet.run(&work, "echo $$ >pid; while :; do sleep 0.1; done");
    fleet.until("long", "IN_PROGRESS");
    let pid = until("it runs", || {
        fs::read_to_string(work.join("pid")).ok().filter(|pid| pid.ends_with('\n'))
    });
    fleet.gateway.fairgate(&["task", "cancel", "long", "--reason", "not needed"]).ok();
    let gone = format!("/proc/{}", pid.trim());
    until("its command ends", || (!fs::exists(&gone).unwrap_or(true)).then_some(()));
    // The agent goes on.
    fleet.gateway.fairgate(&["agent", "pause", "a-1"]).ok();
    drop(agent);
    assert_eq!(fleet.task("long")["state"], "FAILED");
}

#[test]
fn an_agent_survives_the_death_of_its_gateway() {
    let (folder, work) = (Folder::new(), Folder::new());
    let fleet = with_tenant(with_leases(&folder, "15s", "127.0.0.1:0"));
    fleet.add("long");
    let script = "echo begin; until [ -e go ]; do sleep 0.05; done; echo end";
    let _agent = fleet.run(&work, script);
    fleet.until("long", "IN_PROGRESS");
    let listen = fleet.gateway.url.trim_start_matches("http://").to_owned();
    let Fleet { mut gateway, token } = fleet;
    gateway.signal("KILL");
    gateway.ended();
    fs::write(work.join("go"), "").expect("a file");
    // The command ends while nobody is there to be told.
    std::thread::sleep(Duration::from_millis(500));
    let fleet = Fleet { gateway: with_leases(&folder, "15s", &listen), token };
    let done = fleet.until("long", "COMPLETED");
    assert_eq!((&done["result"], &done["retries"]), (&"begin\nend".into(), &0.into()), "{done}");
    assert_eq!(fleet.gateway.fairgate(&["task", "log", "long"]).ok(), "begin\nend\n");
}

#[test]
fn a_killed_agent_runs_its_task_again_as_the_same_claim() {
    let (folder, work) = (Folder::new(), Folder::new());
    let fleet = Fleet::new(Gateway::embedded(&folder));
    fleet.add("one");
    let script = "if [ -e again ]; then echo again; else touch again; echo first; sleep 60; fi";
    let agent = fleet.run(&work, script);
    until("the log came", || {
        let log = fleet.gateway.fairgate(&["task", "log", "one"]).stdout;
        log.contains("first").then_some(())
    });
    agent.signal("KILL");
    drop(agent);
    let _agent = fleet.run(&work, script);
    let done = fleet.until("one", "COMPLETED");
    assert_eq!((done["epoch"].as_u64(), done["retries"].as_u64()), (Some(1), Some(0)), "{done}");
    assert_eq!(fleet.gateway.fairgate(&["task", "log", "one"]).ok(), "first\nagain\n");
}

#[test]
fn results_flow_to_the_tasks_that_need_them() {
    let (folder, work) = (Folder::new(), Folder::new());
    let fleet = Fleet::new(Gateway::embedded(&folder));
    fleet.add("schema");
    let prompt = "Use {{results.schema}}";
    let add = ["task", "add", "--project", "web", "--id", "api", "--needs", "schema", prompt];
    fleet.gateway.fairgate(&add).ok();
    let script = r#"
if [ "$FAIRGATE_TASK" = schema ]; then
    [ -z "${FAIRGATE_RESULTS_DIR-}" ] || exit 1
    printf 'two tables: {{results.api}} $(touch hacked)' >"$FAIRGATE_RESULT_FILE"
else
    ls "$FAIRGATE_RESULTS_DIR"; cat "$FAIRGATE_RESULTS_DIR/schema"; echo; cat
fi"#;
    let _agent = fleet.run(&work, script);
    let done = fleet.until("api", "COMPLETED");
    let result = done["result"].as_str().expect("a result");
    let text = "two tables: {{results.api}} $(touch hacked)";
    let expected = format!("schema\n{text}\nUse [begin of result of task schema, ");
    assert!(result.starts_with(&expected), "{result}");
    assert!(result.contains(&format!("]\n{text}\n[end of result of task schema, ")), "{result}");
    assert!(!work.join("hacked").exists());
}

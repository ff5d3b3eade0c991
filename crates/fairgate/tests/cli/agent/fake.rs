//! A fake gateway that gives tasks to one agent, records its reports, and can be unreachable or
//! take a lease back.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use fairgate_time::wall_clock;
use serde_json::{Value, json};

/// Token of the one agent.
pub(super) const TOKEN: &str = "fga-0123456789-the-agents-token";

/// Records and switches of the fake gateway.
pub(super) struct State {
    /// Tasks to give to the agent.
    pub(super) tasks: VecDeque<Value>,
    /// The current claim.
    pub(super) held: Option<Value>,
    /// Length of leases.
    pub(super) lease: Duration,
    /// True if the gateway does not answer.
    pub(super) away: bool,
    /// True if the database is unavailable.
    pub(super) store_away: bool,
    /// True if the lease is taken back at the next report.
    pub(super) lost: bool,
    /// Responses to the next ends of claims, before an end is accepted.
    pub(super) refusals: VecDeque<(u16, Value)>,
    /// A folder that must be unlocked when the end of a claim is reported.
    pub(super) free_at_end: Option<PathBuf>,
    /// Seconds by which the gateway's clock is behind.
    pub(super) behind_s: u64,
    /// Reports of the agent: the verb and the body.
    pub(super) said: Vec<(String, Value)>,
    /// Log of the current claim, or of the last claim.
    pub(super) log: Vec<u8>,
    /// Errors in the agent's reports, one line each.
    pub(super) wrong: Vec<String>,
}

/// The fake gateway.
pub(super) struct Fake {
    pub(super) url: String,
    state: Arc<Mutex<State>>,
}

impl Fake {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let state = State {
            tasks: VecDeque::new(),
            held: None,
            lease: Duration::from_secs(4),
            away: false,
            store_away: false,
            lost: false,
            refusals: VecDeque::new(),
            free_at_end: None,
            behind_s: 0,
            said: Vec::new(),
            log: Vec::new(),
            wrong: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                thread::spawn(move || answer(&stream, &state));
            }
        });
        Self { url, state }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panicked")
    }

    /// Adds a task. `fields` replace the default fields of a task.
    pub(super) fn task(&self, fields: Value) {
        let mut task = json!({
            "task": "t-1", "project": "p", "tenant": "acme", "epoch": 1, "title": "a title",
            "prompt": "do it\n", "question": null, "answer": null, "workspace": null,
            "workspace_path": null, "reserved": 100, "key": "fgt-0123456789-the-tasks-key",
            "heartbeat_s": 1,
        });
        let (Some(task_fields), Some(given)) = (task.as_object_mut(), fields.as_object()) else {
            panic!("fields are an object")
        };
        task_fields.extend(given.clone());
        self.state().tasks.push_back(task);
    }

    /// Returns the bodies of the reports with this verb.
    pub(super) fn said(&self, verb: &str) -> Vec<Value> {
        let state = self.state();
        assert_eq!(state.wrong, Vec::<String>::new());
        state.said.iter().filter(|(said, _)| said == verb).map(|(_, body)| body.clone()).collect()
    }

    /// Returns the log as text.
    pub(super) fn log(&self) -> String {
        String::from_utf8(self.state().log.clone()).expect("text")
    }
}

fn answer(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (head, body) = request(&mut reader).ok()?;
    let (status, answer, date) = {
        let mut state = state.lock().ok()?;
        if state.away {
            return None;
        }
        let (status, answer) = state.told(&head, body);
        (status, answer, state.now())
    };
    if status == 204 {
        // As long as a poll is, for a test.
        thread::sleep(Duration::from_millis(200));
    }
    let text = if answer.is_null() { String::new() } else { answer.to_string() };
    let date = httpdate::fmt_http_date(UNIX_EPOCH + date);
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status} X\r\ndate: {date}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
    .ok()
}

struct Head {
    path: String,
    token: String,
}

fn request(reader: &mut impl BufRead) -> io::Result<(Head, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let (mut length, mut token) = (0, String::new());
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or(0),
            "authorization" => token = value.trim_start_matches("Bearer ").to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok((Head { path, token }, body))
}

impl State {
    fn now(&self) -> Duration {
        let now = wall_clock::since_1970();
        now - Duration::from_secs(self.behind_s)
    }

    fn lease_until(&self) -> Value {
        json!(u64::try_from((self.now() + self.lease).as_micros()).unwrap_or(0))
    }

    fn told(&mut self, head: &Head, body: Vec<u8>) -> (u16, Value) {
        if head.token != TOKEN {
            return (401, error("invalid_agent_token", "there is no agent of this token"));
        }
        if self.store_away {
            return (503, error("store_unavailable", "the database does not answer; try again"));
        }
        let path = head.path.trim_start_matches("/api/v1/agents/a-1/");
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        if path == "claim" {
            return self.claim();
        }
        let Some((task, verb)) = path.strip_prefix("tasks/").and_then(|path| path.split_once('/'))
        else {
            self.wrong.push(format!("a path {}", head.path));
            return (404, Value::Null);
        };
        if std::mem::take(&mut self.lost) {
            self.held = None;
        }
        let is_held = self.held.as_ref().is_some_and(|claim| claim["task"] == task);
        if verb == "log" {
            return if is_held { self.append(query, &body) } else { lease_lost() };
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if !is_held {
            return lease_lost();
        }
        if self.held.as_ref().is_some_and(|claim| claim["epoch"] != body["epoch"]) {
            self.wrong.push(format!("another epoch: {verb} {body}"));
        }
        let ends = verb != "heartbeat";
        if ends && let Some(folder) = &self.free_at_end {
            // Unlocked, not only closed: a process that another test starts would keep the lock for a moment.
            let is_free = File::open(folder)
                .is_ok_and(|folder| folder.try_lock().is_ok() && folder.unlock().is_ok());
            if !is_free {
                self.wrong.push(format!("{verb}: the folder is still locked"));
            }
        }
        if ends && let Some(refusal) = self.refusals.pop_front() {
            self.said.push((format!("refused {verb}"), body));
            return refusal;
        }
        self.said.push((verb.to_owned(), body));
        if !ends {
            return (200, json!({"lease_until": self.lease_until(), "used": 0, "reserved": 100}));
        }
        let claim = self.held.take().unwrap_or_default();
        (200, line(&claim, verb))
    }

    fn claim(&mut self) -> (u16, Value) {
        if self.held.is_none() {
            self.held = self.tasks.pop_front();
            if self.held.is_some() {
                self.log.clear();
            }
        }
        let until = self.lease_until();
        match &mut self.held {
            Some(claim) => {
                claim["lease_until"] = until;
                (200, claim.clone())
            }
            None => (204, Value::Null),
        }
    }

    fn append(&mut self, query: &str, bytes: &[u8]) -> (u16, Value) {
        let first = query.split_once("first_byte=").and_then(|(_, first)| first.parse().ok());
        let first: usize = first.unwrap_or(usize::MAX);
        if first > self.log.len() {
            self.wrong.push(format!("a gap in the log: {first} after {}", self.log.len()));
            return (422, error("invalid", "a gap"));
        }
        let known = self.log.len() - first;
        self.log.extend(bytes.get(known..).unwrap_or_default());
        (200, json!({"next_byte": self.log.len()}))
    }
}

fn lease_lost() -> (u16, Value) {
    (409, error("lease_lost", "task \"t-1\" is no longer yours: it was cancelled"))
}

fn error(code: &str, message: &str) -> Value {
    json!({"error": {"code": code, "message": message}})
}

fn line(claim: &Value, verb: &str) -> Value {
    let state = match verb {
        "complete" => "COMPLETED",
        "ask" => "WAITING_INPUT",
        "release" => "READY",
        _ => "PAUSED",
    };
    json!({
        "id": claim["task"], "project": claim["project"], "title": claim["title"], "state": state,
        "reason": null, "priority": 100, "agent": "a-1", "estimate": 100, "used": 0, "retries": 0,
        "retries_max": 3, "resume_after": null, "created_at": 0, "ended_at": null,
    })
}

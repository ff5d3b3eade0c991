//! `agent run` as a process.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::fake::{Fake, TOKEN};
use crate::run::command;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Tries until it works.
pub(super) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(done) = attempt() {
            return done;
        }
        assert!(start.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A process that is killed where it still runs when it is dropped.
pub(super) struct Agent {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// What it did.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// `agent run` with these options and a shell's script.
pub(super) fn agent_run(fake: &Fake, options: &[&str], script: &str) -> Command {
    let mut run = command(&["agent", "run", "--url", &fake.url, "--name", "a-1"]);
    run.args(options)
        .args(["--", "sh", "-c", script])
        .env("FAIRGATE_AGENT_TOKEN", TOKEN)
        .env("FAIRGATE_ADMIN_TOKEN", "an-admin-token")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    run
}

impl Agent {
    pub(super) fn start(fake: &Fake, options: &[&str], script: &str) -> Self {
        let mut child = agent_run(fake, options, script).spawn().expect("it starts");
        let stdout = child.stdout.take().map(whole);
        let stderr = child.stderr.take().map(whole);
        Self { child, stdout, stderr }
    }

    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Waits for its end.
    pub(super) fn ended(mut self) -> Ended {
        let status = until("it ends", || self.child.try_wait().expect("it is ours"));
        let read = |text: &mut Option<JoinHandle<String>>| {
            text.take().expect("it was not read").join().expect("it was read")
        };
        let (stdout, stderr) = (read(&mut self.stdout), read(&mut self.stderr));
        Ended { status, stdout, stderr }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All that comes from a pipe, read as it comes, so that the writer never waits.
fn whole(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("text");
        text
    })
}

/// Runs one task to its end.
pub(super) fn once(fake: &Fake, script: &str) -> Ended {
    Agent::start(fake, &["--once"], script).ended()
}

/// Whether a process with this number is there and no zombie.
pub(super) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

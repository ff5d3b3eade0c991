//! Runs `agent run` as a process.

use std::fs;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::fake::{Fake, TOKEN};
use crate::run::command;

/// Longest wait for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Repeats `attempt` until it returns a value.
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

/// A process. Dropping this value kills it if it still runs.
pub(super) struct Agent {
    child: Child,
    stdout: Option<JoinHandle<String>>,
    stderr: Option<JoinHandle<String>>,
}

/// Exit status and output of a process.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// Returns `agent run` with these options and a shell script.
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

    /// Waits for the end of the process.
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

/// Reads a pipe to its end in another thread, so that the writer never waits.
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

/// Returns whether a process with this id runs and is not a zombie.
pub(super) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

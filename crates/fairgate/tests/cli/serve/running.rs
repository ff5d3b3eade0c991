//! A `fairgate serve` process of a single test, and its data.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fairgate_sim::{Sim, SimOptions};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::http::{Answer, CHAT, ask, chat};
use crate::run::{Run, command, finished};

/// Longest wait for an event that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

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

/// A folder of a single test. Dropping this value removes the folder.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("serve-{}-{number}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        // What an earlier process of this number has left.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A simulated model in this process.
pub(super) struct Model {
    pub(super) url: String,
    _sim: Sim,
    _runtime: Runtime,
}

impl Model {
    pub(super) fn start(options: SimOptions) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let sim = runtime
            .block_on(async { Sim::start(([127, 0, 0, 1], 0).into(), options) })
            .expect("a simulated model starts");
        Self { url: sim.url(), _sim: sim, _runtime: runtime }
    }
}

/// A gateway process. Dropping this value kills it if it still runs.
pub(super) struct Gateway {
    child: Child,
    folder: PathBuf,
    /// Text that the gateway printed when it was ready.
    pub(super) greeting: String,
    /// Address for clients.
    pub(super) url: String,
    /// Address of the admin API.
    pub(super) admin_url: String,
    /// Path of the admin token's file.
    pub(super) token_file: PathBuf,
}

impl Gateway {
    /// Starts a gateway without a configuration, on a free port, with its data in a folder.
    pub(super) fn embedded(folder: &Folder) -> Self {
        let data = folder.join("data");
        let data = data.display().to_string();
        Self::start(folder, command(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &data]))
    }

    /// Starts a gateway with `fairgate.yaml` of a folder. Its data is in `data`.
    pub(super) fn configured(folder: &Folder) -> Self {
        let file = folder.join("fairgate.yaml").display().to_string();
        Self::start(folder, command(&["serve", "--config", &file]))
    }

    /// Starts a gateway with this command, and waits until it is ready.
    pub(super) fn start(folder: &Folder, command: Command) -> Self {
        let err = folder.join("stderr");
        let log = File::options().create(true).append(true).open(&err).expect("a file");
        Self::start_logging_to(folder, command, log.into())
    }

    /// Starts a gateway with this command and this standard error, and waits until it is ready.
    pub(super) fn start_logging_to(folder: &Folder, mut command: Command, log: Stdio) -> Self {
        let (out, err) = (folder.join("stdout"), folder.join("stderr"));
        command.stdout(File::create(&out).expect("a file")).stderr(log);
        let mut child = command.spawn().expect("it starts");
        // It is written at once, so what is there is whole.
        let greeting = until("it is ready", || {
            if let Some(status) = child.try_wait().expect("it is ours") {
                panic!("{status}: {}", fs::read_to_string(&err).unwrap_or_default());
            }
            let said = fs::read_to_string(&out).ok()?;
            said.contains(" listens on ").then_some(said)
        });
        let word_after = |mark: &str| {
            let rest = greeting.split_once(mark)?.1;
            rest.split_whitespace().next().map(str::to_owned)
        };
        let url = word_after(" listens on ").expect("it says where");
        let admin_url = word_after("  admin API    ").unwrap_or_else(|| url.clone());
        let token_file = word_after("  admin token  in ").unwrap_or_default().into();
        Self { child, folder: folder.path().to_owned(), greeting, url, admin_url, token_file }
    }

    /// Returns the first key, which is only in the greeting of a first start.
    pub(super) fn first_key(&self) -> String {
        let rest = self.greeting.split_once("  key          fg-").expect("a first start").1;
        format!("fg-{}", rest.split_whitespace().next().expect("a secret"))
    }

    /// Returns an admin command without running it.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command
            .env("FAIRGATE_URL", &self.admin_url)
            .env("FAIRGATE_ADMIN_TOKEN_FILE", &self.token_file)
            .env_remove("FAIRGATE_ADMIN_TOKEN")
            .env("USER", "ada");
        command
    }

    /// Runs an admin command.
    pub(super) fn fairgate(&self, args: &[&str]) -> Run {
        finished(self.command(args).output().expect("the command runs"))
    }

    /// Returns the JSON of an admin command that must succeed.
    pub(super) fn json(&self, args: &[&str]) -> Value {
        let told = self.fairgate(&[args, &["--json"]].concat()).ok();
        serde_json::from_str(&told).expect("JSON")
    }

    /// Creates a key of a tenant, and returns its secret.
    pub(super) fn key(&self, tenant: &str) -> String {
        let made = self.json(&["key", "create", tenant]);
        made["secret"].as_str().expect("a secret").to_owned()
    }

    /// Returns the admin API's response at a path.
    pub(super) fn api(&self, path: &str) -> Value {
        let token = fs::read_to_string(&self.token_file).expect("a token");
        let base = self.admin_url.trim_end_matches("/api/v1");
        let answer = ask(base, "GET", path, token.trim(), "").expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// Sends a chat completion.
    pub(super) fn chat(&self, key: &str, prompt: &str) -> Answer {
        self.try_chat(key, prompt).expect("an answer")
    }

    /// Sends a chat completion; `None` if there is no response. A client that is refused while it
    /// still sends may see its connection reset.
    pub(super) fn try_chat(&self, key: &str, prompt: &str) -> Option<Answer> {
        ask(&self.url, "POST", CHAT, key, &chat("sim", prompt, false)).ok()
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(super) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success());
    }

    /// Waits for the end of the process.
    pub(super) fn ended(&mut self) -> ExitStatus {
        until("it ends", || self.child.try_wait().expect("it is ours"))
    }

    /// Returns the log so far.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("stderr")).expect("a log")
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a configuration with one pool `sim` on one simulated model.
pub(super) fn one_pool(model: &Model, more: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\ndata_dir: data\n{more}\
         upstreams:\n  - {{ name: sim, url: {}, slots: 16 }}\n\
         pools:\n  - name: sim\n    models: [sim]\n    workers: [sim]\n    capacity: 16\n",
        model.url
    )
}

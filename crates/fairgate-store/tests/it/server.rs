//! A real PostgreSQL, started once for all tests of this binary, and stopped when the binary ends in whatever way.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A server that runs.
pub(crate) struct Server {
    pub(crate) folder: PathBuf,
    pub(crate) port: u16,
    /// Its script waits for the end of our half of this pipe, which the system closes when we end.
    _script: Child,
}

/// The server of all tests.
pub(crate) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(Server::start)
}

/// A server that stands still would not even stop.
impl Drop for Server {
    fn drop(&mut self) {
        self.go_on();
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        let programs = programs().expect(
            "these tests need PostgreSQL's server: `cargo xtask test` installs it, and so does \
             `apt-get install postgresql`",
        );
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        // PostgreSQL refuses to run as root.
        let mut script = if is_root() {
            let mut script = Command::new("setpriv");
            script.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "sh"]);
            script
        } else {
            Command::new("sh")
        };
        script.args(["-c", include_str!("server.sh"), "server.sh"]).arg(programs);
        script.arg(port.to_string()).current_dir("/");
        let mut script =
            script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sh starts");
        let mut folder = String::new();
        BufReader::new(script.stdout.take().unwrap()).read_line(&mut folder).unwrap();
        assert!(!folder.is_empty(), "PostgreSQL did not start: see above");
        Self { folder: PathBuf::from(folder.trim_end()), port, _script: script }
    }

    /// The URL of a database, over the server's socket.
    pub(crate) fn url(&self, database: &str) -> String {
        let (folder, port) = (self.folder.display(), self.port);
        format!("postgres://fairgate@/{database}?host={folder}&port={port}")
    }

    /// Runs statements as an operator would, in a connection of their own.
    pub(crate) async fn run(
        &self,
        database: &str,
        sql: &str,
    ) -> Vec<tokio_postgres::SimpleQueryMessage> {
        let url = self.url(database);
        let (client, connection) =
            tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let answer = client.simple_query(sql).await.unwrap();
        drop(client);
        connection.await.unwrap().unwrap();
        answer
    }

    /// Has all of the server stand still, as a machine does that is cut off: connections stay, and nothing is answered.
    pub(crate) fn stand_still(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        // The first of them starts all others, so it stops first, or a new one would get away.
        let file = std::fs::read_to_string(self.folder.join("data/postmaster.pid"));
        let first = file.unwrap_or_default().lines().next().unwrap_or_default().to_owned();
        kill(signal, std::slice::from_ref(&first));
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let all = all.filter_map(|entry| entry.file_name().into_string().ok());
        let is_child = |id: &String| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
            rest.split_whitespace().nth(1) == Some(&first)
        };
        kill(signal, &all.filter(is_child).collect::<Vec<_>>());
    }

    /// A fresh, empty database; its name.
    pub(crate) async fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.run("postgres", &format!("CREATE DATABASE {name}")).await;
        name
    }
}

fn kill(signal: &str, ids: &[String]) {
    // One of them may have ended in the meantime.
    let _ = Command::new("kill").arg(signal).args(ids).status().expect("kill starts");
}

/// The number that a statement gave.
pub(crate) fn number(answer: &[tokio_postgres::SimpleQueryMessage]) -> Option<u32> {
    answer.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    })
}

/// Whether this is root.
fn is_root() -> bool {
    let us = std::fs::metadata("/proc/self").unwrap();
    std::os::unix::fs::MetadataExt::uid(&us) == 0
}

/// Where `initdb` and `pg_ctl` are: Debian keeps them off the path.
fn programs() -> Option<PathBuf> {
    let on_path = std::env::split_paths(&std::env::var_os("PATH")?).collect::<Vec<_>>();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<_> = debian.map(|version| version.path().join("bin")).collect();
    debian.sort();
    let has_server =
        |folder: &Path| folder.join("pg_ctl").is_file() && folder.join("initdb").is_file();
    on_path.into_iter().chain(debian.into_iter().rev()).find(|folder| has_server(folder))
}

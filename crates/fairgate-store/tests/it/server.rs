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

impl Server {
    fn start() -> Self {
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

    /// A fresh, empty database; its name.
    pub(crate) async fn database(&self) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.run("postgres", &format!("CREATE DATABASE {name}")).await;
        name
    }
}

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

//! A PostgreSQL server for tests and benchmarks, which can be stopped, started and made to hang.
//! The server ends when the program that started it ends, for whatever reason.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::programs::{addr_below_ephemeral_ports, process_tree, signal, tail};

/// Settings of a server for tests, which open many connections, some of them encrypted.
const TEST_SETTINGS: &str = "fsync = off\nssl = on\nmax_connections = 300\n";

/// A PostgreSQL server, which may be running, stopped or hanging.
pub struct PostgresServer {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    /// Script that shuts the server down when the script's standard input is closed.
    script: Child,
}

impl PostgresServer {
    /// Starts a server whose commits do not wait for the disk.
    pub fn start() -> Result<Self> {
        Self::start_with("fsync = off\n")
    }

    /// Starts a server whose commits wait for the disk.
    pub fn start_synced() -> Result<Self> {
        Self::start_with("fsync = on\n")
    }

    /// Starts a server for tests, which accepts encrypted connections.
    pub fn start_for_tests() -> Result<Self> {
        Self::start_with(TEST_SETTINGS)
    }

    fn start_with(settings: &str) -> Result<Self> {
        let programs = programs().context(
            "PostgreSQL's server is not installed: `cargo xtask test` and `cargo xtask soak` install it, and so does \
             `apt-get install postgresql`",
        )?;
        let port = addr_below_ephemeral_ports()?.port();
        let mut script = as_postgres("sh")?;
        script.args(["-c", include_str!("postgres_server.sh"), "postgres_server.sh"]);
        script.arg(&programs).arg(port.to_string()).arg(settings);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = script.spawn().context("cannot start sh")?;
        let mut folder = String::new();
        if let Some(said) = script.stdout.take() {
            BufReader::new(said).read_line(&mut folder)?;
        }
        if folder.is_empty() {
            bail!("PostgreSQL did not start: {}", script.wait()?);
        }
        Ok(Self { programs, folder: PathBuf::from(folder.trim_end()), port, script })
    }

    /// Returns the URL of the server's first database, for a connection over TCP.
    pub fn url(&self) -> String {
        format!("postgres://fairgate@127.0.0.1:{}/postgres", self.port)
    }

    /// Returns the URL of a database, for a connection over the server's socket.
    pub fn socket_url(&self, database: &str) -> String {
        let (folder, port) = (self.folder.display(), self.port);
        format!("postgres://fairgate@/{database}?host={folder}&port={port}")
    }

    /// Returns the TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path of the certificate of a server for tests.
    pub fn certificate(&self) -> PathBuf {
        self.folder.join("data/server.crt")
    }

    /// Creates an empty database, and returns its name.
    pub async fn create_database(&self) -> Result<String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.run("postgres", &format!("CREATE DATABASE {name}")).await?;
        Ok(name)
    }

    /// Runs SQL statements as an operator would, in a connection of their own.
    pub async fn run(&self, database: &str, sql: &str) -> Result<Vec<SimpleQueryMessage>> {
        let (client, connection) =
            tokio_postgres::connect(&self.socket_url(database), NoTls).await?;
        let connection = tokio::spawn(connection);
        let answer = client.simple_query(sql).await?;
        drop(client);
        connection.await??;
        Ok(answer)
    }

    /// Shuts the server down, so that connections break and new ones are refused.
    pub fn shut_down(&self) -> Result<()> {
        self.control(&["-m", "fast", "-w", "stop"])
    }

    /// Stops the server as a crash would: it does not write its buffers, and its unlogged tables are empty after the
    /// next start.
    pub fn crash(&self) -> Result<()> {
        self.control(&["-m", "immediate", "-w", "stop"])
    }

    /// Starts the server again after [`Self::shut_down`] or [`Self::crash`].
    pub fn start_again(&self) -> Result<()> {
        let log = self.folder.join("log").display().to_string();
        self.control(&["-l", &log, "-w", "-t", "60", "start"])
    }

    /// Stops all processes of the server with SIGSTOP, as if its machine were cut off. Connections
    /// stay open, and the server answers nothing.
    pub fn hang(&self) -> Result<()> {
        self.signal_all("-STOP")
    }

    /// Lets the server's processes continue after [`Self::hang`].
    pub fn go_on(&self) -> Result<()> {
        self.signal_all("-CONT")
    }

    fn signal_all(&self, name: &str) -> Result<()> {
        let file = self.folder.join("data/postmaster.pid");
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let first = text.lines().next().unwrap_or_default().trim();
        let first: u32 = first.parse().with_context(|| format!("{first:?} is no process"))?;
        // The first process starts all others, so it is stopped before they are listed.
        signal(name, first);
        process_tree(first).iter().skip(1).for_each(|process| signal(name, process.pid));
        Ok(())
    }

    fn control(&self, args: &[&str]) -> Result<()> {
        let mut command = as_postgres(&self.programs.join("pg_ctl").display().to_string())?;
        command.arg("-D").arg(self.folder.join("data")).args(args).stdin(Stdio::null());
        // The server that `pg_ctl` starts keeps the output open, so the output must not be a pipe.
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if !status.success() {
            let log = tail(&self.folder.join("log"));
            bail!("pg_ctl {} failed: {status}\n{log}", args.join(" "));
        }
        Ok(())
    }
}

/// Returns the server that all tests of this program share, and starts it at the first call. Panics
/// if the server does not start.
pub fn shared_server() -> &'static PostgresServer {
    static SHARED: OnceLock<PostgresServer> = OnceLock::new();
    SHARED.get_or_init(|| PostgresServer::start_for_tests().expect("PostgreSQL starts"))
}

/// Opens a connection to a database.
pub async fn connect(url: &str) -> Result<Client> {
    let (client, connection) =
        tokio_postgres::connect(url, NoTls).await.context("PostgreSQL answers")?;
    tokio::spawn(connection);
    Ok(client)
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        drop(self.script.stdin.take());
        let _ = self.script.wait();
    }
}

/// Returns a command that runs `program` as a user other than root, because PostgreSQL refuses to
/// run as root.
fn as_postgres(program: &str) -> Result<Command> {
    let mut command = if fs::metadata("/proc/self")?.uid() == 0 {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", program]);
        command
    } else {
        Command::new(program)
    };
    command.current_dir("/");
    Ok(command)
}

/// Finds the folder with `initdb` and `pg_ctl`, which on Debian is not in `PATH`.
fn programs() -> Option<PathBuf> {
    let on_path: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<PathBuf> = debian.map(|version| version.path().join("bin")).collect();
    debian.sort();
    let has_server =
        |folder: &Path| folder.join("pg_ctl").is_file() && folder.join("initdb").is_file();
    on_path.into_iter().chain(debian.into_iter().rev()).find(|folder| has_server(folder))
}

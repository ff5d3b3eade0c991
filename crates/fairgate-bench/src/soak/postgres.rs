//! A PostgreSQL server for the soak, which can be stopped, started and made to hang.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use tokio_postgres::{Client, NoTls};

use crate::processes::{addr_below_ephemeral_ports, process_tree, signal};

/// A PostgreSQL server, which may be running, stopped or hanging.
pub(crate) struct SoakPostgres {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    /// Script that shuts the server down when the script's standard input is closed.
    script: Child,
}

impl SoakPostgres {
    /// Starts a server with an empty database. Commits do not wait for the disk.
    pub(crate) fn start() -> Result<Self> {
        Self::start_with("off")
    }

    /// Starts a server with an empty database, whose commits wait for the disk.
    pub(crate) fn start_synced() -> Result<Self> {
        Self::start_with("on")
    }

    fn start_with(fsync: &str) -> Result<Self> {
        let programs = programs().context(
            "PostgreSQL's server is not installed: `cargo xtask soak` installs it, and so does `apt-get install \
             postgresql`",
        )?;
        let port = addr_below_ephemeral_ports()?.port();
        let mut script = as_postgres("sh")?;
        script.args(["-c", include_str!("postgres.sh"), "postgres.sh"]).arg(&programs);
        script.arg(port.to_string()).arg(fsync).stdin(Stdio::piped()).stdout(Stdio::piped());
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

    /// Returns the URL of the server's database.
    pub(crate) fn url(&self) -> String {
        format!("postgres://fairgate@127.0.0.1:{}/postgres", self.port)
    }

    /// Shuts the server down, so that connections break and new ones are refused.
    pub(super) fn shut_down(&self) -> Result<()> {
        self.control(&["-m", "fast", "-w", "stop"])
    }

    /// Starts the server again after [`Self::shut_down`].
    pub(super) fn start_again(&self) -> Result<()> {
        let log = self.folder.join("log").display().to_string();
        self.control(&["-l", &log, "-w", "-t", "60", "start"])
    }

    /// Stops all processes of the server with SIGSTOP, as if its machine were cut off: connections
    /// stay open, and nothing is answered.
    pub(super) fn hang(&self) -> Result<()> {
        self.signal_all("-STOP")
    }

    /// Lets the server's processes continue after [`Self::hang`].
    pub(super) fn go_on(&self) -> Result<()> {
        self.signal_all("-CONT")
    }

    /// Opens a connection to the server's database.
    pub(super) async fn connect(&self) -> Result<Client> {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
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
        // The server that it starts keeps the output open, so it must not be a pipe.
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if !status.success() {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(15).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            bail!("pg_ctl {} failed: {status}\n{}", args.join(" "), tail.join("\n"));
        }
        Ok(())
    }
}

impl Drop for SoakPostgres {
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

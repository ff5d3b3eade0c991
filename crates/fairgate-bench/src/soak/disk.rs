//! The gateway's disk, which gets full: data folder and log are on it.
//!
//! A small file system in memory is best: a write fails with ENOSPC, as on a real disk. It is mounted in a mount namespace
//! of its own, which lasts as long as the process that holds it; nothing else on the machine sees it, and nothing is left of
//! it afterwards. The files are reached through `/proc/PID/root` of that process.
//!
//! That takes root, or a kernel that lets anybody have a user namespace. Where neither is there, the gateway's limit on the
//! size of files stands in: while it is 0, each write to a file fails with EFBIG.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// How large it is. A minute of rows takes about 10 MiB, the journal 16 MiB.
const SIZE_MIB: u64 = 96;

/// The disk.
pub(super) struct Disk {
    folder: PathBuf,
    kind: Kind,
}

enum Kind {
    /// A small file system, held by this process.
    Small(Child),
    /// An ordinary folder, and why it is one.
    Limited(String),
}

impl Disk {
    /// A disk in this folder, which must be there.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        match hold(folder) {
            Ok(holder) => {
                let inside = Path::new("/proc").join(holder.id().to_string()).join("root");
                let inside = inside.join(folder.strip_prefix("/").unwrap_or(folder));
                fs::metadata(&inside).with_context(|| inside.display().to_string())?;
                Ok(Self { folder: inside, kind: Kind::Small(holder) })
            }
            Err(problem) => {
                Ok(Self { folder: folder.to_owned(), kind: Kind::Limited(problem.to_string()) })
            }
        }
    }

    /// Where its files are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it is, in words.
    pub(super) fn described(&self) -> String {
        match &self.kind {
            Kind::Small(_) => format!("the gateway's disk is a file system of {SIZE_MIB} MiB"),
            Kind::Limited(problem) => format!(
                "NOTE: this machine lets nobody mount a small disk here ({problem}); instead of a full disk, the \
                 gateway's limit on the size of files is set to 0 (prlimit)"
            ),
        }
    }

    /// A command that runs a program whose writes may fail. A process that reaches its limit on the size of files is killed
    /// unless it ignores that signal.
    pub(super) fn command(&self, program: &Path) -> Command {
        match self.kind {
            Kind::Small(_) => Command::new(program),
            Kind::Limited(_) => {
                let mut command = Command::new("sh");
                command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(program);
                command
            }
        }
    }

    /// Leaves no room, for the process with this id.
    pub(super) fn fill(&self, pid: u32) -> Result<()> {
        match self.kind {
            Kind::Small(_) => {
                let mut file = File::create(self.filler())?;
                let piece = vec![0; 64 << 10];
                // Smaller pieces at the end, or there would be room for some more rows.
                for size in [piece.len(), 4096, 1] {
                    while file.write_all(&piece[..size]).is_ok() {}
                }
                Ok(())
            }
            Kind::Limited(_) => limit(pid, "0"),
        }
    }

    /// Makes room again.
    pub(super) fn free(&self, pid: u32) -> Result<()> {
        match self.kind {
            Kind::Small(_) => Ok(fs::remove_file(self.filler())?),
            Kind::Limited(_) => limit(pid, "unlimited"),
        }
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Kind::Small(holder) = &mut self.kind {
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }
}

fn limit(pid: u32, soft: &str) -> Result<()> {
    let limit = format!("--fsize={soft}:unlimited");
    let output = Command::new("prlimit").args(["--pid", &pid.to_string(), &limit]).output()?;
    if !output.status.success() {
        bail!("prlimit: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// A process in a mount namespace of its own, with a small file system over a folder. It ends when its standard input does.
fn hold(folder: &Path) -> Result<Child> {
    let script =
        format!("mount -t tmpfs -o size={SIZE_MIB}m soak \"$1\" && echo held && exec cat >&2");
    let mut problems = Vec::new();
    for flags in [&["--mount"][..], &["--mount", "--map-root-user"]] {
        let mut command = Command::new("unshare");
        command.args(flags).args(["sh", "-c", &script, "sh"]).arg(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut holder = command.spawn().context("cannot start unshare")?;
        let mut said = String::new();
        if let Some(output) = holder.stdout.take() {
            BufReader::new(output).read_line(&mut said)?;
        }
        if said.trim_end() == "held" {
            return Ok(holder);
        }
        let output = holder.wait_with_output()?;
        problems.push(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    bail!("{}", problems.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file can be written, then it cannot, then it can.
    fn gets_full_and_is_freed(disk: &Disk) {
        let file = disk.folder().join("file");
        let script =
            "while read -r _; do if echo row >>\"$0\"; then echo kept; else echo lost; fi; done";
        let mut writer = disk.command(Path::new("bash"));
        writer.args(["-c", script]).arg(&file).stderr(Stdio::null());
        let mut writer = writer.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = writer.stdin.take().unwrap();
        let mut output = BufReader::new(writer.stdout.take().unwrap()).lines();
        let mut write = |rows: usize| {
            let mut last = String::new();
            for _ in 0..rows {
                writeln!(input).unwrap();
                last = output.next().unwrap().unwrap();
            }
            last
        };
        assert_eq!(write(1), "kept");
        disk.fill(writer.id()).unwrap();
        // More than a page: there is room in the one that was begun.
        assert_eq!(write(2000), "lost");
        disk.free(writer.id()).unwrap();
        assert_eq!(write(1), "kept");
        writer.kill().unwrap();
        writer.wait().unwrap();
    }

    #[test]
    fn a_full_disk_takes_nothing_until_it_is_freed() {
        let folder = std::env::temp_dir().join(format!("fairgate-disk-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // Whichever kind this machine allows, and the one that every machine does.
        let disk = Disk::new(&folder).unwrap();
        println!("{}", disk.described());
        gets_full_and_is_freed(&disk);
        drop(disk);
        let limited = Disk { folder: folder.clone(), kind: Kind::Limited("of a test".into()) };
        gets_full_and_is_freed(&limited);
        fs::remove_dir_all(&folder).unwrap();
    }
}

//! The disk with the gateway's data folder and log. The soak can fill it.
//!
//! If possible, the disk is a small file system in memory, on which a write fails with ENOSPC as on
//! a real disk. It is mounted in its own mount namespace, which ends with the process that holds
//! the namespace. Other programs on the machine do not see the file system, and it leaves no files
//! behind. The files are accessed through `/proc/PID/root` of the holding process.
//!
//! Such a file system needs root, or a kernel that allows unprivileged user namespaces. Without
//! either, the soak sets the gateway's limit on the size of files instead. While the limit is 0,
//! each write to a file fails with EFBIG.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

/// Size of the small file system, in MiB. The rows of one minute take about 10 MiB, and the journal
/// takes 16 MiB.
const SIZE_MIB: u64 = 96;

/// The disk of the gateway.
pub(super) struct SoakDisk {
    folder: PathBuf,
    kind: SoakDiskKind,
}

enum SoakDiskKind {
    /// A small file system in memory. The process holds its mount namespace.
    Small(Child),
    /// An ordinary folder. Contains the reason why no small file system could be mounted.
    Limited(String),
}

impl SoakDisk {
    /// Creates a disk in this folder, which must exist.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        match hold(folder) {
            Ok(holder) => {
                let inside = Path::new("/proc").join(holder.id().to_string()).join("root");
                let inside = inside.join(folder.strip_prefix("/").unwrap_or(folder));
                fs::metadata(&inside).with_context(|| inside.display().to_string())?;
                Ok(Self { folder: inside, kind: SoakDiskKind::Small(holder) })
            }
            Err(problem) => Ok(Self {
                folder: folder.to_owned(),
                kind: SoakDiskKind::Limited(problem.to_string()),
            }),
        }
    }

    /// Returns the folder through which the disk's files are accessed.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Describes the kind of disk in words.
    pub(super) fn described(&self) -> String {
        match &self.kind {
            SoakDiskKind::Small(_) => {
                format!("the gateway's disk is a file system of {SIZE_MIB} MiB")
            }
            SoakDiskKind::Limited(problem) => format!(
                "NOTE: this machine lets nobody mount a small disk here ({problem}); instead of a full disk, the \
                 gateway's limit on the size of files is set to 0 (prlimit)"
            ),
        }
    }

    /// Returns a command that runs `program` on this disk. If the disk is an ordinary folder, the
    /// command ignores SIGXFSZ, which otherwise kills a process that exceeds its limit on the size
    /// of files.
    pub(super) fn command(&self, program: &Path) -> Command {
        match self.kind {
            SoakDiskKind::Small(_) => Command::new(program),
            SoakDiskKind::Limited(_) => {
                let mut command = Command::new("sh");
                command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(program);
                command
            }
        }
    }

    /// Fills the disk, so that writes fail until [`Self::free`]. If the disk is an ordinary folder,
    /// only the writes of the process `pid` fail.
    pub(super) fn fill(&self, pid: u32) -> Result<()> {
        match self.kind {
            SoakDiskKind::Small(_) => {
                let mut file = File::create(self.filler())?;
                let piece = vec![0; 64 << 10];
                // With smaller pieces at the end, no room is left for another row.
                for size in [piece.len(), 4096, 1] {
                    while file.write_all(&piece[..size]).is_ok() {}
                }
                Ok(())
            }
            SoakDiskKind::Limited(_) => limit(pid, "0"),
        }
    }

    /// Undoes [`Self::fill`], so that writes succeed again. `pid` must be the same.
    pub(super) fn free(&self, pid: u32) -> Result<()> {
        match self.kind {
            SoakDiskKind::Small(_) => Ok(fs::remove_file(self.filler())?),
            SoakDiskKind::Limited(_) => limit(pid, "unlimited"),
        }
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }
}

impl Drop for SoakDisk {
    fn drop(&mut self) {
        if let SoakDiskKind::Small(holder) = &mut self.kind {
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

/// Starts a process in its own mount namespace, with a small file system mounted over a folder. The
/// process ends when its standard input is closed.
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
    fn gets_full_and_is_freed(disk: &SoakDisk) {
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
        let disk = SoakDisk::new(&folder).unwrap();
        println!("{}", disk.described());
        gets_full_and_is_freed(&disk);
        drop(disk);
        let limited =
            SoakDisk { folder: folder.clone(), kind: SoakDiskKind::Limited("of a test".into()) };
        gets_full_and_is_freed(&limited);
        fs::remove_dir_all(&folder).unwrap();
    }
}

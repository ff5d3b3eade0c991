//! The date and the machine of a run, for the heading of a report.

use std::process::Command;
use std::{fs, thread};

use fairgate_time::{UtcDay, wall_clock};

/// Returns date, processor, cores and compiler, in one line.
pub(crate) fn describe() -> String {
    let date = date();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let plural = if cores == 1 { "" } else { "s" };
    format!("{date}, {}, {cores} core{plural}, {}", processor(), compiler())
}

fn processor() -> String {
    let system_text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        system_text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("an unknown processor".into(), |(_, name)| name.trim().into())
}

fn compiler() -> String {
    let system_text = Command::new("rustc").arg("--version").output();
    let system_text = system_text.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let version = system_text.as_deref().and_then(|text| text.split(" (").next());
    version.map_or("an unknown rustc".into(), |version| version.trim().into())
}

/// Returns today's date in UTC.
fn date() -> String {
    UtcDay::of(wall_clock::now()).name()
}

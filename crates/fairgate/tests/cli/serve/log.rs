//! Tests that a log that cannot be written, or that no one reads, does no harm.

use std::fs;
use std::process::{Command, Stdio};

use fairgate_sim::SimOptions;

use super::http::ask;
use super::running::{Folder, Gateway, Model, one_pool};

/// Returns a shell command that starts a gateway with `fairgate.yaml` of a folder and this
/// redirection.
fn redirected(folder: &Folder, redirection: &str) -> Command {
    let mut command = Command::new("sh");
    let script = format!("exec \"$0\" \"$@\" {redirection}");
    let file = folder.join("fairgate.yaml").display().to_string();
    command.args(["-c", &script, env!("CARGO_BIN_EXE_fairgate"), "serve", "--log", "trace"]);
    command.args(["--config", &file]).stdin(Stdio::null());
    command
}

/// Returns the number of lost lines of the log, from the metrics.
fn lost(gateway: &Gateway) -> u64 {
    let text = ask(&gateway.url, "GET", "/metrics", "", "").expect("an answer").body;
    let line = text.lines().find(|line| line.starts_with("fairgate_log_lines_lost_total "));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a number")
}

/// Checks that the gateway serves, survives a reload with a bad file, and ends in order.
fn unhurt(folder: &Folder, mut gateway: Gateway, loses: bool) {
    gateway.fairgate(&["group", "add", "g"]).ok();
    gateway.fairgate(&["tenant", "add", "t", "--group", "g"]).ok();
    let key = gateway.key("t");
    for _ in 0..50 {
        assert_eq!(gateway.chat(&key, "rivers").status, 200);
    }
    let good = fs::read_to_string(folder.join("fairgate.yaml")).expect("a file");
    fs::write(folder.join("fairgate.yaml"), "lisetn: 1\n").expect("a file");
    gateway.signal("HUP");
    if loses {
        // A pipe and the log's queue take some thousand lines before any is lost; how fast, is the machine's affair.
        let loses = (0..2000).any(|number| {
            assert_eq!(gateway.chat(&key, "rivers").status, 200);
            number % 10 == 0 && lost(&gateway) > 0
        });
        assert!(loses, "lines are lost");
    } else {
        assert_eq!(lost(&gateway), 0);
    }
    assert_eq!(gateway.chat(&key, "rivers").status, 200);
    fs::write(folder.join("fairgate.yaml"), good).expect("a file");
    gateway.signal("TERM");
    assert!(gateway.ended().success());
}

#[test]
fn a_closed_standard_error_hurts_nobody() {
    let (folder, model) = (Folder::new(), Model::start(SimOptions::instant()));
    fs::write(folder.join("fairgate.yaml"), one_pool(&model, "")).expect("a file");
    let gateway = Gateway::start(&folder, redirected(&folder, "2>&-"));
    unhurt(&folder, gateway, false);
}

#[test]
fn a_log_on_a_full_disk_hurts_nobody() {
    let (folder, model) = (Folder::new(), Model::start(SimOptions::instant()));
    fs::write(folder.join("fairgate.yaml"), one_pool(&model, "")).expect("a file");
    let gateway = Gateway::start(&folder, redirected(&folder, "2>/dev/full"));
    unhurt(&folder, gateway, true);
}

#[test]
fn a_log_that_nobody_reads_hurts_nobody() {
    let (folder, model) = (Folder::new(), Model::start(SimOptions::instant()));
    fs::write(folder.join("fairgate.yaml"), one_pool(&model, "")).expect("a file");
    let (_unread, pipe) = std::io::pipe().expect("a pipe");
    let command = redirected(&folder, "");
    let gateway = Gateway::start_logging_to(&folder, command, pipe.into());
    unhurt(&folder, gateway, true);
}

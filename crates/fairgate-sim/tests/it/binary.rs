//! Tests of the backend as a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::client::{chat, request, send, with};

/// A process that is killed when this value is dropped, so that a failed test leaves no process
/// behind.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn started(arguments: &[&str]) -> (Process, SocketAddr) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fairgate-sim"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = Process(command.spawn().unwrap());
    let mut line = String::new();
    let stdout = process.0.stdout.as_mut().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let addr = line.trim_end().strip_prefix("listening on http://").unwrap().parse().unwrap();
    (process, addr)
}

#[tokio::test]
async fn it_says_where_it_listens_and_ends_with_its_input() {
    let (mut process, addr) = started(&["--models", "a,b", "--output-tokens", "3", "--slots", "2"]);
    let ask = with(chat("Hi"), "model", "b").to_string();
    let told = send(addr, request("POST", "/v1/chat/completions", ask)).await.unwrap().json().await;
    assert_eq!(told["usage"]["completion_tokens"], 3);
    drop(process.0.stdin.take());
    assert!(process.0.wait().unwrap().success());
}

#[tokio::test]
async fn it_limits_like_a_provider() {
    let (_process, addr) = started(&[
        "--requests-per-minute",
        "1",
        "--tokens-per-minute",
        "1000",
        "--limit-headers",
        "anthropic",
        "--limit-lie",
        "negative",
    ]);
    let ask = || send(addr, request("POST", "/v1/chat/completions", chat("Hi").to_string()));
    let first = ask().await.unwrap();
    assert_eq!(first.status, 200);
    assert_eq!(first.headers["anthropic-ratelimit-requests-limit"], "-1");
    assert_eq!(ask().await.unwrap().status, 429);
}

#[test]
fn it_ends_in_order_when_told_to_terminate() {
    let (mut process, _) = started(&["--fault", "garbage"]);
    let id = process.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(process.0.wait().unwrap().success());
}

#[test]
fn what_it_cannot_do_it_says() {
    let refused = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fairgate-sim"));
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(refused(&["--fault", "explode"]).contains("`explode` is not a fault"));
    assert!(refused(&["--limit-lie", "truth"]).contains("remaining-zero"));
    assert!(refused(&["--limit-headers", "loud"]).contains("anthropic"));
    assert!(refused(&["--requests-per-minute", "0"]).contains("--requests-per-minute"));
    assert!(refused(&["--slots", "0"]).contains("at least one slot"));
    assert!(refused(&["--api-key-env", "NO_SUCH_VARIABLE_HERE"]).contains("NO_SUCH_VARIABLE_HERE"));
}

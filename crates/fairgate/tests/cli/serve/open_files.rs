//! Test with few open files: a client without room gets an error at once.

use std::fs;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fairgate_sim::SimOptions;

use super::running::{Folder, Gateway, Model, one_pool, until};

#[test]
fn with_few_open_files_a_client_is_told_at_once_that_there_is_no_room() {
    let (folder, model) = (Folder::new(), Model::start(SimOptions::instant()));
    fs::write(folder.join("fairgate.yaml"), one_pool(&model, "")).expect("a file");
    let file = folder.join("fairgate.yaml").display().to_string();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 256; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_fairgate")]);
    command.args(["serve", "--config", &file]).stdin(Stdio::null());
    let gateway = Gateway::start(&folder, command);
    // The log is written by a thread of its own.
    let said = "the limit of open files before=256 now=256 connections_max=112";
    until("the log says so", || gateway.log().contains(said).then_some(()));
    gateway.fairgate(&["group", "add", "g"]).ok();
    gateway.fairgate(&["tenant", "add", "t", "--group", "g"]).ok();
    let key = gateway.key("t");
    let address = gateway.url.strip_prefix("http://").expect("a URL");
    let held: Vec<_> = (0..300).filter_map(|_| TcpStream::connect(address).ok()).collect();
    let start = Instant::now();
    let answer = until("there is no room", || {
        gateway.try_chat(&key, "rivers").filter(|answer| answer.status == 503)
    });
    assert_eq!(answer.json()["error"]["code"], "connections_full");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    drop(held);
    until("there is room again", || {
        gateway.try_chat(&key, "rivers").filter(|answer| answer.status == 200)
    });
}

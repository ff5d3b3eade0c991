//! Starting: what is made when, what is said, and what is said where it fails.

use std::net::TcpListener;
use std::{fs, process};

use super::running::{Folder, Gateway, Model, one_pool};
use crate::run::{command, fairgate, finished};

#[test]
fn a_taken_port_leaves_nothing_behind() {
    let folder = Folder::new();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it has one").to_string();
    let data = folder.join("data");
    let data_dir = data.display().to_string();
    let run = fairgate(&["serve", "--listen", &address, "--data-dir", &data_dir]);
    let expected = format!(
        "fairgate: cannot listen on {address}: Address already in use (os error 98); choose another address with --listen\n"
    );
    assert_eq!((run.status, run.stderr), (1, expected));
    assert!(!data.exists(), "nothing is made by a start that fails");
    drop(taken);
    let gateway =
        Gateway::start(&folder, command(&["serve", "--listen", &address, "--data-dir", &data_dir]));
    assert_eq!(gateway.chat(&gateway.first_key(), "Hello").status, 200);
}

#[test]
fn a_taken_port_of_a_configuration_is_named_with_its_field() {
    let folder = Folder::new();
    let model = Model::start(Default::default());
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("it has one");
    let text = one_pool(&model, &format!("admin: {{ listen: \"{address}\" }}\n"));
    let file = folder.join("fairgate.yaml");
    fs::write(&file, text).expect("a file");
    let file = file.display().to_string();
    let run = fairgate(&["serve", "--config", &file]);
    let expected = format!(
        "fairgate: cannot listen on {address}: Address already in use (os error 98); \
         choose another address: `admin.listen` in {file}\n"
    );
    assert_eq!((run.status, run.stderr), (1, expected));
    assert!(!folder.join("data").exists(), "nothing is made by a start that fails");
}

#[test]
fn a_later_start_says_how_to_come_by_a_key() {
    let folder = Folder::new();
    let mut gateway = Gateway::embedded(&folder);
    assert!(gateway.greeting.contains("(shown this once)"), "{}", gateway.greeting);
    gateway.signal("TERM");
    assert!(gateway.ended().success());
    let gateway = Gateway::embedded(&folder);
    let hint = "  key          `fairgate key create demo` makes one\n";
    assert!(gateway.greeting.contains(hint), "{}", gateway.greeting);
    assert_eq!(gateway.chat(&gateway.key("demo"), "Hello").status, 200);
}

#[test]
fn what_the_admin_commands_need_is_printed() {
    let folder = Folder::new();
    let model = Model::start(Default::default());
    let text = one_pool(&model, "admin: { listen: 127.0.0.1:0 }\n");
    fs::write(folder.join("fairgate.yaml"), text).expect("a file");
    let gateway = Gateway::configured(&folder);
    assert!(gateway.greeting.contains("  tenant       none yet; "), "{}", gateway.greeting);
    let exports = gateway.greeting.lines().filter(|line| line.starts_with("  export "));
    let exports: Vec<&str> = exports.collect();
    assert_eq!(exports.len(), 2, "{}", gateway.greeting);
    let script = format!("{}\n{} group list", exports.join("\n"), env!("CARGO_BIN_EXE_fairgate"));
    let run = process::Command::new("sh").args(["-c", &script]).current_dir("/").output();
    assert_eq!(finished(run.expect("a shell runs")).ok(), "group  weight  created\n");
}

#[test]
fn an_error_is_said_once() {
    let run = fairgate(&["serve", "--log", "bogus==x"]);
    assert_eq!(run.status, 1);
    assert_eq!(run.stderr.matches("error parsing level filter").count(), 1, "{}", run.stderr);
    let folder = Folder::new();
    fs::create_dir(folder.join("two-tenants")).expect("a folder");
    let kept = folder.path().display().to_string();
    let run = fairgate(&["prove", "two-tenants", "--keep", &kept]);
    assert_eq!(run.status, 1);
    assert_eq!(run.stderr.matches("File exists").count(), 1, "{}", run.stderr);
}

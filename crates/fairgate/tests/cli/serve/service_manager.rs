//! Tests of the reports of `fairgate serve` to the service manager that started it.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use fairgate_sim::SimOptions;

use super::running::{Folder, Gateway, Model, one_pool, until};
use crate::run::command;

#[test]
fn a_service_manager_hears_of_start_reload_and_stop() {
    let (folder, model) = (Folder::new(), Model::start(SimOptions::default()));
    fs::write(folder.join("fairgate.yaml"), one_pool(&model, "")).expect("a file");
    let socket = UnixDatagram::bind(folder.join("notify")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
    let next = || {
        let mut message = [0; 512];
        let length = socket.recv(&mut message).expect("a message in time");
        String::from_utf8(message[..length].to_vec()).expect("text")
    };
    let file = folder.join("fairgate.yaml").display().to_string();
    let mut serve = command(&["serve", "--config", &file]);
    serve.env("NOTIFY_SOCKET", folder.join("notify"));
    let mut gateway = Gateway::start(&folder, serve);
    assert!(next().starts_with("READY=1\nSTATUS=serves on 127.0.0.1:"));
    gateway.signal("HUP");
    assert!(next().starts_with("RELOADING=1\n"));
    assert_eq!(next(), "READY=1\nSTATUS=the configuration was reloaded");
    fs::write(folder.join("fairgate.yaml"), "lisetn: 1\n").expect("a file");
    gateway.signal("HUP");
    assert!(next().starts_with("RELOADING=1\n"));
    assert!(next().starts_with("READY=1\nSTATUS=the last reload failed"));
    gateway.signal("TERM");
    assert!(next().starts_with("STOPPING=1\n"));
    assert!(gateway.ended().success());
}

#[test]
fn a_watched_file_is_reloaded_when_it_has_changed() {
    let (folder, model) = (Folder::new(), Model::start(SimOptions::default()));
    let file = folder.join("fairgate.yaml");
    fs::write(&file, one_pool(&model, "")).expect("a file");
    let name = file.display().to_string();
    let gateway = Gateway::start(&folder, command(&["serve", "--config", &name, "--watch", "1"]));
    // As kubelet replaces a mounted file: another file takes its name.
    let other = folder.join("other.yaml");
    fs::write(&other, one_pool(&model, "").replace("capacity: 16", "capacity: 7")).expect("a file");
    fs::rename(&other, &file).expect("it is replaced");
    until("it is in force", || gateway.log().contains("capacity: 16 → 7").then_some(()));
    fs::write(&file, "lisetn: 1\n").expect("a file");
    until("the error is logged", || gateway.log().contains("is not reloaded").then_some(()));
    let audit = gateway.fairgate(&["audit"]).ok();
    assert!(audit.contains("watch"), "{audit}");
}

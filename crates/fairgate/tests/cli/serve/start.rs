//! Tests of starts: created files, printed text, and errors.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::{fs, process};

use super::running::{Folder, Gateway, Model, one_pool, until};
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
    assert_eq!(finished(run.expect("a shell runs")).ok(), "group  weight  created  limits\n");
}

/// A state file in the form of the first edition of the scheduling rules.
const FIRST_EDITION: &str = r#"{"fairgate_journal":1,"snapshot":{"now":5,"ticks":0,"next_seq":0,"grants":0,"capacity":1,"policy":{"share":{"by":"tenant"}},"holds":[],"weights":[],"caps":[],"requests":[],"root":{"share":{"virtual_time":"0","rises":0,"flows":{}}}}}
"#;

#[test]
fn a_state_file_that_cannot_be_used_is_set_aside_with_a_warning() {
    let folder = Folder::new();
    let mut gateway = Gateway::embedded(&folder);
    gateway.signal("TERM");
    assert!(gateway.ended().success());
    let states = fs::read_dir(folder.join("data/state")).expect("a folder");
    let state = states.map(|entry| entry.expect("a file").path()).next().expect("a state file");
    let aside = state.with_extension("json.set-aside");
    let whole = fs::read_to_string(&state).expect("a file");
    let cut = &whole[..whole.len() / 2];
    for (content, problem) in [
        (FIRST_EDITION, "is of the first edition"),
        (cut, "state file "),
        ("", "state file "),
        ("{}\n", "state file "),
    ] {
        fs::write(&state, content).expect("a file");
        let mut gateway = Gateway::embedded(&folder);
        assert_eq!(gateway.chat(&gateway.key("demo"), "Hello").status, 200);
        assert_eq!(fs::read_to_string(&aside).expect("it is kept"), content);
        gateway.signal("TERM");
        assert!(gateway.ended().success());
        let log = gateway.log();
        let warning = log.lines().find(|line| line.contains("was set aside")).expect(&log);
        assert!(warning.contains("WARN") && warning.contains(problem), "{warning}");
        assert!(warning.contains("scores start at 0"), "{warning}");
    }
}

#[test]
fn the_data_folder_is_private() {
    let folder = Folder::new();
    let mut gateway = Gateway::embedded(&folder);
    assert_eq!(gateway.chat(&gateway.first_key(), "Hello").status, 200);
    gateway.signal("TERM");
    assert!(gateway.ended().success());
    let mut folders = vec![folder.join("data")];
    while let Some(path) = folders.pop() {
        assert_eq!(mode(&path), 0o700, "{}", path.display());
        for entry in fs::read_dir(&path).expect("a folder") {
            let entry = entry.expect("an entry").path();
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.file_name().is_some_and(|name| name != ".gitignore") {
                assert_eq!(mode(&entry), 0o600, "{}", entry.display());
            }
        }
    }
    let ignored = fs::read_to_string(folder.join("data/.gitignore")).expect("a file");
    assert!(ignored.lines().any(|line| line == "*"), "{ignored}");
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it exists").permissions().mode() & 0o777
}

#[test]
fn an_admin_token_that_others_can_read_is_warned_about() {
    let folder = Folder::new();
    let mut gateway = Gateway::embedded(&folder);
    gateway.signal("TERM");
    assert!(gateway.ended().success());
    assert!(!gateway.log().contains("can read the admin token"), "{}", gateway.log());
    let token = folder.join("data/admin-token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).expect("its owner may");
    let mut gateway = Gateway::embedded(&folder);
    gateway.signal("TERM");
    assert!(gateway.ended().success());
    let log = gateway.log();
    let warning = log.lines().find(|line| line.contains("can read the admin token")).expect(&log);
    assert!(warning.contains("mode=\"644\"") && warning.contains("chmod 600"), "{warning}");
}

#[test]
fn what_flows_got_survives_a_restart() {
    let folder = Folder::new();
    let mut gateway = Gateway::embedded(&folder);
    let key = gateway.first_key();
    for _ in 0..3 {
        assert_eq!(gateway.chat(&key, "Hello").status, 200);
    }
    // The live view may be a fifth of a second old.
    let got = |gateway: &Gateway| {
        let live = gateway.json(&["live"]);
        let pool = &live["pools"][0];
        (pool["global_in_flight"] == 0).then(|| pool["tenants"][0]["got_tokens"].as_i64()).flatten()
    };
    let before = until("all has ended", || got(&gateway).filter(|got| *got > 0));
    gateway.signal("TERM");
    assert!(gateway.ended().success());
    let gateway = Gateway::embedded(&folder);
    assert_eq!(got(&gateway), Some(before));
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

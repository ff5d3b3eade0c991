//! Tests of `fairgate top` in a real terminal, Debian's tmux, at 80×24 and at 200×50. Without tmux,
//! only the parts that need no terminal are tested; `cargo xtask test` installs tmux.

use std::process::{Command, Stdio};
use std::thread;

use super::running::{Folder, Gateway, until};

/// A terminal with `fairgate top` in it.
struct Screen {
    socket: String,
    size: (usize, usize),
}

impl Screen {
    fn start(gateway: &Gateway, (width, height): (usize, usize)) -> Self {
        let socket = format!("fairgate-{}-{width}", std::process::id());
        let screen = Self { socket, size: (width, height) };
        let top = gateway.command(&["top"]);
        let mut tmux = screen.tmux(&["-f", "/dev/null", "new-session", "-d"]);
        tmux.args(["-x", &width.to_string(), "-y", &height.to_string()]);
        for (name, value) in top.get_envs() {
            let value = value.unwrap_or_default().to_str().expect("text");
            tmux.args(["-e", &format!("{}={value}", name.to_str().expect("text"))]);
        }
        tmux.arg("--").arg(top.get_program()).args(top.get_args());
        assert!(tmux.status().expect("tmux runs").success());
        screen
    }

    fn tmux(&self, args: &[&str]) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.args(["-L", &self.socket]).args(args).stdin(Stdio::null()).stderr(Stdio::null());
        tmux
    }

    /// Returns the text on the screen; empty after the program has ended.
    fn shown(&self) -> String {
        let shown = self.tmux(&["capture-pane", "-p"]).output().expect("tmux runs");
        let shown = String::from_utf8(shown.stdout).expect("text");
        let (width, height) = self.size;
        assert!(shown.lines().count() <= height, "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= width), "{shown}");
        shown
    }

    fn press(&self, keys: &[&str]) {
        for key in keys {
            assert!(self.tmux(&["send-keys", key]).status().expect("tmux runs").success());
        }
    }

    fn until(&self, text: &str) -> String {
        until(&format!("the screen shows {text:?}: {}", self.shown()), || {
            Some(self.shown()).filter(|shown| shown.contains(text))
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]).status();
    }
}

fn has_tmux() -> bool {
    let tmux = Command::new("tmux").arg("-V").stdout(Stdio::null()).status();
    tmux.is_ok_and(|status| status.success())
}

fn hold_drain_and_explain(size: (usize, usize)) {
    if !has_tmux() {
        eprintln!("tmux is not installed");
        return;
    }
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    gateway.fairgate(&["group", "add", "jobs"]).ok();
    gateway.fairgate(&["tenant", "add", "batch", "--group", "jobs"]).ok();
    let key = gateway.key("batch");
    assert_eq!(gateway.chat(&key, "Hello").status, 200);
    let screen = Screen::start(&gateway, size);
    screen.until("batch");
    // Hold: it asks, and only y answers.
    screen.press(&["/", "b", "a", "t", "c", "h", "Enter", "h"]);
    screen.until("Hold tenant batch");
    screen.press(&["x", "n"]);
    screen.until("nothing was changed");
    screen.press(&["h", "y"]);
    screen.until("held: tenant batch");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| gateway.chat(&key, "Hello again"));
        let held = until("it waits", || {
            let list = gateway.api("/api/v1/requests?state=waiting");
            list["items"][0]["id"].as_str().map(str::to_owned)
        });
        // Explain: the flow, with its oldest waiting request.
        screen.press(&["e"]);
        let story = screen.until("its oldest waiting request");
        assert!(story.contains("held"), "{story}");
        // Explain: the request itself.
        screen.press(&["x", "2"]);
        until("the request is in the table", || {
            let shown = screen.shown();
            (!shown.contains("oldest") && shown.contains(&held[..12])).then_some(())
        });
        screen.press(&["e"]);
        screen.until(&format!("request {held}"));
        screen.press(&["x", "1", "h"]);
        screen.until("Resume tenant batch");
        screen.press(&["y"]);
        screen.until("resumed: tenant batch");
        assert_eq!(waiting.join().expect("it does not panic").status, 200);
    });
    // Drain, and end it.
    screen.press(&["Escape"]);
    until("the message is gone", || (!screen.shown().contains("resumed:")).then_some(()));
    screen.press(&["3", "d"]);
    screen.until("Drain worker");
    screen.press(&["y"]);
    screen.until("drained: worker");
    let worker = gateway.api("/api/v1/pools")["items"][0]["workers"][0].clone();
    assert_eq!(worker["state"], "drained");
    // The next look shows it.
    screen.until(" drained  ");
    screen.press(&["d", "y"]);
    screen.until("takes requests again");
    let audit = gateway.api("/api/v1/audit?actor=admin:ada&limit=4");
    let actions: Vec<_> =
        audit["items"].as_array().expect("items").iter().map(|it| &it["action"]).collect();
    assert_eq!(actions, ["worker.undrain", "worker.drain", "pool.resume", "pool.hold"]);
    screen.press(&["q"]);
    until("it ends", || screen.shown().is_empty().then_some(()));
}

#[test]
fn hold_drain_and_explain_in_a_small_terminal() {
    hold_drain_and_explain((80, 24));
}

#[test]
fn hold_drain_and_explain_in_a_large_terminal() {
    hold_drain_and_explain((200, 50));
}

#[test]
fn one_frame_is_printed_and_no_terminal_is_told() {
    let folder = Folder::new();
    let gateway = Gateway::embedded(&folder);
    assert_eq!(gateway.chat(&gateway.first_key(), "Hello").status, 200);
    let frame = gateway.fairgate(&["top", "--once"]).ok();
    assert_eq!(frame.lines().count(), 24, "{frame}");
    assert!(frame.starts_with("fairgate top  ") && frame.contains("\nflow  "), "{frame}");
    assert!(frame.lines().all(|line| line.chars().count() <= 80), "{frame}");
    let refused = gateway.fairgate(&["top"]);
    assert_eq!((refused.status, refused.stdout.as_str()), (1, ""));
    assert!(refused.stderr.contains("`fairgate live`"), "{}", refused.stderr);
    let wrong = gateway.fairgate(&["top", "--once", "--url", "http://127.0.0.1:9"]);
    assert_eq!(wrong.status, 1);
}

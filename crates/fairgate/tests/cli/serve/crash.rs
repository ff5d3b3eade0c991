//! Tests of a gateway that is killed under load and started again on the same data.
//!
//! One tenant has a budget and the other has none, because their rows reach the database in
//! different ways.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fairgate_sim::{OutputLength, SimOptions};

use super::http::{CHAT, ask, chat};
use super::running::{Folder, Gateway, Model, one_pool, until};

const CLIENTS: usize = 24;
/// Number of kills.
const KILLS: usize = 3;
/// Number of answers that end before each kill.
const ENDED: usize = 150;
/// Greatest number of requests of a round, so that the rows of all rounds fit into one page.
const ASKED_MAX: usize = 320;

#[test]
fn every_answer_that_ended_has_its_row_after_a_kill() {
    let folder = Folder::new();
    let model = Model::start(SimOptions {
        prefill_base: Duration::from_millis(5),
        decode_per_token: Duration::from_millis(1),
        output_tokens: OutputLength::between(5, 40),
        ..SimOptions::default()
    });
    fs::write(folder.join("fairgate.yaml"), one_pool(&model, "")).expect("a file");
    let mut gateway = Gateway::configured(&folder);
    gateway.fairgate(&["group", "add", "g"]).ok();
    let add = |name: &str, more: &[&str]| {
        gateway.fairgate(&[&["tenant", "add", name, "--group", "g"], more].concat()).ok();
        gateway.key(name)
    };
    let keys = [add("budgeted", &["--tokens-per-month", "100000000"]), add("free", &[])];
    let mut seen = Vec::new();
    for _ in 0..KILLS {
        seen.extend(killed_under_load(&mut gateway, &keys));
        gateway = Gateway::configured(&folder);
    }

    let rows = gateway.api("/api/v1/attempts?limit=1000");
    let rows = rows["items"].as_array().expect("a list");
    assert!(rows.len() < 1000, "all of them");
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    for row in rows {
        let request = row["request"].as_str().expect("an id");
        *last.entry(request).or_default() += usize::from(row["last"] == true);
    }
    for id in &seen {
        assert!(last.contains_key(id.as_str()), "{id} ended and has no row");
    }
    let several: Vec<_> = last.iter().filter(|(_, count)| **count != 1).collect();
    assert!(several.is_empty(), "each request has one last row: {several:?}");
    let lost = rows.iter().filter(|row| row["outcome"] == "lost").count();
    assert!(lost > 0, "some were in flight when it was killed");

    let budget = &gateway.api("/api/v1/tenants/budgeted/budgets")["items"][0];
    assert_eq!(budget["reserved_tokens"], 0, "{budget}");
    let charged = rows.iter().filter(|row| row["tenant"] == "budgeted");
    let charged: u64 = charged.filter_map(|row| row["charged_tokens"].as_u64()).sum();
    assert_eq!(budget["used_tokens"], charged, "{budget}");
    for key in &keys {
        assert_eq!(gateway.chat(key, "after").status, 200, "it goes on");
    }
}

/// Kills a gateway while clients send requests. Returns the ids of the answers whose end was seen.
fn killed_under_load(gateway: &mut Gateway, keys: &[String; 2]) -> Vec<String> {
    let (asked, seen) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let url = gateway.url.clone();
    let client = |number: usize| {
        while asked.fetch_add(1, Ordering::Relaxed) < ASKED_MAX {
            let (streams, key) = (number.is_multiple_of(2), &keys[number / 2 % 2]);
            let body = chat("sim", &format!("client {number}"), streams);
            let Ok(answer) = ask(&url, "POST", CHAT, key, &body) else { return };
            if !answer.whole {
                return;
            }
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(streams, answer.body.contains("data: [DONE]"), "{answer:?}");
            seen.lock().expect("no panic").push(answer.id());
        }
    };
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let client = &client;
            scope.spawn(move || client(number));
        }
        until("enough have ended", || {
            (seen.lock().expect("no panic").len() >= ENDED).then_some(())
        });
        gateway.signal("KILL");
        assert!(!gateway.ended().success());
    });
    let seen = seen.into_inner().expect("no panic");
    assert!(seen.len() + CLIENTS < ASKED_MAX, "it was killed under load");
    seen
}

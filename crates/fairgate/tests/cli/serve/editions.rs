//! Test of a gateway that starts on the state file of an older edition of the rules.

use std::fs;
use std::time::Duration;

use fairgate_sim::SimOptions;

use super::http::{CHAT, ask, chat};
use super::running::{Folder, Gateway, Model, until};

/// State file of a killed pool of the second edition, written at commit 6dedc6a. Two requests are
/// in flight and two wait; seven were submitted in all.
const SECOND_EDITION: &str =
    include_str!("../../../../fairgate-runtime/tests/it/fixtures/second-edition-state.json");

#[test]
fn serve_continues_from_a_state_file_of_the_second_edition() {
    let folder = Folder::new();
    let model = Model::start(SimOptions {
        prefill_base: Duration::from_millis(1),
        ..SimOptions::default()
    });
    let url = &model.url;
    let file = format!(
        "listen: 127.0.0.1:0\ndata_dir: data\njournal: {{}}\n\
         upstreams:\n  - {{ name: a, url: {url}, slots: 1 }}\n  - {{ name: b, url: {url}, slots: 1 }}\n\
         pools:\n  - name: sim\n    models: [sim]\n    workers: [a, b]\n    capacity: 2\n    policy:\n      \
         drr:\n        by: class\n        classes:\n          \
         - {{ name: chat, quantum: 512, inside: {{ share: {{ by: tenant }} }} }}\n          \
         - {{ name: batch, quantum: 128 }}\n"
    );
    fs::write(folder.join("fairgate.yaml"), file).expect("a file");
    fs::create_dir_all(folder.join("data/state")).expect("a folder");
    fs::write(folder.join("data/state/sim.json"), SECOND_EDITION).expect("a state file");

    let gateway = Gateway::configured(&folder);
    assert!(!gateway.log().contains("state"), "{}", gateway.log());
    gateway.fairgate(&["group", "add", "g"]).ok();
    gateway.fairgate(&["tenant", "add", "t", "--group", "g"]).ok();
    let answer = ask(&gateway.url, "POST", CHAT, &gateway.key("t"), &chat("sim", "Hello", false))
        .expect("an answer");
    assert_eq!(answer.status, 200, "{answer:?}");
    let live = gateway.api("/api/v1/fairshare/live");
    let pool = &live["pools"][0];
    for class in pool["classes"].as_array().expect("a list") {
        assert_eq!((&class["queued"], &class["in_flight"]), (&0.into(), &0.into()), "{pool}");
    }
    assert_eq!(pool["classes"][0]["got_tokens"], 100, "its service counts on: {pool}");
    let journal = folder.join("data/journal/sim/00000000-start.jsonl");
    let text = until("a journal", || {
        let text = fs::read_to_string(&journal).ok()?;
        text.contains(r#""event":"submit""#).then_some(text)
    });
    let start = text.lines().next().expect("a first line");
    // The old requests are resolved, and the numbers go on behind them.
    assert!(start.contains(r#""machine":3"#) && start.contains(r#""next_seq":7"#), "{start}");
}

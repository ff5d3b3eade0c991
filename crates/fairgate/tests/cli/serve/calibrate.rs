//! Test of `fairgate calibrate` with a gateway under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fairgate_sim::SimOptions;
use serde_json::Value;

use super::http::{CHAT, ask, chat};
use super::running::{Folder, Gateway, Model, until};

/// A tenant with long prompts and one with long answers keep a worker with four slots full until
/// the prices are learned.
#[test]
fn calibrate_tells_what_worker_time_would_change() {
    let model = Model::start(SimOptions {
        slots: 4,
        prefill_at_once: Some(1),
        prefill_base: Duration::from_millis(2),
        prefill_per_token: Duration::from_micros(15),
        decode_per_token: Duration::from_millis(3),
        prefix_cache_blocks: 0,
        steering: true,
        ..SimOptions::instant()
    });
    let folder = Folder::new();
    let text = format!(
        "listen: 127.0.0.1:0\ndata_dir: data\n\
         upstreams:\n  - {{ name: sim, url: {}, slots: 4 }}\n\
         pools:\n  - name: sim\n    models: [sim]\n    workers: [sim]\n",
        model.url
    );
    std::fs::write(folder.join("fairgate.yaml"), text).expect("a file");
    let gateway = Gateway::configured(&folder);
    gateway.fairgate(&["group", "add", "teams"]).ok();
    let tenants = [
        ("rag", "rivers ".repeat(1200) + "[sim:tokens=8]"),
        ("gen", "Hello [sim:tokens=60]".to_owned()),
    ];
    let keys = tenants.clone().map(|(tenant, prompt)| {
        gateway.fairgate(&["tenant", "add", tenant, "--group", "teams"]).ok();
        (gateway.key(tenant), chat("sim", &prompt, true))
    });
    let is_over = AtomicBool::new(false);
    let learned = thread::scope(|scope| {
        for (key, body) in keys.iter().flat_map(|key| [key; 5]) {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(
                        ask(&gateway.url, "POST", CHAT, key, body).expect("an answer").status,
                        200
                    );
                }
            });
        }
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("prices are learned", || {
                let told = gateway.json(&["calibrate", "sim"]);
                let requests = told["workers"][0]["requests"].as_array().expect("requests");
                let has_margins = requests.len() == 2
                    && requests.iter().all(|request| request["margin_us"].is_u64());
                has_margins.then_some(())
            });
            until("both tenants wanted half", || {
                let told = gateway.json(&["calibrate", "sim"]);
                both_wanted_half(&told["switch"])
                    .then(|| (told, gateway.fairgate(&["calibrate", "sim"]).ok()))
            })
        }));
        is_over.store(true, Ordering::Relaxed);
        told
    });
    let (told, text) = learned.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    judge_json(&told);
    judge_text(&text);
}

/// Returns whether each tenant was due about half, which is so once both have sent requests nearly
/// all the time.
fn both_wanted_half(switch: &Value) -> bool {
    let due = |place: usize| switch["tenants"][place]["due_share"].as_f64();
    [0, 1].into_iter().all(|place| due(place).is_some_and(|due| (due - 0.5).abs() < 0.1))
}

/// Checks that tokens are shared equally, and that the long answers took most of the worker's time.
fn judge_json(told: &Value) {
    assert_eq!(told["unit"], "tokens");
    let windows = told["workers"][0]["recent_windows"].as_array().expect("windows");
    assert!((15..=128).contains(&windows.len()), "{}", windows.len());
    let switch = told["switch"]["tenants"].as_array().expect("tenants");
    let number = |tenant: usize, name: &str| switch[tenant][name].as_f64().expect("a number");
    assert_eq!((&switch[0]["tenant"], &switch[1]["tenant"]), (&"gen".into(), &"rag".into()));
    assert!(number(0, "worker_time_share") > 0.6, "{told}");
    for tenant in [0, 1] {
        let after = number(tenant, "worker_time_share_after");
        assert!((after - 0.5).abs() < 0.15, "{told}");
        let change = after / number(tenant, "worker_time_share") - 1.0;
        assert!((number(tenant, "change") - change).abs() < 0.01, "{told}");
    }
    let weights = &told["token_weights"];
    assert_eq!((&weights["input"], &weights["cached_input"]), (&1.0.into(), &Value::Null));
    assert!(weights["output"].as_f64().expect("a weight") > 5.0, "{weights}");
}

fn judge_text(text: &str) {
    for part in [
        "pool sim counts tokens\nsim  learning from ",
        "windows in ms, measured (up) against predicted (right)",
        " out  ",
        " ms ± ",
        "What unit: worker_time would change, by the last ",
        "tenant     due     got  worker time   after  its requests\ngen ",
        "The nearest weights in tokens are {input: 1, output: ",
        "To state these prices, so that nothing is learned:\n    cost:\n",
    ] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
}

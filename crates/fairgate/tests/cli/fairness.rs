//! Tests of the reported distance of waiting flows from their shares.

use serde_json::{Value, json};

use crate::run::{fairgate, journal};

fn backlog(policy: &str) -> String {
    journal(
        &format!(r#""capacity":1,"policy":{policy}"#),
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a","cost":500"#,
            r#""at":1,"event":"submit","id":"a2","tenant":"a","cost":500"#,
            r#""at":2,"event":"submit","id":"b1","tenant":"b","cost":300"#,
        ],
    )
}

#[test]
fn every_backlogged_flow_has_its_lag_and_its_bound() {
    // a has 500 tokens in flight at weight 100: it may be seen 5 tokens per weight behind until they count.
    let table = fairgate(&["replay", &backlog(r#"{"share":{"by":"tenant"}}"#), "--fairness"]).ok();
    let expected = "\
share by tenant at the root
tenant  weight  waiting  in flight  got tokens  due tokens  difference  bound
a          100        1          1         500         500           0   1251
b          100        1          0           0           0           0    751

tenant    lag  least   most
a       0.000  0.000  5.000
b       0.000  0.000  0.000

got: tokens served: costs of granted requests, corrected to what they used when they end.
due: the flow's part, by weight, of all that was served while it took part, in tokens.
difference: got less due, in tokens; bound: the most that it should be, either way.
lag: how far a waiting flow is behind its node's clock, in tokens per weight; below 0 it is ahead.
least, most: where the policy keeps the lag, given what is in flight.
";
    assert_eq!(table, expected);
}

#[test]
fn json_says_the_same() {
    let journal = backlog(r#"{"share":{"by":"tenant"}}"#);
    let report = |options: &[&str]| -> Value {
        let run = [&["replay", &journal, "--fairness", "--json"], options].concat();
        serde_json::from_str(&fairgate(&run).ok()).expect("it is JSON")
    };
    let flow = |name: &str, in_flight: u64, got: u64, most: &str| {
        json!({
            "flow": name, "weight": 100, "waiting": 1, "in_flight": in_flight,
            "got_tokens": got, "due_tokens": got, "difference_tokens": 0, "bound_tokens": got + 751,
            "within_bound": true,
            "lag_tokens_per_weight": "0.000",
            "lag_bound_tokens_per_weight": { "least": "0.000", "most": most },
        })
    };
    let flows = [flow("a", 1, 500, "5.000"), flow("b", 0, 0, "0.000")];
    let node = |unit: &str| json!([{ "unit": unit, "path": [], "kind": "share", "by": "tenant", "flows": flows }]);
    assert_eq!(report(&[]), node("tokens"));
    assert_eq!(report(&["--unit", "money"]), node("money"));
}

#[test]
fn a_load_node_promises_no_shares_and_shows_what_was_got() {
    let journal = backlog(r#"{"load":{"by":"tenant"}}"#);
    let text = fairgate(&["replay", &journal, "--fairness"]).ok();
    let expected = "\
load by tenant at the root
tenant  waiting  in flight  got tokens
a             1          1         500
b             1          0           0

got: tokens served: costs of granted requests, corrected to what they used when they end.
";
    assert_eq!(text, expected);
}

/// A journal does not state the unit of its pool, so the caller states it.
#[test]
fn a_pool_that_counts_worker_time_has_headings_and_sentences_in_microseconds() {
    let journal = backlog(r#"{"share":{"by":"tenant"}}"#);
    let of = |arguments: &[&str]| {
        let unit = ["--unit", "worker_time"];
        fairgate(&[&["replay", &journal], arguments, &unit].concat()).ok()
    };
    let table = of(&["--fairness"]);
    assert!(table.contains("in flight  got µs  due µs  difference  bound\n"), "{table}");
    assert!(table.contains("got: µs of worker time served: costs of granted requests"), "{table}");
    assert!(table.contains("in µs of worker time per weight; below 0"), "{table}");
    let story = of(&["--explain", "a1"]);
    assert!(story.contains("with a cost of 500 µs of worker time"), "{story}");
    let diff = of(&["--weight", "tenant:a=300", "--diff"]);
    assert!(diff.lines().next().is_some_and(|line| line.contains("  µs  ")), "{diff}");
    for text in [table, story, diff] {
        assert!(!text.contains("token"), "{text}");
    }
    let wrong = fairgate(&["replay", &journal, "--fairness", "--unit", "seconds"]);
    assert!(
        wrong.stderr.contains("[possible values: tokens, worker_time, money]"),
        "{}",
        wrong.stderr
    );
}

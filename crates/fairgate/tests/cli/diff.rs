//! Tests of the comparison of two policies.

use serde_json::{Value, json};

use crate::run::{example, fairgate, file, journal};

const FIFO: &str = r#"{"drr":{"by":"class","classes":[{"name":"all","quantum":1}]}}"#;

/// Under share, b1 goes before a2, which arrived first. In one queue, a2 goes first. Computed by
/// hand:
///
/// ```text
/// share:  a1 0–100, b1 100–200 (waited 98), a2 200–260 (waited 199)
/// queue:  a1 0–100, a2 100–160 (waited 99), b1 160–260 (waited 158)
/// ```
fn small() -> String {
    journal(
        r#""capacity":1,"max_queue":2,"policy":{"share":{"by":"tenant"}}"#,
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a","cost":10"#,
            r#""at":1,"event":"submit","id":"a2","tenant":"a","cost":10"#,
            r#""at":2,"event":"submit","id":"b1","tenant":"b","cost":10"#,
            r#""at":3,"event":"submit","id":"a3","tenant":"a","cost":10"#,
            r#""at":100,"event":"release","id":"a1","tokens":12"#,
            r#""at":200,"event":"release","id":"b1","tokens":8"#,
            r#""at":260,"event":"release","id":"a2""#,
        ],
    )
}

#[test]
fn a_small_journal_is_counted_as_by_hand() {
    let table = fairgate(&["replay", &small(), "--policy", &file(FIFO), "--diff"]).ok();
    let expected = "\
tenant  requests  granted  tokens   refused     wait p50        wait p95         wait max
a              3   2 → 2   22 → 22   1 → 1    0 µs →   0 µs  199 µs →  99 µs  199 µs →  99 µs
b              1   1 → 1    8 →  8   0 → 0   98 µs → 158 µs   98 µs → 158 µs   98 µs → 158 µs
(all)          4   3 → 3   30 → 30   1 → 1   98 µs →  99 µs  199 µs → 158 µs  199 µs → 158 µs

recorded → what if; waits are of granted requests, exact, by nearest rank
";
    assert_eq!(table, expected);
}

#[test]
fn json_says_the_same() {
    let args = ["replay", &small(), "--policy", &file(FIFO), "--diff", "--json", "--by", "tenant"];
    let diff: Value = serde_json::from_str(&fairgate(&args).ok()).expect("it is JSON");
    let run = |granted: u64, tokens: u64, refused: u64, waits: [u64; 3]| {
        json!({
            "granted": granted, "tokens": tokens, "refused": refused,
            "wait_p50_us": waits[0], "wait_p95_us": waits[1], "wait_max_us": waits[2],
        })
    };
    let expected = json!({
        "by": "tenant",
        "unit": "tokens",
        "flows": [
            {
                "flow": "a", "requests": 3,
                "recorded": run(2, 22, 1, [0, 199, 199]), "what_if": run(2, 22, 1, [0, 99, 99]),
            },
            {
                "flow": "b", "requests": 1,
                "recorded": run(1, 8, 0, [98, 98, 98]), "what_if": run(1, 8, 0, [158, 158, 158]),
            },
        ],
        "all": {
            "requests": 4,
            "recorded": run(3, 30, 1, [98, 199, 199]), "what_if": run(3, 30, 1, [99, 158, 158]),
        },
    });
    assert_eq!(diff, expected);
    let text = fairgate(&[&args[..], &["--unit", "money"]].concat()).ok();
    assert!(text.starts_with(r#"{"by":"tenant","unit":"money","flows":["#), "{text}");
}

#[test]
fn flows_are_sorted_by_a_column_and_the_first_ones_kept() {
    let (journal, policy) = (small(), file(FIFO));
    let run = ["replay", &journal, "--policy", &policy, "--diff", "--by", "tenant"];
    let flows = |options: &[&str]| -> (Vec<String>, String) {
        let table = fairgate(&[&run[..], options].concat()).ok();
        let rows = table.lines().skip(1).take_while(|line| !line.is_empty());
        let names = rows.map(|line| line.split(' ').next().expect("a name").to_owned());
        (names.collect(), table)
    };
    assert_eq!(flows(&[]).0, ["a", "b", "(all)"], "by name");
    assert_eq!(flows(&["--sort", "wait-p95"]).0, ["b", "a", "(all)"], "158 µs before 99 µs");
    assert_eq!(flows(&["--sort", "requests"]).0, ["a", "b", "(all)"]);
    let (first, table) = flows(&["--sort", "wait-max", "--top", "1"]);
    assert_eq!(first, ["b", "(all)"]);
    assert!(table.contains("\n1 more flow not shown\n"), "{table}");
    let json = fairgate(&[&run[..], &["--json", "--sort", "wait-max", "--top", "1"]].concat()).ok();
    let json: Value = serde_json::from_str(&json).expect("it is JSON");
    assert_eq!((&json["flows"][0]["flow"], &json["omitted"]), (&json!("b"), &json!(1)));
    for (wrong, said) in [
        (
            &["--sort", "share"][..],
            "[possible values: requests, granted, tokens, refused, wait-p50",
        ),
        (&["--top", "0"], "0 is not in 1.."),
    ] {
        let refused = fairgate(&[&run[..], wrong].concat());
        assert_eq!(refused.status, 2);
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
    }
    let alone = fairgate(&["replay", &journal, "--top", "1"]);
    assert!(alone.status == 2 && alone.stderr.contains("--diff"), "{}", alone.stderr);
}

#[test]
fn flows_are_those_of_the_recordings_root() {
    let journal = example("noisy-neighbour.jsonl");
    let policy = example("drr-policy.json");
    let table = fairgate(&["replay", &journal, "--policy", &policy, "--diff"]).ok();
    let rows: Vec<&str> = table.lines().map(|l| l.split(' ').next().unwrap_or_default()).collect();
    assert_eq!(rows, ["class", "all", "", "recorded"], "one class and no sum of it");
}

#[test]
fn a_flow_that_was_never_granted_has_no_wait() {
    let journal = journal(
        r#""capacity":0,"policy":{"share":{"by":"tenant"}}"#,
        &[r#""at":0,"event":"submit","id":"a1""#],
    );
    let table = fairgate(&["replay", &journal, "--policy", &file(FIFO), "--diff"]).ok();
    let row = table.lines().nth(1).expect("a row");
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells[..5], ["default", "1", "0", "→", "0"]);
    assert_eq!(cells[cells.len() - 3..], ["–", "→", "–"]);
}

/// The worked example: with share scores, the quiet tenant gets in, and waits less than a fifth as
/// long.
#[test]
fn the_example_shows_what_share_scores_do_for_the_quiet_tenant() {
    let journal = example("noisy-neighbour.jsonl");
    let policy = example("share-policy.json");
    let args = ["replay", &journal, "--policy", &policy, "--diff", "--by", "tenant"];
    let expected = "\
tenant  requests  granted     tokens      refused       wait p50             wait p95             wait max
loud          16  16 → 15  16032 → 15088   0 → 1   296.3 ms → 317.9 ms  498.9 ms → 526.2 ms  498.9 ms → 526.2 ms
quiet          5   4 →  5   1266 →  1566   1 → 0   366.2 ms →  70.5 ms  456.3 ms →  84.5 ms  456.3 ms →  84.5 ms
(all)         21  20 → 20  17298 → 16654   1 → 1     330 ms → 224.5 ms  484.6 ms → 508.9 ms  498.9 ms → 526.2 ms

recorded → what if; waits are of granted requests, exact, by nearest rank
";
    assert_eq!(fairgate(&args).ok(), expected);
}

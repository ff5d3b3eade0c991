//! Tests of the same arrivals under another policy.

use fairgate_journal::{JournalWriter, format_policy};
use fairgate_testkit::workload::{WorkloadShape, generate_answered};

use crate::run::{example, fairgate, file, journal};

const FIFO: &str = r#"{"drr":{"by":"class","classes":[{"name":"all","quantum":1}]}}"#;
const SHARE: &str = r#"{"share":{"by":"tenant"}}"#;
const QUEUE_POOL: &str =
    r#""capacity":1,"policy":{"drr":{"by":"class","classes":[{"name":"all","quantum":1}]}}"#;
const SHARE_POOL: &str = r#""capacity":1,"policy":{"share":{"by":"tenant"}}"#;

fn what_if(journal: &str, policy: &str) -> Vec<String> {
    fairgate(&["replay", journal, "--policy", &file(policy)]).brief()
}

#[test]
fn requests_take_their_recorded_service_time_and_tokens() {
    // As recorded a1 runs 100 µs, b1 30, a2 60, a3 10 and b2 30. b1 used 5000 tokens, so b2 came last.
    let journal = journal(
        SHARE_POOL,
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a","cost":10"#,
            r#""at":1,"event":"submit","id":"a2","tenant":"a","cost":10"#,
            r#""at":2,"event":"submit","id":"b1","tenant":"b","cost":10"#,
            r#""at":3,"event":"submit","id":"b2","tenant":"b","cost":10"#,
            r#""at":4,"event":"submit","id":"a3","tenant":"a","cost":10"#,
            r#""at":100,"event":"release","id":"a1","tokens":20"#,
            r#""at":130,"event":"release","id":"b1","tokens":5000"#,
            r#""at":190,"event":"release","id":"a2","tokens":10"#,
            r#""at":200,"event":"release","id":"a3","tokens":10"#,
            r#""at":230,"event":"release","id":"b2""#,
        ],
    );
    let recorded = ["0 grant a1", "100 grant b1", "130 grant a2", "190 grant a3", "200 grant b2"];
    assert_eq!(fairgate(&["replay", &journal]).brief(), recorded);
    let queue = ["0 grant a1", "100 grant a2", "160 grant b1", "190 grant b2", "220 grant a3"];
    assert_eq!(what_if(&journal, FIFO), queue);
    assert_eq!(what_if(&journal, SHARE), recorded, "its own policy gives its own decisions");
    let heavy = r#"{"share":{"by":"tenant","weights":{"b":100000}}}"#;
    let b_first = ["0 grant a1", "100 grant b1", "130 grant b2", "160 grant a2", "220 grant a3"];
    assert_eq!(what_if(&journal, heavy), b_first);
}

#[test]
fn a_request_that_never_ran_takes_its_cost_at_the_mean_speed() {
    // a1: 100 µs for 50 tokens; a2: 60 µs for 30. So 2 µs a token, and b1, which found the queue full, would take
    // 7 × 2 µs. By shares a, with two waiting, makes room for it.
    let journal = journal(
        &format!("{QUEUE_POOL},\"max_queue\":2"),
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a","cost":10"#,
            r#""at":1,"event":"submit","id":"a2","tenant":"a","cost":10"#,
            r#""at":2,"event":"submit","id":"a3","tenant":"a","cost":10"#,
            r#""at":3,"event":"submit","id":"b1","tenant":"b","cost":7"#,
            r#""at":100,"event":"release","id":"a1","tokens":50"#,
            r#""at":160,"event":"release","id":"a2","tokens":30"#,
        ],
    );
    let recorded = ["0 grant a1", "3 reject b1", "100 grant a2", "160 grant a3"];
    assert_eq!(fairgate(&["replay", &journal]).brief(), recorded);
    let shared = ["0 grant a1", "3 reject a3", "100 grant b1", "114 grant a2"];
    assert_eq!(what_if(&journal, SHARE), shared);
}

#[test]
fn what_still_ran_at_the_end_keeps_its_slot() {
    let journal = journal(
        SHARE_POOL,
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a""#,
            r#""at":1,"event":"submit","id":"a2","tenant":"a""#,
            r#""at":2,"event":"submit","id":"b1","tenant":"b""#,
            r#""at":10,"event":"release","id":"a1""#,
            r#""at":1000,"event":"tick""#,
        ],
    );
    // In the recording b1 is granted at 10 and never ends. In one queue a2 goes first; it never ran in the
    // recording, takes 1 token at 10 µs a token, and b1 then has the slot for good.
    assert_eq!(what_if(&journal, FIFO), ["0 grant a1", "10 grant a2", "20 grant b1"]);
}

#[test]
fn after_the_last_line_flights_still_end() {
    let journal = journal(
        SHARE_POOL,
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a""#,
            r#""at":1,"event":"submit","id":"a2","tenant":"a""#,
            r#""at":2,"event":"submit","id":"b1","tenant":"b""#,
            r#""at":3,"event":"capacity","slots":2"#,
            r#""at":10,"event":"release","id":"a1""#,
            r#""at":12,"event":"release","id":"b1""#,
            r#""at":15,"event":"release","id":"a2""#,
        ],
    );
    assert_eq!(fairgate(&["replay", &journal]).brief()[2], "10 grant a2");
    // In one queue a2 runs 3–8 and b1 8–17, past the last line; with one at a time b1 runs 10–19 and a2 after it.
    assert_eq!(what_if(&journal, FIFO), ["0 grant a1", "3 grant a2", "8 grant b1"]);
    let capped = r#"{"share":{"by":"group","default_cap":1,"inside":{"share":{"by":"tenant"}}}}"#;
    assert_eq!(what_if(&journal, capped), ["0 grant a1", "10 grant b1", "19 grant a2"]);
}

#[test]
fn a_client_that_gave_up_waiting_gives_up_at_the_same_time() {
    let journal = journal(
        QUEUE_POOL,
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a","cost":10"#,
            r#""at":1,"event":"submit","id":"a2","tenant":"a","cost":10"#,
            r#""at":2,"event":"submit","id":"b1","tenant":"b","cost":30"#,
            r#""at":10,"event":"release","id":"a1""#,
            r#""at":15,"event":"cancel","id":"b1""#,
            r#""at":40,"event":"release","id":"a2""#,
        ],
    );
    assert_eq!(fairgate(&["replay", &journal]).brief(), ["0 grant a1", "10 grant a2"]);
    // By share b1 is granted at 10, would take 30 tokens at 2 µs each, and is cancelled in flight at 15.
    assert_eq!(what_if(&journal, SHARE), ["0 grant a1", "10 grant b1", "15 grant a2"]);
    let capped = r#"{"share":{"by":"tenant","caps":{"b":0}}}"#;
    assert_eq!(what_if(&journal, capped), ["0 grant a1", "10 grant a2"], "out of the queue");
}

#[test]
fn a_cancel_in_flight_is_the_end_of_its_service() {
    let journal = journal(
        QUEUE_POOL,
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a""#,
            r#""at":1,"event":"submit","id":"a2","tenant":"a""#,
            r#""at":2,"event":"submit","id":"b1","tenant":"b""#,
            r#""at":10,"event":"release","id":"a1""#,
            r#""at":16,"event":"cancel","id":"a2""#,
            r#""at":20,"event":"release","id":"b1""#,
            r#""at":20,"event":"submit","id":"c1""#,
            r#""at":21,"event":"cancel","id":"a1""#,
        ],
    );
    // b1 takes 4 µs and a2, then, its 6: they end at the same time as in the recording, before c1 comes.
    let shared = ["0 grant a1", "10 grant b1", "14 grant a2", "20 grant c1"];
    assert_eq!(what_if(&journal, SHARE), shared);
}

#[test]
fn policy_events_are_left_out_and_others_stay() {
    let journal = journal(
        SHARE_POOL,
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a","cost":10"#,
            r#""at":1,"event":"policy","policy":{"drr":{"by":"class","classes":[{"name":"all","quantum":1}]}}"#,
            r#""at":2,"event":"submit","id":"a2","tenant":"a","cost":10"#,
            r#""at":3,"event":"submit","id":"b1","tenant":"b","cost":10"#,
            r#""at":4,"event":"submit","id":"c1","tenant":"c","cost":10"#,
            r#""at":5,"event":"hold","by":"tenant","flow":"b""#,
            r#""at":10,"event":"release","id":"a1""#,
            r#""at":20,"event":"release","id":"a2""#,
            r#""at":25,"event":"resume","by":"tenant","flow":"b""#,
            r#""at":30,"event":"release","id":"b1""#,
            r#""at":40,"event":"release","id":"c1""#,
        ],
    );
    let queue = ["0 grant a1", "10 grant a2", "20 grant b1", "30 grant c1"];
    assert_eq!(fairgate(&["replay", &journal]).brief(), queue);
    // c1 10–20, a2 20–30, b1, held until 25, 30–40.
    let shared = ["0 grant a1", "10 grant c1", "20 grant a2", "30 grant b1"];
    assert_eq!(what_if(&journal, SHARE), shared);
}

#[test]
fn an_id_that_is_used_again_is_another_request() {
    let journal = journal(
        QUEUE_POOL,
        &[
            r#""at":0,"event":"submit","id":"x","tenant":"a""#,
            r#""at":1,"event":"submit","id":"r","tenant":"a""#,
            r#""at":2,"event":"submit","id":"y","tenant":"b""#,
            r#""at":10,"event":"release","id":"x""#,
            r#""at":20,"event":"release","id":"r""#,
            r#""at":22,"event":"submit","id":"r","tenant":"a""#,
            r#""at":50,"event":"release","id":"y""#,
            r#""at":90,"event":"release","id":"r""#,
        ],
    );
    let recorded = ["0 grant x", "10 grant r", "20 grant y", "50 grant r"];
    assert_eq!(fairgate(&["replay", &journal]).brief(), recorded);
    // y goes first, for 30 µs, so that the first r still waits when the second comes: a duplicate.
    let shared = ["0 grant x", "10 grant y", "22 reject r", "40 grant r"];
    assert_eq!(what_if(&journal, SHARE), shared);
}

#[test]
fn first_tokens_come_as_long_after_the_grant_as_recorded() {
    let pool = r#""capacity":9,"busy_tokens":5,"workers":[{"name":"w"}],"policy":{"share":{"by":"tenant"}}"#;
    let journal = journal(
        pool,
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a","cost":10"#,
            r#""at":1,"event":"submit","id":"a2","tenant":"a","cost":10"#,
            r#""at":2,"event":"submit","id":"b1","tenant":"b","cost":10"#,
            r#""at":7,"event":"first_token","id":"a1""#,
            r#""at":9,"event":"first_token","id":"b1""#,
            r#""at":20,"event":"first_token","id":"a2""#,
            r#""at":30,"event":"release","id":"a1""#,
            r#""at":30,"event":"release","id":"b1""#,
            r#""at":30,"event":"release","id":"a2""#,
        ],
    );
    assert_eq!(fairgate(&["replay", &journal]).brief(), ["0 grant a1", "7 grant b1", "9 grant a2"]);
    // a2's first token comes 11 µs after its grant.
    assert_eq!(what_if(&journal, FIFO), ["0 grant a1", "7 grant a2", "18 grant b1"]);
}

#[test]
fn a_policy_may_stand_in_a_header_and_bad_ones_are_named() {
    let journal = example("noisy-neighbour.jsonl");
    let own = fairgate(&["replay", &journal, "--policy", &journal]);
    assert_eq!(own.status, 1, "a whole journal is not one JSON text");
    let policy = file("{\n \"share\": {\"by\": \"colour\"}}");
    let bad = fairgate(&["replay", &journal, "--policy", &policy]);
    assert_eq!((bad.status, bad.stdout.as_str()), (1, ""));
    let expected = format!("fairgate: {policy}: line 2: field \"share.by\": ");
    assert!(bad.stderr.starts_with(&expected), "{}", bad.stderr);
    let pool = file(&format!("{{{SHARE_POOL}}}"));
    assert_eq!(fairgate(&["replay", &journal, "--policy", &pool]).status, 0);
    let missing = fairgate(&["replay", &journal, "--policy", "no/such/policy"]);
    assert!(missing.stderr.starts_with("fairgate: no/such/policy: "), "{}", missing.stderr);
}

#[cfg(unix)]
#[test]
fn what_cannot_be_read_twice_is_refused() {
    let run = fairgate(&["replay", "/dev/null", "--policy", &file(SHARE)]);
    assert_eq!(run.status, 1);
    assert!(run.stderr.contains("must be a file"), "{}", run.stderr);
}

/// Random recordings with late releases, repeated ids, ties, workers, holds and limits give their
/// own decisions under their own policy.
#[test]
fn random_recordings_under_their_own_policy_decide_as_they_did() {
    let shapes = [
        WorkloadShape::drr(),
        WorkloadShape::share(),
        WorkloadShape::load(),
        WorkloadShape::hierarchical(),
        WorkloadShape::tree(),
        WorkloadShape::workers(),
    ];
    for (shape, seed) in shapes.iter().flat_map(|shape| (0..8).map(move |seed| (shape, seed))) {
        let shape = WorkloadShape { policy_changes: false, ..shape.clone() };
        let (config, events) = generate_answered(&shape, seed);
        let mut writer = JournalWriter::new(Vec::new());
        writer.write_header(&config).expect("a header can be written");
        for (at, event) in &events {
            writer.write_event(*at, event).expect("an event can be written");
        }
        let journal = file(&String::from_utf8(writer.into_inner()).expect("text"));
        let recorded = fairgate(&["replay", &journal]).ok();
        let policy = file(&format_policy(&config.policy));
        let replayed = fairgate(&["replay", &journal, "--policy", &policy]).ok();
        assert_eq!(replayed, recorded, "{shape:?}, seed {seed}");
    }
}

#[test]
fn absurd_numbers_and_names_are_borne() {
    let most = u64::MAX;
    let id = "x".repeat(1 << 20);
    let deep = (0..63).fold(SHARE.to_owned(), |inner, _| {
        format!(r#"{{"share":{{"by":"tenant","inside":{inner}}}}}"#)
    });
    let first = format!(r#""at":0,"event":"submit","id":"{id}","tenant":"{id}","cost":{most}"#);
    let second = format!(r#""at":1,"event":"submit","id":"b","cost":{most}"#);
    let third = format!(r#""at":2,"event":"submit","id":"c","cost":{most}"#);
    let release = format!(r#""at":{most},"event":"release","id":"{id}","tokens":1"#);
    let journal = journal(SHARE_POOL, &[&first, &second, &third, &release]);
    let decisions = what_if(&journal, &deep);
    assert_eq!(decisions[1..], [format!("{most} grant b")]);
    let reports: [&[&str]; 4] =
        [&["--diff"], &["--diff", "--json"], &["--explain", "b"], &["--fairness"]];
    for report in reports {
        let policy = file(&deep);
        let args = [&["replay", &journal, "--policy", &policy], report].concat();
        assert!(fairgate(&args).ok().len() < 3 << 20, "{report:?}");
    }
}

const CLASSES: &str = "default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: short}, {min_tokens: 100, bucket: long}]
policy_classes:
  - {name: quick, policy_family: standard, cache_bucket: short, quantum: 400}
  - {name: bulk, policy_family: standard, cache_bucket: long, quantum: 100}
  - {name: vip_quick, policy_family: vip, cache_bucket: short, quantum: 400}
  - {name: vip_bulk, policy_family: vip, cache_bucket: long, quantum: 100}
  - {name: urgent, quantum: 800}
";

/// Returns a journal with one slot and one queue, and with all data from which a class follows:
/// input tokens, cached tokens by worker, and the named class.
fn routed() -> String {
    journal(
        r#""capacity":1,"policy":{"drr":{"by":"class","classes":[{"name":"bulk","quantum":1}]}},"workers":[{"name":"w1"},{"name":"w2"}]"#,
        &[
            r#""at":0,"event":"submit","id":"first","class":"bulk","cost":1,"input":1"#,
            r#""at":1,"event":"submit","id":"long","class":"bulk","cost":300,"input":300"#,
            r#""at":2,"event":"submit","id":"cached","class":"bulk","cost":300,"input":300,"cached":{"w1":50,"w2":250}"#,
            r#""at":3,"event":"submit","id":"pinned","class":"bulk","cost":300,"input":300,"cached":{"w1":50,"w2":250},"pin":{"worker":"w1"}"#,
            r#""at":4,"event":"submit","id":"named","class":"urgent","cost":300,"input":300"#,
            r#""at":5,"event":"submit","id":"family","class":"vip_bulk","cost":20,"input":20"#,
            r#""at":6,"event":"submit","id":"unknown","class":"elsewhere","cost":20,"input":20"#,
            r#""at":10,"event":"release","id":"first""#,
            r#""at":20,"event":"release","id":"long","tokens":300"#,
            r#""at":30,"event":"release","id":"cached","tokens":300"#,
            r#""at":40,"event":"release","id":"pinned","tokens":300"#,
            r#""at":50,"event":"release","id":"named","tokens":300"#,
            r#""at":60,"event":"release","id":"family","tokens":20"#,
            r#""at":70,"event":"release","id":"unknown","tokens":20"#,
        ],
    )
}

#[test]
fn a_policy_file_gives_every_request_its_class_anew() {
    let (journal, policy) = (routed(), file(CLASSES));
    let diff = fairgate(&["replay", &journal, "--policy", &policy, "--diff", "--json"]).ok();
    let diff: serde_json::Value = serde_json::from_str(&diff).expect("it is JSON");
    assert_eq!(diff["by"], "class");
    let flows = diff["flows"].as_array().expect("flows").iter().map(|flow| {
        let requests = |field: &str| flow[field].as_u64();
        let was = requests("requests").expect("a number");
        let is = requests("requests_what_if").unwrap_or(was);
        (
            flow["flow"].as_str().expect("a name").to_owned(),
            was,
            is,
            flow["what_if"]["tokens"].clone(),
        )
    });
    let expected = [
        // `long`, and `pinned`, whose worker has only 50 tokens of it.
        ("bulk", 4, 2, 600),
        ("elsewhere", 1, 0, 0),
        // `first`, `cached` and `unknown`: 1, 50 and 20 tokens that are not cached.
        ("quick", 0, 3, 321),
        ("urgent", 1, 1, 300),
        ("vip_bulk", 1, 0, 0),
        // `family`: the class that was recorded is of a family, and its bucket is another one by its 20 tokens.
        ("vip_quick", 0, 1, 20),
    ];
    let expected =
        expected.map(|(name, was, is, tokens)| (name.to_owned(), was, is, tokens.into()));
    assert_eq!(flows.collect::<Vec<_>>(), expected);
    let table = fairgate(&["replay", &journal, "--policy", &policy, "--diff"]).ok();
    let heading = table.lines().next().expect("a heading");
    assert!(heading.contains("share"), "{table}");
    let urgent = table.lines().find(|line| line.starts_with("urgent")).expect("a row");
    assert!(urgent.contains("24.2 % →  24.2 %"), "{table}");
    // The order is the file's: the largest quantum goes through its long request first.
    let decisions = fairgate(&["replay", &journal, "--policy", &policy]).brief();
    let order: Vec<&str> = decisions.iter().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(order.len(), 7);
    let at = |id: &str| order.iter().position(|granted| *granted == id);
    assert!(at("cached") < at("long") && at("named") < at("long"), "{order:?}");
}

#[test]
fn a_policy_file_that_cannot_stand_for_a_journal_is_refused() {
    let models = format!("models:\n  llama:\n    {}\n", CLASSES.trim_end().replace('\n', "\n    "));
    let refused = fairgate(&["replay", &routed(), "--policy", &file(&models), "--diff"]);
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("a journal does not say which model"), "{}", refused.stderr);
    let broken = CLASSES.replace("quantum: 800", "quantum: 0");
    let refused = fairgate(&["replay", &routed(), "--policy", &file(&broken)]);
    assert_eq!(refused.status, 1);
    assert!(
        refused.stderr.contains(":8:") && refused.stderr.contains("quantum"),
        "{}",
        refused.stderr
    );
}

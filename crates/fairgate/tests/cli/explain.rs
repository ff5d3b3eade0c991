//! Tests of the history of one request, in words and as JSON.

use serde_json::{Value, json};

use crate::run::{example, fairgate, journal};

fn story(journal: &str, id: &str) -> String {
    fairgate(&["replay", journal, "--explain", id]).ok()
}

#[track_caller]
fn assert_story(journal: &str, id: &str, expected: &str) {
    assert_eq!(story(journal, id), format!("request {id}\n\n{expected}"));
}

#[test]
fn share_in_share_with_holds_and_a_new_weight() {
    // g stands at 900 / 100 when r is granted, chat at 0 / 350; then 1050 tokens are 10.5 and 3 more.
    let journal = journal(
        r#""capacity":1,"policy":{"share":{"by":"group","inside":{"share":{"by":"tenant","weights":{"chat":500}}}}}"#,
        &[
            r#""at":0,"event":"submit","id":"x","group":"g","tenant":"api","cost":1000"#,
            r#""at":1,"event":"submit","id":"y","group":"g","tenant":"api","cost":50"#,
            r#""at":2,"event":"submit","id":"r","group":"g","tenant":"chat","cost":700,"priority":2"#,
            r#""at":3,"event":"hold","by":"tenant","flow":"chat""#,
            r#""at":4,"event":"hold","by":"tenant","flow":"api""#,
            r#""at":5,"event":"weight","by":"tenant","flow":"chat","weight":350"#,
            r#""at":6,"event":"resume","by":"tenant","flow":"api""#,
            r#""at":7,"event":"resume","by":"tenant","flow":"chat""#,
            r#""at":1500,"event":"release","id":"x","tokens":900"#,
            r#""at":3000000,"event":"release","id":"r","tokens":1050"#,
        ],
    );
    assert_story(
        &journal,
        "r",
        "\
at 2 µs, line 4: submitted with a cost of 700 tokens and priority 2, for tenant chat, group g
    its path: group g → tenant chat
    group g had got 1000 tokens and was due 1000: no difference, within its bound of 2001 tokens
    it waits, next in line for a slot
at 3 µs, line 5: tenant chat is held
    tenant chat is held by an operator
    as things are, it would never be granted
at 5 µs, line 7: tenant chat now has weight 350
    the pool is full: 1 request in flight
    tenant chat is held by an operator
    as things are, it would never be granted
at 7 µs, line 9: tenant chat goes on
    it waits, next in line for a slot
at 1500 µs, line 10: granted after 1.498 ms
    group g had the lowest score: 9.000 tokens per weight (weight 100)
      it had got 900 tokens and was due 1000: 100 fewer, within its bound of 2101 tokens
      no other flow was ready
    tenant chat had the lowest score: 0.000 tokens per weight (weight 350)
      next would have been tenant api: 9.000 tokens per weight (weight 100)
        it had got 900 tokens and was due 1000: 100 fewer, within its bound of 2878 tokens
at 3000000 µs, line 11: ended after 2.998 s with 1050 tokens, 350 more than its cost of 700
    group g: tokens served 900 → 1950, in flight 700 → 0; score 16.000 → 19.500 tokens per weight
      it has got 1950 tokens and was due 1600: 350 more, within its bound of 2451 tokens
    tenant chat: nothing of it is left, so it is forgotten and starts anew if it comes back
",
    );
}

#[test]
fn a_partitioned_root_gives_slots_first() {
    let journal = journal(
        r#""capacity":2,"policy":{"share":{"by":"tenant","partition":true}}"#,
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a","cost":100"#,
            r#""at":0,"event":"submit","id":"a2","tenant":"a","cost":100"#,
            r#""at":1,"event":"submit","id":"a3","tenant":"a","cost":100"#,
            r#""at":2,"event":"submit","id":"b1","tenant":"b","cost":10"#,
            r#""at":9,"event":"release","id":"a1""#,
        ],
    );
    assert_story(
        &journal,
        "b1",
        "\
at 2 µs, line 5: submitted with a cost of 10 tokens, for tenant b
    its path: tenant b
    it waits, next in line for a slot
at 9 µs, line 6: granted after 7 µs
    tenant b had fewer in flight than its slots, and then the lowest score: 0.000 tokens per weight (weight 100, 1 slot)
      next would have been tenant a: 2.000 tokens per weight (weight 100, 100 tokens in flight, 1 slot)
        it had got 200 tokens and was due 200: no difference, within its bound of 201 tokens
    it is still in flight at the end of the journal
",
    );
}

/// The class `fast` has a quantum of 2000, and keeps its turn with the 1700 that are left. f2 uses
/// 50 tokens fewer than its cost. The class `slow` has a credit of 200 from the rounds before, and
/// needs eight more rounds.
fn rounds() -> String {
    journal(
        r#""capacity":1,"policy":{"drr":{"by":"class","classes":[{"name":"fast","quantum":2000},{"name":"slow","quantum":100}]}}"#,
        &[
            r#""at":0,"event":"submit","id":"z","class":"fast","cost":300"#,
            r#""at":1,"event":"submit","id":"f1","class":"fast","cost":300"#,
            r#""at":1,"event":"submit","id":"f2","class":"fast","cost":300"#,
            r#""at":1,"event":"submit","id":"f3","class":"fast","cost":1900"#,
            r#""at":2,"event":"submit","id":"s1","class":"slow","cost":1000"#,
            r#""at":10,"event":"release","id":"z""#,
            r#""at":20,"event":"release","id":"f1","tokens":300"#,
            r#""at":30,"event":"release","id":"f2","tokens":250"#,
            r#""at":40,"event":"release","id":"f3""#,
            r#""at":50,"event":"cancel","id":"s1""#,
        ],
    )
}

#[test]
fn drr_visits_a_class_and_stays() {
    let journal = rounds();
    let f1 = story(&journal, "f1");
    let visited = "\
at 10 µs, line 7: granted after 9 µs
    class fast was next in the ring, and with one quantum more its credit covers the cost of 300: credit 0 tokens, quantum 2000
      it had got 300 tokens and was due 300: no difference, within its bound of 4600 tokens
      next would have been class slow: credit 0 tokens, quantum 100, its first request costs 1000, 10 rounds away
at 20 µs, line 8: ended after 10 µs with 300 tokens, exactly its cost
    class fast: its credit stays at 1700 tokens; drr charges costs, not what was used
      it has got 600 tokens and was due 586: 14 more, within its bound of 4600 tokens
";
    assert!(f1.ends_with(visited), "{f1}");
    let f2 = story(&journal, "f2");
    let stayed = "\
at 20 µs, line 8: granted after 19 µs
    class fast kept its turn, for its credit covers the cost of 300: credit 1700 tokens, quantum 2000
      it had got 600 tokens and was due 586: 14 more, within its bound of 4600 tokens
      next would have been class slow: credit 100 tokens, quantum 100, its first request costs 1000, 9 rounds away
        it had got 0 tokens and was due 14: 14 fewer, within its bound of 115 tokens
at 30 µs, line 9: ended after 10 µs with 250 tokens, 50 fewer than its cost of 300
    class fast: its credit stays at 1400 tokens; drr charges costs, not what was used
      it has got 850 tokens and was due 871: 21 fewer, within its bound of 4650 tokens
";
    assert!(f2.ends_with(stayed), "{f2}");
}

#[test]
fn drr_gives_rounds_in_bulk() {
    assert_story(
        &rounds(),
        "s1",
        "\
at 2 µs, line 6: submitted with a cost of 1000 tokens, for class slow
    its path: class slow
    it waits; if nothing else came, 3 grants would come before its own: 3 requests of fast (2500 tokens)
at 40 µs, line 10: granted after 38 µs
    no class could pay with one quantum more, so all got 8 rounds at once; class slow was the first to cover the cost of 1000, from credit 200 tokens, quantum 100
      it had got 0 tokens and was due 117: 117 fewer, within its bound of 195 tokens
      no other flow was ready
at 50 µs, line 11: cancelled after 10 µs in flight; its cost of 1000 tokens stands
    class slow: its credit stays at 0 tokens; drr charges costs, not what was used
      it has got 1000 tokens and was due 1000: no difference, within its bound of 2201 tokens
",
    );
}

#[test]
fn load_by_the_largest_load_and_by_lateness() {
    let journal = journal(
        r#""capacity":1,"policy":{"load":{"by":"agent","max_wait_ticks":2}}"#,
        &[
            r#""at":0,"event":"submit","id":"a1","agent":"a""#,
            r#""at":1,"event":"submit","id":"b1","agent":"b""#,
            r#""at":2,"event":"submit","id":"a2","agent":"a","weight":2.5"#,
            r#""at":3,"event":"submit","id":"a3","agent":"a""#,
            r#""at":10,"event":"release","id":"a1""#,
            r#""at":20,"event":"release","id":"a2""#,
            r#""at":31,"event":"cancel","id":"b1""#,
        ],
    );
    assert_story(
        &journal,
        "a2",
        "\
at 2 µs, line 4: submitted with a cost of 1 token, for agent a
    its path: agent a
    it waits, next in line for a slot
at 10 µs, line 6: granted after 8 µs
    agent a had the largest load: 1 of 1, depth 3.5, its oldest waits 1 tick, alpha 0.25
      next would have been agent b: depth 1, its oldest waits 1 tick, alpha 0.25
at 20 µs, line 7: ended after 10 µs; its cost of 1 token stands
    agent a: the pool's ticks 1 → 2
      it has got 2 tokens
",
    );
    let b1 = story(&journal, "b1");
    let late = "\
at 20 µs, line 7: granted after 19 µs
    agent b was late, which goes before all else: 1 of 1, depth 1, its oldest waits 2 ticks, alpha 0.25
      next would have been agent a: depth 1, its oldest waits 2 ticks, alpha 0.25
at 31 µs, line 8: cancelled after 11 µs in flight; its cost of 1 token stands
";
    assert!(b1.contains(late), "{b1}");
    let a3 = story(&journal, "a3");
    let ahead =
        "2 grants would come before its own: 1 request of a (1 token), 1 request of b (1 token)";
    assert!(a3.contains(ahead), "{a3}");
}

fn placed() -> String {
    journal(
        r#""capacity":4,"brownout_wait_us":5,"queue_timeout_us":50,"workers":[{"name":"w0","slots":1}],"policy":{"share":{"by":"tenant","default_cap":1}}"#,
        &[
            r#""at":0,"event":"submit","id":"a1","tenant":"a""#,
            r#""at":1,"event":"submit","id":"b1","tenant":"b","cost":100"#,
            r#""at":2,"event":"submit","id":"a2","tenant":"a""#,
            r#""at":3,"event":"submit","id":"z","pin":{"worker":"w9"}"#,
            r#""at":10,"event":"worker","name":"w1","slots":1"#,
            r#""at":13,"event":"first_token","id":"b1""#,
            r#""at":20,"event":"release","id":"b1","tokens":100"#,
            r#""at":60,"event":"tick""#,
            r#""at":61,"event":"submit","id":"p","pin":{"worker":"w1"},"tenant":"c""#,
            r#""at":62,"event":"submit","id":"p2","pin":{"worker":"w1"},"tenant":"c""#,
            r#""at":63,"event":"worker","name":"w1","state":"drain""#,
            r#""at":64,"event":"submit","id":"d1","tenant":"d""#,
            r#""at":65,"event":"cancel","id":"d1""#,
            r#""at":66,"event":"worker","name":"w0","state":"overloaded""#,
            r#""at":67,"event":"submit","id":"o1","tenant":"d""#,
        ],
    )
}

#[test]
fn workers_block_place_and_give_first_tokens() {
    assert_story(
        &placed(),
        "b1",
        "\
at 1 µs, line 3: submitted with a cost of 100 tokens, for tenant b
    its path: tenant b
    the pool is full: 1 request in flight
    it waits, next in line for a slot
at 10 µs, line 6: granted after 9 µs, on worker w1 rank 0, past the brownout wait
    tenant b had the lowest score: 0.000 tokens per weight (weight 100, cap 1)
      no other flow was ready
at 13 µs, line 7: first token, 3 µs after the grant
at 20 µs, line 8: ended after 10 µs with 100 tokens, exactly its cost
    tenant b: tokens served 0 → 100, in flight 100 → 0; score 1.000 → 1.000 tokens per weight
      it has got 100 tokens and was due 100: no difference, within its bound of 250 tokens
",
    );
}

#[test]
fn refusals_name_their_reason() {
    let journal = placed();
    assert_story(
        &journal,
        "a2",
        "\
at 2 µs, line 4: submitted with a cost of 1 token, for tenant a
    its path: tenant a
    tenant a had got 1 token and was due 1: no difference, within its bound of 3 tokens
    tenant a is at its cap: 1 of 1 in flight
    it waits; if nothing else came, 1 grant would come before its own: 1 request of b (100 tokens)
at 10 µs, line 6: worker w1 is added or changed
    tenant a is at its cap: 1 of 1 in flight
    it waits, next in line for a slot
at 60 µs, line 9: expired after 58 µs in the queue; the limit is 50 µs
",
    );
    let endings = [
        ("z", "    rejected (no_worker): there is no worker that may take it\n"),
        (
            "p2",
            "at 63 µs, line 12: rejected (no_worker): worker w1 changed, and none is left that may take it, after 1 µs in the queue\n",
        ),
        ("d1", "at 65 µs, line 14: cancelled after 1 µs in the queue, uncharged\n"),
        ("o1", "    rejected (overloaded): all workers that may take it are overloaded\n"),
    ];
    for (id, ending) in endings {
        let story = story(&journal, id);
        assert!(story.ends_with(ending), "{story}");
    }
}

#[test]
fn limits_are_told_with_their_numbers() {
    let journal = journal(
        r#""capacity":0,"workers":[{"name":"w"}],"policy":{"drr":{"by":"class","classes":[{"name":"c","quantum":1,"limit_input_tokens_per_worker":500}]}}"#,
        &[r#""at":0,"event":"submit","id":"a","input":700"#, r#""at":1,"event":"submit","id":"b""#],
    );
    let told = story(&journal, "b");
    let limit = "rejected (class_input_tokens): 700 input tokens in class c waiting, where the limit is 500\n";
    assert!(told.ends_with(limit), "{told}");
    let full = story(&example("noisy-neighbour.jsonl"), "quiet-1");
    let limit = "rejected (queue_full): 10 requests waiting, where the limit is 10, and of the fullest flow it would be the last\n";
    assert!(full.ends_with(limit), "{full}");
}

#[test]
fn with_another_policy_the_story_is_another() {
    let journal = example("noisy-neighbour.jsonl");
    let policy = example("share-policy.json");
    let told = |id| fairgate(&["replay", &journal, "--policy", &policy, "--explain", id]).ok();
    let quiet = "\
request quiet-1

at 20000 µs, line 14: submitted with a cost of 300 tokens, for tenant quiet
    its path: tenant quiet
    it waits, next in line for a slot
at 94700 µs, line 15: granted after 74.7 ms
    tenant quiet had the lowest score: 0.000 tokens per weight (weight 100)
      next would have been tenant loud: 19.";
    let story = told("quiet-1");
    assert!(story.starts_with(quiet), "{story}");
    let ended = "\
at 124700 µs: ended after 30 ms; its cost of 300 tokens stands
    tenant quiet: tokens served 0 → 300, in flight 300 → 0; score 3.000 → 3.000 tokens per weight
      it has got 300 tokens and was due 300: no difference, within its bound of 1301 tokens
";
    assert!(story.ends_with(ended), "{story}");
    let loud = told("loud-12");
    let pushed = "at 20000 µs, line 14: pushed out (pushed_out) of the full queue, to make room for quiet-1: 10 requests waiting, where the limit is 10, and it was the last of the fullest flow, after 8 ms in the queue\n";
    assert!(loud.ends_with(pushed), "{loud}");
}

#[test]
fn every_request_of_an_id_is_told() {
    let journal = journal(
        r#""capacity":1,"policy":{"share":{"by":"tenant"}}"#,
        &[
            r#""at":0,"event":"submit","id":"r""#,
            r#""at":1,"event":"submit","id":"r""#,
            r#""at":2,"event":"release","id":"r""#,
            r#""at":3,"event":"submit","id":"r""#,
        ],
    );
    let told = story(&journal, "r");
    assert!(told.starts_with("request r: 3 of that id\n"), "{told}");
    assert_eq!(told.matches("submitted with a cost of 1 token").count(), 2);
    assert_eq!(told.matches("line 3: submitted\n").count(), 1, "it never had a cost: {told}");
    assert_eq!(told.matches("rejected (duplicate)").count(), 1);
    assert_eq!(told.matches("granted at once").count(), 2);
    assert_eq!(told.matches("still in flight").count(), 1);
}

#[test]
fn what_happens_while_it_waits_is_told_within_bounds() {
    let mut events = vec![r#""at":0,"event":"submit","id":"r","tenant":"t""#.to_owned()];
    for i in 0..40 {
        let event = if i % 2 == 0 { "hold" } else { "resume" };
        events.push(format!(r#""at":{i},"event":"{event}","by":"tenant","flow":"t""#));
    }
    events.push(r#""at":50,"event":"policy","policy":{"load":{"by":"agent"}}"#.to_owned());
    let events: Vec<&str> = events.iter().map(String::as_str).collect();
    let journal = journal(r#""capacity":0,"policy":{"share":{"by":"tenant"}}"#, &events);
    let told = story(&journal, "r");
    assert_eq!(told.matches(": tenant t is held\n").count(), 6);
    assert!(
        told.contains("(and 29 further changes of capacity, workers or its flows while it waited)")
    );
    assert!(told.ends_with("it still waits at the end of the journal\n"), "{told}");
}

#[test]
fn an_unknown_id_is_an_error() {
    let journal = example("noisy-neighbour.jsonl");
    let run = fairgate(&["replay", &journal, "--explain", "nobody"]);
    assert_eq!((run.status, run.stdout.as_str()), (1, ""));
    assert_eq!(run.stderr, format!("fairgate: {journal}: there is no request nobody\n"));
}

#[test]
fn a_bad_line_ends_the_story_with_an_error() {
    let journal = journal(
        r#""capacity":1,"policy":{"share":{"by":"tenant"}}"#,
        &[r#""at":0,"event":"submit","id":"r""#, r#""at":1,"event":"?""#],
    );
    let run = fairgate(&["replay", &journal, "--explain", "r"]);
    assert_eq!(run.status, 1);
    assert!(run.stdout.contains("granted at once"), "{}", run.stdout);
    assert!(run.stderr.contains("line 3: field \"event\""), "{}", run.stderr);
}

#[test]
fn json_has_the_numbers() {
    let journal = rounds();
    let args = ["replay", &journal, "--explain", "f2", "--json"];
    let story: Value = serde_json::from_str(&fairgate(&args).ok()).expect("it is JSON");
    assert_eq!(story["unit"], "tokens");
    let text = fairgate(&[&args[..], &["--unit", "worker_time"]].concat()).ok();
    assert!(text.starts_with(r#"{"id":"f2","unit":"worker_time","requests":["#), "{text}");
    let request = &story["requests"][0];
    assert_eq!(request["submitted"], json!({ "at": 1, "line": 4 }));
    assert_eq!(request["attributes"], json!({ "class": "fast" }));
    assert_eq!(request["waiting"]["grants_ahead"], 1);
    let ahead = json!([{ "path": ["fast"], "requests": 1, "tokens": 300 }]);
    assert_eq!(request["waiting"]["ahead"], ahead);
    let outcome = &request["outcome"];
    assert_eq!(outcome["is"], "granted");
    assert_eq!(outcome["line"], 8);
    assert_eq!(outcome["decision"]["waited_us"], 19);
    let why = &outcome["decision"]["why"]["levels"][0];
    assert_eq!(why["rule"], "stayed");
    assert_eq!(why["standing"]["deficit_tokens"], 1700);
    assert_eq!(why["runner_up"]["flow"], "slow");
    assert_eq!(why["runner_up"]["standing"]["rounds_needed"], 9);
    let end = &outcome["end"];
    assert_eq!((&end["at"], &end["line"], &end["tokens"]), (&json!(30), &json!(9), &json!(250)));
    let [before, after] = ["before", "after"].map(|when| &end["settled"][0][when]);
    // What was used corrects what the class got, not its credit.
    assert_eq!((&before["deficit_tokens"], &before["got_tokens"]), (&json!(1400), &json!(900)));
    assert_eq!((&after["deficit_tokens"], &after["got_tokens"]), (&json!(1400), &json!(850)));
}

#[test]
fn json_has_every_outcome() {
    let journal = placed();
    let outcome = |id| {
        let story = fairgate(&["replay", &journal, "--explain", id, "--json"]).ok();
        let story: Value = serde_json::from_str(&story).expect("it is JSON");
        story["requests"][0]["outcome"].clone()
    };
    let expired = json!({ "is": "expired", "at": 60, "line": 9, "queue_timeout_us": 50 });
    assert_eq!(outcome("a2"), expired);
    assert_eq!(outcome("d1"), json!({ "is": "cancelled", "at": 65, "line": 14 }));
    let decision = json!({ "at": 63, "decision": "reject", "id": "p2", "reason": "no_worker" });
    let rejected =
        json!({ "is": "rejected", "line": 12, "decision": decision, "changed_worker": "w1" });
    assert_eq!(outcome("p2"), rejected);
    let granted = outcome("b1");
    assert_eq!(granted["first_token"], json!({ "at": 13, "line": 7 }));
    let books = json!({
        "score_tokens_per_weight": "1.000", "served_tokens": 100, "pending_tokens": 0,
        "got_tokens": 100, "due_tokens": 100, "bound_tokens": 250,
    });
    assert_eq!(granted["end"]["settled"][0]["after"], books);
    assert_eq!(outcome("a1")["end"], Value::Null);
}

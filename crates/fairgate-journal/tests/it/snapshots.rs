//! Tests of a first line with a pool's whole state: its exact form, and its errors.

use std::io::{self, Write};

use fairgate_core::Pool;
use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange};
use fairgate_core::snapshot::{NodeCounters, Snapshot};
use fairgate_core::units::{Micros, OverlapCredit};
use fairgate_journal::{JournalReader, JournalStart, JournalWriter, parse_policy};
use serde_json::Value;

/// A journal after which the pool's state has every field.
const JOURNAL: &str = r#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"drr":{"by":"class","classes":[{"name":"cached","quantum":2048,"queue":"wspt"},{"name":"batch","quantum":512,"inside":{"share":{"by":"tenant","weights":{"chat":500},"caps":{"api":3},"inside":{"load":{"by":"agent","auto_tune":true}}}}}]}},"max_queue":20,"queue_timeout_us":10000,"brownout_wait_us":7500,"workers":[{"name":"w0","requests_per_minute":600,"tokens_per_minute":1000,"burst_seconds":2},{"name":"w1","ranks":2,"slots":8,"taints":["zone-a"],"batch_tokens":8192,"tier":1,"tokens_per_minute":60000,"pause_until":1}],"busy_tokens":5000,"busy_fraction":1.5,"overlap_credit":0.5}}
{"at":1,"event":"submit","id":"r1","class":"batch","tenant":"chat","cost":700}
{"at":1,"event":"cap","by":"tenant","flow":"chat","slots":4}
{"at":1,"event":"cap","by":"group","flow":"prod"}
{"at":1,"event":"hold","by":"tenant","flow":"api"}
{"at":1,"event":"weight","by":"tenant","flow":"api","weight":700}
{"at":2,"event":"submit","id":"r2","class":"cached","input":3000,"cached":{"w0":512,"w1":2048},"pin":{"worker":"w1","rank":1},"allow":["w0","w1"],"requires":["zone-a"]}
{"at":3,"event":"submit","id":"r3","class":"batch","tenant":"api","agent":"a","cost":7,"priority":-1,"weight":1.25,"quota":8,"timeout_us":9000}
{"at":4,"event":"submit","id":"r4","class":"batch","tenant":"chat","cost":9}
{"at":5,"event":"release","id":"r1","tokens":812}
{"at":6,"event":"submit","id":"r5","cost":18446744073709551615}
"#;

/// The state of that pool, with every field that a snapshot can have.
const FULL: &str = r#"{"fairgate_journal":1,"snapshot":{"now_us":6,"ticks":1,"next_seq":5,"grants":3,"capacity":2,"policy":{"drr":{"by":"class","classes":[{"name":"cached","quantum":2048,"queue":"wspt"},{"name":"batch","quantum":512,"inside":{"share":{"by":"tenant","weights":{"chat":500},"caps":{"api":3},"inside":{"load":{"by":"agent","auto_tune":true}}}}}]}},"max_queue":20,"queue_timeout_us":10000,"brownout_wait_us":7500,"busy_tokens":5000,"busy_fraction":1.5,"overlap_credit":0.5,"holds":[{"by":"tenant","flow":"api"}],"weights":[{"by":"tenant","flow":"api","weight":700}],"caps":[{"by":"tenant","flow":"chat","slots":4,"cap_use":{"used_slot_us":"1","allowed_slot_us":"4"}},{"by":"group","flow":"prod","cap_use":{"used_slot_us":"0","allowed_slot_us":"0"}}],"workers":{"next_number":2,"list":[{"number":0,"name":"w0","state":"up","ranks":1,"taints":[],"tier":0,"requests_per_minute":600,"tokens_per_minute":1000,"burst_seconds":2,"pause_until":0,"requests_level":{"units":"1140003000","epoch":1},"tokens_level":{"units":"-46719995000","epoch":2},"epochs":2,"last_grants":[1]},{"number":1,"name":"w1","state":"up","ranks":2,"slots":8,"taints":["zone-a"],"batch_tokens":8192,"tier":1,"requests_per_minute":null,"tokens_per_minute":60000,"burst_seconds":10,"pause_until":1,"tokens_level":{"units":"542340240000","epoch":1},"epochs":1,"last_grants":[3,2]}]},"requests":[{"handle":1,"id":"r2","seq":1,"at":2,"tick":0,"cost":952,"input":3000,"cached_best_tokens":2048,"quota":952,"priority":0,"weight":1.0,"class":"cached","cached":{"w0":512,"w1":2048},"pin":{"worker":"w1","rank":1},"allow":["w0","w1"],"requires":["zone-a"],"timeout_us":10000,"flight":{"granted_at_us":2,"number":1,"prefill_tokens":952,"generations":[0],"place":{"worker_number":1,"rank":1},"taken":{"epoch":1,"units":"57120000000"}}},{"handle":2,"id":"r3","seq":2,"at":3,"tick":0,"cost":7,"input":7,"cached_best_tokens":0,"quota":8,"priority":-1,"weight":1.25,"class":"batch","tenant":"api","agent":"a","timeout_us":9000},{"handle":3,"id":"r4","seq":3,"at":4,"tick":0,"cost":9,"input":9,"cached_best_tokens":0,"quota":9,"priority":0,"weight":1.0,"class":"batch","tenant":"chat","timeout_us":10000,"flight":{"granted_at_us":5,"number":2,"prefill_tokens":9,"generations":[0,0,0],"place":{"worker_number":1,"rank":0},"taken":{"epoch":1,"units":"540000000"}}},{"handle":0,"id":"r5","seq":4,"at":6,"tick":1,"cost":18446744073709551615,"input":18446744073709551615,"cached_best_tokens":0,"quota":18446744073709551615,"priority":0,"weight":1.0,"timeout_us":10000}],"root":{"drr":{"cursor":1,"stayed":true,"classes":[{"deficit_tokens":"0","reached_tokens":"2047","meter":{"due":"4088808865792","floor":"4088808865792","got_tokens":"952","rise_tokens":"3000","fall_tokens":"0","worst_tokens":"3000"}},{"deficit_tokens":"503","reached_tokens":"511","meter":{"due":"3526168150016","floor":"3526168150016","got_tokens":"821","rise_tokens":"521","fall_tokens":"0","worst_tokens":"1324"}}],"meter":{"volume":"8883535872","carried":"0","widest":"11106516992"},"flows":{"batch":{"inside":{"share":{"virtual_time":"6975026888","rises":1,"moments":4,"meter":{"volume":"7052336299","carried":"0","widest":"6975026888"},"flows":{"api":{"share":{"base":"0","served_tokens":"0","pending_tokens":"0","generation":0,"moment":3,"new":true,"bound":{"fallen":"0","rise":0,"ended":"0"},"meter":{"due":"0","floor":"0","got_tokens":"0","rise_tokens":"0","fall_tokens":"0","worst_tokens":"0"},"cap_use":{"used_slot_us":"0","allowed_slot_us":"9"},"stopped":"0"},"inside":{"load":{"alpha":0.25,"history":["1250"],"flows":{"a":{"load":{"got_tokens":"0"}}}}}},"chat":{"share":{"base":"0","served_tokens":"812","pending_tokens":"9","generation":0,"moment":4,"new":false,"bound":{"fallen":"0","rise":1,"ended":"0"},"meter":{"due":"3526168149500","floor":"3526168149500","got_tokens":"821","rise_tokens":"9","fall_tokens":"0","worst_tokens":"812"},"cap_use":{"used_slot_us":"0","allowed_slot_us":"0"}},"inside":{"load":{"alpha":0.25,"history":["1000"],"flows":{"default":{"load":{"got_tokens":"821"}}}}}}}}}},"cached":{}}}}}}"#;

/// Reads a first line, and restores the pool.
fn pool_of(line: &str) -> Result<Pool, fairgate_journal::JournalError> {
    let (start, _) = JournalReader::open(line.as_bytes())?;
    start.into_pool()
}

fn snapshot_of(line: &str) -> Snapshot {
    match JournalReader::open(line.as_bytes()).unwrap().0 {
        JournalStart::Snapshot(snapshot) => *snapshot,
        JournalStart::Fresh(_) => panic!("a snapshot starts it"),
    }
}

/// Checks that [`FULL`] with one part replaced has exactly this error.
#[track_caller]
fn check(cases: &[(&str, &str, &str)]) {
    for (piece, other, expected) in cases {
        assert_eq!(FULL.matches(piece).count(), 1, "{piece} is not there once");
        let error = pool_of(&FULL.replace(piece, other)).expect_err(other);
        assert_eq!(error.to_string(), format!("line 1: field \"{expected}"), "for {other}");
        assert_eq!(error.line(), 1);
    }
}

/// Returns the first line of a journal that starts from this pool.
fn written(pool: &Pool) -> String {
    let mut writer = JournalWriter::new(Vec::new());
    writer.write_snapshot(&pool.snapshot()).unwrap();
    String::from_utf8(writer.into_inner()).unwrap()
}

#[test]
fn a_pool_comes_to_it() {
    let (start, mut reader) = JournalReader::open(JOURNAL.as_bytes()).unwrap();
    let mut pool = start.into_pool().unwrap();
    while let Some((at, event)) = reader.next_event().unwrap() {
        pool.apply(at, event, &mut Vec::new()).unwrap();
    }
    assert_eq!(written(&pool), format!("{FULL}\n"));
    assert_eq!(written(&pool_of(FULL).unwrap()), format!("{FULL}\n"));
}

#[test]
fn the_written_form() {
    let snapshot = snapshot_of(FULL);
    let mut writer = JournalWriter::new(Vec::new());
    writer.write_snapshot(&snapshot).unwrap();
    assert_eq!(String::from_utf8(writer.into_inner()).unwrap(), format!("{FULL}\n"));
    assert_eq!(pool_of(FULL).unwrap().snapshot(), snapshot);
    assert_eq!(&parse_policy(FULL).unwrap(), &snapshot.policy);
}

#[test]
fn it_is_a_pool_or_a_snapshot() {
    let pool = r#""pool":{"capacity":1,"policy":{"share":{"by":"tenant"}}}"#;
    check(&[
        (
            r#"{"fairgate_journal":1,"#,
            &format!(r#"{{"fairgate_journal":1,{pool},"#),
            r#"snapshot": pool and snapshot exclude each other"#,
        ),
        (
            r#"{"fairgate_journal":1,"snapshot""#,
            r#"{"fairgate_journal":1,"snapshot":7,"snapshot""#,
            r#"snapshot": must be an object, not 7"#,
        ),
        (r#"{"fairgate_journal":1,"#, "{", r#"fairgate_journal": is missing: not a journal"#),
    ]);
}

#[test]
fn unknown_and_missing_fields() {
    check(&[
        (
            r#""now_us":6,"#,
            r#""now_us":6,"then":5,"#,
            r#"snapshot.then": unknown; known here: now_us, ticks, next_seq, grants, capacity, policy, holds, weights, caps, requests, root, max_queue, queue_timeout_us, brownout_wait_us, busy_tokens, busy_fraction, overlap_credit, workers"#,
        ),
        (r#""now_us":6,"#, "", r#"snapshot.now_us": is missing"#),
        (r#""grants":3,"#, "", r#"snapshot.grants": is missing"#),
        (r#""holds":[{"by":"tenant","flow":"api"}],"#, "", r#"snapshot.holds": is missing"#),
        (
            r#"[{"by":"tenant","flow":"api"}]"#,
            r#"[{"by":"tenant"}]"#,
            r#"snapshot.holds[0].flow": is missing"#,
        ),
        (r#","weight":700}"#, "}", r#"snapshot.weights[0].weight": is missing"#),
        (
            r#""slots":4,"#,
            r#""slot":4,"#,
            r#"snapshot.caps[0].slot": unknown; known here: by, flow, cap_use, slots"#,
        ),
        (r#""next_number":2,"#, "", r#"snapshot.workers.next_number": is missing"#),
        (
            r#""state":"up","ranks":1"#,
            r#""ranks":1"#,
            r#"snapshot.workers.list[0].state": is missing"#,
        ),
        (r#","taints":[]"#, "", r#"snapshot.workers.list[0].taints": is missing"#),
        (r#""seq":2,"#, "", r#"snapshot.requests[1].seq": is missing"#),
        (r#""weight":1.25,"#, "", r#"snapshot.requests[1].weight": is missing"#),
        (
            r#""pin":{"worker":"w1","#,
            r#""pin":{"name":"w1","#,
            r#"snapshot.requests[0].pin.name": unknown; known here: worker, rank"#,
        ),
        (
            r#""number":2,"prefill_tokens""#,
            r#""prefill_tokens""#,
            r#"snapshot.requests[2].flight.number": is missing"#,
        ),
        (
            r#""worker_number":1,"rank":1"#,
            r#""worker":"w1","rank":1"#,
            r#"snapshot.requests[0].flight.place.worker": unknown; known here: worker_number, rank"#,
        ),
        (r#""stayed":true,"#, "", r#"snapshot.root.drr.stayed": is missing"#),
        (
            r#""reached_tokens":"511","#,
            "",
            r#"snapshot.root.drr.classes[1].reached_tokens": is missing"#,
        ),
        (r#""handle":2,"#, "", r#"snapshot.requests[1].handle": is missing"#),
        (r#""quota":8,"#, "", r#"snapshot.requests[1].quota": is missing"#),
        (r#""tier":1,"#, "", r#"snapshot.workers.list[1].tier": is missing"#),
        (
            r#""virtual_time":"6975026888","#,
            r#""virtual":"6975026888","#,
            r#"snapshot.root.drr.flows.batch.inside.share.virtual": unknown; known here: virtual_time, rises, moments, meter, flows"#,
        ),
        (
            r#""served_tokens":"812","#,
            "",
            r#"snapshot.root.drr.flows.batch.inside.share.flows.chat.share.served_tokens": is missing"#,
        ),
        (
            r#""cached":{}"#,
            r#""cached":{"fcfs":1}"#,
            r#"snapshot.root.drr.flows.cached.fcfs": unknown; known here: share, load, bands, inside"#,
        ),
        (
            r#""flows":{"a":{"load":{"got_tokens":"0"}}}"#,
            r#""flows":{"a":null}"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.api.inside.load.flows.a": must be an object, not null"#,
        ),
    ]);
}

/// A pool's state in the form of the first edition.
const FIRST_EDITION: &str = r#"{"fairgate_journal":1,"snapshot":{"now":5,"ticks":0,"next_seq":2,"grants":1,"capacity":1,"policy":{"drr":{"by":"class","classes":[{"name":"a","quantum":1}],"settle":true}},"holds":[],"weights":[],"caps":[{"by":"tenant","flow":"chat","slots":4}],"requests":[{"id":"r1","seq":0,"at":0,"tick":0,"cost":700,"input":700,"cached_best":0,"priority":0,"weight":1.0,"tenant":"chat","flight":{"granted_at":0,"number":0,"prefill":0,"generations":[0]}},{"id":"r2","seq":1,"at":5,"tick":0,"cost":900,"input":900,"cached_best":0,"priority":0,"weight":1.0,"tenant":"batch"}],"root":{"drr":{"cursor":0,"stayed":false,"deficits":[{"tokens":"0","least":"0","most":"2999"}],"flows":{"a":{}}}}}}"#;

/// A state of an earlier version is refused as a whole, with advice, wherever its time is in the
/// line.
#[test]
fn states_of_the_first_edition_are_refused() {
    let expected = r#"line 1: field "snapshot": is of the first edition, whose counters mean something else. Start with a new state file or journal: counters start at 0. The version that wrote this one can still read it"#;
    let last = FIRST_EDITION.replace(r#""now":5,"#, "").replace("}}}}}}", r#"}}}},"now":5}}"#);
    for line in [FIRST_EDITION, &last] {
        assert_eq!(pool_of(line).unwrap_err().to_string(), expected);
        assert_eq!(parse_policy(line).unwrap_err().to_string(), expected);
    }
}

/// The pool's state in the form of the second edition, without deadlines, last grants and overlap
/// credit.
const SECOND_EDITION: &str = r#"{"fairgate_journal":1,"snapshot":{"now_us":6,"ticks":1,"next_seq":5,"grants":3,"capacity":2,"policy":{"drr":{"by":"class","classes":[{"name":"cached","quantum":2048,"queue":"wspt"},{"name":"batch","quantum":512,"inside":{"share":{"by":"tenant","weights":{"chat":500},"caps":{"api":3},"inside":{"load":{"by":"agent","auto_tune":true}}}}}]}},"max_queue":20,"queue_timeout_us":10000,"brownout_wait_us":7500,"busy_tokens":5000,"busy_fraction":1.5,"holds":[{"by":"tenant","flow":"api"}],"weights":[{"by":"tenant","flow":"api","weight":700}],"caps":[{"by":"tenant","flow":"chat","slots":4,"cap_use":{"used_slot_us":"1","allowed_slot_us":"4"}},{"by":"group","flow":"prod","cap_use":{"used_slot_us":"0","allowed_slot_us":"0"}}],"workers":{"next_number":2,"list":[{"number":0,"name":"w0","state":"up","ranks":1,"taints":[],"tier":0,"requests_per_minute":600,"tokens_per_minute":1000,"burst_seconds":2,"pause_until":0,"requests_level":{"units":"1140003000","epoch":1},"tokens_level":{"units":"-46719995000","epoch":2},"epochs":2},{"number":1,"name":"w1","state":"up","ranks":2,"slots":8,"taints":["zone-a"],"batch_tokens":8192,"tier":1,"requests_per_minute":null,"tokens_per_minute":60000,"burst_seconds":10,"pause_until":1,"tokens_level":{"units":"542340240000","epoch":1},"epochs":1}]},"requests":[{"handle":1,"id":"r2","seq":1,"at":2,"tick":0,"cost":952,"input":3000,"cached_best_tokens":2048,"quota":952,"priority":0,"weight":1.0,"class":"cached","cached":{"w0":512,"w1":2048},"pin":{"worker":"w1","rank":1},"allow":["w0","w1"],"requires":["zone-a"],"flight":{"granted_at_us":2,"number":1,"prefill_tokens":952,"generations":[0],"place":{"worker_number":1,"rank":1},"taken":{"epoch":1,"units":"57120000000"}}},{"handle":2,"id":"r3","seq":2,"at":3,"tick":0,"cost":7,"input":7,"cached_best_tokens":0,"quota":8,"priority":-1,"weight":1.25,"class":"batch","tenant":"api","agent":"a"},{"handle":3,"id":"r4","seq":3,"at":4,"tick":0,"cost":9,"input":9,"cached_best_tokens":0,"quota":9,"priority":0,"weight":1.0,"class":"batch","tenant":"chat","flight":{"granted_at_us":5,"number":2,"prefill_tokens":9,"generations":[0,0,0],"place":{"worker_number":1,"rank":0},"taken":{"epoch":1,"units":"540000000"}}},{"handle":0,"id":"r5","seq":4,"at":6,"tick":1,"cost":18446744073709551615,"input":18446744073709551615,"cached_best_tokens":0,"quota":18446744073709551615,"priority":0,"weight":1.0}],"root":{"drr":{"cursor":1,"stayed":true,"classes":[{"deficit_tokens":"0","reached_tokens":"2047","meter":{"due":"4088808865792","floor":"4088808865792","got_tokens":"952","rise_tokens":"3000","fall_tokens":"0","worst_tokens":"3000"}},{"deficit_tokens":"503","reached_tokens":"511","meter":{"due":"3526168150016","floor":"3526168150016","got_tokens":"821","rise_tokens":"521","fall_tokens":"0","worst_tokens":"1324"}}],"meter":{"volume":"8883535872","carried":"0","widest":"11106516992"},"flows":{"batch":{"inside":{"share":{"virtual_time":"6975026888","rises":1,"moments":4,"meter":{"volume":"7052336299","carried":"0","widest":"6975026888"},"flows":{"api":{"share":{"base":"0","served_tokens":"0","pending_tokens":"0","generation":0,"moment":3,"new":true,"bound":{"fallen":"0","rise":0,"ended":"0"},"meter":{"due":"0","floor":"0","got_tokens":"0","rise_tokens":"0","fall_tokens":"0","worst_tokens":"0"},"cap_use":{"used_slot_us":"0","allowed_slot_us":"9"},"stopped":"0"},"inside":{"load":{"alpha":0.25,"history":["1250"],"flows":{"a":{"load":{"got_tokens":"0"}}}}}},"chat":{"share":{"base":"0","served_tokens":"812","pending_tokens":"9","generation":0,"moment":4,"new":false,"bound":{"fallen":"0","rise":1,"ended":"0"},"meter":{"due":"3526168149500","floor":"3526168149500","got_tokens":"821","rise_tokens":"9","fall_tokens":"0","worst_tokens":"812"},"cap_use":{"used_slot_us":"0","allowed_slot_us":"0"}},"inside":{"load":{"alpha":0.25,"history":["1000"],"flows":{"default":{"load":{"got_tokens":"821"}}}}}}}}}},"cached":{}}}}}}"#;

/// State files of the second edition are accepted. Every request gets the pool's timeout, no worker
/// has a last grant, and the overlap credit is the default.
#[test]
fn states_of_the_second_edition_are_taken_over() {
    let snapshot = snapshot_of(SECOND_EDITION);
    assert_eq!(snapshot.overlap_credit, OverlapCredit::DEFAULT);
    assert!(snapshot.requests.iter().all(|request| request.timeout.is_none()));
    assert!(snapshot.workers.iter().flat_map(|w| &w.list).all(|w| w.last_grants.is_empty()));
    let again = pool_of(SECOND_EDITION).unwrap().snapshot();
    assert!(again.requests.iter().all(|request| request.timeout == Some(Micros(10_000))));
    assert!(again.workers.iter().flat_map(|w| &w.list).all(|w| w.last_grants.is_empty()));
    // Who waits expires as it would have: r3 came at 3, r5 at 6.
    let mut pool = pool_of(SECOND_EDITION).unwrap();
    let mut expired = |at| {
        let mut decisions = Vec::new();
        pool.apply(Micros(at), Event::Tick, &mut decisions).unwrap();
        let id = |decision: &Decision| match decision {
            Decision::Expire { id, .. } => Some(id.to_string()),
            _ => None,
        };
        decisions.iter().filter_map(id).collect::<Vec<_>>()
    };
    assert_eq!(expired(10_002), Vec::<String>::new());
    assert_eq!(expired(10_003), ["r3"]);
    assert_eq!(expired(10_006), ["r5"]);
    // In a pool without a timeout they wait for ever.
    let patient = SECOND_EDITION.replace(r#""queue_timeout_us":10000,"#, "");
    let again = pool_of(&patient).unwrap().snapshot();
    assert!(again.requests.iter().all(|request| request.timeout.is_none()));
}

/// Invalid values of the fields that the third edition added.
#[test]
fn deadlines_and_last_grants() {
    check(&[
        (
            r#""timeout_us":9000"#,
            r#""timeout_us":null"#,
            r#"snapshot.requests[1].timeout_us": must be an integer of 0 or more, not null"#,
        ),
        (
            r#""timeout_us":9000"#,
            r#""timeout_us":-1"#,
            r#"snapshot.requests[1].timeout_us": must be an integer of 0 or more, not -1"#,
        ),
        (
            r#""overlap_credit":0.5"#,
            r#""overlap_credit":0.0005"#,
            r#"snapshot.overlap_credit": must have at most 3 decimals, not 0.0005"#,
        ),
        (
            r#""overlap_credit":0.5"#,
            r#""overlap_credit":1000.5"#,
            r#"snapshot.overlap_credit": must be 0 to 1000, not 1000.5"#,
        ),
        (
            r#""last_grants":[3,2]"#,
            r#""last_grants":[3,-2]"#,
            r#"snapshot.workers.list[1].last_grants[1]": must be an integer of 0 or more, not -2"#,
        ),
        (
            r#""last_grants":[3,2]"#,
            r#""last_grants":7"#,
            r#"snapshot.workers.list[1].last_grants": must be a list, not 7"#,
        ),
        (
            r#""last_grants":[3,2]"#,
            r#""last_grants":[3,4]"#,
            r#"snapshot.workers.list[1]": last_grants: must not be above grants"#,
        ),
        (
            r#""last_grants":[3,2]"#,
            r#""last_grants":[3,0]"#,
            r#"snapshot.workers.list[1]": last_grants: must end with a rank that had one"#,
        ),
    ]);
    let many = format!(r#""last_grants":[{}1]"#, "0,".repeat(65_536));
    check(&[(
        r#""last_grants":[3,2]"#,
        &many,
        r#"snapshot.workers.list[1]": last_grants: too many ranks"#,
    )]);
    pool_of(&FULL.replace(r#""last_grants":[3,2]"#, r#""last_grants":[0,0,0,3]"#)).unwrap();
}

/// The counters of a bands node, and their invalid values.
#[test]
fn bands_have_meters() {
    let pool = r#"{"bands":{"by":"class","classes":[{"name":"a","cap":2},{"name":"b"}]}}"#;
    let band = |got: &str, used: &str| {
        let cap_use = format!(r#"{{"used_slot_us":"{used}","allowed_slot_us":"9"}}"#);
        format!(r#""bands":{{"got_tokens":"{got}","cap_use":{cap_use}}}"#)
    };
    let with =
        |flow: &str| line(pool, "", &format!(r#"{{"bands":{{"flows":{{"a":{{{flow}}}}}}}}}"#));
    let good = with(&band("-5", "3"));
    let snapshot = snapshot_of(&good);
    assert_eq!(snapshot.root.state, NodeCounters::Bands);
    assert_eq!(snapshot.root.flows[0].band.map(|band| band.got), Some(-5));
    assert_eq!(written(&pool_of(&good).unwrap()), format!("{good}\n"));
    let field = "root.bands.flows";
    let far = (1u128 << 120).to_string();
    for (flow, error) in [
        (
            r#""load":{"got_tokens":"0"}"#.into(),
            "a\": its counters are of another kind than its node",
        ),
        (String::new(), "a\": its counters are of another kind than its node"),
        (band(&far, "0"), "a\": got: must be within 2^120"),
        (r#""bands":{}"#.into(), "a.bands.got_tokens\": is missing"),
        (r#""bands":{"got_tokens":"1"}"#.into(), "a.bands.cap_use\": is missing"),
        (
            r#""bands":{"weight":1}"#.into(),
            "a.bands.weight\": unknown; known here: got_tokens, cap_use",
        ),
    ] {
        refused(&with(&flow), &format!("{field}.{error}"));
    }
    let other =
        line(pool, "", &format!(r#"{{"bands":{{"flows":{{"c":{{{}}}}}}}}}"#, band("0", "0")));
    refused(&other, &format!("{field}.c\": no class is called so"));
    let load = line(pool, "", r#"{"load":{"alpha":0.25,"history":[],"flows":{}}}"#);
    refused(&load, "root\": its counters are of another kind than its policy");
    refused(
        &line(pool, "", r#"{"bands":{"flows":{},"cursor":0}}"#),
        "root.bands.cursor\": unknown; known here: flows",
    );
    refused(&line(pool, "", r#"{"bands":{}}"#), "root.bands.flows\": is missing");
}

/// The error for a policy with the removed field `settle` gives advice.
#[test]
fn policies_with_settle_are_refused() {
    check(&[(
        r#""auto_tune":true}}}}}]}}"#,
        r#""auto_tune":true}}}}}],"settle":true}}"#,
        r#"snapshot.policy.drr.settle": was removed: it did not make real usage follow the quanta. Where usage must follow weights, use {"share":{"by":…,"classes":[{"name":…,"weight":…},…]}}; for drr by stated costs, leave settle out"#,
    )]);
}

/// The fields that may be absent, by the last object and name of their paths.
const OPTIONAL: &[&str] = &[
    "snapshot.max_queue",
    "snapshot.queue_timeout_us",
    "snapshot.brownout_wait_us",
    "snapshot.busy_tokens",
    "snapshot.busy_fraction",
    "snapshot.overlap_credit",
    "snapshot.workers",
    "caps.slots",
    "list.slots",
    "list.batch_tokens",
    "list.requests_level",
    "list.tokens_level",
    "list.last_grants",
    "requests.class",
    "requests.tenant",
    "requests.agent",
    "requests.cached",
    "requests.pin",
    "requests.allow",
    "requests.requires",
    "requests.timeout_us",
    "requests.flight",
    "pin.rank",
    "flight.generations",
    "flight.place",
    "flight.taken",
    "share.stopped",
];

/// Visits every object of a JSON value outside the policy, with its path and the name of the
/// containing field.
fn visit(value: &Value, path: &str, within: &str, each: &mut impl FnMut(&str, &str)) {
    match value {
        Value::Object(fields) => {
            each(path, within);
            for (name, value) in fields.iter().filter(|(name, _)| *name != "policy") {
                visit(value, &format!("{path}/{name}"), name, each);
            }
        }
        Value::Array(elements) => {
            for (i, element) in elements.iter().enumerate() {
                visit(element, &format!("{path}/{i}"), within, each);
            }
        }
        _ => {}
    }
}

/// A snapshot is refused if any required field is missing or an unknown field is added. The order
/// of fields does not matter.
#[test]
fn every_field_is_needed_and_no_other() {
    let full: Value = serde_json::from_str(FULL).unwrap();
    let error_of = |value: &Value| {
        let read = JournalReader::open(value.to_string().as_bytes()).map(drop);
        read.err().map(|error| error.to_string())
    };
    assert_eq!(error_of(&full), None);
    let mut optional = std::collections::BTreeSet::new();
    visit(&full, "", "", &mut |path, within| {
        let names = full.pointer(path).unwrap().as_object().unwrap();
        // The names in these are flows and workers.
        let free = ["flows", "cached"].contains(&within) && !path.ends_with("flows/cached");
        for name in names.keys().filter(|name| !free && *name != "policy") {
            let mut less = full.clone();
            less.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(name);
            match error_of(&less) {
                None => _ = optional.insert(format!("{within}.{name}")),
                Some(error) => assert!(
                    error.contains("is missing") || error.contains("must be one of drr"),
                    "without {path}/{name}: {error}"
                ),
            }
        }
        let mut more = full.clone();
        let fields = more.pointer_mut(path).unwrap().as_object_mut().unwrap();
        fields.insert("zzz".into(), Value::Null);
        let error = error_of(&more).unwrap_or_else(|| panic!("with {path}/zzz: no error"));
        assert!(error.contains("zzz\": "), "with {path}/zzz: {error}");
    });
    // Whether a flow has counters, and a node inside, is as its policy says.
    let by_policy = [
        "batch.inside",
        "api.share",
        "api.inside",
        "chat.share",
        "chat.inside",
        "a.load",
        "default.load",
    ];
    let expected = OPTIONAL.iter().chain(&by_policy).map(|name| name.to_string()).collect();
    assert_eq!(optional, expected);
}

#[test]
fn fields_given_twice() {
    check(&[
        (r#""now_us":6,"#, r#""now_us":6,"now_us":6,"#, r#"snapshot.now_us": given twice"#),
        (
            r#"[{"by":"tenant","flow":"api"}]"#,
            r#"[{"by":"tenant","flow":"api"},{"by":"key","flow":"api"},{"by":"tenant","flow":"\u0061pi"}]"#,
            r#"snapshot.holds": tenant "api" is listed twice"#,
        ),
        (
            r#"{"by":"group","flow":"prod","#,
            r#"{"by":"group","flow":"prod","cap_use":{"used_slot_us":"0","allowed_slot_us":"0"}},{"by":"group","flow":"prod","#,
            r#"snapshot.caps": group "prod" is listed twice"#,
        ),
        (
            r#""weight":700}"#,
            r#""weight":700},{"by":"tenant","flow":"api","weight":701}"#,
            r#"snapshot.weights": tenant "api" is listed twice"#,
        ),
        (
            r#""tenant":"api","agent""#,
            r#""tenant":"api","tenant":"api","agent""#,
            r#"snapshot.requests[1].tenant": given twice"#,
        ),
        (r#"{"w0":512,"#, r#"{"w1":512,"#, r#"snapshot.requests[0].cached.w1": given twice"#),
        (
            r#""flows":{"a":{"load":{"got_tokens":"0"}}}"#,
            r#""flows":{"a":{},"b":{},"a":{}}"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.api.inside.load.flows.a": given twice"#,
        ),
        (
            r#""inside":{"load":{"alpha":0.25,"history":["1000"]"#,
            r#""inside":{"drr":{"cursor":0,"stayed":true,"classes":[],"meter":{"volume":"0","carried":"0","widest":"0"},"flows":{}},"load":{"alpha":0.25,"history":["1000"]"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.chat.inside.load": a node is only one of drr, share, load, bands"#,
        ),
        (
            r#""inside":{"load":{"alpha":0.25,"history":["1000"],"flows":{"default":{"load":{"got_tokens":"821"}}}}}"#,
            r#""inside":{}"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.chat.inside": a node must be one of drr, share, load, bands"#,
        ),
    ]);
}

#[test]
fn wide_counters_are_text() {
    let served = |other: &str, found: &str| {
        let field = "snapshot.root.drr.flows.batch.inside.share.flows.chat.share.served_tokens";
        let expected = format!(
            "{field}\": must be an integer of 0 or more of at most 128 bits, as text, not {found}"
        );
        let piece = r#""served_tokens":"812""#;
        check(&[(piece, &format!("\"served_tokens\":{other}"), &expected)]);
    };
    served("812", "812");
    served("null", "null");
    for wrong in ["", "-1", "+1", "-0", "01", "1.0", "1e3", " 1", "1 ", "0x1", "1_000", "٣"] {
        served(&format!("\"{wrong}\""), &format!("the text \"{wrong}\""));
    }
    let too_wide = "340282366920938463463374607431768211456";
    served(&format!("\"{too_wide}\""), &format!("the text \"{too_wide}\""));
    let long = "9".repeat(1 << 20);
    served(&format!("\"{long}\""), &format!("the text \"{}…\"", "9".repeat(60)));
    let volume = |other: &str| {
        let expected = format!(
            r#"snapshot.root.drr.meter.volume": must be an integer of at most 128 bits, as text, not the text "{other}""#
        );
        let piece = r#""volume":"8883535872""#;
        check(&[(piece, &format!("\"volume\":\"{other}\""), &expected)]);
    };
    volume("-0");
    volume("--1");
    volume("-");
    volume("-170141183460469231731687303715884105729");
    pool_of(&FULL.replace(r#""volume":"8883535872""#, r#""volume":"\u0033""#)).unwrap();
}

#[test]
fn other_values_out_of_range() {
    check(&[
        (
            r#""now_us":6,"#,
            r#""now_us":18446744073709551616,"#,
            r#"snapshot.now_us": must be an integer from 0 to 18446744073709551615, not 18446744073709551616"#,
        ),
        (
            r#""cursor":1"#,
            r#""cursor":4294967296"#,
            r#"snapshot.root.drr.cursor": must be an integer from 0 to 4294967295, not 4294967296"#,
        ),
        (
            r#""ranks":1,"#,
            r#""ranks":65537,"#,
            r#"snapshot.workers.list[0].ranks": must be an integer from 0 to 65536, not 65537"#,
        ),
        (
            r#""generations":[0],"#,
            r#""generations":[-1],"#,
            r#"snapshot.requests[0].flight.generations[0]": must be an integer of 0 or more, not -1"#,
        ),
        (
            r#""alpha":0.25,"history":["1000"]"#,
            r#""alpha":1.5,"history":["1000"]"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.chat.inside.load.alpha": must be 0 to 1, not 1.5"#,
        ),
        (
            r#""by":"tenant","weights":{"chat":500}"#,
            r#""by":"tenant","weights":{"chat":0}"#,
            r#"snapshot.policy.drr.classes[1].inside.share.weights.chat": must be an integer of 1 or more, not 0"#,
        ),
    ]);
}

#[test]
fn snapshots_that_describe_no_pool() {
    check(&[
        (r#""ticks":1,"#, r#""ticks":17592186044416,"#, r#"snapshot.ticks": must be below 2^44"#),
        (r#""id":"r3""#, r#""id":"r2""#, r#"snapshot.requests[1].id": is there twice"#),
        (
            r#""number":1,"name":"w1""#,
            r#""number":0,"name":"w1""#,
            r#"snapshot.workers.list[1]": numbers must rise from worker to worker"#,
        ),
        (
            r#""generations":[0],"#,
            r#""generations":[],"#,
            r#"snapshot.requests[0].flight.generations": one for each level"#,
        ),
        (r#""cursor":1"#, r#""cursor":2"#, r#"snapshot.root": cursor: there is no such class"#),
    ]);
    let odd = pool_of(&FULL.replace(r#""cached":{}"#, r#""\"\n":{}"#)).unwrap_err();
    assert_eq!(odd.field(), Some(r#"snapshot.root.drr.flows.\"\n"#));
    let long = format!("\"{}\":{{}}", "x".repeat(1 << 20));
    let long = pool_of(&FULL.replace(r#""cached":{}"#, &long)).unwrap_err();
    assert!(long.to_string().len() < 2000, "{}", long.to_string().len());
}

/// Returns the first line of a pool with these requests, this policy and these counters.
fn line(policy: &str, requests: &str, root: &str) -> String {
    format!(
        r#"{{"fairgate_journal":1,"snapshot":{{"now_us":0,"ticks":6,"next_seq":9,"grants":1,"capacity":0,"policy":{policy},"holds":[],"weights":[],"caps":[],"requests":[{requests}],"root":{root}}}}}"#
    )
}

/// Returns a request of such a pool.
fn request(seq: u64, tick: u64, more: &str) -> String {
    format!(
        r#"{{"handle":{seq},"id":"r{seq}","seq":{seq},"at":0,"tick":{tick},"cost":5,"input":5,"cached_best_tokens":0,"quota":5,"priority":0,"weight":1,{more}}}"#
    )
}

#[track_caller]
fn refused(line: &str, expected: &str) {
    let error = pool_of(line).expect_err(expected);
    assert_eq!(error.to_string(), format!("line 1: field \"snapshot.{expected}"));
}

/// The meter of a flow that got no service.
const NO_METER: &str = r#"{"due":"0","floor":"0","got_tokens":"0","rise_tokens":"0","fall_tokens":"0","worst_tokens":"0"}"#;

/// Returns the first line of a pool with a drr node, with these values of deficit and reached
/// credit. In class `a` a request waits, in class `b` none does.
fn credit(a: [&str; 2], b: [&str; 2]) -> String {
    let policy =
        r#"{"drr":{"by":"class","classes":[{"name":"a","quantum":1},{"name":"b","quantum":1}]}}"#;
    let class = |[deficit, reached]: [&str; 2]| {
        format!(
            r#"{{"deficit_tokens":"{deficit}","reached_tokens":"{reached}","meter":{NO_METER}}}"#
        )
    };
    let (a, b) = (class(a), class(b));
    let root = format!(
        r#"{{"drr":{{"cursor":0,"stayed":true,"classes":[{a},{b}],"meter":{{"volume":"0","carried":"0","widest":"0"}},"flows":{{"a":{{}}}}}}}}"#
    );
    line(policy, &request(0, 0, r#""class":"a""#), &root)
}

#[test]
fn credit_is_within_its_bounds() {
    let none = ["0", "0"];
    let largest = "36893488147419103231";
    for a in [none, ["7", "7"], ["7", "9"], [largest, largest]] {
        pool_of(&credit(a, none)).unwrap();
    }
    let range = r#"root": classes: credit must be below 2^65"#;
    let over = "36893488147419103232";
    refused(&credit([over, over], none), range);
    refused(&credit(none, ["0", over]), range);
    let bound = r#"root": classes: deficit is more than reached"#;
    refused(&credit(["10", "9"], none), bound);
    refused(&credit(none, ["1000000", "0"]), bound);
    let idle = r#"root": classes: there is credit where nothing waits"#;
    refused(&credit(none, ["1000000", "1000000"]), idle);
    refused(&credit(none, ["1", "1"]), idle);
    // A cost is covered before it is charged: no class ever owes anything.
    let error = pool_of(&credit(["-1", "0"], none)).expect_err("a debt");
    assert_eq!(error.field(), Some("snapshot.root.drr.classes[0].deficit_tokens"));
}

/// In the order of seq, requests are also in the order of time and tick. Expiry and the rule for
/// late requests depend on it.
#[test]
fn times_do_not_fall() {
    let policy = r#"{"load":{"by":"agent","alpha":1,"max_wait_ticks":3}}"#;
    let root = r#"{"load":{"alpha":1,"history":[],"flows":{"a":{"load":{"got_tokens":"0"}},"b":{"load":{"got_tokens":"-1"}}}}}"#;
    let requests = |ticks: [u64; 2]| {
        let [a, b] = ticks;
        request(0, a, r#""agent":"a""#) + "," + &request(1, b, r#""agent":"b""#)
    };
    pool_of(&line(policy, &requests([0, 5]), root)).unwrap();
    let falls = r#"requests[1]": tick must not fall from request to request"#;
    refused(&line(policy, &requests([5, 0]), root), falls);
    check(&[
        (
            r#""seq":2,"at":3,"#,
            r#""seq":2,"at":1,"#,
            r#"snapshot.requests[1]": at must not fall from request to request"#,
        ),
        (
            r#""seq":3,"at":4,"#,
            r#""seq":3,"at":2,"#,
            r#"snapshot.requests[2]": at must not fall from request to request"#,
        ),
        (
            r#""seq":2,"at":3,"tick":0,"#,
            r#""seq":2,"at":3,"tick":1,"#,
            r#"snapshot.requests[2]": tick must not fall from request to request"#,
        ),
    ]);
}

#[test]
fn flows_with_requests_are_listed() {
    let policy = r#"{"share":{"by":"tenant"}}"#;
    let root = r#"{"share":{"virtual_time":"4294967296000000","rises":0,"moments":0,"meter":{"volume":"0","carried":"0","widest":"0"},"flows":{}}}"#;
    pool_of(&line(policy, "", root)).unwrap();
    let missing = r#"root.share.flows.x": is missing, but has requests"#;
    refused(&line(policy, &request(0, 0, r#""tenant":"x""#), root), missing);
    for generations in ["", r#","generations":[0]"#] {
        let flight = format!(
            r#""tenant":"x","flight":{{"granted_at_us":0,"number":0,"prefill_tokens":0{generations}}}"#
        );
        refused(&line(policy, &request(0, 0, &flight), root), missing);
    }
    check(&[
        (
            r#""flows":{"a":{"load":{"got_tokens":"0"}}}"#,
            r#""flows":{"b":{"load":{"got_tokens":"0"}}}"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.api.inside.load.flows.a": is missing, but has requests"#,
        ),
        (
            r#""flows":{"default":{"load":{"got_tokens":"821"}}}"#,
            r#""flows":{}"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.chat.inside.load.flows.default": is missing, but has requests"#,
        ),
        (
            r#","cached":{}}"#,
            "}",
            r#"snapshot.root.drr.flows.cached": is missing, but has requests"#,
        ),
    ]);
}

#[test]
fn share_counters_are_in_range() {
    let share = r#"snapshot.root.drr.flows.batch.inside.share"#;
    let chat = format!("{share}.flows.chat");
    let tokens = format!("{chat}\": served and pending: must be below 2^88");
    let (edge, over) = ("309485009821345068724781055", "309485009821345068724781056");
    let with = |served: &str| {
        FULL.replace(r#""served_tokens":"812""#, &format!("\"served_tokens\":\"{served}\""))
    };
    pool_of(&with(edge)).unwrap();
    let score = "1329227995784915872903807060280344576";
    check(&[
        (r#""served_tokens":"812""#, &format!(r#""served_tokens":"{over}""#), &tokens),
        (r#""pending_tokens":"9""#, &format!(r#""pending_tokens":"{over}""#), &tokens),
        (
            r#""base":"0","served_tokens":"812""#,
            &format!(r#""base":"{score}","served_tokens":"812""#),
            &format!("{chat}\": base and bound: must be below 2^120"),
        ),
        (
            r#""virtual_time":"6975026888""#,
            &format!(r#""virtual_time":"{score}""#),
            r#"snapshot.root.drr.flows.batch.inside": virtual_time: must be below 2^120"#,
        ),
    ]);
}

#[test]
fn handles_are_given_once() {
    check(&[
        (r#""handle":2,"#, r#""handle":1,"#, r#"snapshot.requests[1].handle": is there twice"#),
        (
            r#""handle":2,"#,
            r#""handle":67108864,"#,
            r#"snapshot.requests[1].handle": must be below 2^26"#,
        ),
        (
            r#""handle":2,"#,
            r#""handle":4294967296,"#,
            r#"snapshot.requests[1].handle": must be an integer from 0 to 4294967295, not 4294967296"#,
        ),
    ]);
    // The next request has the lowest handle that is free.
    let mut pool = pool_of(&FULL.replace(r#""handle":2,"#, r#""handle":67108863,"#)).unwrap();
    let submit = Event::Submit(Box::new(Submit::new("r6")));
    pool.apply(Micros(6), submit, &mut Vec::new()).unwrap();
    let handles: Vec<u32> = pool.snapshot().requests.iter().map(|r| r.handle).collect();
    assert_eq!(handles, [1, 67_108_863, 3, 0, 2]);
}

#[test]
fn rates_have_levels() {
    let (first, second) = ("snapshot.workers.list[0]\": ", "snapshot.workers.list[1]\": ");
    let level = r#""requests_level":{"units":"1140003000","epoch":1},"#;
    let bounds = format!("{first}a level is out of its bounds");
    let units = |units: &str| level.replace("1140003000", units);
    check(&[
        (level, "", &format!("{first}a rate has a level")),
        (
            r#""requests_per_minute":null"#,
            r#""requests_per_minute":1"#,
            &format!("{second}a rate has a level"),
        ),
        (
            r#""tokens_per_minute":60000"#,
            r#""tokens_per_minute":null"#,
            &format!("{second}a rate has a level"),
        ),
        // Two seconds of 600 a minute, and a minute of debt.
        (level, &units("1200000001"), &bounds),
        (level, &units("-36000000001"), &bounds),
        (
            level,
            &level.replace(r#""epoch":1"#, r#""epoch":3"#),
            &format!("{first}a level's epoch is one of its worker's"),
        ),
        (
            r#""epochs":2"#,
            r#""epochs":9223372036854775808"#,
            &format!("{first}epochs: must be below 2^63"),
        ),
        (
            r#""units":"540000000""#,
            r#""units":"1329227995784915872903807060280344576""#,
            r#"snapshot.requests[2].flight.taken": must be between -2^120 and 2^120"#,
        ),
    ]);
    pool_of(&FULL.replace(level, &units("1200000000"))).unwrap();
    pool_of(&FULL.replace(level, &units("-36000000000"))).unwrap();
}

#[test]
fn meters_and_moments_are_in_range() {
    let share = "snapshot.root.drr.flows.batch.inside";
    let (api, chat) = (format!("{share}.share.flows.api"), format!("{share}.share.flows.chat"));
    let over = "1329227995784915872903807060280344576";
    let wide = |name: &str| format!(r#""{name}":"{over}""#);
    let meter = "meter: must be within 2^120";
    let steps = "meter: rise, fall and worst must be below 2^64";
    check(&[
        (r#""moments":4"#, r#""moments":3"#, &format!("{chat}\": moment: is after the node's")),
        (
            r#""moments":4"#,
            r#""moments":9223372036854775808"#,
            &format!("{share}\": moments: must be below 2^63"),
        ),
        (
            r#""rises":1"#,
            r#""rises":9223372036854775808"#,
            &format!("{share}\": rises: must be below 2^63"),
        ),
        (
            r#""stopped":"0""#,
            r#""stopped":"6975026889""#,
            &format!("{api}\": stopped: is after virtual time"),
        ),
        (r#""volume":"8883535872""#, &wide("volume"), &format!("snapshot.root\": {meter}")),
        (r#""widest":"6975026888""#, &wide("widest"), &format!("{share}\": {meter}")),
        (r#""due":"4088808865792""#, &wide("due"), &format!("snapshot.root\": {meter}")),
        (r#""due":"3526168149500""#, &wide("due"), &format!("{chat}\": {meter}")),
        (r#""rise_tokens":"9""#, &wide("rise_tokens"), &format!("{chat}\": {steps}")),
        (
            r#""fall_tokens":"0","worst_tokens":"812""#,
            &format!(r#"{},"worst_tokens":"812""#, wide("fall_tokens")),
            &format!("{chat}\": {steps}"),
        ),
        (
            r#""carried":"0","widest":"6975026888""#,
            &format!(r#"{},"widest":"6975026888""#, wide("carried")),
            &format!("{share}\": {meter}"),
        ),
        (
            r#""load":{"got_tokens":"821"}"#,
            &format!(r#""load":{{{}}}"#, wide("got_tokens")),
            &format!("{chat}.inside.load.flows.default\": got: must be within 2^120"),
        ),
        (
            r#""used_slot_us":"1""#,
            r#""used_slot_us":"170141183460469231731687303715884105728""#,
            r#"snapshot.caps[0]": cap_use: must be below 2^127"#,
        ),
        (
            r#""allowed_slot_us":"9""#,
            r#""allowed_slot_us":"170141183460469231731687303715884105728""#,
            &format!("{api}\": cap_use: must be below 2^127"),
        ),
        (
            r#""cached":{}"#,
            r#""cached":{"load":{"got_tokens":"0"}}"#,
            r#"snapshot.root.drr.flows.cached": its counters are of another kind than its node"#,
        ),
    ]);
}

#[test]
fn pending_is_what_is_in_flight() {
    let chat = "snapshot.root.drr.flows.batch.inside.share.flows.chat";
    let pending = format!(
        "{chat}\": pending: must be the costs of its requests in flight of this generation"
    );
    let api = pending.replace("chat", "api");
    let later = format!("{chat}\": generation: a request of it in flight is of a later one");
    let (present, older) =
        (r#""pending_tokens":"9","generation":0"#, r#""pending_tokens":"9","generation":1"#);
    let flight = r#""generations":[0,0,0],"#;
    check(&[
        (r#""pending_tokens":"9""#, r#""pending_tokens":"8""#, &pending),
        (r#""pending_tokens":"9""#, r#""pending_tokens":"10""#, &pending),
        (r#""pending_tokens":"0""#, r#""pending_tokens":"1""#, &api),
        (present, older, &pending),
        (flight, "", &pending),
        (flight, r#""generations":[0,1,0],"#, &later),
    ]);
    let nothing = older.replace('9', "0");
    pool_of(&FULL.replace(present, &nothing)).unwrap();
    pool_of(&FULL.replace(present, &nothing).replace(flight, "")).unwrap();
}

#[test]
fn history_is_short() {
    let with = |totals: usize, total: &str| {
        let totals = vec![format!("\"{total}\""); totals].join(",");
        FULL.replace(r#""history":["1250"]"#, &format!(r#""history":[{totals}]"#))
    };
    let node = "root.drr.flows.batch.inside.share.flows.api.inside";
    pool_of(&with(10, "79228162514264337593543950335")).unwrap();
    refused(&with(11, "0"), &format!("{node}\": history: has too many totals"));
    let over = with(1, "79228162514264337593543950336");
    refused(&over, &format!("{node}\": history: its totals must be below 2^96"));
}

#[test]
fn workers_have_come_before_their_requests() {
    let policy = r#"{"share":{"by":"tenant"}}"#;
    let root = r#"{"share":{"virtual_time":"0","rises":0,"moments":0,"meter":{"volume":"0","carried":"0","widest":"0"},"flows":{}}}"#;
    let flight = r#""flight":{"granted_at_us":0,"number":0,"prefill_tokens":5,"place":{"worker_number":0,"rank":0}}"#;
    refused(
        &line(policy, &request(0, 0, flight), root),
        r#"requests[0].flight.place": its worker has not come yet"#,
    );
    let workers = |next: u64| {
        let workers = format!(
            r#""requests":[],"workers":{{"next_number":{next},"list":[{{"number":0,"name":"old","state":"up","ranks":1,"taints":[],"tier":0,"requests_per_minute":null,"tokens_per_minute":null,"burst_seconds":10,"pause_until":0,"epochs":0,"slots":1}}]}}"#
        );
        line(policy, "", root).replace(r#""requests":[]"#, &workers)
    };
    pool_of(&workers((1 << 31) - 1)).unwrap();
    for next in [1 << 31, u64::from(u32::MAX)] {
        refused(&workers(next), r#"workers.next_number": must be below 2^31"#);
    }
}

#[test]
fn events_do_not_come_before_the_snapshot() {
    let event = |at: u64| {
        let journal = format!("{FULL}\n{{\"at\":{at},\"event\":\"tick\"}}\n");
        let (_, mut reader) = JournalReader::open(journal.as_bytes()).unwrap();
        reader.next_event().map_err(|error| error.to_string())
    };
    assert_eq!(event(6).unwrap(), Some((Micros(6), Event::Tick)));
    let error = event(5).unwrap_err();
    assert_eq!(error, r#"line 2: field "at": time goes back: 5 after 6"#);
}

#[test]
fn nesting_is_bounded() {
    let root = FULL.find(r#""root":"#).unwrap() + r#""root":"#.len();
    let (open, close) = (
        r#"{"share":{"virtual_time":"0","rises":0,"moments":0,"meter":{"volume":"0","carried":"0","widest":"0"},"flows":{"a":{"inside":"#,
        "}}}}",
    );
    let deep = |n: usize| {
        let leaf = r#"{"load":{"alpha":0.0,"history":[],"flows":{}}}"#;
        let tree = format!("{}{leaf}{}", open.repeat(n), close.repeat(n));
        pool_of(&format!("{}{tree}}}}}", &FULL[..root])).unwrap_err().to_string()
    };
    // As deep as the deepest policy: read, and then compared with the policy.
    assert!(deep(63).ends_with("its counters are of another kind than its policy"));
    assert!(deep(127).ends_with(": nested deeper than 512 levels"), "{}", deep(127));
    assert!(deep(10_000).ends_with(": nested deeper than 512 levels"));
}

/// Returns a pool in which this number of requests waits, each of another tenant.
fn crowded(waiting: usize) -> Pool {
    let policy = parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap();
    let mut pool = Pool::new(PoolConfig::new(0, policy));
    for i in 0..waiting {
        let mut submit = Submit::new(&format!("r{i}"));
        submit.attributes =
            submit.attributes.with(fairgate_core::attribute::Attribute::Tenant, &format!("t{i}"));
        pool.apply(Micros(0), Event::Submit(Box::new(submit)), &mut Vec::new()).unwrap();
    }
    pool
}

#[test]
fn it_is_passed_on_in_parts() {
    #[derive(Default)]
    struct Parts(Vec<Vec<u8>>);
    impl Write for Parts {
        fn write(&mut self, part: &[u8]) -> io::Result<usize> {
            self.0.push(part.into());
            Ok(part.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let snapshot = crowded(5000).snapshot();
    let mut writer = JournalWriter::new(Parts::default());
    writer.write_snapshot(&snapshot).unwrap();
    let Parts(parts) = writer.into_inner();
    assert!(parts.len() > 10);
    assert!(parts.iter().all(|part| part.len() < 70_000));
    assert_eq!(snapshot_of(std::str::from_utf8(&parts.concat()).unwrap()), snapshot);
}

#[test]
fn a_full_disk_is_an_error_and_the_next_line_is_whole() {
    /// Writer that accepts a limited number of writes.
    struct Full(Vec<u8>, usize);
    impl Write for Full {
        fn write(&mut self, part: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            if self.1 == 2 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.extend(part);
            Ok(part.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = JournalWriter::new(Full(Vec::new(), 0));
    let error = writer.write_snapshot(&crowded(5000).snapshot()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    writer.write_event(Micros(1), &Event::Tick).unwrap();
    let Full(written, _) = writer.into_inner();
    assert!(written.ends_with(b"{\"at\":1,\"event\":\"tick\"}\n"));
}

#[test]
fn workers_state_all_they_are() {
    let mut snapshot = snapshot_of(FULL);
    let stated = snapshot.workers.as_ref().unwrap().list[1].settings.clone();
    let less: [fn(&mut WorkerChange); 10] = [
        |worker| worker.state = None,
        |worker| worker.ranks = None,
        |worker| worker.taints = None,
        |worker| worker.tier = None,
        |worker| worker.requests_per_minute = None,
        |worker| worker.tokens_per_minute = None,
        |worker| worker.burst_seconds = None,
        |worker| worker.pause_until = None,
        // These are for events: a snapshot has levels.
        |worker| worker.requests_remaining = Some(1),
        |worker| worker.tokens_remaining = Some(1),
    ];
    for change in less {
        let said = &mut snapshot.workers.as_mut().unwrap().list[1].settings;
        *said = stated.clone();
        change(said);
        let mut writer = JournalWriter::new(Vec::new());
        let error = writer.write_snapshot(&snapshot).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert_eq!(error.to_string(), r#"worker "w1" of a snapshot must state all it is"#);
        assert!(writer.into_inner().is_empty());
    }
}

//! The first line that holds a pool's whole state: its exact form, and what is refused with which words.
#![allow(clippy::unwrap_used)]

use std::io::{self, Write};

use fairgate_core::Pool;
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::Micros;
use fairgate_journal::{Reader, Start, Writer, parse_policy};
use serde_json::Value;

/// What there is to say about a pool, all of it.
const FULL: &str = r#"{"fairgate_journal":1,"snapshot":{"now":6,"ticks":1,"next_seq":5,"grants":3,"capacity":2,"policy":{"drr":{"by":"class","classes":[{"name":"cached","quantum":2048,"queue":"wspt"},{"name":"batch","quantum":512,"inside":{"share":{"by":"tenant","weights":{"chat":500},"inside":{"load":{"by":"agent","auto_tune":true}}}}}],"settle":true}},"max_queue":20,"queue_timeout_us":10000,"brownout_wait_us":7500,"busy_tokens":5000,"busy_fraction":1.5,"holds":[{"by":"tenant","flow":"api"}],"weights":[{"by":"tenant","flow":"api","weight":700}],"caps":[{"by":"tenant","flow":"chat","slots":4},{"by":"group","flow":"prod"}],"workers":{"next_number":2,"list":[{"number":0,"name":"w0","state":"up","ranks":1,"taints":[]},{"number":1,"name":"w1","state":"up","ranks":2,"slots":8,"taints":["zone-a"],"batch_tokens":8192}]},"requests":[{"id":"r2","seq":1,"at":2,"tick":0,"cost":952,"input":3000,"cached_best":2048,"priority":0,"weight":1.0,"class":"cached","cached":{"w0":512,"w1":2048},"pin":{"worker":"w1","rank":1},"allow":["w0","w1"],"requires":["zone-a"],"flight":{"granted_at":2,"number":1,"prefill":952,"generations":[0],"place":{"worker_number":1,"rank":1}}},{"id":"r3","seq":2,"at":3,"tick":0,"cost":7,"input":7,"cached_best":0,"priority":-1,"weight":1.25,"class":"batch","tenant":"api","agent":"a"},{"id":"r4","seq":3,"at":5,"tick":1,"cost":9,"input":9,"cached_best":0,"priority":0,"weight":1.0,"class":"batch","tenant":"chat","flight":{"granted_at":5,"number":2,"prefill":9,"generations":[0,0,0],"place":{"worker_number":0,"rank":0}}},{"id":"r5","seq":4,"at":6,"tick":1,"cost":18446744073709551615,"input":18446744073709551615,"cached_best":0,"priority":0,"weight":1.0}],"root":{"drr":{"cursor":0,"stayed":false,"deficits":[{"tokens":"0","least":"0","most":"2999"},{"tokens":"391","least":"0","most":"520"}],"flows":{"batch":{"inside":{"share":{"virtual_time":"6975026888","rises":1,"flows":{"api":{"share":{"base":"0","served":"0","pending":"0","generation":0,"stopped":"0","bound":{"fallen":"0","rise":0,"ended":"0"}},"inside":{"load":{"alpha":0.25,"history":["1250"],"flows":{"a":{}}}}},"chat":{"share":{"base":"0","served":"812","pending":"9","generation":0,"bound":{"fallen":"0","rise":1,"ended":"0"}},"inside":{"load":{"alpha":0.25,"history":["0"],"flows":{"default":{}}}}}}}}},"cached":{}}}}}}"#;

/// Reads a first line, as far as a pool.
fn pool_of(line: &str) -> Result<Pool, fairgate_journal::JournalError> {
    let (start, _) = Reader::open(line.as_bytes())?;
    start.into_pool()
}

fn snapshot_of(line: &str) -> Snapshot {
    match Reader::open(line.as_bytes()).unwrap().0 {
        Start::Snapshot(snapshot) => *snapshot,
        Start::Fresh(_) => panic!("a snapshot starts it"),
    }
}

/// Checks that [`FULL`] with one piece of it replaced has exactly this error.
#[track_caller]
fn check(cases: &[(&str, &str, &str)]) {
    for (piece, other, expected) in cases {
        assert_eq!(FULL.matches(piece).count(), 1, "{piece} is not there once");
        let error = pool_of(&FULL.replace(piece, other)).expect_err(other);
        assert_eq!(error.to_string(), format!("line 1: field \"{expected}"), "for {other}");
        assert_eq!(error.line(), 1);
    }
}

#[test]
fn the_written_form() {
    let snapshot = snapshot_of(FULL);
    let mut writer = Writer::new(Vec::new());
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
            r#""now":6,"#,
            r#""now":6,"then":5,"#,
            r#"snapshot.then": unknown; known here: now, ticks, next_seq, grants, capacity, policy, holds, weights, caps, requests, root, max_queue, queue_timeout_us, brownout_wait_us, busy_tokens, busy_fraction, workers"#,
        ),
        (r#""now":6,"#, "", r#"snapshot.now": is missing"#),
        (r#""grants":3,"#, "", r#"snapshot.grants": is missing"#),
        (r#""holds":[{"by":"tenant","flow":"api"}],"#, "", r#"snapshot.holds": is missing"#),
        (
            r#"[{"by":"tenant","flow":"api"}]"#,
            r#"[{"by":"tenant"}]"#,
            r#"snapshot.holds[0].flow": is missing"#,
        ),
        (r#","weight":700}"#, "}", r#"snapshot.weights[0].weight": is missing"#),
        (
            r#""slots":4}"#,
            r#""slot":4}"#,
            r#"snapshot.caps[0].slot": unknown; known here: by, flow, slots"#,
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
            r#""number":2,"prefill""#,
            r#""prefill""#,
            r#"snapshot.requests[2].flight.number": is missing"#,
        ),
        (
            r#""worker_number":1,"#,
            r#""worker":"w1","#,
            r#"snapshot.requests[0].flight.place.worker": unknown; known here: worker_number, rank"#,
        ),
        (r#""stayed":false,"#, "", r#"snapshot.root.drr.stayed": is missing"#),
        (r#","most":"520""#, "", r#"snapshot.root.drr.deficits[1].most": is missing"#),
        (
            r#""virtual_time":"6975026888","#,
            r#""virtual":"6975026888","#,
            r#"snapshot.root.drr.flows.batch.inside.share.virtual": unknown; known here: virtual_time, rises, flows"#,
        ),
        (
            r#""served":"812","#,
            "",
            r#"snapshot.root.drr.flows.batch.inside.share.flows.chat.share.served": is missing"#,
        ),
        (
            r#""cached":{}"#,
            r#""cached":{"fcfs":1}"#,
            r#"snapshot.root.drr.flows.cached.fcfs": unknown; known here: share, inside"#,
        ),
        (
            r#""flows":{"a":{}}"#,
            r#""flows":{"a":null}"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.api.inside.load.flows.a": must be an object, not null"#,
        ),
    ]);
}

/// The fields that may be absent: those of a path's last object and name.
const OPTIONAL: &[&str] = &[
    "snapshot.max_queue",
    "snapshot.queue_timeout_us",
    "snapshot.brownout_wait_us",
    "snapshot.busy_tokens",
    "snapshot.busy_fraction",
    "snapshot.workers",
    "caps.slots",
    "list.slots",
    "list.batch_tokens",
    "requests.class",
    "requests.tenant",
    "requests.agent",
    "requests.cached",
    "requests.pin",
    "requests.allow",
    "requests.requires",
    "requests.flight",
    "pin.rank",
    "flight.generations",
    "flight.place",
    "share.stopped",
];

/// Visits every object of a JSON value outside the policy, with its path and the name of what it is in.
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

/// Without any one field, or with any one more, a snapshot is refused; in whatever order its fields are.
#[test]
fn every_field_is_needed_and_no_other() {
    let full: Value = serde_json::from_str(FULL).unwrap();
    let error_of = |value: &Value| {
        let read = Reader::open(value.to_string().as_bytes()).map(drop);
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
    let by_policy = ["batch.inside", "api.share", "api.inside", "chat.share", "chat.inside"];
    let expected = OPTIONAL.iter().chain(&by_policy).map(|name| name.to_string()).collect();
    assert_eq!(optional, expected);
}

#[test]
fn fields_given_twice() {
    check(&[
        (r#""now":6,"#, r#""now":6,"now":6,"#, r#"snapshot.now": given twice"#),
        (
            r#"[{"by":"tenant","flow":"api"}]"#,
            r#"[{"by":"tenant","flow":"api"},{"by":"key","flow":"api"},{"by":"tenant","flow":"\u0061pi"}]"#,
            r#"snapshot.holds": tenant "api" is listed twice"#,
        ),
        (
            r#"{"by":"group","flow":"prod"}"#,
            r#"{"by":"group","flow":"prod"},{"by":"group","flow":"prod","slots":1}"#,
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
            r#""flows":{"a":{}}"#,
            r#""flows":{"a":{},"b":{},"a":{}}"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.api.inside.load.flows.a": given twice"#,
        ),
        (
            r#""inside":{"load":{"alpha":0.25,"history":["0"]"#,
            r#""inside":{"drr":{"cursor":0,"stayed":true,"deficits":[],"flows":{}},"load":{"alpha":0.25,"history":["0"]"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.chat.inside.load": a node is only one of drr, share, load"#,
        ),
        (
            r#""inside":{"load":{"alpha":0.25,"history":["0"],"flows":{"default":{}}}}"#,
            r#""inside":{}"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.chat.inside": a node must be one of drr, share, load"#,
        ),
    ]);
}

#[test]
fn wide_counters_are_text() {
    let served = |other: &str, found: &str| {
        let field = "snapshot.root.drr.flows.batch.inside.share.flows.chat.share.served";
        let expected = format!(
            "{field}\": must be an integer of 0 or more of at most 128 bits, as text, not {found}"
        );
        check(&[(r#""served":"812""#, &format!("\"served\":{other}"), &expected)]);
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
    let deficit = |other: &str| {
        let expected = format!(
            r#"snapshot.root.drr.deficits[1].tokens": must be an integer of at most 128 bits, as text, not the text "{other}""#
        );
        check(&[(r#""tokens":"391""#, &format!("\"tokens\":\"{other}\""), &expected)]);
    };
    deficit("-0");
    deficit("--1");
    deficit("-");
    deficit("-170141183460469231731687303715884105729");
    let debt = r#""tokens":"-391","least":"-391""#;
    pool_of(&FULL.replace(r#""tokens":"391","least":"0""#, debt)).unwrap();
    pool_of(&FULL.replace(r#""tokens":"391""#, r#""tokens":"\u0033""#)).unwrap();
}

#[test]
fn other_values_out_of_range() {
    check(&[
        (
            r#""now":6,"#,
            r#""now":18446744073709551616,"#,
            r#"snapshot.now": must be an integer from 0 to 18446744073709551615, not 18446744073709551616"#,
        ),
        (
            r#""cursor":0"#,
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
            r#""alpha":0.25,"history":["0"]"#,
            r#""alpha":1.5,"history":["0"]"#,
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
        (r#""cursor":0"#, r#""cursor":2"#, r#"snapshot.root": cursor: there is no such class"#),
    ]);
    let odd = pool_of(&FULL.replace(r#""cached":{}"#, r#""\"\n":{}"#)).unwrap_err();
    assert_eq!(odd.field(), Some(r#"snapshot.root.drr.flows.\"\n"#));
    let long = format!("\"{}\":{{}}", "x".repeat(1 << 20));
    let long = pool_of(&FULL.replace(r#""cached":{}"#, &long)).unwrap_err();
    assert!(long.to_string().len() < 2000, "{}", long.to_string().len());
}

/// The first line of a pool with these requests under this policy, with these counters.
fn line(policy: &str, requests: &str, root: &str) -> String {
    format!(
        r#"{{"fairgate_journal":1,"snapshot":{{"now":0,"ticks":6,"next_seq":9,"grants":1,"capacity":0,"policy":{policy},"holds":[],"weights":[],"caps":[],"requests":[{requests}],"root":{root}}}}}"#
    )
}

/// A request of such a pool.
fn request(seq: u64, tick: u64, more: &str) -> String {
    format!(
        r#"{{"id":"r{seq}","seq":{seq},"at":0,"tick":{tick},"cost":5,"input":5,"cached_best":0,"priority":0,"weight":1,{more}}}"#
    )
}

#[track_caller]
fn refused(line: &str, expected: &str) {
    let error = pool_of(line).expect_err(expected);
    assert_eq!(error.to_string(), format!("line 1: field \"snapshot.{expected}"));
}

/// A deficit of a drr node; the classes are `a`, in which a request waits, and `b`, in which none does.
fn deficits(settle: bool, a: [&str; 3], b: [&str; 3]) -> String {
    let policy = format!(
        r#"{{"drr":{{"by":"class","classes":[{{"name":"a","quantum":1}},{{"name":"b","quantum":1}}],"settle":{settle}}}}}"#
    );
    let deficit = |[tokens, least, most]: [&str; 3]| {
        format!(r#"{{"tokens":"{tokens}","least":"{least}","most":"{most}"}}"#)
    };
    let (a, b) = (deficit(a), deficit(b));
    let root = format!(
        r#"{{"drr":{{"cursor":0,"stayed":true,"deficits":[{a},{b}],"flows":{{"a":{{}}}}}}}}"#
    );
    line(&policy, &request(0, 0, r#""class":"a""#), &root)
}

#[test]
fn deficits_are_within_their_bounds() {
    let none = ["0", "0", "0"];
    for (settle, a, b) in [
        (false, ["7", "0", "7"], none),
        (true, ["7", "-3", "9"], none),
        (true, ["-3", "-3", "-3"], ["-1", "-2", "4"]),
        (true, ["-79228162514264337593543950335"; 3], none),
        (
            true,
            ["0", "-79228162514264337593543950335", "79228162514264337593543950335"],
            ["-1", "-1", "-1"],
        ),
    ] {
        pool_of(&deficits(settle, a, b)).unwrap();
    }
    let range = r#"root": deficits: must be between -2^96 and 2^96"#;
    refused(&deficits(true, ["-79228162514264337593543950336"; 3], none), range);
    refused(&deficits(true, ["0", "-79228162514264337593543950336", "0"], none), range);
    refused(&deficits(true, none, ["0", "0", "79228162514264337593543950336"]), range);
    let least = r#"root": deficits: least must be 0 or below"#;
    refused(&deficits(true, ["2", "1", "3"], none), least);
    let bound = r#"root": deficits: tokens must be from least to most"#;
    refused(&deficits(true, ["-4", "-3", "9"], none), bound);
    refused(&deficits(true, ["10", "-3", "9"], none), bound);
    refused(&deficits(false, none, ["1000000", "0", "0"]), bound);
    let idle = r#"root": deficits: there is credit where nothing waits"#;
    refused(&deficits(false, none, ["1000000", "0", "1000000"]), idle);
    refused(&deficits(true, none, ["1", "0", "1"]), idle);
    let debt = r#"root": deficits: there is a debt without settle"#;
    refused(&deficits(false, ["-1", "-1", "0"], none), debt);
    refused(&deficits(false, ["1", "-1", "1"], none), debt);
    refused(&deficits(false, none, ["0", "-1", "0"]), debt);
}

/// Classes with the largest debt, one after the other the only one that is ready: what the ring has given them
/// adds up.
#[test]
fn the_largest_debts_fit_into_a_ring() {
    const CLASSES: usize = 300;
    let lines = |debt: i128| {
        let list =
            |each: &dyn Fn(usize) -> String| (0..CLASSES).map(each).collect::<Vec<_>>().join(",");
        let classes = list(&|i| format!(r#"{{"name":"c{i}","quantum":1}}"#));
        let deficits = list(&|_| format!(r#"{{"tokens":"{debt}","least":"{debt}","most":"0"}}"#));
        let holds = list(&|i| format!(r#"{{"by":"class","flow":"c{i}"}}"#));
        let first = line(
            &format!(r#"{{"drr":{{"by":"class","classes":[{classes}],"settle":true}}}}"#),
            "",
            &format!(
                r#"{{"drr":{{"cursor":0,"stayed":false,"deficits":[{deficits}],"flows":{{}}}}}}"#
            ),
        );
        let mut lines = vec![first.replace(r#""holds":[]"#, &format!(r#""holds":[{holds}]"#))];
        for i in 0..2 * CLASSES {
            lines.push(format!(
                r#"{{"at":0,"event":"submit","id":"r{i}","class":"c{}","cost":18446744073709551615}}"#,
                i / 2
            ));
        }
        for i in 0..CLASSES {
            lines.push(format!(r#"{{"at":1,"event":"resume","by":"class","flow":"c{i}"}}"#));
            if i > 0 {
                lines
                    .push(format!(r#"{{"at":1,"event":"hold","by":"class","flow":"c{}"}}"#, i - 1));
            }
            lines.push(format!(r#"{{"at":1,"event":"capacity","slots":{}}}"#, i + 1));
            lines.push(r#"{"at":1,"event":"capacity","slots":0}"#.into());
        }
        lines.join("\n") + "\n"
    };
    let too_large = lines(1 - (1 << 120));
    let (first, _) = too_large.split_once('\n').unwrap();
    refused(first, r#"root": deficits: must be between -2^96 and 2^96"#);
    let journal = lines(1 - (1 << 96));
    let (start, mut reader) = Reader::open(journal.as_bytes()).unwrap();
    let mut pool = start.into_pool().unwrap();
    while let Some((at, event)) = reader.next_event().unwrap() {
        pool.apply(at, event, &mut Vec::new()).unwrap();
    }
    assert_eq!((pool.waiting(), pool.flying()), (300, 300));
    Pool::restore(pool.snapshot()).unwrap();
}

/// By seq, requests are by time and tick as well: on that rest expiry and the late rule of load.
#[test]
fn times_do_not_fall() {
    let policy = r#"{"load":{"by":"agent","alpha":1,"max_wait_ticks":3}}"#;
    let root = r#"{"load":{"alpha":1,"history":[],"flows":{"a":{},"b":{}}}}"#;
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
            r#""seq":3,"at":5,"#,
            r#""seq":3,"at":2,"#,
            r#"snapshot.requests[2]": at must not fall from request to request"#,
        ),
        (
            r#""seq":4,"at":6,"tick":1,"#,
            r#""seq":4,"at":6,"tick":0,"#,
            r#"snapshot.requests[3]": tick must not fall from request to request"#,
        ),
    ]);
}

#[test]
fn flows_with_requests_are_listed() {
    let policy = r#"{"share":{"by":"tenant"}}"#;
    let root = r#"{"share":{"virtual_time":"4294967296000000","rises":0,"flows":{}}}"#;
    pool_of(&line(policy, "", root)).unwrap();
    let missing = r#"root.share.flows.x": is missing, but has requests"#;
    refused(&line(policy, &request(0, 0, r#""tenant":"x""#), root), missing);
    for generations in ["", r#","generations":[0]"#] {
        let flight = format!(
            r#""tenant":"x","flight":{{"granted_at":0,"number":0,"prefill":0{generations}}}"#
        );
        refused(&line(policy, &request(0, 0, &flight), root), missing);
    }
    check(&[
        (
            r#""flows":{"a":{}}"#,
            r#""flows":{"b":{}}"#,
            r#"snapshot.root.drr.flows.batch.inside.share.flows.api.inside.load.flows.a": is missing, but has requests"#,
        ),
        (
            r#""flows":{"default":{}}"#,
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
    let with =
        |served: &str| FULL.replace(r#""served":"812""#, &format!("\"served\":\"{served}\""));
    pool_of(&with(edge)).unwrap();
    let score = "1329227995784915872903807060280344576";
    check(&[
        (r#""served":"812""#, &format!(r#""served":"{over}""#), &tokens),
        (r#""pending":"9""#, &format!(r#""pending":"{over}""#), &tokens),
        (
            r#""base":"0","served":"812""#,
            &format!(r#""base":"{score}","served":"812""#),
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
fn pending_is_what_flies() {
    let chat = "snapshot.root.drr.flows.batch.inside.share.flows.chat";
    let pending = format!("{chat}\": pending: must be the costs of its flights of this generation");
    let api = pending.replace("chat", "api");
    let later = format!("{chat}\": generation: one of its flights has a later one");
    let (present, older) = (r#""pending":"9","generation":0"#, r#""pending":"9","generation":1"#);
    let flight = r#""generations":[0,0,0],"#;
    check(&[
        (r#""pending":"9""#, r#""pending":"8""#, &pending),
        (r#""pending":"9""#, r#""pending":"10""#, &pending),
        (r#""pending":"0""#, r#""pending":"1""#, &api),
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
fn workers_have_come_before_their_flights() {
    let policy = r#"{"share":{"by":"tenant"}}"#;
    let root = r#"{"share":{"virtual_time":"0","rises":0,"flows":{}}}"#;
    let flight =
        r#""flight":{"granted_at":0,"number":0,"prefill":5,"place":{"worker_number":0,"rank":0}}"#;
    refused(
        &line(policy, &request(0, 0, flight), root),
        r#"requests[0].flight.place": its worker has not come yet"#,
    );
    let workers = |next: u64| {
        let workers = format!(
            r#""requests":[],"workers":{{"next_number":{next},"list":[{{"number":0,"name":"old","state":"up","ranks":1,"taints":[],"slots":1}}]}}"#
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
        let (_, mut reader) = Reader::open(journal.as_bytes()).unwrap();
        reader.next_event().map_err(|error| error.to_string())
    };
    assert_eq!(event(6).unwrap(), Some((Micros(6), Event::Tick)));
    let error = event(5).unwrap_err();
    assert_eq!(error, r#"line 2: field "at": time goes back: 5 after 6"#);
}

#[test]
fn nesting_is_bounded() {
    let root = FULL.find(r#""root":"#).unwrap() + r#""root":"#.len();
    let (open, close) =
        (r#"{"share":{"virtual_time":"0","rises":0,"flows":{"a":{"inside":"#, "}}}}");
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

/// A pool in which so many requests wait, each of another tenant.
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
    let mut writer = Writer::new(Parts::default());
    writer.write_snapshot(&snapshot).unwrap();
    let Parts(parts) = writer.into_inner();
    assert!(parts.len() > 10);
    assert!(parts.iter().all(|part| part.len() < 70_000));
    assert_eq!(snapshot_of(std::str::from_utf8(&parts.concat()).unwrap()), snapshot);
}

#[test]
fn a_full_disk_is_an_error_and_the_next_line_is_whole() {
    /// Has room for one write.
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
    let mut writer = Writer::new(Full(Vec::new(), 0));
    let error = writer.write_snapshot(&crowded(5000).snapshot()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    writer.write_event(Micros(1), &Event::Tick).unwrap();
    let Full(written, _) = writer.into_inner();
    assert!(written.ends_with(b"{\"at\":1,\"event\":\"tick\"}\n"));
}

#[test]
fn workers_state_all_they_are() {
    let mut snapshot = snapshot_of(FULL);
    snapshot.workers.as_mut().unwrap().list[1].1.ranks = None;
    let mut writer = Writer::new(Vec::new());
    let error = writer.write_snapshot(&snapshot).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), r#"worker "w1" of a snapshot must state all it is"#);
    assert!(writer.into_inner().is_empty());
}

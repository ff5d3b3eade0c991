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
    pool_of(&FULL.replace(r#""tokens":"391""#, r#""tokens":"-391""#)).unwrap();
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

//! Tests of every kind of bad line, with the exact text of its error.

use std::io::{self, BufRead, BufReader, Read};

use fairgate_core::units::Micros;
use fairgate_journal::{
    JournalClock, JournalError, JournalReader, JournalStart, MAX_EVENT_LINE_BYTES, format_policy,
    parse_policy,
};

const HEADER: &str =
    r#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"share":{"by":"tenant"}}}}"#;

const ATTRIBUTES: &str = "class, tenant, group, key, agent, project, session";

/// Reads a journal to its end or its first error.
fn read(journal: impl BufRead) -> Result<(), JournalError> {
    let (_, mut reader) = JournalReader::open(journal)?;
    while reader.next_event()?.is_some() {}
    Ok(())
}

/// Returns the error of a journal whose second line is this line.
#[track_caller]
fn error_of(line: &str) -> String {
    let journal = format!("{HEADER}\n{line}\n{{\"at\":0,\"event\":\"tick\"}}\n");
    read(journal.as_bytes()).expect_err(line).to_string()
}

/// Checks that each of these event lines has exactly this error.
#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        assert_eq!(error_of(line), format!("line 2: {expected}"), "for {line}");
    }
}

/// Checks that each of these first lines has exactly this error.
#[track_caller]
fn check_header(cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        let error = read(format!("{line}\n").as_bytes()).expect_err(line).to_string();
        assert_eq!(error, format!("line 1: {expected}"), "for {line}");
    }
}

/// Checks that each of these policies has exactly this error, as the policy of an event.
#[track_caller]
fn check_policy(cases: &[(&str, &str)]) {
    for (policy, expected) in cases {
        let line = format!(r#"{{"at":0,"event":"policy","policy":{policy}}}"#);
        assert_eq!(error_of(&line), format!("line 2: {expected}"), "for {policy}");
    }
}

#[test]
fn malformed_json() {
    let no_value = r#"malformed JSON at column 25: expected a value"#;
    check(&[
        ("nonsense", "malformed JSON at column 1: expected a value"),
        ("{", "malformed JSON at column 2: expected a field's name in quotes"),
        ("}", "malformed JSON at column 1: expected a value"),
        (r#"{"at":0,}"#, "malformed JSON at column 9: expected a field's name in quotes"),
        (r#"{"at" 0}"#, "malformed JSON at column 7: expected ':' after a field's name"),
        (r#"{"at":0 "event":"tick"}"#, "malformed JSON at column 9: expected ',' or '}'"),
        (r#"{"at":0,"event":"tick""#, "malformed JSON at column 23: expected ',' or '}'"),
        (r#"{"at":0,"event":"tick"} x"#, "malformed JSON at column 25: expected nothing more"),
        (r#"{"at":0,"event":"tick"}{}"#, "malformed JSON at column 24: expected nothing more"),
        (
            r#"{"at":NaN,"event":"tick"}"#,
            r#"field "at": malformed JSON at column 7: expected a value: JSON has no NaN"#,
        ),
        (
            r#"{"event":"tick","slots":Infinity}"#,
            &format!(r#"field "slots": {no_value}: JSON has no Infinity"#),
        ),
        (r#"{"event":"tick","slots":.5}"#, &format!(r#"field "slots": {no_value}"#)),
        (r#"{"event":"tick","slots":+5}"#, &format!(r#"field "slots": {no_value}"#)),
        (r#"{"event":"tick","slots":tru}"#, &format!(r#"field "slots": {no_value}"#)),
        (r#"{"at":01}"#, "malformed JSON at column 8: expected ',' or '}'"),
        (r#"{"at":-}"#, r#"field "at": malformed JSON at column 8: expected a digit"#),
        (r#"{"at":1.}"#, r#"field "at": malformed JSON at column 9: expected a digit"#),
        (r#"{"at":1e}"#, r#"field "at": malformed JSON at column 9: expected a digit"#),
        (
            r#"{"at":0,"event":"tick"#,
            r#"field "event": malformed JSON at column 22: a string without an end"#,
        ),
        (
            r#"{"at":0,"id":"\q"}"#,
            r#"field "id": malformed JSON at column 14: a string with an escape that JSON has not"#,
        ),
        (
            r#"{"at":0,"id":"\ud800"}"#,
            r#"field "id": malformed JSON at column 14: a string with an escape that JSON has not"#,
        ),
        (
            "{\"at\":0,\"id\":\"a\tb\"}",
            r#"field "id": malformed JSON at column 16: a control character in a string"#,
        ),
        ("\u{feff}{}", "malformed JSON at column 1: expected a value"),
    ]);
}

#[test]
fn lines_that_are_no_objects() {
    check(&[
        ("[1]", "must be an object, not a list"),
        ("7", "must be an object, not 7"),
        ("null", "must be an object, not null"),
        (r#""tick""#, r#"must be an object, not the text "tick""#),
    ]);
}

#[test]
fn unknown_events_and_fields() {
    let events = "submit, release, cancel, first_token, tick, hold, resume, capacity, weight, cap, policy, worker";
    check(&[
        (
            r#"{"at":0,"event":"sumbit","id":"r1"}"#,
            &format!(r#"field "event": must be one of {events}, not the text "sumbit""#),
        ),
        (
            r#"{"at":0,"event":null}"#,
            &format!(r#"field "event": must be one of {events}, not null"#),
        ),
        (r#"{"at":0,"event":"tick","id":"r1"}"#, r#"field "id": unknown; known here: at, event"#),
        (
            r#"{"at":0,"event":"cancel","id":"r1","tokens":5}"#,
            r#"field "tokens": unknown; known here: at, event, id"#,
        ),
        (
            r#"{"at":0,"event":"hold","by":"tenant","flow":"a","weight":1}"#,
            r#"field "weight": unknown; known here: at, event, by, flow"#,
        ),
        (
            r#"{"at":0,"event":"submit","id":"r1","pin":{"worker":"w","slot":1}}"#,
            r#"field "pin.slot": unknown; known here: worker, rank"#,
        ),
        (
            r#"{"at":0,"event":"worker","name":"w","status":"up"}"#,
            r#"field "status": unknown; known here: at, event, name, state, ranks, slots, taints, batch_tokens, tier, requests_per_minute, tokens_per_minute, burst_seconds, requests_remaining, tokens_remaining, pause_until"#,
        ),
        (
            r#"{"at":0,"event":"tick","a\nb\"":1}"#,
            r#"field "a\nb\"": unknown; known here: at, event"#,
        ),
    ]);
    let long = format!(r#"{{"at":0,"event":"tick","{}":1}}"#, "x".repeat(1 << 20));
    let shown = "x".repeat(60);
    check(&[(&long, &format!(r#"field "{shown}…": unknown; known here: at, event"#))]);
}

#[test]
fn missing_fields() {
    check(&[
        (r#"{}"#, r#"field "at": is missing"#),
        (r#"{"event":"tick"}"#, r#"field "at": is missing"#),
        (r#"{"at":0}"#, r#"field "event": is missing"#),
        (r#"{"at":0,"event":"submit"}"#, r#"field "id": is missing"#),
        (r#"{"at":0,"event":"release","tokens":1}"#, r#"field "id": is missing"#),
        (r#"{"at":0,"event":"cancel"}"#, r#"field "id": is missing"#),
        (r#"{"at":0,"event":"first_token"}"#, r#"field "id": is missing"#),
        (r#"{"at":0,"event":"hold","flow":"a"}"#, r#"field "by": is missing"#),
        (r#"{"at":0,"event":"resume","by":"tenant"}"#, r#"field "flow": is missing"#),
        (r#"{"at":0,"event":"weight","by":"tenant","flow":"a"}"#, r#"field "weight": is missing"#),
        (r#"{"at":0,"event":"cap","by":"tenant","slots":1}"#, r#"field "flow": is missing"#),
        (r#"{"at":0,"event":"capacity"}"#, r#"field "slots": is missing"#),
        (r#"{"at":0,"event":"policy"}"#, r#"field "policy": is missing"#),
        (r#"{"at":0,"event":"worker","state":"up"}"#, r#"field "name": is missing"#),
        (
            r#"{"at":0,"event":"submit","id":"r","pin":{"rank":0}}"#,
            r#"field "pin.worker": is missing"#,
        ),
    ]);
}

#[test]
fn fields_given_twice() {
    check(&[
        (r#"{"at":0,"at":0,"event":"tick"}"#, r#"field "at": given twice"#),
        (r#"{"at":0,"event":"tick","event":"tick"}"#, r#"field "event": given twice"#),
        (r#"{"at":0,"event":"cancel","id":"a","\u0069d":"a"}"#, r#"field "id": given twice"#),
        (
            r#"{"at":0,"event":"submit","id":"r","cached":{"w0":1,"w1":2,"w0":1}}"#,
            r#"field "cached.w0": given twice"#,
        ),
        (
            r#"{"at":0,"event":"submit","id":"r","pin":{"worker":"a","worker":"a"}}"#,
            r#"field "pin.worker": given twice"#,
        ),
    ]);
    check_policy(&[
        (
            r#"{"share":{"by":"tenant","weights":{"a":1,"b":1,"a":2}}}"#,
            r#"field "policy.share.weights.a": given twice"#,
        ),
        (r#"{"share":{"by":"tenant","by":"tenant"}}"#, r#"field "policy.share.by": given twice"#),
        (
            r#"{"share":{"by":"tenant"},"share":{"by":"tenant"}}"#,
            r#"field "policy.share": given twice"#,
        ),
    ]);
}

#[test]
fn integers() {
    let submit = |field: &str, value: &str| {
        error_of(&format!(r#"{{"at":0,"event":"submit","id":"r","{field}":{value}}}"#))
    };
    let not = |value: &str, words: &str| {
        let expected =
            format!(r#"line 2: field "cost": must be an integer of 0 or more, not {words}"#);
        assert_eq!(submit("cost", value), expected);
    };
    not("1.0", "1.0");
    not("1e3", "1e3");
    not("-1", "-1");
    not("-99999999999999999999", "-99999999999999999999");
    not("\"5\"", "the text \"5\"");
    not("null", "null");
    not("true", "true");
    not("{}", "an object");
    not("[]", "a list");
    assert_eq!(
        submit("cost", "18446744073709551616"),
        r#"line 2: field "cost": must be an integer from 0 to 18446744073709551615, not 18446744073709551616"#
    );
    assert_eq!(
        submit("priority", "-9223372036854775809"),
        r#"line 2: field "priority": must be an integer from -9223372036854775808 to 9223372036854775807, not -9223372036854775809"#
    );
    assert_eq!(
        submit("priority", "0.0"),
        r#"line 2: field "priority": must be an integer, not 0.0"#
    );
    assert_eq!(
        submit("priority", "null"),
        r#"line 2: field "priority": must be an integer, not null"#
    );
    check(&[
        (r#"{"at":-1,"event":"tick"}"#, r#"field "at": must be an integer of 0 or more, not -1"#),
        (r#"{"at":0.5,"event":"tick"}"#, r#"field "at": must be an integer of 0 or more, not 0.5"#),
        (
            r#"{"at":0,"event":"weight","by":"tenant","flow":"a","weight":0}"#,
            r#"field "weight": must be an integer of 1 or more, not 0"#,
        ),
        (
            r#"{"at":0,"event":"weight","by":"tenant","flow":"a","weight":1.5}"#,
            r#"field "weight": must be an integer of 1 or more, not 1.5"#,
        ),
        (
            r#"{"at":0,"event":"cap","by":"tenant","flow":"a","slots":null}"#,
            r#"field "slots": must be an integer of 0 or more, not null"#,
        ),
        (
            r#"{"at":0,"event":"worker","name":"w","ranks":65537}"#,
            r#"field "ranks": must be an integer from 0 to 65536, not 65537"#,
        ),
        (
            r#"{"at":0,"event":"submit","id":"r","cached":{"w.0":-1}}"#,
            r#"field "cached.w.0": must be an integer of 0 or more, not -1"#,
        ),
        (
            r#"{"at":0,"event":"submit","id":"r","pin":{"worker":"w","rank":4294967296}}"#,
            r#"field "pin.rank": must be an integer from 0 to 4294967295, not 4294967296"#,
        ),
    ]);
}

#[test]
fn decimals() {
    let weight = |value: &str| {
        let line = format!(r#"{{"at":0,"event":"submit","id":"r","weight":{value}}}"#);
        let error = error_of(&line);
        error.strip_prefix(r#"line 2: field "weight": "#).unwrap().to_string()
    };
    assert_eq!(weight("0.0005"), "must have at most 3 decimals, not 0.0005");
    assert_eq!(weight("1.2345"), "must have at most 3 decimals, not 1.2345");
    assert_eq!(weight("1e-4"), "must have at most 3 decimals, not 1e-4");
    assert_eq!(
        weight("1e-999999999999999999999"),
        "must have at most 3 decimals, not 1e-999999999999999999999"
    );
    assert_eq!(weight("0"), "must be 0.001 to 1000000, not 0");
    assert_eq!(weight("-1.5"), "must be 0.001 to 1000000, not -1.5");
    assert_eq!(weight("1000000.001"), "must be 0.001 to 1000000, not 1000000.001");
    assert_eq!(weight("1e400"), "must be 0.001 to 1000000, not 1e400");
    assert_eq!(
        weight("1e18446744073709551616"),
        "must be 0.001 to 1000000, not 1e18446744073709551616"
    );
    assert_eq!(weight("\"1.0\""), "must be a number, not the text \"1.0\"");
    assert_eq!(weight("null"), "must be a number, not null");
    let long = "9".repeat(1 << 20);
    assert_eq!(weight(&long), format!("must be 0.001 to 1000000, not {}…", "9".repeat(60)));
    let fine = format!("0.{long}");
    assert_eq!(weight(&fine), format!("must have at most 3 decimals, not 0.{}…", "9".repeat(58)));
    check_policy(&[
        (
            r#"{"load":{"by":"agent","alpha":0.1234567}}"#,
            r#"field "policy.load.alpha": must have at most 6 decimals, not 0.1234567"#,
        ),
        (
            r#"{"load":{"by":"agent","alpha":1.000001}}"#,
            r#"field "policy.load.alpha": must be 0 to 1, not 1.000001"#,
        ),
        (
            r#"{"load":{"by":"agent","alpha":-0.1}}"#,
            r#"field "policy.load.alpha": must be 0 to 1, not -0.1"#,
        ),
        (
            r#"{"drr":{"by":"class","classes":[{"name":"a","quantum":1,"busy_fraction":0.0001}]}}"#,
            r#"field "policy.drr.classes[0].busy_fraction": must have at most 3 decimals, not 0.0001"#,
        ),
    ]);
}

#[test]
fn other_types() {
    check(&[
        (r#"{"at":0,"event":"cancel","id":7}"#, r#"field "id": must be text, not 7"#),
        (r#"{"at":0,"event":"cancel","id":null}"#, r#"field "id": must be text, not null"#),
        (
            r#"{"at":0,"event":"submit","id":"r","tenant":null}"#,
            r#"field "tenant": must be text, not null"#,
        ),
        (
            r#"{"at":0,"event":"submit","id":"r","allow":"w0"}"#,
            r#"field "allow": must be a list, not the text "w0""#,
        ),
        (
            r#"{"at":0,"event":"submit","id":"r","allow":["w0",1]}"#,
            r#"field "allow[1]": must be text, not 1"#,
        ),
        (
            r#"{"at":0,"event":"submit","id":"r","requires":null}"#,
            r#"field "requires": must be a list, not null"#,
        ),
        (
            r#"{"at":0,"event":"submit","id":"r","cached":[]}"#,
            r#"field "cached": must be an object, not a list"#,
        ),
        (
            r#"{"at":0,"event":"submit","id":"r","pin":"w0"}"#,
            r#"field "pin": must be an object, not the text "w0""#,
        ),
        (
            r#"{"at":0,"event":"worker","name":"w","state":"on"}"#,
            r#"field "state": must be one of up, overloaded, drain, gone, not the text "on""#,
        ),
        (
            r#"{"at":0,"event":"worker","name":"w","taints":["a",null]}"#,
            r#"field "taints[1]": must be text, not null"#,
        ),
        (
            r#"{"at":0,"event":"hold","by":"tennant","flow":"a"}"#,
            r#"field "by": must be one of class, tenant, group, key, agent, project, session, not the text "tennant""#,
        ),
    ]);
}

#[test]
fn policies() {
    check_policy(&[
        ("[]", r#"field "policy": must be an object, not a list"#),
        ("{}", r#"field "policy": a node must be one of drr, share, load, bands"#),
        (r#"{"fair":{}}"#, r#"field "policy.fair": unknown; known here: drr, share, load, bands"#),
        (
            r#"{"share":{"by":"tenant"},"load":{"by":"agent"}}"#,
            r#"field "policy.load": a node is only one of drr, share, load, bands"#,
        ),
        (r#"{"share":{}}"#, r#"field "policy.share.by": is missing"#),
        (r#"{"load":{}}"#, r#"field "policy.load.by": is missing"#),
        (
            r#"{"drr":{"classes":[{"name":"a","quantum":1}]}}"#,
            r#"field "policy.drr.by": is missing"#,
        ),
        (r#"{"drr":{"by":"class"}}"#, r#"field "policy.drr.classes": is missing"#),
        (
            r#"{"drr":{"by":"class","classes":[]}}"#,
            r#"field "policy.drr.classes": this node needs at least one class"#,
        ),
        (
            r#"{"drr":{"by":"class","classes":[{"quantum":1}]}}"#,
            r#"field "policy.drr.classes[0].name": is missing"#,
        ),
        (
            r#"{"drr":{"by":"class","classes":[{"name":"a"}]}}"#,
            r#"field "policy.drr.classes[0].quantum": is missing"#,
        ),
        (
            r#"{"drr":{"by":"class","classes":[{"name":"a","quantum":0}]}}"#,
            r#"field "policy.drr.classes[0].quantum": must be an integer of 1 or more, not 0"#,
        ),
        (
            r#"{"drr":{"by":"class","weights":{},"classes":[]}}"#,
            r#"field "policy.drr.weights": unknown; known here: by, classes, default, queue, inside"#,
        ),
        (
            r#"{"drr":{"by":"class","queue":"fcfs","classes":[{"name":"a","quantum":1}],"inside":{"load":{"by":"agent"}}}}"#,
            r#"field "policy.drr.inside": queue and inside exclude each other"#,
        ),
        (
            // Its inside is that of its classes: the error is where it stands.
            r#"{"drr":{"by":"class","classes":[{"name":"a","quantum":1}],"inside":{"share":{"by":"key","partition":true}}}}"#,
            r#"field "policy.drr.inside.share.partition": only the root node may be partitioned"#,
        ),
        (
            r#"{"drr":{"by":"class","classes":[{"name":"a","quantum":1},{"name":"a","quantum":1}]}}"#,
            r#"field "policy.drr.classes[1].name": class "a" is listed twice"#,
        ),
        (
            r#"{"drr":{"by":"class","classes":[{"name":"a","quantum":1}],"default":"b"}}"#,
            r#"field "policy.drr.default": "b" is none of the classes"#,
        ),
        (
            r#"{"share":{"by":"tenant","weights":{"chat":0}}}"#,
            r#"field "policy.share.weights.chat": must be an integer of 1 or more, not 0"#,
        ),
        (
            r#"{"share":{"by":"tenant","default_weight":0}}"#,
            r#"field "policy.share.default_weight": must be an integer of 1 or more, not 0"#,
        ),
        (
            r#"{"share":{"by":"tenant","caps":{"api":-1}}}"#,
            r#"field "policy.share.caps.api": must be an integer of 0 or more, not -1"#,
        ),
        (
            r#"{"share":{"by":"tenant","default_cap":null}}"#,
            r#"field "policy.share.default_cap": must be an integer of 0 or more, not null"#,
        ),
        (
            r#"{"share":{"by":"tenant","queue":"lifo"}}"#,
            r#"field "policy.share.queue": must be one of fcfs, wspt, edf, not the text "lifo""#,
        ),
        (
            r#"{"share":{"by":"tenant","queue":"fcfs","inside":{"load":{"by":"agent"}}}}"#,
            r#"field "policy.share.inside": queue and inside exclude each other"#,
        ),
        (
            r#"{"share":{"by":"tenant","inside":{"load":{"by":"agent"}},"queue":"fcfs"}}"#,
            r#"field "policy.share.queue": queue and inside exclude each other"#,
        ),
        (
            r#"{"share":{"by":"tenant","inside":{"share":{"by":"key","partition":true}}}}"#,
            r#"field "policy.share.inside.share.partition": only the root node may be partitioned"#,
        ),
        (
            r#"{"load":{"by":"agent","alpha":0.5,"optimize_for":"latency"}}"#,
            r#"field "policy.load.optimize_for": alpha and optimize_for exclude each other"#,
        ),
        (
            r#"{"load":{"by":"agent","optimize_for":"speed"}}"#,
            r#"field "policy.load.optimize_for": must be one of latency, balanced, throughput, not the text "speed""#,
        ),
        (
            r#"{"load":{"by":"agent","max_wait_ticks":5,"inside":{"share":{"by":"key"}}}}"#,
            r#"field "policy.load.max_wait_ticks": max_wait_ticks needs a queue inside, not another node"#,
        ),
        (
            r#"{"drr":{"by":"class","classes":[{"name":"a","quantum":1,"inside":{"share":{"by":"tenant","weigths":{}}}}]}}"#,
            r#"field "policy.drr.classes[0].inside.share.weigths": unknown; known here: by, classes, default, weights, default_weight, caps, default_cap, partition, queue, inside"#,
        ),
    ]);
}

#[test]
fn settle_is_gone() {
    let advice = r#"was removed: it did not make real usage follow the quanta. Where usage must follow weights, use {"share":{"by":…,"classes":[{"name":…,"weight":…},…]}}; for drr by stated costs, leave settle out"#;
    for value in ["true", "false", "null", "1"] {
        let classes = r#""classes":[{"name":"a","quantum":1}]"#;
        let policy = format!(r#"{{"drr":{{"by":"class",{classes},"settle":{value}}}}}"#);
        check_policy(&[(&policy, &format!(r#"field "policy.drr.settle": {advice}"#))]);
        let first = format!(r#"{{"drr":{{"settle":{value}}}}}"#);
        let inside = format!(r#"{{"share":{{"by":"tenant","inside":{first}}}}}"#);
        let field = "policy.share.inside.drr.settle";
        check_policy(&[(&inside, &format!(r#"field "{field}": {advice}"#))]);
    }
    // It was never a field of anything else.
    let known = "by, alpha, optimize_for, auto_tune, max_wait_ticks, queue, inside";
    check_policy(&[(
        r#"{"load":{"by":"agent","settle":true}}"#,
        &format!(r#"field "policy.load.settle": unknown; known here: {known}"#),
    )]);
}

#[test]
fn queues() {
    let drr = |queue: &str| {
        format!(
            r#"{{"drr":{{"by":"class","classes":[{{"name":"a","quantum":1,"queue":{queue}}}]}}}}"#
        )
    };
    let classes = |queue: &str| {
        format!(
            r#"{{"share":{{"by":"class","classes":[{{"name":"a","weight":1,"queue":{queue}}}]}}}}"#
        )
    };
    let bands = |queue: &str| {
        format!(r#"{{"bands":{{"by":"class","classes":[{{"name":"a","queue":{queue}}}]}}}}"#)
    };
    let all_bands = |queue: &str| {
        format!(r#"{{"bands":{{"by":"class","queue":{queue},"classes":[{{"name":"a"}}]}}}}"#)
    };
    let all_drr = |queue: &str| {
        format!(
            r#"{{"drr":{{"by":"class","queue":{queue},"classes":[{{"name":"a","quantum":1}}]}}}}"#
        )
    };
    let share = |queue: &str| format!(r#"{{"share":{{"by":"class","queue":{queue}}}}}"#);
    let load = |queue: &str| format!(r#"{{"load":{{"by":"class","queue":{queue}}}}}"#);
    for (queue, error) in [
        (r#""lifo""#, r#"": must be one of fcfs, wspt, edf, not the text "lifo""#),
        ("null", r#"": must be one of fcfs, wspt, edf, not null"#),
        ("7", r#"": must be one of fcfs, wspt, edf, not 7"#),
        ("[]", r#"": must be one of fcfs, wspt, edf, not a list"#),
        (r#"{"order":"lifo"}"#, r#".order": must be one of fcfs, wspt, edf, not the text "lifo""#),
        (r#"{"order":null}"#, r#".order": must be one of fcfs, wspt, edf, not null"#),
        (r#"{"order":"fcfs","order":"fcfs"}"#, r#".order": given twice"#),
        (r#"{"max_wait_us":-1}"#, r#".max_wait_us": must be an integer of 0 or more, not -1"#),
        (r#"{"max_wait_us":null}"#, r#".max_wait_us": must be an integer of 0 or more, not null"#),
        (r#"{"max_wait_us":1.5}"#, r#".max_wait_us": must be an integer of 0 or more, not 1.5"#),
        (
            r#"{"max_wait_us":18446744073709551616}"#,
            r#".max_wait_us": must be an integer from 0 to 18446744073709551615, not 18446744073709551616"#,
        ),
        (r#"{"max_wait":1}"#, r#".max_wait": unknown; known here: order, max_wait_us"#),
    ] {
        check_policy(&[
            (&share(queue), &format!("field \"policy.share.queue{error}")),
            (&load(queue), &format!("field \"policy.load.queue{error}")),
            (&drr(queue), &format!("field \"policy.drr.classes[0].queue{error}")),
            (&classes(queue), &format!("field \"policy.share.classes[0].queue{error}")),
            (&bands(queue), &format!("field \"policy.bands.classes[0].queue{error}")),
            (&all_bands(queue), &format!("field \"policy.bands.queue{error}")),
            (&all_drr(queue), &format!("field \"policy.drr.queue{error}")),
        ]);
    }
}

#[test]
fn classes_of_a_share_node() {
    let with = |classes: &str| format!(r#"{{"share":{{"by":"class","classes":{classes}}}}}"#);
    let class = |field: &str| with(&format!(r#"[{{"name":"a","weight":4}},{{{field}}}]"#));
    let known = "name, weight, cap, queue, inside, busy_tokens, busy_fraction, limit_requests_per_worker, limit_input_tokens_per_worker, limit_cached_tokens_per_worker";
    for (classes, error) in [
        ("null", r#"": must be a list, not null"#),
        ("{}", r#"": must be a list, not an object"#),
        ("[]", r#"": a share node with classes needs at least one"#),
        ("[7]", r#"[0]": must be an object, not 7"#),
        (r#"["a"]"#, r#"[0]": must be an object, not the text "a""#),
    ] {
        check_policy(&[(&with(classes), &format!("field \"policy.share.classes{error}"))]);
    }
    for (fields, error) in [
        (r#""weight":1"#, r#"name": is missing"#),
        (r#""name":null,"weight":1"#, r#"name": must be text, not null"#),
        (r#""name":"a","weight":1"#, r#"name": class "a" is listed twice"#),
        (r#""name":"b""#, r#"weight": is missing"#),
        (r#""name":"b","weight":0"#, r#"weight": must be an integer of 1 or more, not 0"#),
        (r#""name":"b","weight":-1"#, r#"weight": must be an integer of 1 or more, not -1"#),
        (r#""name":"b","weight":1.5"#, r#"weight": must be an integer of 1 or more, not 1.5"#),
        (r#""name":"b","weight":null"#, r#"weight": must be an integer of 1 or more, not null"#),
        (r#""weight":1,"weight":1"#, r#"weight": given twice"#),
        (r#""cap":-1"#, r#"cap": must be an integer of 0 or more, not -1"#),
        (r#""cap":null"#, r#"cap": must be an integer of 0 or more, not null"#),
        (r#""cap":"8""#, r#"cap": must be an integer of 0 or more, not the text "8""#),
        (
            r#""queue":"fcfs","inside":{"share":{"by":"key"}}"#,
            r#"inside": queue and inside exclude each other"#,
        ),
        (r#""inside":{"share":{}}"#, r#"inside.share.by": is missing"#),
        (
            r#""name":"b","weight":1,"inside":{"share":{"by":"key","partition":true}}"#,
            r#"inside.share.partition": only the root node may be partitioned"#,
        ),
        (r#""busy_tokens":-1"#, r#"busy_tokens": must be an integer of 0 or more, not -1"#),
        (
            r#""busy_fraction":0.0001"#,
            r#"busy_fraction": must have at most 3 decimals, not 0.0001"#,
        ),
        (r#""busy_fraction":null"#, r#"busy_fraction": must be a number, not null"#),
        (r#""quantum":1"#, &format!(r#"quantum": unknown; known here: {known}"#)),
        (r#""partition":true"#, &format!(r#"partition": unknown; known here: {known}"#)),
    ] {
        let expected = format!("field \"policy.share.classes[1].{error}");
        check_policy(&[(&class(fields), &expected)]);
    }
}

#[test]
fn classes_of_a_bands_node() {
    let with = |fields: &str| format!(r#"{{"bands":{{{fields}}}}}"#);
    let classes = |classes: &str| with(&format!(r#""by":"class","classes":{classes}"#));
    let known = "by, classes, default, queue, inside";
    for (fields, error) in [
        ("", r#"classes": is missing"#),
        (r#""by":"class""#, r#"classes": is missing"#),
        (r#""classes":[{"name":"a"}]"#, r#"by": is missing"#),
        (r#""by":null,"classes":[]"#, &format!(r#"by": must be one of {ATTRIBUTES}, not null"#)),
        (
            r#""by":"tier","classes":[]"#,
            &format!(r#"by": must be one of {ATTRIBUTES}, not the text "tier""#),
        ),
        (r#""by":"class","by":"class""#, r#"by": given twice"#),
        (
            r#""by":"class","classes":[{"name":"a"}],"default":"b""#,
            r#"default": "b" is none of the classes"#,
        ),
        (
            r#""by":"class","classes":[{"name":"a"}],"default":null"#,
            r#"default": must be text, not null"#,
        ),
        (
            r#""by":"class","classes":[{"name":"a"}],"queue":"edf","inside":{"load":{"by":"agent"}}"#,
            r#"inside": queue and inside exclude each other"#,
        ),
        (
            r#""by":"class","classes":[{"name":"a"}],"inside":{"share":{"by":"key","partition":true}}"#,
            r#"inside.share.partition": only the root node may be partitioned"#,
        ),
    ] {
        check_policy(&[(&with(fields), &format!("field \"policy.bands.{error}"))]);
    }
    // "No other fields": what share and drr nodes may say is unknown here.
    for field in ["weights", "default_weight", "caps", "default_cap", "partition", "max_wait_ticks"]
    {
        let policy = with(&format!(r#""by":"class","classes":[{{"name":"a"}}],"{field}":1"#));
        let error = format!(r#"field "policy.bands.{field}": unknown; known here: {known}"#);
        check_policy(&[(&policy, &error)]);
    }
    for (list, error) in [
        ("null", r#"": must be a list, not null"#),
        ("{}", r#"": must be a list, not an object"#),
        ("[]", r#"": this node needs at least one class"#),
        ("[7]", r#"[0]": must be an object, not 7"#),
        (r#"["a"]"#, r#"[0]": must be an object, not the text "a""#),
    ] {
        check_policy(&[(&classes(list), &format!("field \"policy.bands.classes{error}"))]);
    }
    let class = |field: &str| classes(&format!(r#"[{{"name":"a"}},{{{field}}}]"#));
    let known = "name, cap, queue, inside, busy_tokens, busy_fraction, limit_requests_per_worker, limit_input_tokens_per_worker, limit_cached_tokens_per_worker";
    for (fields, error) in [
        ("", r#"name": is missing"#),
        (r#""cap":1"#, r#"name": is missing"#),
        (r#""name":null"#, r#"name": must be text, not null"#),
        (r#""name":"a""#, r#"name": class "a" is listed twice"#),
        (r#""name":"b","weight":1"#, &format!(r#"weight": unknown; known here: {known}"#)),
        (r#""name":"b","quantum":1"#, &format!(r#"quantum": unknown; known here: {known}"#)),
        (r#""cap":-1"#, r#"cap": must be an integer of 0 or more, not -1"#),
        (r#""cap":null"#, r#"cap": must be an integer of 0 or more, not null"#),
        (r#""cap":1.0"#, r#"cap": must be an integer of 0 or more, not 1.0"#),
        (r#""cap":1,"cap":1"#, r#"cap": given twice"#),
        (
            r#""inside":{"share":{"by":"key"}},"queue":"edf""#,
            r#"queue": queue and inside exclude each other"#,
        ),
        (r#""inside":{"bands":{"classes":[{"name":"a"}]}}"#, r#"inside.bands.by": is missing"#),
        (
            r#""name":"b","inside":{"share":{"by":"key","partition":true}}"#,
            r#"inside.share.partition": only the root node may be partitioned"#,
        ),
        (
            r#""name":"b","inside":{"bands":{"by":"key","classes":[]}}"#,
            r#"inside.bands.classes": this node needs at least one class"#,
        ),
        (
            r#""busy_fraction":0.0001"#,
            r#"busy_fraction": must have at most 3 decimals, not 0.0001"#,
        ),
    ] {
        let expected = format!("field \"policy.bands.classes[1].{error}");
        check_policy(&[(&class(fields), &expected)]);
    }
}

#[test]
fn timeouts_of_submits() {
    let line =
        |value: &str| format!(r#"{{"at":0,"event":"submit","id":"r","timeout_us":{value}}}"#);
    for (value, found) in [
        ("-1", "-1"),
        ("null", "null"),
        ("1.0", "1.0"),
        ("1e3", "1e3"),
        ("\"5\"", "the text \"5\""),
        ("true", "true"),
        ("[]", "a list"),
    ] {
        let error = format!(r#"field "timeout_us": must be an integer of 0 or more, not {found}"#);
        check(&[(&line(value), &error)]);
    }
    check(&[
        (
            &line("18446744073709551616"),
            r#"field "timeout_us": must be an integer from 0 to 18446744073709551615, not 18446744073709551616"#,
        ),
        (&line(r#"1,"timeout_us":1"#), r#"field "timeout_us": given twice"#),
        (
            r#"{"at":0,"event":"submit","id":"r","timeout":1}"#,
            r#"field "timeout": unknown; known here: at, event, id, class, tenant, group, key, agent, project, session, cost, priority, weight, input, cached, pin, allow, requires, quota, timeout_us"#,
        ),
        (
            r#"{"at":0,"event":"release","id":"r","timeout_us":1}"#,
            r#"field "timeout_us": unknown; known here: at, event, id, tokens, quota"#,
        ),
    ]);
    for good in ["0", "18446744073709551615"] {
        read(format!("{HEADER}\n{}\n", line(good)).as_bytes()).unwrap();
    }
}

#[test]
fn overlap_credits() {
    let header = |value: &str| {
        HEADER.replace(r#""capacity":2"#, &format!(r#""capacity":2,"overlap_credit":{value}"#))
    };
    for (value, error) in [
        ("2.0001", "must have at most 3 decimals, not 2.0001"),
        ("1e-4", "must have at most 3 decimals, not 1e-4"),
        ("1000.001", "must be 0 to 1000, not 1000.001"),
        ("1001", "must be 0 to 1000, not 1001"),
        ("1e400", "must be 0 to 1000, not 1e400"),
        ("-0.001", "must be 0 to 1000, not -0.001"),
        ("null", "must be a number, not null"),
        ("\"2\"", "must be a number, not the text \"2\""),
        ("{}", "must be a number, not an object"),
    ] {
        let error = format!(r#"field "pool.overlap_credit": {error}"#);
        check_header(&[(&header(value), &error)]);
    }
    check_header(&[(
        &header(r#"1,"overlap_credit":1"#),
        r#"field "pool.overlap_credit": given twice"#,
    )]);
    for (value, thousandths) in [
        ("0", 0),
        ("0.001", 1),
        ("1.5", 1500),
        ("2.0000", 2000),
        ("0.0005e3", 500),
        ("1e3", 1_000_000),
        ("1000.000000", 1_000_000),
    ] {
        let (start, _) = JournalReader::open(header(value).as_bytes()).unwrap();
        let JournalStart::Fresh(config) = start else { panic!("a pool starts it") };
        assert_eq!(config.overlap_credit.thousandths(), thousandths, "{value}");
    }
    let (start, _) = JournalReader::open(HEADER.as_bytes()).unwrap();
    let JournalStart::Fresh(config) = start else { panic!("a pool starts it") };
    assert_eq!(config.overlap_credit.thousandths(), 2000);
}

#[test]
fn machines() {
    let header = |value: &str| HEADER.replace(r#""pool""#, &format!(r#""machine":{value},"pool""#));
    for (value, found) in [
        ("-1", "-1"),
        ("null", "null"),
        ("3.0", "3.0"),
        ("\"3\"", "the text \"3\""),
        ("[3]", "a list"),
        ("true", "true"),
    ] {
        let error = format!(r#"field "machine": must be an integer of 0 or more, not {found}"#);
        check_header(&[(&header(value), &error)]);
    }
    check_header(&[(&header(r#"3,"machine":3"#), r#"field "machine": given twice"#)]);
}

#[test]
fn limits_of_a_class() {
    for limit in ["requests", "input_tokens", "cached_tokens"] {
        for (value, found) in [
            ("0", "0"),
            ("-1", "-1"),
            ("null", "null"),
            ("\"1\"", "the text \"1\""),
            ("1.0", "1.0"),
        ] {
            let field = format!("limit_{limit}_per_worker");
            let class = |size: &str| {
                format!(r#""by":"class","classes":[{{"name":"a","{size}":1,"{field}":{value}}}]"#)
            };
            let error = format!("{field}\": must be an integer of 1 or more, not {found}");
            check_policy(&[
                (
                    &format!(r#"{{"drr":{{{}}}}}"#, class("quantum")),
                    &format!("field \"policy.drr.classes[0].{error}"),
                ),
                (
                    &format!(r#"{{"share":{{{}}}}}"#, class("weight")),
                    &format!("field \"policy.share.classes[0].{error}"),
                ),
                (
                    &format!(
                        r#"{{"bands":{{"by":"class","classes":[{{"name":"a","{field}":{value}}}]}}}}"#
                    ),
                    &format!("field \"policy.bands.classes[0].{error}"),
                ),
            ]);
        }
    }
}

/// A node with classes refuses some fields, even if their values are the usual ones.
#[test]
fn weights_beside_classes() {
    let classes = r#""by":"class","classes":[{"name":"a","weight":1}]"#;
    for (field, value) in [("weights", "{}"), ("default_weight", "100"), ("caps", "{}")] {
        let error = format!(
            r#"field "policy.share.{field}": a node with classes has them there: give each class its weight and cap"#
        );
        let behind = format!(r#"{{"share":{{{classes},"{field}":{value}}}}}"#);
        let before = format!(r#"{{"share":{{"{field}":{value},{classes}}}}}"#);
        check_policy(&[(&behind, &error), (&before, &error)]);
    }
    // A class without a cap of its own takes the node's.
    let capped = format!(r#"{{"share":{{{classes},"default_cap":1}}}}"#);
    assert_eq!(format_policy(&parse_policy(&capped).unwrap()), capped);
    check_policy(&[
        (
            &format!(r#"{{"share":{{{classes},"default":"b"}}}}"#),
            r#"field "policy.share.default": "b" is none of the classes"#,
        ),
        (
            &format!(r#"{{"share":{{{classes},"default":null}}}}"#),
            r#"field "policy.share.default": must be text, not null"#,
        ),
        (
            r#"{"share":{"by":"class","default":"a"}}"#,
            r#"field "policy.share.default": names a class, but the node lists none"#,
        ),
        (
            // Its inside is that of all its classes: the error is where it stands.
            &format!(
                r#"{{"share":{{{classes},"inside":{{"share":{{"by":"key","partition":true}}}}}}}}"#
            ),
            r#"field "policy.share.inside.share.partition": only the root node may be partitioned"#,
        ),
    ]);
}

/// Numbers for tier and rates in a worker's event, and in a worker of the header.
#[test]
fn tiers_and_rates_of_workers() {
    let at_least = |least: u64, field: &str| {
        vec![
            (field.to_string(), "-1", format!("must be an integer of {least} or more, not -1")),
            (field.into(), "1.5", format!("must be an integer of {least} or more, not 1.5")),
            (
                field.into(),
                "\"1\"",
                format!("must be an integer of {least} or more, not the text \"1\""),
            ),
            (field.into(), "[]", format!("must be an integer of {least} or more, not a list")),
            (
                field.into(),
                "18446744073709551616",
                format!(
                    "must be an integer from {least} to 18446744073709551615, not 18446744073709551616"
                ),
            ),
        ]
    };
    let mut cases = Vec::new();
    for field in ["tier", "requests_remaining", "tokens_remaining", "pause_until"] {
        cases.extend(at_least(0, field));
        cases.push((field.into(), "null", "must be an integer of 0 or more, not null".into()));
    }
    for field in ["requests_per_minute", "tokens_per_minute"] {
        cases.extend(at_least(1, field));
        cases.push((field.into(), "0", "must be an integer of 1 or more, not 0".into()));
    }
    for value in ["0", "61", "-1", "1.5", "null", "18446744073709551616"] {
        let error = format!("must be an integer from 1 to 60, not {value}");
        cases.push(("burst_seconds".into(), value, error));
    }
    for (field, value, error) in cases {
        let line = format!(r#"{{"at":0,"event":"worker","name":"w","{field}":{value}}}"#);
        check(&[(&line, &format!("field \"{field}\": {error}"))]);
        let workers = format!(r#""capacity":2,"workers":[{{"name":"w","{field}":{value}}}]"#);
        let header = HEADER.replace(r#""capacity":2"#, &workers);
        check_header(&[(&header, &format!("field \"pool.workers[0].{field}\": {error}"))]);
    }
}

#[test]
fn quotas() {
    for event in [r#""event":"submit","id":"r""#, r#""event":"release","id":"r","tokens":1"#] {
        for value in ["-1", "1.0", "null", "{}"] {
            let shown = value.replace("{}", "an object");
            let line = format!(r#"{{"at":0,{event},"quota":{value}}}"#);
            let error = format!(r#"field "quota": must be an integer of 0 or more, not {shown}"#);
            check(&[(&line, &error)]);
        }
    }
    check(&[
        (
            r#"{"at":0,"event":"cancel","id":"r","quota":1}"#,
            r#"field "quota": unknown; known here: at, event, id"#,
        ),
        (r#"{"at":0,"event":"release","quota":1}"#, r#"field "id": is missing"#),
    ]);
}

#[test]
fn clocks() {
    let error = |value: &str, expected: &str| {
        let pool = HEADER.replace(r#""pool""#, &format!(r#""clock":{value},"pool""#));
        let behind = HEADER.replace("}}}}", &format!(r#"}}}}}},"clock":{value}}}"#));
        let expected = format!("field \"clock{expected}");
        check_header(&[(&pool, &expected), (&behind, &expected)]);
    };
    error("null", r#"": must be an object, not null"#);
    error("0", r#"": must be an object, not 0"#);
    error("{}", r#".at": is missing"#);
    error(r#"{"unix_us":0}"#, r#".at": is missing"#);
    error(r#"{"at":0}"#, r#".unix_us": is missing"#);
    error(r#"{"at":-1,"unix_us":0}"#, r#".at": must be an integer of 0 or more, not -1"#);
    error(r#"{"at":null,"unix_us":0}"#, r#".at": must be an integer of 0 or more, not null"#);
    error(r#"{"at":0,"unix_us":-1}"#, r#".unix_us": must be an integer of 0 or more, not -1"#);
    error(r#"{"at":0,"unix_us":0.5}"#, r#".unix_us": must be an integer of 0 or more, not 0.5"#);
    error(
        r#"{"at":0,"unix_us":"2025-11-15"}"#,
        r#".unix_us": must be an integer of 0 or more, not the text "2025-11-15""#,
    );
    error(r#"{"at":0,"at":0,"unix_us":0}"#, r#".at": given twice"#);
    error(r#"{"at":0,"unix_us":0,"zone":"UTC"}"#, r#".zone": unknown; known here: at, unix_us"#);
    check_header(&[(
        r#"{"fairgate_journal":1,"clock":{"at":0,"unix_us":0}}"#,
        r#"field "pool": is missing"#,
    )]);
    // It says nothing about events: theirs may be earlier than its own.
    let clock = r#""clock":{"at":18446744073709551615,"unix_us":18446744073709551615},"pool""#;
    let journal = format!("{}\n", HEADER.replace(r#""pool""#, clock));
    let (_, mut reader) = JournalReader::open(journal.as_bytes()).unwrap();
    let clock = JournalClock { at: Micros(u64::MAX), unix_us: u64::MAX };
    assert_eq!(reader.clock(), Some(clock));
    assert_eq!(reader.next_event().unwrap(), None);
    read(format!("{journal}{{\"at\":0,\"event\":\"tick\"}}\n").as_bytes()).unwrap();
    assert_eq!(JournalReader::open(HEADER.as_bytes()).unwrap().1.clock(), None);
}

#[test]
fn headers() {
    let pool = r#""capacity":1,"policy":{"share":{"by":"tenant"}}"#;
    let with = |more: &str| format!(r#"{{"fairgate_journal":1,"pool":{{{pool}{more}}}}}"#);
    check_header(&[
        ("", "the journal is empty: its first line is missing"),
        (r#"{"pool":{}}"#, r#"field "fairgate_journal": is missing: not a journal"#),
        (r#"{"at":0,"event":"tick"}"#, r#"field "fairgate_journal": is missing: not a journal"#),
        (
            r#"{"pool":{"new":1},"fairgate_journal":2}"#,
            r#"field "fairgate_journal": version 2 is not known; this program reads 1"#,
        ),
        (
            r#"{"fairgate_journal":"1"}"#,
            r#"field "fairgate_journal": must be an integer of 0 or more, not the text "1""#,
        ),
        (r#"{"fairgate_journal":1}"#, r#"field "pool": is missing"#),
        (r#"{"fairgate_journal":1,"pool":null}"#, r#"field "pool": must be an object, not null"#),
        (
            r#"{"fairgate_journal":1,"pol":{}}"#,
            r#"field "pol": unknown; known here: fairgate_journal, clock, machine, pool, snapshot"#,
        ),
        (
            r#"{"fairgate_journal":1,"pool":{"policy":{"share":{"by":"tenant"}}}}"#,
            r#"field "pool.capacity": is missing"#,
        ),
        (r#"{"fairgate_journal":1,"pool":{"capacity":1}}"#, r#"field "pool.policy": is missing"#),
        (
            r#"{"fairgate_journal":1,"pool":{"capacity":-1}}"#,
            r#"field "pool.capacity": must be an integer of 0 or more, not -1"#,
        ),
        (
            r#"{"fairgate_journal":1,"pool":{"capacity":1,"policy":{"share":{"by":7}}}}"#,
            r#"field "pool.policy.share.by": must be one of class, tenant, group, key, agent, project, session, not 7"#,
        ),
        (
            &with(r#","max_queue":null"#),
            r#"field "pool.max_queue": must be an integer of 0 or more, not null"#,
        ),
        (&with(r#","capacity":1"#), r#"field "pool.capacity": given twice"#),
        (
            &with(r#","workers":[{"name":"a"},{"name":"b"},{"name":"a"}]"#),
            r#"field "pool.workers[2].name": worker "a" is listed twice"#,
        ),
        (&with(r#","workers":[{"ranks":1}]"#), r#"field "pool.workers[0].name": is missing"#),
        (
            &with(r#","workers":[{"name":"a","state":"up"}]"#),
            r#"field "pool.workers[0].state": unknown; known here: name, ranks, slots, taints, batch_tokens, tier, requests_per_minute, tokens_per_minute, burst_seconds, requests_remaining, tokens_remaining, pause_until"#,
        ),
        (
            &with(r#","busy_fraction":0.0625"#),
            r#"field "pool.busy_fraction": must have at most 3 decimals, not 0.0625"#,
        ),
        (
            &with(r#","busy_tokens":-5"#),
            r#"field "pool.busy_tokens": must be an integer of 0 or more, not -5"#,
        ),
        (
            &with(r#","queue_timeout_ms":5"#),
            r#"field "pool.queue_timeout_ms": unknown; known here: capacity, policy, max_queue, queue_timeout_us, brownout_wait_us, workers, busy_tokens, busy_fraction, overlap_credit"#,
        ),
    ]);
    let empty = read(io::empty()).unwrap_err().to_string();
    assert_eq!(empty, "line 1: the journal is empty: its first line is missing");
}

#[test]
fn time_goes_back() {
    let journal = format!(
        "{HEADER}\n{{\"at\":5,\"event\":\"tick\"}}\n{{\"at\":5,\"event\":\"tick\"}}\n{{\"at\":4,\"event\":\"tick\"}}\n"
    );
    let error = read(journal.as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), r#"line 4: field "at": time goes back: 4 after 5"#);
    assert_eq!((error.line(), error.field()), (4, Some("at")));
}

#[test]
fn blank_lines_stand_only_at_the_end() {
    let tick = r#"{"at":5,"event":"tick"}"#;
    read(format!("{HEADER}\n{tick}").as_bytes()).unwrap();
    read(format!("{HEADER}\n{tick}\n\n \r\n").as_bytes()).unwrap();
    read(format!("{HEADER}\r\n{tick}\r\n").as_bytes()).unwrap();
    let error = read(format!("{HEADER}\n{tick}\n\n\n{tick}\n").as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "line 3: malformed JSON: the line is blank");
    let error = read(format!("\n{HEADER}\n{tick}\n").as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "line 1: malformed JSON: the line is blank");
}

#[test]
fn invalid_utf8() {
    let journal =
        [HEADER.as_bytes(), b"\n{\"at\":0,\"event\":\"cancel\",\"id\":\"\xff\"}\n"].concat();
    let error = read(&journal[..]).unwrap_err();
    assert_eq!(error.to_string(), "line 2: not valid UTF-8 at column 32");
}

#[test]
fn a_reader_is_finished_after_an_error() {
    let journal = format!("{HEADER}\n{{\"at\":0}}\n{{\"at\":0,\"event\":\"tick\"}}\n");
    let (_, mut reader) = JournalReader::open(journal.as_bytes()).unwrap();
    reader.next_event().unwrap_err();
    assert_eq!(reader.line(), 2);
    assert_eq!(reader.next_event().unwrap(), None);
    assert_eq!(reader.line(), 2);
}

#[test]
fn nesting_is_bounded() {
    for (open, close) in
        [("[", "]"), (r#"{"a":"#, "}"), (r#"{"share":{"by":"tenant","inside":"#, "}}")]
    {
        let policy = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let line = format!(r#"{{"at":0,"event":"policy","policy":{policy}}}"#);
        let error = error_of(&line);
        assert!(error.ends_with(": nested deeper than 512 levels"), "{error:.200}");
        let unclosed = format!(r#"{{"at":0,"event":"policy","policy":{}"#, open.repeat(100_000));
        assert!(error_of(&unclosed).ends_with(": nested deeper than 512 levels"));
    }
}

#[test]
fn trees_of_64_nodes_are_read_and_no_deeper_ones() {
    let ways = [
        (r#"{"share":{"by":"tenant","inside":"#, "}}"),
        (r#"{"drr":{"by":"class","classes":[{"name":"a","quantum":1,"inside":"#, "}]}}"),
        (r#"{"share":{"by":"class","classes":[{"name":"a","weight":1,"inside":"#, "}]}}"),
        (r#"{"bands":{"by":"class","classes":[{"name":"a","inside":"#, "}]}}"),
    ];
    for (open, close) in ways {
        let deep = |n: usize| {
            let leaf = r#"{"load":{"by":"agent"}}"#;
            let tree = format!("{}{leaf}{}", open.repeat(n - 1), close.repeat(n - 1));
            format!("{HEADER}\n{{\"at\":0,\"event\":\"policy\",\"policy\":{tree}}}\n")
        };
        read(deep(64).as_bytes()).unwrap();
        let error = read(deep(65).as_bytes()).unwrap_err();
        assert!(
            error.to_string().ends_with(".inside\": the tree is deeper than 64 nodes"),
            "{error}"
        );
    }
}

#[test]
fn event_lines_are_bounded() {
    let padded = |space: u64| {
        let line = br#"{"at":0,"event":"tick"}"#;
        let space = io::repeat(b' ').take(space - line.len() as u64);
        let journal = HEADER.as_bytes().chain(&b"\n"[..]).chain(&line[..]).chain(space);
        BufReader::new(journal.chain(&b"\n"[..]))
    };
    read(padded(MAX_EVENT_LINE_BYTES)).unwrap();
    let error = read(padded(MAX_EVENT_LINE_BYTES + 1)).unwrap_err();
    assert_eq!(error.to_string(), "line 2: longer than 67108864 bytes");
}

#[test]
fn failing_input_is_not_a_bad_line() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let first = format!("{HEADER}\n");
    let error = read(BufReader::new(first.as_bytes().chain(Broken))).unwrap_err();
    assert!(matches!(error, JournalError::Io { line: 2, .. }));
    assert_eq!(error.to_string(), "line 2: cannot be read");
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "the disk is gone");
}

#[test]
fn a_policy_stands_alone_in_a_pool_or_in_a_header() {
    let node = r#"{"share":{"by":"tenant","weights":{"chat":500}}}"#;
    let policy = parse_policy(node).unwrap();
    let pool = format!("{{\"capacity\": 2,\n \"policy\": {node}}}\n");
    assert_eq!(parse_policy(&pool).unwrap(), policy);
    let header = format!("{{\"fairgate_journal\":1,\"pool\":{pool}}}");
    assert_eq!(parse_policy(&header).unwrap(), policy);
    let (start, _) = JournalReader::open(header.replace('\n', " ").as_bytes()).unwrap();
    let JournalStart::Fresh(config) = start else { panic!("a pool starts it") };
    assert_eq!(config.policy, policy);
}

#[test]
fn errors_of_a_policy_alone_name_the_line_of_its_text() {
    let error = |text: &str| parse_policy(text).unwrap_err().to_string();
    assert_eq!(
        error(
            "{\n  \"share\": {\n    \"by\": \"tenant\",\n    \"weights\": {\"chat\": 0}\n  }\n}\n"
        ),
        r#"line 4: field "share.weights.chat": must be an integer of 1 or more, not 0"#
    );
    assert_eq!(
        error("{\"capacity\":1,\n\"policy\":{\"share\":{}}}"),
        r#"line 2: field "policy.share.by": is missing"#
    );
    assert_eq!(
        error("{\"fairgate_journal\":1,\n\n\"pool\":{\"policy\":{\"share\":{\"by\":1}}}}"),
        r#"line 3: field "pool.policy.share.by": must be one of class, tenant, group, key, agent, project, session, not 1"#
    );
    assert_eq!(
        error("{\n  x"),
        "line 2: malformed JSON at column 3: expected a field's name in quotes"
    );
    assert_eq!(error(""), "line 1: malformed JSON at column 1: expected a value");
}

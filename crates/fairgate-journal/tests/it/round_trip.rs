//! Tests that written values read back the same, and of the exact written form.

mod snapshots;
mod strategies;

use fairgate_core::attribute::Attributes;
use fairgate_core::decision::{
    Decision, Grant, GrantedPlace, RejectedRequest, RejectionLimit, RejectionReason,
};
use fairgate_core::event::{Event, PoolConfig, Submit, WorkerChange, WorkerState};
use fairgate_core::policy::{FlowInside, PolicyNode, QueueOrder, QueuePolicy};
use fairgate_core::units::{Micros, Tokens};
use fairgate_core::{Pool, RequestHandle};
use fairgate_journal::{JournalReader, JournalStart, JournalWriter, format_policy, parse_policy};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::round_trip::strategies::{clock, config, event, number, policy};

proptest! {
    #[test]
    fn journals_read_back_the_same(
        config in config(),
        clock in option::of(clock()),
        mut events in vec((number().prop_map(Micros), event()), 0..12),
    ) {
        events.sort_by_key(|(at, _)| *at);
        let mut writer = strategies::writer(clock);
        writer.write_header(&config).unwrap();
        for (at, event) in &events {
            writer.write_event(*at, event).unwrap();
        }
        let journal = writer.into_inner();
        for line in journal.strip_suffix(b"\n").unwrap().split(|&b| b == b'\n') {
            serde_json::from_slice::<serde_json::Value>(line).unwrap();
        }
        let (start, mut reader) = JournalReader::open(&journal[..]).unwrap();
        prop_assert_eq!(start, JournalStart::Fresh(config));
        prop_assert_eq!(reader.clock(), clock);
        for (at, event) in events {
            prop_assert_eq!(reader.next_event().unwrap(), Some((at, event)));
        }
        prop_assert_eq!(reader.next_event().unwrap(), None);
        prop_assert_eq!(reader.bytes_read(), journal.len() as u64);
    }

    #[test]
    fn policies_read_back_the_same(policy in policy()) {
        let text = format_policy(&policy);
        let again = parse_policy(&text).unwrap();
        prop_assert_eq!(format_policy(&again), text);
        prop_assert_eq!(again, policy);
    }

    #[test]
    fn changed_journals_never_panic(
        config in config(),
        event in event(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut writer = JournalWriter::new(Vec::new());
        writer.write_header(&config).unwrap();
        writer.write_event(Micros(1), &event).unwrap();
        let mut journal = writer.into_inner();
        for (at, byte) in changes {
            let at = at.index(journal.len());
            journal[at] = byte;
        }
        if let Ok((_, mut reader)) = JournalReader::open(&journal[..]) {
            while let Ok(Some(_)) = reader.next_event() {}
        }
    }
}

/// Returns the lines that one writer wrote.
fn written(write: impl FnOnce(&mut JournalWriter<Vec<u8>>) -> std::io::Result<()>) -> String {
    let mut writer = JournalWriter::new(Vec::new());
    write(&mut writer).unwrap();
    String::from_utf8(writer.into_inner()).unwrap()
}

/// The lines below are read, and written again byte for byte.
#[test]
fn the_written_form() {
    let journal = r#"{"fairgate_journal":1,"clock":{"at":0,"unix_us":1763200000000000},"machine":3,"pool":{"capacity":2,"policy":{"drr":{"by":"class","classes":[{"name":"cached","quantum":2048,"busy_tokens":3000,"busy_fraction":0.25,"limit_requests_per_worker":1,"limit_input_tokens_per_worker":2,"limit_cached_tokens_per_worker":3,"queue":"wspt"},{"name":"batch","quantum":512,"inside":{"share":{"by":"tenant","weights":{"api":50,"chat":500},"default_weight":10,"caps":{"api":4},"default_cap":16}}}],"default":"cached"}},"max_queue":20,"queue_timeout_us":10000,"brownout_wait_us":750000,"workers":[{"name":"w1","ranks":2,"slots":8,"taints":["zone-a"],"batch_tokens":8192},{"name":"w2","tier":1,"requests_per_minute":60,"tokens_per_minute":90000,"burst_seconds":60,"requests_remaining":0,"tokens_remaining":5,"pause_until":7}],"busy_tokens":5,"busy_fraction":1.5,"overlap_credit":0.125}}
{"at":0,"event":"submit","id":"r1","class":"cached","tenant":"chat","group":"prod","agent":"analyst","cost":700,"priority":-1,"weight":1.25}
{"at":0,"event":"submit","id":"r2","input":3000,"cached":{"w1":2048,"w0":512},"pin":{"worker":"w1","rank":0},"allow":["w0","w1"],"requires":["zone-a"],"quota":0,"timeout_us":0}
{"at":0,"event":"submit","id":"r3","timeout_us":18446744073709551615}
{"at":9,"event":"release","id":"r1","tokens":812}
{"at":9,"event":"release","id":"r2","tokens":812,"quota":4000}
{"at":9,"event":"release","id":"r3","quota":4000}
{"at":9,"event":"cancel","id":"r7"}
{"at":9,"event":"hold","by":"tenant","flow":"chat"}
{"at":9,"event":"resume","by":"tenant","flow":"chat"}
{"at":9,"event":"capacity","slots":4}
{"at":9,"event":"tick"}
{"at":9,"event":"weight","by":"tenant","flow":"chat","weight":700}
{"at":9,"event":"policy","policy":{"load":{"by":"agent","alpha":0.0,"auto_tune":true,"max_wait_ticks":100}}}
{"at":9,"event":"policy","policy":{"load":{"by":"agent","max_wait_ticks":1,"queue":{"max_wait_us":0}}}}
{"at":9,"event":"policy","policy":{"share":{"by":"class","classes":[{"name":"chat","weight":4,"cap":8,"busy_tokens":4000,"busy_fraction":0.5,"limit_requests_per_worker":1,"limit_input_tokens_per_worker":2,"limit_cached_tokens_per_worker":3,"queue":"fcfs"},{"name":"batch","weight":1,"inside":{"load":{"by":"agent"}}},{"name":"rest","weight":1}],"default":"batch","partition":true,"queue":{"order":"wspt","max_wait_us":5000000}}}}
{"at":9,"event":"policy","policy":{"bands":{"by":"class","classes":[{"name":"chat","cap":12,"busy_tokens":4000,"busy_fraction":0.5,"limit_requests_per_worker":1,"limit_input_tokens_per_worker":2,"limit_cached_tokens_per_worker":3,"queue":"edf"},{"name":"batch","inside":{"load":{"by":"agent"}}},{"name":"rest"}],"default":"batch","queue":{"order":"edf","max_wait_us":5000000}}}}
{"at":9,"event":"policy","policy":{"drr":{"by":"class","classes":[{"name":"a","quantum":1},{"name":"b","quantum":1,"queue":"fcfs"}],"queue":"edf"}}}
{"at":9,"event":"cap","by":"tenant","flow":"chat","slots":4}
{"at":9,"event":"cap","by":"tenant","flow":"chat"}
{"at":9,"event":"worker","name":"w1","state":"up","ranks":2,"slots":8,"taints":["zone-a"],"batch_tokens":8192}
{"at":9,"event":"worker","name":"w2","tier":0,"requests_per_minute":null,"tokens_per_minute":null,"burst_seconds":1,"requests_remaining":1,"tokens_remaining":0,"pause_until":0}
{"at":9,"event":"first_token","id":"\"\\\u000a\u001f é"}
"#;
    let (start, mut reader) = JournalReader::open(journal.as_bytes()).unwrap();
    let JournalStart::Fresh(config) = start else { panic!("a pool starts it") };
    let mut writer = strategies::writer(reader.clock());
    writer.write_header(&config).unwrap();
    while let Some((at, event)) = reader.next_event().unwrap() {
        writer.write_event(at, &event).unwrap();
    }
    assert_eq!(String::from_utf8(writer.into_inner()).unwrap(), journal);
}

/// A class without an inside has the inside of its node, stated before or after the classes.
#[test]
fn a_class_has_inside_it_what_its_node_has() {
    let inside = r#""inside":{"load":{"by":"agent"}}"#;
    for (stated, own) in [
        (r#""queue":"wspt""#, r#""queue":"fcfs""#),
        (inside, r#""queue":"fcfs""#),
        (r#""queue":{"order":"wspt","max_wait_us":7}"#, r#""queue":"wspt""#),
        (r#""queue":{"max_wait_us":7}"#, inside),
    ] {
        let classes = |first: &str| {
            format!(
                r#""classes":[{{"name":"a","weight":1{first}}},{{"name":"b","weight":2,{own}}}]"#
            )
        };
        let unstated = classes("");
        let behind = format!(r#"{{"share":{{"by":"class",{unstated},{stated}}}}}"#);
        let policy = parse_policy(&behind).unwrap();
        let before = format!(r#"{{"share":{{"by":"class",{stated},{unstated}}}}}"#);
        assert_eq!(parse_policy(&before).unwrap(), policy);
        let repeated = classes(&format!(",{stated}"));
        let repeated = format!(r#"{{"share":{{{repeated},"by":"class",{stated}}}}}"#);
        assert_eq!(parse_policy(&repeated).unwrap(), policy);
        assert_eq!(format_policy(&policy), behind);
        // The classes of drr and bands take over their node's inside in the same way.
        for (kind, of_a, of_b) in [("bands", "", ""), ("drr", r#","quantum":1"#, r#","quantum":2"#)]
        {
            let node = |first: &str, second: &str| {
                let classes =
                    format!(r#"[{{"name":"a"{of_a}{first}}},{{"name":"b"{of_b},{own}}}]"#);
                format!(r#"{{"{kind}":{{"by":"class","classes":{classes}{second}}}}}"#)
            };
            let behind = node("", &format!(",{stated}"));
            let policy = parse_policy(&behind).unwrap();
            let repeated = node(&format!(",{stated}"), &format!(",{stated}"));
            assert_eq!(parse_policy(&repeated).unwrap(), policy);
            assert_ne!(parse_policy(&node("", "")).unwrap(), policy);
            assert_eq!(format_policy(&policy), behind);
        }
    }
}

/// The forms in which one queue can be written.
#[test]
fn queues_are_text_or_objects() {
    let queue = |written: &str| {
        let policy = format!(r#"{{"share":{{"by":"class","queue":{written}}}}}"#);
        let policy = parse_policy(&policy).unwrap();
        let PolicyNode::Share(share) = &**policy.root() else { panic!("a share node") };
        share.inside.clone()
    };
    for first_come in [r#""fcfs""#, "{}", r#"{"order":"fcfs"}"#] {
        assert_eq!(queue(first_come), FlowInside::FCFS, "{first_come}");
    }
    for cheapest in [r#""wspt""#, r#"{"order":"wspt"}"#] {
        assert_eq!(queue(cheapest), FlowInside::WSPT, "{cheapest}");
    }
    for earliest in [r#""edf""#, r#"{"order":"edf"}"#] {
        assert_eq!(queue(earliest), FlowInside::EDF, "{earliest}");
    }
    let max_wait = Some(Micros(0));
    let expected = FlowInside::Queue(QueuePolicy { order: QueueOrder::Wspt, max_wait });
    assert_eq!(queue(r#"{"max_wait_us":0,"order":"wspt"}"#), expected);
}

/// The order of a request's attributes does not matter.
#[test]
fn attributes_come_in_any_order() {
    let header = r#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"share":{"by":"key"}}}}"#;
    let line = r#"{"session":"s","project":"p","agent":"","at":0,"key":"\u00e9","tenant":"t","event":"submit","class":"c","id":"r","group":"g"}"#;
    let journal = format!("{header}\n{line}\n");
    let (_, mut reader) = JournalReader::open(journal.as_bytes()).unwrap();
    let Some((_, Event::Submit(submit))) = reader.next_event().unwrap() else { panic!("a submit") };
    let texts = ["c", "t", "g", "é", "", "p", "s"].map(Some);
    assert_eq!(submit.attributes, Attributes::of(texts));
}

/// The forms in which one number can be written.
#[test]
fn decimals_are_exact() {
    let weight = |written: &str| {
        let line = format!(r#"{{"at":0,"event":"submit","id":"r","weight":{written}}}"#);
        let header =
            r#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"load":{"by":"agent"}}}}"#;
        let journal = format!("{header}\n{line}\n");
        let (_, mut reader) = JournalReader::open(journal.as_bytes()).unwrap();
        match reader.next_event().unwrap() {
            Some((_, Event::Submit(submit))) => submit.weight.thousandths(),
            other => panic!("{other:?}"),
        }
    };
    for one in ["1", "1.0", "1.000000", "1e0", "1E+0", "10e-1", "0.1e1", "0.00001e5"] {
        assert_eq!(weight(one), 1000, "{one}");
    }
    for more in ["1.5", "1.50", "15e-1", "1.5000"] {
        assert_eq!(weight(more), 1500, "{more}");
    }
    assert_eq!(weight("0.001"), 1);
    assert_eq!(weight("1000000"), 1_000_000_000);
    assert_eq!(weight("1e6"), 1_000_000_000);
    assert_eq!(weight("16777.217"), 16_777_217);
    assert_eq!(weight(&format!("0.{}1e{}", "0".repeat(100_000), 100_001)), 1000);
    assert_eq!(weight(&format!("1{}e-100000", "0".repeat(100_000))), 1000);
}

#[test]
fn a_header_has_no_worker_that_is_not_up() {
    let policy = parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap();
    let mut config = PoolConfig::new(1, policy);
    let up = WorkerChange { name: "w".into(), state: Some(WorkerState::Up), ..Default::default() };
    config.workers = vec![up];
    assert!(written(|writer| writer.write_header(&config)).contains(r#""workers":[{"name":"w"}]"#));
    config.workers[0].state = Some(WorkerState::Drain);
    let error = JournalWriter::new(Vec::new()).write_header(&config).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), r#"worker "w" in a journal's header must be up"#);
}

/// Returns the first handle that a pool gives.
fn handle() -> RequestHandle {
    let config = PoolConfig::new(1, parse_policy(r#"{"share":{"by":"tenant"}}"#).unwrap());
    let mut decisions = Vec::new();
    let submit = Event::Submit(Box::new(Submit::new("r1")));
    Pool::new(config).apply(Micros(0), submit, &mut decisions).unwrap();
    match &decisions[..] {
        [Decision::Grant(grant)] => grant.request,
        other => panic!("{other:?}"),
    }
}

/// Handles are not written, because they mean nothing outside the program.
#[test]
fn decisions() {
    let request = handle();
    let place = GrantedPlace { worker: "w1".into(), rank: 0 };
    let full = Grant {
        request,
        id: "r1".into(),
        cost: Tokens(5),
        waited: Micros(7),
        brownout: Some(false),
        place: Some(place),
        why: None,
    };
    let bare = Grant { brownout: None, place: None, ..full.clone() };
    let limit = RejectionLimit { class: Some("cached".into()), current: 1 << 64, limit: 5 };
    let reject = |reason, limit| RejectedRequest { request: None, id: "r9".into(), reason, limit };
    let of_class = reject(RejectionReason::ClassRequests, Some(limit));
    let of_pool = RejectionLimit { class: None, current: 20, limit: 20 };
    let full_queue = reject(RejectionReason::QueueFull, Some(of_pool));
    let pushed_out =
        RejectedRequest { request: Some(request), ..reject(RejectionReason::PushedOut, None) };
    let duplicate = reject(RejectionReason::Duplicate, None);
    let decisions = [
        Decision::Grant(full),
        Decision::Grant(bare),
        Decision::Reject(of_class),
        Decision::Reject(full_queue),
        Decision::Reject(pushed_out),
        Decision::Reject(duplicate),
        Decision::Expire { request, id: "r3".into() },
    ];
    let lines = written(|writer| {
        decisions.iter().try_for_each(|decision| writer.write_decision(Micros(7), decision))
    });
    let expected = r#"{"at":7,"decision":"grant","id":"r1","waited_us":7,"brownout":false,"worker":"w1","rank":0}
{"at":7,"decision":"grant","id":"r1","waited_us":7}
{"at":7,"decision":"reject","id":"r9","reason":"class_requests","class":"cached","current":18446744073709551616,"limit":5}
{"at":7,"decision":"reject","id":"r9","reason":"queue_full","current":20,"limit":20}
{"at":7,"decision":"reject","id":"r9","reason":"pushed_out"}
{"at":7,"decision":"reject","id":"r9","reason":"duplicate"}
{"at":7,"decision":"expire","id":"r3"}
"#;
    assert_eq!(lines, expected);
}

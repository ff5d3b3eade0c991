//! What is written reads back the same, whatever it is; and the exact form in which it is written.
#![allow(clippy::unwrap_used)]

mod snapshots;
mod strategies;

use fairgate_core::decision::{Decision, Grant, GrantedPlace, Limit, Reason, Reject};
use fairgate_core::event::{Event, PoolConfig, WorkerChange, WorkerState};
use fairgate_core::units::{Micros, Tokens};
use fairgate_journal::{Reader, Start, Writer, format_policy, parse_policy};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::strategies::{config, event, number, policy};

proptest! {
    #[test]
    fn journals_read_back_the_same(
        config in config(),
        mut events in vec((number().prop_map(Micros), event()), 0..12),
    ) {
        events.sort_by_key(|(at, _)| *at);
        let mut writer = Writer::new(Vec::new());
        writer.write_header(&config).unwrap();
        for (at, event) in &events {
            writer.write_event(*at, event).unwrap();
        }
        let journal = writer.into_inner();
        for line in journal.strip_suffix(b"\n").unwrap().split(|&b| b == b'\n') {
            serde_json::from_slice::<serde_json::Value>(line).unwrap();
        }
        let (start, mut reader) = Reader::open(&journal[..]).unwrap();
        prop_assert_eq!(start, Start::Fresh(config));
        for (at, event) in events {
            prop_assert_eq!(reader.next_event().unwrap(), Some((at, event)));
        }
        prop_assert_eq!(reader.next_event().unwrap(), None);
        prop_assert_eq!(reader.bytes_read(), journal.len() as u64);
    }

    #[test]
    fn policies_read_back_the_same(policy in policy()) {
        prop_assert_eq!(parse_policy(&format_policy(&policy)).unwrap(), policy);
    }

    #[test]
    fn changed_journals_never_panic(
        config in config(),
        event in event(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut writer = Writer::new(Vec::new());
        writer.write_header(&config).unwrap();
        writer.write_event(Micros(1), &event).unwrap();
        let mut journal = writer.into_inner();
        for (at, byte) in changes {
            let at = at.index(journal.len());
            journal[at] = byte;
        }
        if let Ok((_, mut reader)) = Reader::open(&journal[..]) {
            while let Ok(Some(_)) = reader.next_event() {}
        }
    }
}

/// The lines of one writer.
fn written(write: impl FnOnce(&mut Writer<Vec<u8>>) -> std::io::Result<()>) -> String {
    let mut writer = Writer::new(Vec::new());
    write(&mut writer).unwrap();
    String::from_utf8(writer.into_inner()).unwrap()
}

/// The lines below are read, and written again just so.
#[test]
fn the_written_form() {
    let journal = r#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"drr":{"by":"class","classes":[{"name":"cached","quantum":2048,"busy_tokens":3000,"busy_fraction":0.25,"limit_requests_per_worker":1,"limit_input_tokens_per_worker":2,"limit_cached_tokens_per_worker":3,"queue":"wspt"},{"name":"batch","quantum":512,"inside":{"share":{"by":"tenant","weights":{"api":50,"chat":500},"default_weight":10,"caps":{"api":4},"default_cap":16}}}],"default":"cached","settle":true}},"max_queue":20,"queue_timeout_us":10000,"brownout_wait_us":750000,"workers":[{"name":"w1","ranks":2,"slots":8,"taints":["zone-a"],"batch_tokens":8192}],"busy_tokens":5,"busy_fraction":1.5}}
{"at":0,"event":"submit","id":"r1","class":"cached","tenant":"chat","group":"prod","agent":"analyst","cost":700,"priority":-1,"weight":1.25}
{"at":0,"event":"submit","id":"r2","input":3000,"cached":{"w1":2048,"w0":512},"pin":{"worker":"w1","rank":0},"allow":["w0","w1"],"requires":["zone-a"]}
{"at":9,"event":"release","id":"r1","tokens":812}
{"at":9,"event":"cancel","id":"r7"}
{"at":9,"event":"hold","by":"tenant","flow":"chat"}
{"at":9,"event":"resume","by":"tenant","flow":"chat"}
{"at":9,"event":"capacity","slots":4}
{"at":9,"event":"tick"}
{"at":9,"event":"weight","by":"tenant","flow":"chat","weight":700}
{"at":9,"event":"policy","policy":{"load":{"by":"agent","alpha":0.0,"auto_tune":true,"max_wait_ticks":100}}}
{"at":9,"event":"cap","by":"tenant","flow":"chat","slots":4}
{"at":9,"event":"cap","by":"tenant","flow":"chat"}
{"at":9,"event":"worker","name":"w1","state":"up","ranks":2,"slots":8,"taints":["zone-a"],"batch_tokens":8192}
{"at":9,"event":"first_token","id":"\"\\\u000a\u001f é"}
"#;
    let (start, mut reader) = Reader::open(journal.as_bytes()).unwrap();
    let Start::Fresh(config) = start else { panic!("a pool starts it") };
    let again = written(|writer| {
        writer.write_header(&config)?;
        while let Some((at, event)) = reader.next_event().unwrap() {
            writer.write_event(at, &event)?;
        }
        Ok(())
    });
    assert_eq!(again, journal);
}

/// The many ways to write one number.
#[test]
fn decimals_are_exact() {
    let weight = |written: &str| {
        let line = format!(r#"{{"at":0,"event":"submit","id":"r","weight":{written}}}"#);
        let header =
            r#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"load":{"by":"agent"}}}}"#;
        let journal = format!("{header}\n{line}\n");
        let (_, mut reader) = Reader::open(journal.as_bytes()).unwrap();
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
    let error = Writer::new(Vec::new()).write_header(&config).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    assert_eq!(error.to_string(), r#"worker "w" in a journal's header must be up"#);
}

#[test]
fn decisions() {
    let place = GrantedPlace { worker: "w1".into(), rank: 0 };
    let full = Grant {
        id: "r1".into(),
        cost: Tokens(5),
        waited: Micros(7),
        brownout: Some(false),
        place: Some(place),
        why: None,
    };
    let bare = Grant { brownout: None, place: None, ..full.clone() };
    let limit = Limit { class: Some("cached".into()), current: 1 << 64, limit: 5 };
    let of_class = Reject { id: "r9".into(), reason: Reason::ClassRequests, limit: Some(limit) };
    let of_pool = Limit { class: None, current: 20, limit: 20 };
    let full_queue = Reject { id: "r9".into(), reason: Reason::QueueFull, limit: Some(of_pool) };
    let duplicate = Reject { id: "r9".into(), reason: Reason::Duplicate, limit: None };
    let decisions = [
        Decision::Grant(full),
        Decision::Grant(bare),
        Decision::Reject(of_class),
        Decision::Reject(full_queue),
        Decision::Reject(duplicate),
        Decision::Expire { id: "r3".into() },
    ];
    let lines = written(|writer| {
        decisions.iter().try_for_each(|decision| writer.write_decision(Micros(7), decision))
    });
    let expected = r#"{"at":7,"decision":"grant","id":"r1","waited_us":7,"brownout":false,"worker":"w1","rank":0}
{"at":7,"decision":"grant","id":"r1","waited_us":7}
{"at":7,"decision":"reject","id":"r9","reason":"class_requests","class":"cached","current":18446744073709551616,"limit":5}
{"at":7,"decision":"reject","id":"r9","reason":"queue_full","current":20,"limit":20}
{"at":7,"decision":"reject","id":"r9","reason":"duplicate"}
{"at":7,"decision":"expire","id":"r3"}
"#;
    assert_eq!(lines, expected);
}

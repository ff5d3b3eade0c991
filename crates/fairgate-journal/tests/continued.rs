//! A journal that starts from a snapshot gives the decisions that the uninterrupted one gives.
#![allow(clippy::unwrap_used)]

mod seeds;

use fairgate_core::Pool;
use fairgate_core::decision::Decision;
use fairgate_core::event::Event;
use fairgate_core::fairness::NodeFairness;
use fairgate_core::snapshot::{NodeCounters, NodeSnapshot, Snapshot};
use fairgate_core::units::Micros;
use fairgate_journal::{Reader, Writer};
use fairgate_testkit::workload::{Shape, generate, generate_answered};

use crate::seeds::seeds;

type Decisions = Vec<(Micros, Decision)>;

fn apply(pool: &mut Pool, (at, event): (Micros, Event), decisions: &mut Decisions) {
    let mut decided = Vec::new();
    pool.apply(at, event, &mut decided).unwrap();
    decisions.extend(decided.into_iter().map(|decision| (at, decision)));
}

/// The text of a journal that goes on from `pool` with these events.
fn rotated(pool: &Pool, events: &[(Micros, Event)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new());
    writer.write_snapshot(&pool.snapshot()).unwrap();
    for (at, event) in events {
        writer.write_event(*at, event).unwrap();
    }
    writer.into_inner()
}

/// Replays a journal's text: its decisions, and the pool in the end.
fn replay(journal: &[u8]) -> (Decisions, Pool) {
    let (start, mut reader) = Reader::open(journal).unwrap();
    let mut pool = start.into_pool().unwrap();
    let mut decisions = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        apply(&mut pool, event, &mut decisions);
    }
    (decisions, pool)
}

/// A pool's state, as far as it matters. While no worker takes anything a pool need not look at its flows, and one
/// that was restored has looked once: so a flow's distance from virtual time is compared, not whether it has
/// noted when it stopped. What only the bounds depend on is compared as the pool shows it.
fn state(pool: &Pool) -> (Snapshot, Vec<NodeFairness>) {
    let mut snapshot = pool.snapshot();
    forget(&mut snapshot.root);
    let mut fairness = pool.fairness();
    fairness.sort_by(|a, b| a.path.cmp(&b.path));
    (snapshot, fairness)
}

fn forget(node: &mut NodeSnapshot) {
    let now = match &mut node.state {
        NodeCounters::Drr { deficits, .. } => {
            deficits.iter_mut().for_each(|deficit| (deficit.1, deficit.2) = (0, 0));
            0
        }
        NodeCounters::Share { virtual_time, .. } => *virtual_time,
        NodeCounters::Load { .. } => 0,
    };
    for flow in &mut node.flows {
        if let Some(share) = &mut flow.share {
            share.base += share.stopped.take().map_or(0, |stopped| now - stopped);
            share.bound = Default::default();
        }
        if let Some(inside) = &mut flow.inside {
            forget(inside);
        }
    }
}

/// Cuts the journal of this shape and seed after every `step`-th event.
fn check(name: &str, shape: &Shape, seed: u64, step: usize) {
    let (config, events) = match seed % 2 {
        0 => generate_answered(shape, seed),
        _ => generate(shape, seed),
    };
    let mut pool = Pool::new(config);
    let mut decisions = Vec::new();
    let mut cuts = vec![(0, rotated(&pool, &events))];
    for (i, event) in events.iter().enumerate() {
        apply(&mut pool, event.clone(), &mut decisions);
        if (i + 1) % step == 0 {
            cuts.push((decisions.len(), rotated(&pool, &events[i + 1..])));
        }
    }
    for (i, (decided, journal)) in cuts.iter().enumerate() {
        let cut = format!("shape {name}, seed {seed}, cut after {} events", i * step);
        let (continued, ended) = replay(journal);
        assert_eq!(continued, decisions[*decided..], "{cut}");
        assert_eq!(state(&ended), state(&pool), "{cut}: the pools differ in the end");
    }
}

#[test]
fn wherever_a_journal_is_cut_the_decisions_are_the_same() {
    let seeds = seeds(0..12);
    for (name, shape) in Shape::quick() {
        println!("shape {name}: seeds {seeds:?}");
        for seed in seeds.clone() {
            check(name, &shape, seed, 7);
        }
    }
}

#[test]
fn with_a_crowd_too() {
    let shape = Shape { events: 1000, ..Shape::crowded() };
    for seed in 0..2 {
        println!("shape crowded: seed {seed}");
        check("crowded", &shape, seed, 211);
    }
}

//! Tests of fairness from the decisions and the real usage alone, without the pool's own counters. The journals are
//! random, and their flows always have requests waiting.
//!
//! Each inequality is derived from the rules alone and checked in whole numbers, both sides times the
//! weights, at every moment. Where it is linear it is checked over every part of the journal too: the running
//! difference may rise by so much from any earlier moment. What limits the pool is its capacity in one half of the
//! journals and the slots of a worker in the other.
//!
//! `FAIRGATE_CASES` sets how many journals (a twentieth of it for each test, default 20 000 / 20),
//! `FAIRGATE_SEED` where they begin. A failure prints the seed and the journal up to the moment that broke it.

mod books;
mod drr;
mod share;
mod stage;

use std::fmt::Write as _;
use std::sync::Mutex;

use fairgate_testkit::seeds::{announce, cases, for_each_seed};

use crate::fair_service::books::Nearest;
use crate::fair_service::stage::Stage;

/// The result of a journal: the greatest values relative to their bounds, or the broken bound with
/// the journal up to that event.
type Played = Result<Nearest, String>;

fn played(outcome: Result<(), String>, nearest: Nearest, stage: Stage) -> Played {
    let text = |broken| format!("{broken}\n{}", stage.into_text());
    outcome.map(|()| nearest).map_err(text)
}

/// Runs a twentieth of the cases, and prints the greatest values relative to their bounds.
fn run(name: &str, journal: impl Fn(u64) -> Played + Sync) {
    let nearest = Mutex::new(Nearest::default());
    for_each_seed(name, cases().div_ceil(20), |seed| {
        let played = journal(seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        nearest.lock().expect("nobody failed").join(&played);
    });
    let mut line = format!("{name}: nearest to each bound");
    for (what, percent) in nearest.into_inner().expect("nobody failed").percents() {
        write!(line, ", {what} {percent} %").expect("written to memory");
    }
    announce(&line);
}

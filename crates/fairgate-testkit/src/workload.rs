//! Random journals from a seed, for comparing the scheduler with its oracle.
//!
//! A [`WorkloadShape`] describes the kind of journal. The same shape and seed always give the same
//! journal. [`generate`] guesses which requests are in flight, so it depends on no scheduler. But
//! only one in five of its releases names a request that is in flight, or one in fifteen if flows
//! are often held. [`generate_answered`] uses the oracle's decisions instead, and about half of its
//! releases or more name a request in flight, so prefer it for comparisons. Journals alternate
//! between bursts, which build a deep backlog, and drains. [`minimise`](fn@minimise) makes a
//! failing journal small.

mod minimise;
mod shape;
mod submits;
mod traffic;
mod trees;
mod workers;

use fairgate_core::event::{Event, PoolConfig};
use fairgate_core::units::Micros;

use crate::naive::NaivePool;

pub use fairgate_random::SeededRng;
pub use minimise::minimise;
pub use shape::{CostDistribution, FlowHomes, NodeKind, WorkloadShape};
pub use traffic::TrafficGenerator;

/// The events of a journal, each with its time.
pub type Events = Vec<(Micros, Event)>;

/// Generates a journal of this shape by guessing the decisions, without a scheduler.
pub fn generate(shape: &WorkloadShape, seed: u64) -> (PoolConfig, Events) {
    let mut traffic = TrafficGenerator::new(shape, seed);
    let config = traffic.config().clone();
    let mut events = Vec::with_capacity(shape.events);
    while let Some(event) = traffic.next_event() {
        traffic.guess();
        events.push(event);
    }
    (config, events)
}

/// Generates a journal of this shape that takes the oracle's decisions into account.
pub fn generate_answered(shape: &WorkloadShape, seed: u64) -> (PoolConfig, Events) {
    let mut traffic = TrafficGenerator::new(shape, seed);
    let config = traffic.config().clone();
    let mut pool = NaivePool::new(config.clone());
    let mut events = Vec::with_capacity(shape.events);
    while let Some((at, event)) = traffic.next_event() {
        traffic.observe(&pool.apply(at, &event));
        events.push((at, event));
    }
    (config, events)
}

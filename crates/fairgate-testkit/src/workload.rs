//! Random journals from a seed, for comparing the scheduler with its oracle.
//!
//! A [`Shape`] says what kind of journal is wanted; the same shape and seed give the same journal for
//! ever. [`generate`] guesses what is in flight and so depends on no scheduler, but few of its releases hit: one
//! in five, one in fifteen where flows are held all the time. [`generate_answered`] listens to the oracle,
//! and about half or more do; prefer it for comparisons. Journals swing between bursts, that build a deep
//! backlog, and drains. [`minimise`] takes a failing journal apart.

mod minimise;
mod rng;
mod shape;
mod submits;
mod traffic;
mod trees;
mod workers;

use fairgate_core::event::{Event, PoolConfig};
use fairgate_core::units::Micros;

use crate::naive::NaivePool;

pub use minimise::minimise;
pub use rng::Rng;
pub use shape::{Costs, Kind, Shape};
pub use traffic::Traffic;

/// The events of a journal, with their times.
pub type Events = Vec<(Micros, Event)>;

/// A journal of this shape, made without any scheduler.
pub fn generate(shape: &Shape, seed: u64) -> (PoolConfig, Events) {
    let mut traffic = Traffic::new(shape, seed);
    let config = traffic.config().clone();
    let mut events = Vec::with_capacity(shape.events);
    while let Some(event) = traffic.next_event() {
        traffic.guess();
        events.push(event);
    }
    (config, events)
}

/// A journal of this shape, made with the oracle's answers in view.
pub fn generate_answered(shape: &Shape, seed: u64) -> (PoolConfig, Events) {
    let mut traffic = Traffic::new(shape, seed);
    let config = traffic.config().clone();
    let mut pool = NaivePool::new(config.clone());
    let mut events = Vec::with_capacity(shape.events);
    while let Some((at, event)) = traffic.next_event() {
        traffic.observe(&pool.apply(at, &event));
        events.push((at, event));
    }
    (config, events)
}

//! Properties of every journal, tested on thousands of random journals. There is one test for each shape of journal and
//! each kind of check, so that tests run in parallel and can be run alone.
//!
//! `FAIRGATE_CASES` sets how many journals are compared with the naive scheduler over all shapes (default 20 000, a
//! twentieth of them with 64 to 1000 flows), `FAIRGATE_SEED` where they begin. A failure prints the shape, the seed,
//! and the smallest journal that still fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::decision::{Decision, RejectionReason};
use fairgate_core::event::{Event, PoolConfig, WorkerState};
use fairgate_core::units::Micros;
use fairgate_journal::JournalWriter;
use fairgate_testkit::naive::{ComparedDecision, NaivePool};
use fairgate_testkit::seeds::{cases, for_each_seed};
use fairgate_testkit::workload::{self, Events, FlowHomes, SeededRng, WorkloadShape};

/// One test for each shape.
macro_rules! for_each_shape {
    ($check:ident, $part:expr, [$($name:ident),+ $(,)?]) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name), (cases() * 19 / 20).div_ceil(SHAPES * $part), $check, |seed| {
                    small_journal(&WorkloadShape::$name(), seed)
                });
            }
        )+

        #[test]
        fn crowded() {
            run("crowded", cases().div_ceil(20 * $part), $check, crowded_journal);
        }

        #[test]
        fn every_quick_shape_has_its_test() {
            let names: Vec<_> = WorkloadShape::quick().into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, [$(stringify!($name)),+]);
            assert_eq!(names.len() as u64, SHAPES);
        }
    };
}

/// Number of quick shapes.
const SHAPES: u64 = 18;

/// Tests that the core makes the same decisions as the naive scheduler.
mod equal {
    use super::*;

    for_each_shape!(
        equals_the_naive_scheduler,
        1,
        [
            small,
            drr,
            share,
            hierarchical,
            load,
            tree,
            workers,
            restless,
            jammed,
            copies,
            rates,
            paused,
            wild,
            bands,
            deadlines,
            ties,
            pinned,
            pinned_inside,
        ]
    );
}

/// Tests of properties of the core alone.
mod hold {
    use super::*;

    for_each_shape!(
        holds_by_itself,
        2,
        [
            small,
            drr,
            share,
            hierarchical,
            load,
            tree,
            workers,
            restless,
            jammed,
            copies,
            rates,
            paused,
            wild,
            bands,
            deadlines,
            ties,
            pinned,
            pinned_inside,
        ]
    );
}

type Journal = (PoolConfig, Events);
type Check = fn(&PoolConfig, &Events, u64) -> Result<(), String>;

fn small_journal(shape: &WorkloadShape, seed: u64) -> Journal {
    match seed % 3 {
        0 => workload::generate(shape, seed),
        _ => workload::generate_answered(shape, seed),
    }
}

fn crowded_journal(seed: u64) -> Journal {
    let events = if seed.is_multiple_of(5) { 700 } else { 300 };
    // Some have workers, for all flows alike or shared by hundreds of flows each.
    let few = seed % 4 == 2;
    let shape = WorkloadShape {
        events,
        workers: seed.is_multiple_of(2),
        homes: if few { FlowHomes::Few } else { FlowHomes::Any },
        rates: seed.is_multiple_of(8),
        ..WorkloadShape::crowded()
    };
    workload::generate(&shape, seed)
}

fn run(shape: &str, count: u64, check: Check, journal: impl Fn(u64) -> Journal + Sync) {
    for_each_seed(shape, count, |seed| {
        let (config, events) = journal(seed);
        if let Err(broken) = check(&config, &events, seed) {
            report(shape, seed, check, &config, &events, &broken);
        }
    });
}

/// Panics with the smallest journal that still fails.
fn report(
    shape: &str,
    seed: u64,
    check: Check,
    config: &PoolConfig,
    events: &Events,
    broken: &str,
) -> ! {
    let fails = |config: &PoolConfig, events: &Events| {
        std::panic::catch_unwind(|| check(config, events, seed).is_err()).unwrap_or(true)
    };
    let small = workload::minimise(config, events, fails);
    let again = check(config, &small, seed).err().unwrap_or_default();
    let mut text = Vec::new();
    let mut writer = JournalWriter::new(&mut text);
    writer.write_header(config).expect("written to memory");
    for (at, event) in &small {
        writer.write_event(*at, event).expect("written to memory");
    }
    panic!(
        "seed {seed}, shape {shape}: {broken}\nsmallest: {again}\n{}",
        String::from_utf8_lossy(&text)
    );
}

fn holds_by_itself(config: &PoolConfig, events: &Events, seed: u64) -> Result<(), String> {
    survives_a_cut(config, events, seed)?;
    Watch::new(config).run(config, events)
}

fn apply(pool: &mut Pool, at: Micros, event: &Event) -> Vec<Decision> {
    let mut decisions = Vec::new();
    pool.apply(at, event.clone(), &mut decisions).expect("time goes on");
    decisions
}

fn equals_the_naive_scheduler(
    config: &PoolConfig,
    events: &Events,
    seed: u64,
) -> Result<(), String> {
    let mut pool = Pool::new(config.clone());
    let mut naive = NaivePool::new(config.clone());
    // In one journal of four the core is saved and restored every few events.
    let every = seed.is_multiple_of(4).then(|| SeededRng::new(seed).count(1..=12));
    for (line, (at, event)) in events.iter().enumerate() {
        if every.is_some_and(|every| line % every == 0) {
            pool = Pool::restore(pool.snapshot()).map_err(|e| format!("before {line}: {e}"))?;
        }
        let fast: Vec<_> =
            apply(&mut pool, *at, event).iter().map(ComparedDecision::from).collect();
        let slow = naive.apply(*at, event);
        if fast != slow {
            return Err(format!("event {line}: the core {fast:?}, the naive scheduler {slow:?}"));
        }
    }
    Ok(())
}

/// Checks that a pool that was cloned, or saved and restored, in the middle of a journal makes the
/// same further decisions.
fn survives_a_cut(config: &PoolConfig, events: &Events, seed: u64) -> Result<(), String> {
    let cut = SeededRng::new(seed).index(events.len() + 1);
    let mut pool = Pool::new(config.clone());
    for (at, event) in &events[..cut] {
        apply(&mut pool, *at, event);
    }
    let mut copy = pool.clone();
    let mut restored = Pool::restore(pool.snapshot()).map_err(|e| format!("cut {cut}: {e}"))?;
    for (line, (at, event)) in events.iter().enumerate().skip(cut) {
        let decisions = apply(&mut pool, *at, event);
        if decisions != apply(&mut copy, *at, event) {
            return Err(format!("cut {cut}: the copy differs at event {line}"));
        }
        let after = apply(&mut restored, *at, event);
        if decisions != after {
            return Err(format!("cut {cut}, event {line}: {decisions:?}, restored {after:?}"));
        }
    }
    match pool.snapshot() {
        end if end != copy.snapshot() => Err(format!("cut {cut}: the copy's state differs")),
        end if end != restored.snapshot() => {
            Err(format!("cut {cut}: states differ: {end:#?} {:#?}", restored.snapshot()))
        }
        _ => Ok(()),
    }
}

/// Runs one journal and checks the properties after each event.
struct Watch {
    /// Ids of the submitted requests about which nothing was decided yet.
    waiting: BTreeSet<Arc<str>>,
    /// Ids of the granted requests that have not ended.
    in_flight: BTreeSet<Arc<str>>,
    /// True if a slot may stay free although a request waits, because of a hold, a cap or workers.
    excused: bool,
    capacity_fell: bool,
}

impl Watch {
    fn new(config: &PoolConfig) -> Self {
        let excused = !config.workers.is_empty() || may_cap(&config.policy);
        Self { waiting: BTreeSet::new(), in_flight: BTreeSet::new(), excused, capacity_fell: false }
    }

    fn run(&mut self, config: &PoolConfig, events: &Events) -> Result<(), String> {
        let mut pool = Pool::new(config.clone());
        let often = if events.len() > 400 { 64 } else { 1 };
        for (line, (at, event)) in events.iter().enumerate() {
            let before = pool.in_flight();
            self.note(event);
            let decisions = apply(&mut pool, *at, event);
            let step = self.follow(event, &decisions);
            let step = step.and_then(|()| self.compare(&pool, before));
            let bounds = if line % often == 0 { bounds_hold(&pool) } else { Ok(()) };
            step.and(bounds).map_err(|broken| format!("event {line}: {broken}"))?;
        }
        Ok(())
    }

    fn note(&mut self, event: &Event) {
        match event {
            // Who goes unknown leaves a pool without workers as it is.
            Event::Worker(change) if change.state == Some(WorkerState::Gone) => {}
            Event::Hold { .. } | Event::Cap { .. } | Event::Worker(_) => self.excused = true,
            Event::Policy(policy) if may_cap(policy) => self.excused = true,
            Event::Capacity { .. } => self.capacity_fell = true,
            _ => {}
        }
    }

    /// Checks that every submit ends in exactly one of grant, reject, expire and cancel.
    fn follow(&mut self, event: &Event, decisions: &[Decision]) -> Result<(), String> {
        // What expires does so before the event.
        let expired = decisions.iter().take_while(|d| matches!(d, Decision::Expire { .. })).count();
        for decision in &decisions[..expired] {
            if let Decision::Expire { id, .. } = decision
                && !self.waiting.remove(id)
            {
                return Err(format!("{id} expired but did not wait"));
            }
        }
        let mut duplicate = None;
        match event {
            Event::Submit(submit)
                if self.waiting.contains(&submit.id) || self.in_flight.contains(&submit.id) =>
            {
                duplicate = Some(&submit.id);
            }
            Event::Submit(submit) => {
                self.waiting.insert(submit.id.clone());
            }
            Event::Release { id, .. } => {
                self.in_flight.remove(id);
            }
            Event::Cancel { id } => {
                self.waiting.remove(id);
                self.in_flight.remove(id);
            }
            _ => {}
        }
        for decision in &decisions[expired..] {
            let ended = match decision {
                Decision::Grant(grant) => {
                    self.waiting.remove(&grant.id) && self.in_flight.insert(grant.id.clone())
                }
                Decision::Reject(reject) if reject.reason == RejectionReason::Duplicate => {
                    duplicate.take() == Some(&reject.id)
                }
                Decision::Reject(reject) => self.waiting.remove(&reject.id),
                Decision::Expire { .. } => false,
            };
            if !ended {
                return Err(format!("{decision:?} is about nothing that waits"));
            }
        }
        match duplicate {
            Some(id) => Err(format!("duplicate {id} was not rejected")),
            None => Ok(()),
        }
    }

    fn compare(&self, pool: &Pool, before: u64) -> Result<(), String> {
        let (waiting, in_flight) = (self.waiting.len() as u64, self.in_flight.len() as u64);
        if (pool.waiting(), pool.in_flight()) != (waiting, in_flight) {
            let counts = (pool.waiting(), pool.in_flight());
            return Err(format!("it counts {counts:?}, its decisions {:?}", (waiting, in_flight)));
        }
        if in_flight > pool.capacity() && in_flight > before {
            return Err(format!("{in_flight} in flight in {} slots", pool.capacity()));
        }
        if !self.excused && in_flight < pool.capacity() && waiting > 0 {
            return Err(format!("{waiting} wait beside a free slot"));
        }
        Ok(())
    }
}

fn may_cap(policy: &fairgate_core::policy::Policy) -> bool {
    format!("{policy:?}").contains("cap") && fairgate_journal::format_policy(policy).contains("cap")
}

/// Checks that every backlogged flow of every share and drr node is within the bound of its
/// discipline.
fn bounds_hold(pool: &Pool) -> Result<(), String> {
    for node in pool.fairness() {
        for flow in node.flows {
            let Some(lag) = flow.lag else { continue };
            if let Some((least, most)) = lag.bound
                && !(least..=most).contains(&lag.lag)
            {
                return Err(format!(
                    "{} by {} at {:?}: {} lags {}, outside {least} to {most}",
                    node.kind,
                    node.by.name(),
                    node.path,
                    flow.name,
                    lag.lag
                ));
            }
        }
    }
    Ok(())
}

/// With `max_wait_ticks` a flow's oldest request waits at most that many ticks and then only for what was late
/// before it: the older requests.
#[test]
fn a_late_head_waits_only_for_those_late_before_it() {
    for_each_seed("late_heads", cases().div_ceil(20), |seed| {
        late_heads_are_bounded(seed).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
    });
}

fn late_heads_are_bounded(seed: u64) -> Result<(), String> {
    use fairgate_core::attribute::{Attribute, Attributes};
    use fairgate_core::event::Submit;
    use fairgate_core::policy::{FlowInside, LoadPolicy, Policy, PolicyNode};
    use fairgate_core::units::{Alpha, TaskWeight};

    let mut rng = SeededRng::new(seed);
    let max_wait = rng.range(0..=12);
    let alpha = Alpha::from_millionths(rng.range(0..=1_000_000)).expect("in range");
    let fcfs = rng.percent(50);
    let policy = Policy::new(PolicyNode::Load(LoadPolicy {
        by: Attribute::Agent,
        alpha,
        auto_tune: rng.percent(50),
        max_wait_ticks: Some(max_wait),
        inside: if fcfs { FlowInside::FCFS } else { FlowInside::WSPT },
    }))
    .expect("a policy");
    let mut pool = Pool::new(PoolConfig::new(rng.range(1..=4), policy));
    // Per flow: (seq, tick, id) of what waits.
    let mut waiting: BTreeMap<u64, Vec<(u64, u64, Arc<str>)>> = BTreeMap::new();
    // For a late head: its id and the tick by which it must be granted.
    let mut deadline: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    let mut in_flight: Vec<Arc<str>> = Vec::new();
    for seq in 0..400 {
        let event = if in_flight.is_empty() || rng.percent(60) {
            let agent = rng.range(0..=6).min(rng.range(0..=6));
            let mut submit = Submit::new(&format!("r{seq}"));
            submit.attributes = Attributes::none().with(Attribute::Agent, &format!("a{agent}"));
            submit.priority = rng.one_of(&[0, 1, 2]);
            submit.weight = TaskWeight::from_thousandths(rng.range(1..=9000)).expect("in range");
            let entry = (seq, pool.ticks().0, submit.id.clone());
            waiting.entry(agent).or_default().push(entry);
            Event::Submit(Box::new(submit))
        } else {
            let id = in_flight.swap_remove(rng.index(in_flight.len()));
            Event::Release { id, tokens: None, quota: None }
        };
        for decision in apply(&mut pool, Micros(seq), &event) {
            let Decision::Grant(grant) = decision else { continue };
            for flow in waiting.values_mut() {
                flow.retain(|(_, _, id)| *id != grant.id);
            }
            if let Some(by) = deadline.remove(&grant.id)
                && pool.ticks().0 > by
            {
                return Err(format!("{} went at tick {}, due by {by}", grant.id, pool.ticks().0));
            }
            in_flight.push(grant.id);
        }
        let now = pool.ticks().0;
        let all: Vec<u64> = waiting.values().flatten().map(|(seq, _, _)| *seq).collect();
        for (head, tick, id) in waiting.values().filter_map(|flow| flow.first()) {
            if now - tick >= max_wait {
                let older = all.iter().filter(|seq| *seq < head).count() as u64;
                deadline.entry(id.clone()).or_insert(now.max(tick + max_wait) + older + 1);
            }
        }
        if let Some((id, by)) = deadline.iter().find(|(_, by)| **by < now) {
            return Err(format!("{id} still waits at tick {now}, due by {by}"));
        }
    }
    Ok(())
}

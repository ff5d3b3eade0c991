//! Compares the promises of the page with the tokens that the flows got.

use fairgate_core::event::{PoolConfig, WorkerChange};
use fairgate_core::policy::PolicyNode;
use fairgate_journal::{JournalReader, JournalStart, parse_policy};
use fairgate_testkit::seeds::announce;

use super::closed_loop::{ClosedLoop, Estimate, Outcome, Sender};
use super::page::{Flow, Kept, Promise, Recipe, attributes, holds, recipes, text};
use super::sizes::Traces;

const SLOTS: u64 = 8;
/// Number of clients of each sender, which is more than the sender can have in flight.
const CLIENTS: usize = 12;
const ENDS: usize = 12_000;

/// Pairs of estimates: that of the first sender, and that of the other senders.
const ESTIMATES: [(Estimate, Estimate); 4] = [
    (Estimate::Exact, Estimate::Exact),
    (Estimate::Noisy, Estimate::Noisy),
    (Estimate::Learned, Estimate::Learned),
    (Estimate::Times(4), Estimate::Exact),
];

#[test]
fn every_recipe_keeps_its_promises() {
    let traces = Traces::load();
    let page = text();
    let promised: Vec<Recipe> =
        recipes(&page).into_iter().filter(|recipe| !recipe.promises.is_empty()).collect();
    assert!(promised.len() >= 8, "the promises were found: {}", promised.len());
    for recipe in promised {
        for line in check(&recipe, &traces) {
            announce(&line);
        }
    }
}

/// A policy without a promise would be one that no test runs. Only drr and bands promise no shares; what bands keep is
/// tested in `closed_loop/bands.rs`.
#[test]
fn every_policy_of_the_page_promises_shares_but_drr_and_bands() {
    for Recipe { line, is_header, text, promises } in recipes(&text()) {
        if is_header {
            continue;
        }
        let policy = parse_policy(&text).unwrap_or_else(|e| panic!("line {line}: {e}"));
        let has_shares = !matches!(policy.root().kind(), "drr" | "bands");
        assert_eq!(
            !promises.is_empty(),
            has_shares,
            "line {line}: a promise without shares, or none"
        );
    }
}

/// Runs a recipe with each kind of estimate, both ways round of sizes, and with each limit on what is in flight.
fn check(recipe: &Recipe, traces: &Traces) -> Vec<String> {
    let flows = leaves(&recipe.promises);
    let mut worst = vec![0.0f64; recipe.promises.len()];
    for config in configs(recipe) {
        for (estimates, swapped) in ESTIMATES.into_iter().flat_map(|e| [(e, false), (e, true)]) {
            let senders = senders(&flows, estimates, swapped, traces);
            let mut pool = ClosedLoop::start(config.clone(), &senders);
            pool.run(ENDS);
            let how = || {
                let workers = &config.workers;
                format!("{estimates:?}, sizes swapped: {swapped}, workers: {workers:?}")
            };
            if meter_is_exact(&config) {
                let outside = outside_bounds(&pool);
                assert!(outside.is_empty(), "line {}: {outside:?}; {}", recipe.line, how());
            }
            for (promise, worst) in recipe.promises.iter().zip(&mut worst) {
                let deviation = deviation(promise, &flows, pool.outcomes());
                let said = &promise.text;
                assert!(deviation <= allowed(promise), "{said}: {deviation:.2}; {}", how());
                *worst = worst.max(deviation);
            }
        }
    }
    let report = |(promise, worst): (&Promise, f64)| {
        format!("line {}: {}: at most {worst:.2}", recipe.line, promise.text)
    };
    recipe.promises.iter().zip(worst).map(report).collect()
}

/// Returns true if the meter's `due` can be compared with the flows' tokens, which is false if a partition divides the
/// slots.
fn meter_is_exact(config: &PoolConfig) -> bool {
    !matches!(&**config.policy.root(), PolicyNode::Share(share) if share.partition)
}

/// Returns the flows that contain no other flow of these promises. Only these flows send requests.
fn leaves(promises: &[Promise]) -> Vec<Flow> {
    let mut leaves: Vec<Flow> = Vec::new();
    for flow in promises.iter().flat_map(|promise| &promise.flows) {
        let others = promises.iter().flat_map(|promise| &promise.flows);
        let is_leaf = !others.into_iter().any(|other| other != flow && holds(flow, other));
        if is_leaf && !leaves.contains(flow) {
            leaves.push(flow.clone());
        }
    }
    leaves
}

fn configs(recipe: &Recipe) -> Vec<PoolConfig> {
    if recipe.is_header {
        let (start, _) = JournalReader::open(recipe.text.as_bytes()).expect("a header");
        let JournalStart::Fresh(config) = start else { panic!("the page's journals begin empty") };
        assert!(config.capacity < CLIENTS as u64, "a sender must not have everything in flight");
        return vec![config];
    }
    let policy = parse_policy(&recipe.text).expect("a good policy");
    let worker = WorkerChange { name: "w".into(), slots: Some(SLOTS), ..WorkerChange::default() };
    let slots = PoolConfig { workers: vec![worker], ..PoolConfig::new(1000, policy.clone()) };
    vec![PoolConfig::new(SLOTS, policy), slots]
}

/// Builds one sender for each flow. The senders use the two traces in turns, from different
/// positions.
fn senders(
    flows: &[Flow],
    (first, others): (Estimate, Estimate),
    swapped: bool,
    traces: &Traces,
) -> Vec<Sender> {
    let sender = |(i, flow): (usize, &Flow)| {
        let is_code = (i % 2 == 1) != swapped;
        let mut sizes = if is_code { traces.code.clone() } else { traces.conversation.clone() };
        let start = sizes.len() * i / flows.len();
        sizes.rotate_left(start);
        let estimate = if i == 0 { first } else { others };
        Sender { attributes: attributes(flow), clients: CLIENTS, sizes, estimate }
    };
    flows.iter().enumerate().map(sender).collect()
}

/// Describes the flows of share nodes whose distance from their due exceeds the bound that the pool reports.
fn outside_bounds(pool: &ClosedLoop) -> Vec<String> {
    let nodes = pool.pool().fairness().into_iter().filter(|node| node.kind == "share");
    let outside = nodes.flat_map(|node| node.flows).filter(|flow| !flow.is_within_bound());
    outside.map(|flow| format!("{} got {}, {:?}", flow.name, flow.got, flow.due)).collect()
}

/// Returns the largest deviation of a flow's part from the promise, in percent of the promised part. For a promise
/// about waits, returns the longest wait.
fn deviation(promise: &Promise, senders: &[Flow], outcomes: &[Outcome]) -> f64 {
    let sum = |flow: &Flow, of: fn(&Outcome) -> f64| {
        let inside = senders.iter().zip(outcomes).filter(|(sender, _)| holds(flow, sender));
        inside.map(|(_, outcome)| of(outcome)).sum::<f64>()
    };
    let (ratio, of): (_, fn(&Outcome) -> f64) = match &promise.kept {
        Kept::Tokens { ratio, .. } => (ratio, |outcome| outcome.tokens as f64),
        Kept::Slots { ratio, .. } => (ratio, |outcome| outcome.slot_us as f64),
        Kept::LongestWait { .. } => {
            let longest = outcomes.iter().map(|outcome| outcome.longest_wait_ticks).max();
            return longest.unwrap_or(0) as f64;
        }
    };
    assert_eq!(ratio.len(), promise.flows.len(), "{}", promise.text);
    let got: Vec<f64> = promise.flows.iter().map(|flow| sum(flow, of)).collect();
    let (all, whole) = (got.iter().sum::<f64>(), ratio.iter().sum::<f64>());
    let off = got.iter().zip(ratio).map(|(got, part)| (got * whole / (all * part) - 1.0).abs());
    off.fold(0.0, f64::max) * 100.0
}

fn allowed(promise: &Promise) -> f64 {
    match promise.kept {
        Kept::Tokens { within_percent, .. } | Kept::Slots { within_percent, .. } => within_percent,
        Kept::LongestWait { ticks } => ticks as f64,
    }
}

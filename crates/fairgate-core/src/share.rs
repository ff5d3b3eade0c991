//! Share score over weighted flows: who has had the least for its weight goes next.
//!
//! # The discipline
//! Think of a fluid that gives every waiting flow *i* its part wᵢ/W of each token served. After such
//! service all flows would stand at the same normalised height, tokens per weight; call it virtual time
//! *V*. Real requests are whole and run side by side, so each flow keeps its own height
//!
//! ```text
//!     settledᵢ = baseᵢ + ⌊servedᵢ · 2³² / wᵢ⌋              tokens that ended
//!     scoreᵢ   = baseᵢ + ⌊(servedᵢ + pendingᵢ) · 2³² / wᵢ⌋   and those in flight, at their estimates
//! ```
//!
//! and a free slot goes to the lowest score among the ready, ties to the flow whose last grant (or start) is longer
//! ago: the classic `share_score = served / weight`, in exact integers of 2⁻³² tokens per weight. With weights 500 and
//! 50, 1000 tokens are scores 2 and 20, so the heavier flow is picked ten times as often.
//!
//! Four things make it hold in practice:
//!
//! * **Real usage.** When a request ends, its estimate leaves `pending` and its real tokens enter `served`. At each
//!   grant V ← max(V, min(highest settled, lowest score of those that are not new)) over the ready flows. So V moves
//!   only with tokens really used, and an inflated estimate delays its owner (the score counts pending) and nobody else.
//! * **The idle bank nothing.** A flow that starts to wait below V starts at V, with a new generation; what
//!   it still had in flight from before can then cost it more, but not earn it a refund.
//! * **The fresh hold nobody up.** A flow that starts at or below V is *new* until its first grant. New flows do not
//!   hold V down: else names that come fresh with every request would keep it still, and start again and again
//!   beside a flow that pays.
//! * **The kept bank nothing and lose nothing.** A flow that had work but was not ready (held, at its cap, no open
//!   worker) and returns below V is lifted to V, but by no more than V rose meanwhile. What it was behind before, it is
//!   still; what it missed by not being ready is not made up for; and what was served to it at its cap, which put its
//!   score up already, is not charged a second time.
//!
//! With `partition` the pool's slots are first divided by weight ([`crate::apportion`]) among the flows that
//! are ready or have requests in flight; a ready flow with fewer in flight than its slots goes before any other, and a
//! slot that no such flow wants is lent to the lowest score.
//!
//! # In logarithmic time
//! A flow's score changes only by what happens to that flow. Three tournaments (`ranking.rs`) over the ready flows
//! have the lowest score of those that are new, of those that are not, and the highest settled at hand; an event plays
//! one entry of each again at most: O(log n). Partition keeps a sorted set of those below their slots; slots are divided anew
//! only when a flow comes, goes or is re-weighed or the capacity changes, which costs O(n log n) over the n ≤ capacity
//! active flows.
//!
//! A flow that is idle, has nothing in flight and whose score is below V (or is 0) carries nothing that its return would
//! not set anew: it is forgotten. Idle flows above V wait in order of their scores until V has passed them, so a name
//! that came once costs memory only for as long as it is ahead.
//!
//! # The bound
//! *Between two flows* that are ready all the time: when *i* is granted, scoreᵢ ≤ scoreⱼ, so right after it
//! scoreᵢ − scoreⱼ ≤ cᵢ/wᵢ. Until the next grant of *i* that distance grows only by what ends otherwise than
//! estimated: overruns of *i*, refunds of *j*. Both are bounded by what the two have in flight. So with e the largest sum
//! of overruns, or of refunds, of requests of a flow that were in flight together,
//!
//! ```text
//!     | scoreᵢ − scoreⱼ | ≤ (cᵢ + eᵢ)/wᵢ + (cⱼ + eⱼ)/wⱼ
//! ```
//!
//! which does not grow with time: tokens served per weight converge on 1 : 1. It holds whatever limits the pool
//! (capacity, slots, thresholds, rates), for it speaks of grants only.
//!
//! *Against virtual time.* Let lagᵢ = V − settledᵢ, in tokens per weight: over 0, the flow is behind its share. Take a
//! flow that waits, not partitioned.
//!
//! Behind: V rises at a grant only to the lowest score of those that are not new, so right after each rise V ≤ scoreᵢ
//! for an *i* that is ready and not new, and until the next one scoreᵢ can fall only by `fallenᵢ`: what refunds (and a
//! weight that grew) took off it. A flow that stops being new below V begins with that distance as its `fallen`. Not
//! ready, V − scoreᵢ and fallenᵢ keep their difference, by the rule of the kept. Hence, as scoreᵢ − settledᵢ is
//! pendingᵢ/wᵢ,
//!
//! ```text
//!     lagᵢ ≤ pendingᵢ/wᵢ + fallenᵢ
//! ```
//!
//! and while fallenᵢ is what keeps it behind, scoreᵢ < V: only flows that are below V too can go before it, and they
//! cannot move V. A new flow may be passed by V while others that are as new go before it; its bound says so.
//!
//! Ahead: at its last grant its score was the lowest, so V was raised to at least its settled. Since then settledᵢ grew
//! only by what ended: `endedᵢ` tokens, all of them in flight at that grant. Hence −lagᵢ ≤ endedᵢ/wᵢ. (Where it has had
//! no grant since it started to wait: it started at or above V, at the height that earlier service put it to.)
//!
//! Nobody is further behind than its own estimates in flight and refunds, nobody further ahead than its own
//! answers that just ended: other flows' behaviour does not enter.

use core::cmp::Ordering;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::apportion::apportion;
use crate::arbiter::{Arbiter, Context, Ended, Local, Pick, Touched, View};
use crate::meter::{CapLoad, CapMeter, FlowMeter, NodeMeter, Presence};
use crate::ranking::{self, Ranking};
use crate::units::{Tokens, Weight};

/// Scores and virtual time: 2⁻³² tokens per weight.
pub(crate) type Score = u128;

const SCALE_BITS: u32 = 32;

/// The state of a share node.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) flows: Vec<FlowState>,
    free: Vec<Local>,
    pub(crate) virtual_time: Score,
    /// How often virtual time has risen.
    pub(crate) rises: u64,
    /// The number of the next moment.
    pub(crate) moments: u64,
    /// The ready flows that are not new; the lowest of these and of the new goes next.
    old: Ranking<Key>,
    /// The ready flows that are new.
    fresh: Ranking<Key>,
    highest: HighestSettled,
    /// The flows without requests that are ahead of virtual time, and therefore remembered.
    idle: BTreeSet<(Score, Local)>,
    partition: Option<Box<Partition>>,
    pub(crate) meter: NodeMeter,
}

/// The highest settled of the ready flows, or as much of it as is asked.
///
/// A grant asks for the lesser of that and the lowest score, and most often some flow is known to be above the lowest
/// score: then its exact height does not matter. Only where none is, the changes noted since are entered.
#[derive(Clone, Debug)]
struct HighestSettled {
    /// A flow that was the highest when that was last found out.
    witness: Local,
    /// The ready flows by !settled, so that the lowest is the highest, but for what is in `changed`. Rarely asked.
    ranking: Box<Ranking<Score>>,
    changed: Vec<Local>,
}

impl Default for HighestSettled {
    fn default() -> Self {
        Self { witness: 0, ranking: Box::new(Ranking::new()), changed: Vec::new() }
    }
}

impl HighestSettled {
    /// The highest settled, or anything from `enough` on that is not above it.
    fn find(&mut self, flows: &mut [FlowState], enough: Score) -> Score {
        let witness = flows.get(self.witness as usize).filter(|flow| flow.ready);
        if let Some(flow) = witness.filter(|flow| flow.settled >= enough) {
            return flow.settled;
        }
        for flow in self.changed.drain(..) {
            let state = &mut flows[flow as usize];
            state.settled_noted = false;
            self.ranking.set(flow, if state.ready { !state.settled } else { Score::MAX });
        }
        match self.ranking.lowest() {
            Some((flow, not_settled)) => {
                self.witness = flow;
                !not_settled
            }
            None => 0,
        }
    }

    fn note(&mut self, flow: Local, state: &mut FlowState) {
        if !state.settled_noted {
            state.settled_noted = true;
            self.changed.push(flow);
        }
    }
}

/// A score and the moment that decides between equal ones. Moments are unique in a node.
type Key = (Score, u64);

/// One flow.
#[derive(Clone, Debug)]
pub(crate) struct FlowState {
    pub(crate) base: Score,
    pub(crate) served: u128,
    pub(crate) pending: u128,
    pub(crate) generation: u64,
    pub(crate) weight: Weight,
    /// The cap that the policy gives this copy of the flow.
    pub(crate) cap: Option<u64>,
    /// When it was last granted something or started as new.
    pub(crate) moment: u64,
    /// Whether it started at or below virtual time and has had no grant since.
    pub(crate) new: bool,
    /// Whether something waited in it at the last look.
    pub(crate) waits: bool,
    /// Virtual time when the flow stopped being ready while something waited in it.
    pub(crate) stopped: Option<Score>,
    /// Both as of the last change, so that they are divided once.
    settled: Score,
    score: Score,
    ready: bool,
    /// Whether it stands among the changes of [`HighestSettled`].
    settled_noted: bool,
    /// Whether it may have a key among the new.
    ranked_new: bool,
    in_flight: u32,
    pub(crate) bound: BoundState,
    pub(crate) meter: FlowMeter,
    pub(crate) cap_meter: CapMeter,
}

/// What the bound needs to know of a flow beside its counters; no decision depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BoundState {
    /// How far the score has fallen since virtual time last rose while the flow was ready.
    pub(crate) fallen: Score,
    /// The rise up to which `fallen` counts.
    pub(crate) rise: u64,
    /// How far settled has grown since it was last at or below virtual time for certain.
    pub(crate) ended: Score,
}

impl BoundState {
    /// Brings it up to date. A rise of virtual time makes it anew, but not while the flow has stopped being ready.
    fn renew(&mut self, stopped: bool, rises: u64) {
        if !stopped && self.rise != rises {
            self.fallen = 0;
            self.rise = rises;
        }
    }
}

/// The hierarchical slots of a partitioned root.
#[derive(Clone, Debug, Default)]
struct Partition {
    /// The flows that are ready or have requests in flight, by name.
    active: BTreeMap<Arc<str>, Local>,
    names: Vec<Arc<str>>,
    /// Slots by flow, where `divided` says for how many they were divided.
    slots: Vec<u64>,
    divided: Option<u64>,
    /// Whether the slots were enough for all; where not, scores alone decide.
    enough: bool,
    /// The ready flows with fewer in flight than their slots.
    below: BTreeSet<(Key, Local)>,
    /// The keys under which flows stand in `below`.
    keys: Vec<Option<Key>>,
}

impl FlowState {
    fn new(weight: Weight, cap: Option<u64>) -> Self {
        Self {
            base: 0,
            served: 0,
            pending: 0,
            generation: 0,
            weight,
            cap,
            moment: 0,
            new: false,
            waits: false,
            stopped: None,
            settled: 0,
            score: 0,
            ready: false,
            settled_noted: false,
            ranked_new: false,
            in_flight: 0,
            bound: BoundState::default(),
            meter: FlowMeter::default(),
            cap_meter: CapMeter::default(),
        }
    }

    /// The height of what has ended.
    pub(crate) fn settled(&self) -> Score {
        self.settled
    }

    /// The height with what is in flight.
    pub(crate) fn score(&self) -> Score {
        self.score
    }

    /// Works both heights out again, after a counter changed.
    pub(crate) fn refresh(&mut self) {
        self.settled = self.base.saturating_add(per_weight(self.served, self.weight));
        self.refresh_score();
    }

    /// Works the score out again, after `pending` changed.
    fn refresh_score(&mut self) {
        self.score = if self.pending == 0 {
            self.settled
        } else {
            let tokens = self.served.saturating_add(self.pending);
            self.base.saturating_add(per_weight(tokens, self.weight))
        };
    }

    /// Its key in the rankings.
    fn key(&self) -> Key {
        match self.ready {
            true => (self.score, self.moment),
            false => ranking::Key::ABSENT,
        }
    }

    /// Notes that its score has changed for another reason than a grant.
    fn note_fall(&mut self, before: Score, rises: u64) {
        self.bound.renew(self.stopped.is_some(), rises);
        let fall = before.saturating_sub(self.score);
        self.bound.fallen = self.bound.fallen.saturating_add(fall);
    }

    /// Whether its meters have anything to tell.
    pub(crate) fn is_metered(&self) -> bool {
        self.meter.is_used() || self.cap_meter.is_used()
    }

    /// Whether this copy of the flow has as many requests in flight as the policy lets it.
    pub(crate) fn at_cap(&self, in_flight: u32) -> bool {
        self.cap.is_some_and(|cap| u64::from(in_flight) >= cap)
    }
}

/// ⌊tokens · 2³² / weight⌋ without a wide product; saturates from 2⁹⁶ tokens per weight on.
pub(crate) fn per_weight(tokens: u128, weight: Weight) -> Score {
    // One short division where the product fits, as it does up to 2³² tokens.
    match u32::try_from(tokens) {
        Ok(tokens) => u128::from((u64::from(tokens) << SCALE_BITS) / weight.get()),
        Err(_) => per_weight_of_many(tokens, weight),
    }
}

/// The same for any number of tokens, kept apart so that the usual case stays short.
#[inline(never)]
fn per_weight_of_many(tokens: u128, weight: Weight) -> Score {
    let weight = weight.get();
    // Two short divisions where both fit, as they nearly always do.
    if let (Ok(tokens), true) = (u64::try_from(tokens), weight <= 1 << SCALE_BITS) {
        let (whole, rest) = (tokens / weight, tokens % weight);
        // The rest is below 2³², so its shift fits.
        return (u128::from(whole) << SCALE_BITS) + u128::from((rest << SCALE_BITS) / weight);
    }
    let weight = u128::from(weight);
    let whole = (tokens / weight).saturating_mul(1 << SCALE_BITS);
    whole.saturating_add(((tokens % weight) << SCALE_BITS) / weight)
}

impl Share {
    pub(crate) fn new(partition: bool) -> Self {
        Self {
            flows: Vec::new(),
            free: Vec::new(),
            virtual_time: 0,
            rises: 0,
            moments: 0,
            old: Ranking::new(),
            fresh: Ranking::new(),
            highest: HighestSettled::default(),
            idle: BTreeSet::new(),
            partition: partition.then(Box::default),
            meter: NodeMeter::default(),
        }
    }

    /// Adds a flow with counters at 0.
    pub(crate) fn add(&mut self, name: &Arc<str>, weight: Weight, cap: Option<u64>) -> Local {
        let state = FlowState::new(weight, cap);
        let local = match self.free.pop() {
            Some(local) => {
                self.flows[local as usize] = state;
                local
            }
            None => {
                self.flows.push(state);
                Local::try_from(self.flows.len() - 1).expect("flows fit in 32 bits")
            }
        };
        if let Some(partition) = &mut self.partition {
            let count = self.flows.len();
            partition.names.resize(count, name.clone());
            partition.slots.resize(count, 0);
            partition.keys.resize(count, None);
            partition.names[local as usize] = name.clone();
            partition.slots[local as usize] = 0;
        }
        local
    }

    /// Whether a flow without requests carries nothing that its return would not set anew. Where it does, it is kept
    /// until virtual time has passed it.
    pub(crate) fn is_forgettable(&mut self, flow: Local) -> bool {
        let score = self.flows[flow as usize].score;
        let forgettable = score < self.virtual_time || score == 0;
        if !forgettable {
            self.idle.insert((score, flow));
        }
        forgettable
    }

    /// Whether flows are remembered although they have no requests.
    pub(crate) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// An idle flow that virtual time has passed, each once.
    pub(crate) fn pop_passed(&mut self) -> Option<Local> {
        let (score, _) = self.idle.first()?;
        if *score >= self.virtual_time {
            return None;
        }
        self.idle.pop_first().map(|(_, flow)| flow)
    }

    /// An idle flow has requests again.
    pub(crate) fn wake(&mut self, flow: Local) {
        if !self.idle.is_empty() {
            self.idle.remove(&(self.flows[flow as usize].score, flow));
        }
    }

    /// Forgets a flow without requests.
    pub(crate) fn forget(&mut self, flow: Local) {
        self.wake(flow);
        let state = &mut self.flows[flow as usize];
        self.meter.forget(flow, &mut state.meter, state.weight);
        self.free.push(flow);
    }

    /// How far a flow is behind its share, in 2⁻³² tokens per weight; below 0 it is ahead.
    pub(crate) fn lag(&self, flow: Local) -> i128 {
        let state = &self.flows[flow as usize];
        let now = state.stopped.unwrap_or(self.virtual_time);
        signed_difference(now, state.settled())
    }

    /// The range in which the discipline keeps that lag (least, most), where scores alone decide.
    pub(crate) fn lag_bound(&self, flow: Local) -> Option<(i128, i128)> {
        if self.partition.is_some() {
            return None;
        }
        let state = &self.flows[flow as usize];
        let BoundState { fallen, ended, .. } = self.bound_now(flow);
        let passed = match state.new {
            true => self.virtual_time.saturating_sub(state.score()),
            false => 0,
        };
        let behind = (state.score() - state.settled()).saturating_add(fallen.max(passed));
        Some((-signed(ended), signed(behind)))
    }

    /// What the bound knows of a flow.
    pub(crate) fn bound_now(&self, flow: Local) -> BoundState {
        let state = &self.flows[flow as usize];
        let mut bound = state.bound;
        bound.renew(state.stopped.is_some(), self.rises);
        bound
    }

    /// The flow's slots in a partitioned pool, where they are divided now.
    pub(crate) fn slots(&self, flow: Local) -> Option<u64> {
        let partition = self.partition.as_ref()?;
        (partition.divided.is_some() && partition.enough).then(|| partition.slots[flow as usize])
    }

    /// The ready flows below their slots, lowest score first.
    pub(crate) fn below_slots(&self) -> impl Iterator<Item = Local> + '_ {
        self.partition.iter().flat_map(|p| p.below.iter()).map(|(_, flow)| *flow)
    }

    fn next_moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// An idle flow banks nothing: one that starts to wait starts at virtual time at the lowest.
    fn start(&mut self, flow: Local) {
        let virtual_time = self.virtual_time;
        let rises = self.rises;
        if self.flows[flow as usize].score <= virtual_time {
            let moment = self.next_moment();
            let state = &mut self.flows[flow as usize];
            state.new = true;
            state.moment = moment;
            if state.score < virtual_time {
                state.base = virtual_time;
                state.served = 0;
                state.pending = 0;
                state.generation += 1;
                state.refresh();
            }
        }
        let state = &mut self.flows[flow as usize];
        let ahead = state.settled.saturating_sub(virtual_time);
        state.bound = BoundState { fallen: 0, rise: rises, ended: ahead };
    }

    /// Enters what a flow is now into the rankings.
    #[inline]
    fn enter(&mut self, flow: Local) {
        let state = &mut self.flows[flow as usize];
        self.highest.note(flow, state);
        if state.new || state.ranked_new {
            self.enter_new(flow);
        } else {
            self.old.set(flow, state.key());
        }
        if self.partition.is_some() {
            self.enter_partition(flow);
        }
    }

    /// The same for a flow that is new, or no longer is; kept apart so that the usual case stays short.
    #[inline(never)]
    fn enter_new(&mut self, flow: Local) {
        let state = &mut self.flows[flow as usize];
        state.ranked_new = state.new;
        let (is, was) = match state.new {
            true => (&mut self.fresh, &mut self.old),
            false => (&mut self.old, &mut self.fresh),
        };
        is.set(flow, state.key());
        was.set(flow, ranking::Key::ABSENT);
    }

    /// The ready flow with the lowest score.
    fn lowest(&self) -> Option<Local> {
        match (self.old.lowest(), self.fresh.lowest()) {
            (Some((_, old)), Some((flow, fresh))) if fresh < old => Some(flow),
            (Some((flow, _)), _) | (None, Some((flow, _))) => Some(flow),
            (None, None) => None,
        }
    }

    /// Enters what a flow is now into the partition, where there is one.
    #[inline(never)]
    fn enter_partition(&mut self, flow: Local) {
        let state = &self.flows[flow as usize];
        let key = state.ready.then_some((state.score, state.moment));
        let active = state.ready || state.in_flight > 0;
        let in_flight = u64::from(state.in_flight);
        let Some(partition) = &mut self.partition else { return };
        let name = &partition.names[flow as usize];
        // Slots are divided when they are next asked for.
        let changed = match active {
            true => partition.active.insert(name.clone(), flow).is_none(),
            false => partition.active.remove(name).is_some(),
        };
        if changed {
            partition.divided = None;
        }
        if let Some(before) = partition.keys[flow as usize].take() {
            partition.below.remove(&(before, flow));
        }
        let divided = partition.divided.is_some() && partition.enough;
        if let Some(key) = key.filter(|_| divided && in_flight < partition.slots[flow as usize]) {
            partition.below.insert((key, flow));
            partition.keys[flow as usize] = Some(key);
        }
    }

    /// Divides the slots, where they are not divided yet as things are. Flows that take no part have none.
    pub(crate) fn divide(&mut self, capacity: u64) {
        let Some(partition) = &mut self.partition else { return };
        if partition.divided == Some(capacity) {
            return;
        }
        partition.divided = Some(capacity);
        partition.below.clear();
        partition.keys.fill(None);
        partition.slots.fill(0);
        partition.enough = capacity >= partition.active.len() as u64;
        if !partition.enough || partition.active.is_empty() {
            return;
        }
        let flows = &self.flows;
        let active: Vec<Local> = partition.active.values().copied().collect();
        let weights: Vec<Weight> = active.iter().map(|f| flows[*f as usize].weight).collect();
        for (flow, slots) in active.into_iter().zip(apportion(capacity, &weights)) {
            partition.slots[flow as usize] = slots;
            let state = &flows[flow as usize];
            if state.ready && u64::from(state.in_flight) < slots {
                let key = (state.score, state.moment);
                partition.below.insert((key, flow));
                partition.keys[flow as usize] = Some(key);
            }
        }
    }
}

fn signed(score: Score) -> i128 {
    i128::try_from(score).unwrap_or(i128::MAX)
}

fn signed_difference(a: Score, b: Score) -> i128 {
    match a.cmp(&b) {
        Ordering::Less => -signed(b - a),
        _ => signed(a - b),
    }
}

impl Arbiter for Share {
    fn look(&mut self, flow: Local, view: View, cx: Context<'_>) {
        let waits = view.waiting > 0;
        if waits && !self.flows[flow as usize].waits {
            self.start(flow);
        }
        let (virtual_time, rises) = (self.virtual_time, self.rises);
        let state = &mut self.flows[flow as usize];
        if waits && view.head.is_none() && state.stopped.is_none() {
            state.bound.renew(false, rises);
        }
        state.waits = waits;
        state.in_flight = view.in_flight;
        state.ready = waits && view.head.is_some();
        match (waits, state.ready) {
            (false, _) => state.stopped = None,
            (true, false) => state.stopped = state.stopped.or(Some(virtual_time)),
            (true, true) => {
                if let Some(stopped) = state.stopped.take() {
                    // What it missed is gone, and no more than that.
                    let below = virtual_time.saturating_sub(state.score);
                    let lift = below.min(virtual_time - stopped);
                    if lift > 0 {
                        state.base = state.base.saturating_add(lift);
                        state.refresh();
                    }
                    state.bound.rise = rises;
                }
            }
        }
        if state.cap.is_some() {
            let load = CapLoad { in_flight: view.in_flight.into(), cap: state.cap, waits };
            state.cap_meter.observe(cx.now, load);
        }
        let presence = Presence::of(waits, state.ready);
        self.meter.see(flow, &mut state.meter, state.weight, presence);
        self.enter(flow);
    }

    fn pick(&mut self, cx: Context<'_>) -> Option<Pick> {
        if self.partition.is_some() {
            self.divide(cx.capacity);
        }
        let below = self.partition.as_ref().and_then(|p| p.below.first());
        let flow = match below {
            Some((_, flow)) => *flow,
            None => self.lowest()?,
        };
        Some(Pick { flow, late: None })
    }

    fn charge(&mut self, flow: Local, cost: Tokens) -> u64 {
        let lowest = self.old.lowest().map_or(Score::MAX, |(_, (score, _))| score);
        let height = lowest.min(self.highest.find(&mut self.flows, lowest));
        if height > self.virtual_time {
            self.virtual_time = height;
            self.rises += 1;
        }
        let moment = self.next_moment();
        let (virtual_time, rises) = (self.virtual_time, self.rises);
        let state = &mut self.flows[flow as usize];
        state.pending = state.pending.saturating_add(u128::from(cost.0));
        state.moment = moment;
        state.refresh_score();
        if core::mem::take(&mut state.new) {
            state.bound.fallen = virtual_time.saturating_sub(state.score);
            state.bound.rise = rises;
        }
        state.bound.ended = 0;
        self.meter.grant(&mut state.meter, state.weight, cost.0, 0);
        state.generation
    }

    fn settle(&mut self, flow: Local, ended: Ended) -> Touched {
        let state = &mut self.flows[flow as usize];
        let (before, settled) = (state.score, state.settled);
        let (cost, used) = (u128::from(ended.cost.0), u128::from(ended.used.0));
        if ended.generation == state.generation {
            state.pending = state.pending.saturating_sub(cost);
            state.served = state.served.saturating_add(used);
        } else {
            state.served = state.served.saturating_add(used.saturating_sub(cost));
        }
        state.refresh();
        let grown = state.settled - settled;
        state.bound.ended = state.bound.ended.saturating_add(grown);
        self.meter.settle(flow, &mut state.meter, state.weight, ended.error());
        state.note_fall(before, self.rises);
        if state.ready && state.cap.is_none() && self.partition.is_none() {
            self.enter(flow);
            return Touched::Node;
        }
        match state.waits || self.partition.is_some() {
            true => Touched::Flow,
            false => Touched::Nothing,
        }
    }

    /// The settled score stays; what is pending counts at the new weight.
    fn reweigh(&mut self, flow: Local, weight: Weight) {
        self.wake(flow);
        let state = &mut self.flows[flow as usize];
        let before = state.score;
        self.meter.reweigh(flow, &mut state.meter, state.weight, weight);
        state.base = state.settled;
        state.served = 0;
        state.weight = weight;
        state.refresh();
        state.note_fall(before, self.rises);
        if let Some(partition) = &mut self.partition {
            partition.divided = None;
        }
    }
}

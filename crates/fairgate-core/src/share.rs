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
//! and a free slot goes to the lowest score among the ready, ties to the earlier head: the classic
//! `share_score = served / weight`, in exact integers of 2⁻³² tokens per weight. With weights 500 and 50,
//! 1000 tokens are scores 2 and 20, so the heavier flow is picked ten times as often.
//!
//! Three things make it hold in practice:
//!
//! * **Real usage.** When a request ends, its estimate leaves `pending` and its real tokens enter `served`.
//!   Virtual time, V ← max(V, settledᵢ) at each grant to *i*, moves only with tokens really used: an inflated
//!   estimate delays its owner (the score counts pending) and nobody else.
//! * **The idle bank nothing.** A flow that starts to wait below V starts at V, with a new generation; what
//!   it still had in flight from before can then cost it more, but not earn it a refund.
//! * **The blocked lose nothing.** While a flow has work but is not ready (held, at its cap, no open worker)
//!   its distance from V stands still: on return baseᵢ rises by what V moved meanwhile.
//!
//! With `partition` the pool's slots are first divided by weight ([`crate::apportion`]) among the flows that
//! wait or fly; a flow with fewer flying than its slots goes before any other, and a slot that no such flow
//! wants is lent to the lowest score.
//!
//! # In logarithmic time
//! A flow's score changes only by what happens to that flow. The ready flows are kept sorted by (score, head
//! seq); a pick is the first of them, and an event moves one entry per level: O(log n). Partition keeps a
//! second sorted set, of those below their slots; slots are divided anew only when a flow comes, goes or is
//! re-weighed or the capacity changes, which costs O(n log n) over the n ≤ capacity active flows.
//!
//! # The bound
//! Let lagᵢ = V − settledᵢ, in tokens per weight: over 0, the flow is behind its share. Take a flow that
//! waits, not partitioned.
//!
//! *Behind.* V rises at a grant to some *j* only to settledⱼ ≤ scoreⱼ ≤ scoreᵢ, for j was the lowest of the
//! ready. So right after each rise V ≤ scoreᵢ, and until the next one scoreᵢ can fall only by `fallenᵢ`: what
//! refunds (and a weight that grew) took off it. Not ready, both V − scoreᵢ and fallenᵢ keep their difference,
//! by the rule of the blocked. Hence, as scoreᵢ − settledᵢ is pendingᵢ/wᵢ,
//!
//! ```text
//!     lagᵢ ≤ pendingᵢ/wᵢ + fallenᵢ
//! ```
//!
//! and while fallenᵢ is what keeps it behind, scoreᵢ < V: only flows that are below V too can go before it, and they
//! cannot move V.
//!
//! *Ahead.* At its last grant V was raised to at least its settled. Since then settledᵢ grew only by what
//! ended: `endedᵢ` tokens, all of them in flight at that grant. Hence −lagᵢ ≤ endedᵢ/wᵢ. (Where it has had no
//! grant since it started to wait: it started at or above V, at the height that earlier service put it to.)
//!
//! Nobody is further behind than its own estimates in flight and refunds, nobody further ahead than its own
//! answers that just ended: other flows' behaviour does not enter.

use core::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::apportion::apportion;
use crate::arbiter::{Arbiter, Context, Ended, Local, Pick, View};
use crate::requests::{Seq, Slot};
use crate::units::{Tokens, Weight};

/// Scores and virtual time: 2⁻³² tokens per weight.
pub(crate) type Score = u128;

const SCALE_BITS: u32 = 32;

/// The state of a share node.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    pub(crate) flows: Vec<FlowState>,
    pub(crate) virtual_time: Score,
    /// How often virtual time has risen.
    pub(crate) rises: u64,
    ready: BTreeSet<Key>,
    partition: Option<Box<Partition>>,
}

/// The lowest goes next.
type Key = (Score, Seq, Local);

/// One flow.
#[derive(Clone, Debug)]
pub(crate) struct FlowState {
    pub(crate) base: Score,
    pub(crate) served: u128,
    pub(crate) pending: u128,
    pub(crate) generation: u64,
    pub(crate) weight: Weight,
    pub(crate) cap: Option<u64>,
    /// Virtual time when the flow stopped being ready while something waited in it.
    pub(crate) stopped: Option<Score>,
    /// Its entry among the ready.
    key: Option<Key>,
    flying: u32,
    pub(crate) bound: BoundState,
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

/// The hierarchical slots of a partitioned root.
#[derive(Clone, Debug, Default)]
struct Partition {
    /// The flows that wait or fly, by name.
    active: BTreeMap<Arc<str>, Local>,
    names: Vec<Arc<str>>,
    /// Slots by flow, where `divided` says for how many they were divided.
    slots: Vec<u64>,
    divided: Option<u64>,
    /// Whether the slots were enough for all; where not, scores alone decide.
    enough: bool,
    /// The ready flows with fewer flying than their slots.
    below: BTreeSet<Key>,
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
            stopped: None,
            key: None,
            flying: 0,
            bound: BoundState::default(),
        }
    }

    /// The height of what has ended.
    pub(crate) fn settled(&self) -> Score {
        self.base.saturating_add(per_weight(self.served, self.weight))
    }

    /// The height with what is in flight.
    pub(crate) fn score(&self) -> Score {
        let tokens = self.served.saturating_add(self.pending);
        self.base.saturating_add(per_weight(tokens, self.weight))
    }

    /// Whether as many fly as may.
    pub(crate) fn at_cap(&self, flying: u32) -> bool {
        self.cap.is_some_and(|cap| u64::from(flying) >= cap)
    }
}

/// ⌊tokens · 2³² / weight⌋ without a wide product; saturates from 2⁹⁶ tokens per weight on.
pub(crate) fn per_weight(tokens: u128, weight: Weight) -> Score {
    let weight = u128::from(weight.get());
    let whole = (tokens / weight).saturating_mul(1 << SCALE_BITS);
    whole.saturating_add(((tokens % weight) << SCALE_BITS) / weight)
}

impl Share {
    pub(crate) fn new(partition: bool) -> Self {
        Self {
            flows: Vec::new(),
            virtual_time: 0,
            rises: 0,
            ready: BTreeSet::new(),
            partition: partition.then(Box::default),
        }
    }

    /// Adds a flow with counters at 0.
    pub(crate) fn add(&mut self, name: &Arc<str>, weight: Weight, cap: Option<u64>) -> Local {
        let local = Local::try_from(self.flows.len()).expect("flows fit in 32 bits");
        self.flows.push(FlowState::new(weight, cap));
        if let Some(partition) = &mut self.partition {
            partition.names.push(name.clone());
            partition.slots.push(0);
        }
        local
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
        let behind = (state.score() - state.settled()).saturating_add(fallen);
        Some((-signed(ended), signed(behind)))
    }

    /// What the bound knows of a flow. A rise of virtual time makes it anew, but not while the flow is not ready.
    pub(crate) fn bound_now(&self, flow: Local) -> BoundState {
        let state = &self.flows[flow as usize];
        match state.stopped {
            None if state.bound.rise != self.rises => {
                BoundState { fallen: 0, rise: self.rises, ended: state.bound.ended }
            }
            _ => state.bound,
        }
    }

    /// Notes that a flow's score has changed for another reason than a grant.
    fn note_fall(&mut self, flow: Local, before: Score) {
        let bound = self.bound_now(flow);
        let state = &mut self.flows[flow as usize];
        state.bound = bound;
        let fall = before.saturating_sub(state.score());
        state.bound.fallen = state.bound.fallen.saturating_add(fall);
    }

    /// The flow's slots in a partitioned pool, where they are divided now.
    pub(crate) fn slots(&self, flow: Local) -> Option<u64> {
        let partition = self.partition.as_ref()?;
        (partition.divided.is_some() && partition.enough).then(|| partition.slots[flow as usize])
    }

    /// The ready flows below their slots, lowest score first.
    pub(crate) fn below_slots(&self) -> impl Iterator<Item = Local> + '_ {
        self.partition.iter().flat_map(|p| p.below.iter()).map(|(_, _, flow)| *flow)
    }

    fn enter(&mut self, flow: Local, key: Option<Key>) {
        let state = &mut self.flows[flow as usize];
        let below = |partition: &Partition| {
            partition.divided.is_some()
                && partition.enough
                && u64::from(state.flying) < partition.slots[flow as usize]
        };
        if let Some(partition) = &mut self.partition {
            if let Some(old) = state.key {
                partition.below.remove(&old);
            }
            if let Some(new) = key
                && below(partition)
            {
                partition.below.insert(new);
            }
        }
        if state.key != key {
            if let Some(old) = state.key {
                self.ready.remove(&old);
            }
            if let Some(new) = key {
                self.ready.insert(new);
            }
            state.key = key;
        }
    }

    /// Keeps the list of active flows; slots are divided when they are next asked for.
    fn count_active(&mut self, flow: Local, active: bool) {
        let Some(partition) = &mut self.partition else { return };
        let name = &partition.names[flow as usize];
        let changed = match active {
            true => partition.active.insert(name.clone(), flow).is_none(),
            false => partition.active.remove(name).is_some(),
        };
        if changed {
            partition.divided = None;
        }
    }

    fn divide(&mut self, capacity: u64) {
        let Some(partition) = &mut self.partition else { return };
        if partition.divided == Some(capacity) {
            return;
        }
        partition.divided = Some(capacity);
        partition.below.clear();
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
            if let Some(key) = state.key
                && u64::from(state.flying) < slots
            {
                partition.below.insert(key);
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
    /// An idle flow banks nothing: what starts to wait starts at virtual time.
    fn arrived(&mut self, flow: Local, _slot: Slot, before: u32, _cx: Context<'_>) {
        if before > 0 {
            return;
        }
        let state = &mut self.flows[flow as usize];
        if state.score() < self.virtual_time {
            state.base = self.virtual_time;
            state.served = 0;
            state.pending = 0;
            state.generation += 1;
        }
        let ahead = state.settled().saturating_sub(self.virtual_time);
        state.bound = BoundState { fallen: 0, rise: self.rises, ended: ahead };
    }

    fn left(&mut self, _flow: Local, _slot: Slot, _remaining: u32, _cx: Context<'_>) {}

    /// The blocked lose nothing: their lag stands still until they are ready again.
    fn look(&mut self, flow: Local, view: View) {
        let bound = self.bound_now(flow);
        let state = &mut self.flows[flow as usize];
        state.flying = view.flying;
        let head = view.head.filter(|_| !state.at_cap(view.flying));
        match head {
            _ if view.waiting == 0 => state.stopped = None,
            None if state.stopped.is_none() => {
                state.bound = bound;
                state.stopped = Some(self.virtual_time);
            }
            None => {}
            Some(_) => {
                if let Some(stopped) = state.stopped.take() {
                    state.base = state.base.saturating_add(self.virtual_time - stopped);
                    state.bound.rise = self.rises;
                }
            }
        }
        let key = head.map(|head| (state.score(), head.seq, flow));
        self.count_active(flow, view.waiting > 0 || view.flying > 0);
        self.enter(flow, key);
    }

    fn pick(&mut self, cx: Context<'_>) -> Option<Pick> {
        self.divide(cx.capacity);
        let below = self.partition.as_ref().and_then(|p| p.below.first());
        let (_, _, flow) = below.or_else(|| self.ready.first())?;
        Some(Pick { flow: *flow, oldest: false })
    }

    fn charge(&mut self, flow: Local, cost: Tokens) -> u64 {
        let state = &mut self.flows[flow as usize];
        let settled = state.settled();
        if settled > self.virtual_time {
            self.virtual_time = settled;
            self.rises += 1;
        }
        state.pending = state.pending.saturating_add(u128::from(cost.0));
        state.bound.ended = 0;
        state.generation
    }

    fn settle(&mut self, flow: Local, ended: Ended) {
        let state = &mut self.flows[flow as usize];
        let (before, settled) = (state.score(), state.settled());
        let (cost, used) = (u128::from(ended.cost.0), u128::from(ended.used().0));
        if ended.generation == state.generation {
            state.pending = state.pending.saturating_sub(cost);
            state.served = state.served.saturating_add(used);
        } else {
            state.served = state.served.saturating_add(used.saturating_sub(cost));
        }
        let grown = state.settled() - settled;
        state.bound.ended = state.bound.ended.saturating_add(grown);
        self.note_fall(flow, before);
    }

    /// The settled score stays; what is pending counts at the new weight.
    fn reweigh(&mut self, flow: Local, weight: Weight) {
        let state = &mut self.flows[flow as usize];
        let before = state.score();
        state.base = state.settled();
        state.served = 0;
        state.weight = weight;
        self.note_fall(flow, before);
        if let Some(partition) = &mut self.partition {
            partition.divided = None;
        }
    }

    fn recap(&mut self, flow: Local, cap: Option<u64>) {
        self.flows[flow as usize].cap = cap;
    }
}

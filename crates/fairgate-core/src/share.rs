//! Share score over weighted flows. The flow with the least service per weight goes next.
//!
//! # Sources
//! The score is that of obleth's page "DRR Algorithm" (`share_score = served_tokens / weight`, the lowest goes next).
//! The page's hierarchical slots are `partition` here. Picking by score approximates generalised processor sharing,
//! which serves all flows at once, like a fluid: A. Parekh and R. Gallager, "A Generalized Processor Sharing Approach
//! to Flow Control in Integrated Services Networks: The Single-Node Case" (1993). A flow that starts to wait starts at
//! virtual time or above it, as in P. Goyal, H. Vin and H. Cheng, "Start-time Fair Queueing" (1996). The virtual token
//! counter of Y. Sheng et al., "Fairness in Serving Large Language Models" (2024), is similar: it counts real tokens
//! per tenant, and lifts the counter of a tenant that returns. This module differs from these sources in three points:
//! requests in flight count at their estimates until they end, virtual time moves only with tokens really used, and new
//! flows do not keep virtual time from rising. The four rules below give the details.
//!
//! # The discipline
//! Imagine that tokens could be divided like a fluid, and that every waiting flow *i* got its part wᵢ/W of each token
//! served, where wᵢ is its weight and W the sum of the weights of the waiting flows. All these flows would then have
//! the same service per weight, which is called virtual time *V*. Real requests are indivisible and run side by side,
//! so each flow has two values of its own:
//!
//! ```text
//!     settledᵢ = baseᵢ + ⌊servedᵢ · 2³² / wᵢ⌋              tokens that ended
//!     scoreᵢ   = baseᵢ + ⌊(servedᵢ + pendingᵢ) · 2³² / wᵢ⌋   and those in flight, at their estimates
//! ```
//!
//! A free slot goes to the ready flow with the lowest score. Ties go to the flow whose last grant (or start) is longer
//! ago. Scores are exact integers in units of 2⁻³² tokens per weight. 1000 tokens raise the score of a flow of weight
//! 500 by 2 tokens per weight, and that of a flow of weight 50 by 20, so the heavier flow is picked ten times as often.
//!
//! A flow *starts to wait* when a request enters its queue and none waited there. Four rules make scores work in
//! practice:
//!
//! * **Real usage counts.** When a request ends, its estimate leaves `pending` and its real tokens enter `served`. At
//!   each grant V ← max(V, min(highest settled, lowest score of the flows that are not new)) over the ready flows. So V
//!   moves only with tokens really used. An inflated estimate delays its own flow, whose score counts it as pending,
//!   and no other flow.
//! * **An idle flow saves up nothing.** A flow that starts to wait with a score below V starts at V, with a new
//!   generation. Its requests that are still in flight from before can then raise its score further, but cannot lower
//!   it.
//! * **A new flow holds nobody up.** A flow that starts to wait with a score at or below V is *new* until its first
//!   grant. The scores of new flows do not keep V from rising. Otherwise a client that uses a new name for every
//!   request would keep V low, and each new name would start there, below the flows that have been served.
//! * **A flow that is not ready saves up nothing and loses nothing.** Take a flow in which requests wait but which is
//!   held, at its cap, or without an open worker, and so is not ready. If its score is below V when it is ready again,
//!   the score is lifted to V, but by no more than V rose while the flow was not ready. So it stays as far behind as it
//!   was before. It gets no compensation for service that it missed while it was not ready. Service that it got at its
//!   cap has already raised its score and is not charged a second time.
//!
//! With `partition` the pool's slots are first divided by weight ([`crate::apportion`]) among the flows that are ready
//! or have requests in flight. A ready flow with fewer requests in flight than slots goes before any other, and a slot
//! that no such flow can use is lent to the flow with the lowest score.
//!
//! # In logarithmic time
//! A flow's score changes only by events of that flow. Three tournaments (`ranking.rs`) over the ready flows keep the
//! lowest score of the new flows, the lowest score of the other flows, and the highest settled score. An event updates
//! at most one entry of each tournament, in O(log n). Partition keeps a sorted set of the ready flows with fewer
//! requests in flight than slots. Slots are divided again only when a flow becomes active or inactive, a weight changes
//! or the capacity changes, which costs O(n log n) over the n ≤ capacity active flows.
//!
//! Flows whose heads wait for the same workers become ready at the same looks, and stop being ready at the same looks.
//! Such flows form a group (`share/groups.rs`), which a look changes as a whole. So a full worker for which a thousand
//! tenants wait costs no more than one for which ten wait.
//!
//! A flow without requests is forgotten if its score is 0 or below V, because its state would be reset when it returns.
//! Other flows without requests are kept, in order of their scores, until V has passed their score. So a name that was
//! seen once costs memory only while its score is V or higher.
//!
//! # The bound
//! *Between two flows* that are ready all the time: when *i* is granted, scoreᵢ ≤ scoreⱼ before the grant, so right
//! after it scoreᵢ − scoreⱼ ≤ cᵢ/wᵢ, where cᵢ is the cost of the granted request. Until the next grant of *i* that
//! distance grows only by errors of estimates: overruns of *i* and refunds of *j*. A flow's overruns and refunds are
//! bounded by its requests in flight. Let eᵢ be the largest sum of overruns, or of refunds, of requests of flow *i*
//! that were in flight at the same time. Then
//!
//! ```text
//!     | scoreᵢ − scoreⱼ | ≤ (cᵢ + eᵢ)/wᵢ + (cⱼ + eⱼ)/wⱼ
//! ```
//!
//! which does not grow with time: tokens served per weight converge on 1 : 1. The bound holds whatever limits the pool
//! (capacity, slots, thresholds, rates), because it depends on grants only.
//!
//! *Against virtual time.* Let lagᵢ = V − settledᵢ, in tokens per weight: above 0, the flow is behind its share. The
//! two bounds below are for a flow *i* in which requests wait, in a node without `partition`.
//!
//! *How far behind.* V rises only at a grant, and at most to the lowest score of the ready flows that are not new. So
//! if *i* is ready and not new, V ≤ scoreᵢ right after each rise. Until the next rise, scoreᵢ falls only by refunds and
//! by an increase of its weight. Let `fallenᵢ` be the sum of these falls, so that V − scoreᵢ ≤ fallenᵢ. If scoreᵢ is
//! below V when *i* stops being new, `fallenᵢ` begins with that distance. While *i* is not ready, its lag is measured
//! at the V at which it stopped being ready, and afterwards the fourth rule makes up for the rise of V. As scoreᵢ −
//! settledᵢ is pendingᵢ/wᵢ,
//!
//! ```text
//!     lagᵢ ≤ pendingᵢ/wᵢ + fallenᵢ
//! ```
//!
//! While *i* is ready, not new and below V, V cannot rise, because it rises at most to scoreᵢ. So the flows that go
//! before *i* then do not increase its lag. For a new flow, V may rise above its score while other new flows go before
//! it, so the bound of a new flow uses V − scoreᵢ in place of fallenᵢ if that is more.
//!
//! *How far ahead.* Just before the last grant of *i* its score was the lowest, so that grant raised V to at least
//! settledᵢ. Since then settledᵢ grew only by requests that ended. Let `endedᵢ` be their tokens; all these requests
//! were in flight right after that grant. Hence −lagᵢ ≤ endedᵢ/wᵢ. If *i* has had no grant since it started to wait, it
//! started at V or above it because of earlier service, and endedᵢ/wᵢ includes its distance above V at that start.
//!
//! So no flow is further behind than its own estimates in flight and its own refunds allow, and none is further ahead
//! than its own requests that ended since its last grant. The behaviour of other flows changes neither bound, except
//! for flows that are new.

mod bound;
mod groups;

use core::cmp::Ordering;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

pub(crate) use self::bound::ScoreSums;
use self::groups::{GroupMembership, ShareGroups};
use crate::apportion::apportion;
use crate::arbiter::{
    Arbiter, ArbiterContext, EndedRequest, FlowPick, FlowUpdate, LocalFlow, SettleEffect,
};
use crate::meter::{CapLoad, CapMeter, FlowMeter, FlowPresence, NodeMeter};
use crate::ranking::{self, KeyRanking};
use crate::units::{Tokens, Weight};

/// A score or virtual time, in 2⁻³² tokens per weight.
pub(crate) type Score = u128;

const SCALE_BITS: u32 = 32;

/// The state of a share node, with its flows and virtual time.
#[derive(Clone, Debug)]
pub(crate) struct ShareState {
    pub(crate) flows: Vec<ShareFlowState>,
    free: Vec<LocalFlow>,
    pub(crate) virtual_time: Score,
    /// Number of times that virtual time has risen.
    pub(crate) rises: u64,
    /// The last *moment* given out. Moments number the grants and starts within the node in order, from 1.
    pub(crate) moments: u64,
    /// The ready flows that are not new. The lowest score of all flows in `old` and `fresh` goes next.
    old: KeyRanking<ScoreKey>,
    /// The ready flows that are new: each had a score at or below virtual time when it started to wait, and has had no
    /// grant since.
    fresh: KeyRanking<ScoreKey>,
    /// The groups of flows that become ready and stop being ready together; a member of a group is in neither ranking.
    /// `None` until a flow first watches a worker.
    groups: Option<Box<ShareGroups>>,
    highest: HighestSettled,
    /// The flows without requests whose score is above virtual time, and which are therefore remembered.
    idle: BTreeSet<(Score, LocalFlow)>,
    partition: Option<Box<SlotPartition>>,
    pub(crate) meter: NodeMeter,
}

/// The highest settled score of the ready flows, computed only as far as it is needed.
///
/// A grant needs the lesser of the highest settled score and the lowest score. Usually one flow is known whose settled
/// score is above the lowest score, and then the exact maximum does not matter. Only if no such flow is known, the
/// changes noted since the last computation are entered into the ranking.
#[derive(Clone, Debug)]
struct HighestSettled {
    /// The flow that had the highest settled score when the exact maximum was last computed.
    witness: LocalFlow,
    /// The ready flows ranked by `!settled`, so that the lowest key is the highest settled score. The entries of flows
    /// in `changed` are out of date.
    ranking: Box<KeyRanking<Score>>,
    /// The flows whose settled score or readiness may have changed since the ranking was last brought up to date.
    changed: Vec<LocalFlow>,
}

impl Default for HighestSettled {
    fn default() -> Self {
        Self { witness: 0, ranking: Box::new(KeyRanking::new()), changed: Vec::new() }
    }
}

impl HighestSettled {
    /// Returns the settled score of some ready flow if it is known to be at least `enough`; otherwise the highest
    /// settled score of all ready flows.
    fn find(&mut self, flows: &mut [ShareFlowState], enough: Score) -> Score {
        let witness = flows.get(self.witness as usize);
        let witness = witness.filter(|flow| flow.ready && flow.member.is_none());
        if let Some(flow) = witness.filter(|flow| flow.settled >= enough) {
            return flow.settled;
        }
        for flow in self.changed.drain(..) {
            let state = &mut flows[flow as usize];
            state.settled_noted = false;
            let is_ranked = state.ready && state.member.is_none();
            self.ranking.set(flow, if is_ranked { !state.settled } else { Score::MAX });
        }
        match self.ranking.lowest() {
            Some((flow, not_settled)) => {
                self.witness = flow;
                !not_settled
            }
            None => 0,
        }
    }

    fn note(&mut self, flow: LocalFlow, state: &mut ShareFlowState) {
        if !state.settled_noted {
            state.settled_noted = true;
            self.changed.push(flow);
        }
    }
}

/// A score with the moment that breaks ties between equal scores. Moments are unique in a node.
type ScoreKey = (Score, u64);

/// State of one flow of a share node.
#[derive(Clone, Debug)]
pub(crate) struct ShareFlowState {
    pub(crate) base: Score,
    pub(crate) served: u128,
    pub(crate) pending: u128,
    pub(crate) generation: u64,
    pub(crate) weight: Weight,
    /// The cap that the policy gives the flow. It counts only the requests in this copy of the node.
    pub(crate) cap: Option<u64>,
    /// The moment of the flow's last grant, or of the flow's start as new.
    pub(crate) moment: u64,
    /// True if the flow's score was at or below virtual time when it started to wait, and it has had no grant since.
    pub(crate) new: bool,
    /// True if a request waited in the flow at the last look.
    pub(crate) waits: bool,
    /// Value of virtual time when the flow stopped being ready while a request waited in it; `None` if the flow is
    /// ready or idle.
    pub(crate) stopped: Option<Score>,
    /// Tokens per weight of the flow's ended requests, kept so that the division is done only once per change.
    settled: Score,
    /// Tokens per weight of the flow's ended requests and its requests in flight, kept for the same reason.
    score: Score,
    ready: bool,
    /// True if the flow is among the changes of [`HighestSettled`].
    settled_noted: bool,
    /// True if the flow may have a key in the ranking of new flows.
    ranked_new: bool,
    in_flight: u32,
    /// The group whose demand the flow watches; `None` if the flow watches no demand.
    group: Option<u32>,
    /// True if the flow may join its group.
    may_join: bool,
    /// True if changes of the demand are reported to this flow individually.
    is_single: bool,
    /// The flow's membership in its group. While the flow is a member, `base`, `stopped`, `ready`, `bound` and `meter`
    /// keep the values from when it joined; see [`ShareState::flow_now`].
    member: Option<GroupMembership>,
    pub(crate) bound: LagBoundState,
    pub(crate) meter: FlowMeter,
    pub(crate) cap_meter: CapMeter,
}

/// The state of a flow that only the bound on its lag needs; no decision depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LagBoundState {
    /// Amount by which the flow's score has fallen since the last rise of virtual time while the flow was ready.
    pub(crate) fallen: Score,
    /// Value of [`ShareState::rises`] for which `fallen` is valid. Once virtual time has risen again while the flow is
    /// ready, `fallen` is 0.
    pub(crate) rise: u64,
    /// Growth of the flow's settled score since its last grant. If it has had no grant since it started to wait, also
    /// its distance above virtual time at that start.
    pub(crate) ended: Score,
}

impl LagBoundState {
    /// Sets `fallen` to 0 if virtual time has risen since the last call. Does nothing if `stopped` is true, that is, if
    /// the flow is not ready although a request waits in it.
    fn renew(&mut self, stopped: bool, rises: u64) {
        if !stopped && self.rise != rises {
            self.fallen = 0;
            self.rise = rises;
        }
    }
}

/// The slots of a partitioned root, divided among its flows.
#[derive(Clone, Debug, Default)]
struct SlotPartition {
    /// The flows that are ready or have requests in flight, by name.
    active: BTreeMap<Arc<str>, LocalFlow>,
    names: Vec<Arc<str>>,
    /// Slots of each flow. Valid only if `divided` equals the present capacity.
    slots: Vec<u64>,
    /// The capacity for which the slots were last divided; `None` if a flow or a weight has changed since.
    divided: Option<u64>,
    /// True if there were at least as many slots as flows. If not, scores alone decide.
    enough: bool,
    /// The ready flows with fewer requests in flight than slots.
    below: BTreeSet<(ScoreKey, LocalFlow)>,
    /// The key under which each flow is in `below`; `None` if the flow is not in it.
    keys: Vec<Option<ScoreKey>>,
}

impl ShareFlowState {
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
            group: None,
            may_join: false,
            is_single: false,
            member: None,
            bound: LagBoundState::default(),
            meter: FlowMeter::default(),
            cap_meter: CapMeter::default(),
        }
    }

    /// Returns the tokens per weight of the flow's ended requests.
    pub(crate) fn settled(&self) -> Score {
        self.settled
    }

    /// Returns the tokens per weight of the flow's ended requests and its requests in flight.
    pub(crate) fn score(&self) -> Score {
        self.score
    }

    /// Computes the settled score and the score again, after one of the flow's counters changed.
    pub(crate) fn refresh(&mut self) {
        self.settled = self.base.saturating_add(per_weight(self.served, self.weight));
        self.refresh_score();
    }

    /// Raises the settled score and the score by the same amount.
    fn lift(&mut self, lift: Score) {
        self.base = self.base.saturating_add(lift);
        self.settled = self.settled.saturating_add(lift);
        self.score = self.score.saturating_add(lift);
    }

    /// Computes the score again, after `pending` changed.
    fn refresh_score(&mut self) {
        self.score = if self.pending == 0 {
            self.settled
        } else {
            let tokens = self.served.saturating_add(self.pending);
            self.base.saturating_add(per_weight(tokens, self.weight))
        };
    }

    /// Returns the flow's key in the rankings of ready flows.
    fn key(&self) -> ScoreKey {
        match self.ready {
            true => (self.score, self.moment),
            false => ranking::RankingKey::ABSENT,
        }
    }

    /// Adds the fall of the score, if any, to the flow's bound. Called after each change of the score other than a
    /// grant. `before` is the score before the change.
    fn note_fall(&mut self, before: Score, rises: u64) {
        self.bound.renew(self.stopped.is_some(), rises);
        let fall = before.saturating_sub(self.score);
        self.bound.fallen = self.bound.fallen.saturating_add(fall);
    }

    /// Returns true if the flow's meter or its cap meter has counted anything.
    pub(crate) fn is_metered(&self) -> bool {
        self.meter.is_used() || self.cap_meter.is_used()
    }

    /// Returns true if the flow has as many requests in flight in this node as the policy allows.
    pub(crate) fn at_cap(&self, in_flight: u32) -> bool {
        self.cap.is_some_and(|cap| u64::from(in_flight) >= cap)
    }
}

/// Returns ⌊tokens · 2³² / weight⌋ without a product wider than 128 bits; saturates from 2⁹⁶ tokens per weight on.
pub(crate) fn per_weight(tokens: u128, weight: Weight) -> Score {
    // One 64-bit division if the product fits, which it does below 2³² tokens.
    match u32::try_from(tokens) {
        Ok(tokens) => u128::from((u64::from(tokens) << SCALE_BITS) / weight.get()),
        Err(_) => per_weight_of_many(tokens, weight),
    }
}

/// Computes [`per_weight`] for any number of tokens. It is a separate function to keep the usual case short.
#[inline(never)]
fn per_weight_of_many(tokens: u128, weight: Weight) -> Score {
    let weight = weight.get();
    // Two 64-bit divisions if both fit, the usual case.
    if let (Ok(tokens), true) = (u64::try_from(tokens), weight <= 1 << SCALE_BITS) {
        let (whole, rest) = (tokens / weight, tokens % weight);
        // The rest is below 2³², so its shift fits.
        return (u128::from(whole) << SCALE_BITS) + u128::from((rest << SCALE_BITS) / weight);
    }
    let weight = u128::from(weight);
    let whole = (tokens / weight).saturating_mul(1 << SCALE_BITS);
    whole.saturating_add(((tokens % weight) << SCALE_BITS) / weight)
}

impl ShareState {
    pub(crate) fn new(partition: bool) -> Self {
        Self {
            flows: Vec::new(),
            free: Vec::new(),
            virtual_time: 0,
            rises: 0,
            moments: 0,
            old: KeyRanking::new(),
            fresh: KeyRanking::new(),
            groups: None,
            highest: HighestSettled::default(),
            idle: BTreeSet::new(),
            partition: partition.then(Box::default),
            meter: NodeMeter::default(),
        }
    }

    /// Adds a flow with counters at 0 and returns its number. Numbers of forgotten flows are reused.
    pub(crate) fn add(&mut self, name: &Arc<str>, weight: Weight, cap: Option<u64>) -> LocalFlow {
        let state = ShareFlowState::new(weight, cap);
        let local = match self.free.pop() {
            Some(local) => {
                self.flows[local as usize] = state;
                local
            }
            None => {
                self.flows.push(state);
                LocalFlow::try_from(self.flows.len() - 1).expect("flows fit in 32 bits")
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

    /// Returns true if a flow without requests can be forgotten, because its state would be reset on its return.
    /// Otherwise adds the flow to the idle flows, which are kept until virtual time has passed their scores.
    pub(crate) fn is_forgettable(&mut self, flow: LocalFlow) -> bool {
        let score = self.flows[flow as usize].score;
        let forgettable = score < self.virtual_time || score == 0;
        if !forgettable {
            self.idle.insert((score, flow));
        }
        forgettable
    }

    /// Returns true if the node keeps flows that have no requests.
    pub(crate) fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// Removes and returns an idle flow whose score virtual time has passed; `None` if there is no such flow.
    pub(crate) fn pop_passed(&mut self) -> Option<LocalFlow> {
        let (score, _) = self.idle.first()?;
        if *score >= self.virtual_time {
            return None;
        }
        self.idle.pop_first().map(|(_, flow)| flow)
    }

    /// Removes a flow from the idle flows, because it has requests again.
    pub(crate) fn wake(&mut self, flow: LocalFlow) {
        if !self.idle.is_empty() {
            self.idle.remove(&(self.flows[flow as usize].score, flow));
        }
    }

    /// Forgets a flow without requests.
    pub(crate) fn forget(&mut self, flow: LocalFlow) {
        self.wake(flow);
        let state = &mut self.flows[flow as usize];
        self.meter.forget(flow, &mut state.meter, state.weight);
        self.free.push(flow);
    }

    /// Returns the present state of a flow. For a member of a group, the changes of the group since the flow joined are
    /// applied.
    pub(crate) fn flow_now(&self, flow: LocalFlow) -> ShareFlowState {
        let state = &self.flows[flow as usize];
        match &self.groups {
            Some(groups) => groups.state_now(state, self.rises, &self.meter),
            None => state.clone(),
        }
    }

    /// Makes a flow watch a demand. Openings and closings of the demand are from then on reported to the flow or
    /// applied to its group. `is_open` is the state of the demand when it was last reported.
    pub(crate) fn watch(&mut self, flow: LocalFlow, demand: u32, is_open: bool) {
        let clock = (self.virtual_time, self.rises);
        let groups = self.groups.get_or_insert_default();
        let group = groups.watch(flow, demand, is_open, clock, &mut self.meter);
        let state = &mut self.flows[flow as usize];
        state.group = Some(group);
        state.is_single = true;
    }

    /// Makes a flow stop watching the demand of its head, and removes it from the demand's group. Openings and closings
    /// of the demand are no longer reported to the flow.
    pub(crate) fn unwatch(&mut self, flow: LocalFlow) {
        self.leave_group(flow);
        let group = self.flows[flow as usize].group.take();
        if let Some((groups, group)) = self.groups.as_mut().zip(group) {
            groups.unwatch(flow, group);
            self.flows[flow as usize].is_single = false;
        }
    }

    /// Applies the opening or closing of a demand to its group. Returns the flows to which the change must be reported
    /// individually.
    pub(crate) fn change_demand(&mut self, demand: u32, is_open: bool) -> Vec<LocalFlow> {
        let clock = (self.virtual_time, self.rises);
        let Some(groups) = &mut self.groups else { return Vec::new() };
        let single = groups.change(demand, is_open, &mut self.flows, clock, &mut self.meter);
        self.update_passed();
        single
    }

    /// Removes a flow from its group, if it is in one, and brings its counters up to date.
    #[inline]
    fn leave_group(&mut self, flow: LocalFlow) {
        if self.flows[flow as usize].member.is_some() {
            self.leave_group_of_member(flow);
        }
    }

    /// Starts or ends the individual reporting of demand changes to a flow.
    #[inline(never)]
    fn set_single(&mut self, flow: LocalFlow, is_single: bool) {
        let state = &mut self.flows[flow as usize];
        state.is_single = is_single;
        if let Some((groups, group)) = self.groups.as_mut().zip(state.group) {
            groups.set_single(flow, group, is_single);
        }
    }

    #[inline(never)]
    fn leave_group_of_member(&mut self, flow: LocalFlow) {
        if let Some(groups) = &mut self.groups {
            let state = &mut self.flows[flow as usize];
            groups.leave(flow, state, self.rises, &mut self.meter);
        }
    }

    /// Returns the groups; `None` if no group has a member.
    #[inline]
    fn groups_with_members(&self) -> Option<&ShareGroups> {
        self.groups.as_deref().filter(|groups| groups.has_members())
    }

    /// Updates the meters of the group members that were ahead at the last call and are no longer, because they have
    /// now been due as much as they got.
    #[inline]
    fn update_passed(&mut self) {
        if self.meter.has_passed() {
            self.update_all_passed();
        }
    }

    #[cold]
    fn update_all_passed(&mut self) {
        for passed in self.meter.take_passed() {
            let state = &mut self.flows[passed.flow as usize];
            if let Some(member) = &mut state.member {
                let record =
                    self.meter.pass(passed, &mut state.meter, state.weight, member.meter());
                member.set_meter(record);
            }
        }
    }

    /// Returns the lag of a flow, in 2⁻³² tokens per weight; above 0 the flow is behind its share, below 0 it is ahead.
    /// While a flow with waiting requests is not ready, the virtual time at which it stopped being ready is used.
    pub(crate) fn lag(&self, flow: LocalFlow) -> i128 {
        let state = self.flow_now(flow);
        let now = state.stopped.unwrap_or(self.virtual_time);
        signed_difference(now, state.settled())
    }

    /// Returns the least and the greatest lag that the discipline allows a flow; `None` if the node is partitioned,
    /// because slots then decide too.
    pub(crate) fn lag_bound(&self, flow: LocalFlow) -> Option<(i128, i128)> {
        if self.partition.is_some() {
            return None;
        }
        let state = self.flow_now(flow);
        let LagBoundState { fallen, ended, .. } = self.bound_of(&state);
        let passed = match state.new {
            true => self.virtual_time.saturating_sub(state.score()),
            false => 0,
        };
        let behind = (state.score() - state.settled()).saturating_add(fallen.max(passed));
        Some((-signed(ended), signed(behind)))
    }

    /// Returns the present bound state of a flow, which [`ShareState::lag_bound`] uses.
    pub(crate) fn bound_now(&self, flow: LocalFlow) -> LagBoundState {
        self.bound_of(&self.flow_now(flow))
    }

    /// Does what [`ShareState::bound_now`] does, for a flow whose present state is known.
    fn bound_of(&self, state: &ShareFlowState) -> LagBoundState {
        let mut bound = state.bound;
        bound.renew(state.stopped.is_some(), self.rises);
        bound
    }

    /// Returns the flow's slots; `None` if the node is not partitioned or its slots are not divided at present.
    pub(crate) fn slots(&self, flow: LocalFlow) -> Option<u64> {
        let partition = self.partition.as_ref()?;
        (partition.divided.is_some() && partition.enough).then(|| partition.slots[flow as usize])
    }

    /// Returns the ready flows with fewer requests in flight than slots, lowest score first.
    pub(crate) fn below_slots(&self) -> impl Iterator<Item = LocalFlow> + '_ {
        self.partition.iter().flat_map(|p| p.below.iter()).map(|(_, flow)| *flow)
    }

    fn next_moment(&mut self) -> u64 {
        self.moments += 1;
        self.moments
    }

    /// Starts a flow in which a request begins to wait. Lifts the flow's score to virtual time if the score is below,
    /// so that an idle flow saves up nothing.
    fn start(&mut self, flow: LocalFlow) {
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
        state.bound = LagBoundState { fallen: 0, rise: rises, ended: ahead };
    }

    /// Enters the present score of a flow into the rankings, or removes the flow from them if it is not ready.
    #[inline]
    fn enter(&mut self, flow: LocalFlow) {
        let state = &mut self.flows[flow as usize];
        self.highest.note(flow, state);
        if state.may_join && state.ready && self.join_group(flow) {
            return;
        }
        let state = &mut self.flows[flow as usize];
        if state.new || state.ranked_new {
            self.enter_new(flow);
        } else {
            self.old.set(flow, state.key());
        }
        if self.partition.is_some() {
            self.enter_partition(flow);
        }
    }

    /// Adds a ready flow to its group if the group accepts it, and removes the flow from the rankings, because the
    /// group is then ranked instead. Returns whether the flow was added.
    #[inline(never)]
    fn join_group(&mut self, flow: LocalFlow) -> bool {
        let Some(groups) = &mut self.groups else { return false };
        let clock = (self.virtual_time, self.rises);
        let state = &mut self.flows[flow as usize];
        if !groups.join(flow, state, clock, &mut self.meter) {
            return false;
        }
        self.old.set(flow, ranking::RankingKey::ABSENT);
        if core::mem::take(&mut self.flows[flow as usize].ranked_new) {
            self.fresh.set(flow, ranking::RankingKey::ABSENT);
        }
        true
    }

    /// Enters the score of a flow that is new, or has just stopped being new, into the rankings. This is a separate
    /// function to keep the usual case short.
    #[inline(never)]
    fn enter_new(&mut self, flow: LocalFlow) {
        let state = &mut self.flows[flow as usize];
        state.ranked_new = state.new;
        let (is, was) = match state.new {
            true => (&mut self.fresh, &mut self.old),
            false => (&mut self.old, &mut self.fresh),
        };
        is.set(flow, state.key());
        was.set(flow, ranking::RankingKey::ABSENT);
    }

    /// Returns the ready flow with the lowest score; `None` if no flow is ready.
    fn lowest(&self) -> Option<LocalFlow> {
        let single = match (self.old.lowest(), self.fresh.lowest()) {
            (Some((_, old)), Some((flow, fresh))) if fresh < old => Some((flow, fresh)),
            (Some((flow, key)), _) | (None, Some((flow, key))) => Some((flow, key)),
            (None, None) => None,
        };
        let lowest = match self.groups_with_members() {
            None => single,
            Some(groups) => {
                let grouped = [groups.lowest(false), groups.lowest(true)];
                single.into_iter().chain(grouped.into_iter().flatten()).min_by_key(|(_, key)| *key)
            }
        };
        lowest.map(|(flow, _)| flow)
    }

    /// Enters the present state of a flow into the partition, if the node has one.
    #[inline(never)]
    fn enter_partition(&mut self, flow: LocalFlow) {
        let state = &self.flows[flow as usize];
        let key = state.ready.then_some((state.score, state.moment));
        let active = state.ready || state.in_flight > 0;
        let in_flight = u64::from(state.in_flight);
        let Some(partition) = &mut self.partition else { return };
        let name = &partition.names[flow as usize];
        // A change of the active flows invalidates the slots, which `divide` computes when they are next needed.
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

    /// Divides the slots among the active flows, unless they are already divided for this capacity and these flows.
    /// Flows that are not active get no slots.
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
        let active: Vec<LocalFlow> = partition.active.values().copied().collect();
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

impl Arbiter for ShareState {
    fn look(&mut self, flow: LocalFlow, view: FlowUpdate, cx: ArbiterContext<'_>) {
        self.leave_group(flow);
        self.flows[flow as usize].may_join = view.may_join;
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
                    // The flow loses the service that it missed, and no more than that.
                    let below = virtual_time.saturating_sub(state.score);
                    let lift = below.min(virtual_time - stopped);
                    if lift > 0 {
                        // Virtual time was below the score when the flow stopped, and has overtaken it since.
                        if state.score > stopped {
                            self.meter.forfeit(flow, &mut state.meter, state.weight);
                        }
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
        let presence = FlowPresence::of(waits, state.ready);
        self.meter.set_presence(flow, &mut state.meter, state.weight, presence);
        self.enter(flow);
        let state = &self.flows[flow as usize];
        // Changes of its workers do not matter to a flow that is held or at its cap.
        let is_single = state.group.is_some() && state.member.is_none() && !view.is_kept;
        if is_single != state.is_single {
            self.set_single(flow, is_single);
        }
    }

    fn pick(&mut self, cx: ArbiterContext<'_>) -> Option<FlowPick> {
        if self.partition.is_some() {
            self.divide(cx.capacity);
        }
        let below = self.partition.as_ref().and_then(|p| p.below.first());
        let flow = match below {
            Some((_, flow)) => *flow,
            None => self.lowest()?,
        };
        Some(FlowPick { flow, late: None })
    }

    fn charge(&mut self, flow: LocalFlow, cost: Tokens) -> u64 {
        let mut lowest = self.old.lowest().map_or(Score::MAX, |(_, (score, _))| score);
        let mut grouped = 0;
        if let Some(groups) = self.groups_with_members() {
            lowest = groups.lowest_old().map_or(lowest, |(score, _)| lowest.min(score));
            grouped = groups.highest_settled().unwrap_or(0);
        }
        let highest = match grouped >= lowest {
            true => grouped,
            false => grouped.max(self.highest.find(&mut self.flows, lowest)),
        };
        let height = lowest.min(highest);
        if height > self.virtual_time {
            self.virtual_time = height;
            self.rises += 1;
        }
        self.leave_group(flow);
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
        let generation = state.generation;
        self.update_passed();
        generation
    }

    fn settle(&mut self, flow: LocalFlow, ended: EndedRequest) -> SettleEffect {
        self.leave_group(flow);
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
            return SettleEffect::Node;
        }
        match state.waits || self.partition.is_some() {
            true => SettleEffect::Flow,
            false => SettleEffect::Nothing,
        }
    }

    /// Changes the weight of a flow. The settled score stays the same, and pending tokens are then divided by the new
    /// weight.
    fn set_weight(&mut self, flow: LocalFlow, weight: Weight) {
        self.wake(flow);
        self.leave_group(flow);
        let state = &mut self.flows[flow as usize];
        let before = state.score;
        self.meter.set_weight(flow, &mut state.meter, state.weight, weight);
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

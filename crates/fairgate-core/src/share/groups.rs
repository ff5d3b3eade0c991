//! Groups of share flows that stop being ready together and become ready together, without visiting each flow.
//!
//! Flows whose heads have the same demands on a worker are ready or blocked at the same looks. For example, a thousand
//! tenants that are pinned to one worker all stop when the worker fills up, and all continue when it frees up. Such
//! flows form a *group*. While flows are members, only virtual time moves. If the group stops being ready at virtual
//! time v and is ready again at w, a member's score s changes by the fourth rule in [`super`] to
//!
//! ```text
//!     s ≤ v        s + (w − v)        the flow keeps its distance below virtual time
//!     v < s < w    w                  the flow is lifted to virtual time
//!     w ≤ s        s                  the flow was ahead, and still is
//! ```
//!
//! So members are in two lists. Those at or below virtual time when the group last stopped are *below*: a return moves
//! all of them by the same distance, which is one addition to the group's `offset`. The others are *above*, stored with
//! their unchanged scores. A stop moves the members that virtual time has reached from above to below, and a return
//! moves the members that it lifts. A member moves from above to below once; only a grant, which takes the member out
//! of the group, can put it above again. So a stop or a return costs O(log n) for each member that moves, and nothing
//! for the others. Each grant causes at most one such move, so the cost per grant is O(log n).
//!
//! Any other event of a member (a grant, an end, a hold, a new head) first brings the member's counters up to date and
//! takes the flow out of the group. From then on, changes of the demand are reported to this flow individually, until a
//! look finds the flow ready and it joins the group again. A flow that is held or at its cap needs no reports.
//! Membership only affects speed: no decision and no snapshot depends on it.
//!
//! Only a share flow with a queue inside, and without `max_wait`, can be a member. All other flows are visited one by
//! one when their worker fills up or frees up. If all flows wait for the same worker, a change costs O(1); see
//! `workers.rs`. Measured: if half of 1 000 tenants are pinned to one full worker and half to another, they cost twice
//! the instructions of 1 000 tenants without pins. With 4 000 tenants the factor is also two.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Score, ScoreKey, ShareFlowState};
use crate::arbiter::LocalFlow;
use crate::meter::{GroupedMeter, NodeMeter};
use crate::ranking::{KeyRanking, RankingKey as _};

/// A member below is stored with the height score + `BIAS` − the group's offset. `BIAS` is so large that heights stay
/// above 0, because scores and virtual time are below half of it.
const BIAS: Score = 1 << 126;

/// The groups of a share node.
#[derive(Clone, Debug)]
pub(crate) struct ShareGroups {
    list: Vec<ShareGroup>,
    free: Vec<u32>,
    by_demand: BTreeMap<u32, u32>,
    members: usize,
    /// The open groups, ranked by the lowest key of their members that are not new.
    old: KeyRanking<ScoreKey>,
    /// The open groups, ranked by the lowest key of their new members.
    fresh: KeyRanking<ScoreKey>,
    /// The open groups, ranked by the highest settled score of their members, stored as `!settled`.
    settled: KeyRanking<Score>,
}

#[derive(Clone, Debug, Default)]
struct ShareGroup {
    demand: u32,
    /// Number of flows that watch the group's demand.
    watchers: u32,
    /// The watching flows to which changes are reported individually, because they are not members, not held and not at
    /// their cap.
    single: BTreeSet<LocalFlow>,
    above: MemberHeights,
    below: MemberHeights,
    /// Summed distance by which the members below have moved since the group was created, in 2⁻³² tokens per weight.
    offset: Score,
    closed: Option<GroupClosedAt>,
    /// Number of times that virtual time rose while the group was open, up to the last time that the group closed.
    rises: u64,
    /// The node's count of rises of virtual time when the group last opened.
    opened_at: u64,
}

/// Virtual time and its count of rises when a group stopped being ready.
#[derive(Clone, Copy, Debug, Default)]
struct GroupClosedAt {
    virtual_time: Score,
    rises: u64,
}

/// One of the two lists of members, above or below, sorted by key and by settled score.
#[derive(Clone, Debug, Default)]
struct MemberHeights {
    old: BTreeSet<(ScoreKey, LocalFlow)>,
    fresh: BTreeSet<(ScoreKey, LocalFlow)>,
    settled: BTreeSet<(Score, LocalFlow)>,
}

/// The data that a member keeps about its membership in a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupMembership {
    group: u32,
    is_below: bool,
    /// The group's offset when the member moved from above to below.
    offset: Score,
    /// Number of rises of virtual time that the group had seen while open when the member joined.
    rises: u64,
    meter: GroupedMeter,
}

impl GroupMembership {
    /// Stores the member's changed meter data.
    pub(super) fn set_meter(&mut self, meter: GroupedMeter) {
        self.meter = meter;
    }

    pub(super) fn meter(&self) -> GroupedMeter {
        self.meter
    }
}

impl MemberHeights {
    fn insert(&mut self, flow: LocalFlow, state: &ShareFlowState, bias: Score) {
        let keys = if state.new { &mut self.fresh } else { &mut self.old };
        keys.insert(((state.score + bias, state.moment), flow));
        self.settled.insert((state.settled + bias, flow));
    }

    fn remove(&mut self, flow: LocalFlow, state: &ShareFlowState, bias: Score) {
        let keys = if state.new { &mut self.fresh } else { &mut self.old };
        keys.remove(&((state.score + bias, state.moment), flow));
        self.settled.remove(&(state.settled + bias, flow));
    }

    /// Returns a member whose score is at most `score`; `None` if there is no such member.
    fn up_to(&self, score: Score) -> Option<LocalFlow> {
        let lowest = [&self.old, &self.fresh].into_iter().filter_map(BTreeSet::first);
        lowest.filter(|((height, _), _)| *height <= score).map(|(_, flow)| *flow).next()
    }
}

impl ShareGroup {
    /// Returns the number that turns a score into a stored height, for a member that moves below while the group has
    /// this offset.
    fn bias(offset: Score) -> Score {
        BIAS - offset
    }

    /// Returns the number of rises of virtual time that the group has seen while open. `rises` is the node's present
    /// count.
    fn rises_seen(&self, rises: u64) -> u64 {
        match self.closed {
            Some(_) => self.rises,
            None => self.rises + (rises - self.opened_at),
        }
    }

    fn put_below(&mut self, flow: LocalFlow, state: &mut ShareFlowState) {
        self.below.insert(flow, state, Self::bias(self.offset));
        if let Some(member) = &mut state.member {
            member.is_below = true;
            member.offset = self.offset;
        }
    }

    /// Marks the group as no longer ready. Members whose scores virtual time has passed move from above to below.
    fn close(&mut self, flows: &mut [ShareFlowState], virtual_time: Score, rises: u64) {
        self.rises = self.rises_seen(rises);
        self.closed = Some(GroupClosedAt { virtual_time, rises });
        while let Some(flow) = self.above.up_to(virtual_time) {
            let state = &mut flows[flow as usize];
            self.above.remove(flow, state, 0);
            self.put_below(flow, state);
        }
    }

    /// Marks the group as ready again. Members below move along with virtual time, and members that virtual time has
    /// passed since the group closed are lifted to it. Returns the members that were lifted.
    fn open(
        &mut self,
        flows: &mut [ShareFlowState],
        virtual_time: Score,
        rises: u64,
    ) -> Vec<LocalFlow> {
        let mut lifted = Vec::new();
        let Some(closed) = self.closed.take() else { return lifted };
        self.opened_at = rises;
        self.offset += virtual_time - closed.virtual_time;
        while let Some(flow) = self.above.up_to(virtual_time.saturating_sub(1)) {
            let state = &mut flows[flow as usize];
            self.above.remove(flow, state, 0);
            state.lift(virtual_time - state.score);
            self.put_below(flow, state);
            lifted.push(flow);
        }
        lifted
    }

    /// Sets a member's counters to the values that they would have if the member had been visited whenever the group
    /// closed or opened.
    fn bring_up_to_date(&self, state: &mut ShareFlowState, member: &GroupMembership, rises: u64) {
        if member.is_below {
            state.lift(self.offset - member.offset);
        }
        if self.rises_seen(rises) != member.rises {
            state.bound.fallen = 0;
        }
        state.bound.rise = self.closed.map_or(rises, |closed| closed.rises);
        state.stopped = self.closed.map(|closed| closed.virtual_time);
        state.ready = self.closed.is_none();
    }

    /// Returns the lowest key of the group's new members if `is_new`, otherwise of the members that are not new.
    fn lowest(&self, is_new: bool) -> ScoreKey {
        let side = |heights: &MemberHeights| {
            let keys = if is_new { &heights.fresh } else { &heights.old };
            keys.first().map(|(key, _)| *key)
        };
        let below = side(&self.below).map(|(score, moment)| (self.unbiased(score), moment));
        side(&self.above).into_iter().chain(below).min().unwrap_or(ScoreKey::ABSENT)
    }

    fn unbiased(&self, height: Score) -> Score {
        height - Self::bias(self.offset)
    }

    /// Returns `!settled` for the highest settled score of the group's members.
    fn highest_settled(&self) -> Score {
        let last = |heights: &MemberHeights| heights.settled.last().map(|(settled, _)| *settled);
        let below = last(&self.below).map(|settled| self.unbiased(settled));
        let highest = last(&self.above).into_iter().chain(below).max();
        highest.map_or(Score::ABSENT, |settled| !settled)
    }

    fn first(&self, is_new: bool) -> Option<LocalFlow> {
        let (key, side) = (self.lowest(is_new), |heights: &MemberHeights, bias| {
            let keys = if is_new { &heights.fresh } else { &heights.old };
            keys.first().map(|((score, moment), flow)| ((*score - bias, *moment), *flow))
        });
        let above = side(&self.above, 0);
        let below = side(&self.below, Self::bias(self.offset));
        above.into_iter().chain(below).find(|(of, _)| *of == key).map(|(_, flow)| flow)
    }
}

impl Default for ShareGroups {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            free: Vec::new(),
            by_demand: BTreeMap::new(),
            members: 0,
            old: KeyRanking::new(),
            fresh: KeyRanking::new(),
            settled: KeyRanking::new(),
        }
    }
}

impl ShareGroups {
    /// Returns true if any group has a member.
    pub(super) fn has_members(&self) -> bool {
        self.members > 0
    }

    /// Returns the flow with the lowest key in all open groups, and that key. With `is_new`, only new members count,
    /// otherwise only the others.
    pub(super) fn lowest(&self, is_new: bool) -> Option<(LocalFlow, ScoreKey)> {
        let ranking = if is_new { &self.fresh } else { &self.old };
        let (group, key) = ranking.lowest()?;
        Some((self.list[group as usize].first(is_new)?, key))
    }

    /// Returns the lowest key of the members of open groups that are not new; `None` if there is no such member.
    pub(super) fn lowest_old(&self) -> Option<ScoreKey> {
        self.old.lowest().map(|(_, key)| key)
    }

    /// Returns the highest settled score of the members of open groups; `None` if no open group has a member.
    pub(super) fn highest_settled(&self) -> Option<Score> {
        self.settled.lowest().map(|(_, not_settled)| !not_settled)
    }

    /// Makes a flow watch a demand. Changes of the demand are reported to the flow individually until the flow joins
    /// the group. Returns the number of the demand's group.
    pub(super) fn watch(
        &mut self,
        flow: LocalFlow,
        demand: u32,
        is_open: bool,
        (virtual_time, rises): (Score, u64),
        meter: &mut NodeMeter,
    ) -> u32 {
        let group = match self.by_demand.get(&demand) {
            Some(group) => *group,
            None => {
                let closed = (!is_open).then_some(GroupClosedAt { virtual_time, rises });
                let group =
                    ShareGroup { demand, closed, opened_at: rises, ..ShareGroup::default() };
                let index = match self.free.pop() {
                    Some(index) => {
                        self.list[index as usize] = group;
                        index
                    }
                    None => {
                        self.list.push(group);
                        u32::try_from(self.list.len() - 1).expect("fewer than 2^32 groups")
                    }
                };
                self.by_demand.insert(demand, index);
                meter.make_group(index, is_open);
                index
            }
        };
        let state = &mut self.list[group as usize];
        state.watchers += 1;
        state.single.insert(flow);
        group
    }

    /// Ends the watch of a flow that is not a member of the group.
    pub(super) fn unwatch(&mut self, flow: LocalFlow, group: u32) {
        let state = &mut self.list[group as usize];
        state.single.remove(&flow);
        state.watchers -= 1;
        if state.watchers == 0 {
            self.by_demand.remove(&state.demand);
            self.refresh(group);
            self.free.push(group);
        }
    }

    /// Starts or ends the individual reporting of changes to a flow that is not a member of the group.
    pub(super) fn set_single(&mut self, flow: LocalFlow, group: u32, is_single: bool) {
        let single = &mut self.list[group as usize].single;
        match is_single {
            true => drop(single.insert(flow)),
            false => drop(single.remove(&flow)),
        }
    }

    /// Adds a ready flow to its group if the group is open. Returns true if the flow has joined.
    pub(super) fn join(
        &mut self,
        flow: LocalFlow,
        state: &mut ShareFlowState,
        (virtual_time, rises): (Score, u64),
        meter: &mut NodeMeter,
    ) -> bool {
        let Some(index) = state.group else { return false };
        let group = &mut self.list[index as usize];
        if group.closed.is_some() || state.score.max(virtual_time) >= BIAS / 2 {
            return false;
        }
        self.members += 1;
        if core::mem::take(&mut state.is_single) {
            group.single.remove(&flow);
        }
        // Accounts for earlier rises of virtual time. From here on, the rises that the group sees count.
        state.bound.renew(false, rises);
        let grouped = meter.join_group(index, flow, &state.meter, state.weight);
        let rises = group.rises_seen(rises);
        let member =
            GroupMembership { group: index, is_below: false, offset: 0, rises, meter: grouped };
        state.member = Some(member);
        match state.score <= virtual_time {
            true => group.put_below(flow, state),
            false => group.above.insert(flow, state, 0),
        }
        self.refresh(index);
        true
    }

    /// Removes a member from its group and brings its counters up to date. Changes are reported to the flow
    /// individually from now on.
    pub(super) fn leave(
        &mut self,
        flow: LocalFlow,
        state: &mut ShareFlowState,
        rises: u64,
        meter: &mut NodeMeter,
    ) {
        let Some(member) = state.member.take() else { return };
        self.members -= 1;
        let group = &mut self.list[member.group as usize];
        match member.is_below {
            true => group.below.remove(flow, state, ShareGroup::bias(member.offset)),
            false => group.above.remove(flow, state, 0),
        }
        group.single.insert(flow);
        state.is_single = true;
        group.bring_up_to_date(state, &member, rises);
        meter.leave_group(flow, &mut state.meter, state.weight, member.meter);
        self.refresh(member.group);
    }

    /// Returns the present state of a flow, with its counters up to date if it is a member of a group.
    pub(super) fn state_now(
        &self,
        state: &ShareFlowState,
        rises: u64,
        meter: &NodeMeter,
    ) -> ShareFlowState {
        let mut state = state.clone();
        if let Some(member) = state.member.take() {
            self.list[member.group as usize].bring_up_to_date(&mut state, &member, rises);
            state.meter = meter.grouped_now(&state.meter, state.weight, member.meter);
        }
        state
    }

    /// Opens or closes a demand, so that the members of its group change together. Returns the flows to which the
    /// change must be reported individually.
    pub(super) fn change(
        &mut self,
        demand: u32,
        is_open: bool,
        flows: &mut [ShareFlowState],
        (virtual_time, rises): (Score, u64),
        meter: &mut NodeMeter,
    ) -> Vec<LocalFlow> {
        let Some(index) = self.by_demand.get(&demand).copied() else { return Vec::new() };
        let group = &mut self.list[index as usize];
        if group.closed.is_none() != is_open {
            let lifted = match is_open {
                true => group.open(flows, virtual_time, rises),
                false => {
                    group.close(flows, virtual_time, rises);
                    Vec::new()
                }
            };
            meter.change_group(index, is_open);
            for flow in lifted {
                let state = &mut flows[flow as usize];
                let Some(member) = &mut state.member else { continue };
                meter.leave_group(flow, &mut state.meter, state.weight, member.meter);
                meter.forfeit(flow, &mut state.meter, state.weight);
                member.meter = meter.join_group(index, flow, &state.meter, state.weight);
            }
            self.refresh(index);
        }
        self.list[index as usize].single.iter().copied().collect()
    }

    /// Enters the present keys of a group into the rankings, or removes the group from them if it is closed.
    fn refresh(&mut self, index: u32) {
        let group = &self.list[index as usize];
        let is_open = group.closed.is_none();
        let key = |is_new| if is_open { group.lowest(is_new) } else { ScoreKey::ABSENT };
        let settled = if is_open { group.highest_settled() } else { Score::ABSENT };
        self.old.set(index, key(false));
        self.fresh.set(index, key(true));
        self.settled.set(index, settled);
    }
}

//! Meters groups of flows that become ready together and stop being ready together, without visiting each flow.
//!
//! The terms are those of the module [`crate::meter`]. Service is imagined as a *fluid* that is divided among the flows
//! present in it. The *volume* is the service that each unit of weight has been due so far, and it rises with every
//! grant.
//!
//! Let F be the volume at which a member will have been due as much as it got. All members of a ready group are in the
//! fluid. When the group stops being ready, at volume v, a member with F ≤ v leaves the fluid at once. Any other member
//! leaves when the volume reaches F. When the group becomes ready again, at volume w, all members return to the fluid.
//! While a member is out of the fluid it *rests*: the volume rises, but the member is due nothing, so its F rises by
//! the same amount. So F changes in the same way as a score (see [`crate::share`]). The columns are F before the stop,
//! F after the return, and the reason:
//!
//! ```text
//!     F ≤ v        F + (w − v)        it rested all the time
//!     v < F ≤ w    w                  it left at F, due exactly what it got, and rested from then on
//!     w < F        F                  it never left
//! ```
//!
//! A member is *ahead* if its F is above the present volume, so that it has been due less than it got. The members that
//! are ahead are kept in order of F. Of the others only the sum of their weights is kept, and the amount by which the
//! volume rose while they rested.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{FixedTokens, FlowMeter, FlowPresence, NodeMeter};
use crate::units::Weight;

/// The meters of all groups of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MeterGroups {
    list: Vec<MeterGroup>,
    /// The groups that are not ready and have a member ahead. They are sorted by the volume at which the first such
    /// member leaves the fluid.
    leaving: BTreeSet<(FixedTokens, u32)>,
    /// Members that are no longer ahead and whose [`GroupedMeter`] is not up to date yet.
    passed: Vec<PassedMember>,
}

/// The meter of one group of flows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MeterGroup {
    /// The members that got more than they were due so far, with their weights. The key is the volume at which what the
    /// member is due reaches what it got, and the member's number.
    ahead: BTreeMap<(FixedTokens, u32), Weight>,
    /// Summed weights of the members that are not ahead.
    resting: u128,
    /// Amount by which the volume rose while the group was not ready, summed over all times that it was not ready.
    offset: FixedTokens,
    /// The volume at which the group stopped being ready; `None` while the group is ready.
    closed_at: Option<FixedTokens>,
    /// Number of times that the group has stopped being ready.
    stops: u64,
}

/// The part of a member's meter that depends on its group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupedMeter {
    group: u32,
    /// The volume at which the member will have been due as much as it got; `None` if the member is not ahead.
    finish: Option<FixedTokens>,
    /// The group's `offset` when the member was last found not to be ahead.
    offset: FixedTokens,
    /// Value of the group's `stops` when the member's floor was noted; `None` if no floor was noted.
    floor_noted: Option<u64>,
}

/// A member that was ahead and is no longer, because it has now been due as much as it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PassedMember {
    pub(crate) flow: u32,
    group: u32,
    /// The volume at which the member's group stopped being ready, if the member left the fluid after that; `None` if
    /// it was in the fluid until the group stopped being ready.
    stopped_at: Option<FixedTokens>,
}

impl MeterGroups {
    /// Returns true if a group that is not ready has a member that will still leave the fluid.
    pub(super) fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    fn group(&mut self, group: u32) -> &mut MeterGroup {
        let groups = self.list.len().max(group as usize + 1);
        self.list.resize_with(groups, MeterGroup::default);
        &mut self.list[group as usize]
    }

    /// Enters a group into `leaving`, with the F of its first member ahead. Does nothing if the group is ready or has
    /// no member ahead.
    fn list_first(&mut self, group: u32) {
        let state = &self.list[group as usize];
        if let (Some(_), Some(((finish, _), _))) = (state.closed_at, state.ahead.first_key_value())
        {
            self.leaving.insert((*finish, group));
        }
    }

    fn unlist_first(&mut self, group: u32) {
        if let Some(((finish, _), _)) = self.list[group as usize].ahead.first_key_value() {
            self.leaving.remove(&(*finish, group));
        }
    }
}

impl NodeMeter {
    /// Creates a group without members.
    pub(crate) fn make_group(&mut self, group: u32, is_open: bool) {
        let closed_at = (!is_open).then_some(self.volume);
        let groups = self.groups.get_or_insert_default();
        *groups.group(group) = MeterGroup { closed_at, ..MeterGroup::default() };
    }

    /// Adds a ready flow to a group that is ready.
    pub(crate) fn join_group(
        &mut self,
        group: u32,
        id: u32,
        flow: &FlowMeter,
        weight: Weight,
    ) -> GroupedMeter {
        let finish = flow.finish(flow.since.unwrap_or(self.volume), weight);
        let is_ahead = finish > self.volume;
        let state = self.groups.get_or_insert_default().group(group);
        match is_ahead {
            true => drop(state.ahead.insert((finish, id), weight)),
            false => state.resting += u128::from(weight.get()),
        }
        let finish = is_ahead.then_some(finish);
        GroupedMeter { group, finish, offset: state.offset, floor_noted: None }
    }

    /// Removes a member from its group and brings its meter up to date.
    pub(crate) fn leave_group(
        &mut self,
        id: u32,
        flow: &mut FlowMeter,
        weight: Weight,
        member: GroupedMeter,
    ) {
        *flow = self.grouped_now(flow, weight, member);
        let Some(groups) = &mut self.groups else { return };
        let Some(finish) = member.finish else {
            groups.group(member.group).resting -= u128::from(weight.get());
            return;
        };
        groups.unlist_first(member.group);
        let state = groups.group(member.group);
        state.ahead.remove(&(finish, id));
        if state.closed_at.is_some() {
            self.leaving.insert((finish, id), weight);
        }
        groups.list_first(member.group);
    }

    /// Returns a member's meter with the values that it would have if the member had been visited whenever the group
    /// stopped or became ready.
    pub(crate) fn grouped_now(
        &self,
        flow: &FlowMeter,
        weight: Weight,
        member: GroupedMeter,
    ) -> FlowMeter {
        let Some(groups) = &self.groups else { return *flow };
        let group = &groups.list[member.group as usize];
        let since = flow.since.unwrap_or(self.volume);
        let since = match member.finish {
            Some(_) => since,
            None => since + (group.offset - member.offset),
        };
        let Some(closed_at) = group.closed_at else {
            return FlowMeter { since: Some(since), presence: FlowPresence::Ready, ..*flow };
        };
        let due = flow.due.saturating_add(risen(since, closed_at, weight));
        let floor = if member.floor_noted == Some(group.stops) { flow.floor } else { due };
        let since = member.finish.map(|_| closed_at);
        FlowMeter { due, since, floor, presence: FlowPresence::Kept, ..*flow }
    }

    /// Marks a group as ready if `is_open`, and otherwise as no longer ready.
    pub(crate) fn change_group(&mut self, group: u32, is_open: bool) {
        let volume = self.volume;
        let Some(groups) = &mut self.groups else { return };
        groups.unlist_first(group);
        let MeterGroups { list, passed, .. } = &mut **groups;
        let state = &mut list[group as usize];
        if is_open {
            let Some(closed_at) = state.closed_at.take() else { return };
            state.offset += volume - closed_at;
            self.weight += state.resting;
            return;
        }
        while let Some(first) = state.ahead.first_entry().filter(|it| it.key().0 <= volume) {
            let flow = first.key().1;
            state.resting += u128::from(first.remove().get());
            passed.push(PassedMember { flow, group, stopped_at: None });
        }
        state.closed_at = Some(volume);
        state.stops += 1;
        self.weight -= state.resting;
        groups.list_first(group);
    }

    /// Returns the volume at which the next flow leaves the fluid, alone or as a member of a group; `None` if none
    /// will.
    pub(super) fn next_to_leave(&self) -> Option<FixedTokens> {
        let single = self.leaving.first_key_value().map(|((finish, _), _)| *finish);
        let grouped = self.groups.as_ref().and_then(|groups| groups.leaving.first());
        single.into_iter().chain(grouped.map(|(finish, _)| *finish)).min()
    }

    /// Removes the flow that leaves the fluid at this volume, which [`Self::next_to_leave`] has just returned. Returns
    /// the weight of the flow.
    pub(super) fn leave_at(&mut self, finish: FixedTokens) -> Option<Weight> {
        if let Some(first) = self.leaving.first_entry().filter(|it| it.key().0 == finish) {
            return Some(first.remove());
        }
        let groups = self.groups.as_mut()?;
        let (_, group) = groups.leaving.pop_first()?;
        let state = groups.group(group);
        let ((_, flow), weight) = state.ahead.pop_first()?;
        state.resting += u128::from(weight.get());
        let stopped_at = state.closed_at;
        groups.passed.push(PassedMember { flow, group, stopped_at });
        groups.list_first(group);
        Some(weight)
    }

    /// Returns true if a member is no longer ahead and its [`GroupedMeter`] is not up to date yet.
    pub(crate) fn has_passed(&self) -> bool {
        self.groups.as_ref().is_some_and(|groups| !groups.passed.is_empty())
    }

    /// Takes the members that have stopped being ahead since the last call. The caller must bring their
    /// [`GroupedMeter`]s up to date.
    pub(crate) fn take_passed(&mut self) -> Vec<PassedMember> {
        self.groups.as_mut().map(|groups| core::mem::take(&mut groups.passed)).unwrap_or_default()
    }

    /// Brings the [`GroupedMeter`] of a member that is no longer ahead up to date, and the member's meter if it has
    /// left the fluid.
    pub(crate) fn pass(
        &self,
        passed: PassedMember,
        flow: &mut FlowMeter,
        weight: Weight,
        member: GroupedMeter,
    ) -> GroupedMeter {
        let Some(groups) = &self.groups else { return member };
        let group = &groups.list[passed.group as usize];
        let member = GroupedMeter { finish: None, offset: group.offset, ..member };
        let Some(stopped_at) = passed.stopped_at else { return member };
        let since = flow.since.unwrap_or(stopped_at);
        flow.floor = flow.due.saturating_add(risen(since, stopped_at, weight));
        flow.due = flow.got_fixed();
        flow.since = Some(stopped_at);
        GroupedMeter { floor_noted: Some(group.stops), ..member }
    }
}

/// Returns the service that a flow of this weight is due when the volume rises from `from` to `to`.
fn risen(from: FixedTokens, to: FixedTokens, weight: Weight) -> FixedTokens {
    (to - from).saturating_mul(i128::from(weight.get()))
}

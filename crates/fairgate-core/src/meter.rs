//! Measures the service that each flow was due and the service that it got. The meter decides nothing.
//!
//! # The measure
//! Imagine that service is a *fluid*: every token served is divided at once among the flows that are *present* in the
//! fluid, in proportion to their weights. A flow is present while it is ready. When it stops being ready, it stays
//! present until it has been due as much as it got. So its last requests are served in the fluid too, as packets are in
//! generalised processor sharing (Parekh and Gallager 1993). The meter's *volume* M is the virtual time of that paper,
//! which is the service that each unit of weight has been due since the node began:
//!
//! ```text
//!     at a grant     M += (cost + carried) / W      W = the sum of the weights of the flows present
//!     at an end      carried += used − cost         until the next grant
//!     dueᵢ += wᵢ · (the rise of M while i was present)    gotᵢ += cost at its grant, used − cost at its end
//! ```
//!
//! The difference between usage and cost is divided at the next grant, and not when the request ends. At the end of a
//! request its worker still counts as full, or its flow as at its cap, so the flows that shared its cost are not ready.
//! M never falls: if the carried refund exceeds the next cost, the rest is subtracted from later costs.
//!
//! A flow that stops being ready while something waits (held, at its cap, no open worker) keeps the service it was due
//! by then. A flow with nothing waiting is owed nothing: the service it was due beyond what it got goes back to the
//! others. The same happens if a refund shows that a flow that is not ready has been due more than it used, and if a
//! share node's virtual time overtakes the score of a flow that is not ready, which then starts again from virtual time.
//! Without this, a flow that is stopped again and again would be owed more each time.
//!
//! M is kept in 2⁻³² tokens per weight and rounded down at each step; the error is smaller than any number shown. A
//! flow's due is brought up to date when the flow becomes ready or stops being ready. That costs O(1), or O(log n) if
//! the flow stops being ready and has got more than it was due.
//!
//! # The bound
//! Take flows that are ready whenever anything is granted, and a discipline that always serves the flow with the lowest
//! got per weight. Right before *i* is granted, no other flow is below *i*. Since that moment *i* has gone up by the
//! cost of the grant and by the errors of its own estimates; the sum is its *rise*. Another flow *j* may have gone down
//! by refunds of its requests in flight. It went down by no more than the distance between its highest got so far and
//! its present got; that distance is its *fall*. Let *worstᵢ* be the largest value that the rise or the fall of *i*
//! ever had. Then
//!
//! ```text
//!     | gotᵢ/wᵢ − gotⱼ/wⱼ |  ≤  worstᵢ/wᵢ + worstⱼ/wⱼ
//! ```
//!
//! and since dueᵢ/wᵢ is the weighted mean of all gotⱼ/wⱼ, apart from the carried amount, |gotᵢ − dueᵢ| ≤ wᵢ ·
//! (worstᵢ/wᵢ + maxⱼ worstⱼ/wⱼ) + |carried|. A share node keeps flows that are always ready within this bound. A drr
//! node would do so too if it divided tokens in proportion to its quanta; its bound has one quantum more, for the round
//! that it is in. So a drr class outside of the bound shows that quanta are not shares.
//!
//! # Flows that come late
//! A flow that comes to a share node starts at virtual time, which counts requests in flight as not yet served. The
//! fluid counts them as served. So the newcomer starts below the scores of flows with requests in flight and is granted
//! requests until its score is level with theirs, while all of them are due service. Let sᵢ be the score of a flow that
//! takes part, eᵢ = (gotᵢ − dueᵢ)/wᵢ, and let a bar be the weighted mean over the flows that take part. Then
//!
//! ```text
//!     startᵢ = sᵢ − eᵢ
//!     eᵢ     = (sᵢ − s̄) − (startᵢ − mean start) + ē        ē = carried / W
//!     | gotᵢ − dueᵢ |  ≤  wᵢ · (nearᵢ + | startᵢ − mean start |) + |carried|
//! ```
//!
//! A grant and the end of a request change sᵢ and eᵢ by the same amount, and a rise of M changes start of all ready
//! flows by the same amount. So the difference of two starts is set when the later of the two flows becomes ready.
//! Later it changes only if a weight changes, if a request ends with a refund that was granted before its flow last
//! started at virtual time (such a refund lowers eᵢ and not sᵢ), or while one of the two flows is not ready. It is 0
//! between flows that were always there, and their bound is the one above. `near` is worstᵢ/wᵢ + maxⱼ worstⱼ/wⱼ if sᵢ is
//! at least that near to s̄. It is farther only while some flow has not caught up. Then `near` is the distance that
//! virtual time allows, because −fallenᵢ ≤ sᵢ − V ≤ pendingᵢ/wᵢ + endedᵢ (see [`crate::share`]). A flow that waits but
//! is not ready counts with the score with which it would return now.
//!
//! For a flow *i* that is always ready, the arrivals of others do not add up without end. Let g be the largest distance
//! by which a flow starts below *i*, which is at most pendingᵢ/wᵢ + endedᵢ, and K the largest −eᵢ. When a flow *j*
//! starts, startᵢ − startⱼ ≤ g + K:
//!
//! * If eⱼ ≤ 0 at that moment, startᵢ − startⱼ = (sᵢ − sⱼ) + eⱼ − eᵢ ≤ g + K.
//! * If eⱼ > 0, *j* has been in the fluid since it was last ready, and only lifts to virtual time have changed its
//!   start. They raise it.
//!
//! So eⱼ − eᵢ ≤ (sⱼ − sᵢ) + g + K. The weighted mean of e is about 0, so K ≤ (1 − wᵢ/W)(g + K + `near`), that is
//! wᵢ · K ≤ (g + `near`) · (W − wᵢ), however many flows have come and gone.
//!
//! The same holds for a flow from its start until it runs out of requests, when it is owed nothing. There is no such
//! limit for a flow that stops being ready again and again while a request waits in it, and whose score is then not
//! above virtual time. It keeps what it is owed (see "The measure"), but its score moves along with virtual time, so it
//! is not served earlier for it. If others always come while it is ready and leave while it is not, it is owed more each
//! time, and the others have got as much more.
//!
//! A flow at its cap is not ready and is due nothing more, so caps have a measure of their own. The *cap use* is
//! requests in flight ÷ cap, averaged over the time in which a request waits.
//!
//! # What the bound of a share node tells
//! The second line above is true for any scores, because start is computed from the present scores. So
//! [`crate::fairness`] checks whether every flow's score is as near to the others' as the discipline keeps it, that is,
//! whether the node serves the lowest score. It does not check the scores: if a score is wrong, for example because a
//! grant was not added to it or because a flow starts too low, start is wrong too, and the bound grows with the
//! difference. Nor does it show that a flow never gets its first grant, because virtual time may pass the score of a new
//! flow. [`FlowMeter::bound`] needs no scores. Tests compare it with the difference where all flows are always ready.
//!
//! # Metering another scheduler
//! The meter needs nothing of this crate's schedulers: report which flows are ready, which requests are granted and
//! which end, and it computes what was due. So it can judge the recorded decisions of any scheduler.
//!
//! ```
//! use fairgate_core::meter::{FlowMeter, NodeMeter, FlowPresence};
//! use fairgate_core::units::Weight;
//!
//! let (mut node, one) = (NodeMeter::default(), Weight::new(1)?);
//! let (mut a, mut b) = (FlowMeter::default(), FlowMeter::default());
//! node.set_presence(0, &mut a, one, FlowPresence::Ready);
//! node.set_presence(1, &mut b, one, FlowPresence::Ready);
//! for _ in 0..10 {
//!     node.grant(&mut a, one, 100, 0);
//! }
//! // Both were ready all the time, and one of them got everything.
//! assert_eq!((a.got(), a.due(&node, one)), (1000, 500));
//! assert!(a.got().abs_diff(a.due(&node, one)) > a.bound(&node, one));
//! # Ok::<(), fairgate_core::units::OutOfRangeError>(())
//! ```
//!
//! # Reasons for two of its rules
//! A flow that stops being ready stays present until it has been due what it got. Suppose instead that it were due
//! service only while it is ready. A flow at its cap, or with one request at a time, is ready only for moments. It
//! would get far more than its due and all other flows less, and the difference would grow without end.
//! `closed_loop/meter.rs` of the testkit holds every flow to its bound while others are capped, held, idle, fresh or
//! pinned to one worker.
//!
//! The flows of a partitioned root have no bound on their lag: slots decide there, not scores, and the guarantee is the
//! number of slots. Got, due and the bound are measured there too, but a flow may be outside of the bound, because
//! tokens follow the lengths of requests and not the weights.

mod groups;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

pub(crate) use self::groups::GroupedMeter;
use self::groups::MeterGroups;
use crate::units::{Micros, Weight};

/// An amount in units of 2⁻³² tokens, or, for volumes, of 2⁻³² tokens per weight.
pub(crate) type FixedTokens = i128;

const SCALE_BITS: u32 = 32;

/// The meter of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMeter {
    /// The volume M: service due per unit of weight since the node began.
    pub(crate) volume: FixedTokens,
    /// W, the summed weights of the flows that are present in the fluid.
    weight: u128,
    /// Sum of usage − cost over the ended requests, as far as no later grant has divided it among the flows.
    pub(crate) carried: FixedTokens,
    /// The largest `worst` ÷ weight that a flow of the node has ever had, in 2⁻³² tokens per weight.
    pub(crate) widest: u128,
    /// The flows that are not ready and have been due less than they got. The key has the volume at which the flow will
    /// have been due as much as it got; at that volume its weight leaves the fluid.
    leaving: BTreeMap<(FixedTokens, u32), Weight>,
    /// The groups of flows that become ready and stop being ready together; `None` if there are none.
    groups: Option<Box<MeterGroups>>,
}

/// The meter of a flow, with the tokens that the flow got and the tokens that it was due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowMeter {
    /// Service that the flow was due when the volume was `since`. If the flow is not in the fluid, `since` is `None`,
    /// and this is all that the flow was due.
    due: FixedTokens,
    since: Option<FixedTokens>,
    presence: FlowPresence,
    /// Service that the flow was due when it stopped being ready while a request waited in it.
    floor: FixedTokens,
    /// Tokens that the flow was served. A grant counts at its cost, which is corrected to the real usage when the
    /// request ends.
    pub(crate) got: i128,
    /// Tokens that the last grant and later corrections have added to `got`, at least 0. In a drr node the quantum is
    /// added to this.
    pub(crate) rise: u64,
    /// Tokens by which `got` is below its highest value so far.
    pub(crate) fall: u64,
    /// The largest value that `rise` or `fall` has ever had, in tokens.
    pub(crate) worst: u64,
}

/// The presence of a flow in the division of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FlowPresence {
    /// The flow could be granted a request.
    Ready,
    /// A request waits in the flow, but the flow is held, is at its cap or has no open worker.
    Kept,
    /// Nothing waits in the flow.
    #[default]
    Idle,
}

impl FlowPresence {
    /// Returns the presence of a flow in which a request `waits` or not, and which is `ready` or not.
    pub fn of(waits: bool, ready: bool) -> Self {
        match (waits, ready) {
            (false, _) => Self::Idle,
            (true, false) => Self::Kept,
            (true, true) => Self::Ready,
        }
    }
}

impl NodeMeter {
    /// Restores a node's meter from a snapshot. The caller then enters each flow with [`NodeMeter::restore`].
    pub(crate) fn restored(volume: FixedTokens, carried: FixedTokens, widest: u128) -> Self {
        Self { volume, carried, widest, ..Self::default() }
    }

    /// Sets the presence of a flow from now on. `id` distinguishes the flow from the node's other flows. Call this
    /// before the next grant; a flow that was never reported counts as idle.
    pub fn set_presence(
        &mut self,
        id: u32,
        flow: &mut FlowMeter,
        weight: Weight,
        presence: FlowPresence,
    ) {
        if flow.presence == presence {
            return;
        }
        self.take_out(id, flow, weight);
        flow.presence = presence;
        flow.floor = flow.due;
        self.clip(flow);
        self.put_in(id, flow, weight);
    }

    /// Reports that a ready flow was granted a request. `round` is the number of tokens by which the discipline itself
    /// may deviate, which is the quantum of a drr class and 0 in a share node.
    pub fn grant(&mut self, flow: &mut FlowMeter, weight: Weight, cost: u64, round: u64) {
        self.divide(cost);
        flow.got += i128::from(cost);
        flow.rise = cost.saturating_add(round);
        flow.fall = flow.fall.saturating_sub(cost);
        self.note_worst(flow, weight);
    }

    /// Reports that a request of a flow has ended. `error` is the request's usage minus its cost, in tokens.
    pub fn settle(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight, error: i128) {
        if error == 0 {
            return;
        }
        self.carried = self.carried.saturating_add(error.saturating_mul(1 << SCALE_BITS));
        if flow.presence == FlowPresence::Ready {
            flow.got += error;
        } else {
            self.take_out(id, flow, weight);
            flow.got += error;
            self.clip(flow);
            self.put_in(id, flow, weight);
        }
        let size = u64::try_from(error.unsigned_abs()).unwrap_or(u64::MAX);
        if error > 0 {
            flow.rise = flow.rise.saturating_add(size);
            flow.fall = flow.fall.saturating_sub(size);
        } else {
            flow.rise = flow.rise.saturating_sub(size);
            flow.fall = flow.fall.saturating_add(size);
        }
        self.note_worst(flow, weight);
    }

    /// Gives the service that a flow was due beyond what it got back to the other flows. A share node calls this when a
    /// flow becomes ready again that virtual time has overtaken in the meantime.
    pub fn forfeit(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight) {
        if flow.due_now(self, weight) <= flow.got_fixed() {
            return;
        }
        self.take_out(id, flow, weight);
        self.carried = self.carried.saturating_add(flow.due - flow.got_fixed());
        flow.due = flow.got_fixed();
        flow.floor = flow.due;
        self.put_in(id, flow, weight);
    }

    /// Changes the weight of a flow, which so far was `from`.
    pub fn set_weight(&mut self, id: u32, flow: &mut FlowMeter, from: Weight, to: Weight) {
        self.take_out(id, flow, from);
        self.put_in(id, flow, to);
        self.note_widest(flow, to);
    }

    /// Forgets a flow in which nothing waits. If the flow got more tokens than it was due, the difference is charged to
    /// the other flows. Without this call the same would happen gradually, with later grants.
    pub fn forget(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight) {
        self.take_out(id, flow, weight);
        self.carried = self.carried.saturating_sub(flow.got_fixed() - flow.due);
        *flow = FlowMeter::default();
    }

    /// Enters a flow whose meter was restored from a snapshot.
    pub(crate) fn restore(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight) {
        self.put_in(id, flow, weight);
    }

    /// Takes a flow out of the fluid and brings the service that it was due up to date.
    fn take_out(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight) {
        let due = flow.due_now(self, weight);
        if let Some(since) = flow.since.take() {
            let is_there = match flow.presence {
                FlowPresence::Ready => true,
                _ => self.leaving.remove(&(flow.finish(since, weight), id)).is_some(),
            };
            if is_there {
                self.weight -= u128::from(weight.get());
            }
        }
        flow.due = due;
    }

    /// Puts a flow into the fluid if it is ready, or if it has been due less than it got.
    fn put_in(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight) {
        let is_ready = flow.presence == FlowPresence::Ready;
        if !is_ready && flow.due >= flow.got_fixed() {
            return;
        }
        flow.since = Some(self.volume);
        self.weight += u128::from(weight.get());
        if !is_ready {
            self.leaving.insert((flow.finish(self.volume, weight), id), weight);
        }
    }

    /// Limits the service that a flow was due, if the flow is not ready. The limit is the service that the flow got; if
    /// a request waits in the flow, the limit is at least its `floor`. The rest goes back to the other flows.
    fn clip(&mut self, flow: &mut FlowMeter) {
        let most = match flow.presence {
            FlowPresence::Ready => return,
            FlowPresence::Kept => flow.got_fixed().max(flow.floor),
            FlowPresence::Idle => flow.got_fixed(),
        };
        if flow.due > most {
            self.carried = self.carried.saturating_add(flow.due - most);
            flow.due = most;
        }
    }

    /// Divides a cost in tokens, together with the carried amount, among the flows that are present.
    fn divide(&mut self, cost: u64) {
        // Fast path: usually no flow is leaving and the numbers fit in 64 bits.
        let amount = self.carried.saturating_add(i128::from(cost) << SCALE_BITS);
        if self.leaving.is_empty()
            && self.groups.as_ref().is_none_or(|groups| !groups.has_leaving())
            && let (Ok(amount), Ok(weight @ 1..)) =
                (u64::try_from(amount), u64::try_from(self.weight))
        {
            self.carried = 0;
            self.volume = self.volume.saturating_add(i128::from(amount / weight));
            return;
        }
        self.divide_wide(amount);
    }

    /// Divides an amount of any size, in 2⁻³² tokens, among the flows that are present. A flow that is not ready leaves
    /// as soon as the volume is reached at which it has been due as much as it got; the rest is divided among the
    /// others.
    #[cold]
    fn divide_wide(&mut self, mut amount: FixedTokens) {
        self.carried = amount.min(0);
        if amount <= 0 {
            return;
        }
        while let Some(finish) = self.next_to_leave() {
            let weight = i128::try_from(self.weight).unwrap_or(i128::MAX);
            let needed = (finish - self.volume).saturating_mul(weight);
            if amount < needed {
                break;
            }
            amount -= needed;
            self.volume = finish;
            self.weight -= self.leave_at(finish).map_or(0, |weight| u128::from(weight.get()));
        }
        if self.weight > 0 {
            let weight = i128::try_from(self.weight).unwrap_or(i128::MAX);
            self.volume = self.volume.saturating_add(amount / weight);
        }
    }

    fn note_worst(&mut self, flow: &mut FlowMeter, weight: Weight) {
        let worst = flow.rise.max(flow.fall);
        if worst > flow.worst {
            flow.worst = worst;
            self.note_widest(flow, weight);
        }
    }

    fn note_widest(&mut self, flow: &FlowMeter, weight: Weight) {
        let per_weight = crate::share::per_weight(flow.worst.into(), weight);
        self.widest = self.widest.max(per_weight);
    }
}

impl FlowMeter {
    /// Restores a flow's meter from a snapshot. The caller then enters the flow into its node with
    /// [`NodeMeter::restore`].
    pub(crate) fn restored(counters: FlowMeterCounters, waits: bool) -> Self {
        let FlowMeterCounters { due, floor, got, rise, fall, worst } = counters;
        let presence = FlowPresence::of(waits, false);
        Self { due, since: None, presence, floor, got, rise, fall, worst }
    }

    /// Returns the flow's counters that a snapshot must hold.
    pub(crate) fn counters(&self, node: &NodeMeter, weight: Weight) -> FlowMeterCounters {
        let due = self.due_now(node, weight);
        // A ready flow that stopped being so now would keep the service it was due by now.
        let floor = if self.presence == FlowPresence::Kept { self.floor } else { due };
        let Self { got, rise, fall, worst, .. } = *self;
        FlowMeterCounters { due, floor, got, rise, fall, worst }
    }

    /// Returns true if the flow got anything, was due anything or is in the fluid.
    pub(crate) fn is_used(&self) -> bool {
        self.got != 0 || self.due != 0 || self.since.is_some()
    }

    fn got_fixed(&self) -> FixedTokens {
        self.got.saturating_mul(1 << SCALE_BITS)
    }

    /// Returns the volume at which a flow that is not ready will have been due as much as it got.
    fn finish(&self, since: FixedTokens, weight: Weight) -> FixedTokens {
        let left = (self.got_fixed() - self.due).max(0).unsigned_abs();
        let rise = match u64::try_from(left) {
            Ok(left) => u128::from(left.div_ceil(weight.get())),
            Err(_) => left.div_ceil(u128::from(weight.get())),
        };
        since.saturating_add(i128::try_from(rise).unwrap_or(i128::MAX))
    }

    fn due_now(&self, node: &NodeMeter, weight: Weight) -> FixedTokens {
        let Some(since) = self.since else { return self.due };
        let risen = (node.volume - since).saturating_mul(i128::from(weight.get()));
        let due = self.due.saturating_add(risen);
        match self.presence {
            FlowPresence::Ready => due,
            FlowPresence::Kept | FlowPresence::Idle => due.min(self.got_fixed()),
        }
    }

    /// Returns the tokens that the flow was served. A grant counts at its cost, which is corrected to the real usage
    /// when the request ends.
    pub fn got(&self) -> i128 {
        self.got
    }

    /// Returns the tokens that the flow was due so far, rounded to the nearest.
    pub fn due(&self, node: &NodeMeter, weight: Weight) -> i128 {
        self.due_now(node, weight).saturating_add(1 << (SCALE_BITS - 1)) >> SCALE_BITS
    }

    /// Returns the greatest expected difference between the tokens that the flow got and those it was due, for flows
    /// that are always ready. [`crate::fairness`] reports the bound of flows that come late too.
    pub fn bound(&self, node: &NodeMeter, weight: Weight) -> u128 {
        self.bound_beyond(node, weight, 0)
    }

    /// Returns [`FlowMeter::bound`] if the flow may be further from its due by `more`, in 2⁻³² tokens. All is rounded
    /// together, because one token cannot make up for the rounding of each part.
    pub(crate) fn bound_beyond(&self, node: &NodeMeter, weight: Weight, more: u128) -> u128 {
        let always_ready = self.reach(node, weight).saturating_add(node.carried.unsigned_abs());
        (always_ready.saturating_add(more) >> SCALE_BITS).saturating_add(1)
    }

    /// Returns wᵢ · (worstᵢ/wᵢ + maxⱼ worstⱼ/wⱼ) in 2⁻³² tokens.
    pub(crate) fn reach(&self, node: &NodeMeter, weight: Weight) -> u128 {
        let others = node.widest.saturating_mul(u128::from(weight.get()));
        (u128::from(self.worst) << SCALE_BITS).saturating_add(others)
    }

    /// Returns got − due, in 2⁻³² tokens.
    pub(crate) fn difference(&self, node: &NodeMeter, weight: Weight) -> FixedTokens {
        self.got_fixed().saturating_sub(self.due_now(node, weight))
    }
}

/// The counters of a flow's meter, as a snapshot holds them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowMeterCounters {
    pub(crate) due: FixedTokens,
    pub(crate) floor: FixedTokens,
    pub(crate) got: i128,
    pub(crate) rise: u64,
    pub(crate) fall: u64,
    pub(crate) worst: u64,
}

/// Measures the use of a cap: requests in flight ÷ cap, averaged over the time in which a request waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapMeter {
    /// Number of requests in flight × microseconds, summed over the time in which a request waited.
    pub(crate) used: u128,
    /// Cap × microseconds, summed over the time in which a request waited.
    pub(crate) allowed: u128,
    counted_to: Micros,
    now: CapLoad,
}

/// The requests to which a cap applies, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapLoad {
    /// Number of requests in flight.
    pub in_flight: u64,
    /// The cap, which is the greatest number of requests in flight; nothing is measured if there is none.
    pub cap: Option<u64>,
    /// True if a request waits in a flow to which the cap applies.
    pub waits: bool,
}

impl CapMeter {
    /// Sets the requests in flight, the cap, and whether a request waits, from `now` on.
    pub fn observe(&mut self, now: Micros, load: CapLoad) {
        // A cap is often observed twice at one moment.
        if now != self.counted_to {
            (self.used, self.allowed) = self.read(now);
            self.counted_to = now;
        }
        self.now = load;
    }

    /// Returns the sums of requests in flight × microseconds and of cap × microseconds up to `now`, in this order, over
    /// the time in which a request waited.
    pub fn read(&self, now: Micros) -> (u128, u128) {
        match self.now {
            CapLoad { in_flight, cap: Some(cap), waits: true } => {
                let span = u128::from(now.0.saturating_sub(self.counted_to.0));
                let used = self.used.saturating_add(span.saturating_mul(u128::from(in_flight)));
                (used, self.allowed.saturating_add(span.saturating_mul(u128::from(cap))))
            }
            _ => (self.used, self.allowed),
        }
    }

    /// Returns true if a request has waited for any time while there was a cap.
    pub(crate) fn is_used(&self) -> bool {
        self.allowed > 0
    }

    /// Restores a cap's meter from a snapshot.
    pub(crate) fn restored(used: u128, allowed: u128, now: Micros) -> Self {
        Self { used, allowed, counted_to: now, now: CapLoad::default() }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn weight(weight: u64) -> Weight {
        Weight::new(weight).expect("over 0")
    }

    struct Flow {
        weight: Weight,
        meter: FlowMeter,
        /// Tokens that the flow got before the weights changed.
        before: i128,
    }

    /// Serves the flow that got least for its weight, and checks the bounds.
    fn serve(node: &mut NodeMeter, flows: &mut [Flow]) {
        let per_weight =
            |flow: &Flow| ((flow.meter.got() - flow.before) << 32) / i128::from(flow.weight.get());
        let lowest = (0..flows.len()).min_by_key(|i| per_weight(&flows[*i])).expect("not empty");
        let Flow { weight, meter, .. } = &mut flows[lowest];
        node.grant(meter, *weight, 1000, 0);
        for Flow { weight, meter, .. } in flows {
            let difference = meter.got().abs_diff(meter.due(node, *weight));
            let bound = meter.bound(node, *weight);
            assert!(difference <= bound, "{difference} is beyond {bound}");
        }
    }

    #[test]
    fn the_bound_holds_after_weights_have_become_smaller() {
        let (large, small) = (weight(100), weight(1));
        let mut node = NodeMeter::default();
        let mut flows: Vec<Flow> = (0..11)
            .map(|_| Flow { weight: large, meter: FlowMeter::default(), before: 0 })
            .collect();
        for (id, flow) in (0..).zip(&mut flows) {
            node.set_presence(id, &mut flow.meter, large, FlowPresence::Ready);
        }
        for _ in 0..110 {
            serve(&mut node, &mut flows);
        }
        for (id, flow) in (0..).zip(&mut flows) {
            assert_eq!(flow.meter.got(), 10_000);
            flow.before = 10_000;
            if id < 10 {
                node.set_weight(id, &mut flow.meter, large, small);
                flow.weight = small;
            }
        }
        for _ in 0..1000 {
            serve(&mut node, &mut flows);
        }
    }
}

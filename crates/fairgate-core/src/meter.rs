//! What each flow was due and what it got: a meter beside the disciplines that decides nothing.
//!
//! # What it measures
//! Think of a fluid that divides every token served among the flows that are there, by their weights. A flow is there
//! while it is ready; and when it stops being ready, until it has been due what it got: its last requests are served in
//! the fluid too (as packets are in generalised processor sharing, of which this is the virtual time). The meter's
//! *volume* M is how much each unit of weight has been due since the node began:
//!
//! ```text
//!     at a grant     M += (cost + carried) / W      W = the sum of the weights of those that are there
//!     at an end      carried += used − cost         until the next grant
//!     dueᵢ += wᵢ · (the rise of M while i was there)      gotᵢ += cost at its grant, used − cost at its end
//! ```
//!
//! What ends otherwise than estimated is divided at the next grant, not at once: a request ends while its worker is still
//! full or its flow still at its cap, when those who shared its cost are not ready. M never falls: what is carried may
//! be more than the next cost gives back, and then waits for further ones.
//!
//! Who stops being ready while something waits (held, at its cap, no open worker) keeps what it was due by then. Who has
//! nothing waiting is owed nothing: what it was due beyond what it got goes back to the others. The same where a refund
//! shows that a flow that is not ready has been due more than it used.
//!
//! M is kept in 2⁻³² tokens per weight and rounded down at each step; the rest is smaller than anything that is shown.
//! A flow's due is brought up to date when it turns ready or stops being so, in O(1), or in O(log n) where it leaves
//! with more than it was due.
//!
//! # Against which bound
//! Take flows that are ready whenever anything is granted and a discipline that serves the lowest normalised service
//! first. Right before *i* is granted no other flow is below it. Since then *i* has gone up by the cost and its own
//! errors, its *rise*. And *j* may have gone down, by refunds of what it had in flight, even where it was granted
//! something between two of them; but no further than it is below its highest got, its *fall*. With *worstᵢ* the larger
//! of the largest rise and the largest fall of *i*,
//!
//! ```text
//!     | gotᵢ/wᵢ − gotⱼ/wⱼ |  ≤  worstᵢ/wᵢ + worstⱼ/wⱼ
//! ```
//!
//! and since dueᵢ/wᵢ is the weighted mean of all gotⱼ/wⱼ, but for what is carried,
//! |gotᵢ − dueᵢ| ≤ wᵢ · (worstᵢ/wᵢ + maxⱼ worstⱼ/wⱼ) + |carried|. A share node keeps this; a drr node would if quanta were
//! shares (with one quantum more on each side, for the round that it is in), so a class that drifts out of it shows that
//! they are not.
//!
//! A flow at its cap is not ready and due nothing more, so caps have a measure of their own: *cap use*, requests in
//! flight ÷ cap, averaged over the time in which something waits.
//!
//! # Beside another scheduler
//! The meter needs nothing of this crate's schedulers: tell it who is ready, what is granted and what ends, and it says
//! what was due. So it can judge recorded decisions of any other.
//!
//! ```
//! use fairgate_core::meter::{FlowMeter, NodeMeter, Presence};
//! use fairgate_core::units::Weight;
//!
//! let (mut node, one) = (NodeMeter::default(), Weight::new(1)?);
//! let (mut a, mut b) = (FlowMeter::default(), FlowMeter::default());
//! node.see(0, &mut a, one, Presence::Ready);
//! node.see(1, &mut b, one, Presence::Ready);
//! for _ in 0..10 {
//!     node.grant(&mut a, one, 100, 0);
//! }
//! // Both were ready all the time, and one of them got everything.
//! assert_eq!((a.got(), a.due(&node, one)), (1000, 500));
//! assert!(a.got().abs_diff(a.due(&node, one)) > a.bound(&node, one));
//! # Ok::<(), fairgate_core::units::OutOfRange>(())
//! ```

use alloc::collections::BTreeMap;

use crate::units::{Micros, Weight};

/// 2⁻³² tokens, per weight where it is a height.
type Fixed = i128;

const SCALE_BITS: u32 = 32;

/// The meter of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeMeter {
    /// M.
    pub(crate) volume: Fixed,
    /// W.
    weight: u128,
    /// The errors that no grant has divided yet.
    pub(crate) carried: Fixed,
    /// The largest worst ÷ weight of its flows.
    pub(crate) widest: u128,
    /// Those that are not ready and have been due less than they got: the M at which they have been due it, and whose
    /// weight then leaves.
    leaving: BTreeMap<(Fixed, u32), Weight>,
}

/// The meter of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowMeter {
    /// As of `since`, where it is in the fluid.
    due: Fixed,
    since: Option<Fixed>,
    presence: Presence,
    /// What it was due when it stopped being ready while something waited.
    floor: Fixed,
    /// In tokens.
    pub(crate) got: i128,
    /// How far got has risen since right before the last grant, in tokens; 0 where it fell below that.
    pub(crate) rise: u64,
    /// How far got is below its highest, in tokens.
    pub(crate) fall: u64,
    /// The most that either has been.
    pub(crate) worst: u64,
}

/// Whether a flow takes part in what is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// It could be granted something.
    Ready,
    /// Something waits in it, but it is held, at its cap or has no open worker.
    Kept,
    /// Nothing waits in it.
    #[default]
    Idle,
}

impl Presence {
    /// Of a flow in which something waits or not, and which is ready or not.
    pub fn of(waits: bool, ready: bool) -> Self {
        match (waits, ready) {
            (false, _) => Self::Idle,
            (true, false) => Self::Kept,
            (true, true) => Self::Ready,
        }
    }
}

impl NodeMeter {
    /// A node's meter as a snapshot tells it, without its flows.
    pub(crate) fn restored(volume: Fixed, carried: Fixed, widest: u128) -> Self {
        Self { volume, carried, widest, ..Self::default() }
    }

    /// From now on a flow is ready or not. `id` tells it from the node's other flows. Tell this before the next grant;
    /// a flow of which nothing was told is idle.
    pub fn see(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight, presence: Presence) {
        if flow.presence == presence {
            return;
        }
        self.take_out(id, flow, weight);
        flow.presence = presence;
        flow.floor = flow.due;
        self.clip(flow);
        self.put_in(id, flow, weight);
    }

    /// A ready flow was granted a request. `round`: what the discipline may be off by itself, a drr class's quantum.
    pub fn grant(&mut self, flow: &mut FlowMeter, weight: Weight, cost: u64, round: u64) {
        self.divide(cost);
        flow.got += i128::from(cost);
        flow.rise = cost.saturating_add(round);
        flow.fall = flow.fall.saturating_sub(cost);
        self.note_worst(flow, weight);
    }

    /// A request of a flow has ended and used so many tokens more than it cost, or fewer.
    pub fn settle(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight, error: i128) {
        if error == 0 {
            return;
        }
        self.carried = self.carried.saturating_add(error.saturating_mul(1 << SCALE_BITS));
        if flow.presence == Presence::Ready {
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

    /// A flow's weight changes.
    pub fn reweigh(&mut self, id: u32, flow: &mut FlowMeter, from: Weight, to: Weight) {
        self.take_out(id, flow, from);
        self.put_in(id, flow, to);
    }

    /// A flow in which nothing waits is forgotten. What it got beyond its due counts against the others' as it would
    /// have in time.
    pub fn forget(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight) {
        self.take_out(id, flow, weight);
        self.carried = self.carried.saturating_sub(flow.got_fixed() - flow.due);
        *flow = FlowMeter::default();
    }

    /// Enters a flow whose meter was restored.
    pub(crate) fn restore(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight) {
        self.put_in(id, flow, weight);
    }

    /// Takes a flow out of the fluid, with its due up to date.
    fn take_out(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight) {
        let due = flow.due_now(self, weight);
        if let Some(since) = flow.since.take() {
            let is_there = match flow.presence {
                Presence::Ready => true,
                _ => self.leaving.remove(&(flow.finish(since, weight), id)).is_some(),
            };
            if is_there {
                self.weight -= u128::from(weight.get());
            }
        }
        flow.due = due;
    }

    /// Puts a flow in where it is ready, or has been due less than it got.
    fn put_in(&mut self, id: u32, flow: &mut FlowMeter, weight: Weight) {
        let is_ready = flow.presence == Presence::Ready;
        if !is_ready && flow.due >= flow.got_fixed() {
            return;
        }
        flow.since = Some(self.volume);
        self.weight += u128::from(weight.get());
        if !is_ready {
            self.leaving.insert((flow.finish(self.volume, weight), id), weight);
        }
    }

    /// Gives back what a flow that is not ready has been due beyond what it got and beyond what it keeps.
    fn clip(&mut self, flow: &mut FlowMeter) {
        let most = match flow.presence {
            Presence::Ready => return,
            Presence::Kept => flow.got_fixed().max(flow.floor),
            Presence::Idle => flow.got_fixed(),
        };
        if flow.due > most {
            self.carried = self.carried.saturating_add(flow.due - most);
            flow.due = most;
        }
    }

    /// Divides a cost, and what is carried, among those that are there.
    fn divide(&mut self, cost: u64) {
        // Most often nobody is leaving and everything fits.
        let amount = self.carried.saturating_add(i128::from(cost) << SCALE_BITS);
        if self.leaving.is_empty()
            && let (Ok(amount), Ok(weight @ 1..)) =
                (u64::try_from(amount), u64::try_from(self.weight))
        {
            self.carried = 0;
            self.volume = self.volume.saturating_add(i128::from(amount / weight));
            return;
        }
        self.divide_wide(amount);
    }

    /// The same for any amount, in 2⁻³² tokens, and where somebody is leaving.
    #[cold]
    fn divide_wide(&mut self, mut amount: Fixed) {
        self.carried = amount.min(0);
        if amount <= 0 {
            return;
        }
        while let Some(first) = self.leaving.first_entry() {
            let weight = i128::try_from(self.weight).unwrap_or(i128::MAX);
            let needed = (first.key().0 - self.volume).saturating_mul(weight);
            if amount < needed {
                break;
            }
            amount -= needed;
            self.volume = first.key().0;
            self.weight -= u128::from(first.remove().get());
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
            let per_weight = crate::share::per_weight(flow.worst.into(), weight);
            self.widest = self.widest.max(per_weight);
        }
    }
}

impl FlowMeter {
    /// A flow's meter as a snapshot tells it; [`NodeMeter::restore`] enters it.
    pub(crate) fn restored(counters: Counters, waits: bool) -> Self {
        let Counters { due, floor, got, rise, fall, worst } = counters;
        let presence = Presence::of(waits, false);
        Self { due, since: None, presence, floor, got, rise, fall, worst }
    }

    /// All that a snapshot must tell.
    pub(crate) fn counters(&self, node: &NodeMeter, weight: Weight) -> Counters {
        let due = self.due_now(node, weight);
        // Were a ready flow to stop being so now, it would keep what it was due by now.
        let floor = if self.presence == Presence::Kept { self.floor } else { due };
        let Self { got, rise, fall, worst, .. } = *self;
        Counters { due, floor, got, rise, fall, worst }
    }

    /// Whether there is anything to tell.
    pub(crate) fn is_used(&self) -> bool {
        self.got != 0 || self.due != 0 || self.since.is_some()
    }

    fn got_fixed(&self) -> Fixed {
        self.got.saturating_mul(1 << SCALE_BITS)
    }

    /// The M at which a flow that is not ready has been due what it got.
    fn finish(&self, since: Fixed, weight: Weight) -> Fixed {
        let left = (self.got_fixed() - self.due).max(0).unsigned_abs();
        let rise = match u64::try_from(left) {
            Ok(left) => u128::from(left.div_ceil(weight.get())),
            Err(_) => left.div_ceil(u128::from(weight.get())),
        };
        since.saturating_add(i128::try_from(rise).unwrap_or(i128::MAX))
    }

    fn due_now(&self, node: &NodeMeter, weight: Weight) -> Fixed {
        let Some(since) = self.since else { return self.due };
        let risen = (node.volume - since).saturating_mul(i128::from(weight.get()));
        let due = self.due.saturating_add(risen);
        match self.presence {
            Presence::Ready => due,
            Presence::Kept | Presence::Idle => due.min(self.got_fixed()),
        }
    }

    /// The tokens it was served: costs at grants, corrected at ends.
    pub fn got(&self) -> i128 {
        self.got
    }

    /// What the flow was due so far, in tokens, rounded to the nearest.
    pub fn due(&self, node: &NodeMeter, weight: Weight) -> i128 {
        self.due_now(node, weight).saturating_add(1 << (SCALE_BITS - 1)) >> SCALE_BITS
    }

    /// How far got may be from due, in tokens.
    pub fn bound(&self, node: &NodeMeter, weight: Weight) -> u128 {
        let others = node.widest.saturating_mul(u128::from(weight.get())) >> SCALE_BITS;
        let carried = node.carried.unsigned_abs() >> SCALE_BITS;
        u128::from(self.worst).saturating_add(others).saturating_add(carried).saturating_add(1)
    }
}

/// The counters of a flow's meter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counters {
    pub(crate) due: Fixed,
    pub(crate) floor: Fixed,
    pub(crate) got: i128,
    pub(crate) rise: u64,
    pub(crate) fall: u64,
    pub(crate) worst: u64,
}

/// Cap use: requests in flight ÷ cap over the time in which something waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapMeter {
    /// Requests in flight × microseconds.
    pub(crate) used: u128,
    /// Cap × microseconds.
    pub(crate) allowed: u128,
    counted_to: Micros,
    now: CapLoad,
}

/// What a cap holds at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapLoad {
    /// How many requests are in flight.
    pub in_flight: u64,
    /// How many may be; any number where absent, and then nothing is measured.
    pub cap: Option<u64>,
    /// Whether something waits.
    pub waits: bool,
}

impl CapMeter {
    /// From now on the cap holds this much.
    pub fn observe(&mut self, now: Micros, load: CapLoad) {
        (self.used, self.allowed) = self.read(now);
        self.counted_to = now;
        self.now = load;
    }

    /// Requests in flight × µs and cap × µs up to now, over the time in which something waited.
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

    /// Whether something waited under the cap for any time.
    pub(crate) fn is_used(&self) -> bool {
        self.allowed > 0
    }

    /// A meter as a snapshot tells it.
    pub(crate) fn restored(used: u128, allowed: u128, now: Micros) -> Self {
        Self { used, allowed, counted_to: now, now: CapLoad::default() }
    }
}

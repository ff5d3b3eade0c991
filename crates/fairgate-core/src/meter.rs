//! What each flow was due and what it got: a meter beside the disciplines that decides nothing.
//!
//! # What it measures
//! Think of a fluid that divides every token served among the flows that are ready at that moment, by their weights.
//! The meter's *volume* M is how much of it each unit of weight has been due since the node began:
//!
//! ```text
//!     at a grant     M += (cost + carried) / W      W = the sum of the ready flows' weights now
//!     at an end      carried += used − cost         until the next grant
//!     dueᵢ += wᵢ · (the rise of M while i was ready)      gotᵢ += cost at its grant, used − cost at its end
//! ```
//!
//! What ends otherwise than estimated is divided at the next grant, not at once: a request ends while its worker is still
//! full or its flow still at its cap, when those who shared its cost are not ready. Until that grant it is in got and not
//! in due.
//!
//! M is kept in 2⁻³² tokens per weight and rounded down at each step; the rest is smaller than anything that is shown.
//! Each event costs O(1): a flow's due is brought up to date when it turns ready or stops being so.
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
//! and since dueᵢ/wᵢ is the weighted mean of all gotⱼ/wⱼ but for what is carried, which is less than wᵢ/wᵢ of it,
//! |gotᵢ − dueᵢ| ≤ wᵢ · (worstᵢ/wᵢ + maxⱼ worstⱼ/wⱼ) + |carried|. A share node keeps this; a drr node would if quanta were
//! shares (with one quantum more on each side, for the round that it is in), so a class that drifts out of it shows that
//! they are not.
//!
//! A flow at its cap is not ready and due nothing more, so caps have a measure of their own: *cap use*, requests in
//! flight ÷ cap, averaged over the time in which something waits.

use crate::units::{Micros, Weight};

/// 2⁻³² tokens, per weight where it is a height.
type Fixed = i128;

const SCALE_BITS: u32 = 32;

/// The meter of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeMeter {
    /// M.
    pub(crate) volume: Fixed,
    /// W.
    ready_weight: u128,
    /// The errors that ended since the last grant, in tokens.
    pub(crate) carried: i128,
    /// The largest worst ÷ weight of its flows.
    pub(crate) widest: u128,
}

/// The meter of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowMeter {
    due: Fixed,
    /// M when `due` was brought up to date, where the flow is ready.
    ready_since: Option<Fixed>,
    /// In tokens.
    pub(crate) got: i128,
    /// How far got has risen since right before the last grant, in tokens; 0 where it fell below that.
    pub(crate) rise: u128,
    /// How far got is below its highest, in tokens.
    pub(crate) fall: u128,
    /// The most that either has been.
    pub(crate) worst: u128,
}

impl NodeMeter {
    /// A node's meter as a snapshot tells it; its flows turn ready at the next look.
    pub(crate) fn restored(volume: Fixed, carried: i128, widest: u128) -> Self {
        Self { volume, ready_weight: 0, carried, widest }
    }

    /// A flow is ready from now on, or is not.
    pub(crate) fn set_ready(&mut self, flow: &mut FlowMeter, weight: Weight, ready: bool) {
        match (flow.ready_since, ready) {
            (None, true) => {
                flow.ready_since = Some(self.volume);
                self.ready_weight += u128::from(weight.get());
            }
            (Some(_), false) => {
                flow.due = flow.due_now(self, weight);
                flow.ready_since = None;
                self.ready_weight -= u128::from(weight.get());
            }
            _ => {}
        }
    }

    /// A flow was granted a request. `round`: what the discipline may be off by itself, a drr class's quantum.
    pub(crate) fn grant(&mut self, flow: &mut FlowMeter, weight: Weight, cost: u64, round: u64) {
        let carried = core::mem::take(&mut self.carried);
        self.rise(carried.saturating_add(i128::from(cost)));
        flow.got += i128::from(cost);
        flow.rise = u128::from(cost) + u128::from(round);
        flow.fall = flow.fall.saturating_sub(u128::from(cost));
        self.note_worst(flow, weight);
    }

    /// A request of a flow has ended and used so much more than it cost.
    pub(crate) fn settle(&mut self, flow: &mut FlowMeter, weight: Weight, error: i128) {
        if error == 0 {
            return;
        }
        self.carried = self.carried.saturating_add(error);
        flow.got += error;
        let size = error.unsigned_abs();
        if error > 0 {
            flow.rise = flow.rise.saturating_add(size);
            flow.fall = flow.fall.saturating_sub(size);
        } else {
            flow.rise = flow.rise.saturating_sub(size);
            flow.fall = flow.fall.saturating_add(size);
        }
        self.note_worst(flow, weight);
    }

    /// A flow's weight is about to change.
    pub(crate) fn reweigh(&mut self, flow: &mut FlowMeter, from: Weight, to: Weight) {
        let ready = flow.ready_since.is_some();
        self.set_ready(flow, from, false);
        self.set_ready(flow, to, ready);
    }

    fn rise(&mut self, tokens: i128) {
        if self.ready_weight > 0 {
            self.volume = self.volume.saturating_add(divide(tokens, self.ready_weight));
        }
    }

    fn note_worst(&mut self, flow: &mut FlowMeter, weight: Weight) {
        let worst = flow.rise.max(flow.fall);
        if worst > flow.worst {
            flow.worst = worst;
            let per_weight = crate::share::per_weight(flow.worst, weight);
            self.widest = self.widest.max(per_weight);
        }
    }
}

/// ⌊tokens · 2³² / weight⌋.
fn divide(tokens: i128, weight: u128) -> Fixed {
    // One short division where both fit, as they nearly always do.
    if let (Ok(size), Ok(weight)) = (u32::try_from(tokens.unsigned_abs()), u64::try_from(weight)) {
        let scaled = u64::from(size) << SCALE_BITS;
        return match tokens < 0 {
            true => -i128::from(scaled.div_ceil(weight)),
            false => i128::from(scaled / weight),
        };
    }
    let weight = i128::try_from(weight).unwrap_or(i128::MAX);
    let whole = tokens.div_euclid(weight).saturating_mul(1 << SCALE_BITS);
    // The rest is below the weight, which a sum of weights keeps far below 2⁹⁵.
    whole.saturating_add((tokens.rem_euclid(weight) << SCALE_BITS) / weight)
}

impl FlowMeter {
    fn due_now(&self, node: &NodeMeter, weight: Weight) -> Fixed {
        let risen = self.ready_since.map_or(0, |since| node.volume - since);
        self.due.saturating_add(risen.saturating_mul(i128::from(weight.get())))
    }

    /// What the flow was due, in 2⁻³² tokens.
    pub(crate) fn due_fixed(&self, node: &NodeMeter, weight: Weight) -> Fixed {
        self.due_now(node, weight)
    }

    /// What the flow was due so far, in tokens, rounded to the nearest.
    pub(crate) fn due(&self, node: &NodeMeter, weight: Weight) -> i128 {
        self.due_now(node, weight).saturating_add(1 << (SCALE_BITS - 1)) >> SCALE_BITS
    }

    /// How far got may be from due, in tokens.
    pub(crate) fn bound(&self, node: &NodeMeter, weight: Weight) -> u128 {
        let others = node.widest.saturating_mul(u128::from(weight.get())) >> SCALE_BITS;
        let carried = node.carried.unsigned_abs();
        self.worst.saturating_add(others).saturating_add(carried).saturating_add(1)
    }

    /// A flow's meter as a snapshot tells it; it turns ready at the next look.
    pub(crate) fn restored(due: Fixed, got: i128, rise: u128, fall: u128, worst: u128) -> Self {
        Self { due, ready_since: None, got, rise, fall, worst }
    }
}

/// Cap use: requests in flight ÷ cap over the time in which something waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CapMeter {
    /// Requests in flight × microseconds.
    pub(crate) used: u128,
    /// Cap × microseconds.
    pub(crate) allowed: u128,
    counted_to: Micros,
    now: CapLoad,
}

/// What a cap holds at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CapLoad {
    pub(crate) in_flight: u64,
    pub(crate) cap: Option<u64>,
    pub(crate) waits: bool,
}

impl CapMeter {
    /// From now on it is so.
    pub(crate) fn observe(&mut self, now: Micros, load: CapLoad) {
        (self.used, self.allowed) = self.read(now);
        self.counted_to = now;
        self.now = load;
    }

    /// (used, allowed) up to now.
    pub(crate) fn read(&self, now: Micros) -> (u128, u128) {
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

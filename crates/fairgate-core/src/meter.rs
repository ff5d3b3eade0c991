//! What each flow was due and what it got: a meter beside the disciplines that decides nothing.
//!
//! # What it measures
//! Think of a fluid that divides every token served among the flows that are ready at that moment, by their weights.
//! The meter's *volume* M is how much of it each unit of weight has been due since the node began:
//!
//! ```text
//!     at a grant          M += cost / W              W = the sum of the ready flows' weights now
//!     at a settlement     M += (used − cost) / W     where any flow is ready
//!     dueᵢ += wᵢ · (the rise of M while i was ready)      gotᵢ += cost at its grant, used − cost at its end
//! ```
//!
//! M is kept in 2⁻³² tokens per weight and rounded down at each step; the rest is smaller than anything that is shown.
//! Each event costs O(1): a flow's due is brought up to date when it turns ready or stops being so.
//!
//! # Against which bound
//! Take flows that are ready all the time and a discipline that serves the lowest normalised service first. When *i* is
//! granted, no other ready flow is below it, so right after it is ahead of each of them by at most its cost. Until its
//! next grant the distance grows only by what ends otherwise than estimated: overruns of *i*, refunds of *j*. With
//! *worstᵢ* the largest sum of one cost and the errors that ended between two of its grants,
//!
//! ```text
//!     | gotᵢ/wᵢ − gotⱼ/wⱼ |  ≤  worstᵢ/wᵢ + worstⱼ/wⱼ
//! ```
//!
//! and since dueᵢ/wᵢ is the weighted mean of all gotⱼ/wⱼ, |gotᵢ − dueᵢ| ≤ wᵢ · (worstᵢ/wᵢ + maxⱼ worstⱼ/wⱼ). A share node
//! keeps this; a drr node would if quanta were shares (with one quantum more on each side, for the round that it is
//! in), so a class that drifts out of it shows that they are not.
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
    /// One cost and the errors since that grant, in tokens.
    pub(crate) current: u128,
    pub(crate) worst: u128,
}

impl NodeMeter {
    /// A node's meter as a snapshot tells it; its flows turn ready at the next look.
    pub(crate) fn restored(volume: Fixed, widest: u128) -> Self {
        Self { volume, ready_weight: 0, widest }
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
        self.rise(i128::from(cost));
        flow.got += i128::from(cost);
        flow.current = u128::from(cost) + u128::from(round);
        self.note_worst(flow, weight);
    }

    /// A request of a flow has ended otherwise than estimated. `blocked`: no flow is ready, whatever was last seen.
    pub(crate) fn settle(
        &mut self,
        flow: &mut FlowMeter,
        weight: Weight,
        error: i128,
        blocked: bool,
    ) {
        if error == 0 {
            return;
        }
        if !blocked {
            self.rise(error);
        }
        flow.got += error;
        flow.current = flow.current.saturating_add(error.unsigned_abs());
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
        if flow.current > flow.worst {
            flow.worst = flow.current;
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

    /// What the flow was due so far, in tokens, rounded down.
    pub(crate) fn due(&self, node: &NodeMeter, weight: Weight) -> i128 {
        self.due_now(node, weight) >> SCALE_BITS
    }

    /// How far got may be from due, in tokens.
    pub(crate) fn bound(&self, node: &NodeMeter, weight: Weight) -> u128 {
        let others = node.widest.saturating_mul(u128::from(weight.get())) >> SCALE_BITS;
        self.worst.saturating_add(others).saturating_add(1)
    }

    /// A flow's meter as a snapshot tells it; it turns ready at the next look.
    pub(crate) fn restored(due: Fixed, got: i128, current: u128, worst: u128) -> Self {
        Self { due, ready_since: None, got, current, worst }
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

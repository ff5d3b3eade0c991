//! Strict priority between classes. The first listed class that is ready goes first.
//!
//! # The discipline
//! Classes are listed in order. A free slot goes to the first class that is ready. A class is ready if it is not held,
//! is below its cap, and something inside it could be dispatched. Nothing is counted and nothing is charged, so there
//! is no credit to save up and none to lose. Only the order of the list decides.
//!
//! This is textbook strict priority queueing and follows no particular paper. None of the four pages that the other
//! schedulers follow describes strict priority between classes. The caps per class are our addition.
//!
//! # The guarantee
//! Let the classes 1 … k have caps c₁ … c_k (a class without a cap has c = ∞) in a pool of S slots. Class *i* can hold
//! at most cᵢ slots, so the classes above *j* together hold at most C = c₁ + … + c_{j−1}. Whenever class *j* is ready
//! and fewer than S requests are in flight,
//!
//! ```text
//!     slots left for the classes j … k  ≥  S − C
//! ```
//!
//! and no class above *j* takes these slots. So a cap on a higher class guarantees slots to the classes below. Without
//! a cap there is no guarantee, because a lower class waits for as long as a higher one is ready. For the same reason a
//! node inside a class should divide the class between tenants: otherwise one tenant in the first class could take
//! everything.
//!
//! A class gets the slots that the classes above leave, so nothing is *due* to it and its share has no bound. The meter
//! counts only the tokens that each class *got*; nodes inside a class have their own due and bound.
//!
//! # Cost
//! Readiness is one bit per class, and the class of the first set bit goes next. Finding that bit reads at most one
//! 64-bit word per 64 classes.

use alloc::vec;
use alloc::vec::Vec;

use crate::arbiter::{
    Arbiter, ArbiterContext, EndedRequest, FlowPick, FlowUpdate, LocalFlow, SettleEffect,
};
use crate::meter::{CapLoad, CapMeter};
use crate::units::Tokens;

/// The state of a bands node.
#[derive(Clone, Debug)]
pub(crate) struct BandsState {
    pub(crate) classes: Vec<BandState>,
    /// One bit per class, which is set if the class is ready.
    ready: Vec<u64>,
}

/// State of one class of a bands node.
#[derive(Clone, Debug, Default)]
pub(crate) struct BandState {
    /// The cap that the policy gives the class. It counts only the requests in this copy of the node.
    pub(crate) cap: Option<u64>,
    /// Tokens that the class was served. A grant counts at its cost, which is corrected to the real usage when the
    /// request ends.
    pub(crate) got: i128,
    pub(crate) cap_meter: CapMeter,
}

impl BandState {
    /// Returns true if this copy of the class has as many requests in flight as the policy allows.
    pub(crate) fn at_cap(&self, in_flight: u32) -> bool {
        self.cap.is_some_and(|cap| u64::from(in_flight) >= cap)
    }

    /// Returns true if the class was served any tokens or has any cap use.
    pub(crate) fn is_metered(&self) -> bool {
        self.got != 0 || self.cap_meter.is_used()
    }
}

impl BandsState {
    /// Creates a node with these caps, one per class in the order of the list.
    pub(crate) fn new(caps: impl Iterator<Item = Option<u64>>) -> Self {
        let classes: Vec<_> = caps.map(|cap| BandState { cap, ..BandState::default() }).collect();
        let ready = vec![0; classes.len().div_ceil(64)];
        Self { classes, ready }
    }

    /// Resets the tokens got and the cap use of a class without requests.
    pub(crate) fn forget(&mut self, class: LocalFlow) {
        let cap = self.classes[class as usize].cap;
        self.classes[class as usize] = BandState { cap, ..BandState::default() };
    }

    fn set_ready(&mut self, class: LocalFlow, ready: bool) {
        let (word, bit) = (class as usize / 64, 1 << (class % 64));
        match ready {
            true => self.ready[word] |= bit,
            false => self.ready[word] &= !bit,
        }
    }

    /// Returns the first class that is ready; `None` if no class is ready.
    fn first_ready(&self) -> Option<LocalFlow> {
        let (word, bits) = (0..).zip(&self.ready).find(|(_, bits)| **bits != 0)?;
        Some(word * 64 + bits.trailing_zeros())
    }
}

impl Arbiter for BandsState {
    fn look(&mut self, class: LocalFlow, view: FlowUpdate, cx: ArbiterContext<'_>) {
        let waits = view.waiting > 0;
        let state = &mut self.classes[class as usize];
        if state.cap.is_some() {
            let load = CapLoad { in_flight: view.in_flight.into(), cap: state.cap, waits };
            state.cap_meter.observe(cx.now, load);
        }
        self.set_ready(class, waits && view.head.is_some());
    }

    fn pick(&mut self, _cx: ArbiterContext<'_>) -> Option<FlowPick> {
        Some(FlowPick { flow: self.first_ready()?, late: None })
    }

    fn charge(&mut self, class: LocalFlow, cost: Tokens) -> u64 {
        self.classes[class as usize].got += i128::from(cost.0);
        0
    }

    fn settle(&mut self, class: LocalFlow, ended: EndedRequest) -> SettleEffect {
        let state = &mut self.classes[class as usize];
        state.got += ended.error();
        // The end of a request frees a place under the cap. Without a cap, it cannot change readiness here.
        match state.cap {
            Some(_) => SettleEffect::Flow,
            None => SettleEffect::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_ready_class_is_found_in_any_word() {
        let mut bands = BandsState::new((0..200).map(|_| None));
        assert_eq!(bands.first_ready(), None);
        for class in [199, 128, 64, 63, 0] {
            bands.set_ready(class, true);
            assert_eq!(bands.first_ready(), Some(class));
        }
        bands.set_ready(0, false);
        assert_eq!(bands.first_ready(), Some(63));
    }
}

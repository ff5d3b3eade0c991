//! The load function over agents: queue depth weighed against age.
//!
//! # Source
//! Follows the page "Load Function" of the LOCO scheduler, with its adaptive alpha. The page describes auto-tune in
//! words only; the thresholds below are ours, and so are `max_wait_ticks` and α above ½.
//!
//! # The discipline
//! Each flow *i* has a depth Qᵢ, the sum of the weights of its waiting requests, and an age Dᵢ, the number of ticks
//! since its oldest waiting request was submitted. The pool counts one tick for each request in flight that ends, so
//! ages grow only while requests end. A free slot goes to the ready flow with the largest
//!
//! ```text
//!     L(i) = α · Qᵢ/Qmax + (1 − α) · Dᵢ/Dmax
//! ```
//!
//! where Qmax and Dmax are the greatest depth and age of the ready flows. With α = 0 the flow that has waited longest
//! goes next; with α = ½ depth and age count alike. Multiplying each load by 10⁶·Qmax·Dmax leaves integers that compare
//! in the same order:
//!
//! ```text
//!     α·Dmax·Qᵢ + (10⁶ − α)·Qmax·Dᵢ           α in millionths; a maximum of 0 counts as 1
//! ```
//!
//! Ties go to the flow whose head was submitted first. The load is computed when a slot is granted, not when the
//! request is submitted.
//!
//! Without a bound, the function can starve a flow. Above α = ½ this is always possible. At the default α it is
//! possible if the depth of another flow grows faster than the age of the first. `max_wait_ticks` is the bound. A ready
//! flow whose age has reached the bound is *late* if a worker is open for its oldest request. A late flow goes before
//! all flows that are not late, and dispatches its oldest request. Of several late flows, the one with the oldest
//! request goes first. So an oldest request with an open worker waits at most `max_wait_ticks` ticks, plus the time for
//! the requests that became late before it.
//!
//! `auto_tune` moves α by at most 0.01 per tick. α falls if ages differ much between flows (a coefficient of variation
//! over ½: 4·(nΣD² − (ΣD)²) > (ΣD)²). Otherwise α rises, to ½ at most, if the total depth grows: of the last ten
//! totals, the average of the newer half is more than 1.2 times the average of the older half.
//!
//! # Without a scan
//! For given Qmax and Dmax, L is linear in (Qᵢ, Dᵢ). The age is Dᵢ = now − sinceᵢ, where sinceᵢ is the tick at which
//! the oldest request was submitted. sinceᵢ does not change as ticks pass. So each flow is a fixed point (Qᵢ, sinceᵢ)
//! until an event changes the flow, and the winner is an extreme point of the set of these points. `HullTree` (in
//! `convex_hull.rs`) finds the winner without looking at every flow. Auto-tune keeps Σsince and Σsince², from which ΣD
//! and ΣD² follow at any tick.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::arbiter::{
    Arbiter, ArbiterContext, EndedRequest, FlowHead, FlowPick, FlowUpdate, LocalFlow,
    OldestRequest, SettleEffect,
};
use crate::convex_hull::{HullTree, LoadDirection, LoadPoint};
use crate::requests::{PoolRequestState, RequestHandle, SubmitSeq};
use crate::units::{Alpha, Ticks, Tokens};

/// Step by which auto-tune moves alpha per tick, in millionths.
const STEP: u32 = 10_000;
/// Number of totals of the queue depth that auto-tune remembers.
pub(crate) const HISTORY: usize = 10;

/// The state of a load node.
#[derive(Clone, Debug)]
pub(crate) struct LoadState {
    pub(crate) flows: Vec<LoadFlowState>,
    free: Vec<LocalFlow>,
    /// The present trade-off between depth and age, in millionths.
    pub(crate) alpha: u32,
    auto_tune: bool,
    /// True once a request has entered the node. The history of auto-tune begins then.
    begun: bool,
    max_wait: Option<u64>,
    /// The last totals of the queue depth over all flows, in thousandths, oldest first.
    pub(crate) history: Vec<u128>,
    totals: LoadTotals,
    ready: HullTree,
    /// The ready flows whose oldest request has an open worker, ordered by the age of that request, oldest first.
    may_be_late: BTreeSet<(SubmitSeq, LocalFlow)>,
}

/// State of one flow of a load node.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadFlowState {
    /// Summed weights of the flow's waiting requests, in thousandths.
    pub(crate) depth: u64,
    /// The flow's oldest waiting request at the last look; `None` if none waited.
    oldest: Option<OldestRequest>,
    /// Tokens that the flow was served. A grant counts at its cost, which is corrected to the real usage when the
    /// request ends.
    pub(crate) got: i128,
    /// Key of the flow's entry in `may_be_late`; `None` if the flow has no entry.
    late_key: Option<SubmitSeq>,
}

/// Sums over the flows in which a request waits.
#[derive(Clone, Copy, Debug, Default)]
struct LoadTotals {
    flows: u128,
    depth: u128,
    since: u128,
    since_squared: u128,
}

impl LoadTotals {
    fn count(&mut self, since: u64) {
        self.flows += 1;
        self.since += u128::from(since);
        self.since_squared += u128::from(since) * u128::from(since);
    }

    fn discount(&mut self, since: u64) {
        self.flows -= 1;
        self.since -= u128::from(since);
        self.since_squared -= u128::from(since) * u128::from(since);
    }

    /// Returns ΣD and ΣD², the sums of the flows' ages and of their squares, at a tick.
    fn ages(&self, now: u64) -> (u128, u128) {
        let now = u128::from(now);
        let sum = self.flows * now - self.since;
        let squares = self.flows * now * now + self.since_squared - 2 * now * self.since;
        (sum, squares)
    }
}

impl LoadState {
    pub(crate) fn new(alpha: Alpha, auto_tune: bool, max_wait: Option<u64>) -> Self {
        Self {
            flows: Vec::new(),
            free: Vec::new(),
            alpha: alpha.millionths(),
            auto_tune,
            begun: false,
            max_wait,
            history: Vec::new(),
            totals: LoadTotals::default(),
            ready: HullTree::default(),
            may_be_late: BTreeSet::new(),
        }
    }

    /// Adds a flow and returns its number. Numbers of forgotten flows are reused.
    pub(crate) fn add(&mut self) -> LocalFlow {
        if let Some(local) = self.free.pop() {
            self.flows[local as usize] = LoadFlowState::default();
            return local;
        }
        self.flows.push(LoadFlowState::default());
        LocalFlow::try_from(self.flows.len() - 1).expect("flows fit in 32 bits")
    }

    /// Forgets a flow without requests; such a flow has no state that decisions depend on.
    pub(crate) fn forget(&mut self, flow: LocalFlow) {
        self.free.push(flow);
    }

    /// Returns true if the node would equal a new one once it has no flows.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.auto_tune || !self.begun
    }

    /// Records that a request has entered the node.
    pub(crate) fn mark_begun(&mut self) {
        self.begun = true;
    }

    /// Returns true if the node has `max_wait_ticks`, so that a late flow may dispatch its oldest request.
    pub(crate) fn has_max_wait(&self) -> bool {
        self.max_wait.is_some()
    }

    /// Returns the present age of a flow in ticks; 0 if nothing waits in the flow.
    pub(crate) fn age(&self, flow: LocalFlow, now: Ticks) -> u64 {
        self.flows[flow as usize].oldest.map_or(0, |oldest| now.0 - oldest.tick.0)
    }

    /// Returns the linear function that the load function maximises now; `None` if no flow is ready.
    pub(crate) fn direction(&mut self, now: Ticks) -> Option<LoadDirection> {
        let (deepest, oldest) = self.ready.extent()?;
        let depth_max = u128::from(deepest.max(1));
        let age_max = u128::from((now.0 - oldest).max(1));
        Some(LoadDirection {
            by_depth: u128::from(self.alpha) * age_max,
            by_age: u128::from(Alpha::SCALE - self.alpha) * depth_max,
            now: now.0,
        })
    }

    /// Returns the late flow that goes before all others, and its oldest request; `None` if no flow is late.
    fn first_late_flow(&self, now: Ticks) -> Option<(LocalFlow, RequestHandle)> {
        let limit = self.max_wait?;
        let (_, flow) = self.may_be_late.first()?;
        let oldest = self.flows[*flow as usize].oldest?;
        (now.0 - oldest.tick.0 >= limit).then_some((*flow, oldest.request))
    }

    /// Returns true if some flow is late now and therefore goes before all others.
    pub(crate) fn is_late(&self, now: Ticks) -> bool {
        self.first_late_flow(now).is_some()
    }

    /// Returns the present trade-off between depth and age.
    pub(crate) fn alpha(&self) -> Alpha {
        Alpha::from_millionths(u64::from(self.alpha)).unwrap_or(Alpha::BALANCED)
    }

    /// Returns a ready flow's load L(i) in millionths; `None` if the flow is not ready.
    pub(crate) fn load_millionths(&mut self, flow: LocalFlow, now: Ticks) -> Option<u64> {
        let direction = self.direction(now)?;
        let point = self.ready.get(flow)?;
        let (deepest, oldest) = self.ready.extent()?;
        let scale = u128::from(deepest.max(1)) * u128::from((now.0 - oldest).max(1));
        u64::try_from(direction.value(point.depth, point.since) / scale).ok()
    }
}

impl Arbiter for LoadState {
    fn arrived(&mut self, flow: LocalFlow, request: &PoolRequestState) -> bool {
        let weight = request.weight.thousandths();
        self.begun = true;
        self.flows[flow as usize].depth += u64::from(weight);
        self.totals.depth += u128::from(weight);
        true
    }

    fn left(&mut self, flow: LocalFlow, request: &PoolRequestState, _remaining: u32) -> bool {
        let weight = request.weight.thousandths();
        self.flows[flow as usize].depth -= u64::from(weight);
        self.totals.depth -= u128::from(weight);
        true
    }

    fn look(&mut self, flow: LocalFlow, view: FlowUpdate, _cx: ArbiterContext<'_>) {
        let state = &mut self.flows[flow as usize];
        if state.oldest != view.oldest {
            if let Some(before) = state.oldest {
                self.totals.discount(before.tick.0);
            }
            if let Some(oldest) = view.oldest {
                self.totals.count(oldest.tick.0);
            }
            state.oldest = view.oldest;
        }
        let point = view.head.zip(view.oldest).map(|(FlowHead { seq, .. }, oldest)| LoadPoint {
            depth: state.depth,
            since: oldest.tick.0,
            seq,
            flow,
        });
        self.ready.set(flow, point);
        if self.max_wait.is_some() {
            let oldest = view.oldest.filter(|_| point.is_some() && view.oldest_open);
            let key = oldest.map(|oldest| oldest.seq);
            if let Some(old) = state.late_key.filter(|_| state.late_key != key) {
                self.may_be_late.remove(&(old, flow));
            }
            if let Some(new) = key {
                self.may_be_late.insert((new, flow));
            }
            state.late_key = key;
        }
    }

    fn pick(&mut self, cx: ArbiterContext<'_>) -> Option<FlowPick> {
        if let Some((flow, oldest)) = self.first_late_flow(cx.ticks) {
            return Some(FlowPick { flow, late: Some(oldest) });
        }
        let direction = self.direction(cx.ticks)?;
        self.ready.furthest(direction).map(|flow| FlowPick { flow, late: None })
    }

    fn charge(&mut self, flow: LocalFlow, cost: Tokens) -> u64 {
        self.flows[flow as usize].got += i128::from(cost.0);
        0
    }

    fn settle(&mut self, flow: LocalFlow, ended: EndedRequest) -> SettleEffect {
        self.flows[flow as usize].got += ended.error();
        SettleEffect::Nothing
    }

    fn tick(&mut self, now: Ticks) {
        if !self.auto_tune || !self.begun {
            return;
        }
        if self.history.len() == HISTORY {
            self.history.remove(0);
        }
        self.history.push(self.totals.depth);
        let (sum, squares) = self.totals.ages(now.0);
        if self.totals.flows >= 2 && ages_differ(self.totals.flows, sum, squares) {
            self.alpha = self.alpha.saturating_sub(STEP);
        } else if grows(&self.history) && self.alpha < Alpha::THROUGHPUT.millionths() {
            self.alpha = (self.alpha + STEP).min(Alpha::THROUGHPUT.millionths());
        }
    }
}

/// Returns true if the coefficient of variation of the flows' ages is over one half, that is, if 4·(nΣD² − (ΣD)²) >
/// (ΣD)².
fn ages_differ(flows: u128, sum: u128, squares: u128) -> bool {
    let (low, high) = (4 * flows).carrying_mul(squares, 0);
    let (other_low, other_high) = (5 * sum).carrying_mul(sum, 0);
    (high, low) > (other_high, other_low)
}

/// Returns true if the average of the newer half of the totals is more than 1.2 times that of the older half.
fn grows(history: &[u128]) -> bool {
    let older = history.len() / 2;
    if older == 0 {
        return false;
    }
    let old: u128 = history[..older].iter().sum();
    let new: u128 = history[older..].iter().sum();
    old > 0 && 5 * new * (older as u128) > 6 * old * ((history.len() - older) as u128)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ages 1 and 4 have a coefficient of variation of 3/5, and the ages 1 and 3 of exactly one half. Ages that are
    /// 2⁴⁴ times as large have the same coefficients.
    #[test]
    fn ages_differ_where_they_vary_by_over_half() {
        for scale in [1, 1 << 44, 1 << 60] {
            assert!(ages_differ(2, 5 * scale, 17 * scale * scale));
            assert!(!ages_differ(2, 4 * scale, 10 * scale * scale));
        }
        // Both products are beyond 128 bits: 4·n·ΣD² = 2¹⁹² and 5·(ΣD)² = 5·2¹⁸⁸, then 5·2¹⁹⁰.
        assert!(ages_differ(1 << 62, 1 << 94, 1 << 127));
        assert!(!ages_differ(1 << 62, 1 << 95, 1 << 127));
    }

    #[test]
    fn totals_grow_where_the_newer_half_is_over_a_fifth_more() {
        assert!(!grows(&[7]));
        assert!(!grows(&[0, 9]));
        assert!(!grows(&[10, 12]));
        assert!(grows(&[100, 121]));
        assert!(grows(&[10, 12, 13]));
        assert!(!grows(&[10, 12, 12]));
        assert!(grows(&[10, 10, 13, 12, 12]));
    }
}

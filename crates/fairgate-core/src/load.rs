//! The load function over agents: depth and age, weighed against each other.
//!
//! # The discipline
//! Each flow *i* has a depth Qᵢ, the summed weights of what waits in it, and an age Dᵢ, the ticks since its
//! oldest waiting request came. A tick is one request ended: under load the clock runs, at rest it stands, so
//! priority shifts only where there is contention. When a slot is free it goes to the largest
//!
//! ```text
//!     L(i) = α · Qᵢ/Qmax + (1 − α) · Dᵢ/Dmax
//! ```
//!
//! over the ready flows: α = 0 serves whoever has waited longest, α = ½ leans to the deepest backlog. Relative
//! load counts, not absolute. Multiplied out by Qmax·Dmax it is a comparison of integers,
//!
//! ```text
//!     α·Dmax·Qᵢ + (10⁶ − α)·Qmax·Dᵢ           α in millionths; a maximum of 0 counts as 1
//! ```
//!
//! with ties to the earlier head. It is scored when a slot is granted, not when it is asked for.
//!
//! Alone, the function can starve: above α = ½ always, and at the default where one flow grows by itself fast
//! enough that its Q outruns another's D. `max_wait_ticks` is the bound: a ready flow whose age has reached it
//! goes before all others with its oldest request, the oldest first. So a flow's oldest request that may run waits
//! at most `max_wait_ticks` ticks and then for the requests that were late before it.
//!
//! `auto_tune` moves α by 0.01 a tick: down where ages differ much between flows (a coefficient of variation
//! over ½: 4·(nΣD² − (ΣD)²) > (ΣD)²), else up, to ½ at most, where the total depth grows (the newer half of
//! the last ten totals averages over 1.2 times the older).
//!
//! # Without a scan
//! For given Qmax and Dmax, L is linear in (Qᵢ, Dᵢ), and Dᵢ = now − sinceᵢ where `since` stands still while
//! the clock runs. So the winner is an extreme point of a set that changes by one point an event:
//! `Extremes` (in `extremes.rs`) finds it without looking at every flow. Sums for auto-tune are kept as Σsince and Σsince²,
//! from which ΣD and ΣD² follow at any tick.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use crate::arbiter::{Arbiter, Context, Ended, Head, Local, Oldest, Pick, Touched, View};
use crate::extremes::{Direction, Extremes, Point};
use crate::requests::{Handle, Request, Seq};
use crate::units::{Alpha, Ticks, Tokens};

/// How much auto-tune moves alpha per tick, in millionths.
const STEP: u32 = 10_000;
/// How many totals auto-tune remembers.
pub(crate) const HISTORY: usize = 10;

/// The state of a load node.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) flows: Vec<FlowState>,
    free: Vec<Local>,
    /// The trade-off now, in millionths.
    pub(crate) alpha: u32,
    auto_tune: bool,
    /// Whether a request was ever in the node: its history begins with that.
    begun: bool,
    max_wait: Option<u64>,
    /// The last totals of Q, oldest first.
    pub(crate) history: Vec<u128>,
    totals: Totals,
    ready: Extremes,
    /// The ready flows whose oldest request has an open place, oldest first.
    may_be_late: BTreeSet<(Seq, Local)>,
}

/// One flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowState {
    /// The summed weights of what waits, in thousandths.
    pub(crate) depth: u64,
    /// Its oldest waiting request, as of the last look.
    oldest: Option<Oldest>,
    /// The tokens it was served: costs at grants, corrected when requests end.
    pub(crate) got: i128,
    /// Its entry in `may_be_late`.
    late_key: Option<Seq>,
}

/// Sums over the flows in which something waits.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    flows: u128,
    depth: u128,
    since: u128,
    since_squared: u128,
}

impl Totals {
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

    /// ΣD and ΣD² at a tick.
    fn ages(&self, now: u64) -> (u128, u128) {
        let now = u128::from(now);
        let sum = self.flows * now - self.since;
        let squares = self.flows * now * now + self.since_squared - 2 * now * self.since;
        (sum, squares)
    }
}

impl Load {
    pub(crate) fn new(alpha: Alpha, auto_tune: bool, max_wait: Option<u64>) -> Self {
        Self {
            flows: Vec::new(),
            free: Vec::new(),
            alpha: alpha.millionths(),
            auto_tune,
            begun: false,
            max_wait,
            history: Vec::new(),
            totals: Totals::default(),
            ready: Extremes::default(),
            may_be_late: BTreeSet::new(),
        }
    }

    /// Adds a flow.
    pub(crate) fn add(&mut self) -> Local {
        if let Some(local) = self.free.pop() {
            self.flows[local as usize] = FlowState::default();
            return local;
        }
        self.flows.push(FlowState::default());
        Local::try_from(self.flows.len() - 1).expect("flows fit in 32 bits")
    }

    /// Forgets a flow without requests: it carries nothing.
    pub(crate) fn forget(&mut self, flow: Local) {
        self.free.push(flow);
    }

    /// Whether the node is as it was at the start, where it has no flows.
    pub(crate) fn is_fresh(&self) -> bool {
        !self.auto_tune || !self.begun
    }

    /// There is, or was, a request in the node.
    pub(crate) fn begin(&mut self) {
        self.begun = true;
    }

    /// Whether a late flow may dispatch its oldest request here.
    pub(crate) fn bounds_wait(&self) -> bool {
        self.max_wait.is_some()
    }

    /// A flow's age now.
    pub(crate) fn age(&self, flow: Local, now: Ticks) -> u64 {
        self.flows[flow as usize].oldest.map_or(0, |oldest| now.0 - oldest.tick.0)
    }

    /// The direction in which the load function looks now.
    pub(crate) fn direction(&mut self, now: Ticks) -> Option<Direction> {
        let (deepest, oldest) = self.ready.extent()?;
        let depth_max = u128::from(deepest.max(1));
        let age_max = u128::from((now.0 - oldest).max(1));
        Some(Direction {
            by_depth: u128::from(self.alpha) * age_max,
            by_age: u128::from(Alpha::SCALE - self.alpha) * depth_max,
            now: now.0,
        })
    }

    /// The late flow that goes before all others, where there is one, with its oldest request.
    fn latest(&self, now: Ticks) -> Option<(Local, Handle)> {
        let limit = self.max_wait?;
        let (_, flow) = self.may_be_late.first()?;
        let oldest = self.flows[*flow as usize].oldest?;
        (now.0 - oldest.tick.0 >= limit).then_some((*flow, oldest.request))
    }

    /// Whether a late flow goes before all others now.
    pub(crate) fn is_late(&self, now: Ticks) -> bool {
        self.latest(now).is_some()
    }

    /// The trade-off now.
    pub(crate) fn alpha(&self) -> Alpha {
        Alpha::from_millionths(u64::from(self.alpha)).unwrap_or(Alpha::BALANCED)
    }

    /// A ready flow's load, L(i), in millionths.
    pub(crate) fn load_millionths(&mut self, flow: Local, now: Ticks) -> Option<u64> {
        let direction = self.direction(now)?;
        let point = self.ready.get(flow)?;
        let (deepest, oldest) = self.ready.extent()?;
        let scale = u128::from(deepest.max(1)) * u128::from((now.0 - oldest).max(1));
        u64::try_from(direction.value(point.depth, point.since) / scale).ok()
    }
}

impl Arbiter for Load {
    fn arrived(&mut self, flow: Local, request: &Request) -> bool {
        let weight = request.weight.thousandths();
        self.begun = true;
        self.flows[flow as usize].depth += u64::from(weight);
        self.totals.depth += u128::from(weight);
        true
    }

    fn left(&mut self, flow: Local, request: &Request, _remaining: u32) -> bool {
        let weight = request.weight.thousandths();
        self.flows[flow as usize].depth -= u64::from(weight);
        self.totals.depth -= u128::from(weight);
        true
    }

    fn look(&mut self, flow: Local, view: View, _cx: Context<'_>) {
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
        let point = view.head.zip(view.oldest).map(|(Head { seq, .. }, oldest)| Point {
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

    fn pick(&mut self, cx: Context<'_>) -> Option<Pick> {
        if let Some((flow, oldest)) = self.latest(cx.ticks) {
            return Some(Pick { flow, late: Some(oldest) });
        }
        let direction = self.direction(cx.ticks)?;
        self.ready.furthest(direction).map(|flow| Pick { flow, late: None })
    }

    fn charge(&mut self, flow: Local, cost: Tokens) -> u64 {
        self.flows[flow as usize].got += i128::from(cost.0);
        0
    }

    fn settle(&mut self, flow: Local, ended: Ended) -> Touched {
        self.flows[flow as usize].got += ended.error();
        Touched::Nothing
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

/// Whether the coefficient of variation is over one half: 4·(nΣD² − (ΣD)²) > (ΣD)².
fn ages_differ(flows: u128, sum: u128, squares: u128) -> bool {
    let (low, high) = (4 * flows).carrying_mul(squares, 0);
    let (other_low, other_high) = (5 * sum).carrying_mul(sum, 0);
    (high, low) > (other_high, other_low)
}

/// Whether the newer half of the totals averages over 1.2 times the older.
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

    /// 1 and 4 have a coefficient of variation of 3/5, 1 and 3 of exactly one half; so do 2⁴⁴ times as much.
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

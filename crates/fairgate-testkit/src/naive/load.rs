//! The `load` node: the load function.

use std::cmp::Reverse;
use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{BusyThresholds, LoadPolicy};

use super::state::NaiveState;
use super::tree::{NaiveFlow, NaivePick, NodeChange, NodeChoice, NodeRule};

/// Number of past totals of Q that `auto_tune` keeps. Q is the depth of a flow.
const TOTALS: usize = 10;
/// The number 1, in millionths.
const ONE: u128 = 1_000_000;
/// Step by which `auto_tune` lowers or raises alpha: 0.01, in millionths.
const ALPHA_STEP: u128 = 10_000;
/// Greatest value to which `auto_tune` raises alpha: 0.5, in millionths.
const ALPHA_TOP: u128 = 500_000;

#[derive(Clone, Debug)]
pub(super) struct NaiveLoadNode {
    policy: LoadPolicy,
    flows: Vec<NaiveFlow>,
    /// Current alpha, in millionths.
    alpha: u128,
    /// Last totals of Q over all flows, the oldest first.
    totals: Vec<u128>,
}

impl NaiveLoadNode {
    pub(super) fn new(policy: &LoadPolicy) -> Self {
        let alpha = u128::from(policy.alpha.millionths());
        Self { policy: policy.clone(), flows: Vec::new(), alpha, totals: Vec::new() }
    }

    /// Returns the pick of a late flow, which is a ready flow whose D has reached `max_wait_ticks`. A late flow goes
    /// before all others and dispatches its oldest request, whatever the request's priority. Of several late flows, the
    /// flow with the largest D goes first; ties go to the lower seq of the oldest requests. A flow whose oldest request
    /// has no open place competes like any other flow.
    fn pick_late(
        &self,
        ready: &[usize],
        world: &NaiveState,
        busy: BusyThresholds,
    ) -> Option<NaivePick> {
        let max_wait = u128::from(self.policy.max_wait_ticks?);
        let late = ready.iter().filter_map(|&index| {
            let oldest = self.flows[index].oldest()?;
            let is_late = age(&self.flows[index], world.ticks) >= max_wait;
            (is_late && world.is_open(oldest, busy)).then_some((index, oldest))
        });
        let (index, oldest) = late.min_by_key(|(index, oldest)| {
            (Reverse(age(&self.flows[*index], world.ticks)), oldest.seq)
        })?;
        let pick = NaivePick { request: Arc::clone(oldest), steps: Vec::new() };
        Some(pick.through(index, NodeChange::Nothing))
    }

    fn keep_total(&mut self) {
        self.totals.push(self.flows.iter().map(depth).sum());
        if self.totals.len() > TOTALS {
            self.totals.remove(0);
        }
    }

    /// Returns whether two or more flows wait and 4·(n·ΣD² − (ΣD)²) > (ΣD)². This means that the standard deviation of
    /// the ages D of the n waiting flows is more than half of their mean.
    fn ages_vary(&self, ticks: u64) -> bool {
        let waiting = self.flows.iter().filter(|flow| !flow.is_empty());
        let ages: Vec<u128> = waiting.map(|flow| age(flow, ticks)).collect();
        let n = ages.len() as u128;
        let sum: u128 = ages.iter().sum();
        let squares: u128 = ages.iter().map(|d| d * d).sum();
        n >= 2 && 4 * (n * squares - sum * sum) > sum * sum
    }

    /// Returns whether the total of Q grows. Of the k last totals, the first floor(k/2) are the older ones and the rest
    /// are the newer ones. The total grows if the older sum is above 0 and the newer mean is above 1.2 × the older
    /// mean.
    fn load_grows(&self) -> bool {
        if self.totals.len() < 2 {
            return false;
        }
        let (older, newer) = self.totals.split_at(self.totals.len() / 2);
        let (older_sum, newer_sum) = (older.iter().sum::<u128>(), newer.iter().sum::<u128>());
        let (older_count, newer_count) = (older.len() as u128, newer.len() as u128);
        older_sum > 0 && 10 * newer_sum * older_count > 12 * older_sum * newer_count
    }
}

/// Returns Q of a flow: the sum of the weights of its queued requests, in thousandths.
fn depth(flow: &NaiveFlow) -> u128 {
    flow.waiting().iter().map(|request| u128::from(request.submit.weight.thousandths())).sum()
}

/// Returns D of a flow: the ticks since its oldest queued request was submitted.
fn age(flow: &NaiveFlow, ticks: u64) -> u128 {
    flow.oldest().map_or(0, |oldest| u128::from(ticks - oldest.tick))
}

impl NodeRule for NaiveLoadNode {
    fn by(&self) -> Attribute {
        self.policy.by
    }

    fn flow_count(&self) -> usize {
        self.flows.len()
    }

    fn flow(&self, index: usize) -> &NaiveFlow {
        &self.flows[index]
    }

    fn flow_mut(&mut self, index: usize) -> &mut NaiveFlow {
        &mut self.flows[index]
    }

    fn create_flow(&mut self, name: &str) {
        self.flows.push(NaiveFlow::new(name, &self.policy.inside));
    }

    /// "Over the ready flows, Qmax and Dmax are the largest (0 counts as 1). Pick the largest
    /// alpha·Dmax·Q + (1 000 000 − alpha)·Qmax·D; ties go to the lower seq of the heads."
    fn pick(&self, world: &NaiveState, busy: BusyThresholds) -> Option<NaivePick> {
        let picks = self
            .flows
            .iter()
            .enumerate()
            .filter_map(|(index, flow)| Some((index, flow.pick(self.policy.by, world, busy)?)));
        let picks: Vec<(usize, NaivePick)> = picks.collect();
        let ready: Vec<usize> = picks.iter().map(|(index, _)| *index).collect();
        if let Some(late) = self.pick_late(&ready, world, busy) {
            return Some(late);
        }
        let q = |index: usize| depth(&self.flows[index]);
        let d = |index: usize| age(&self.flows[index], world.ticks);
        let q_max = ready.iter().map(|&index| q(index)).max()?.max(1);
        let d_max = ready.iter().map(|&index| d(index)).max()?.max(1);
        let (index, pick) = picks.into_iter().min_by_key(|(index, pick)| {
            let load = self.alpha * d_max * q(*index) + (ONE - self.alpha) * q_max * d(*index);
            (Reverse(load), pick.request.seq)
        })?;
        Some(pick.through(index, NodeChange::Nothing))
    }

    /// Does nothing, because the load function charges nothing.
    fn charge(
        &mut self,
        _step: &NodeChoice,
        _cost: u64,
        _world: &NaiveState,
        _busy: BusyThresholds,
    ) {
    }

    /// Applies `auto_tune` each time the tick counter rises, over the flows with queued requests,
    /// whether or not they are held.
    fn tune(&mut self, ticks: u64) {
        // The history of a node begins with its first request, and so do its flows.
        if !self.policy.auto_tune || self.flows.is_empty() {
            return;
        }
        self.keep_total();
        if self.ages_vary(ticks) {
            self.alpha = self.alpha.saturating_sub(ALPHA_STEP);
        } else if self.load_grows() && self.alpha < ALPHA_TOP {
            self.alpha = (self.alpha + ALPHA_STEP).min(ALPHA_TOP);
        }
    }
}

//! Accounts of all flows, updated with each step of the replay.

use std::collections::HashSet;
use std::mem;

use fairgate_core::units::Micros;

use super::{ClosestToBound, FlowService, MeasuredService, ServiceMoment};
use crate::replay::{FlowChange, FlowStep, ReplayedRequest, RequestIndex};
use crate::scenario::Scenario;

/// Account of one flow. The letters are the symbols in the documentation of the module `service`.
#[derive(Clone, Debug, Default)]
struct FlowAccount {
    weight: i128,
    waiting: u64,
    /// Number of retries among the flow's queued requests.
    retries: u64,
    in_flight: HashSet<RequestIndex>,
    /// Tokens that the flow's ended requests have used since the start, U.
    used: i128,
    /// Current value of P; `uses` has R, and `over` has O. The fields with the suffix `_max` have
    /// the largest values of the three so far.
    costs: i128,
    uses: i128,
    over: i128,
    costs_max: i128,
    uses_max: i128,
    over_max: i128,
    /// Largest cost of any request of the flow so far, ĉ.
    largest: i128,
    /// Requests that were in flight when the flow last began to wait, and still are.
    old: HashSet<RequestIndex>,
    /// The hindrance that the flow is in, if any.
    hindrance: Option<FlowHindrance>,
    /// Sum of H over all past hindrances.
    hindered: i128,
    /// True if the flow has had no grant since it last began to wait.
    fresh: bool,
    /// F since the flow last began to wait; `passed_max` has the largest F so far.
    passed: i128,
    passed_max: i128,
}

/// A time in which a flow has a queued retry, which may keep it from being granted, or has nothing
/// queued.
#[derive(Clone, Debug)]
struct FlowHindrance {
    /// U of all flows at the beginning of the hindrance; `charged` has their E.
    used: Vec<i128>,
    charged: Vec<i128>,
}

impl FlowAccount {
    fn charged(&self) -> i128 {
        self.used + self.costs
    }

    fn is_hindered(&self) -> bool {
        self.retries > 0 || self.waiting == 0
    }

    fn granted(&mut self, index: RequestIndex, cost: i128, used: i128) {
        self.in_flight.insert(index);
        self.costs += cost;
        self.uses += used;
        self.over += (used - cost).max(0);
        self.costs_max = self.costs_max.max(self.costs);
        self.uses_max = self.uses_max.max(self.uses);
        self.over_max = self.over_max.max(self.over);
        self.largest = self.largest.max(cost);
    }

    fn ended(&mut self, index: RequestIndex, cost: i128, used: i128) {
        self.in_flight.remove(&index);
        self.old.remove(&index);
        self.costs -= cost;
        self.uses -= used;
        self.over -= (used - cost).max(0);
        self.used += used;
    }
}

/// Values at the join, and the current gap of each flow.
struct JoinState {
    /// U of each flow at the join.
    used: Vec<i128>,
    /// L of each flow at the join.
    old: Vec<i128>,
    gaps: Vec<GrantGap>,
}

/// State at the beginning of a flow's current gap, which began at the flow's last grant or, before its first grant, at
/// the join.
#[derive(Clone, Debug)]
struct GrantGap {
    /// E of each flow at the beginning of the gap.
    charged: Vec<i128>,
    /// M of the flow to which the gap belongs.
    own: i128,
    /// True if the scores at the beginning of the gap are known only relative to virtual time.
    loose: bool,
    /// H of the flow at the beginning of the gap; `while_hindered` is true if the flow was hindered
    /// then.
    hindered: i128,
    while_hindered: bool,
}

pub(super) struct ServiceMeter<'a> {
    requests: &'a [ReplayedRequest],
    books: Vec<FlowAccount>,
    weights: i128,
    joined: Option<JoinState>,
    /// True after the end of the measured window.
    over: bool,
    pub(super) service: MeasuredService,
}

impl<'a> ServiceMeter<'a> {
    pub(super) fn new(scenario: &Scenario, requests: &'a [ReplayedRequest]) -> Self {
        let weights = scenario.tenants.iter().map(|tenant| i128::from(tenant.weight));
        let books = weights.map(|weight| FlowAccount { weight, ..FlowAccount::default() });
        let books: Vec<FlowAccount> = books.collect();
        let flows = vec![FlowService::default(); books.len()];
        let weights = scenario.weights().into();
        let lapses = (0, Micros(0));
        let service = MeasuredService { window: None, lapses, flows, weights, course: Vec::new() };
        Self { requests, books, weights, joined: None, over: false, service }
    }

    pub(super) fn step(&mut self, step: &FlowStep, flow: usize, request: &ReplayedRequest) {
        let (cost, used) = (i128::from(request.cost()), i128::from(request.counted()));
        match step.what {
            FlowChange::Waits => self.waits(flow, request.is_retry),
            FlowChange::Gone => self.waits_no_more(flow, request.is_retry),
            FlowChange::Granted => {
                self.pass_the_fresh(flow);
                self.waits_no_more(flow, request.is_retry);
                self.next_gap(flow, cost, used);
                self.count_grant(flow, request);
                self.books[flow].granted(step.request, cost, used);
            }
            FlowChange::Ended => self.books[flow].ended(step.request, cost, used),
        }
    }

    fn waits(&mut self, flow: usize, again: bool) {
        if self.books[flow].waiting == 0 {
            self.books[flow].old = self.books[flow].in_flight.clone();
            let old = self.old(flow);
            let books = &mut self.books[flow];
            let passed = mem::take(&mut books.passed);
            books.fresh = true;
            if let Some(joined) = &mut self.joined {
                joined.old[flow] += old;
                // The flow is raised without tokens by the distance that virtual time was ahead of
                // it.
                books.hindered += passed;
            }
        }
        self.books[flow].waiting += 1;
        self.books[flow].retries += u64::from(again);
        self.look_for_hindrance(flow);
    }

    fn waits_no_more(&mut self, flow: usize, again: bool) {
        self.books[flow].waiting -= 1;
        self.books[flow].retries -= u64::from(again);
        self.look_for_hindrance(flow);
    }

    /// Accounts for a grant to a fresh flow while other flows are fresh too. Virtual time may then rise above the
    /// scores of the other fresh flows, up to the settled score of some flow.
    fn pass_the_fresh(&mut self, granted: usize) {
        if !mem::take(&mut self.books[granted].fresh) {
            return;
        }
        for flow in (0..self.books.len()).filter(|flow| *flow != granted) {
            if self.books[flow].fresh && self.books[flow].waiting > 0 {
                let passed = highest(&self.books, flow, |_, books| books.uses_max);
                let books = &mut self.books[flow];
                books.passed = books.passed.max(passed);
                books.passed_max = books.passed_max.max(passed);
            }
        }
    }

    /// Returns L of a flow. It is a sum over the requests that were in flight when the flow last began to wait and are
    /// still in flight now. Each of them adds its cost or its usage, whichever is smaller.
    fn old(&self, flow: usize) -> i128 {
        let old = self.books[flow].old.iter().map(|index| &self.requests[*index]);
        old.map(|request| i128::from(request.cost().min(request.counted()))).sum()
    }

    /// Begins a hindrance if the flow is now hindered, or ends the current one if it no longer is.
    fn look_for_hindrance(&mut self, flow: usize) {
        let Some(joined) = &mut self.joined else { return };
        let is_hindered = self.books[flow].is_hindered();
        if is_hindered && self.books[flow].hindrance.is_none() {
            let used = self.books.iter().map(|books| books.used).collect();
            let charged = self.books.iter().map(FlowAccount::charged).collect();
            self.books[flow].hindrance = Some(FlowHindrance { used, charged });
        } else if !is_hindered && let Some(hindrance) = self.books[flow].hindrance.take() {
            self.books[flow].hindered += raised(&self.books, flow, &hindrance);
            let gap = &mut joined.gaps[flow];
            // Charges of others during the hindrance do not count.
            let then = hindrance.charged.into_iter().zip(&self.books);
            for (charged, (then, books)) in gap.charged.iter_mut().zip(then) {
                *charged += books.charged() - if gap.while_hindered { *charged } else { then };
            }
            gap.while_hindered = false;
        }
    }

    /// Returns H of a flow, including that of a hindrance that has not ended.
    fn hindered(&self, flow: usize) -> i128 {
        let own = &self.books[flow];
        let under_way = own.hindrance.as_ref();
        own.hindered + under_way.map_or(0, |hindrance| raised(&self.books, flow, hindrance))
    }

    /// Ends the flow's current gap at a grant, and begins the next one. Must be called before the
    /// grant is added to the account.
    fn next_gap(&mut self, flow: usize, cost: i128, used: i128) {
        let Some(joined) = self.joined.as_mut() else { return };
        let own = &self.books[flow];
        let mut others = self.books.iter().enumerate().filter(|(j, _)| *j != flow);
        let loose = others.any(|(_, books)| books.hindrance.is_some());
        let latest = cost.max(used);
        joined.gaps[flow] = GrantGap {
            charged: self.books.iter().map(FlowAccount::charged).collect(),
            own: own.over
                + latest
                + if loose { own.uses_max.max(own.uses + used) + own.costs } else { 0 },
            loose,
            hindered: own.hindered,
            while_hindered: own.hindrance.is_some(),
        };
    }

    fn count_grant(&mut self, flow: usize, request: &ReplayedRequest) {
        if self.joined.is_some() && !self.over {
            let waited = request.grant.as_ref().map(|grant| grant.waited);
            self.service.flows[flow].grants += 1;
            self.service.flows[flow].waits.extend(waited);
        }
    }

    /// Compares all flows with their bounds if `in_window` is true, which means that the step is
    /// within the measured window.
    pub(super) fn look(&mut self, at: Micros, in_window: bool) {
        if !in_window {
            self.over = self.joined.is_some();
            return;
        }
        if self.joined.is_none() {
            self.join(at);
        }
        if let Some((_, until)) = &mut self.service.window {
            *until = at;
        }
        self.compare_service(at);
        self.compare_gaps(at);
    }

    fn join(&mut self, at: Micros) {
        let charged: Vec<i128> = self.books.iter().map(FlowAccount::charged).collect();
        let gap = |books: &FlowAccount| GrantGap {
            charged: charged.clone(),
            own: books.uses_max + books.costs + books.over,
            loose: true,
            hindered: 0,
            while_hindered: false,
        };
        self.joined = Some(JoinState {
            used: self.books.iter().map(|books| books.used).collect(),
            old: (0..self.books.len()).map(|flow| self.old(flow)).collect(),
            gaps: self.books.iter().map(gap).collect(),
        });
        self.service.window = Some((at, at));
        (0..self.books.len()).for_each(|flow| self.look_for_hindrance(flow));
    }

    fn compare_service(&mut self, at: Micros) {
        let Some((got, ideal, bound)) = self.standing() else { return };
        for (i, flow) in self.service.flows.iter_mut().enumerate() {
            flow.got = got[i];
            flow.ideal_times_weights = ideal[i];
            let measured = (got[i] * self.weights - ideal[i]).abs();
            flow.off.keep_closer(ClosestToBound {
                measured,
                bound: bound[i],
                scale: self.weights,
                at,
            });
        }
    }

    fn compare_gaps(&mut self, at: Micros) {
        let Some(joined) = &self.joined else { return };
        for (i, (gap, flow)) in joined.gaps.iter().zip(&mut self.service.flows).enumerate() {
            let own = &self.books[i];
            if own.hindrance.is_some() {
                continue;
            }
            let (mut seen, mut last) = (0, 0);
            for (j, books) in self.books.iter().enumerate().filter(|(j, _)| *j != i) {
                seen += books.charged() - gap.charged[j];
                last += books.largest + books.over_max;
                last += if gap.loose { books.costs_max + books.passed_max } else { 0 };
            }
            let credit = gap.own + own.hindered - gap.hindered;
            let bound = credit * (self.weights - own.weight) + last * own.weight;
            flow.gap.keep_closer(ClosestToBound {
                measured: seen * own.weight,
                bound,
                scale: own.weight,
                at,
            });
            flow.gap_max = flow.gap_max.max(seen);
        }
    }

    /// Returns three values for each flow: ΔU, W times I, and W times the bound on the difference
    /// between ΔU and I. `None` before the join.
    fn standing(&self) -> Option<(Vec<i128>, Vec<i128>, Vec<i128>)> {
        let joined = self.joined.as_ref()?;
        let now_and_then = self.books.iter().zip(&joined.used);
        let got: Vec<i128> = now_and_then.map(|(books, then)| books.used - then).collect();
        let all: i128 = got.iter().sum();
        let ideal = self.books.iter().map(|books| books.weight * all).collect();
        let slack = self.books.iter().enumerate().map(|(flow, books)| {
            let freshness = joined.old[flow] + books.passed;
            books.uses_max + books.costs_max + freshness + self.hindered(flow)
        });
        let slack: Vec<i128> = slack.collect();
        let slacks: i128 = slack.iter().sum();
        let bound = self.books.iter().zip(&slack).map(|(books, own)| {
            (self.weights - books.weight) * own + books.weight * (slacks - own)
        });
        let bound = bound.collect();
        Some((got, ideal, bound))
    }

    /// Adds the current counters to the course if the step was a grant or an end.
    pub(super) fn note(&mut self, step: &FlowStep) {
        let FlowStep { at, event, what, .. } = *step;
        if matches!(what, FlowChange::Waits | FlowChange::Gone) {
            return;
        }
        let standing = self.standing().filter(|_| !self.over);
        let (ideal, bound) = standing.map(|(_, ideal, bound)| (ideal, bound)).unzip();
        // The end and the grants of one event are one moment.
        if self.service.course.last().is_some_and(|moment| moment.event == event) {
            self.service.course.pop();
        }
        self.service.course.push(ServiceMoment {
            at,
            event,
            used: self.books.iter().map(|books| books.used).collect(),
            ideal_times_weights: ideal,
            bound_times_weights: bound,
            in_flight: self.books.iter().map(|books| books.in_flight.len() as u64).collect(),
            all_wait: self.books.iter().all(|books| books.waiting > 0),
        });
    }
}

/// Returns the greatest possible rise of virtual time during a hindrance, times the weight of the
/// hindered flow, rounded up.
fn raised(books: &[FlowAccount], flow: usize, hindrance: &FlowHindrance) -> i128 {
    highest(books, flow, |k, books| books.uses_max + books.used - hindrance.used[k])
}

/// Returns the largest `tokens` per weight of all flows except `flow`, times the weight of `flow`,
/// rounded up.
fn highest(
    books: &[FlowAccount],
    flow: usize,
    tokens: impl Fn(usize, &FlowAccount) -> i128,
) -> i128 {
    let weight = books[flow].weight;
    let others = books.iter().enumerate().filter(|(k, _)| *k != flow);
    let heights =
        others.map(|(k, books)| (weight * tokens(k, books) + books.weight - 1) / books.weight);
    heights.max().unwrap_or(0)
}

//! The books of all flows, step by step.

use std::collections::HashSet;
use std::mem;

use fairgate_core::units::Micros;

use super::{FlowService, Moment, Service, Worst};
use crate::replay::{Index, Request, Step, What};
use crate::scenario::Scenario;

/// The books of one flow; the letters are those of the module above.
#[derive(Clone, Debug, Default)]
struct Books {
    weight: i128,
    waiting: u64,
    /// How many of these are tried again.
    again: u64,
    in_flight: HashSet<Index>,
    /// U, since the start.
    used: i128,
    /// P, R and O, and the largest they have been.
    costs: i128,
    uses: i128,
    over: i128,
    costs_max: i128,
    uses_max: i128,
    over_max: i128,
    /// ĉ.
    largest: i128,
    /// What was in flight when it last began to wait, and still is.
    old: HashSet<Index>,
    /// The hindrance that is under way.
    hindrance: Option<Hindrance>,
    /// H, of all that are over.
    hindered: i128,
    /// Whether it has had no grant since it last began to wait.
    fresh: bool,
    /// F, since it last began to wait, and the largest it has been.
    passed: i128,
    passed_max: i128,
}

/// A time in which a flow cannot go, or has nothing to go with.
#[derive(Clone, Debug)]
struct Hindrance {
    /// U and E of all when it began.
    used: Vec<i128>,
    charged: Vec<i128>,
}

impl Books {
    fn charged(&self) -> i128 {
        self.used + self.costs
    }

    fn is_hindered(&self) -> bool {
        self.again > 0 || self.waiting == 0
    }

    fn granted(&mut self, index: Index, cost: i128, used: i128) {
        self.in_flight.insert(index);
        self.costs += cost;
        self.uses += used;
        self.over += (used - cost).max(0);
        self.costs_max = self.costs_max.max(self.costs);
        self.uses_max = self.uses_max.max(self.uses);
        self.over_max = self.over_max.max(self.over);
        self.largest = self.largest.max(cost);
    }

    fn ended(&mut self, index: Index, cost: i128, used: i128) {
        self.in_flight.remove(&index);
        self.old.remove(&index);
        self.costs -= cost;
        self.uses -= used;
        self.over -= (used - cost).max(0);
        self.used += used;
    }
}

/// What is known since the join.
struct Joined {
    /// U of each at the join.
    used: Vec<i128>,
    /// L of each.
    old: Vec<i128>,
    gaps: Vec<Gap>,
}

/// The time since a flow's last grant, or since the join.
#[derive(Clone, Debug)]
struct Gap {
    /// E of each when it began.
    charged: Vec<i128>,
    /// M.
    own: i128,
    /// Whether scores at its beginning are known against virtual time only.
    loose: bool,
    /// H when it began, and whether a hindrance was under way.
    hindered: i128,
    while_hindered: bool,
}

pub(super) struct Meter<'a> {
    requests: &'a [Request],
    books: Vec<Books>,
    weights: i128,
    joined: Option<Joined>,
    /// The window has ended.
    over: bool,
    pub(super) service: Service,
}

impl<'a> Meter<'a> {
    pub(super) fn new(scenario: &Scenario, requests: &'a [Request]) -> Self {
        let weights = scenario.tenants.iter().map(|tenant| i128::from(tenant.weight));
        let books = weights.map(|weight| Books { weight, ..Books::default() });
        let books: Vec<Books> = books.collect();
        let flows = vec![FlowService::default(); books.len()];
        let weights = scenario.weights().into();
        let lapses = (0, Micros(0));
        let service = Service { window: None, lapses, flows, weights, course: Vec::new() };
        Self { requests, books, weights, joined: None, over: false, service }
    }

    pub(super) fn step(&mut self, step: &Step, flow: usize, request: &Request) {
        let (cost, used) = (i128::from(request.cost()), i128::from(request.counted()));
        match step.what {
            What::Waits => self.waits(flow, request.again),
            What::Gone => self.waits_no_more(flow, request.again),
            What::Granted => {
                self.pass_the_fresh(flow);
                self.waits_no_more(flow, request.again);
                self.next_gap(flow, cost, used);
                self.count_grant(flow, request);
                self.books[flow].granted(step.request, cost, used);
            }
            What::Ended => self.books[flow].ended(step.request, cost, used),
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
                // As far as virtual time was ahead of it, it is raised without tokens.
                books.hindered += passed;
            }
        }
        self.books[flow].waiting += 1;
        self.books[flow].again += u64::from(again);
        self.look_for_hindrance(flow);
    }

    fn waits_no_more(&mut self, flow: usize, again: bool) {
        self.books[flow].waiting -= 1;
        self.books[flow].again -= u64::from(again);
        self.look_for_hindrance(flow);
    }

    /// A fresh flow is granted before others that are fresh too: virtual time may pass those, up to the settled height of
    /// some flow.
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

    /// L: the smaller of cost and usage of what was in flight when the flow last began to wait, and still is.
    fn old(&self, flow: usize) -> i128 {
        let old = self.books[flow].old.iter().map(|index| &self.requests[*index]);
        old.map(|request| i128::from(request.cost().min(request.counted()))).sum()
    }

    /// Begins or ends a hindrance.
    fn look_for_hindrance(&mut self, flow: usize) {
        let Some(joined) = &mut self.joined else { return };
        let is_hindered = self.books[flow].is_hindered();
        if is_hindered && self.books[flow].hindrance.is_none() {
            let used = self.books.iter().map(|books| books.used).collect();
            let charged = self.books.iter().map(Books::charged).collect();
            self.books[flow].hindrance = Some(Hindrance { used, charged });
        } else if !is_hindered && let Some(hindrance) = self.books[flow].hindrance.take() {
            self.books[flow].hindered += raised(&self.books, flow, &hindrance);
            let gap = &mut joined.gaps[flow];
            // What others were charged meanwhile does not count.
            let then = hindrance.charged.into_iter().zip(&self.books);
            for (charged, (then, books)) in gap.charged.iter_mut().zip(then) {
                *charged += books.charged() - if gap.while_hindered { *charged } else { then };
            }
            gap.while_hindered = false;
        }
    }

    /// H of a flow, the time that is not over included.
    fn hindered(&self, flow: usize) -> i128 {
        let own = &self.books[flow];
        let under_way = own.hindrance.as_ref();
        own.hindered + under_way.map_or(0, |hindrance| raised(&self.books, flow, hindrance))
    }

    /// A grant ends a gap and begins the next. It is told before the books know of it.
    fn next_gap(&mut self, flow: usize, cost: i128, used: i128) {
        let Some(joined) = self.joined.as_mut() else { return };
        let own = &self.books[flow];
        let mut others = self.books.iter().enumerate().filter(|(j, _)| *j != flow);
        let loose = others.any(|(_, books)| books.hindrance.is_some());
        let latest = cost.max(used);
        joined.gaps[flow] = Gap {
            charged: self.books.iter().map(Books::charged).collect(),
            own: own.over
                + latest
                + if loose { own.uses_max.max(own.uses + used) + own.costs } else { 0 },
            loose,
            hindered: own.hindered,
            while_hindered: own.hindrance.is_some(),
        };
    }

    fn count_grant(&mut self, flow: usize, request: &Request) {
        if self.joined.is_some() && !self.over {
            let waited = request.grant.as_ref().map(|grant| grant.waited);
            self.service.flows[flow].grants += 1;
            self.service.flows[flow].waits.extend(waited);
        }
    }

    /// How each stands, in the window.
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
        let charged: Vec<i128> = self.books.iter().map(Books::charged).collect();
        let gap = |books: &Books| Gap {
            charged: charged.clone(),
            own: books.uses_max + books.costs + books.over,
            loose: true,
            hindered: 0,
            while_hindered: false,
        };
        self.joined = Some(Joined {
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
            flow.off.meet(Worst { measured, bound: bound[i], scale: self.weights, at });
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
            flow.gap.meet(Worst { measured: seen * own.weight, bound, scale: own.weight, at });
            flow.gap_max = flow.gap_max.max(seen);
        }
    }

    /// By flow: ΔU; and W times I and W times the bound on their difference.
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

    /// Notes the moment, where it differs from the one before.
    pub(super) fn note(&mut self, step: &Step) {
        let Step { at, event, what, .. } = *step;
        if matches!(what, What::Waits | What::Gone) {
            return;
        }
        let standing = self.standing().filter(|_| !self.over);
        let (ideal, bound) = standing.map(|(_, ideal, bound)| (ideal, bound)).unzip();
        // What an event ends and what it grants are one moment.
        if self.service.course.last().is_some_and(|moment| moment.event == event) {
            self.service.course.pop();
        }
        self.service.course.push(Moment {
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

/// How far virtual time may have risen during a hindrance, times the flow's weight, rounded up.
fn raised(books: &[Books], flow: usize, hindrance: &Hindrance) -> i128 {
    highest(books, flow, |k, books| books.uses_max + books.used - hindrance.used[k])
}

/// The largest tokens per weight of the other flows, times the flow's weight, rounded up.
fn highest(books: &[Books], flow: usize, tokens: impl Fn(usize, &Books) -> i128) -> i128 {
    let weight = books[flow].weight;
    let others = books.iter().enumerate().filter(|(k, _)| *k != flow);
    let heights =
        others.map(|(k, books)| (weight * tokens(k, books) + books.weight - 1) / books.weight);
    heights.max().unwrap_or(0)
}

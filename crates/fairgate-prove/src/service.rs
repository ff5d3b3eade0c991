//! Service, measured: who got how many tokens while all of them waited, how far that is from each one's ideal, and how
//! long each had to watch the others.
//!
//! # What is measured
//! Flows 1…n of one share node, with weights wᵢ and W = Σw. From the join on, when all of them wait, until one of them no
//! longer does (the longest such time). ΔUᵢ is what flow *i*'s requests that ended since the join really used, in tokens. Its ideal is its part
//! of what all of them used: Iᵢ = wᵢ/W · ΣⱼΔUⱼ.
//!
//! # The bound on service
//! The share node keeps a virtual time V and picks the lowest score (`fairgate_core::share`). With sᵢ = settledᵢ, tokens
//! per weight that ended, and Pᵢ the costs of what *i* has in flight, scoreᵢ = sᵢ + Pᵢ/wᵢ. Let Rᵢ be what those in flight
//! will really use; P̂ᵢ and R̂ᵢ are the largest that both have been so far.
//!
//! *Behind*: V last rose at a grant to some k, to sₖ ≤ scoreₖ ≤ scoreᵢ, for k was picked and *i* was there. Since then V
//! stood still and sᵢ did not fall, so sᵢ ≥ V − P̂ᵢ/wᵢ. *Ahead*: at *i*'s last grant V rose to sᵢ at least; since then only
//! what was in flight then has ended, so sᵢ ≤ V + R̂ᵢ/wᵢ. Taken at the join and now, with ΔUᵢ = wᵢ·Δsᵢ but for what flew
//! when *i* began to wait anew (Lᵢ: the smaller of cost and usage of those that still flew at the join; they may count in
//! U and not in s), for any two flows
//!
//! ```text
//!     | ΔUᵢ/wᵢ − ΔUⱼ/wⱼ | ≤ Bᵢ/wᵢ + Bⱼ/wⱼ            B = R̂ + P̂ + L
//! ```
//!
//! ΔUᵢ − Iᵢ = wᵢ/W · Σⱼ wⱼ·(ΔUᵢ/wᵢ − ΔUⱼ/wⱼ), and so, in tokens,
//!
//! ```text
//!     | ΔUᵢ − Iᵢ | ≤ (1 − wᵢ/W)·Bᵢ + wᵢ/W · Σ_{j≠i} Bⱼ                                  (service)
//! ```
//!
//! # The bound on waiting
//! Let Eᵢ = Uᵢ + Pᵢ, which is wᵢ·scoreᵢ but for a constant. Let *i* be granted at g, and j at a later τ with none to *i*
//! between. *i* was picked at g and j at τ, so scoreᵢ(g) ≤ scoreⱼ(g) and scoreⱼ(τ) ≤ scoreᵢ(τ), both before they are
//! charged: what j was charged meanwhile, per weight, is no more than what *i* was. That is at most Mᵢ, the larger of
//! cost and usage of the request granted at g, and what *i*'s older ones in flight use beyond their costs. Then comes j's
//! grant at τ, of at most its largest cost ĉⱼ, and what j's requests in flight use beyond their costs, Ôⱼ at most:
//!
//! ```text
//!     Σ_{j≠i} (Eⱼ − Eⱼ(g)) ≤ Mᵢ·(W − wᵢ)/wᵢ + Σ_{j≠i} (ĉⱼ + Ôⱼ)                          (gap)
//! ```
//!
//! From the join to *i*'s first grant there is no g. Then scoreᵢ ≤ V + (R̂ᵢ + Pᵢ + Oᵢ)/wᵢ and scoreⱼ ≥ V − P̂ⱼ/wⱼ at the
//! join, so Mᵢ = R̂ᵢ + Pᵢ + Oᵢ, and P̂ⱼ joins ĉⱼ + Ôⱼ.
//!
//! # Where a worker dies
//! A request that failed on one worker before its first byte is submitted again and may go to the others only. While such a
//! request waits, its flow may be unable to go although the pool has room. The core lets no flow lose or win by that: its
//! distance from V stands still, so sᵢ rises with V and without tokens. V rises to the settled height of some k, by no more
//! than (R̂ₖ + ΔUₖ)/wₖ over that time. So for each such time Hᵢ = wᵢ · maxₖ (R̂ₖ + ΔUₖ)/wₖ joins Bᵢ in *service* and Mᵢ in
//! *gap*, and what others are charged meanwhile is not counted in the gap.
//!
//! All of it is checked in whole numbers, both sides times W or wᵢ, after every step of the journal. (Scores are rounded
//! down to 2⁻³² tokens per weight. Times weights of some hundreds that is far below 1, and the sides are whole.)

use std::collections::HashSet;
use std::ops::Range;

use fairgate_core::units::Micros;

use crate::replay::{Index, Replay, Request, Step, What};
use crate::scenario::Scenario;

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// From the join to the last moment at which all waited; none where they never all did.
    pub(crate) window: Option<(Micros, Micros)>,
    /// By tenant.
    pub(crate) flows: Vec<FlowService>,
    /// W.
    pub(crate) weights: i128,
    /// What it was after each step that changed it, the time alone included.
    pub(crate) course: Vec<Moment>,
}

/// The service of one tenant in the window.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowService {
    /// ΔU, in tokens.
    pub(crate) got: i128,
    /// W·I, in tokens.
    pub(crate) ideal_times_weights: i128,
    /// The moment at which |ΔU − I| came nearest to its bound.
    pub(crate) off: Worst,
    /// The gap that came nearest to its bound, and the largest, in tokens.
    pub(crate) gap: Worst,
    pub(crate) gap_max: i128,
    /// How many grants it had.
    pub(crate) grants: u64,
    /// How long they had waited.
    pub(crate) waits: Vec<Micros>,
}

/// The moment at which something came nearest to its bound: both in tokens, times `scale`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worst {
    pub(crate) measured: i128,
    pub(crate) bound: i128,
    pub(crate) scale: i128,
    pub(crate) at: Micros,
}

impl Default for Worst {
    fn default() -> Self {
        Self { measured: 0, bound: 0, scale: 1, at: Micros(0) }
    }
}

impl Worst {
    /// Keeps the nearer to its bound: measured/bound, compared crosswise.
    fn meet(&mut self, other: Self) {
        let (ours, theirs) = (self.measured * other.bound, other.measured * self.bound);
        if self.bound == 0 || theirs > ours || (theirs == ours && other.bound > self.bound) {
            *self = other;
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.measured <= self.bound
    }

    pub(crate) fn measured_tokens(&self) -> f64 {
        self.measured as f64 / self.scale as f64
    }

    pub(crate) fn bound_tokens(&self) -> f64 {
        self.bound as f64 / self.scale as f64
    }
}

/// All tenants at one moment, in tokens.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub(crate) at: Micros,
    /// The number of the event after which it was so.
    pub(crate) event: u64,
    /// What each has used since the start.
    pub(crate) used: Vec<i128>,
    /// W · (ideal since the join), where all wait.
    pub(crate) ideal_times_weights: Option<Vec<i128>>,
    /// W · (the bound on service).
    pub(crate) bound_times_weights: Option<Vec<i128>>,
    /// How many fly.
    pub(crate) flying: Vec<u64>,
}

/// The books of one flow.
#[derive(Clone, Debug, Default)]
struct Books {
    weight: i128,
    waiting: u64,
    flying: HashSet<Index>,
    /// U, since the start.
    used: i128,
    /// P, R and O, and the largest they have been.
    costs: i128,
    uses: i128,
    over: i128,
    costs_max: i128,
    uses_max: i128,
    over_max: i128,
    /// The largest cost of one request: ĉ.
    largest: i128,
    /// What flew when it last began to wait, and still does.
    old: HashSet<Index>,
    /// How many that wait are tried again.
    again: u64,
    /// U and E of all when the first of these began to wait.
    stuck_since: Option<(Vec<i128>, Vec<i128>)>,
    /// H, of all such times that are over.
    stuck: i128,
}

impl Books {
    fn charged(&self) -> i128 {
        self.used + self.costs
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

/// The time since a flow's last grant.
#[derive(Clone, Debug)]
struct Gap {
    /// E of each when it began.
    charged: Vec<i128>,
    /// M.
    own: i128,
    /// Whether it began with the join and not with a grant.
    first: bool,
    /// H when it began, and whether such a time was under way.
    stuck: i128,
    while_stuck: bool,
}

/// Measures a replay.
pub(crate) fn measure(scenario: &Scenario, replay: &Replay) -> Service {
    let books = scenario
        .tenants
        .iter()
        .map(|tenant| Books { weight: tenant.weight.into(), ..Books::default() });
    let books: Vec<Books> = books.collect();
    let flows = vec![FlowService::default(); books.len()];
    let weights = scenario.weights().into();
    let service = Service { window: None, flows, weights, course: Vec::new() };
    let mut meter = Meter { books, weights, joined: None, over: false, service };
    let window = longest_wait(replay, scenario.tenants.len());
    for (number, step) in replay.steps.iter().enumerate() {
        let request = &replay.requests[step.request];
        if let Some(flow) = request.tenant {
            meter.step(step, flow, request);
            meter.look(step.at, window.contains(&number), &replay.requests);
            meter.note(step);
        }
    }
    meter.service
}

/// The longest run of steps after each of which all flows wait. A joiner's first request may be granted before its
/// second is there: then it does not wait for a moment, and what is proven begins with the second.
fn longest_wait(replay: &Replay, flows: usize) -> Range<usize> {
    let mut waiting = vec![0_u64; flows];
    let mut began = None;
    let mut longest = 0..0;
    for (number, step) in replay.steps.iter().enumerate() {
        let Some(flow) = replay.requests[step.request].tenant else { continue };
        match step.what {
            What::Waits => waiting[flow] += 1,
            What::Gone | What::Granted => waiting[flow] -= 1,
            What::Ended => {}
        }
        if waiting.contains(&0) {
            began = None;
        } else {
            let run = *began.get_or_insert(number)..number + 1;
            longest = if run.len() > longest.len() { run } else { longest };
        }
    }
    longest
}

struct Meter {
    books: Vec<Books>,
    weights: i128,
    joined: Option<Joined>,
    /// The window has ended.
    over: bool,
    service: Service,
}

impl Meter {
    fn step(&mut self, step: &Step, flow: usize, request: &Request) {
        let Step { request: index, what, .. } = *step;
        let (cost, used) = (i128::from(request.cost()), i128::from(request.used()));
        let over = (used - cost).max(0);
        match what {
            What::Waits => self.waits(flow, request.again),
            What::Gone => self.waits_no_more(flow, request.again),
            What::Granted => {
                self.waits_no_more(flow, request.again);
                self.granted(flow, request, cost.max(used));
                let books = &mut self.books[flow];
                books.flying.insert(index);
                books.costs += cost;
                books.uses += used;
                books.over += over;
                books.costs_max = books.costs_max.max(books.costs);
                books.uses_max = books.uses_max.max(books.uses);
                books.over_max = books.over_max.max(books.over);
                books.largest = books.largest.max(cost);
            }
            What::Ended => {
                let books = &mut self.books[flow];
                books.flying.remove(&index);
                books.old.remove(&index);
                books.costs -= cost;
                books.uses -= used;
                books.over -= over;
                books.used += used;
            }
        }
    }

    fn waits(&mut self, flow: usize, again: bool) {
        let used = self.books.iter().map(|books| books.used).collect();
        let charged = self.books.iter().map(Books::charged).collect();
        let books = &mut self.books[flow];
        if books.waiting == 0 {
            books.old = books.flying.clone();
        }
        books.waiting += 1;
        if again {
            books.again += 1;
            books.stuck_since.get_or_insert((used, charged));
        }
    }

    fn waits_no_more(&mut self, flow: usize, again: bool) {
        self.books[flow].waiting -= 1;
        if !again {
            return;
        }
        self.books[flow].again -= 1;
        if self.books[flow].again > 0 {
            return;
        }
        let stuck = self.stuck_now(flow);
        let since = self.books[flow].stuck_since.take();
        self.books[flow].stuck = stuck;
        if let (Some((_, charged)), Some(joined)) = (since, &mut self.joined) {
            let gap = &mut joined.gaps[flow];
            for ((then, before), books) in gap.charged.iter_mut().zip(charged).zip(&self.books) {
                let counted_from = if gap.while_stuck { *then } else { before };
                *then += books.charged() - counted_from;
            }
            gap.while_stuck = false;
        }
    }

    /// H of a flow, the time that is not over included, rounded up.
    fn stuck_now(&self, flow: usize) -> i128 {
        let own = &self.books[flow];
        let Some((used, _)) = &own.stuck_since else { return own.stuck };
        let others = self.books.iter().zip(used).enumerate().filter(|(k, _)| *k != flow);
        let rise = others.map(|(_, (books, then))| {
            let tokens = own.weight * (books.uses_max + books.used - then);
            (tokens + books.weight - 1) / books.weight
        });
        own.stuck + rise.max().unwrap_or(0)
    }

    /// A grant ends a gap and begins the next. It is told before the books know of it.
    fn granted(&mut self, flow: usize, request: &Request, larger: i128) {
        let own = self.books[flow].over + larger;
        let charged = self.books.iter().map(Books::charged).collect();
        if let Some(joined) = self.joined.as_mut().filter(|_| !self.over) {
            let Books { stuck, stuck_since, .. } = &self.books[flow];
            let (stuck, while_stuck) = (*stuck, stuck_since.is_some());
            joined.gaps[flow] = Gap { charged, own, first: false, stuck, while_stuck };
            self.service.flows[flow].grants += 1;
            let waited = request.grant.as_ref().map(|grant| grant.waited);
            self.service.flows[flow].waits.extend(waited);
        }
    }

    /// How each stands, where all wait.
    fn look(&mut self, at: Micros, all_wait: bool, requests: &[Request]) {
        if !all_wait {
            self.over = self.joined.is_some();
            return;
        }
        if self.joined.is_none() {
            self.join(at, requests);
        }
        if let Some((_, until)) = &mut self.service.window {
            *until = at;
        }
        self.compare(at);
    }

    fn join(&mut self, at: Micros, requests: &[Request]) {
        let smaller = |index: &Index| {
            let request = &requests[*index];
            i128::from(request.cost().min(request.used()))
        };
        let charged: Vec<i128> = self.books.iter().map(Books::charged).collect();
        self.joined = Some(Joined {
            used: self.books.iter().map(|books| books.used).collect(),
            old: self.books.iter().map(|books| books.old.iter().map(smaller).sum()).collect(),
            gaps: (self.books.iter())
                .map(|books| Gap {
                    charged: charged.clone(),
                    own: books.uses_max + books.costs + books.over,
                    first: true,
                    stuck: books.stuck,
                    while_stuck: books.stuck_since.is_some(),
                })
                .collect(),
        });
        self.service.window = Some((at, at));
    }

    fn compare(&mut self, at: Micros) {
        let Some((got, ideal, bound)) = self.standing() else { return };
        for (i, flow) in self.service.flows.iter_mut().enumerate() {
            flow.got = got[i];
            flow.ideal_times_weights = ideal[i];
            let measured = (got[i] * self.weights - ideal[i]).abs();
            flow.off.meet(Worst { measured, bound: bound[i], scale: self.weights, at });
        }
        let Some(joined) = &self.joined else { return };
        for (i, (gap, flow)) in joined.gaps.iter().zip(&mut self.service.flows).enumerate() {
            if self.books[i].stuck_since.is_some() {
                continue;
            }
            let weight = self.books[i].weight;
            let others = self.books.iter().enumerate().filter(|(j, _)| *j != i);
            let (mut seen, mut last) = (0, 0);
            for (j, books) in others {
                seen += books.charged() - gap.charged[j];
                last += books.largest + books.over_max;
                last += if gap.first { books.costs_max } else { 0 };
            }
            let own = gap.own + self.books[i].stuck - gap.stuck;
            let bound = own * (self.weights - weight) + last * weight;
            flow.gap.meet(Worst { measured: seen * weight, bound, scale: weight, at });
            flow.gap_max = flow.gap_max.max(seen);
        }
    }

    /// By flow: ΔU; and W times I and W times the bound on their difference.
    fn standing(&self) -> Option<(Vec<i128>, Vec<i128>, Vec<i128>)> {
        let joined = self.joined.as_ref()?;
        let got: Vec<i128> =
            self.books.iter().zip(&joined.used).map(|(books, then)| books.used - then).collect();
        let all: i128 = got.iter().sum();
        let ideal = self.books.iter().map(|books| books.weight * all).collect();
        let slack: Vec<i128> = (self.books.iter().zip(&joined.old).enumerate())
            .map(|(i, (books, old))| books.uses_max + books.costs_max + old + self.stuck_now(i))
            .collect();
        let slacks: i128 = slack.iter().sum();
        let bound = (self.books.iter().zip(&slack))
            .map(|(books, own)| (self.weights - books.weight) * own + books.weight * (slacks - own))
            .collect();
        Some((got, ideal, bound))
    }

    fn note(&mut self, step: &Step) {
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
            flying: self.books.iter().map(|books| books.flying.len() as u64).collect(),
        });
    }
}

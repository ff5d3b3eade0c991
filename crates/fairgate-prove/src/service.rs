//! Measurement of service: the tokens that each tenant got while all tenants had requests queued,
//! the difference between these tokens and the tenant's ideal, and the tokens that other tenants
//! got between two of its grants.
//!
//! # What is measured
//! The flows 1…n of one share node have the weights wᵢ, and W = Σw. The measured window is the longest time in which
//! all flows wait, which means that all have requests queued. A flow may stop waiting for a short moment within the
//! window (see the last section). The beginning of the window is called the join. Uᵢ is the number of tokens that the
//! ended requests of flow *i* really used since the start of the experiment, and ΔUᵢ is the part of them that was used
//! by requests that ended since the join. The ideal of the flow is its share of the tokens that all flows used since
//! the join: Iᵢ = wᵢ/W · ΣⱼΔUⱼ.
//!
//! # The bound on service
//! The share node keeps a virtual time V and picks the flow with the lowest score
//! (`fairgate_core::share`). Let sᵢ be the settled score of *i*, which counts the tokens per weight
//! of its ended requests, and let Pᵢ be the sum of the costs of its requests in flight; then
//! scoreᵢ = sᵢ + Pᵢ/wᵢ. Let Rᵢ be the tokens that its requests in flight will really use. P̂ᵢ and R̂ᵢ
//! are the largest values of Pᵢ and Rᵢ so far. At each grant V rises to the lesser of two values,
//! unless V is already higher: the highest settled score of the ready flows, and the lowest score
//! of those ready flows that are not new. A flow is *fresh* if it has had no grant since it last
//! began to wait; only a fresh flow can be new.
//!
//! *Ahead*: after the last grant to *i*, V was at least sᵢ, because sᵢ is at most the highest
//! settled score, and scoreᵢ was the lowest of all. Since then only requests that were in flight
//! after that grant have ended, so sᵢ ≤ V + R̂ᵢ/wᵢ.
//!
//! *Behind*: if *i* was not new when V last rose, V ≤ scoreᵢ at that time, and sᵢ has not fallen
//! since, so sᵢ ≥ V − P̂ᵢ/wᵢ. If *i* was new, V may have risen above scoreᵢ at a grant to another
//! new flow, while the scores of all flows that were not new were higher. But V rose at most to the
//! settled score of some flow k. If the last grant to k was before *i* began to wait, sₖ is at most
//! the V of that grant plus R̂ₖ/wₖ, and the V of that grant is at most scoreᵢ. If it was after, k
//! was picked with a score of at most scoreᵢ. In both cases V ≤ scoreᵢ + R̂ₖ/wₖ. Let
//! Fᵢ = wᵢ · maxₖ R̂ₖ/wₖ if a fresh flow was granted while *i* was fresh too, and else 0. Then
//! sᵢ ≥ V − (P̂ᵢ + Fᵢ)/wᵢ.
//!
//! Both inequalities hold at the join and now. ΔUᵢ equals wᵢ·Δsᵢ, except for requests that were in flight when *i*
//! began to wait again, because these requests may count in U and not in s. Let Lᵢ be a sum over those of these
//! requests that were still in flight at the join; each adds its cost or its usage, whichever is smaller. Then for any
//! two flows
//!
//! ```text
//!     | ΔUᵢ/wᵢ − ΔUⱼ/wⱼ | ≤ Bᵢ/wᵢ + Bⱼ/wⱼ            B = R̂ + P̂ + L + F
//! ```
//!
//! ΔUᵢ − Iᵢ = wᵢ/W · Σⱼ wⱼ·(ΔUᵢ/wᵢ − ΔUⱼ/wⱼ), and therefore, in tokens,
//!
//! ```text
//!     | ΔUᵢ − Iᵢ | ≤ (1 − wᵢ/W)·Bᵢ + wᵢ/W · Σ_{j≠i} Bⱼ                                  (service)
//! ```
//!
//! # The bound on waiting
//! Let Eᵢ = Uᵢ + Pᵢ, which differs from wᵢ·scoreᵢ only by a constant. Let *i* be granted at the time g, and j at a
//! later time τ, without a grant to *i* in between. Because *i* was picked at g and j at τ, scoreᵢ(g) ≤ scoreⱼ(g) and
//! scoreⱼ(τ) ≤ scoreᵢ(τ), both before the grants are charged. So the tokens per weight that j was charged between g and
//! τ are at most those that *i* was charged. The tokens that *i* was charged are at most Mᵢ: the larger of cost and
//! usage of the request granted at g, plus the tokens that the older requests of *i* in flight use beyond their costs.
//! In addition, j is charged for its grant at τ, at most its largest cost ĉⱼ. It is also charged for the tokens Oⱼ that
//! its requests in flight use beyond their costs, at most the largest value Ôⱼ of Oⱼ so far:
//!
//! ```text
//!     Σ_{j≠i} (Eⱼ − Eⱼ(g)) ≤ Mᵢ·(W − wᵢ)/wᵢ + Σ_{j≠i} (ĉⱼ + Ôⱼ)                          (gap)
//! ```
//!
//! From the join to the first grant to *i*, there is no grant g to begin with. At the join, scoreᵢ ≤ V +
//! (R̂ᵢ + Pᵢ + Oᵢ)/wᵢ and scoreⱼ ≥ V − (P̂ⱼ + F̂ⱼ)/wⱼ. So Mᵢ = R̂ᵢ + Pᵢ + Oᵢ, and P̂ⱼ + F̂ⱼ are added to ĉⱼ + Ôⱼ.
//!
//! # Where a flow is hindered
//! Two things keep a flow from being granted although the pool has a free slot. First, a request
//! that failed on a worker that died is submitted again and may go only to the other workers. It
//! stays at the head of its flow until one of them has a free slot. Second, a flow may have nothing
//! queued for a moment, because its clients have not sent their next requests yet (at the join, or
//! when the machine pauses). Such a moment lasts at most 50 ms here; if it is longer, the measured
//! window ends.
//!
//! V may rise during such a hindrance. At the end of the hindrance sᵢ is raised although *i* used no tokens: by at most
//! the rise of V if *i* was blocked, or up to V if *i* had nothing queued. So a blocked flow loses nothing, and an idle
//! flow saves up nothing. V rises to the settled score of some flow k, and thus by at most (R̂ₖ + ΔUₖ)/wₖ during the
//! hindrance. So for each hindrance, Hᵢ = wᵢ · maxₖ (R̂ₖ + ΔUₖ)/wₖ is added to Bᵢ in *service* and to Mᵢ in *gap*. If
//! *i* began to wait again, its earlier Fᵢ is added to Hᵢ, and its requests in flight at that time are added to Lᵢ.
//! Tokens that others are charged during the hindrance are not counted in the gap of *i*. If j is hindered when *i* is
//! granted, scoreᵢ(g) ≤ scoreⱼ(g) need not hold; then both scores are known only relative to V, as at the join.
//!
//! A request that ends counts with the tokens that it used, but with at least one token, even if
//! its slot was given back unused.
//!
//! Both bounds are checked after every step of the journal in whole numbers, with both sides
//! multiplied by W or wᵢ. (Scores are rounded down to 2⁻³² tokens per weight. Multiplied by weights
//! of some hundreds, the error is far below 1, and both sides are whole numbers.)

mod meter;
mod window;

use fairgate_core::units::Micros;

use self::meter::ServiceMeter;
use self::window::ServiceWindow;
use crate::replay::ReplayedJournal;
use crate::scenario::Scenario;

/// Measured service of all tenants. The letters in these comments are the symbols of the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct MeasuredService {
    /// Beginning (the join) and end of the measured window, in which all tenants had requests
    /// queued; `None` if there is no such window.
    pub(crate) window: Option<(Micros, Micros)>,
    /// Number and total length of the lapses within the window, which are short times in which a
    /// tenant had nothing queued.
    pub(crate) lapses: (usize, Micros),
    /// Service of each tenant, in the order of the scenario.
    pub(crate) flows: Vec<FlowService>,
    /// Sum of all tenants' weights, W.
    pub(crate) weights: i128,
    /// Counters after each event that changed them, from the start of the experiment.
    pub(crate) course: Vec<ServiceMoment>,
}

/// Service of one tenant within the window.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowService {
    /// Tokens used by the tenant's requests that ended since the join, ΔU.
    pub(crate) got: i128,
    /// Ideal tokens of the tenant times the sum of weights, W·I.
    pub(crate) ideal_times_weights: i128,
    /// Moment at which |ΔU − I| came closest to its proven bound.
    pub(crate) off: ClosestToBound,
    /// The gap between two grants that came closest to its proven bound; `gap_max` is the largest
    /// gap, in tokens.
    pub(crate) gap: ClosestToBound,
    pub(crate) gap_max: i128,
    /// Number of the tenant's grants within the window.
    pub(crate) grants: u64,
    /// Wait of each request that was granted within the window.
    pub(crate) waits: Vec<Micros>,
}

/// Moment at which a measured value came closest to its bound. The measured value and the bound are
/// in tokens, multiplied by `scale`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosestToBound {
    pub(crate) measured: i128,
    pub(crate) bound: i128,
    pub(crate) scale: i128,
    pub(crate) at: Micros,
}

impl Default for ClosestToBound {
    fn default() -> Self {
        Self { measured: 0, bound: 0, scale: 1, at: Micros(0) }
    }
}

impl ClosestToBound {
    /// Replaces this value by `other` if the ratio measured/bound of `other` is higher. The ratios
    /// are compared by cross-multiplication.
    fn keep_closer(&mut self, other: Self) {
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

/// Counters of all tenants at one moment, in tokens.
#[derive(Clone, Debug)]
pub(crate) struct ServiceMoment {
    pub(crate) at: Micros,
    /// Number of the journal's event after which the counters had these values.
    pub(crate) event: u64,
    /// Tokens that each tenant's ended requests have used since the start.
    pub(crate) used: Vec<i128>,
    /// Ideal tokens of each tenant since the join, times W; `None` outside of the window.
    pub(crate) ideal_times_weights: Option<Vec<i128>>,
    /// Bound of each tenant on service, times W; `None` outside of the window.
    pub(crate) bound_times_weights: Option<Vec<i128>>,
    /// Number of requests in flight of each tenant.
    pub(crate) in_flight: Vec<u64>,
    /// True if all tenants have requests queued.
    pub(crate) all_wait: bool,
}

/// Measures the service of each tenant in a replayed journal.
pub(crate) fn measure(scenario: &Scenario, replay: &ReplayedJournal) -> MeasuredService {
    let window = ServiceWindow::find(replay, scenario.tenants.len());
    let mut meter = ServiceMeter::new(scenario, &replay.requests);
    for (number, step) in replay.steps.iter().enumerate() {
        let request = &replay.requests[step.request];
        if let Some(flow) = request.tenant {
            meter.step(step, flow, request);
            meter.look(step.at, window.steps.contains(&number));
            meter.note(step);
        }
    }
    MeasuredService { lapses: window.lapses, ..meter.service }
}

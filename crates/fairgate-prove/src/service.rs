//! Service, measured: who got how many tokens while all of them waited, how far that is from each one's ideal, and how
//! long each had to watch the others.
//!
//! # What is measured
//! Flows 1…n of one share node, with weights wᵢ and W = Σw. From the join on, when all of them wait, until one of them no
//! longer does (the longest such time; see below for moments in which one does not). ΔUᵢ is what flow *i*'s requests that
//! ended since the join really used, in tokens. Its ideal is its part of what all of them used: Iᵢ = wᵢ/W · ΣⱼΔUⱼ.
//!
//! # The bound on service
//! The share node keeps a virtual time V and picks the lowest score (`fairgate_core::share`). With sᵢ = settledᵢ, tokens
//! per weight that ended, and Pᵢ the costs of what *i* has in flight, scoreᵢ = sᵢ + Pᵢ/wᵢ. Let Rᵢ be what those in flight
//! will really use; P̂ᵢ and R̂ᵢ are the largest that both have been so far. At each grant V rises to the lesser of two: the
//! highest settled of the ready flows, and the lowest score of those ready flows that are not new. A flow is *fresh* where
//! it has had no grant since it last began to wait; only a fresh flow can be new.
//!
//! *Ahead*: at *i*'s last grant V rose to sᵢ at least, for sᵢ is no more than the highest settled, and scoreᵢ is the lowest
//! of all. Since then only what was in flight then has ended, so sᵢ ≤ V + R̂ᵢ/wᵢ.
//!
//! *Behind*: where *i* was not new when V last rose, V ≤ scoreᵢ then, and since then sᵢ did not fall, so sᵢ ≥ V − P̂ᵢ/wᵢ.
//! Where it was new, V may have passed scoreᵢ: at a grant to another new flow, while all others stood higher. It went no
//! further than the settled height of some k. If k's last grant was before *i* began to wait, sₖ ≤ V then + R̂ₖ/wₖ, and
//! V ≤ scoreᵢ; if after, k was picked with a score of at most scoreᵢ. Either way V ≤ scoreᵢ + R̂ₖ/wₖ. So with
//! Fᵢ = wᵢ · maxₖ R̂ₖ/wₖ, where a fresh flow was granted while *i* was fresh too, and else 0: sᵢ ≥ V − (P̂ᵢ + Fᵢ)/wᵢ.
//!
//! Taken at the join and now, with ΔUᵢ = wᵢ·Δsᵢ but for what was in flight when *i* began to wait anew (Lᵢ: the smaller of
//! cost and usage of those that still were at the join; they may count in U and not in s), for any two flows
//!
//! ```text
//!     | ΔUᵢ/wᵢ − ΔUⱼ/wⱼ | ≤ Bᵢ/wᵢ + Bⱼ/wⱼ            B = R̂ + P̂ + L + F
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
//! From the join to *i*'s first grant there is no g. Then scoreᵢ ≤ V + (R̂ᵢ + Pᵢ + Oᵢ)/wᵢ and scoreⱼ ≥ V − (P̂ⱼ + F̂ⱼ)/wⱼ
//! at the join, so Mᵢ = R̂ᵢ + Pᵢ + Oᵢ, and P̂ⱼ + F̂ⱼ join ĉⱼ + Ôⱼ.
//!
//! # Where a flow is hindered
//! Two things keep a flow from going although the pool has room. A request that failed on a worker that died is submitted
//! again, may go to the other workers only, and stands at the head of its flow until one of them has room. And a flow does
//! not wait at all for a moment, where its clients did not get to send the next requests (at the join, or when the machine
//! stands still); such a time is at most 50 ms here, or the measured time ends with it.
//!
//! V may rise meanwhile. When it is over, sᵢ is raised without tokens: where *i* was blocked, by no more than V has risen;
//! where nothing waited in it, up to V. The blocked lose nothing, the idle bank nothing. V rises to the settled height of
//! some k, by no more than (R̂ₖ + ΔUₖ)/wₖ over that time. So for each such time Hᵢ = wᵢ · maxₖ (R̂ₖ + ΔUₖ)/wₖ joins Bᵢ in
//! *service* and Mᵢ in *gap*; where *i* begins to wait anew, the Fᵢ of before joins Hᵢ, and what is in flight then joins
//! Lᵢ. What others are charged meanwhile is not counted in *i*'s gap. And where j is hindered when *i* is granted,
//! scoreᵢ(g) ≤ scoreⱼ(g) need not hold: both are known against V only, as at the join.
//!
//! A request that ends counts what it used, at least one token: so also one that was given back unused.
//!
//! All of it is checked in whole numbers, both sides times W or wᵢ, after every step of the journal. (Scores are rounded
//! down to 2⁻³² tokens per weight. Times weights of some hundreds that is far below 1, and the sides are whole.)

mod meter;
mod window;

use fairgate_core::units::Micros;

use self::meter::Meter;
use self::window::Window;
use crate::replay::Replay;
use crate::scenario::Scenario;

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Service {
    /// From the join to the last moment at which all waited; none where they never all did.
    pub(crate) window: Option<(Micros, Micros)>,
    /// How often somebody did not wait for a moment in between, and for how long in all.
    pub(crate) lapses: (usize, Micros),
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
    /// How many are in flight.
    pub(crate) in_flight: Vec<u64>,
    /// Whether all wait.
    pub(crate) all_wait: bool,
}

/// Measures a replay.
pub(crate) fn measure(scenario: &Scenario, replay: &Replay) -> Service {
    let window = Window::find(replay, scenario.tenants.len());
    let mut meter = Meter::new(scenario, &replay.requests);
    for (number, step) in replay.steps.iter().enumerate() {
        let request = &replay.requests[step.request];
        if let Some(flow) = request.tenant {
            meter.step(step, flow, request);
            meter.look(step.at, window.steps.contains(&number));
            meter.note(step);
        }
    }
    Service { lapses: window.lapses, ..meter.service }
}

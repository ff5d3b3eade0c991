//! Worker time in the gateway: one meter for each own worker, and the costs that follow from its prices.
//!
//! The rules are in `fairgate-price`. This module adds a clock, the names of pools, tenants and models, and a lock. A
//! meter learns in every pool that sees all requests of its worker, in whatever unit the pool counts, so that `fairgate
//! calibrate` can tell what a change of the unit would bring. Pools that use the same worker share its meter
//! (`pools/worker_meters.rs`).
//!
//! An attempt is counted on the terms that were in force when it got its slot, so a change of prices or of the unit
//! concerns later attempts only. Terms from before anything was learned are an exception: an attempt that got its slot
//! on them is counted on the terms in force at its end. If the pool counts worker time, the row of the attempt has the
//! id of its price set ([`PriceSetRecord`]), and the audit trail has the set.

mod price_sets;
mod recent_time;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::mem::discriminant;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fairgate_dialect::TokenUsage;
use fairgate_price::worker_time::{
    FullBatch, GrantedRequest, LearningState, MeterStatus, MeteredRequest, NearestTokenWeights,
    PredictedWindow, RequestWork, WorkSource, WorkerPriceSet, WorkerPrices, WorkerTimeMeter,
};

use self::price_sets::UsedPriceSets;
pub(crate) use self::price_sets::{AttemptTerms, PriceSetRecord};
use self::recent_time::RecentTime;

/// Greatest number of tenants, and of pairs of tenant and model, that a meter keeps by name.
const NAMES_MAX: usize = 1024;
/// Least time between two updates of the notes, in microseconds.
const NOTES_INTERVAL_US: u64 = 30_000_000;
/// Least numbers before a note is made: seconds of full windows for the fill, windows for the deviation, requests for
/// cached tokens.
const FULL_SECONDS_MIN: u64 = 30;
const WINDOWS_MIN: u64 = 16;
const REQUESTS_MIN: u64 = 100;
/// The least part of the slots that should decode while all are taken, in millionths.
const FILL_PPM_MIN: u64 = 800_000;
/// The most by which windows should be off, in millionths.
const DEVIATION_PPM_MAX: u64 = 100_000;

/// The meter of one worker, in all pools that use it.
pub(crate) struct WorkerMeter {
    /// Time zero of the meter's clock.
    started: Instant,
    /// Prices that the file states; `None` if they are learned.
    stated: Option<WorkerPrices>,
    hasher: RandomState,
    state: Mutex<WorkerMeterState>,
}

struct WorkerMeterState {
    meter: WorkerTimeMeter,
    /// Tenant and model of each source.
    names: BTreeMap<WorkSource, (Box<str>, Box<str>)>,
    /// Completed work by pool, and there by tenant.
    tenants: BTreeMap<Box<str>, BTreeMap<Box<str>, TenantWork>>,
    /// Price sets by which attempts were counted.
    used_sets: UsedPriceSets,
    /// Completed requests whose answers reported cached tokens, even if there were none.
    reported_cached: u64,
    completed: u64,
    /// Time of the last update of the notes, and the notes at that time.
    noted_us: u64,
    noted: Vec<MeterNote>,
}

/// Reason why learned prices are not exact.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MeterNote {
    NothingStreams,
    /// Part of the slots that decode while all are taken, in percent.
    LowFill(u64),
    /// Typical error of the predicted lengths of windows, in percent, and the tenant in whose presence it is greatest.
    WindowsOff(u64, Option<Box<str>>),
    NoCachedTokens,
}

impl fmt::Display for MeterNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingStreams => f.write_str(
                "nothing streams, so nothing is learned: one request in a hundred that streams is enough; see \
                 docs/currency.md#nothing-streams",
            ),
            Self::LowFill(fill) => write!(
                f,
                "only {fill} % of the slots decode while all are taken: the slots are more than the engine's batch; see \
                 docs/currency.md#slots-above-the-batch"
            ),
            Self::WindowsOff(off, tenant) => {
                write!(f, "windows are {off} % from predicted")?;
                if let Some(tenant) = tenant {
                    write!(f, ", most while {tenant:?} is served")?;
                }
                f.write_str(
                    ": others use the worker, or work that tokens do not show; see \
                     docs/currency.md#windows-far-from-predicted",
                )
            }
            Self::NoCachedTokens => f.write_str(
                "no answer reported cached tokens, so cached prompts are priced as read: start vLLM with \
                 --enable-prompt-tokens-details, SGLang with --enable-cache-report; see \
                 docs/currency.md#cached-tokens-not-reported",
            ),
        }
    }
}

/// Summary of the meter of a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerCalibration {
    /// Name of the worker.
    pub worker: String,
    /// Number of its slots, over all ranks.
    pub slots: u64,
    /// Name of the state of the learning: `start`, `learning`, `nothing_streams`, `quiet` or `stated`.
    pub learning: &'static str,
    /// State of the meter.
    pub status: MeterStatus,
    /// Number of the price set, counted from 0 since the meter started.
    pub price_set: u64,
    /// The six prices in picoseconds, in the order of their names in the configuration.
    pub prices: [u64; 6],
    /// Number of requests that the full worker decodes at once, in thousandths.
    pub batch_thousandths: u64,
    /// Sentences about what keeps the prices from being exact.
    pub notes: Vec<String>,
    /// A typical request of each tenant and model that the worker served lately.
    pub requests: Vec<TypicalRequest>,
    /// Completed work of each tenant since the meter started.
    pub tenants: Vec<(Box<str>, TenantWork)>,
    /// Worker time of each tenant's work that was completed in the last minute, in microseconds.
    pub recent_us: Vec<(Box<str>, u64)>,
    /// The last windows that prices were learned from, the oldest first.
    pub windows: Vec<PredictedWindow>,
}

/// Returns the weights of tokens that come nearest to worker time, over the typical requests of all workers.
pub fn nearest_token_weights(workers: &[WorkerCalibration]) -> Option<NearestTokenWeights> {
    let requests = workers.iter().flat_map(|worker| &worker.requests);
    let costs: Vec<_> = requests.map(|request| (request.work, request.cost_us)).collect();
    NearestTokenWeights::of(&costs)
}

/// Completed work of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantWork {
    /// Input and output tokens.
    pub tokens: u64,
    /// Cost in microseconds of the full worker, at the prices of the time when each request ended.
    pub time_us: u64,
    /// Cost of the requests that ended in the last minute.
    pub(crate) recent: RecentTime,
}

/// A tenant and a model, and a typical request of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypicalRequest {
    /// Name of the tenant.
    pub tenant: Box<str>,
    /// Name of the model, as clients name it.
    pub model: Box<str>,
    /// Means over the recent requests.
    pub work: RequestWork,
    /// Cost in microseconds of the full worker, at the prices in force.
    pub cost_us: u64,
    /// How far the cost may be from the truth, in microseconds: two standard deviations. `None` if it is unknown.
    pub margin_us: Option<u64>,
}

/// An attempt that its worker's meter follows. Dropping it ends it with unknown usage.
pub(crate) struct MeteredAttempt {
    meter: Arc<WorkerMeter>,
    /// The meter's number of the attempt; `None` if the meter has too many to follow.
    id: Option<MeteredRequest>,
    has_ended: bool,
}

/// The terms on which the scheduler counts an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostTerms {
    /// The attempt costs its charged tokens.
    Tokens,
    /// The attempt costs microseconds of a full worker.
    WorkerTime(WorkerTimeTerms),
    /// The attempt costs the micro-units of money that its provider takes.
    Money,
}

/// Prices of a worker's time, and the batch of the full worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WorkerTimeTerms {
    pub(crate) prices: WorkerPrices,
    pub(crate) batch: FullBatch,
    /// True if nothing was learned yet: a request that is granted on these terms is settled on the terms in force at
    /// its end.
    pub(crate) is_guess: bool,
}

impl WorkerTimeTerms {
    /// Returns what a price set states.
    pub(crate) fn of(set: &WorkerPriceSet) -> Self {
        Self { prices: set.prices, batch: set.batch, is_guess: set.is_guess }
    }

    /// Returns the mean of workers' terms, weighted by their slots; `None` if there are no workers.
    pub(crate) fn mean(workers: &[(Self, u64)]) -> Option<Self> {
        let prices: Vec<_> = workers.iter().map(|(terms, slots)| (terms.prices, *slots)).collect();
        let prices = WorkerPrices::mean(&prices)?;
        let slots: u128 = workers.iter().map(|(_, slots)| u128::from((*slots).max(1))).sum();
        let batches = workers.iter().map(|(terms, slots)| {
            u128::from(terms.batch.thousandths()) * u128::from((*slots).max(1))
        });
        let mean = batches.fold(0, u128::saturating_add) / slots;
        let batch = FullBatch::from_thousandths(u64::try_from(mean).unwrap_or(u64::MAX));
        let is_guess = workers.iter().any(|(terms, _)| terms.is_guess);
        Some(Self { prices, batch, is_guess })
    }

    /// Returns the cost of a usage in microseconds; 0 if nothing was used.
    pub(crate) fn cost(&self, usage: TokenUsage, choices: u64) -> u64 {
        match usage == TokenUsage::default() {
            true => 0,
            false => self.prices.cost(work(usage, choices)),
        }
    }

    /// Returns what it costs to hold a slot for this time, in microseconds.
    pub(crate) fn slot_cost(&self, held: Duration) -> u64 {
        self.batch.slot_cost(held)
    }
}

/// Returns the work of a request with this usage and number of answers.
pub(crate) fn work(usage: TokenUsage, choices: u64) -> RequestWork {
    let TokenUsage { input, cached, output } = usage;
    RequestWork { input, cached, output, choices }
}

impl WorkerMeter {
    /// Creates the meter of a worker with this number of slots. It learns unless prices are stated.
    pub(crate) fn new(slots: u64, stated: Option<WorkerPrices>) -> Self {
        let slots = whole_slots(slots);
        let meter = match stated {
            Some(prices) => WorkerTimeMeter::stated(slots, prices),
            None => WorkerTimeMeter::new(slots),
        };
        Self {
            started: Instant::now(),
            stated,
            hasher: RandomState::new(),
            state: Mutex::new(WorkerMeterState {
                meter,
                names: BTreeMap::new(),
                tenants: BTreeMap::new(),
                used_sets: UsedPriceSets::default(),
                reported_cached: 0,
                completed: 0,
                noted_us: 0,
                noted: Vec::new(),
            }),
        }
    }

    /// Returns the prices that the file states; `None` if they are learned.
    pub(crate) fn stated(&self) -> Option<WorkerPrices> {
        self.stated
    }

    /// Sets the number of the worker's slots. The prices follow at once.
    pub(crate) fn set_slots(&self, at: Instant, slots: u64) {
        let now_us = self.now_us(at);
        self.lock().meter.set_slots(now_us, whole_slots(slots));
    }

    /// Notes that a request has gone to the worker. `streams` is true if its answer comes in pieces as the model writes
    /// it.
    pub(crate) fn granted(
        self: &Arc<Self>,
        at: Instant,
        (tenant, model): (&str, &str),
        expected: RequestWork,
        streams: bool,
    ) -> MeteredAttempt {
        let source = self.source(tenant, model);
        let now_us = self.now_us(at);
        let mut state = self.lock();
        state.note_name(source, tenant, model);
        let id = state.meter.granted(now_us, GrantedRequest { source, expected, streams });
        drop(state);
        MeteredAttempt { meter: self.clone(), id, has_ended: false }
    }

    /// Returns the prices that hold now.
    pub(crate) fn price_set(&self) -> WorkerPriceSet {
        *self.lock().meter.price_set()
    }

    /// Returns the terms that hold now, and the id of their price set, by which an attempt on this worker is counted.
    pub(crate) fn charged_terms(
        &self,
        pool: &str,
        worker: &Arc<str>,
    ) -> (WorkerTimeTerms, Arc<str>) {
        let mut state = self.lock();
        let set = *state.meter.price_set();
        let id = state.used_sets.id_of(set, (pool, worker), self.stated.is_some());
        (WorkerTimeTerms::of(&set), id)
    }

    /// Takes the price sets by which attempts were counted since the last call.
    pub(crate) fn take_used_sets(&self) -> Vec<PriceSetRecord> {
        self.lock().used_sets.take()
    }

    /// Returns a typical request of this tenant and model; `None` if none has ended on this worker lately.
    pub(crate) fn typical_request(&self, tenant: &str, model: &str) -> Option<RequestWork> {
        let source = self.source(tenant, model);
        self.lock().meter.typical_request(source)
    }

    /// Returns a summary of the meter of the worker with this name, with the work of a pool's tenants.
    pub(crate) fn calibration(&self, pool: &str, worker: &str, slots: u64) -> WorkerCalibration {
        let now_us = self.now_us(Instant::now());
        let state = self.lock();
        let (status, set) = (state.meter.status(), *state.meter.price_set());
        let named = |(source, work)| {
            let (tenant, model) = state.names.get(&source)?.clone();
            let (cost_us, margin_us) = (set.prices.cost(work), state.meter.cost_margin(work));
            Some(TypicalRequest { tenant, model, work, cost_us, margin_us })
        };
        let tenants = state.tenants_of(pool);
        let recent = tenants.iter().map(|(name, work)| (name.clone(), work.recent.sum(now_us)));
        WorkerCalibration {
            recent_us: recent.collect(),
            worker: worker.to_owned(),
            slots,
            learning: learning_name(status.learning),
            price_set: set.number,
            prices: in_order(&set.prices),
            batch_thousandths: set.batch.thousandths(),
            notes: state.notes().iter().map(ToString::to_string).collect(),
            requests: state.meter.typical_requests().filter_map(named).collect(),
            tenants,
            windows: state.meter.recent_windows().collect(),
            status,
        }
    }

    /// Counts a completed request of a tenant in a pool. `reports_cached` is true if its answer reported cached tokens.
    pub(crate) fn count_completed(
        &self,
        (pool, tenant): (&str, &str),
        work: RequestWork,
        reports_cached: bool,
    ) {
        let now_us = self.now_us(Instant::now());
        let mut state = self.lock();
        let time_us = state.meter.price_set().prices.cost(work);
        state.completed = state.completed.saturating_add(1);
        state.reported_cached = state.reported_cached.saturating_add(u64::from(reports_cached));
        if !state.tenants.contains_key(pool) {
            state.tenants.insert(pool.into(), BTreeMap::new());
        }
        let Some(tenants) = state.tenants.get_mut(pool) else { return };
        let is_full = tenants.len() >= NAMES_MAX;
        let sum = match tenants.get_mut(tenant) {
            Some(sum) => sum,
            None if is_full => return,
            None => tenants.entry(tenant.into()).or_default(),
        };
        sum.tokens = sum.tokens.saturating_add(work.input).saturating_add(work.output);
        sum.time_us = sum.time_us.saturating_add(time_us);
        sum.recent.add(now_us, time_us);
    }

    /// Returns the new reasons since the last update why the prices are not exact; empty if that update was less than
    /// 30 s ago.
    pub(crate) fn new_notes(&self, at: Instant) -> Vec<String> {
        self.lock().new_notes(self.now_us(at))
    }

    fn source(&self, tenant: &str, model: &str) -> WorkSource {
        WorkSource(self.hasher.hash_one((tenant, model)))
    }

    fn now_us(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.started).as_micros()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, WorkerMeterState> {
        // The state stays usable after a panic, which could only come from the arithmetic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WorkerMeterState {
    fn notes(&self) -> Vec<MeterNote> {
        let status = self.meter.status();
        let worst = status.worst_source.and_then(|source| self.names.get(&source));
        let worst = worst.map(|(tenant, _)| tenant.clone());
        notes(&status, self.completed, self.reported_cached, worst)
    }

    fn tenants_of(&self, pool: &str) -> Vec<(Box<str>, TenantWork)> {
        let of_pool = self.tenants.get(pool).into_iter().flatten();
        of_pool.map(|(tenant, work)| (tenant.clone(), *work)).collect()
    }

    /// Updates the notes and returns the new ones; empty if the last update was less than [`NOTES_INTERVAL_US`] ago.
    fn new_notes(&mut self, now_us: u64) -> Vec<String> {
        if now_us.saturating_sub(self.noted_us) < NOTES_INTERVAL_US {
            return Vec::new();
        }
        self.noted_us = now_us;
        let now = self.notes();
        let before = std::mem::replace(&mut self.noted, now);
        let held =
            |note: &MeterNote| before.iter().any(|old| discriminant(old) == discriminant(note));
        self.noted.iter().filter(|note| !held(note)).map(ToString::to_string).collect()
    }

    fn note_name(&mut self, source: WorkSource, tenant: &str, model: &str) {
        if self.names.contains_key(&source) {
            return;
        }
        if self.names.len() >= NAMES_MAX {
            let known: Vec<WorkSource> =
                self.meter.typical_requests().map(|(source, _)| source).collect();
            self.names.retain(|source, _| known.contains(source));
        }
        self.names.insert(source, (tenant.into(), model.into()));
    }
}

impl MeteredAttempt {
    /// Notes events of a stream with output.
    pub(crate) fn note_output(&self, at: Instant, events: u32) {
        let Some(id) = self.id else { return };
        let now_us = self.meter.now_us(at);
        let mut state = self.meter.lock();
        for _ in 0..events {
            state.meter.chunk(now_us, id);
        }
    }

    /// Notes the end of the attempt, with its work if that is known.
    pub(crate) fn end(mut self, at: Instant, work: Option<RequestWork>) {
        self.end_once(at, work);
    }

    fn end_once(&mut self, at: Instant, work: Option<RequestWork>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let now_us = self.meter.now_us(at);
        let mut state = self.meter.lock();
        match self.id {
            Some(id) => state.meter.ended(now_us, id, work),
            None => state.meter.ended_untracked(now_us),
        }
    }
}

impl Drop for MeteredAttempt {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end_once(Instant::now(), None);
        }
    }
}

/// Returns prices in the order of their names in the configuration.
pub(crate) fn in_order(prices: &WorkerPrices) -> [u64; 6] {
    let WorkerPrices { request, input, input_input, cached, output, context_output } = *prices;
    [request, input, input_input, cached, output, context_output]
}

fn learning_name(state: LearningState) -> &'static str {
    match state {
        LearningState::Start => "start",
        LearningState::Learning => "learning",
        LearningState::NothingStreams => "nothing_streams",
        LearningState::Quiet => "quiet",
        LearningState::Stated => "stated",
    }
}

/// Returns the reasons why learned prices are not exact; none for stated prices.
fn notes(
    status: &MeterStatus,
    completed: u64,
    reported_cached: u64,
    worst: Option<Box<str>>,
) -> Vec<MeterNote> {
    if status.learning == LearningState::Stated {
        return Vec::new();
    }
    let is_silent = status.learning == LearningState::NothingStreams;
    let has_low_fill = status.full_seconds >= FULL_SECONDS_MIN && status.fill_ppm < FILL_PPM_MIN;
    let is_off = status.windows >= WINDOWS_MIN && status.deviation_ppm > DEVIATION_PPM_MAX;
    let hides_cached = completed >= REQUESTS_MIN && reported_cached == 0;
    let notes = [
        is_silent.then_some(MeterNote::NothingStreams),
        has_low_fill.then_some(MeterNote::LowFill(status.fill_ppm / 10_000)),
        is_off.then_some(MeterNote::WindowsOff(status.deviation_ppm / 10_000, worst)),
        hides_cached.then_some(MeterNote::NoCachedTokens),
    ];
    notes.into_iter().flatten().collect()
}

fn whole_slots(slots: u64) -> u32 {
    u32::try_from(slots.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: WorkerPrices = WorkerPrices {
        request: 2_490_000_000,
        input: 10_600_000,
        input_input: 1_200,
        cached: 800_000,
        output: 188_000_000,
        context_output: 26_000,
    };
    const WORK: RequestWork = RequestWork { input: 100, cached: 25, output: 10, choices: 1 };

    #[test]
    fn a_mean_of_terms_weighs_batches_by_slots() {
        let terms = |thousandths| WorkerTimeTerms {
            prices: PRICES,
            batch: FullBatch::from_thousandths(thousandths),
            is_guess: thousandths == 16_000,
        };
        let mean = WorkerTimeTerms::mean(&[(terms(16_000), 16), (terms(4_000), 8)]).unwrap();
        assert_eq!((mean.prices, mean.batch.thousandths(), mean.is_guess), (PRICES, 12_000, true));
        assert_eq!(WorkerTimeTerms::mean(&[]), None);
    }

    #[test]
    fn nothing_used_costs_nothing() {
        let batch = FullBatch::from_thousandths(16_000);
        let terms = WorkerTimeTerms { prices: PRICES, batch, is_guess: false };
        assert_eq!(terms.cost(TokenUsage::default(), 1), 0);
        let usage = TokenUsage { input: 4096, cached: 0, output: 64 };
        assert_eq!(terms.cost(usage, 1), 74_579);
        assert_eq!(terms.slot_cost(Duration::from_secs(16)), 1_000_000);
    }

    #[test]
    fn an_attempt_ends_once_also_if_it_is_dropped() {
        let meter = Arc::new(WorkerMeter::new(16, None));
        let at = Instant::now();
        let attempt = || meter.granted(at, ("chat", "llama"), WORK, true);
        drop(attempt());
        assert_eq!(meter.typical_request("chat", "llama"), None);
        let streamed = attempt();
        streamed.note_output(at + Duration::from_millis(5), 3);
        streamed.end(at + Duration::from_millis(9), Some(WORK));
        assert_eq!(meter.typical_request("chat", "llama"), Some(WORK));
        meter.count_completed(("pool", "chat"), WORK, false);
        assert!(meter.calibration("other", "gpu", 16).tenants.is_empty());
        let seen = meter.calibration("pool", "gpu", 16);
        let cost_us = meter.price_set().prices.cost(WORK);
        let typical = TypicalRequest {
            tenant: "chat".into(),
            model: "llama".into(),
            work: WORK,
            cost_us,
            margin_us: None,
        };
        assert_eq!((seen.requests, seen.learning), (vec![typical], "start"));
        assert!(matches!(&seen.tenants[..], [(name, TenantWork { tokens: 110, time_us, .. })]
            if &**name == "chat" && *time_us == cost_us));
        assert_eq!(seen.recent_us, [("chat".into(), cost_us)]);
        assert!(seen.windows.is_empty());
    }

    #[test]
    fn names_are_bounded() {
        let meter = Arc::new(WorkerMeter::new(16, Some(PRICES)));
        for i in 0..3 * NAMES_MAX {
            let (tenant, now) = (i.to_string(), Instant::now());
            meter.granted(now, (&tenant, "llama"), WORK, false).end(now, Some(WORK));
            meter.count_completed(("pool", &tenant), WORK, false);
        }
        let seen = meter.calibration("pool", "gpu", 16);
        assert!(meter.lock().names.len() <= NAMES_MAX && !seen.requests.is_empty());
        assert_eq!(seen.tenants.len(), NAMES_MAX);
    }

    #[test]
    fn what_keeps_prices_from_being_exact_is_told_once_it_is_known() {
        let good = MeterStatus {
            learning: LearningState::Learning,
            windows: 20,
            changes: 0,
            deviation_ppm: 20_000,
            fill_ppm: 950_000,
            full_seconds: 30,
            worst_source: None,
        };
        let of = |status: MeterStatus, reported| notes(&status, 100, reported, Some("rag".into()));
        assert!(of(good, 1).is_empty() && notes(&good, 99, 0, None).is_empty());
        assert_eq!(of(good, 0), [MeterNote::NoCachedTokens]);
        let fill_ppm = 250_000;
        assert_eq!(of(MeterStatus { fill_ppm, ..good }, 1), [MeterNote::LowFill(25)]);
        assert!(of(MeterStatus { fill_ppm, full_seconds: 29, ..good }, 1).is_empty());
        let deviation_ppm = 120_000;
        let off = of(MeterStatus { deviation_ppm, ..good }, 1);
        assert_eq!(off, [MeterNote::WindowsOff(12, Some("rag".into()))]);
        assert!(off[0].to_string().contains("most while \"rag\" is served"), "{}", off[0]);
        assert!(of(MeterStatus { deviation_ppm, windows: 15, ..good }, 1).is_empty());
        let silent = MeterStatus { learning: LearningState::NothingStreams, ..good };
        assert_eq!(of(silent, 1), [MeterNote::NothingStreams]);
        let stated = MeterStatus { learning: LearningState::Stated, fill_ppm, ..good };
        assert!(of(stated, 0).is_empty());
    }

    #[test]
    fn a_note_is_new_once() {
        let meter = WorkerMeter::new(16, None);
        let later = |seconds| meter.started + Duration::from_secs(seconds);
        for _ in 0..100 {
            meter.count_completed(("pool", "chat"), WORK, false);
            assert!(meter.new_notes(later(1)).is_empty());
        }
        let told = meter.new_notes(later(31));
        assert!(matches!(&told[..], [note] if note.starts_with("no answer reported")), "{told:?}");
        assert!(meter.new_notes(later(62)).is_empty());
    }
}

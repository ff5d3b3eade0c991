//! The meter of one worker. It learns from what a gateway observes, and states the worker's prices.

use super::cost::{FullBatch, RequestWork, WorkerPrices};
use super::float_math::{count, square_root, whole};
use super::full_windows::FullWindows;
use super::recent_windows::{PredictedWindow, RecentWindows};
use super::running_requests::{MeteredRequest, RunningRequest, RunningRequests};
use super::source_deviations::{SourceBits, SourceDeviations};
use super::window_log::{
    DecodingSpan, EngineSteps, PromptWork, WindowLog, WorkWindow, milliseconds,
};
use super::window_model::WindowModel;
use super::work_sources::{WorkSource, WorkSources};

/// Least time between two price sets, in microseconds.
const PRICE_INTERVAL_US: u64 = 5_000_000;
/// A new price set is published if the cost of some source's typical request changes by at least 1 ÷ this number.
const PRICE_CHANGE_MIN: u64 = 100;
/// Least pause after a chunk, in microseconds, that ends a burst. The chunks of one step follow each other faster.
const BURST_GAP_US: u64 = 500;
/// Longest time, in microseconds, for which a window that may be closed stays open if a burst does not end.
const BURST_US_MAX: u64 = 5_000;
/// Greatest number of tokens that a choice gets in a step. If more tokens per step came, the worker had held them back
/// and sent them at once.
const STEP_TOKENS_MAX: f64 = 4.0;
/// Longest time, in microseconds, that the prompt of a request without chunks may take. If such a request was granted
/// earlier than this before a window opened, it counts as decoding in that window.
const PROMPT_US_MAX: u64 = 10_000_000;
/// Time between two estimates of prices before the first window is complete, in microseconds.
const FIRST_LOOK_INTERVAL_US: u64 = 1_000_000;
/// Number of windows that each of these early estimates uses.
const FIRST_LOOK_WINDOWS: usize = 32;
/// Number of standard deviations in a margin.
const MARGIN_DEVIATIONS: f64 = 2.0;
/// Standard deviation of a normal error whose mean size is 1: √(π/2).
const MEAN_ERROR_DEVIATIONS: f64 = 1.253_314;
/// Time without a usable window, in microseconds, after which the status of a meter says why.
const QUIET_US: u64 = 30_000_000;

/// A request that was granted a slot at the worker.
#[derive(Clone, Copy, Debug)]
pub struct GrantedRequest {
    /// The tenant and model of the request.
    pub source: WorkSource,
    /// The work that is expected of the request. The number of `choices` must be exact.
    pub expected: RequestWork,
    /// True if the gateway will see the request's chunks while the engine makes them.
    pub streams: bool,
}

/// The prices of a worker at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerPriceSet {
    /// Number of the set, counted from 0 for each meter.
    pub number: u64,
    /// The six prices in picoseconds.
    pub prices: WorkerPrices,
    /// The batch of the full worker for which the prices are valid.
    pub batch: FullBatch,
    /// True if no window was complete when the set was published, so that its prices follow from the start ratios. A
    /// request that was granted at such prices is settled at the prices that apply at its end.
    pub is_guess: bool,
}

/// Summary of a meter, for people.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeterStatus {
    /// Present state of the meter's learning.
    pub learning: LearningState,
    /// Number of windows from which the prices follow.
    pub windows: u64,
    /// Number of times that the worker was found to have changed, so that its prices were learned again.
    pub changes: u64,
    /// Typical relative error of the predicted length of a window, in millionths.
    pub deviation_ppm: u64,
    /// Part of the slots that decode when the worker is full, in millionths.
    pub fill_ppm: u64,
    /// Seconds of full windows over which the fill is averaged; at most 30.
    pub full_seconds: u64,
    /// The source whose windows are furthest from their predicted lengths; `None` if they are not clearly further than
    /// all windows are.
    pub worst_source: Option<WorkSource>,
}

/// State of a meter's learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LearningState {
    /// No window is complete yet: the prices are the start ratios, or estimates from requests that still run.
    Start,
    /// The prices follow from the windows so far, and further windows change them.
    Learning,
    /// Requests end, but none of them streams, so nothing is learned. The prices stay the same.
    NothingStreams,
    /// There is too little work to learn from. The prices stay the same.
    Quiet,
    /// The prices were stated, and nothing is learned.
    Stated,
}

/// The meter of one worker. The documentation of the module says what a meter observes and what it computes.
#[derive(Clone, Debug)]
pub struct WorkerTimeMeter {
    slots: u32,
    now_us: u64,
    /// The step clock: steps of the engine since the meter was created.
    steps: EngineSteps,
    /// Time of the last chunk.
    chunk_us: u64,
    /// Time since which the open window waits for the end of a burst to be closed.
    closing_us: Option<u64>,
    /// Number of choices of the requests that stream and have had their first token.
    streams: f64,
    in_flight: u32,
    /// Number of requests in flight that stream and have not had their first token.
    prompts: u32,
    /// Number of requests in flight that do not stream.
    silent: u32,
    /// Number of requests in flight that the meter does not follow, because it had no room for them.
    untracked: u32,
    running: RunningRequests,
    sources: WorkSources,
    deviations: SourceDeviations,
    windows: WindowLog,
    model: WindowModel,
    full: FullWindows,
    recent: RecentWindows,
    price_set: WorkerPriceSet,
    is_stated: bool,
    interval_us: u64,
    priced_us: u64,
    /// Time of the last window that was used.
    learned_us: u64,
    /// Number of requests that have ended since the last window was used.
    ended_since: u64,
    /// Number of requests that have ended since the last window was used and that streamed.
    streamed_since: u64,
    /// The greatest prices that the present set can have.
    #[cfg(test)]
    pub(super) greatest_prices: WorkerPrices,
}

impl WorkerTimeMeter {
    /// Creates the meter of a worker with this number of slots. It begins with the prices of a usual engine.
    pub fn new(slots: u32) -> Self {
        Self::with_start_ratios(slots, [1.0; 7])
    }

    /// Creates a meter that always states these prices and learns nothing.
    pub fn stated(slots: u32, prices: WorkerPrices) -> Self {
        let mut meter = Self::new(slots);
        meter.is_stated = true;
        let batch = FullBatch::from_thousandths(u64::from(slots).saturating_mul(1000));
        meter.price_set = WorkerPriceSet { number: 0, prices, batch, is_guess: false };
        meter
    }

    pub(super) fn with_start_ratios(slots: u32, ratio_factors: [f64; 7]) -> Self {
        let (model, full) = (WindowModel::new(ratio_factors), FullWindows::default());
        let fit = model.fit();
        let prices = full.prices(&fit, slots);
        #[cfg(test)]
        let start = fit.start;
        Self {
            slots,
            now_us: 0,
            steps: 0.0,
            chunk_us: 0,
            closing_us: None,
            streams: 0.0,
            in_flight: 0,
            prompts: 0,
            silent: 0,
            untracked: 0,
            running: RunningRequests::default(),
            sources: WorkSources::default(),
            deviations: SourceDeviations::default(),
            windows: WindowLog::new(),
            model,
            full,
            recent: RecentWindows::new(),
            price_set: WorkerPriceSet {
                number: 0,
                prices,
                batch: full.full_batch(slots),
                is_guess: true,
            },
            is_stated: false,
            interval_us: PRICE_INTERVAL_US,
            priced_us: 0,
            learned_us: 0,
            ended_since: 0,
            streamed_since: 0,
            #[cfg(test)]
            greatest_prices: full.greatest_prices(&start, slots),
        }
    }

    #[cfg(test)]
    pub(super) fn set_price_interval(&mut self, interval_us: u64) {
        self.interval_us = interval_us;
    }

    /// Returns the prices that apply now.
    pub fn price_set(&self) -> &WorkerPriceSet {
        &self.price_set
    }

    /// Changes the number of the worker's slots, and publishes prices for that number at once.
    pub fn set_slots(&mut self, now_us: u64, slots: u32) {
        self.advance(now_us);
        if slots == self.slots {
            return;
        }
        self.slots = slots;
        self.windows.change_slots();
        match (self.is_stated, self.model.is_learned()) {
            (true, _) => {
                let batch = FullBatch::from_thousandths(u64::from(slots) * 1000);
                let number = self.price_set.number + 1;
                self.price_set = WorkerPriceSet { number, batch, ..self.price_set };
            }
            (false, true) => self.publish_learned(),
            (false, false) => self.publish_first_look(),
        }
    }

    /// Counts a request that was granted a slot at the worker. Returns `None` if the meter has no room to follow the
    /// request; report the end of such a request with [`Self::ended_untracked`].
    pub fn granted(&mut self, now_us: u64, granted: GrantedRequest) -> Option<MeteredRequest> {
        self.advance(now_us);
        if self.in_flight == 0 && self.untracked == 0 {
            // The worker was idle until now.
            self.closing_us = None;
            self.windows.restart(self.now_us, self.steps);
        }
        let GrantedRequest { source, expected, streams } = granted;
        let added = self.running.insert(RunningRequest {
            source,
            bit: self.deviations.bit(source),
            expected,
            choices: count(expected.choices.max(1)),
            tokens_per_chunk: self.sources.chunk_tokens(source),
            chunks: 0,
            streams,
            granted_us: self.now_us,
            granted_steps: self.steps,
            granted_window: self.windows.open_number(),
            first: None,
        });
        if added.is_none() {
            self.untracked = self.untracked.saturating_add(1);
            self.windows.spoil();
            return None;
        }
        self.in_flight += 1;
        *(if streams { &mut self.prompts } else { &mut self.silent }) += 1;
        self.windows.count_in_flight(self.in_flight);
        added
    }

    /// Counts a chunk with output of a request that streams. The first chunk shows that the request's prompt has been
    /// read.
    #[inline]
    pub fn chunk(&mut self, now_us: u64, id: MeteredRequest) {
        self.advance(now_us);
        if let Some(since_us) = self.closing_us {
            self.close_after_burst(since_us);
        }
        let Some(request) = self.running.get_mut(id).filter(|request| request.streams) else {
            return;
        };
        self.chunk_us = self.now_us;
        request.chunks = request.chunks.saturating_add(1);
        let is_first = request.first.is_none();
        if is_first {
            request.first = Some((self.steps, self.windows.open_number()));
            self.streams += request.choices;
            self.prompts -= 1;
        } else {
            self.steps += request.tokens_per_chunk / self.streams;
        }
        // The prompt of a request that does not stream may be read at any time, except at a first token.
        let is_between_prompts = is_first || (self.prompts == 0 && self.silent == 0);
        if is_between_prompts
            && self.closing_us.is_none()
            && self.windows.may_close(self.now_us, self.steps)
        {
            self.closing_us = Some(self.now_us);
        }
    }

    /// Counts the end of a request. `work` is its real work; `None` if that is unknown. The request then counts with
    /// its expected input and with the output of its chunks, or not at all if it had no chunk.
    pub fn ended(&mut self, now_us: u64, id: MeteredRequest, work: Option<RequestWork>) {
        self.advance(now_us);
        let Some(request) = self.running.remove(id) else { return };
        self.in_flight -= 1;
        match (request.streams, request.first) {
            (true, Some(_)) => self.streams = (self.streams - request.choices).max(0.0),
            (true, None) => self.prompts -= 1,
            (false, _) => self.silent -= 1,
        }
        let work = work.or_else(|| request.first.is_some().then(|| expected_work(&request)));
        if let Some(work) = work {
            self.count_work(&request, work);
            let chunks = if request.streams { request.chunks } else { 0 };
            self.sources.count(request.source, work, chunks, self.now_us);
        }
        self.ended_since = self.ended_since.saturating_add(1);
        self.streamed_since = self.streamed_since.saturating_add(u64::from(request.chunks > 1));
        self.windows.count_ended(request.granted_window);
        while let Some(window) = self.windows.take_complete() {
            self.learn(&window);
        }
        if self.in_flight == 0 {
            self.windows.spoil();
        }
    }

    /// Counts the end of a request that [`Self::granted`] could not follow.
    pub fn ended_untracked(&mut self, now_us: u64) {
        self.advance(now_us);
        self.untracked = self.untracked.saturating_sub(1);
        self.windows.spoil();
    }

    /// Returns a summary for people, as of the last event.
    pub fn status(&self) -> MeterStatus {
        let millionths = |part: f64| whole(1e6 * part);
        let is_quiet = self.now_us.saturating_sub(self.learned_us) > QUIET_US;
        let learning = match (self.is_stated, self.model.is_learned()) {
            (true, _) => LearningState::Stated,
            _ if is_quiet && self.ended_since > 0 && self.streamed_since == 0 => {
                LearningState::NothingStreams
            }
            (_, true) if is_quiet => LearningState::Quiet,
            (_, true) => LearningState::Learning,
            (_, false) => LearningState::Start,
        };
        MeterStatus {
            learning,
            windows: self.model.windows(),
            changes: self.model.changes(),
            deviation_ppm: millionths(self.model.deviation()),
            fill_ppm: millionths(self.full.fill()),
            full_seconds: whole(self.full.seconds()),
            worst_source: self.deviations.worst(),
        }
    }

    /// Returns a typical request of a source; `None` if the meter knows no ended request of it.
    pub fn typical_request(&self, source: WorkSource) -> Option<RequestWork> {
        self.sources.typical_request(source)
    }

    /// Returns a typical request of each source that the meter has seen.
    pub fn typical_requests(&self) -> impl Iterator<Item = (WorkSource, RequestWork)> {
        self.sources.typical_requests()
    }

    /// Returns how far the cost of such a request may be from the truth, in microseconds: two standard deviations, plus
    /// the difference between the costs at the present prices and at the latest fit. Returns `None` if the prices are
    /// stated, or if there are fewer than 16 windows.
    ///
    /// The variance has two parts. The first is the variance of the fit. It follows from the covariance of the
    /// coefficients, as if the errors of windows were independent. It does not show an error that all windows have in
    /// common. So the second part is the whole typical error of windows, taken as an error of the cost itself. The
    /// margin does not cover that the batch differs between requests of different shapes.
    pub fn cost_margin(&self, work: RequestWork) -> Option<u64> {
        if self.is_stated {
            return None;
        }
        let (prompt, later) = (prompt_work(work, SourceBits::default()), later_output(work));
        let choices = count(work.choices.max(1));
        let context = later * (count(work.input) + later / choices / 2.0);
        let fit = self.model.fit();
        let derivative = self.full.cost_derivative(&fit, self.slots, &prompt, (later, context));
        let cost_us = self.full.prices(&fit, self.slots).cost(work);
        let common_ms = MEAN_ERROR_DEVIATIONS * self.model.deviation() * milliseconds(cost_us);
        let variance = self.model.variance(derivative)? + common_ms * common_ms;
        let deviations_us = whole(1000.0 * MARGIN_DEVIATIONS * square_root(variance));
        Some(deviations_us.saturating_add(self.price_set.prices.cost(work).abs_diff(cost_us)))
    }

    /// Returns the last windows from which prices were learned, the oldest first; at most 128.
    pub fn recent_windows(&self) -> impl Iterator<Item = PredictedWindow> {
        self.recent.iter()
    }

    /// Returns the number of bytes that the meter takes now, at most 256 KiB.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + self.running.memory_bytes()
            + self.windows.memory_bytes()
            + self.deviations.memory_bytes()
            + WorkSources::memory_bytes_max()
    }

    /// Advances the clock. A time that is not later changes nothing.
    #[inline]
    fn advance(&mut self, now_us: u64) {
        if now_us <= self.now_us {
            return;
        }
        if self.streams == 0.0 && self.silent > 0 {
            // Requests that do not stream may decode now, and no chunk shows the engine's steps.
            self.windows.add_blind_time(now_us - self.now_us);
        }
        self.now_us = now_us;
    }

    /// Closes the open window with the last chunk if that chunk ended a burst. The chunks of a step come in any order,
    /// so the step clock is exact only between bursts.
    fn close_after_burst(&mut self, since_us: u64) {
        if self.now_us - self.chunk_us < BURST_GAP_US && self.now_us - since_us < BURST_US_MAX {
            return;
        }
        self.closing_us = None;
        if self.untracked > 0 {
            self.windows.spoil();
        }
        self.windows.close(self.chunk_us, self.steps, self.in_flight, self.slots);
        while let Some(window) = self.windows.take_overdue(self.now_us) {
            if let Some(window) = self.with_running(window, false) {
                self.learn(&window);
            }
        }
        let is_due = self.now_us.saturating_sub(self.priced_us) >= FIRST_LOOK_INTERVAL_US;
        if is_due && !self.model.is_learned() && !self.is_stated {
            self.priced_us = self.now_us;
            self.publish_first_look();
        }
    }

    /// Adds the work of a request that has ended to the windows in which the engine did it.
    fn count_work(&mut self, request: &RunningRequest, work: RequestWork) {
        let input = count(work.input);
        let later = (count(work.output) - request.choices).max(0.0);
        let steps = later / request.choices;
        let decoded_before = (self.steps - steps).max(request.granted_steps);
        let (first, prompt_window) = match request.first {
            Some((first, window)) if steps <= STEP_TOKENS_MAX * (self.steps - first + 1.0) => {
                (first, Some(window))
            }
            // The request did not stream, or all its chunks came at once at its end.
            _ => (decoded_before, self.windows.number_at(decoded_before)),
        };
        if let Some(window) = prompt_window {
            self.windows.add_prompt(window, prompt_work(work, request.bit));
        }
        // A request whose steps were not seen counts as decoded in the last step.
        let from = first.min(self.steps - 1.0);
        let span = self.steps - from;
        self.windows.add_decoding(&DecodingSpan {
            from,
            to: self.steps,
            output_per_step: later / span,
            context_per_step: later * (input + later / request.choices / 2.0) / span,
            source: request.bit,
        });
    }

    /// Adds the work of the requests that still run to a window. Returns `None` if the prompt of such a request lies in
    /// the window or may lie in it. If `is_first_look` is true, the prompt counts as expected instead.
    fn with_running(&self, mut window: WorkWindow, is_first_look: bool) -> Option<WorkWindow> {
        let number = window.number;
        for request in self.running.iter().filter(|request| request.granted_window <= number) {
            let from = match request.first {
                Some((_, first_window)) if first_window > number => continue,
                Some((first, first_window)) => {
                    if first_window == number {
                        let prompt = prompt_work(request.expected, request.bit);
                        is_first_look.then(|| window.add_prompt(prompt))?;
                    }
                    first
                }
                None if request.streams || is_first_look => continue,
                None if request.granted_us.saturating_add(PROMPT_US_MAX) > window.opened_us => {
                    return None;
                }
                None => request.granted_steps,
            };
            let middle = (window.from + window.to) / 2.0 - from;
            window.add_decoding(&DecodingSpan {
                from,
                to: window.to,
                output_per_step: request.choices,
                context_per_step: request.choices * (count(request.expected.input) + middle),
                source: request.bit,
            });
        }
        Some(window)
    }

    /// Publishes first prices before any window is complete, from what is expected of the requests that still run. The
    /// start ratios may be far from the worker's, and long requests may take a minute to end.
    fn publish_first_look(&mut self) {
        let (mut model, mut full) = (self.model.clone(), self.full);
        for window in self.windows.last_closed(FIRST_LOOK_WINDOWS) {
            let Some(window) = self.with_running(*window, true) else { continue };
            let measured = window.measured();
            if let Some(slots) = window.full_slots() {
                full.add(slots, &measured);
            }
            model.take(measured);
        }
        self.publish(&model, &full);
    }

    fn learn(&mut self, window: &WorkWindow) {
        if self.is_stated {
            return;
        }
        let measured = window.measured();
        if let Some(slots) = window.full_slots() {
            self.full.add(slots, &measured);
        }
        if let Some(predicted_ms) = self.model.take(measured) {
            self.recent.add(measured.length_ms, predicted_ms);
            self.deviations.add(window.present, measured.length_ms / predicted_ms - 1.0);
        }
        self.learned_us = self.now_us;
        self.ended_since = 0;
        self.streamed_since = 0;
        if self.now_us.saturating_sub(self.priced_us) >= self.interval_us {
            self.priced_us = self.now_us;
            self.publish_if_changed();
        }
    }

    fn publish_if_changed(&mut self) {
        let old = self.price_set.prices;
        let new = self.full.prices(&self.model.fit(), self.slots);
        let has_changed = self.sources.typical_requests().any(|(_, work)| {
            let (old, new) = (old.cost(work), new.cost(work));
            new.abs_diff(old).saturating_mul(PRICE_CHANGE_MIN) > old
        });
        if has_changed || self.price_set.is_guess {
            self.publish_learned();
        }
    }

    fn publish_learned(&mut self) {
        let (model, full) = (self.model.clone(), self.full);
        self.publish(&model, &full);
    }

    fn publish(&mut self, model: &WindowModel, full: &FullWindows) {
        #[cfg(test)]
        {
            self.greatest_prices = full.greatest_prices(&model.fit().start, self.slots);
        }
        self.price_set = WorkerPriceSet {
            number: self.price_set.number + 1,
            prices: full.prices(&model.fit(), self.slots),
            batch: full.full_batch(self.slots),
            is_guess: !self.model.is_learned(),
        };
    }
}

/// Returns the work of a request whose usage is unknown, with the output that its chunks show.
fn expected_work(request: &RunningRequest) -> RequestWork {
    let output = whole(f64::from(request.chunks) * request.tokens_per_chunk);
    RequestWork { output, ..request.expected }
}

/// Returns the output tokens after the first one of each choice.
fn later_output(work: RequestWork) -> f64 {
    (count(work.output) - count(work.choices.max(1))).max(0.0)
}

fn prompt_work(work: RequestWork, source: SourceBits) -> PromptWork {
    let input = count(work.input);
    let cached = count(work.cached).min(input);
    let uncached = input - cached;
    let position = uncached * uncached / 2.0 + uncached * cached;
    PromptWork { input: uncached, position, cached, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: RequestWork = RequestWork { input: 1000, cached: 0, output: 100, choices: 1 };

    fn granted(meter: &mut WorkerTimeMeter, now_us: u64) -> MeteredRequest {
        let granted = GrantedRequest { source: WorkSource(1), expected: WORK, streams: true };
        meter.granted(now_us, granted).unwrap()
    }

    #[test]
    fn stated_prices_stay_and_follow_the_slots() {
        let prices = WorkerPrices { output: 7_000_000, ..WorkerPrices::default() };
        let mut meter = WorkerTimeMeter::stated(16, prices);
        let batch = |slots: u64| FullBatch::from_thousandths(1000 * slots);
        assert_eq!(
            *meter.price_set(),
            WorkerPriceSet { number: 0, prices, batch: batch(16), is_guess: false }
        );
        let ids = [granted(&mut meter, 0), granted(&mut meter, 0)];
        for step in 1..1000 {
            ids.iter().for_each(|id| meter.chunk(10_000 * step, *id));
        }
        ids.iter().for_each(|id| meter.ended(11_000_000, *id, Some(WORK)));
        assert_eq!(meter.price_set().prices, prices);
        meter.set_slots(12_000_000, 8);
        assert_eq!(
            *meter.price_set(),
            WorkerPriceSet { number: 1, prices, batch: batch(8), is_guess: false }
        );
        assert_eq!(meter.status().learning, LearningState::Stated);
    }

    #[test]
    fn new_slots_are_a_new_price_set_at_once() {
        let mut meter = WorkerTimeMeter::new(16);
        let before = *meter.price_set();
        meter.set_slots(5, 32);
        let after = *meter.price_set();
        assert_eq!((before.number, after.number), (0, 1));
        assert_eq!(after.batch.thousandths(), 2 * before.batch.thousandths());
        assert!(after.prices.output < before.prices.output);
        meter.set_slots(6, 32);
        assert_eq!(*meter.price_set(), after);
    }

    #[test]
    fn a_request_ends_once_and_an_old_id_is_nobody() {
        let mut meter = WorkerTimeMeter::new(16);
        let first = granted(&mut meter, 0);
        meter.chunk(1000, first);
        meter.ended(2000, first, Some(WORK));
        let second = granted(&mut meter, 3000);
        meter.ended(4000, first, Some(WORK));
        meter.chunk(5000, first);
        assert_eq!((meter.in_flight, meter.prompts, meter.streams), (1, 1, 0.0));
        meter.ended(6000, second, None);
        assert_eq!((meter.in_flight, meter.prompts), (0, 0));
        // It had no chunk, so it does not count as read.
        let typical: alloc::vec::Vec<_> = meter.typical_requests().collect();
        assert_eq!(typical, [(WorkSource(1), WORK)]);
    }
}

//! The windows of a worker: the open one, and the closed ones that wait until the requests that ran in them have ended.

use alloc::collections::VecDeque;

use super::least_squares::WindowCoefficients;
use super::source_deviations::SourceBits;
use super::window_model::MeasuredWindow;

/// Least length of a window, in microseconds.
const LENGTH_US_MIN: u64 = 250_000;
/// Greatest length of a window, in microseconds. In a longer window, little was done.
const LENGTH_US_MAX: u64 = 10_000_000;
/// The least number of steps in a window.
const STEPS_MIN: f64 = 24.0;
/// Length in microseconds from which a window may have fewer steps, because prompts take most of it.
const LENGTH_US_ENOUGH: u64 = 4_000_000;
/// A window is dropped if the engine's steps were unknown for more than 1 ÷ this number of its length.
const BLIND_FRACTION: u64 = 50;
/// Greatest number of windows that wait. As each has at least 250 ms, these cover more than [`WAIT_US_MAX`].
const WINDOWS_MAX: usize = 512;
/// Longest time, in microseconds, for which a window waits for the end of the requests that ran in it.
const WAIT_US_MAX: u64 = 120_000_000;

/// Steps of an engine, counted since its meter was created.
pub(super) type EngineSteps = f64;

/// A stretch of a worker's time, with the work that was done in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkWindow {
    pub(super) number: u32,
    pub(super) opened_us: u64,
    closed_us: u64,
    pub(super) from: EngineSteps,
    pub(super) to: EngineSteps,
    /// Sums of the work in the window, without its steps, which are `to` − `from`.
    work: WindowCoefficients,
    /// Number of requests that were in flight when the window closed and have not ended.
    running: u32,
    /// Slots of the worker if it was full in this window; 0 if it was not full, or if the number of its slots changed.
    full_slots: u32,
    /// Sources that were served in the window.
    pub(super) present: SourceBits,
}

impl WorkWindow {
    fn open(number: u32, now_us: u64, steps: EngineSteps) -> Self {
        Self {
            number,
            opened_us: now_us,
            closed_us: u64::MAX,
            from: steps,
            to: f64::INFINITY,
            work: WindowCoefficients::default(),
            running: 0,
            full_slots: 0,
            present: 0,
        }
    }

    /// Adds what a request decoded, as far as its steps lie in the window.
    pub(super) fn add_decoding(&mut self, decoding: &DecodingSpan) {
        let from = decoding.from.max(self.from);
        let steps = decoding.to.min(self.to) - from;
        if steps > 0.0 {
            self.work.output += steps * decoding.output_per_step;
            self.work.context += steps * decoding.context_per_step;
            self.present |= decoding.source;
        }
    }

    /// Adds a prompt whose first token came in the window.
    pub(super) fn add_prompt(&mut self, prompt: PromptWork) {
        self.present |= prompt.source;
        self.work.prompt += 1.0;
        self.work.input += prompt.input;
        self.work.position += prompt.position;
        self.work.cached += prompt.cached;
    }

    /// Returns the work and the length of the window, as the model needs them.
    pub(super) fn measured(&self) -> MeasuredWindow {
        let step = self.to - self.from;
        let length_ms = milliseconds(self.closed_us - self.opened_us);
        MeasuredWindow { work: WindowCoefficients { step, ..self.work }, length_ms }
    }

    /// Returns the worker's slots if the worker was full in this window; otherwise `None`.
    pub(super) fn full_slots(&self) -> Option<u32> {
        (self.full_slots > 0).then_some(self.full_slots)
    }
}

/// The steps in which one request decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecodingSpan {
    pub(super) from: EngineSteps,
    pub(super) to: EngineSteps,
    pub(super) output_per_step: f64,
    pub(super) context_per_step: f64,
    pub(super) source: SourceBits,
}

/// The work of one prompt, as windows count it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PromptWork {
    pub(super) input: f64,
    pub(super) position: f64,
    pub(super) cached: f64,
    pub(super) source: SourceBits,
}

/// The open window of a worker, and the closed windows that wait.
#[derive(Clone, Debug)]
pub(super) struct WindowLog {
    open: WorkWindow,
    closed: VecDeque<WorkWindow>,
    /// Greatest number of requests in flight at once in the open window.
    most_in_flight: u32,
    /// Time in the open window, in microseconds, in which the engine may have decoded and its steps were unknown.
    blind_us: u64,
    /// True if the open window must not be used.
    is_spoilt: bool,
    /// True if the worker's slots changed in the open window.
    have_slots_changed: bool,
}

impl WindowLog {
    pub(super) fn new() -> Self {
        Self {
            open: WorkWindow::open(0, 0, 0.0),
            closed: VecDeque::new(),
            most_in_flight: 0,
            blind_us: 0,
            is_spoilt: false,
            have_slots_changed: false,
        }
    }

    /// Returns the number of the open window.
    pub(super) fn open_number(&self) -> u32 {
        self.open.number
    }

    pub(super) fn count_in_flight(&mut self, in_flight: u32) {
        self.most_in_flight = self.most_in_flight.max(in_flight);
    }

    pub(super) fn add_blind_time(&mut self, blind_us: u64) {
        self.blind_us = self.blind_us.saturating_add(blind_us);
    }

    /// Marks the open window, so that it is dropped when it closes, because some of its work was not seen.
    pub(super) fn spoil(&mut self) {
        self.is_spoilt = true;
    }

    /// Marks that the worker's slots have changed, so that the open window says nothing about the fill.
    pub(super) fn change_slots(&mut self) {
        self.have_slots_changed = true;
    }

    /// Drops the open window and begins another one.
    pub(super) fn restart(&mut self, now_us: u64, steps: EngineSteps) {
        self.open = WorkWindow::open(self.open.number.wrapping_add(1), now_us, steps);
        self.most_in_flight = 0;
        self.blind_us = 0;
        self.is_spoilt = false;
        self.have_slots_changed = false;
    }

    /// Returns true if the open window is long enough to be closed.
    #[inline]
    pub(super) fn may_close(&self, now_us: u64, steps: EngineSteps) -> bool {
        let length_us = now_us.saturating_sub(self.open.opened_us);
        length_us >= LENGTH_US_MIN
            && (steps - self.open.from >= STEPS_MIN || length_us >= LENGTH_US_ENOUGH)
    }

    /// Closes the open window at a time that is not after now, and begins the next one.
    pub(super) fn close(&mut self, now_us: u64, steps: EngineSteps, in_flight: u32, slots: u32) {
        let length_us = now_us.saturating_sub(self.open.opened_us);
        let is_full = u64::from(self.most_in_flight) * 10 >= u64::from(slots) * 9 && slots > 0;
        let full_slots = if is_full && !self.have_slots_changed { slots } else { 0 };
        if length_us <= LENGTH_US_MAX
            && self.blind_us <= length_us / BLIND_FRACTION
            && !self.is_spoilt
        {
            self.closed.push_back(WorkWindow {
                closed_us: now_us,
                to: steps,
                running: in_flight,
                full_slots,
                ..self.open
            });
        }
        self.restart(now_us, steps);
        self.count_in_flight(in_flight);
    }

    /// Adds a prompt to the window of this number, which was open when the prompt's first token came.
    pub(super) fn add_prompt(&mut self, number: u32, prompt: PromptWork) {
        let window = match number == self.open.number {
            true => Some(&mut self.open),
            false => self.closed.iter_mut().rev().find(|window| window.number == number),
        };
        if let Some(window) = window {
            window.add_prompt(prompt);
        }
    }

    /// Returns the number of the window in which the engine made this step; `None` if that window was dropped.
    pub(super) fn number_at(&self, step: EngineSteps) -> Option<u32> {
        if step >= self.open.from {
            return Some(self.open.number);
        }
        let window = self.closed.iter().rev().find(|window| step >= window.from)?;
        (step <= window.to).then_some(window.number)
    }

    /// Adds what a request decoded to the windows in which it decoded.
    pub(super) fn add_decoding(&mut self, decoding: &DecodingSpan) {
        self.open.add_decoding(decoding);
        for window in self.closed.iter_mut().rev() {
            if window.to <= decoding.from {
                break;
            }
            window.add_decoding(decoding);
        }
    }

    /// Counts the end of a request that was granted in the window of this number.
    pub(super) fn count_ended(&mut self, granted: u32) {
        for window in self.closed.iter_mut().rev() {
            if window.number < granted {
                break;
            }
            window.running = window.running.saturating_sub(1);
        }
    }

    /// Removes and returns the oldest closed window if all requests that were in flight at its close have ended. A
    /// request that still runs was in flight at every later close too, so the oldest window is always complete first.
    pub(super) fn take_complete(&mut self) -> Option<WorkWindow> {
        self.closed.front().filter(|window| window.running == 0)?;
        self.closed.pop_front()
    }

    /// Removes and returns the oldest closed window if it has waited for too long, or if too many windows wait. Some
    /// requests that ran in it are still in flight.
    pub(super) fn take_overdue(&mut self, now_us: u64) -> Option<WorkWindow> {
        let is_crowded = self.closed.len() > WINDOWS_MAX;
        let is_overdue = |window: &&WorkWindow| {
            is_crowded || now_us.saturating_sub(window.closed_us) > WAIT_US_MAX
        };
        self.closed.front().filter(is_overdue)?;
        self.closed.pop_front()
    }

    /// Returns up to this many of the last windows that wait, the oldest first.
    pub(super) fn last_closed(&self, count: usize) -> impl Iterator<Item = &WorkWindow> {
        self.closed.iter().skip(self.closed.len().saturating_sub(count))
    }

    /// Returns the number of bytes that the windows take.
    pub(super) fn memory_bytes(&self) -> usize {
        self.closed.capacity() * size_of::<WorkWindow>()
    }
}

/// Converts microseconds to milliseconds. A span of more than an hour counts as one hour.
pub(super) fn milliseconds(micros: u64) -> f64 {
    f64::from(u32::try_from(micros).unwrap_or(u32::MAX)) / 1000.0
}

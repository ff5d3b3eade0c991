//! One request on its way: its slot, its pace and its entry in the books, which is made exactly once.

use std::sync::Arc;
use std::time::Duration;

use hyper::{HeaderMap, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use crate::account::Charge;
use crate::answer::{Answer, Input};
use crate::ask::{Ask, Route};
use crate::backend::Backend;
use crate::dialect::Refusal;
use crate::fault::Fault;
use crate::stats::{Outcome, RequestRecord, Stage};

/// Dropped without an outcome, a flight was abandoned: that is how a client that leaves is noticed.
pub(crate) struct Flight {
    pub(crate) backend: Arc<Backend>,
    record: Option<RequestRecord>,
    stage: Stage,
    slot: Option<OwnedSemaphorePermit>,
    /// The decoding of an answer that is told at the end only.
    silent: Option<(Pace, Arc<Answer>)>,
    /// What its account charged for it, until it ends.
    charge: Option<Charge>,
}

impl Flight {
    pub(crate) fn begin(
        backend: &Arc<Backend>,
        route: Route,
        path: &'static str,
        headers: &HeaderMap,
    ) -> Self {
        backend.tally().arrive();
        let record = RequestRecord {
            id: backend.next_id(route),
            path,
            model: String::new(),
            stream: false,
            output_tokens_max: None,
            input_tokens: 0,
            cached_tokens: 0,
            output_tokens: 0,
            waited: Duration::ZERO,
            fault: None,
            outcome: Outcome::Abandoned,
            header_names: headers.keys().map(|name| name.as_str().to_owned()).collect(),
        };
        let (record, stage) = (Some(record), Stage::Arriving);
        Self { backend: Arc::clone(backend), record, stage, slot: None, silent: None, charge: None }
    }

    pub(crate) fn id(&self) -> String {
        self.record.as_ref().map(|record| record.id.clone()).unwrap_or_default()
    }

    pub(crate) fn understood(&mut self, ask: &Ask, fault: Option<Fault>) {
        if let Some(record) = &mut self.record {
            record.model.clone_from(&ask.model);
            record.stream = ask.stream;
            record.output_tokens_max = ask.output_tokens_max;
            record.fault = fault;
        }
    }

    /// Keeps what its account charged, to be corrected when it ends.
    pub(crate) fn charged(&mut self, charge: Charge) {
        self.charge = Some(charge);
    }

    /// Goes on without a slot, for what costs the model nothing.
    pub(crate) fn skip_slot(&mut self) {
        self.move_to(Stage::Flying);
    }

    /// Waits for a slot, behind all who came before.
    pub(crate) async fn take_slot(&mut self) -> Result<(), Refusal> {
        let slots = Arc::clone(&self.backend.slots);
        let slot = match Arc::clone(&slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => {
                self.wait_in_line()?;
                let since = Instant::now();
                let closed =
                    |_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "The backend is closed.");
                let slot = slots.acquire_owned().await.map_err(closed)?;
                if let Some(record) = &mut self.record {
                    record.waited = since.elapsed();
                }
                slot
            }
        };
        self.slot = Some(slot);
        self.move_to(Stage::Flying);
        Ok(())
    }

    fn wait_in_line(&mut self) -> Result<(), Refusal> {
        let most = u64::try_from(self.backend.options.waiting_max).unwrap_or(u64::MAX);
        if !self.backend.tally().join_line(self.stage, most) {
            let message = format!("All slots are taken and {most} requests wait. Try again later.");
            let refusal = Refusal::new(StatusCode::SERVICE_UNAVAILABLE, message);
            return Err(refusal.code("overloaded").retry_after(Some(1)));
        }
        self.stage = Stage::Waiting;
        Ok(())
    }

    fn move_to(&mut self, stage: Stage) {
        self.backend.tally().advance(self.stage, stage);
        self.stage = stage;
    }

    /// Works through the prompt, and notes it.
    pub(crate) async fn prefill(&mut self, input: Input) {
        let options = &self.backend.options;
        let cached = input.cached.unwrap_or(0);
        let fresh = input.tokens.saturating_sub(cached);
        let time = options.prefill_base.saturating_add(times(options.prefill_per_token, fresh));
        // It is never closed, so this is always a turn.
        let _turn = self.backend.prefills.acquire().await;
        pause_until(Instant::now().checked_add(time)).await;
        if let Some(record) = &mut self.record {
            record.input_tokens = input.tokens;
            record.cached_tokens = cached;
        }
    }

    /// The pace of the answer, whose first token is due now.
    pub(crate) fn pace(&self) -> Pace {
        Pace { first: Instant::now(), per_token: self.backend.options.decode_per_token }
    }

    /// Generates what nobody sees.
    pub(crate) async fn think(&mut self, answer: &Answer) {
        if answer.hidden > 0 {
            pause_until(self.pace().due(answer.hidden)).await;
            self.generated(answer.hidden);
        }
    }

    /// Generates a whole answer without telling anything of it.
    pub(crate) async fn decode_silently(&mut self, answer: &Arc<Answer>) {
        let pace = self.pace();
        self.silent = Some((pace, Arc::clone(answer)));
        pause_until(pace.due(answer.steps().saturating_sub(1))).await;
        self.silent = None;
        self.generated(answer.usage.output.saturating_sub(answer.hidden));
    }

    /// Notes so many more tokens.
    pub(crate) fn generated(&mut self, tokens: u64) {
        if let Some(record) = &mut self.record {
            record.output_tokens = record.output_tokens.saturating_add(tokens);
        }
    }

    /// Closes the books on it, and gives its slot back.
    pub(crate) fn end(&mut self, outcome: Outcome) {
        if let Some((pace, answer)) = self.silent.take() {
            self.generated(answer.tokens_after(pace.steps_by(Instant::now())));
        }
        let Some(mut record) = self.record.take() else { return };
        record.outcome = outcome;
        self.slot = None;
        if let Some(charge) = self.charge.take() {
            charge.settle(record.input_tokens.saturating_add(record.output_tokens));
        }
        self.backend.tally().end(self.stage, record, self.backend.options.log_len);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.end(Outcome::Abandoned);
    }
}

/// When each token of an answer is due. Counted from the first, so that nothing drifts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    first: Instant,
    per_token: Duration,
}

impl Pace {
    /// When the token of this index is due; `None` is never.
    pub(crate) fn due(self, index: u64) -> Option<Instant> {
        self.first.checked_add(times(self.per_token, index))
    }

    /// At least so much time for each token.
    pub(crate) fn at_least(self, per_token: Duration) -> Self {
        Self { per_token: self.per_token.max(per_token), ..self }
    }

    fn steps_by(self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.first).as_nanos();
        match since.checked_div(self.per_token.as_nanos()) {
            Some(steps) => u64::try_from(steps).unwrap_or(u64::MAX).saturating_add(1),
            None => u64::MAX,
        }
    }
}

/// Waits until then; not at all where that is past, for ever where it is never.
pub(crate) async fn pause_until(due: Option<Instant>) {
    match due {
        Some(due) if due <= Instant::now() => {}
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn times(duration: Duration, count: u64) -> Duration {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(nanos.saturating_mul(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_pace_counts_from_the_first_token() {
        let pace = Pace { first: Instant::now(), per_token: Duration::from_millis(5) };
        assert_eq!(pace.due(3), Some(pace.first + Duration::from_millis(15)));
        assert_eq!(pace.steps_by(pace.first), 1);
        assert_eq!(pace.steps_by(pace.first + Duration::from_millis(14)), 3);
        assert_eq!(Pace { per_token: Duration::ZERO, ..pace }.steps_by(pace.first), u64::MAX);
    }
}

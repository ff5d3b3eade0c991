//! One request in flight, with its slot and its pace. The backend stores a [`RequestRecord`] of the request exactly
//! once, when the request ends.

use std::sync::Arc;
use std::time::Duration;

use hyper::{HeaderMap, StatusCode};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use crate::account::TokenCharge;
use crate::answer::{InputTokens, SimAnswer};
use crate::backend::BackendState;
use crate::error_response::SimErrorResponse;
use crate::fault::SimFault;
use crate::request::SimRequest;
use crate::route::SimRoute;
use crate::stats::{RequestRecord, SimOutcome, SimRequestStage};

/// The state of one request. A request that is dropped before [`SimInFlight::end`] counts as abandoned, because the
/// client has left.
pub(crate) struct SimInFlight {
    pub(crate) backend: Arc<BackendState>,
    record: Option<RequestRecord>,
    stage: SimRequestStage,
    slot: Option<OwnedSemaphorePermit>,
    /// Schedule and answer of a request that is not streamed, while its answer is being generated; `None` at other
    /// times. If the client leaves, the two show how many tokens were generated until then.
    silent: Option<(TokenSchedule, Arc<SimAnswer>)>,
    /// Tokens that the account has charged for this request; corrected to the real usage when the request ends. `None`
    /// if the backend has no account.
    charge: Option<TokenCharge>,
}

impl SimInFlight {
    pub(crate) fn begin(
        backend: &Arc<BackendState>,
        route: SimRoute,
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
            outcome: SimOutcome::Abandoned,
            header_names: headers.keys().map(|name| name.as_str().to_owned()).collect(),
        };
        let (record, stage) = (Some(record), SimRequestStage::Arriving);
        Self { backend: Arc::clone(backend), record, stage, slot: None, silent: None, charge: None }
    }

    pub(crate) fn id(&self) -> String {
        self.record.as_ref().map(|record| record.id.clone()).unwrap_or_default()
    }

    pub(crate) fn set_request(&mut self, request: &SimRequest, fault: Option<SimFault>) {
        if let Some(record) = &mut self.record {
            record.model.clone_from(&request.model);
            record.stream = request.stream;
            record.output_tokens_max = request.output_tokens_max;
            record.fault = fault;
        }
    }

    /// Stores the tokens that the account has charged for this request, to be corrected when the request ends.
    pub(crate) fn set_charge(&mut self, charge: TokenCharge) {
        self.charge = Some(charge);
    }

    /// Puts the request in flight without a slot, for requests that need no model, such as token counts.
    pub(crate) fn skip_slot(&mut self) {
        self.move_to(SimRequestStage::InFlight);
    }

    /// Waits for a slot, after all requests that started to wait earlier. Fails if the queue is full.
    pub(crate) async fn take_slot(&mut self) -> Result<(), SimErrorResponse> {
        let slots = Arc::clone(&self.backend.slots);
        let slot = match Arc::clone(&slots).try_acquire_owned() {
            Ok(slot) => slot,
            Err(_) => {
                self.enqueue()?;
                let since = Instant::now();
                let closed = |_| {
                    SimErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, "The backend is closed.")
                };
                let slot = slots.acquire_owned().await.map_err(closed)?;
                if let Some(record) = &mut self.record {
                    record.waited = since.elapsed();
                }
                slot
            }
        };
        self.slot = Some(slot);
        self.move_to(SimRequestStage::InFlight);
        Ok(())
    }

    fn enqueue(&mut self) -> Result<(), SimErrorResponse> {
        let most = u64::try_from(self.backend.options.waiting_max).unwrap_or(u64::MAX);
        if !self.backend.tally().try_enqueue(self.stage, most) {
            let message = format!("All slots are taken and {most} requests wait. Try again later.");
            let refusal = SimErrorResponse::new(StatusCode::SERVICE_UNAVAILABLE, message);
            return Err(refusal.code("overloaded").retry_after(Some(1)));
        }
        self.stage = SimRequestStage::Waiting;
        Ok(())
    }

    fn move_to(&mut self, stage: SimRequestStage) {
        self.backend.tally().advance(self.stage, stage);
        self.stage = stage;
    }

    /// Waits for the time that prefilling the prompt takes, and records the number of input tokens.
    pub(crate) async fn prefill(&mut self, input: InputTokens) {
        let options = &self.backend.options;
        let cached = input.cached.unwrap_or(0);
        let fresh = input.tokens.saturating_sub(cached);
        let time = options.prefill_base.saturating_add(times(options.prefill_per_token, fresh));
        // The semaphore is never closed, so this always succeeds.
        let _turn = self.backend.prefills.acquire().await;
        pause_until(Instant::now().checked_add(time)).await;
        if let Some(record) = &mut self.record {
            record.input_tokens = input.tokens;
            record.cached_tokens = cached;
        }
    }

    /// Returns the pace of the answer, whose first token is due now.
    pub(crate) fn pace(&self) -> TokenSchedule {
        TokenSchedule { first: Instant::now(), per_token: self.backend.options.decode_per_token }
    }

    /// Waits for the time that the hidden reasoning tokens take, and counts them as output.
    pub(crate) async fn generate_hidden(&mut self, answer: &SimAnswer) {
        if answer.hidden > 0 {
            pause_until(self.pace().due(answer.hidden)).await;
            self.add_output_tokens(answer.hidden);
        }
    }

    /// Waits for the time that a whole answer takes, without sending any of it, and counts the output tokens.
    pub(crate) async fn generate_whole(&mut self, answer: &Arc<SimAnswer>) {
        let pace = self.pace();
        self.silent = Some((pace, Arc::clone(answer)));
        pause_until(pace.due(answer.steps().saturating_sub(1))).await;
        self.silent = None;
        self.add_output_tokens(answer.usage.output.saturating_sub(answer.hidden));
    }

    /// Adds `tokens` to the output tokens of the request.
    pub(crate) fn add_output_tokens(&mut self, tokens: u64) {
        if let Some(record) = &mut self.record {
            record.output_tokens = record.output_tokens.saturating_add(tokens);
        }
    }

    /// Records the outcome, releases the slot, and corrects the account's charge. A second call does nothing.
    pub(crate) fn end(&mut self, outcome: SimOutcome) {
        if let Some((pace, answer)) = self.silent.take() {
            self.add_output_tokens(answer.tokens_after(pace.steps_by(Instant::now())));
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

impl Drop for SimInFlight {
    fn drop(&mut self) {
        self.end(SimOutcome::Abandoned);
    }
}

/// Due times of an answer's tokens. All times are computed from the time of the first token, so that a late token does
/// not delay the tokens after it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenSchedule {
    first: Instant,
    per_token: Duration,
}

impl TokenSchedule {
    /// Returns the due time of a token, counted from 0; `None` if the time is too far ahead to be represented.
    pub(crate) fn due(self, index: u64) -> Option<Instant> {
        self.first.checked_add(times(self.per_token, index))
    }

    /// Returns this schedule, slowed down if needed to a time of at least `per_token` for each token.
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

/// Waits until `due`. Returns at once if `due` is past, and never returns if `due` is `None`.
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
        let pace = TokenSchedule { first: Instant::now(), per_token: Duration::from_millis(5) };
        assert_eq!(pace.due(3), Some(pace.first + Duration::from_millis(15)));
        assert_eq!(pace.steps_by(pace.first), 1);
        assert_eq!(pace.steps_by(pace.first + Duration::from_millis(14)), 3);
        assert_eq!(
            TokenSchedule { per_token: Duration::ZERO, ..pace }.steps_by(pace.first),
            u64::MAX
        );
    }
}

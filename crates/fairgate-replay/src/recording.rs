//! Facts about each request of a journal, such as the time of its grant, its service time and its usage.

use fairgate_core::Pool;
use fairgate_core::decision::{Decision, DecisionSink};
use fairgate_core::event::Event;
use fairgate_core::units::{Micros, Tokens};

use super::live_requests::{LiveRequests, ReplayRequestIndex};
use super::steps::{ReplayListener, ReplayStep};
use crate::error::ReplayError;

/// Facts about every request of a journal, learned by replaying the journal under its own policy. They take about a
/// hundred bytes per request.
#[derive(Debug, Default)]
pub(crate) struct ReplayRecording {
    facts: Vec<RecordedRequest>,
    /// Sum of the service times, in microseconds, of all requests that ran to their end.
    service_us: u128,
    tokens: u128,
}

/// The recorded facts about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedRequest {
    pub(crate) granted: Option<RecordedGrant>,
    pub(crate) first_token: Option<RecordedLine>,
    pub(crate) end: RecordedEnd,
}

/// The time of a grant, and the cost that was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordedGrant {
    pub(crate) at: Micros,
    pub(crate) cost: Tokens,
}

/// A line of the recording, and its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordedLine {
    pub(crate) line: u64,
    pub(crate) at: Micros,
}

/// The end of a request, as the journal recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordedEnd {
    /// The recording has no end of the request, or the request was refused or expired.
    Unknown,
    /// The request was cancelled while it waited.
    GaveUp { line: u64 },
    /// The request ran and ended. `tokens` are its real tokens, and `quota` are the tokens that it took from its
    /// worker's rate, both `None` if not recorded.
    Flight { mark: RecordedLine, tokens: Option<Tokens>, quota: Option<Tokens> },
}

impl RecordedRequest {
    const UNKNOWN: Self = Self { granted: None, first_token: None, end: RecordedEnd::Unknown };

    /// Returns the recorded time of the grant; `None` if the request was never granted.
    pub(crate) fn granted_at(&self) -> Option<Micros> {
        self.granted.map(|granted| granted.at)
    }

    /// Returns the tokens that the request really used; `None` if they are not recorded.
    pub(crate) fn used(&self) -> Option<Tokens> {
        match self.end {
            RecordedEnd::Flight { tokens, .. } => tokens,
            _ => None,
        }
    }
}

impl ReplayRecording {
    pub(crate) fn fact(&self, number: ReplayRequestIndex) -> &RecordedRequest {
        &self.facts[number]
    }

    /// Returns the service time of a request with this cost. This is the recorded service time or, if the request never
    /// ran in the recording, its cost times the mean service time per token, rounded down. Returns `None` if the
    /// request was granted in the recording but did not end, or if it was not granted and the mean is unknown because
    /// no request ran to its end.
    pub(crate) fn service(&self, fact: &RecordedRequest, cost: Tokens) -> Option<Micros> {
        match (fact.granted_at(), fact.end) {
            (Some(granted), RecordedEnd::Flight { mark, .. }) => {
                Some(Micros(mark.at.0 - granted.0))
            }
            (Some(_), _) => None,
            (None, _) => self.estimate(cost),
        }
    }

    fn estimate(&self, cost: Tokens) -> Option<Micros> {
        let whole = self.service_us.checked_div(self.tokens)?.saturating_mul(u128::from(cost.0));
        let part = scaled(self.service_us % self.tokens, cost.0, self.tokens);
        Some(Micros(u64::try_from(whole.saturating_add(part)).unwrap_or(u64::MAX)))
    }
}

/// Computes part × times ÷ whole exactly and rounds down, for a part below the whole. The whole must be below 2^126; a
/// sum of 64-bit numbers over the lines of a file is always smaller. The function handles `times` bit by bit, so the
/// product itself is never computed.
fn scaled(part: u128, times: u64, whole: u128) -> u128 {
    let (mut quotient, mut rest) = (0, 0);
    for bit in (0..u64::BITS).rev() {
        quotient *= 2;
        rest *= 2;
        if times >> bit & 1 == 1 {
            rest += part;
        }
        quotient += rest / whole;
        rest %= whole;
    }
    quotient
}

/// Collects the facts about a journal's requests while the journal is replayed.
#[derive(Debug, Default)]
pub(crate) struct RecordingBuilder {
    roster: LiveRequests,
    recording: ReplayRecording,
    now: RecordedLine,
}

impl RecordingBuilder {
    /// Returns the recording that was learned.
    pub(crate) fn finish(self) -> ReplayRecording {
        self.recording
    }

    fn flight_ended(&mut self, number: ReplayRequestIndex, event: &Event) {
        let (tokens, quota) = match event {
            Event::Release { tokens, quota, .. } => (*tokens, *quota),
            _ => (None, None),
        };
        let fact = &mut self.recording.facts[number];
        fact.end = RecordedEnd::Flight { mark: self.now, tokens, quota };
        if let Some(granted) = fact.granted {
            self.recording.tokens += u128::from(tokens.unwrap_or(granted.cost).0);
            self.recording.service_us += u128::from(self.now.at.0 - granted.at.0);
        }
    }

    fn first_token(&mut self, id: &str) {
        let Some(live) = self.roster.get(id).filter(|live| live.granted.is_some()) else { return };
        self.recording.facts[live.number].first_token.get_or_insert(self.now);
    }
}

impl DecisionSink for RecordingBuilder {
    fn decided(&mut self, decision: Decision) {
        let about = self.roster.decided(self.now.at, &decision);
        if let (Some(number), Decision::Grant(grant)) = (about, decision) {
            let granted = RecordedGrant { at: self.now.at, cost: grant.cost };
            self.recording.facts[number].granted = Some(granted);
        }
    }
}

impl ReplayListener for RecordingBuilder {
    fn start(&mut self, pool: &Pool) {
        self.roster = LiveRequests::of(pool);
        let known = pool.snapshot().requests.into_iter().map(|request| RecordedRequest {
            granted: request
                .flight
                .map(|it| RecordedGrant { at: it.granted_at, cost: request.cost }),
            ..RecordedRequest::UNKNOWN
        });
        self.recording.facts = known.collect();
    }

    fn before(&mut self, step: ReplayStep<'_>, _pool: &Pool) {
        self.now = RecordedLine { line: step.line.unwrap_or(self.now.line), at: step.at };
        match step.event {
            Event::Submit(_) => self.recording.facts.push(RecordedRequest::UNKNOWN),
            Event::FirstToken { id } => self.first_token(id),
            _ => {}
        }
        if let Some(number) = self.roster.before(step.event) {
            self.flight_ended(number, step.event);
        }
    }

    fn after(&mut self, _pool: &Pool) -> Result<(), ReplayError> {
        if let Some(number) = self.roster.after() {
            self.recording.facts[number].end = RecordedEnd::GaveUp { line: self.now.line };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_never_ran_takes_its_cost_times_the_mean() {
        let recording = ReplayRecording { facts: Vec::new(), service_us: 1000, tokens: 300 };
        let (fact, cost) = (RecordedRequest::UNKNOWN, Tokens(7));
        assert_eq!(recording.service(&fact, cost), Some(Micros(23)), "7 × 1000 / 300 = 23.33");
        let ran = RecordedRequest { granted: Some(RecordedGrant { at: Micros(5), cost }), ..fact };
        assert_eq!(recording.service(&ran, cost), None, "nobody knows when it would have ended");
        let mark = RecordedLine { line: 9, at: Micros(11) };
        let ended =
            RecordedRequest { end: RecordedEnd::Flight { mark, tokens: None, quota: None }, ..ran };
        assert_eq!(recording.service(&ended, cost), Some(Micros(6)));
        let none_ended = ReplayRecording::default();
        assert_eq!(none_ended.service(&fact, cost), None);
    }

    #[test]
    fn absurd_numbers_are_exact_or_saturate() {
        let tokens = u128::from(u64::MAX) * 1000;
        let recording = ReplayRecording { facts: Vec::new(), service_us: tokens * 3 - 1, tokens };
        let service = |cost| recording.service(&RecordedRequest::UNKNOWN, Tokens(cost));
        assert_eq!(service(u64::MAX / 3), Some(Micros(u64::MAX - 1)));
        assert_eq!(service(u64::MAX), Some(Micros(u64::MAX)));
    }
}

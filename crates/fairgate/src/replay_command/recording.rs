//! What a recording says about each of its requests: when it ran, for how long, what it used.

use fairgate_core::Pool;
use fairgate_core::decision::{Decision, Sink};
use fairgate_core::event::Event;
use fairgate_core::units::{Micros, Tokens};

use super::roster::{Number, Roster};
use super::steps::{Listener, Step};

/// The facts about every request of a journal, learned by replaying it under its own policy. It takes about a
/// hundred bytes a request.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    facts: Vec<Fact>,
    /// The service times and the tokens of all flights that ended.
    service_us: u128,
    tokens: u128,
}

/// What the recording says about one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) granted: Option<Granted>,
    pub(crate) first_token: Option<Mark>,
    pub(crate) end: End,
}

/// When a request was granted, and what it was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) at: Micros,
    pub(crate) cost: Tokens,
}

/// A line of the recording, and its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) line: u64,
    pub(crate) at: Micros,
}

/// How a request came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It did not, or was refused or expired: no line says so.
    Unsaid,
    /// It was cancelled while it waited.
    GaveUp { line: u64 },
    /// Its flight ended, with the tokens it really used and what it took from its worker's token rate, where the
    /// recording tells.
    Flight { mark: Mark, tokens: Option<Tokens>, quota: Option<Tokens> },
}

impl Fact {
    const UNKNOWN: Self = Self { granted: None, first_token: None, end: End::Unsaid };

    /// The time at which it was granted.
    pub(crate) fn granted_at(&self) -> Option<Micros> {
        self.granted.map(|granted| granted.at)
    }

    /// The tokens that it really used, where the recording tells.
    pub(crate) fn used(&self) -> Option<Tokens> {
        match self.end {
            End::Flight { tokens, .. } => tokens,
            _ => None,
        }
    }
}

impl Recording {
    pub(crate) fn fact(&self, number: Number) -> &Fact {
        &self.facts[number]
    }

    /// How long a request of this cost takes: as long as it took in the recording, or where it never ran there, its
    /// cost times the mean service time per token, rounded down. Nothing where the recording cannot tell: its flight
    /// never ended there, or no flight ended at all.
    pub(crate) fn service(&self, fact: &Fact, cost: Tokens) -> Option<Micros> {
        match (fact.granted_at(), fact.end) {
            (Some(granted), End::Flight { mark, .. }) => Some(Micros(mark.at.0 - granted.0)),
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

/// part × times / whole, rounded down and exact, for a part below the whole, which is far below 2^126 as sums of
/// 64-bit numbers over a file's lines are: bit by bit of `times`, so that the product is never needed.
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

/// Learns a recording while it is replayed.
#[derive(Debug, Default)]
pub(crate) struct Learner {
    roster: Roster,
    recording: Recording,
    now: Mark,
}

impl Learner {
    /// What was learned.
    pub(crate) fn finish(self) -> Recording {
        self.recording
    }

    fn flight_ended(&mut self, number: Number, event: &Event) {
        let (tokens, quota) = match event {
            Event::Release { tokens, quota, .. } => (*tokens, *quota),
            _ => (None, None),
        };
        let fact = &mut self.recording.facts[number];
        fact.end = End::Flight { mark: self.now, tokens, quota };
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

impl Sink for Learner {
    fn decided(&mut self, decision: Decision) {
        let about = self.roster.decided(self.now.at, &decision);
        if let (Some(number), Decision::Grant(grant)) = (about, decision) {
            let granted = Granted { at: self.now.at, cost: grant.cost };
            self.recording.facts[number].granted = Some(granted);
        }
    }
}

impl Listener for Learner {
    fn start(&mut self, pool: &Pool) {
        self.roster = Roster::of(pool);
        let known = pool.snapshot().requests.into_iter().map(|request| Fact {
            granted: request.flight.map(|it| Granted { at: it.granted_at, cost: request.cost }),
            ..Fact::UNKNOWN
        });
        self.recording.facts = known.collect();
    }

    fn before(&mut self, step: Step<'_>, _pool: &Pool) {
        self.now = Mark { line: step.line.unwrap_or(self.now.line), at: step.at };
        match step.event {
            Event::Submit(_) => self.recording.facts.push(Fact::UNKNOWN),
            Event::FirstToken { id } => self.first_token(id),
            _ => {}
        }
        if let Some(number) = self.roster.before(step.event) {
            self.flight_ended(number, step.event);
        }
    }

    fn after(&mut self, _pool: &Pool) -> anyhow::Result<()> {
        if let Some(number) = self.roster.after() {
            self.recording.facts[number].end = End::GaveUp { line: self.now.line };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_never_ran_takes_its_cost_times_the_mean() {
        let recording = Recording { facts: Vec::new(), service_us: 1000, tokens: 300 };
        let (fact, cost) = (Fact::UNKNOWN, Tokens(7));
        assert_eq!(recording.service(&fact, cost), Some(Micros(23)), "7 × 1000 / 300 = 23.33");
        let ran = Fact { granted: Some(Granted { at: Micros(5), cost }), ..fact };
        assert_eq!(recording.service(&ran, cost), None, "nobody knows when it would have ended");
        let mark = Mark { line: 9, at: Micros(11) };
        let ended = Fact { end: End::Flight { mark, tokens: None, quota: None }, ..ran };
        assert_eq!(recording.service(&ended, cost), Some(Micros(6)));
        let none_ended = Recording::default();
        assert_eq!(none_ended.service(&fact, cost), None);
    }

    #[test]
    fn absurd_numbers_are_exact_or_saturate() {
        let tokens = u128::from(u64::MAX) * 1000;
        let recording = Recording { facts: Vec::new(), service_us: tokens * 3 - 1, tokens };
        let service = |cost| recording.service(&Fact::UNKNOWN, Tokens(cost));
        assert_eq!(service(u64::MAX / 3), Some(Micros(u64::MAX - 1)));
        assert_eq!(service(u64::MAX), Some(Micros(u64::MAX)));
    }
}

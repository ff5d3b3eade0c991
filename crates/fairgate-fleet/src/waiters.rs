//! Agents that wait for a task in this process: one open claim each, served in the order in which they came.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::FleetError;
use crate::fleet::AgentId;
use crate::model::Claim;
use crate::round::Asker;
use fairgate_store::StoreError;

/// What a claim comes to.
pub(crate) type Claimed = Result<Option<Claim>, FleetError>;

/// The agents that wait.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The first that came first.
    waiting: Vec<Waiter>,
    next_number: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    asker: Asker,
    /// When its wait is over.
    until: Instant,
    reply: oneshot::Sender<Claimed>,
    /// Whether a round has looked for a task for it.
    was_served: bool,
    /// Whether a round is doing so now.
    is_in_round: bool,
}

/// An agent's place among those that wait. It is given up when this is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    waiters: &'a Waiters,
    number: u64,
}

impl Waiters {
    /// Takes an agent in, and gives it a number. A claim of the same agent that is still open ends without a task: its agent has
    /// asked anew.
    pub(crate) fn join(
        &self,
        agent: &AgentId,
        until: Instant,
    ) -> Result<(u64, oneshot::Receiver<Claimed>), FleetError> {
        let mut state = self.lock();
        if state.is_closed {
            return Err(StoreError::Closed.into());
        }
        if let Some(place) = state.waiting.iter().position(|it| it.asker.agent == agent.id) {
            let _ = state.waiting.remove(place).reply.send(Ok(None));
        }
        let (reply, answer) = oneshot::channel();
        let number = state.next_number;
        state.next_number += 1;
        let asker = Asker { agent: agent.id.clone(), seed: agent.seed };
        let waiter = Waiter { number, asker, until, reply, was_served: false, is_in_round: false };
        state.waiting.push(waiter);
        Ok((number, answer))
    }

    /// The place of the agent with this number.
    pub(crate) fn place(&self, number: u64) -> Place<'_> {
        Place { waiters: self, number }
    }

    /// Whether anybody waits.
    pub(crate) fn are_there(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// The names of the agents that wait.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().waiting.iter().map(|it| it.asker.agent.clone()).collect()
    }

    /// Those who wait, for a round that begins: each with its number.
    pub(crate) fn enter_round(&self) -> (Vec<u64>, Vec<Asker>) {
        let mut state = self.lock();
        let enter = |waiter: &mut Waiter| {
            waiter.is_in_round = true;
            (waiter.number, waiter.asker.clone())
        };
        state.waiting.iter_mut().map(enter).unzip()
    }

    /// Tells one of them what its claim came to.
    pub(crate) fn tell(&self, number: u64, claimed: Claimed) {
        let mut state = self.lock();
        if let Some(place) = state.waiting.iter().position(|it| it.number == number) {
            // Where nobody listens any more, the agent is given the same task when it asks again, or its lease runs out.
            let _ = state.waiting.remove(place).reply.send(claimed);
        }
    }

    /// A round is over: those whose wait is over too are told so, with what went wrong, if anything did.
    pub(crate) fn leave_round(&self, now: Instant, problem: Option<&StoreError>) {
        let mut state = self.lock();
        for waiter in std::mem::take(&mut state.waiting) {
            if waiter.is_in_round && waiter.until <= now {
                let failed =
                    |problem: &StoreError| StoreError::Database(problem.to_string()).into();
                let _ = waiter.reply.send(problem.map_or(Ok(None), |problem| Err(failed(problem))));
            } else {
                let was_served = waiter.was_served || (waiter.is_in_round && problem.is_none());
                state.waiting.push(Waiter { was_served, is_in_round: false, ..waiter });
            }
        }
    }

    /// Nobody will be served any more: those who wait are told that there is no task, as when their time is over.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        for waiter in state.waiting.drain(..) {
            let _ = waiter.reply.send(Ok(None));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that panics happens under it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Gives the place up, unless a round is looking for a task for it or none has looked yet: says whether it did.
    pub(crate) fn try_leave(&self) -> bool {
        let mut state = self.waiters.lock();
        let Some(place) = state.waiting.iter().position(|it| it.number == self.number) else {
            return false;
        };
        let waiter = &state.waiting[place];
        let may_leave = waiter.was_served && !waiter.is_in_round;
        if may_leave {
            state.waiting.remove(place);
        }
        may_leave
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiters.lock().waiting.retain(|it| it.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(id: &str) -> AgentId {
        AgentId { id: id.to_owned(), seed: [0; 32] }
    }

    #[tokio::test]
    async fn agents_are_served_in_the_order_in_which_they_came() {
        let waiters = Waiters::default();
        let until = Instant::now();
        for name in ["a", "b", "c"] {
            waiters.join(&agent(name), until).unwrap();
        }
        drop(waiters.place(1));
        let (numbers, askers) = waiters.enter_round();
        assert_eq!(numbers, [0, 2]);
        assert_eq!(askers.iter().map(|it| it.agent.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    }

    #[tokio::test]
    async fn nobody_leaves_before_a_round_has_looked() {
        let waiters = Waiters::default();
        let now = Instant::now();
        let (number, _answer) =
            waiters.join(&agent("a"), now + std::time::Duration::from_secs(9)).unwrap();
        let place = waiters.place(number);
        assert!(!place.try_leave(), "no round yet");
        waiters.enter_round();
        assert!(!place.try_leave(), "within a round");
        waiters.leave_round(now, Some(&StoreError::Closed));
        assert!(!place.try_leave(), "that round failed");
        waiters.enter_round();
        waiters.leave_round(now, None);
        assert!(place.try_leave());
        assert!(!waiters.are_there());
    }

    #[tokio::test]
    async fn a_wait_that_is_over_ends_with_the_round() {
        let waiters = Waiters::default();
        let now = Instant::now();
        let (_place, answer) = waiters.join(&agent("a"), now).unwrap();
        // One that came after the round began has had no look yet.
        waiters.enter_round();
        let (_late, mut late_answer) = waiters.join(&agent("b"), now).unwrap();
        waiters.leave_round(now, None);
        assert!(matches!(answer.await, Ok(Ok(None))));
        assert!(late_answer.try_recv().is_err());
    }

    #[tokio::test]
    async fn an_agent_that_asks_anew_ends_its_older_claim() {
        let waiters = Waiters::default();
        let (_old, old_answer) = waiters.join(&agent("a"), Instant::now()).unwrap();
        let (new, _answer) = waiters.join(&agent("a"), Instant::now()).unwrap();
        assert!(matches!(old_answer.await, Ok(Ok(None))));
        assert_eq!(waiters.names(), ["a"]);
        drop(waiters.place(new));
        waiters.close();
        assert!(waiters.join(&agent("a"), Instant::now()).is_err());
    }
}

//! Agents that wait for a task in this process. Each agent has at most one open claim. Claims are
//! served in the order of their arrival.

use std::sync::{Mutex, MutexGuard, PoisonError};

use fairgate_store::StoreError;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::agent_id::AgentId;
use crate::error::FleetError;
use crate::round::{ClaimingAgent, GrantedClaim};

/// Reply to an agent that waits for a task; `Ok(None)` if there was no task until the end of its
/// wait.
pub(crate) type ClaimResult = Result<Option<GrantedClaim>, FleetError>;

/// Open claims of waiting agents.
#[derive(Debug, Default)]
pub(crate) struct ClaimWaiters {
    state: Mutex<ClaimWaitersState>,
}

#[derive(Debug, Default)]
struct ClaimWaitersState {
    /// Open claims in the order of arrival.
    waiting: Vec<ClaimWaiter>,
    next_number: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct ClaimWaiter {
    number: u64,
    asker: ClaimingAgent,
    /// Time at which the agent's wait ends.
    until: Instant,
    reply: oneshot::Sender<ClaimResult>,
    /// True once a round has looked for a task for this agent without a failure.
    was_served: bool,
    /// True while a round is looking for a task for this agent.
    is_in_round: bool,
}

/// Guard of an open claim. The agent stops waiting when the guard is dropped.
#[derive(Debug)]
pub(crate) struct ClaimWaiterGuard<'a> {
    waiters: &'a ClaimWaiters,
    number: u64,
}

impl ClaimWaiters {
    /// Opens a claim for an agent that waits until `until`. Returns the claim's number and the
    /// receiver of the reply. An older open claim of the same agent ends without a task, because
    /// the new call replaces it.
    pub(crate) fn join(
        &self,
        agent: &AgentId,
        until: Instant,
    ) -> Result<(u64, oneshot::Receiver<ClaimResult>), FleetError> {
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
        let asker = ClaimingAgent { agent: agent.id.clone(), seed: agent.seed, token: agent.token };
        let waiter =
            ClaimWaiter { number, asker, until, reply, was_served: false, is_in_round: false };
        state.waiting.push(waiter);
        Ok((number, answer))
    }

    /// Returns the guard of the claim with this number.
    pub(crate) fn place(&self, number: u64) -> ClaimWaiterGuard<'_> {
        ClaimWaiterGuard { waiters: self, number }
    }

    /// Returns whether any agent waits.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.lock().waiting.is_empty()
    }

    /// Returns the names of the waiting agents.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().waiting.iter().map(|it| it.asker.agent.clone()).collect()
    }

    /// Returns the numbers of all open claims and their agents, and marks the claims as being in a round.
    pub(crate) fn enter_round(&self) -> (Vec<u64>, Vec<ClaimingAgent>) {
        let mut state = self.lock();
        let enter = |waiter: &mut ClaimWaiter| {
            waiter.is_in_round = true;
            (waiter.number, waiter.asker.clone())
        };
        state.waiting.iter_mut().map(enter).unzip()
    }

    /// Sends the result of the open claim with this number to the waiting agent, and removes the claim.
    pub(crate) fn send_result(&self, number: u64, claimed: ClaimResult) {
        let mut state = self.lock();
        if let Some(place) = state.waiting.iter().position(|it| it.number == number) {
            // If nobody receives the reply, the agent gets the same task at its next call, or its
            // lease runs out.
            let _ = state.waiting.remove(place).reply.send(claimed);
        }
    }

    /// Ends a round. Agents in the round whose wait is over get a reply: no task, or the error of
    /// the round.
    pub(crate) fn leave_round(&self, now: Instant, problem: Option<&StoreError>) {
        let mut state = self.lock();
        for waiter in std::mem::take(&mut state.waiting) {
            if waiter.is_in_round && waiter.until <= now {
                let failed = |problem: &StoreError| problem.repeated().into();
                let _ = waiter.reply.send(problem.map_or(Ok(None), |problem| Err(failed(problem))));
            } else {
                let was_served = waiter.was_served || (waiter.is_in_round && problem.is_none());
                state.waiting.push(ClaimWaiter { was_served, is_in_round: false, ..waiter });
            }
        }
    }

    /// Refuses further claims. All waiting agents get the reply that there is no task, as at the
    /// end of their wait.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        for waiter in state.waiting.drain(..) {
            let _ = waiter.reply.send(Ok(None));
        }
    }

    fn lock(&self) -> MutexGuard<'_, ClaimWaitersState> {
        // No code that can panic runs under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClaimWaiterGuard<'_> {
    /// Removes the open claim if a round has looked for a task for its agent and no round does so
    /// now. Returns true if the claim was removed.
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

impl Drop for ClaimWaiterGuard<'_> {
    fn drop(&mut self) {
        self.waiters.lock().waiting.retain(|it| it.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(id: &str) -> AgentId {
        AgentId { id: id.to_owned(), seed: [0; 32], token: None }
    }

    #[tokio::test]
    async fn agents_are_served_in_the_order_in_which_they_came() {
        let waiters = ClaimWaiters::default();
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
        let waiters = ClaimWaiters::default();
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
        assert!(!waiters.has_waiters());
    }

    #[tokio::test]
    async fn a_wait_that_is_over_ends_with_the_round() {
        let waiters = ClaimWaiters::default();
        let now = Instant::now();
        let (_place, answer) = waiters.join(&agent("a"), now).unwrap();
        // The round has not looked for a task for an agent that came after its beginning.
        waiters.enter_round();
        let (_late, mut late_answer) = waiters.join(&agent("b"), now).unwrap();
        waiters.leave_round(now, None);
        assert!(matches!(answer.await, Ok(Ok(None))));
        assert!(late_answer.try_recv().is_err());
    }

    #[tokio::test]
    async fn an_agent_that_asks_anew_ends_its_older_claim() {
        let waiters = ClaimWaiters::default();
        let (_old, old_answer) = waiters.join(&agent("a"), Instant::now()).unwrap();
        let (new, _answer) = waiters.join(&agent("a"), Instant::now()).unwrap();
        assert!(matches!(old_answer.await, Ok(Ok(None))));
        assert_eq!(waiters.names(), ["a"]);
        drop(waiters.place(new));
        waiters.close();
        assert!(waiters.join(&agent("a"), Instant::now()).is_err());
    }
}

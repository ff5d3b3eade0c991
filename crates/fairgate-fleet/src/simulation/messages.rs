//! Messages of agents. Messages and their answers may be late, arrive twice, or be lost.

use fairgate_api::agents::TaskLeaseBody;

use super::expected_state::{ClaimEnding, ExpectedClaim};
use super::simulated_fleet::{FleetSimActivity, FleetSimulation};
use crate::agent_reports::{TaskCompletion, TaskFailure, TaskHeartbeat, TaskQuestion, TaskRelease};
use crate::error::FleetError;

/// A message of an agent about its claim.
#[derive(Clone, Debug)]
pub(super) struct FleetSimMessage {
    /// Time of arrival, in microseconds.
    due: i64,
    /// Index of the agent.
    agent: usize,
    task: String,
    epoch: u64,
    /// Ending of the claim; `None` for a heartbeat.
    ending: Option<ClaimEnding>,
    /// Tokens that the agent reports.
    tokens: Option<u64>,
    /// True if the agent receives the answer.
    is_heard: bool,
}

impl FleetSimulation {
    /// Sends a message of an agent about its claim.
    pub(super) async fn send_message(&mut self, agent: usize, ending: Option<ClaimEnding>) {
        let FleetSimActivity::Working { claim, used, .. } = &self.agents[agent].doing else {
            return;
        };
        let (task, epoch, used) = (claim.task.clone(), claim.epoch, *used);
        // Agents that call models through the gateway need not report tokens. Some of them report
        // wrong numbers nevertheless.
        let tokens = match (self.agents[agent].reports, self.agents[agent].lies) {
            (true, _) => Some(used),
            (false, true) => Some(self.dice.within(0, 1_000_000)),
            (false, false) => None,
        };
        let delay = if self.dice.one_in(6) { self.dice.seconds(1, 150) } else { 0 };
        let message = FleetSimMessage {
            due: self.now() + delay,
            agent,
            task,
            epoch,
            ending,
            tokens,
            is_heard: delay == 0 && !self.dice.one_in(8),
        };
        if self.dice.one_in(8) {
            let due = self.now() + self.dice.seconds(0, 200);
            self.messages.push(FleetSimMessage { due, is_heard: false, ..message.clone() });
        }
        match (self.dice.one_in(12), delay) {
            (true, _) => self.counts.messages_lost += 1,
            (false, 0) => self.deliver(message).await,
            (false, _) => self.messages.push(message),
        }
    }

    /// Delivers the messages that are due, in random order.
    pub(super) async fn deliver_due(&mut self) {
        let now = self.now();
        let (mut due, later) = std::mem::take(&mut self.messages)
            .into_iter()
            .partition::<Vec<_>, _>(|it| it.due <= now);
        self.messages = later;
        while !due.is_empty() {
            let message = due.swap_remove(self.dice.place(&due));
            self.counts.messages_late += 1;
            self.deliver(message).await;
        }
    }

    /// Delivers a message, and checks that the result agrees with the expected state.
    async fn deliver(&mut self, message: FleetSimMessage) {
        let id = self.agents[message.agent].id.clone();
        let (task, epoch) = (message.task.as_str(), message.epoch);
        let hold = self.expected.hold(task, epoch).filter(|hold| hold.agent == id.id).cloned();
        let said = self.send_to_fleet(&message).await;
        let was_ended = self.expected.ended.get(&(message.task.clone(), epoch));
        let was_ended = was_ended.filter(|(agent, _)| *agent == id.id).map(|(_, how)| *how);
        match (hold, message.ending, said) {
            (Some(hold), None, Ok(Some(held))) => self.renewed(&message, &hold, &held),
            (Some(hold), Some(ending), Ok(None)) => self.ended(&message, &hold, ending),
            // A repetition has no effect.
            (None, Some(ending), Ok(None)) => {
                let before = was_ended
                    .unwrap_or_else(|| panic!("seed {}: {message:?} ended nothing", self.seed));
                assert!(
                    ending.is_same(before) || before == ClaimEnding::Release,
                    "seed {}",
                    self.seed
                );
                self.counts.endings_repeated += 1;
            }
            (None, ending, Err(FleetError::LeaseLost { .. })) => {
                let is_same = |ending: ClaimEnding| was_ended.is_some_and(|it| it.is_same(ending));
                assert!(!ending.is_some_and(is_same), "seed {}: {message:?}", self.seed);
                self.counts.leases_lost += 1;
                if message.is_heard {
                    self.stop(message.agent, &message.task, epoch);
                }
                return;
            }
            (hold, _, said) => panic!("seed {}: {message:?} to {hold:?}: {said:?}", self.seed),
        }
        if message.is_heard && message.ending.is_some() {
            self.stop(message.agent, &message.task, epoch);
        }
    }

    async fn send_to_fleet(
        &mut self,
        message: &FleetSimMessage,
    ) -> Result<Option<TaskLeaseBody>, FleetError> {
        let fleet = self.fleet();
        let id = self.agents[message.agent].id.clone();
        let FleetSimMessage { task, epoch, tokens, .. } = message;
        let (task, epoch, tokens) = (task.as_str(), *epoch, *tokens);
        let Some(ending) = message.ending else {
            let heartbeat = TaskHeartbeat { progress: Some("at work".into()), tokens };
            return fleet.heartbeat(&id, task, epoch, heartbeat).await.map(Some);
        };
        let failure = |reason: &str| TaskFailure {
            reason: Some(reason.to_owned()),
            limited_until: None,
            tokens,
        };
        let ended = match ending {
            ClaimEnding::Complete => {
                fleet.complete(&id, task, epoch, TaskCompletion { result: None, tokens }).await
            }
            ClaimEnding::Fail => fleet.fail(&id, task, epoch, failure("it broke")).await,
            ClaimEnding::Limited => {
                let until = Some(fairgate_time::UnixMicros(self.now() + 90_000_000));
                let failure = TaskFailure { limited_until: until, ..failure("a limit") };
                fleet.fail(&id, task, epoch, failure).await
            }
            ClaimEnding::Ask => {
                let question = TaskQuestion { question: "Which?".into(), tokens };
                fleet.ask(&id, task, epoch, question).await
            }
            // Usage that the agent did not report is not charged.
            ClaimEnding::Release => fleet.release(&id, task, epoch, TaskRelease::default()).await,
        };
        ended.map(|_| None)
    }

    fn renewed(&mut self, message: &FleetSimMessage, before: &ExpectedClaim, held: &TaskLeaseBody) {
        let used = self.report(message, before);
        let lease = i64::try_from(self.options.lease.as_micros()).unwrap();
        let until = self.now() + lease;
        // A lease ends at most one length after the timeout, and a renewal never shortens it.
        let until =
            before.timeout_at.map_or(until, |at| until.min(at + lease).max(before.lease_until));
        let expected = (until, used, before.reserved);
        assert_eq!((held.lease_until.0, held.used, held.reserved), expected, "seed {}", self.seed);
        self.expected.hold(&message.task, message.epoch).unwrap().lease_until = until;
    }

    fn ended(&mut self, message: &FleetSimMessage, before: &ExpectedClaim, ending: ClaimEnding) {
        if ending != ClaimEnding::Release {
            self.report(message, before);
        }
        self.expected.holds.remove(&message.task);
        let how = (before.agent.clone(), ending);
        self.expected.ended.insert((message.task.clone(), message.epoch), how);
        if ending == ClaimEnding::Complete {
            let task = self.expected.tasks.get_mut(&message.task).unwrap();
            assert!(!task.is_completed, "seed {}: completed twice", self.seed);
            task.is_completed = true;
            self.counts.completed += 1;
        }
    }

    /// Records the usage that an agent reported, and returns the usage of its claim.
    fn report(&mut self, message: &FleetSimMessage, before: &ExpectedClaim) -> u64 {
        let agent = &self.agents[message.agent];
        let Some(tokens) = message.tokens.filter(|_| agent.reports) else {
            self.counts.lies += u64::from(agent.lies);
            return before.used;
        };
        let more = tokens.saturating_sub(before.used);
        let beyond = tokens.saturating_sub(before.reserved.max(before.used));
        self.expected.charge(&message.task, message.epoch, more.cast_signed(), beyond, self.now());
        tokens.max(before.used)
    }

    /// Informs an agent that its claim is over. Sometimes the agent's command continues.
    fn stop(&mut self, agent: usize, task: &str, epoch: u64) {
        let doing = &mut self.agents[agent].doing;
        let is_it = matches!(doing, FleetSimActivity::Working { claim, .. } if claim.task == task && claim.epoch == epoch);
        if !is_it {
            return;
        }
        if let FleetSimActivity::Working { claim, .. } =
            std::mem::replace(doing, FleetSimActivity::Idle)
            && self.dice.one_in(3)
        {
            self.stale_claims.push(*claim);
        }
    }
}

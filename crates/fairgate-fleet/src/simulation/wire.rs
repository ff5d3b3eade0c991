//! What agents say, on its way: it may be late, come twice, or never; and so may its answer.

use super::shadow::{Ending, Hold};
use super::world::{Doing, World};
use crate::error::FleetError;
use crate::model::*;

/// Something that an agent says of its claim.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// When it arrives.
    due: i64,
    /// Which agent.
    agent: usize,
    task: String,
    epoch: u64,
    /// How it ends the claim; none where it is a sign of life.
    ending: Option<Ending>,
    /// What it says it used.
    tokens: Option<u64>,
    /// Whether the agent hears the answer.
    is_heard: bool,
}

impl World {
    /// An agent says something of its claim.
    pub(super) async fn say(&mut self, agent: usize, ending: Option<Ending>) {
        let Doing::Working { claim, used, .. } = &self.agents[agent].doing else { return };
        let (task, epoch, used) = (claim.task.clone(), claim.epoch, *used);
        // Agents that call through the gateway have nothing to report; some do, and lie.
        let tokens = match (self.agents[agent].reports, self.agents[agent].lies) {
            (true, _) => Some(used),
            (false, true) => Some(self.dice.within(0, 1_000_000)),
            (false, false) => None,
        };
        let delay = if self.dice.one_in(6) { self.dice.seconds(1, 150) } else { 0 };
        let message = Message {
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
            self.wire.push(Message { due, is_heard: false, ..message.clone() });
        }
        match (self.dice.one_in(12), delay) {
            (true, _) => self.seen.messages_lost += 1,
            (false, 0) => self.deliver(message).await,
            (false, _) => self.wire.push(message),
        }
    }

    /// What is due arrives, in any order.
    pub(super) async fn deliver_due(&mut self) {
        let now = self.now();
        let (mut due, later) =
            std::mem::take(&mut self.wire).into_iter().partition::<Vec<_>, _>(|it| it.due <= now);
        self.wire = later;
        while !due.is_empty() {
            let message = due.swap_remove(self.dice.place(&due));
            self.seen.messages_late += 1;
            self.deliver(message).await;
        }
    }

    /// A message arrives. What comes of it must be what the books say.
    async fn deliver(&mut self, message: Message) {
        let id = self.agents[message.agent].id.clone();
        let (task, epoch) = (message.task.as_str(), message.epoch);
        let hold = self.shadow.hold(task, epoch).filter(|hold| hold.agent == id.id).cloned();
        let said = self.told(&message).await;
        let was_ended = self.shadow.ended.get(&(message.task.clone(), epoch));
        let was_ended = was_ended.filter(|(agent, _)| *agent == id.id).map(|(_, how)| *how);
        match (hold, message.ending, said) {
            (Some(hold), None, Ok(Some(held))) => self.renewed(&message, &hold, &held),
            (Some(hold), Some(ending), Ok(None)) => self.ended(&message, &hold, ending),
            // Said twice: nothing comes of it.
            (None, Some(ending), Ok(None)) => {
                let before = was_ended
                    .unwrap_or_else(|| panic!("seed {}: {message:?} ended nothing", self.seed));
                assert!(ending.is_same(before) || before == Ending::Release, "seed {}", self.seed);
                self.seen.endings_repeated += 1;
            }
            (None, ending, Err(FleetError::LeaseLost { .. })) => {
                let is_same = |ending: Ending| was_ended.is_some_and(|it| it.is_same(ending));
                assert!(!ending.is_some_and(is_same), "seed {}: {message:?}", self.seed);
                self.seen.leases_lost += 1;
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

    async fn told(&mut self, message: &Message) -> Result<Option<Held>, FleetError> {
        let fleet = self.fleet();
        let id = self.agents[message.agent].id.clone();
        let Message { task, epoch, tokens, .. } = message;
        let (task, epoch, tokens) = (task.as_str(), *epoch, *tokens);
        let Some(ending) = message.ending else {
            let heartbeat = Heartbeat { progress: Some("at work".into()), tokens };
            return fleet.heartbeat(&id, task, epoch, heartbeat).await.map(Some);
        };
        let failure =
            |reason: &str| Failure { reason: Some(reason.to_owned()), limited_until: None, tokens };
        let ended = match ending {
            Ending::Complete => {
                fleet.complete(&id, task, epoch, Completion { result: None, tokens }).await
            }
            Ending::Fail => fleet.fail(&id, task, epoch, failure("it broke")).await,
            Ending::Limited => {
                let until = Some(fairgate_money::UnixMicros(self.now() + 90_000_000));
                let failure = Failure { limited_until: until, ..failure("a limit") };
                fleet.fail(&id, task, epoch, failure).await
            }
            Ending::Ask => {
                let question = Question { question: "Which?".into(), tokens };
                fleet.ask(&id, task, epoch, question).await
            }
            // What it used without saying so is not charged.
            Ending::Release => fleet.release(&id, task, epoch, Release::default()).await,
        };
        ended.map(|_| None)
    }

    fn renewed(&mut self, message: &Message, before: &Hold, held: &Held) {
        let used = self.report(message, before);
        let lease = i64::try_from(self.options.lease.as_micros()).unwrap();
        let until = self.now() + lease;
        let expected = (until, used, before.reserved);
        assert_eq!((held.lease_until.0, held.used, held.reserved), expected, "seed {}", self.seed);
        self.shadow.hold(&message.task, message.epoch).unwrap().lease_until = until;
    }

    fn ended(&mut self, message: &Message, before: &Hold, ending: Ending) {
        if ending != Ending::Release {
            self.report(message, before);
        }
        self.shadow.holds.remove(&message.task);
        let how = (before.agent.clone(), ending);
        self.shadow.ended.insert((message.task.clone(), message.epoch), how);
        if ending == Ending::Complete {
            let task = self.shadow.tasks.get_mut(&message.task).unwrap();
            assert!(!task.is_completed, "seed {}: completed twice", self.seed);
            task.is_completed = true;
            self.seen.completed += 1;
        }
    }

    /// Books what a claim's agent reported; says what the claim has used.
    fn report(&mut self, message: &Message, before: &Hold) -> u64 {
        let agent = &self.agents[message.agent];
        let Some(tokens) = message.tokens.filter(|_| agent.reports) else {
            self.seen.lies += u64::from(agent.lies);
            return before.used;
        };
        let more = tokens.saturating_sub(before.used);
        let beyond = tokens.saturating_sub(before.reserved.max(before.used));
        self.shadow.charge(&message.task, message.epoch, more.cast_signed(), beyond, self.now());
        tokens.max(before.used)
    }

    /// An agent hears that a claim is over. Now and then something of it goes on.
    fn stop(&mut self, agent: usize, task: &str, epoch: u64) {
        let doing = &mut self.agents[agent].doing;
        let is_it = matches!(doing, Doing::Working { claim, .. } if claim.task == task && claim.epoch == epoch);
        if !is_it {
            return;
        }
        if let Doing::Working { claim, .. } = std::mem::replace(doing, Doing::Idle)
            && self.dice.one_in(3)
        {
            self.zombies.push(*claim);
        }
    }
}

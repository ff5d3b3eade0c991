//! What agents do, and what they do wrong.

use tokio::time::Instant;

use super::world::{Doing, World};
use crate::error::FleetError;
use crate::model::*;

/// How long an agent lets a connection wait, in virtual seconds.
const WAIT_S: u64 = 60;

impl World {
    /// An agent does something.
    pub(super) async fn act(&mut self, agent: usize) {
        match &self.agents[agent].doing {
            Doing::Idle => self.claim(agent),
            Doing::Waiting { until, .. } if *until <= self.now() => self.leave(agent),
            Doing::Waiting { .. } => {
                // It lost its connection, or asks anew without knowing why.
                if self.dice.one_in(15) {
                    self.leave(agent);
                }
            }
            Doing::Working { .. } => self.work(agent).await,
            Doing::Dead { until } if *until <= self.now() => self.agents[agent].doing = Doing::Idle,
            Doing::Dead { .. } => {}
        }
    }

    fn claim(&mut self, agent: usize) {
        let server = self.dice.place(&self.servers);
        let until = self.now() + i64::try_from(self.dice.within(0, WAIT_S)).unwrap() * 1_000_000;
        let waiters = &self.servers[server].fleet.dispatch().waiters;
        let never = Instant::now() + std::time::Duration::from_secs(86_400);
        let (number, answer) = waiters.join(&self.agents[agent].id, never).unwrap();
        self.agents[agent].doing = Doing::Waiting { server, number, answer, until };
    }

    /// An agent goes away from where it waits.
    pub(super) fn leave(&mut self, agent: usize) {
        let doing = std::mem::replace(&mut self.agents[agent].doing, Doing::Idle);
        if let Doing::Waiting { server, number, .. } = doing {
            drop(self.servers[server].fleet.dispatch().waiters.place(number));
        }
    }

    /// Agents hear what the servers told them; now and then an answer is lost.
    pub(super) fn take_answers(&mut self) {
        for agent in 0..self.agents.len() {
            let Doing::Waiting { answer, .. } = &mut self.agents[agent].doing else { continue };
            let Ok(claimed) = answer.try_recv() else { continue };
            self.agents[agent].doing = match claimed.unwrap() {
                Some(claim) if !self.dice.one_in(12) => {
                    Doing::Working { claim: Box::new(claim), used: 0 }
                }
                _ => Doing::Idle,
            };
        }
    }

    async fn work(&mut self, agent: usize) {
        let fate = self.dice.below(24);
        if fate == 0 {
            let until = self.now() + i64::try_from(self.dice.within(1, 300)).unwrap() * 1_000_000;
            self.agents[agent].doing = Doing::Dead { until };
            return;
        }
        if fate == 1 {
            // It is silent for a while, and may find that it is not its task any more.
            return;
        }
        let id = self.agents[agent].id.clone();
        let Doing::Working { claim, used } = &mut self.agents[agent].doing else { return };
        let (claim, before) = (claim.clone(), *used);
        let more = self.dice.below(claim.reserved.saturating_sub(before) + 1);
        let tokens = before + more;
        if let Doing::Working { used, .. } = &mut self.agents[agent].doing {
            *used = tokens;
        }
        let said = Some(tokens);
        let fleet = self.fleet();
        let (task, epoch) = (claim.task.as_str(), claim.epoch);
        let ended: Result<bool, FleetError> = match fate {
            2..=13 => {
                let heartbeat = Heartbeat { progress: Some("at work".into()), tokens: said };
                fleet.heartbeat(&id, task, epoch, heartbeat).await.map(|_| false)
            }
            14..=19 => {
                let done = Completion { result: None, tokens: said };
                fleet.complete(&id, task, epoch, done).await.map(|_| true)
            }
            20 => {
                let failure =
                    Failure { reason: Some("it broke".into()), limited_until: None, tokens: said };
                fleet.fail(&id, task, epoch, failure).await.map(|_| true)
            }
            21 => {
                let question = Question { question: "Which?".into(), tokens: said };
                fleet.ask(&id, task, epoch, question).await.map(|_| true)
            }
            22 => {
                let until = fairgate_money::UnixMicros(self.now() + 90_000_000);
                let failure = Failure { reason: None, limited_until: Some(until), tokens: said };
                fleet.fail(&id, task, epoch, failure).await.map(|_| true)
            }
            // What it used without saying so is not charged.
            _ => fleet.release(&id, task, epoch, Release::default()).await.map(|_| true),
        };
        self.note(agent, &claim, fate, tokens, before, ended).await;
    }

    /// Takes what the server said, or loses it: then the agent says the same again.
    async fn note(
        &mut self,
        agent: usize,
        claim: &Claim,
        fate: u64,
        tokens: u64,
        before: u64,
        said: Result<bool, FleetError>,
    ) {
        let is_release = fate >= 23;
        match said {
            Ok(has_ended) => {
                if is_release {
                    if let Doing::Working { used, .. } = &mut self.agents[agent].doing {
                        *used = before;
                    }
                } else {
                    self.charge(claim, tokens);
                }
                if (14..=19).contains(&fate) {
                    *self.completed.entry(claim.task.clone()).or_default() += 1;
                }
                if has_ended && self.dice.one_in(4) {
                    self.repeat(agent, claim, fate, tokens).await;
                }
                if has_ended {
                    self.agents[agent].doing = Doing::Idle;
                }
            }
            Err(FleetError::LeaseLost { .. }) => self.agents[agent].doing = Doing::Idle,
            Err(error) => panic!("seed {}: {error}", self.seed),
        }
    }

    /// Counts what the fleet must have charged.
    fn charge(&mut self, claim: &Claim, tokens: u64) {
        let most = self.reported.entry((claim.task.clone(), claim.epoch)).or_default();
        let more = tokens.saturating_sub(*most);
        *most += more;
        *self.charged.entry(claim.project.clone()).or_default() += more;
    }

    /// Says once more what has been said: nothing must come of it.
    async fn repeat(&mut self, agent: usize, claim: &Claim, fate: u64, tokens: u64) {
        let id = self.agents[agent].id.clone();
        let (task, epoch) = (claim.task.as_str(), claim.epoch);
        if self.dice.one_in(2) {
            // By now another agent may have it.
            self.clock.0.fetch_add(1_000_000, std::sync::atomic::Ordering::Relaxed);
            let server = self.dice.place(&self.servers);
            self.serve(server).await;
        }
        let fleet = self.fleet();
        let again = match fate {
            14..=19 => {
                let done = Completion { result: None, tokens: Some(tokens + 7) };
                fleet.complete(&id, task, epoch, done).await.map(drop)
            }
            20 => {
                let failure = Failure { tokens: Some(tokens + 7), ..Failure::default() };
                fleet.fail(&id, task, epoch, failure).await.map(drop)
            }
            21 => {
                let question = Question { question: "Which?".into(), tokens: Some(tokens + 7) };
                fleet.ask(&id, task, epoch, question).await.map(drop)
            }
            _ => return,
        };
        match again {
            Ok(()) | Err(FleetError::LeaseLost { .. }) => {}
            Err(error) => panic!("seed {}: said again: {error}", self.seed),
        }
    }
}

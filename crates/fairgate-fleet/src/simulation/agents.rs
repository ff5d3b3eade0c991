//! What agents do, and what they do wrong.

use tokio::time::Instant;

use super::shadow::Ending;
use super::world::{Doing, Ghost, World};

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
        let until = self.now() + self.dice.seconds(0, WAIT_S);
        let waiters = &self.servers[server].fleet.dispatch().waiters;
        let never = Instant::now() + std::time::Duration::from_secs(86_400);
        let (number, answer) = waiters.join(&self.agents[agent].id, never).unwrap();
        self.agents[agent].doing = Doing::Waiting { server, number, answer, until };
    }

    /// An agent goes away from where it waits. The server may not have noticed yet.
    pub(super) fn leave(&mut self, agent: usize) {
        let doing = std::mem::replace(&mut self.agents[agent].doing, Doing::Idle);
        let Doing::Waiting { server, number, answer, .. } = doing else { return };
        if self.dice.one_in(3) {
            self.ghosts.push(Ghost { agent, server, answer });
        } else {
            drop(self.servers[server].fleet.dispatch().waiters.place(number));
        }
    }

    /// Agents hear what the servers told them; now and then an answer is lost. What goes to nobody is booked all the same.
    pub(super) fn take_answers(&mut self) {
        let lost = |it: &mut Ghost| it.answer.try_recv().ok().map(|claimed| (it.agent, claimed));
        for (agent, claimed) in self.ghosts.iter_mut().filter_map(lost).collect::<Vec<_>>() {
            if let Some(claim) = claimed.unwrap() {
                self.shadow.given(&self.agents[agent].id.id, &claim);
                self.seen.claims_unheard += 1;
            }
        }
        self.ghosts.retain(|ghost| !ghost.answer.is_terminated());
        for agent in 0..self.agents.len() {
            let Doing::Waiting { answer, .. } = &mut self.agents[agent].doing else { continue };
            let Ok(claimed) = answer.try_recv() else { continue };
            let claim = claimed.unwrap();
            if let Some(claim) = &claim {
                let id = &self.agents[agent].id.id;
                self.shadow.given(id, claim);
                assert_eq!(claim.key.is_none(), self.agents[agent].reports);
                self.seen.claims += 1;
            }
            self.agents[agent].doing = match claim {
                Some(claim) if !self.dice.one_in(12) => {
                    let used = self.shadow.holds[&claim.task].used;
                    Doing::Working { claim: Box::new(claim), used, ending: None }
                }
                _ => Doing::Idle,
            };
        }
    }

    async fn work(&mut self, agent: usize) {
        let fate = self.dice.below(48);
        let Doing::Working { claim, used, ending } = &self.agents[agent].doing else { return };
        let (claim, before, ending) = (claim.clone(), *used, *ending);
        if fate < 2 {
            let until = self.now() + self.dice.seconds(1, 300);
            self.agents[agent].doing = Doing::Dead { until };
            // Its command may outlive it.
            if self.dice.one_in(2) {
                self.zombies.push(*claim);
            }
            return;
        }
        if fate < 4 {
            // It is silent for a while, and may find that it is not its task any more.
            return;
        }
        // What it has begun to say it says until it hears an answer.
        if ending.is_some() {
            return self.say(agent, ending).await;
        }
        if self.agents[agent].reports {
            let most = claim.reserved.saturating_sub(before) + 1;
            let is_beyond = self.dice.one_in(10);
            let more = self.dice.below(if is_beyond { most + 200 } else { most });
            if let Doing::Working { used, .. } = &mut self.agents[agent].doing {
                *used += more;
            }
        } else if fate < 30 {
            let is_let = self.begin_call(&claim).await;
            if is_let || !self.dice.one_in(3) {
                return;
            }
        }
        let ends = match fate {
            ..32 => None,
            32..43 => Some(Ending::Complete),
            43 => Some(Ending::Fail),
            44 => Some(Ending::Ask),
            45 => Some(Ending::Limited),
            46 => Some(Ending::Release),
            _ => None,
        };
        if let Doing::Working { ending, .. } = &mut self.agents[agent].doing {
            *ending = ends;
        }
        self.say(agent, ends).await;
    }

    /// What is left of dead agents and lost claims makes calls with the old keys.
    pub(super) async fn haunt(&mut self) {
        for claim in std::mem::take(&mut self.zombies) {
            if self.dice.one_in(2) {
                self.begin_call(&claim).await;
            }
            if !self.dice.one_in(4) {
                self.zombies.push(claim);
            }
        }
    }
}

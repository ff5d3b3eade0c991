//! Simulated agents, with their work and their misbehaviour.

use tokio::time::Instant;

use super::expected_state::ClaimEnding;
use super::simulated_fleet::{AbandonedClaim, FleetSimActivity, FleetSimulation};
use crate::round::GrantedClaim;

/// Maximum time that an agent waits for a task, in virtual seconds.
const WAIT_S: u64 = 60;

impl FleetSimulation {
    /// Runs one step of an agent.
    pub(super) async fn act(&mut self, agent: usize) {
        match &self.agents[agent].doing {
            FleetSimActivity::Idle => self.claim(agent),
            FleetSimActivity::Waiting { until, .. } if *until <= self.now() => self.leave(agent),
            FleetSimActivity::Waiting { .. } => {
                // The agent lost its connection, or calls again for no reason.
                if self.dice.one_in(15) {
                    self.leave(agent);
                }
            }
            FleetSimActivity::Working { .. } => self.work(agent).await,
            FleetSimActivity::Dead { until } if *until <= self.now() => {
                self.agents[agent].doing = FleetSimActivity::Idle
            }
            FleetSimActivity::Dead { .. } => {}
        }
    }

    fn claim(&mut self, agent: usize) {
        let server = self.dice.place(&self.servers);
        let until = self.now() + self.dice.seconds(0, WAIT_S);
        let waiters = &self.servers[server].fleet.dispatch().waiters;
        let never = Instant::now() + std::time::Duration::from_secs(86_400);
        let (number, answer) = waiters.join(&self.agents[agent].id, never).unwrap();
        self.agents[agent].doing = FleetSimActivity::Waiting { server, number, answer, until };
    }

    /// Ends the wait of an agent. The server may not notice this at once.
    pub(super) fn leave(&mut self, agent: usize) {
        let doing = std::mem::replace(&mut self.agents[agent].doing, FleetSimActivity::Idle);
        let FleetSimActivity::Waiting { server, number, answer, .. } = doing else { return };
        if self.dice.one_in(3) {
            self.abandoned_claims.push(AbandonedClaim { agent, server, answer });
        } else {
            drop(self.servers[server].fleet.dispatch().waiters.place(number));
        }
    }

    /// Delivers the servers' replies to the agents; some replies are lost. Claims in lost replies
    /// are recorded as well.
    pub(super) fn take_answers(&mut self) {
        let lost =
            |it: &mut AbandonedClaim| it.answer.try_recv().ok().map(|claimed| (it.agent, claimed));
        for (agent, claimed) in
            self.abandoned_claims.iter_mut().filter_map(lost).collect::<Vec<_>>()
        {
            if let Some(GrantedClaim { claim, .. }) = claimed.unwrap() {
                self.expected.given(&self.agents[agent].id.id, &claim);
                self.counts.claims_unheard += 1;
            }
        }
        self.abandoned_claims.retain(|ghost| !ghost.answer.is_terminated());
        for agent in 0..self.agents.len() {
            let FleetSimActivity::Waiting { answer, .. } = &mut self.agents[agent].doing else {
                continue;
            };
            let Ok(claimed) = answer.try_recv() else { continue };
            let claim = claimed.unwrap().map(|granted| granted.claim);
            if let Some(claim) = &claim {
                let id = &self.agents[agent].id.id;
                self.expected.given(id, claim);
                assert_eq!(claim.key.is_none(), self.agents[agent].reports);
                self.counts.claims += 1;
                let project = &self.expected.projects[&claim.project];
                let machine =
                    claim.workspace.as_ref().and_then(|name| project.workspaces[name].as_ref());
                self.counts.claims_on_machines += u64::from(machine.is_some());
                let labels = &self.expected.tasks[&claim.task].requires;
                self.counts.claims_with_labels += u64::from(!labels.is_empty());
            }
            self.agents[agent].doing = match claim {
                Some(claim) if !self.dice.one_in(12) => {
                    let used = self.expected.holds[&claim.task].used;
                    FleetSimActivity::Working { claim: Box::new(claim), used, ending: None }
                }
                _ => FleetSimActivity::Idle,
            };
        }
    }

    async fn work(&mut self, agent: usize) {
        let fate = self.dice.below(48);
        let FleetSimActivity::Working { claim, used, ending } = &self.agents[agent].doing else {
            return;
        };
        let (claim, before, ending) = (claim.clone(), *used, *ending);
        if fate < 2 {
            let until = self.now() + self.dice.seconds(1, 300);
            self.agents[agent].doing = FleetSimActivity::Dead { until };
            // The agent's command may continue without the agent.
            if self.dice.one_in(2) {
                self.stale_claims.push(*claim);
            }
            return;
        }
        if fate < 4 {
            // The agent is silent for some time, and may lose its task meanwhile.
            return;
        }
        // The agent repeats the end of its claim until it gets an answer.
        if ending.is_some() {
            return self.send_message(agent, ending).await;
        }
        if self.agents[agent].reports {
            let most = claim.reserved.saturating_sub(before) + 1;
            let is_beyond = self.dice.one_in(10);
            let more = self.dice.below(if is_beyond { most + 200 } else { most });
            if let FleetSimActivity::Working { used, .. } = &mut self.agents[agent].doing {
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
            32..43 => Some(ClaimEnding::Complete),
            43 => Some(ClaimEnding::Fail),
            44 => Some(ClaimEnding::Ask),
            45 => Some(ClaimEnding::Limited),
            46 => Some(ClaimEnding::Release),
            _ => None,
        };
        if let FleetSimActivity::Working { ending, .. } = &mut self.agents[agent].doing {
            *ending = ends;
        }
        self.send_message(agent, ends).await;
    }

    /// Makes model calls with the keys of dead agents and lost claims.
    pub(super) async fn call_with_old_keys(&mut self) {
        for claim in std::mem::take(&mut self.stale_claims) {
            if self.dice.one_in(2) {
                self.begin_call(&claim).await;
            }
            if !self.dice.one_in(4) {
                self.stale_claims.push(claim);
            }
        }
    }
}

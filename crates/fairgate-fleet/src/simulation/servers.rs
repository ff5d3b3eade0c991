//! Simulated server processes. They run rounds, are sometimes slow, and are killed.

use std::sync::Arc;

use fairgate_core::proportional::schedule;
use fairgate_journal::schedule::{ScheduleRound, read_round, write_round};
use fairgate_store::{Store, StoreError, StoreOptions, Transaction};

use super::simulated_fleet::{FleetSimActivity, FleetSimServer, FleetSimulation};
use crate::fleet::Fleet;
use crate::fleet_clock::FleetClock;
use crate::round_loop::LoopStepResult;
use crate::round_timer::RoundTimer;

impl FleetSimulation {
    /// Creates a server that has just started.
    pub(super) fn server(&self) -> FleetSimServer {
        let clock: Arc<dyn FleetClock> = self.clock.clone();
        let fleet = Fleet::new(self.store.clone(), clock, self.options.clone());
        FleetSimServer { fleet, pace: RoundTimer::new(self.clock.now()), is_new: true }
    }

    /// Runs steps of a server's loop until there is nothing to do.
    pub(super) async fn serve(&mut self, server: usize) {
        let clock: Arc<dyn FleetClock> = self.clock.clone();
        let last_sign = self.last_sign().await;
        let FleetSimServer { fleet, pace, is_new } = &mut self.servers[server];
        // Earlier calls of this server or of others may have changed something.
        pace.request_round();
        for _ in 0..100 {
            match fleet.dispatch().step(&self.store, &clock, pace).await.unwrap() {
                LoopStepResult::Made(calls) => {
                    if std::mem::take(is_new)
                        && let Some(since) = last_sign
                    {
                        self.expected.record_outage(since, self.clock.now().0, self.options.lease);
                    }
                    self.counts.scheduler_calls += calls.len() as u64;
                    let is_over_tenants = |call: &&ScheduleRound| {
                        let mut projects = call.assignments.iter().map(|it| &it.project_id);
                        projects.any(|project| project.starts_with("tenant:"))
                    };
                    self.counts.tenant_calls += calls.iter().filter(is_over_tenants).count() as u64;
                    for call in calls {
                        reproduce(&call, self.seed);
                    }
                }
                LoopStepResult::Looked => {}
                LoopStepResult::Idle(_) => {
                    self.expected.round(self.clock.now().0);
                    return self.take_answers();
                }
            }
        }
        panic!("seed {}: the loop never rests", self.seed);
    }

    /// Returns the time of the last contact of any agent with any server; a server that starts
    /// knows no later one.
    async fn last_sign(&self) -> Option<i64> {
        let sql = "SELECT MAX(last_seen) FROM fleet_agents";
        let work = move |tx: &mut dyn Transaction| tx.first(sql, &[], |row| row.moment_or_null(0));
        let seen = self.store.inspect::<_, StoreError>(work).await.unwrap();
        seen.flatten().map(|seen| seen.0)
    }

    /// Kills and restarts a server. Agents that waited there get no reply.
    pub(super) async fn restart_server(&mut self) {
        let place = self.dice.place(&self.servers);
        self.servers[place] = self.server();
        self.abandoned_claims.retain(|ghost| ghost.server != place);
        for agent in &mut self.agents {
            if matches!(agent.doing, FleetSimActivity::Waiting { server, .. } if server == place) {
                agent.doing = FleetSimActivity::Idle;
            }
        }
        self.counts.restarts += 1;
    }

    /// Kills all servers at once, with the calls in flight, and restarts them over the same database.
    pub(super) async fn restart_all(&mut self) {
        let Some(url) = &self.url else { return self.restart_server().await };
        let servers = self.servers.len();
        self.servers.clear();
        self.abandoned_claims.clear();
        for agent in &mut self.agents {
            if matches!(agent.doing, FleetSimActivity::Waiting { .. }) {
                agent.doing = FleetSimActivity::Idle;
            }
        }
        self.store.close().await.unwrap();
        let (store, resolved) = Store::open(url, StoreOptions::default()).await.unwrap();
        self.store = store;
        let lost = self.lose_calls();
        assert_eq!(resolved.reservations, lost, "seed {}", self.seed);
        for _ in 0..servers {
            let server = self.server();
            self.servers.push(server);
        }
        self.counts.restarts_of_all += 1;
    }
}

/// Checks that a line of the journal, read again, gives the same assignments.
fn reproduce(call: &ScheduleRound, seed: u64) {
    let mut line = Vec::new();
    write_round(&mut line, call).unwrap();
    let line = String::from_utf8(line).unwrap();
    let read = read_round(&line).unwrap_or_else(|problem| panic!("seed {seed}: {problem}: {line}"));
    assert_eq!(read, *call, "seed {seed}");
    assert_eq!(schedule(&read.snapshot), call.assignments, "seed {seed}");
}

//! The processes that serve the fleet: they make rounds, are slow, and are killed.

use std::sync::Arc;

use fairgate_core::proportional::schedule;
use fairgate_journal::schedule::{Round, read_round, write_round};
use fairgate_store::{Store, StoreError, StoreOptions, Transaction};

use super::world::{Doing, Server, World};
use crate::dispatch::Stepped;
use crate::fleet::{Clock, Fleet};
use crate::pace::Pace;

impl World {
    /// A server as it is after its start.
    pub(super) fn server(&self) -> Server {
        let clock: Arc<dyn Clock> = self.clock.clone();
        let fleet = Fleet::new(self.store.clone(), clock, self.options.clone());
        Server { fleet, pace: Pace::new(self.clock.now()), is_new: true }
    }

    /// Lets a server make steps until there is nothing to do.
    pub(super) async fn serve(&mut self, server: usize) {
        let clock: Arc<dyn Clock> = self.clock.clone();
        let last_sign = self.last_sign().await;
        let Server { fleet, pace, is_new } = &mut self.servers[server];
        // What its own calls changed, and what others did.
        pace.hear();
        for _ in 0..100 {
            match fleet.dispatch().step(&self.store, &clock, pace).await.unwrap() {
                Stepped::Made(calls) => {
                    if std::mem::take(is_new)
                        && let Some(since) = last_sign
                    {
                        self.shadow.lapsed(since, self.clock.now().0, self.options.lease);
                    }
                    self.seen.scheduler_calls += calls.len() as u64;
                    for call in calls {
                        reproduce(&call, self.seed);
                    }
                }
                Stepped::Looked => {}
                Stepped::Idle(_) => {
                    self.shadow.round(self.clock.now().0);
                    return self.take_answers();
                }
            }
        }
        panic!("seed {}: the loop never rests", self.seed);
    }

    /// The last sign of life that any agent gave: since then a server that starts has heard nothing.
    async fn last_sign(&self) -> Option<i64> {
        let sql = "SELECT MAX(last_seen) FROM fleet_agents";
        let work = move |tx: &mut dyn Transaction| tx.first(sql, &[], |row| row.moment_or_null(0));
        let seen = self.store.inspect::<_, StoreError>(work).await.unwrap();
        seen.flatten().map(|seen| seen.0)
    }

    /// A server is killed and comes back: whoever waited there hears nothing more.
    pub(super) async fn restart_server(&mut self) {
        let place = self.dice.place(&self.servers);
        self.servers[place] = self.server();
        self.ghosts.retain(|ghost| ghost.server != place);
        for agent in &mut self.agents {
            if matches!(agent.doing, Doing::Waiting { server, .. } if server == place) {
                agent.doing = Doing::Idle;
            }
        }
        self.seen.restarts += 1;
    }

    /// All that serves is killed at once, with the calls that are in flight, and starts again over the database that it left.
    pub(super) async fn restart_all(&mut self) {
        let Some(url) = &self.url else { return self.restart_server().await };
        let servers = self.servers.len();
        self.servers.clear();
        self.ghosts.clear();
        for agent in &mut self.agents {
            if matches!(agent.doing, Doing::Waiting { .. }) {
                agent.doing = Doing::Idle;
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
        self.seen.restarts_of_all += 1;
    }
}

/// A line of the journal, read again, gives the same assignments.
fn reproduce(call: &Round, seed: u64) {
    let mut line = Vec::new();
    write_round(&mut line, call).unwrap();
    let line = String::from_utf8(line).unwrap();
    let read = read_round(&line).unwrap_or_else(|problem| panic!("seed {seed}: {problem}: {line}"));
    assert_eq!(read, *call, "seed {seed}");
    assert_eq!(schedule(&read.snapshot), call.assignments, "seed {seed}");
}

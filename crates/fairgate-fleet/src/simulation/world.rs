//! What there is in a simulation, and how time passes in it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fairgate_core::proportional::schedule;
use fairgate_money::UnixMicros;
use fairgate_store::{Change, Limits, Store, StoreOptions};
use tokio::sync::oneshot;

use super::Dice;
use crate::dispatch::Stepped;
use crate::fleet::{AgentId, Clock, Fleet, FleetOptions};
use crate::model::*;
use crate::pace::Pace;
use crate::waiters::Claimed;

const START: i64 = 1_800_000_000_000_000;

/// A clock that goes where it is put.
#[derive(Debug)]
pub(super) struct Hands(pub(super) AtomicI64);

impl Clock for Hands {
    fn now(&self) -> UnixMicros {
        UnixMicros(self.0.load(Ordering::Relaxed))
    }
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) dice: Dice,
    pub(super) store: Store,
    pub(super) clock: Arc<Hands>,
    pub(super) options: FleetOptions,
    pub(super) servers: Vec<Server>,
    pub(super) agents: Vec<Agent>,
    pub(super) projects: Vec<String>,
    pub(super) next_task: u64,
    /// How many steps this simulation has.
    pub(super) steps: u64,
    /// The highest claim seen of each task.
    pub(super) epochs: HashMap<String, u64>,
    /// Tokens of each project that a claim in force has reported.
    pub(super) charged: BTreeMap<String, u64>,
    /// The most that was charged for each claim.
    pub(super) reported: HashMap<(String, u64), u64>,
    /// Tasks whose completion was confirmed, and how often by another claim than the first.
    pub(super) completed: HashMap<String, u64>,
}

/// A process that serves the fleet. All of them share one database.
pub(super) struct Server {
    pub(super) fleet: Fleet,
    pub(super) pace: Pace,
}

/// An agent, as it knows itself.
pub(super) struct Agent {
    pub(super) id: AgentId,
    pub(super) doing: Doing,
}

pub(super) enum Doing {
    /// Nothing.
    Idle,
    /// It waits for a task: at which server, as which number, until when.
    Waiting { server: usize, number: u64, answer: oneshot::Receiver<Claimed>, until: i64 },
    /// It works.
    Working { claim: Box<Claim>, used: u64 },
    /// It is dead until then.
    Dead { until: i64 },
}

impl World {
    pub(super) async fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let (store, _) = Store::open("sqlite::memory:", StoreOptions::default()).await.unwrap();
        let clock = Arc::new(Hands(AtomicI64::new(START)));
        let at = UnixMicros(START);
        let group = Change::AddGroup { name: "g".into(), weight: 1, budgets: Vec::new() };
        store.change("admin", at, group).await.unwrap();
        let tenant = Change::AddTenant {
            name: "t".into(),
            group: "g".into(),
            weight: 1,
            limits: Limits::default(),
        };
        store.change("admin", at, tenant).await.unwrap();
        let options = FleetOptions {
            // What left the window is kept for eight of them, so that all that was charged is still there at the end.
            window: Duration::from_secs(dice.within(3_600, 14_400)),
            budget: dice.one_in(3).then(|| dice.within(2_000, 20_000)),
            min_task_guarantee: dice.one_in(2),
            default_estimate: dice.within(50, 500),
            ..FleetOptions::default()
        };
        let is_large = dice.one_in(30);
        let mut world = Self {
            seed,
            steps: dice.within(60, 140),
            store,
            clock,
            options,
            servers: Vec::new(),
            agents: Vec::new(),
            projects: Vec::new(),
            next_task: 0,
            epochs: HashMap::new(),
            charged: BTreeMap::new(),
            reported: HashMap::new(),
            completed: HashMap::new(),
            dice,
        };
        for _ in 0..world.dice.within(1, 2) {
            let server = world.server();
            world.servers.push(server);
        }
        let (projects, agents) = if is_large { (12, 60) } else { (5, 10) };
        world.add_projects(projects).await;
        world.add_agents(agents).await;
        world.add_tasks(if is_large { 150 } else { 25 }).await;
        world
    }

    /// A server as it is after its start.
    pub(super) fn server(&self) -> Server {
        let clock: Arc<dyn Clock> = self.clock.clone();
        let fleet = Fleet::new(self.store.clone(), clock, self.options.clone());
        Server { fleet, pace: Pace::new(self.clock.now()) }
    }

    pub(super) fn now(&self) -> i64 {
        self.clock.now().0
    }

    /// The fleet that somebody talks to: that of any server.
    pub(super) fn fleet(&mut self) -> Fleet {
        let server = self.dice.place(&self.servers);
        self.servers[server].fleet.clone()
    }

    /// Something happens, some time passes, and the servers do what is to be done.
    pub(super) async fn step(&mut self) {
        match self.dice.below(20) {
            0 => self.interfere().await,
            1 => self.restart_server().await,
            _ => {
                for agent in 0..self.agents.len() {
                    if !self.dice.one_in(3) {
                        self.act(agent).await;
                    }
                }
            }
        }
        let passes = match self.dice.below(10) {
            0 => self.dice.within(60, 400),
            1..=3 => self.dice.within(5, 40),
            _ => self.dice.within(0, 5),
        };
        self.clock.0.fetch_add(i64::try_from(passes).unwrap() * 1_000_000, Ordering::Relaxed);
        for server in 0..self.servers.len() {
            // Now and then a server is slow.
            if !self.dice.one_in(6) {
                self.serve(server).await;
            }
        }
        self.take_answers();
    }

    /// Lets a server make steps until there is nothing to do.
    pub(super) async fn serve(&mut self, server: usize) {
        let clock: Arc<dyn Clock> = self.clock.clone();
        let Server { fleet, pace } = &mut self.servers[server];
        // What its own calls changed, and what others did.
        pace.hear();
        for _ in 0..100 {
            match fleet.dispatch().step(&self.store, &clock, pace).await.unwrap() {
                Stepped::Made(calls) => {
                    for call in calls {
                        assert_eq!(
                            schedule(&call.snapshot),
                            call.assignments,
                            "seed {}",
                            self.seed
                        );
                    }
                }
                Stepped::Looked => {}
                Stepped::Idle(_) => return,
            }
        }
        panic!("seed {}: the loop never rests", self.seed);
    }

    /// A server is killed and comes back: whoever waited there hears nothing more.
    async fn restart_server(&mut self) {
        let place = self.dice.place(&self.servers);
        self.servers[place] = self.server();
        for agent in &mut self.agents {
            if matches!(agent.doing, Doing::Waiting { server, .. } if server == place) {
                agent.doing = Doing::Idle;
            }
        }
    }

    /// All agents die, and all leases end: nothing is held after that.
    pub(super) async fn settle(&mut self) {
        for agent in 0..self.agents.len() {
            self.leave(agent);
        }
        self.clock.0.fetch_add(3_600_000_000, Ordering::Relaxed);
        for server in 0..self.servers.len() {
            self.serve(server).await;
        }
        let held = self
            .rows("SELECT id FROM fleet_tasks WHERE state IN ('ASSIGNED', 'IN_PROGRESS')")
            .await;
        let locked = self.rows("SELECT id FROM fleet_workspaces WHERE task IS NOT NULL").await;
        let reserved = self.rows("SELECT id FROM fleet_tasks WHERE reserved > 0").await;
        assert!(held.is_empty() && locked.is_empty() && reserved.is_empty(), "seed {}", self.seed);
    }
}

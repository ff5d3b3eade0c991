//! What there is in a simulation, and how time passes in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use fairgate_money::UnixMicros;
use fairgate_store::{Budget, Change, Limits, Period, Store, StoreOptions};
use tokio::sync::oneshot;

use super::Dice;
use super::shadow::{Ending, Shadow};
use super::wire::Message;
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
    /// Where the database is, if it is in a file, and the folder of it.
    pub(super) url: Option<String>,
    _folder: Option<tempfile::TempDir>,
    pub(super) clock: Arc<Hands>,
    pub(super) options: FleetOptions,
    pub(super) servers: Vec<Server>,
    pub(super) agents: Vec<Agent>,
    /// Claims of agents that went away while the server took them for waiting.
    pub(super) ghosts: Vec<Ghost>,
    /// Claims whose agent died or heard that they are over, and which somebody still makes calls for.
    pub(super) zombies: Vec<Claim>,
    /// What agents said, on its way.
    pub(super) wire: Vec<Message>,
    pub(super) projects: Vec<String>,
    pub(super) next_task: u64,
    pub(super) next_request: u64,
    /// How many steps this simulation has, and how large it is.
    pub(super) steps: u64,
    pub(super) size: Size,
    /// Whether calls that were taken for lost may turn out not to be.
    pub(super) has_late_rows: bool,
    pub(super) shadow: Shadow,
    pub(super) seen: Seen,
}

/// A process that serves the fleet. All of them share one database.
pub(super) struct Server {
    pub(super) fleet: Fleet,
    pub(super) pace: Pace,
    /// Whether it has made no round yet.
    pub(super) is_new: bool,
}

/// An agent, as it knows itself.
pub(super) struct Agent {
    pub(super) id: AgentId,
    pub(super) is_big: bool,
    /// Whether it says what it uses, instead of calling through the gateway.
    pub(super) reports: bool,
    /// Whether it says so though it calls through the gateway.
    pub(super) lies: bool,
    pub(super) doing: Doing,
}

/// An agent's claim that nobody listens to any more.
pub(super) struct Ghost {
    pub(super) agent: usize,
    pub(super) server: usize,
    pub(super) answer: oneshot::Receiver<Claimed>,
}

pub(super) enum Doing {
    /// Nothing.
    Idle,
    /// It waits for a task: at which server, as which number, until when.
    Waiting { server: usize, number: u64, answer: oneshot::Receiver<Claimed>, until: i64 },
    /// It works, or says how it ended until it hears an answer.
    Working { claim: Box<Claim>, used: u64, ending: Option<Ending> },
    /// It is dead until then.
    Dead { until: i64 },
}

/// How large a simulation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Small,
    Middle,
    /// Thousands of agents.
    Large,
}

/// How often things happened, so that a simulation in which they do not is noticed.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) agents: u64,
    pub(super) claims: u64,
    pub(super) claims_unheard: u64,
    pub(super) completed: u64,
    pub(super) scheduler_calls: u64,
    pub(super) calls: u64,
    pub(super) calls_beyond: u64,
    pub(super) calls_lost: u64,
    pub(super) calls_over_budget: u64,
    pub(super) guesses_taken_back: u64,
    pub(super) late_settles: u64,
    pub(super) zombies_refused: u64,
    pub(super) lies: u64,
    pub(super) messages_lost: u64,
    pub(super) messages_late: u64,
    pub(super) endings_repeated: u64,
    pub(super) leases_lost: u64,
    pub(super) restarts: u64,
    pub(super) restarts_of_all: u64,
    pub(super) budgets_passed: u64,
}

impl Seen {
    fn all(&mut self) -> [&mut u64; 20] {
        [
            &mut self.agents,
            &mut self.claims,
            &mut self.claims_unheard,
            &mut self.completed,
            &mut self.scheduler_calls,
            &mut self.calls,
            &mut self.calls_beyond,
            &mut self.calls_lost,
            &mut self.calls_over_budget,
            &mut self.guesses_taken_back,
            &mut self.late_settles,
            &mut self.zombies_refused,
            &mut self.lies,
            &mut self.messages_lost,
            &mut self.messages_late,
            &mut self.endings_repeated,
            &mut self.leases_lost,
            &mut self.restarts,
            &mut self.restarts_of_all,
            &mut self.budgets_passed,
        ]
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (sum, more) in self.all().into_iter().zip(other.clone().all()) {
            *sum += *more;
        }
    }

    pub(super) fn assert_all_happened(mut self) {
        let text = format!("{self:?}");
        assert!(self.all().iter().all(|count| **count > 0), "something never happened: {text}");
    }
}

impl World {
    pub(super) async fn new(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let size = match seed {
            seed if seed.is_multiple_of(25) => Size::Large,
            _ if dice.one_in(30) => Size::Middle,
            _ => Size::Small,
        };
        let folder = (size == Size::Large || seed.is_multiple_of(3)).then(folder);
        let url = folder.as_ref().map(|it| format!("sqlite:{}", it.path().join("db").display()));
        let at = url.as_deref().unwrap_or("sqlite::memory:");
        let (store, _) = Store::open(at, StoreOptions::default()).await.unwrap();
        add_tenant(&store).await;
        let many = if size == Size::Large { 60 } else { 1 };
        let options = FleetOptions {
            // What left the window is kept for eight of them, so that all that was charged is still there at the end.
            window: Duration::from_secs(dice.within(3_600, 14_400)),
            budget: dice.one_in(3).then(|| dice.within(2_000, 20_000) * many),
            min_task_guarantee: dice.one_in(2),
            default_estimate: dice.within(50, 500),
            ..FleetOptions::default()
        };
        let mut world = Self {
            seed,
            steps: if size == Size::Large { 10 } else { dice.within(40, 100) },
            store,
            url,
            _folder: folder,
            clock: Arc::new(Hands(AtomicI64::new(START))),
            options,
            servers: Vec::new(),
            agents: Vec::new(),
            ghosts: Vec::new(),
            zombies: Vec::new(),
            wire: Vec::new(),
            projects: Vec::new(),
            next_task: 0,
            next_request: 0,
            size,
            has_late_rows: dice.one_in(3),
            shadow: Shadow { round_at: START, ..Shadow::default() },
            seen: Seen::default(),
            dice,
        };
        for _ in 0..world.dice.within(1, 2) {
            let server = world.server();
            world.servers.push(server);
        }
        let ((projects, agents), tasks) = match size {
            Size::Small => ((world.dice.within(2, 5), world.dice.within(2, 10)), 25),
            Size::Middle => ((world.dice.within(2, 12), world.dice.within(20, 60)), 150),
            Size::Large => ((world.dice.within(6, 12), 2_000), 2_500),
        };
        world.add_projects(projects).await;
        world.add_agents(agents).await;
        let least = if size == Size::Large { tasks } else { 1 };
        world.add_tasks(least, tasks).await;
        world
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
            2 => self.restart_all().await,
            _ => {
                for agent in 0..self.agents.len() {
                    if !self.dice.one_in(3) {
                        self.act(agent).await;
                    }
                }
            }
        }
        self.end_some_calls(3).await;
        self.haunt().await;
        if self.has_late_rows {
            self.find_some_lost().await;
        }
        let passes = match self.dice.below(10) {
            0 => self.dice.seconds(60, 400),
            1..=3 => self.dice.seconds(5, 40),
            _ => self.dice.seconds(0, 5),
        };
        self.clock.0.fetch_add(passes, Ordering::Relaxed);
        self.deliver_due().await;
        for server in 0..self.servers.len() {
            // Now and then a server is slow.
            if !self.dice.one_in(6) {
                self.serve(server).await;
            }
        }
    }

    /// Whether all is looked at after a step: that takes as long as a step, or longer, and what is wrong stays wrong.
    pub(super) fn is_check_due(&self, step: u64) -> bool {
        step.is_multiple_of(if self.size == Size::Large { 3 } else { 2 })
    }

    /// All agents die, what they said arrives, their calls end, and so do their leases: nothing is held after that.
    pub(super) async fn settle(&mut self) {
        for agent in 0..self.agents.len() {
            self.leave(agent);
            self.agents[agent].doing = Doing::Dead { until: i64::MAX };
        }
        self.ghosts.clear();
        for server in 0..self.servers.len() {
            self.servers[server] = self.server();
        }
        if self.dice.one_in(2) {
            self.restart_all().await;
        }
        self.clock.0.fetch_add(3_600_000_000, Ordering::Relaxed);
        self.deliver_due().await;
        while !self.shadow.flights.is_empty() {
            self.end_some_calls(1).await;
        }
        // A server that has just started grants leases a little more time, once.
        for _ in 0..2 {
            self.clock.0.fetch_add(3_600_000_000, Ordering::Relaxed);
            for server in 0..self.servers.len() {
                self.serve(server).await;
            }
        }
        self.haunt().await;
        assert!(self.shadow.holds.is_empty() && self.shadow.flights.is_empty());
        for (what, sql) in [
            ("a task", "SELECT id FROM fleet_tasks WHERE state IN ('ASSIGNED', 'IN_PROGRESS')"),
            (
                "a lock",
                "SELECT id FROM fleet_workspaces WHERE task IS NOT NULL OR agent IS NOT NULL",
            ),
            ("a task's reservation", "SELECT id FROM fleet_tasks WHERE reserved <> 0"),
            ("a lease", "SELECT id FROM fleet_tasks WHERE lease_until IS NOT NULL"),
            ("a key", "SELECT id FROM fleet_tasks WHERE key_hash IS NOT NULL"),
            ("a call's reservation", "SELECT request FROM reservations"),
        ] {
            let left = self.rows(sql).await;
            assert!(left.is_empty(), "seed {}: {what} is held for ever: {left:?}", self.seed);
        }
    }
}

/// A folder in memory, where the system has such.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

async fn add_tenant(store: &Store) {
    let at = UnixMicros(START);
    let group = Change::AddGroup { name: "g".into(), weight: 1, budgets: Vec::new() };
    store.change("admin", at, group).await.unwrap();
    // A budget that refuses nothing, so that the tenant's own sums are kept.
    let budgets = vec![Budget::tokens(1_000_000_000_000, Period::Month)];
    let tenant = Change::AddTenant {
        name: "t".into(),
        group: "g".into(),
        weight: 1,
        limits: Limits { budgets, ..Limits::default() },
    };
    store.change("admin", at, tenant).await.unwrap();
}

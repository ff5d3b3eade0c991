//! The simulated fleet, its steps, and its clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fairgate_api::agents::Claim;
use fairgate_store::{Budget, BudgetPeriod, DirectoryChange, DirectoryLimits, Store, StoreOptions};
use fairgate_time::UnixMicros;
use tokio::sync::oneshot;

use super::FleetSimRng;
use super::expected_state::{ClaimEnding, ExpectedState};
use super::messages::FleetSimMessage;
use super::operators;
use crate::agent_id::AgentId;
use crate::claim_waiters::ClaimResult;
use crate::fleet::Fleet;
use crate::fleet_clock::FleetClock;
use crate::options::{FleetCredit, FleetOptions, FleetShare};
use crate::round_timer::RoundTimer;
use crate::testing::TestFleetClock;

const START: i64 = 1_800_000_000_000_000;

pub(super) struct FleetSimulation {
    pub(super) seed: u64,
    pub(super) dice: FleetSimRng,
    pub(super) store: Store,
    /// Address of the database; `None` unless the database is in a file.
    pub(super) url: Option<String>,
    _folder: Option<tempfile::TempDir>,
    pub(super) clock: Arc<TestFleetClock>,
    pub(super) options: FleetOptions,
    pub(super) servers: Vec<FleetSimServer>,
    pub(super) agents: Vec<FleetSimAgent>,
    /// Open claims of agents that left without the server noticing.
    pub(super) abandoned_claims: Vec<AbandonedClaim>,
    /// Claims that are over, or whose agent died, but with whose keys model calls are still made.
    pub(super) stale_claims: Vec<Claim>,
    /// Messages of agents that have not arrived yet.
    pub(super) messages: Vec<FleetSimMessage>,
    pub(super) projects: Vec<String>,
    /// Labels that the tenant `u` requires.
    pub(super) tenant_requires: Vec<String>,
    pub(super) next_task: u64,
    pub(super) next_request: u64,
    /// Number of steps of this simulation.
    pub(super) steps: u64,
    pub(super) size: FleetSimSize,
    /// If true, rows of calls that were counted as lost may still arrive.
    pub(super) has_late_rows: bool,
    pub(super) expected: ExpectedState,
    pub(super) counts: FleetSimCounts,
}

/// A server process. All servers share one database.
pub(super) struct FleetSimServer {
    pub(super) fleet: Fleet,
    pub(super) pace: RoundTimer,
    /// If true, the server has not run a round yet.
    pub(super) is_new: bool,
}

/// An agent, with its own knowledge of its state.
pub(super) struct FleetSimAgent {
    pub(super) id: AgentId,
    pub(super) is_big: bool,
    /// If true, the agent reports its usage instead of calling models through the gateway.
    pub(super) reports: bool,
    /// If true, the agent reports usage although it calls models through the gateway.
    pub(super) lies: bool,
    pub(super) doing: FleetSimActivity,
}

/// Open claim of an agent that no longer waits for the reply.
pub(super) struct AbandonedClaim {
    pub(super) agent: usize,
    pub(super) server: usize,
    pub(super) answer: oneshot::Receiver<ClaimResult>,
}

pub(super) enum FleetSimActivity {
    /// The agent does nothing.
    Idle,
    /// The agent waits for a task at a server, as the claim `number`, until a time.
    Waiting { server: usize, number: u64, answer: oneshot::Receiver<ClaimResult>, until: i64 },
    /// The agent works, or repeats the end of its claim until it gets an answer.
    Working { claim: Box<Claim>, used: u64, ending: Option<ClaimEnding> },
    /// The agent is dead until this time.
    Dead { until: i64 },
}

/// Size of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FleetSimSize {
    Small,
    Middle,
    /// Thousands of agents and tasks.
    Large,
}

/// Counts of events. They show if some kind of event never happens in a simulation.
#[derive(Clone, Debug, Default)]
pub(super) struct FleetSimCounts {
    pub(super) agents: u64,
    pub(super) claims: u64,
    pub(super) claims_unheard: u64,
    pub(super) claims_on_machines: u64,
    pub(super) claims_with_labels: u64,
    pub(super) timeouts: u64,
    pub(super) time_charged: u64,
    pub(super) tenant_calls: u64,
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

impl FleetSimCounts {
    fn all(&mut self) -> [&mut u64; 25] {
        [
            &mut self.agents,
            &mut self.claims,
            &mut self.claims_unheard,
            &mut self.claims_on_machines,
            &mut self.claims_with_labels,
            &mut self.timeouts,
            &mut self.time_charged,
            &mut self.tenant_calls,
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

impl FleetSimulation {
    pub(super) async fn new(seed: u64) -> Self {
        let mut dice = FleetSimRng::new(seed);
        let size = match seed {
            seed if seed.is_multiple_of(25) => FleetSimSize::Large,
            _ if dice.one_in(30) => FleetSimSize::Middle,
            _ => FleetSimSize::Small,
        };
        let folder = (size == FleetSimSize::Large || seed.is_multiple_of(3)).then(folder);
        let url = folder.as_ref().map(|it| format!("sqlite:{}", it.path().join("db").display()));
        let at = url.as_deref().unwrap_or("sqlite::memory:");
        let (store, _) = Store::open(at, StoreOptions::default()).await.unwrap();
        let tenant_requires: Vec<String> =
            if dice.one_in(2) { vec![operators::TENANT_LABEL.to_owned()] } else { Vec::new() };
        add_tenant(&store, tenant_requires.clone()).await;
        let many = if size == FleetSimSize::Large { 60 } else { 1 };
        let options = FleetOptions {
            // Usage is kept for eight windows, so all charges still exist at the end.
            window: Duration::from_secs(dice.within(3_600, 14_400)),
            budget: dice.one_in(3).then(|| dice.within(2_000, 20_000) * many),
            min_task_guarantee: dice.one_in(2),
            default_estimate: dice.within(50, 500),
            credit: [FleetCredit::Larger, FleetCredit::Tokens, FleetCredit::Time]
                [usize::try_from(dice.below(3)).unwrap()],
            share: if dice.one_in(3) { FleetShare::Tenant } else { FleetShare::Project },
            agent_second_tokens: dice.one_in(2).then(|| dice.within(1, 20)),
            ..FleetOptions::default()
        };
        let mut world = Self {
            seed,
            steps: if size == FleetSimSize::Large { 10 } else { dice.within(40, 100) },
            store,
            url,
            _folder: folder,
            clock: TestFleetClock::at(UnixMicros(START)),
            options,
            servers: Vec::new(),
            agents: Vec::new(),
            abandoned_claims: Vec::new(),
            stale_claims: Vec::new(),
            messages: Vec::new(),
            projects: Vec::new(),
            tenant_requires,
            next_task: 0,
            next_request: 0,
            size,
            has_late_rows: dice.one_in(3),
            expected: ExpectedState { round_at: START, ..ExpectedState::default() },
            counts: FleetSimCounts::default(),
            dice,
        };
        for _ in 0..world.dice.within(1, 2) {
            let server = world.server();
            world.servers.push(server);
        }
        let ((projects, agents), tasks) = match size {
            FleetSimSize::Small => ((world.dice.within(2, 5), world.dice.within(2, 10)), 25),
            FleetSimSize::Middle => ((world.dice.within(2, 12), world.dice.within(20, 60)), 150),
            FleetSimSize::Large => ((world.dice.within(6, 12), 2_000), 2_500),
        };
        world.add_projects(projects).await;
        world.add_agents(agents).await;
        let least = if size == FleetSimSize::Large { tasks } else { 1 };
        world.add_tasks(least, tasks).await;
        world
    }

    pub(super) fn now(&self) -> i64 {
        self.clock.now().0
    }

    /// Returns the fleet handle of a random server.
    pub(super) fn fleet(&mut self) -> Fleet {
        let server = self.dice.place(&self.servers);
        self.servers[server].fleet.clone()
    }

    /// Runs one step: an event happens, some time passes, and the servers react.
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
        self.call_with_old_keys().await;
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
            // This server is sometimes slow.
            if !self.dice.one_in(6) {
                self.serve(server).await;
            }
        }
    }

    /// Returns true if everything must be checked after this step. A check takes at least as long
    /// as a step, and a later check still finds an error.
    pub(super) fn is_check_due(&self, step: u64) -> bool {
        step.is_multiple_of(if self.size == FleetSimSize::Large { 3 } else { 2 })
    }

    /// Ends the simulation: all agents die, their messages arrive, and their calls and leases end.
    /// After that, nothing may be held.
    pub(super) async fn settle(&mut self) {
        for agent in 0..self.agents.len() {
            self.leave(agent);
            self.agents[agent].doing = FleetSimActivity::Dead { until: i64::MAX };
        }
        self.abandoned_claims.clear();
        for server in 0..self.servers.len() {
            self.servers[server] = self.server();
        }
        if self.dice.one_in(2) {
            self.restart_all().await;
        }
        self.clock.0.fetch_add(3_600_000_000, Ordering::Relaxed);
        self.deliver_due().await;
        while !self.expected.flights.is_empty() {
            self.end_some_calls(1).await;
        }
        // A server that has just started extends leases once.
        for _ in 0..2 {
            self.clock.0.fetch_add(3_600_000_000, Ordering::Relaxed);
            for server in 0..self.servers.len() {
                self.serve(server).await;
            }
        }
        self.call_with_old_keys().await;
        assert!(self.expected.holds.is_empty() && self.expected.flights.is_empty());
        for (what, sql) in [
            (
                "a task",
                concat!(
                    "SELECT id FROM fleet_tasks WHERE state IN ",
                    fairgate_usage::held_states!()
                ),
            ),
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
        let timeouts = "SELECT task FROM fleet_history WHERE reason LIKE '%within its timeout%'";
        self.counts.timeouts += self.rows(timeouts).await.len() as u64;
        let charged = "SELECT id FROM fleet_tasks WHERE credit_extra > 0";
        self.counts.time_charged += self.rows(charged).await.len() as u64;
    }
}

/// Creates a folder; in memory, if the system supports that.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

async fn add_tenant(store: &Store, requires: Vec<String>) {
    let at = UnixMicros(START);
    let group = DirectoryChange::AddGroup { name: "g".into(), weight: 1, budgets: Vec::new() };
    store.change("admin", at, group).await.unwrap();
    // The budget refuses nothing. It makes the store keep the tenant's sums.
    let budgets = vec![Budget::tokens(1_000_000_000_000, BudgetPeriod::Month)];
    let tenant = DirectoryChange::AddTenant {
        requires: Vec::new(),
        name: "t".into(),
        group: "g".into(),
        weight: 1,
        limits: DirectoryLimits { budgets, ..DirectoryLimits::default() },
    };
    store.change("admin", at, tenant).await.unwrap();
    // The second tenant only owns projects. All calls are made for the first tenant, whose sums are
    // checked.
    let other = DirectoryChange::AddTenant {
        requires,
        name: "u".into(),
        group: "g".into(),
        weight: 2,
        limits: DirectoryLimits::default(),
    };
    store.change("admin", at, other).await.unwrap();
}

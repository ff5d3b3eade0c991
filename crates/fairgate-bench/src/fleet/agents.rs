//! Agents that claim tasks and complete them at once, without doing any work.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fairgate_api::fleet::NewAgent;
use fairgate_fleet::{AgentId, Fleet, TaskCompletion};
use tokio::task::JoinSet;

/// Longest wait for a claim. An agent that gets no task in this time assumes that no task is left,
/// and ends.
const WAIT: Duration = Duration::from_secs(2);

/// Claims, times and rounds of all agents together.
pub(super) struct BenchAgentResults {
    /// Time that each successful claim took, sorted. A claim succeeds if it gets a task.
    claims: Vec<Duration>,
    tasks: Vec<String>,
    time: Duration,
    pub(super) rounds: u64,
    rounds_time: Duration,
    pub(super) statements_most: u64,
}

impl BenchAgentResults {
    pub(super) fn claims(&self) -> usize {
        self.claims.len()
    }

    pub(super) fn distinct_tasks(&self) -> usize {
        self.tasks.iter().collect::<HashSet<_>>().len()
    }

    pub(super) fn claims_per_second(&self) -> f64 {
        count(self.claims.len()) / self.time.as_secs_f64()
    }

    pub(super) fn claim_percentile(&self, percent: usize) -> Duration {
        let place = self.claims.len() * percent / 100;
        self.claims.get(place).or(self.claims.last()).copied().unwrap_or_default()
    }

    pub(super) fn round_mean(&self) -> Duration {
        self.rounds_time / u32::try_from(self.rounds.max(1)).unwrap_or(u32::MAX)
    }

    pub(super) fn tasks_per_round(&self) -> f64 {
        count(self.claims.len()) / count(usize::try_from(self.rounds.max(1)).unwrap_or(1))
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts are small")]
fn count(number: usize) -> f64 {
    number as f64
}

/// Distributes the agents evenly over the given fleet servers. The agents work for `time`, or until
/// no task is left if `time` is `None`.
pub(super) async fn work(
    fleets: &[Fleet],
    agents: usize,
    time: Option<Duration>,
) -> Result<BenchAgentResults> {
    let loops: Vec<_> = fleets.iter().map(|fleet| tokio::spawn(fleet.run())).collect();
    let first = fleets.first().context("there is a server")?;
    let mut made = Vec::with_capacity(agents);
    for number in 0..agents {
        let agent = NewAgent {
            id: format!("a{number}"),
            kind: None,
            reports_tokens: true,
            ..NewAgent::default()
        };
        let token = first.add_agent("bench", agent).await?.token;
        made.push(first.agent(&token).await?.context("the token is good")?);
    }
    let start = Instant::now();
    let until = time.map(|time| start + time);
    let mut working = JoinSet::new();
    for (agent, fleet) in made.into_iter().zip(fleets.iter().cycle()) {
        working.spawn(claim_and_complete(fleet.clone(), agent, until));
    }
    let (mut claims, mut tasks) = (Vec::new(), Vec::new());
    while let Some(done) = working.join_next().await {
        for (task, took) in done?? {
            claims.push(took);
            tasks.push(task);
        }
    }
    let time = start.elapsed();
    let mut worked = BenchAgentResults {
        claims,
        tasks,
        time,
        rounds: 0,
        rounds_time: Duration::ZERO,
        statements_most: 0,
    };
    for fleet in fleets {
        let rounds = fleet.rounds();
        worked.rounds += rounds.with_agents;
        worked.rounds_time += rounds.time;
        worked.statements_most = worked.statements_most.max(rounds.statements_most);
    }
    loops.iter().for_each(tokio::task::JoinHandle::abort);
    worked.claims.sort_unstable();
    Ok(worked)
}

async fn claim_and_complete(
    fleet: Fleet,
    agent: AgentId,
    until: Option<Instant>,
) -> Result<Vec<(String, Duration)>> {
    let mut done = Vec::new();
    while until.is_none_or(|until| Instant::now() < until) {
        let asked = Instant::now();
        let Some(claim) = fleet.claim(&agent, WAIT).await? else { break };
        done.push((claim.task.clone(), asked.elapsed()));
        let completion = TaskCompletion { tokens: Some(900), ..TaskCompletion::default() };
        fleet.complete(&agent, &claim.task, claim.epoch, completion).await?;
    }
    Ok(done)
}

//! The fleet experiment: projects with weights, and agents that call the gateway with their task
//! keys. One agent dies and one lies about its tokens. Three accounts are compared: the agents' own
//! counts, the ledger and the fleet's view.

mod agent;
mod api;
mod judge;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::error::ProveError;
use crate::evidence::LedgerEvidence;
use crate::folder::ExperimentFolder;
use crate::report::{ProveReport, TokensPoint};
use crate::scenario::{FleetPlan, Scenario};
use crate::servers::ExperimentServers;
use agent::{AgentBehaviour, AgentWork, ProveAgent};
use api::GatewayApiClient;

/// Interval at which the progress of the agents is sampled.
const FLEET_SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Progress of all agents together, and the signal for them to stop.
#[derive(Debug, Default)]
struct FleetProgress {
    completed: AtomicU64,
    tokens: [AtomicU64; 2],
    stop: AtomicBool,
}

/// All input of the fleet's judge.
struct FleetEvidence {
    work: Vec<AgentWork>,
    /// Status and code of the response to a request with the dead agent's task key; `None` if no
    /// agent died.
    lost_key_response: Option<String>,
    tasks: Vec<serde_json::Value>,
    view: serde_json::Value,
    workspaces_held: u64,
    rounds: ReplayedRounds,
    points: Vec<TokensPoint>,
    ledger: LedgerEvidence,
}

/// Number of rounds in the fleet's journal, and how many of these rounds gave the same decision
/// when computed again.
#[derive(Debug, Default)]
struct ReplayedRounds {
    all: u64,
    same: u64,
}

/// Runs the fleet scenario and judges the evidence.
pub(crate) async fn run(
    scenario: &Scenario,
    plan: &FleetPlan,
    folder: &ExperimentFolder,
) -> Result<ProveReport, ProveError> {
    let world = ExperimentServers::start(scenario, folder.path()).await?;
    let api = GatewayApiClient::new(world.address(), world.admin_token().to_owned());
    prepare(&api, scenario, plan).await?;
    let tally = Arc::new(FleetProgress::default());
    let projects: Vec<&'static str> = scenario.tenants.iter().map(|it| it.name).collect();
    let mut agents = JoinSet::new();
    let mut manners = vec![AgentBehaviour::Honest; plan.agents];
    manners.extend([AgentBehaviour::Lies, AgentBehaviour::Dies { after: plan.completed_min / 4 }]);
    for (number, manner) in manners.into_iter().enumerate() {
        let id = format!("agent-{number}");
        let made = api.admin_post("/api/v1/agents", &serde_json::json!({"id": id})).await?;
        let token = made["token"].as_str().unwrap_or_default().to_owned();
        let agent = ProveAgent {
            api: api.clone(),
            id,
            token,
            manner,
            pattern: scenario.tenants[0].pattern,
            projects: projects.clone(),
            tally: tally.clone(),
        };
        agents.spawn(agent.run());
    }
    let points = watch(scenario, plan, &tally).await?;
    tally.stop.store(true, Ordering::Relaxed);
    let mut work = Vec::new();
    while let Some(done) = agents.join_next().await {
        work.push(done.map_err(|error| failed(&error.to_string()))??);
    }
    wait_for_lost_tasks(&api, &work).await?;
    let zombie = call_with_lost_key(&api, &work).await?;
    let tasks = tasks(&api, &work).await?;
    let view = api.admin_get("/api/v1/fleet").await?;
    let held = api.admin_get("/api/v1/workspaces").await?;
    let workspaces_held = held["items"].as_array().map_or(0, |all| {
        all.iter().filter(|workspace| !workspace["task"].is_null()).count() as u64
    });
    let ledger = world.finish_fleet().await?;
    let rounds = rounds(folder)?;
    let evidence = FleetEvidence {
        work,
        lost_key_response: zombie,
        tasks,
        view,
        workspaces_held,
        rounds,
        points,
        ledger,
    };
    Ok(judge::judge(scenario, plan, &evidence))
}

/// Creates the scenario's projects, with their tasks, through the admin API.
async fn prepare(
    api: &GatewayApiClient,
    scenario: &Scenario,
    plan: &FleetPlan,
) -> Result<(), ProveError> {
    for project in &scenario.tenants {
        let made = serde_json::json!({
            "id": project.name,
            "tenant": project.name,
            "weight": project.weight,
            "concurrency": 64,
        });
        api.admin_post("/api/v1/projects", &made).await?;
        let task = |number: u64| {
            serde_json::json!({
                "id": format!("{}-{number}", project.name),
                "project": project.name,
                "prompt": format!("Make {} calls.", number % 3 + 1),
            })
        };
        let tasks: Vec<_> = (0..plan.tasks).map(task).collect();
        api.admin_post("/api/v1/tasks", &serde_json::json!({"tasks": tasks})).await?;
    }
    Ok(())
}

/// Samples the progress until enough tasks are completed, or fails after the plan's time limit.
async fn watch(
    scenario: &Scenario,
    plan: &FleetPlan,
    tally: &FleetProgress,
) -> Result<Vec<TokensPoint>, ProveError> {
    let began = Instant::now();
    let mut points = Vec::new();
    loop {
        let tokens: Vec<u64> =
            tally.tokens.iter().map(|tokens| tokens.load(Ordering::Relaxed)).collect();
        let sum: u64 = tokens.iter().sum();
        let weights: u64 = scenario.tenants.iter().map(|it| it.weight).sum();
        #[allow(clippy::cast_precision_loss, reason = "for drawing")]
        let ideal = |weight: u64| sum as f64 * weight as f64 / weights as f64;
        let ideals = scenario.tenants.iter().map(|it| ideal(it.weight)).collect();
        points.push(TokensPoint {
            at_ms: began.elapsed().as_secs_f64() * 1e3,
            tokens,
            ideal_tokens: Some(ideals),
            bound_tokens: None,
            in_flight: vec![0; scenario.tenants.len()],
        });
        let completed = tally.completed.load(Ordering::Relaxed);
        if completed >= plan.completed_min {
            return Ok(points);
        }
        if began.elapsed() > plan.time_max {
            return Err(ProveError::TooSlow {
                scenario: scenario.name,
                after: began.elapsed(),
                tenant: scenario.tenants[0].name,
                ended: completed,
                needed: plan.completed_min,
            });
        }
        sleep(FLEET_SAMPLE_INTERVAL).await;
    }
}

/// Sends a request with the key of the task that the dead agent lost, and returns the status and
/// code of the response. `None` if no agent died.
async fn call_with_lost_key(
    api: &GatewayApiClient,
    work: &[AgentWork],
) -> Result<Option<String>, ProveError> {
    let Some(key) = work.iter().find_map(|work| work.left_with.clone()) else { return Ok(None) };
    let (status, answer) = api.chat(&key, "[sim:tokens=4] am I still there?", 8).await?;
    let code = answer["error"]["code"].as_str().unwrap_or_default();
    Ok(Some(format!("{status} {code}")))
}

/// Waits until the leases of dead agents have run out, but at most 30 s. This is needed because a fast run can complete
/// its tasks before the leases run out.
async fn wait_for_lost_tasks(api: &GatewayApiClient, work: &[AgentWork]) -> Result<(), ProveError> {
    for id in work.iter().filter_map(|work| work.died_with.as_deref()) {
        for _ in 0..300 {
            let task = api.admin_get(&format!("/api/v1/tasks/{id}")).await?;
            if task["state"] != "ASSIGNED" && task["state"] != "IN_PROGRESS" {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// Lists all tasks of the fleet that were begun, with their history. The task of an agent that died is listed in any
/// state, because it may be ready again and wait for another agent.
async fn tasks(
    api: &GatewayApiClient,
    work: &[AgentWork],
) -> Result<Vec<serde_json::Value>, ProveError> {
    let mut all = Vec::new();
    let mut after = String::new();
    loop {
        let states = "COMPLETED,ASSIGNED,IN_PROGRESS,PAUSED,BLOCKED,FAILED,WAITING_INPUT";
        let page = api.admin_get(&format!("/api/v1/tasks?state={states}&limit=500{after}")).await?;
        let lines = page["items"].as_array().cloned().unwrap_or_default();
        let Some(last) = lines.last().and_then(|line| line["id"].as_str()) else { break };
        after = format!("&after={last}");
        for line in &lines {
            let id = line["id"].as_str().unwrap_or_default();
            all.push(api.admin_get(&format!("/api/v1/tasks/{id}")).await?);
        }
    }
    for id in work.iter().filter_map(|work| work.died_with.as_deref()) {
        if !all.iter().any(|task| task["id"] == id) {
            all.push(api.admin_get(&format!("/api/v1/tasks/{id}")).await?);
        }
    }
    Ok(all)
}

/// Computes every round in the fleet's journal again, and counts the rounds that give the same
/// decision.
fn rounds(folder: &ExperimentFolder) -> Result<ReplayedRounds, ProveError> {
    let place = folder.path().join("fleet");
    let bad = |source| ProveError::File { path: place.clone(), source };
    let mut rounds = ReplayedRounds::default();
    for entry in std::fs::read_dir(&place).map_err(bad)? {
        let text = std::fs::read_to_string(entry.map_err(bad)?.path()).map_err(bad)?;
        for line in text.lines() {
            rounds.all += 1;
            rounds.same += u64::from(judge::is_reproduced(line));
        }
    }
    Ok(rounds)
}

fn failed(message: &str) -> ProveError {
    ProveError::Gateway { doing: "did not serve the fleet", message: message.to_owned() }
}

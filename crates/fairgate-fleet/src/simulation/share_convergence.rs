//! Checks that shares converge: with enough work for all, every project gets its share.

use std::collections::BTreeMap;

use fairgate_api::agents::Claim;
use fairgate_store::{KeyHash, Store, UsageTerms};

use super::FleetSimRng;
use super::expected_state::ExpectedCall;
use super::model_calls::{reservation, row};
use crate::agent_id::AgentId;
use crate::agent_reports::TaskCompletion;
use crate::fleet::Fleet;
use crate::options::FleetShare;
use crate::testing::{FleetTestWorld, asker, claim_of};

/// An agent that works on a task.
struct BusyAgent<'a> {
    agent: &'a str,
    claim: Claim,
    /// Tokens that the agent's task has used so far.
    used: u64,
    /// Tokens that the agent's task has still to use.
    left: u64,
    /// The model call in flight, with its request id.
    call: Option<(String, ExpectedCall)>,
}

/// Runs projects that always have ready tasks, and agents that take one task after another and make
/// model calls through the gateway's part of the store. Tasks and calls have any size, and calls
/// may use more than they reserved. After the first round, the difference between a project's
/// tokens and its ideal share is never larger than the largest real usage of a task times the
/// number of running agents. In every second seed, two tenants share agents first. The rule then
/// applies to the tenants, whatever the weights of their projects.
pub(super) async fn case(seed: u64) {
    let mut dice = FleetSimRng::new(seed);
    let mut w = FleetTestWorld::new().await;
    w.options.default_estimate = dice.within(100, 1_000);
    // A guaranteed first task would not follow the shares.
    w.options.min_task_guarantee = false;
    let (projects, agents) = (dice.within(2, 5), dice.within(1, 8));
    let mut weights = BTreeMap::new();
    for number in 0..projects {
        let (id, weight) = (format!("p{number}"), dice.within(1, 12).cast_signed() * 500);
        w.project(&id, |p| (p.weight, p.concurrency) = (weight, 1_000)).await;
        w.many_tasks(&id, 400).await;
        weights.insert(id, weight.cast_unsigned());
    }
    let tenants = if seed.is_multiple_of(2) { add_tenants(&mut w, &mut dice).await } else { None };
    let names: Vec<_> = (0..agents).map(|number| format!("a{number}")).collect();
    w.agents(names.len()).await;
    let largest = dice.within(100, 3_000);
    let terms = UsageTerms { window: w.rules().window, budget: None };
    let mut used: BTreeMap<String, u64> = BTreeMap::new();
    let mut free: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut working: Vec<BusyAgent<'_>> = Vec::new();
    let mut requests = 0;
    // Maximum real usage of a task so far, in tokens.
    let mut most = 0;
    for _ in 0..40 {
        let outcome = w.round(&free).await;
        for (agent, reply) in free.drain(..).zip(&outcome.replies) {
            let claim = claim_of(reply.as_ref()).expect("there is work for everybody").clone();
            let left = dice.within(1, largest);
            working.push(BusyAgent { agent, claim, used: 0, left, call: None });
        }
        // Calls begin and end in any order, until some of the tasks are completed.
        let ends = dice.within(1, working.len() as u64);
        while (free.len() as u64) < ends {
            let place = dice.place(&working);
            if let Some(call) = working[place].call.take() {
                let tokens = if dice.one_in(2) {
                    working[place].left
                } else {
                    dice.below(working[place].left)
                };
                settle(&w.store, &call, tokens).await;
                working[place].left -= tokens;
                working[place].used += tokens;
                most = most.max(working[place].used);
                let claim = &working[place].claim;
                let payer = if tenants.is_some() { &claim.tenant } else { &claim.project };
                *used.entry(payer.clone()).or_default() += tokens;
                check(seed, &used, tenants.as_ref().unwrap_or(&weights), agents * most);
            } else if working[place].left == 0 {
                let done = working.swap_remove(place);
                complete(&w.fleet(), &done).await;
                free.push(done.agent);
            } else {
                requests += 1;
                let request = format!("r{requests}");
                let tokens = dice.within(1, largest);
                let flight = begin(&w, terms, &request, &working[place].claim, tokens).await;
                working[place].call = Some((request, flight));
            }
        }
    }
    w.store.close().await.unwrap();
}

/// Gives every second project to a second tenant, and makes tenants share agents first. Returns the
/// weights of the tenants.
async fn add_tenants(
    w: &mut FleetTestWorld,
    dice: &mut FleetSimRng,
) -> Option<BTreeMap<String, u64>> {
    w.options.share = FleetShare::Tenant;
    let weights = [("acme", dice.within(1, 5)), ("rival", dice.within(1, 5))];
    for (tenant, weight) in weights {
        let sql = "INSERT INTO tenants (name, group_name, weight, disabled, hosted, created_at) \
                   VALUES ($1, 'g', $2, false, 'forbidden', 0) \
                   ON CONFLICT (name) DO UPDATE SET weight = excluded.weight";
        w.run(sql, &[tenant.into(), weight.cast_signed().into()]).await;
    }
    w.run("UPDATE fleet_projects SET tenant = 'rival' WHERE id IN ('p1', 'p3')", &[]).await;
    Some(weights.map(|(tenant, weight)| (tenant.to_owned(), weight)).into())
}

/// Starts a call that reserves `tokens` tokens. The call may use more.
async fn begin(
    w: &FleetTestWorld,
    terms: UsageTerms,
    request: &str,
    claim: &Claim,
    tokens: u64,
) -> ExpectedCall {
    let key = claim.key.as_ref().unwrap();
    let found = w.fleet().task_key(KeyHash::of(key.as_bytes())).await.unwrap().unwrap();
    let flight = ExpectedCall {
        project: found.project,
        task: found.task,
        epoch: found.epoch,
        tokens,
        at: w.now.0,
        attempts: 0,
    };
    let asked = reservation(request, &flight, terms, w.now.0);
    w.store.reserve(asked).await.unwrap().unwrap();
    flight
}

async fn settle(store: &Store, (request, flight): &(String, ExpectedCall), tokens: u64) {
    store.record(row(request, flight, 1, tokens, true)).await.unwrap();
}

async fn complete(fleet: &Fleet, worker: &BusyAgent<'_>) {
    let id = AgentId { id: worker.agent.to_owned(), seed: asker(worker.agent).seed, token: None };
    let done = TaskCompletion { result: None, tokens: Some(1 << 30) };
    fleet.complete(&id, &worker.claim.task, worker.claim.epoch, done).await.unwrap();
}

fn check(seed: u64, used: &BTreeMap<String, u64>, weights: &BTreeMap<String, u64>, bound: u64) {
    let (all, weight): (u64, u64) = (used.values().sum(), weights.values().sum());
    for (project, its_weight) in weights {
        let ideal = all * its_weight / weight;
        let has = used.get(project).copied().unwrap_or(0);
        assert!(
            has.abs_diff(ideal) <= bound,
            "seed {seed}: {project} has {has}, its share is {ideal} ± {bound}"
        );
    }
}

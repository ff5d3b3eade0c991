//! With work for everybody, every project gets its share.

use std::collections::BTreeMap;

use super::Dice;
use crate::model::Completion;
use crate::testing::{World, asker, claim_of};

/// Projects that always have ready tasks, agents that take one after another, tasks of any size: after the first round each
/// project's tokens are never further from its ideal share than one largest task for each agent.
pub(super) async fn case(seed: u64) {
    let mut dice = Dice(seed);
    let mut w = World::new().await;
    w.options.default_estimate = dice.within(100, 1_000);
    let (projects, agents) = (dice.within(2, 5), dice.within(1, 8));
    let mut weights = BTreeMap::new();
    for number in 0..projects {
        let (id, weight) = (format!("p{number}"), dice.within(1, 12).cast_signed() * 500);
        w.project(&id, |p| (p.weight, p.concurrency) = (weight, 1_000)).await;
        w.many_tasks(&id, 400).await;
        weights.insert(id, weight.cast_unsigned());
    }
    let names: Vec<_> = (0..agents).map(|number| format!("a{number}")).collect();
    w.agents(names.len()).await;
    w.run("UPDATE fleet_agents SET reports = true", &[]).await;
    let largest = dice.within(100, 3_000);
    let mut used: BTreeMap<String, u64> = BTreeMap::new();
    let mut free: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut working = Vec::new();
    for _ in 0..40 {
        let outcome = w.round(&free).await;
        for (agent, reply) in free.drain(..).zip(&outcome.replies) {
            let claim = claim_of(reply.as_ref()).expect("there is work for everybody").clone();
            working.push((agent, claim));
        }
        // Some of them end, in any order.
        for _ in 0..dice.within(1, working.len() as u64) {
            let (agent, claim) = working.swap_remove(dice.place(&working));
            let tokens = dice.within(1, largest);
            *used.entry(claim.project.clone()).or_default() += tokens;
            let id = crate::fleet::AgentId { id: agent.to_owned(), seed: asker(agent).seed };
            let done = Completion { result: None, tokens: Some(tokens) };
            w.fleet().complete(&id, &claim.task, claim.epoch, done).await.unwrap();
            free.push(agent);
        }
        check(seed, &used, &weights, agents * largest);
    }
    w.store.close().await.unwrap();
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

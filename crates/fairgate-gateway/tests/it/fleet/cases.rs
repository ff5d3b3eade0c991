//! Tests of the published cases of proportional scheduling through the API, and of the faults that
//! users of that scheduler met.

use serde_json::json;

use super::{Agent, Claimed, Fleet, expect};

/// Has the agent work on a project's tasks until it used this number of tokens, with one task for
/// each entry.
async fn uses(agent: &Agent, tokens: &[(&str, u64)]) {
    let mut left: Vec<(&str, u64)> = tokens.to_vec();
    while !left.is_empty() {
        let claim = agent.claims().await;
        let place = left.iter().position(|(project, _)| *project == claim.project());
        let place = place.unwrap_or_else(|| panic!("{claim:?} is one too many: {left:?}"));
        let (_, tokens) = left.remove(place);
        claim.completes(tokens).await;
    }
}

/// Returns the projects of this number of claims, each by another agent.
async fn claimed(it: &Fleet, count: usize) -> Vec<String> {
    let mut projects = Vec::new();
    for i in 0..count {
        let agent = it.reporter(&format!("claimer-{i}")).await;
        projects.push(agent.claims().await.project().to_owned());
    }
    projects
}

fn count(projects: &[String], of: &str) -> usize {
    projects.iter().filter(|project| *project == of).count()
}

#[tokio::test]
async fn three_to_one_with_60k_and_40k_used_gives_to_the_first() {
    let it = Fleet::new().await;
    it.project("p1", json!({"weight": 3})).await;
    it.project("p2", json!({"weight": 1})).await;
    it.tasks("p1", 4, 1000).await;
    it.tasks("p2", 4, 1000).await;
    uses(&it.reporter("worker").await, &[("p1", 60_000), ("p2", 40_000)]).await;
    assert_eq!(it.reporter("next").await.claims().await.project(), "p1");
    it.close().await;
}

#[tokio::test]
async fn a_project_without_a_completion_goes_first_where_that_is_guaranteed() {
    for (guarantee, first) in [(true, "p2"), (false, "p1")] {
        let it = Fleet::with(|fleet| fleet.min_task_guarantee = guarantee).await;
        // Types direct who works for whom until the question is asked.
        let only = |kind: &str| {
            let kinds = ["k1", "k2", "kx"].into_iter().filter(|each| *each != kind);
            kinds.map(|kind| (kind.to_owned(), json!(0))).collect::<serde_json::Map<_, _>>()
        };
        for (project, weight, kind) in [("p1", 98, "k1"), ("p2", 1, "k2"), ("x", 1, "kx")] {
            it.project(project, json!({"weight": weight, "agent_max": only(kind)})).await;
            it.tasks(project, 5, 1000).await;
        }
        let worker = |kind: &str| json!({"type": kind, "reports_tokens": true});
        uses(&it.agent("one", worker("k1")).await, &[("p1", 10_000)]).await;
        let x = it.agent("two", worker("kx")).await;
        uses(&x, &[("x", 30_000), ("x", 30_000), ("x", 30_000)]).await;
        assert_eq!(it.reporter("next").await.claims().await.project(), first, "{guarantee}");
        it.close().await;
    }
}

/// A project gets its first tasks while another project runs its first one. That task uses less
/// than its estimate of 20 000 tokens, and a baseline of this size would never be corrected.
#[tokio::test]
async fn a_newcomer_does_not_starve_behind_the_first_estimate_of_another() {
    let it = Fleet::new().await;
    for project in ["a", "b"] {
        it.project(project, json!({})).await;
    }
    let tasks = async |project: &str| {
        for i in 0..45 {
            it.task(project, &format!("{project}-{i}"), json!({})).await;
        }
    };
    tasks("b").await;
    let agent = it.reporter("only").await;
    let first = agent.claims().await;
    assert_eq!(first.project(), "b");
    tasks("a").await;
    first.completes(85).await;
    let mut projects = Vec::new();
    for _ in 0..40 {
        let claim = agent.claims().await;
        projects.push(claim.project().to_owned());
        claim.completes(85).await;
    }
    let a = count(&projects, "a");
    assert!((19..=21).contains(&a), "{a} of 40 tasks went to the newcomer: {projects:?}");
    it.close().await;
}

#[tokio::test]
async fn caps_pauses_and_priorities() {
    let it = Fleet::new().await;
    it.project("p", json!({"concurrency": 1})).await;
    it.task("p", "late", json!({"priority": 200})).await;
    it.task("p", "early", json!({"priority": 10})).await;
    let (one, two) = (it.reporter("one").await, it.reporter("two").await);
    let claim = one.claims().await;
    assert_eq!(claim.task, "early");
    two.gets_nothing().await;
    assert_eq!(it.get("tasks/late/why").await["state"], "READY");
    expect(it.patch("projects/p", json!({"status": "PAUSED"})).await, 200);
    claim.completes(1).await;
    two.gets_nothing().await;
    expect(it.patch("projects/p", json!({"status": "ACTIVE"})).await, 200);
    assert_eq!(two.claims().await.task, "late");
    it.close().await;
}

#[tokio::test]
async fn a_budget_is_full_when_it_is_full_and_not_before() {
    let it = Fleet::with(|fleet| fleet.budget = Some(100_000)).await;
    it.project("p", json!({})).await;
    it.tasks("p", 3, 1).await;
    let agent = it.reporter("one").await;
    agent.claims().await.completes(99_999).await;
    agent.claims().await.completes(1).await;
    agent.gets_nothing().await;
    it.close().await;

    let it = Fleet::new().await;
    it.project("p", json!({"budget": 50_000})).await;
    it.tasks("p", 2, 1).await;
    let agent = it.reporter("one").await;
    agent.claims().await.completes(50_000).await;
    agent.gets_nothing().await;
    expect(it.patch("projects/p", json!({"budget": 50_001})).await, 200);
    agent.claims().await;
    it.close().await;
}

#[tokio::test]
async fn workspaces_that_are_taken_are_waited_for_by_their_own_tasks_alone() {
    let it = Fleet::new().await;
    for project in ["p1", "p2"] {
        it.project(project, json!({})).await;
        let workspace = json!({"id": format!("{project}-w"), "project": project, "path": format!("/w/{project}")});
        expect(it.post("workspaces", workspace).await, 201);
    }
    it.tasks("p1", 5, 10).await;
    it.tasks("p2", 5, 1000).await;
    // One of each, however many ask.
    let mut projects = claimed(&it, 2).await;
    projects.sort();
    assert_eq!(projects, ["p1", "p2"]);
    let more = it.reporter("more").await;
    more.gets_nothing().await;

    it.project("p3", json!({})).await;
    for id in ["w-a", "w-b"] {
        expect(
            it.post("workspaces", json!({"id": id, "project": "p3", "path": format!("/w/{id}")}))
                .await,
            201,
        );
    }
    it.task("p3", "first", json!({"workspace": "w-a", "priority": 1})).await;
    it.task("p3", "second", json!({"workspace": "w-a", "priority": 2})).await;
    it.task("p3", "third", json!({"priority": 3})).await;
    assert_eq!(more.claims().await.task, "first");
    // What prefers the workspace that is taken is passed over.
    let next = it.reporter("next").await.claims().await;
    assert_eq!((next.task.as_str(), &next.body["workspace"]), ("third", &json!("w-b")));
    it.close().await;
}

#[tokio::test]
async fn what_runs_counts_at_once() {
    let it = Fleet::new().await;
    for project in ["p1", "p2"] {
        it.project(project, json!({})).await;
        it.tasks(project, 20, 5000).await;
    }
    uses(&it.reporter("worker").await, &[("p1", 1000), ("p2", 1001)]).await;
    // Not all ten to the one that is a token behind.
    let projects = claimed(&it, 10).await;
    assert_eq!((count(&projects, "p1"), count(&projects, "p2")), (5, 5), "{projects:?}");
    it.close().await;
}

#[tokio::test]
async fn many_agents_at_once_do_not_overshoot_a_budget() {
    let it = Fleet::with(|fleet| fleet.budget = Some(1_000_000)).await;
    it.project("p", json!({})).await;
    it.tasks("p", 11, 200_000).await;
    let worker = it.reporter("worker").await;
    worker.claims().await.completes(599_999).await;
    let mut waiting = Vec::new();
    for i in 0..10 {
        let agent = it.reporter(&format!("a{i}")).await;
        waiting.push(tokio::spawn(async move { agent.claims_within(1).await }));
    }
    let mut given: Vec<Claimed> = Vec::new();
    for claim in waiting {
        given.extend(claim.await.unwrap());
    }
    assert_eq!(given.len(), 2, "two of 200 000 fit into what is left of 1 000 000");
    it.close().await;
}

#[tokio::test]
async fn a_project_that_comes_back_takes_its_share_and_no_more() {
    let it = Fleet::new().await;
    it.project("busy", json!({})).await;
    it.project("away", json!({})).await;
    it.tasks("busy", 30, 10_000).await;
    let worker = it.reporter("worker").await;
    for _ in 0..10 {
        worker.claims().await.completes(10_000).await;
    }
    it.tasks("away", 30, 10_000).await;
    let mut projects = Vec::new();
    for _ in 0..12 {
        let claim = worker.claims().await;
        projects.push(claim.project().to_owned());
        claim.completes(10_000).await;
    }
    let away = count(&projects, "away");
    assert!((5..=7).contains(&away), "{projects:?}");
    it.close().await;
}

#[tokio::test]
async fn tasks_go_in_the_order_in_which_they_were_made_and_not_of_their_names() {
    let it = Fleet::new().await;
    it.project("p", json!({})).await;
    for id in ["t-2", "t-10", "t-1"] {
        it.task("p", id, json!({})).await;
    }
    let agent = it.reporter("one").await;
    for id in ["t-2", "t-10", "t-1"] {
        let claim = agent.claims().await;
        assert_eq!(claim.task, id);
        claim.completes(1).await;
    }
    it.close().await;
}

#[tokio::test]
async fn a_task_waits_a_while_for_the_agent_that_it_prefers() {
    let it = Fleet::new().await;
    it.project("p", json!({})).await;
    let (one, two) = (it.reporter("one").await, it.reporter("two").await);
    it.task("p", "busy", json!({})).await;
    let busy = one.claims().await;
    it.task("p", "mine", json!({"affinity": "one"})).await;
    it.task("p", "soon", json!({"affinity": "one", "affinity_wait_s": 1, "priority": 500})).await;
    two.gets_nothing().await;
    assert_eq!(two.claims().await.task, "soon", "nobody waits for ever");
    busy.completes(1).await;
    assert_eq!(one.claims().await.task, "mine");
    it.close().await;
}

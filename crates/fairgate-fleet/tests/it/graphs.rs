//! Adding tasks, listing and changing them.

use fairgate_api::fleet::{
    FleetProjectStatus, NewTask, NewTasks, NewWorkspace, ProjectPatch, TaskPatch, TaskState,
};
use fairgate_fleet::{FleetError, TaskQuery};
use fairgate_store::UnixMicros;

use crate::world::{START, World, field, on_every_database, task_of};

on_every_database! {
    states_follow_from_needs, cycles_are_named, names_are_found_or_named, ids_are_made_up,
    a_file_may_be_added_twice, a_dry_run_makes_nothing, sizes_are_bounded, moments_are_checked,
    lists_go_on, tasks_are_patched, ten_thousand_in_a_row, an_agent_adds_only_so_many,
}

fn needing(id: &str, needs: &[&str]) -> NewTask {
    let needs = needs.iter().map(|need| (*need).to_owned()).collect();
    NewTask { needs, ..task_of("p", Some(id)) }
}

async fn states_follow_from_needs(world: World) {
    world.add(&["d<b,c", "b<a", "c<a", "a"]).await;
    let shown = |id: &'static str| async { world.task(id).await };
    assert_eq!(shown("a").await.line.state, TaskState::Ready);
    assert_eq!(shown("a").await.needed_by, ["b", "c", "d"]);
    assert_eq!(shown("a").await.line.title, "do it");
    let d = shown("d").await;
    assert_eq!(d.line.state, TaskState::Defined);
    assert_eq!(d.needs.keys().collect::<Vec<_>>(), ["b", "c"]);
    // One that needs what is completed can start.
    let epoch = world.hold("a", "a").await;
    let agent = crate::world::agent("a");
    world.fleet.complete(&agent, "a", epoch, Default::default()).await.unwrap();
    assert_eq!(shown("a").await.needed_by, [""; 0]);
    world.add(&["e<a", "f<a,d"]).await;
    assert_eq!(shown("e").await.line.state, TaskState::Ready);
    assert_eq!(shown("f").await.line.state, TaskState::Defined);
    assert_eq!(shown("b").await.line.state, TaskState::Ready);
    let step = shown("b").await.history.pop().unwrap();
    assert_eq!((step.from, step.to), (TaskState::Defined, TaskState::Ready));
    assert_eq!(step.actor, "fleet");
}

async fn cycles_are_named(world: World) {
    let tasks = vec![needing("a", &["b"]), needing("b", &["c"]), needing("c", &["b"])];
    let error = world.add_all(tasks).await.unwrap_err();
    let FleetError::Cycle(cycle) = &error else { panic!("{error}") };
    assert_eq!(cycle, &["b", "c", "b"]);
    assert!(error.to_string().contains("b → c → b"), "{error}");
    let error = world.add_all(vec![needing("a", &["a"])]).await.unwrap_err();
    assert!(matches!(error, FleetError::Cycle(cycle) if cycle == ["a", "a"]));
    assert_eq!(world.number("SELECT COUNT(*) FROM fleet_tasks").await, 0);
}

async fn names_are_found_or_named(world: World) {
    world.add_all(vec![task_of("r", Some("foreign"))]).await.unwrap();
    let workspace = |id: &str, project: &str| NewWorkspace {
        machine: None,
        id: id.into(),
        project: project.into(),
        path: "/w".into(),
    };
    world.fleet.add_workspace("admin", workspace("w", "q")).await.unwrap();
    let good = || task_of("p", None);
    let with = |bad: NewTask| vec![good(), good(), bad];
    let of = |name: &str| Some(name.to_owned());
    for (bad, path) in [
        (task_of("none", None), "tasks[2].project"),
        (needing("x", &["none"]), "tasks[2].needs[0]"),
        (needing("x", &["foreign"]), "tasks[2].needs[0]"),
        (NewTask { workspace: of("none"), ..good() }, "tasks[2].workspace"),
        (NewTask { workspace: of("w"), ..good() }, "tasks[2].workspace"),
        (NewTask { affinity: of("none"), ..good() }, "tasks[2].affinity"),
        (task_of("p", Some("not good")), "tasks[2].id"),
        (NewTask { title: of("a\nb"), ..good() }, "tasks[2].title"),
        (NewTask { prompt: " ".into(), ..good() }, "tasks[2].prompt"),
        (NewTask { prompt: "a\0".into(), ..good() }, "tasks[2].prompt"),
        (NewTask { estimate: Some(u64::MAX), ..good() }, "tasks[2].estimate"),
        (NewTask { retries: Some(u32::MAX), ..good() }, "tasks[2].retries"),
    ] {
        assert_eq!(field(world.add_all(with(bad)).await), path);
    }
    let twice = vec![task_of("p", Some("x")), task_of("p", Some("x"))];
    assert_eq!(field(world.add_all(twice).await), "tasks[1].id");
    assert_eq!(field(world.add_all(Vec::new()).await), "tasks");
    let archive = ProjectPatch { status: Some(FleetProjectStatus::Archived), ..Default::default() };
    let _ = world.fleet.patch_project("admin", "q", archive).await;
    assert_eq!(field(world.add_all(vec![task_of("q", None)]).await), "tasks[0].project");
    assert_eq!(world.number("SELECT COUNT(*) FROM fleet_tasks").await, 1);
}

async fn ids_are_made_up(world: World) {
    world.add(&["p-3"]).await;
    let mut tasks: Vec<_> = (0..3).map(|_| task_of("p", None)).collect();
    tasks.push(task_of("p", Some("p-2")));
    tasks.push(task_of("q", None));
    let added = world.add_all(tasks).await.unwrap().added;
    let ids: Vec<_> = added.iter().map(|line| line.id.as_str()).collect();
    assert_eq!(ids, ["p-4", "p-5", "p-6", "p-2", "q-1"]);
}

async fn a_file_may_be_added_twice(world: World) {
    let file = || vec![needing("a", &[]), needing("b", &["a"])];
    let first = world.add_all(file()).await.unwrap();
    assert_eq!((first.added.len(), first.unchanged.len()), (2, 0));
    let version = world.number("SELECT version FROM fleet").await;
    let again = world.add_all(file()).await.unwrap();
    assert_eq!((again.added.len(), again.unchanged), (0, vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(world.number("SELECT version FROM fleet").await, version);
    // With one more, only that one is new.
    let mut longer = file();
    longer.push(needing("c", &["b"]));
    let longer = world.add_all(longer).await.unwrap();
    assert_eq!((longer.added.len(), longer.unchanged.len()), (1, 2));
    // Anything else is another task of the same name.
    let other = NewTask { priority: Some(1), ..needing("a", &[]) };
    let error = world.add_all(vec![other]).await.unwrap_err();
    assert!(matches!(error, FleetError::Exists { what: "task", ref id } if id == "a"), "{error}");
    let error = world.add_all(vec![needing("b", &[])]).await.unwrap_err();
    assert!(matches!(error, FleetError::Exists { .. }), "{error}");
}

async fn a_dry_run_makes_nothing(world: World) {
    let later = UnixMicros(START + 1);
    let paused = NewTask { resume_after: Some(later), ..needing("c", &[]) };
    let tasks = vec![needing("a", &[]), needing("b", &["a"]), paused];
    let dry = |tasks| world.fleet.add_tasks("admin", NewTasks { tasks, dry_run: true });
    let audited = world.audit().await.len();
    let plan = dry(tasks.clone()).await.unwrap();
    assert!(plan.dry_run);
    assert_eq!(world.number("SELECT COUNT(*) FROM fleet_tasks").await, 0);
    assert_eq!(world.audit().await.len(), audited);
    let made = world.add_all(tasks).await.unwrap();
    assert_eq!(plan.added, made.added);
    let states: Vec<_> = made.added.iter().map(|line| line.state).collect();
    assert_eq!(states, [TaskState::Ready, TaskState::Defined, TaskState::Paused]);
    for line in made.added {
        assert_eq!(world.task(&line.id).await.line, line);
    }
    assert!(matches!(dry(vec![needing("x", &["x"])]).await, Err(FleetError::Cycle(_))));
}

async fn sizes_are_bounded(world: World) {
    let prompt = |bytes: usize| NewTask { prompt: "x".repeat(bytes), ..task_of("p", None) };
    assert_eq!(field(world.add_all(vec![prompt((1 << 20) + 1)]).await), "tasks[0].prompt");
    world.add_all(vec![prompt(1 << 20)]).await.unwrap();
    let many = (0..10_001).map(|_| prompt(1)).collect();
    assert_eq!(field(world.add_all(many).await), "tasks");
    let much = (0..65).map(|_| prompt(1 << 20)).collect();
    assert_eq!(field(world.add_all(much).await), "tasks");
    let needs = (0..1_001).map(|need| format!("n{need}")).collect();
    let needy = NewTask { needs, ..prompt(1) };
    assert_eq!(field(world.add_all(vec![needy]).await), "tasks[0].needs");
    // A thousand needs each, of a thousand tasks: a million rows in one transaction.
    let wide = |id: usize| NewTask {
        needs: (0..id).map(|need| format!("w{need}")).collect(),
        ..task_of("p", Some(&format!("w{id}")))
    };
    assert_eq!(field(world.add_all((0..1_000).map(wide).collect()).await), "tasks");
    assert_eq!(world.add_all((0..100).map(wide).collect()).await.unwrap().added.len(), 100);
}

/// What an agent adds in its own name is bounded, whatever it does.
async fn an_agent_adds_only_so_many(world: World) {
    let add = |count: usize, actor: &'static str, dry_run: bool| {
        let tasks = (0..count).map(|_| task_of("p", None)).collect();
        world.fleet.add_tasks(actor, NewTasks { tasks, dry_run })
    };
    add(6_000, "agent:a", false).await.unwrap();
    for dry_run in [true, false] {
        assert_eq!(field(add(4_001, "agent:a", dry_run).await), "tasks");
    }
    add(4_000, "agent:a", false).await.unwrap();
    assert_eq!(field(add(1, "agent:b", false).await), "tasks");
    // A person may add more, and what has ended leaves room.
    add(1, "admin", false).await.unwrap();
    world.sql("UPDATE fleet_tasks SET state = 'COMPLETED' WHERE made < 5000", vec![]).await;
    add(1, "agent:a", false).await.unwrap();
}

async fn moments_are_checked(world: World) {
    for bad in [i64::MIN, -1, 253_402_300_800_000_000, i64::MAX] {
        let task = NewTask { resume_after: Some(UnixMicros(bad)), ..task_of("p", None) };
        assert_eq!(field(world.add_all(vec![task]).await), "tasks[0].resume_after");
    }
    // What has passed does not wait, and what needs others waits for both.
    let task = |id, after, needs: &[&str]| NewTask {
        resume_after: Some(UnixMicros(after)),
        ..needing(id, needs)
    };
    world.add_all(vec![task("a", 5, &[]), task("b", START + 1_000_000, &["a"])]).await.unwrap();
    assert_eq!(world.state("a").await, TaskState::Ready);
    assert_eq!(world.state("b").await, TaskState::Defined);
    let epoch = world.hold("a", "a").await;
    let agent = crate::world::agent("a");
    world.fleet.complete(&agent, "a", epoch, Default::default()).await.unwrap();
    let b = world.task("b").await.line;
    assert_eq!((b.state, b.resume_after), (TaskState::Paused, Some(UnixMicros(START + 1_000_000))));
}

async fn lists_go_on(world: World) {
    world.add(&["a", "b<a", "c", "d"]).await;
    world.add_all(vec![task_of("r", Some("e"))]).await.unwrap();
    let list = |query| async {
        let lines = world.fleet.tasks(query).await.unwrap();
        lines.into_iter().map(|line| line.id).collect::<Vec<_>>().join(" ")
    };
    let all = TaskQuery::default;
    assert_eq!(list(all()).await, "a b c d e");
    assert_eq!(list(TaskQuery { limit: 2, ..all() }).await, "a b");
    let after = TaskQuery { after: Some("b".into()), limit: 2, ..all() };
    assert_eq!(list(after).await, "c d");
    assert_eq!(list(TaskQuery { project: Some("r".into()), ..all() }).await, "e");
    assert_eq!(list(TaskQuery { tenant: Some("t".into()), ..all() }).await, "a b c d");
    let other = TaskQuery { tenant: Some("u".into()), project: Some("p".into()), ..all() };
    assert_eq!(list(other).await, "");
    let states = vec![TaskState::Defined, TaskState::Failed];
    assert_eq!(list(TaskQuery { states, ..all() }).await, "b");
    let unknown = world.fleet.tasks(TaskQuery { project: Some("none".into()), ..all() }).await;
    assert!(matches!(unknown, Err(FleetError::NotFound { what: "project", .. })));
    let after = world.fleet.tasks(TaskQuery { after: Some("none".into()), ..all() }).await;
    assert_eq!(field(after), "after");
}

async fn tasks_are_patched(world: World) {
    world.add(&["a"]).await;
    let patch = TaskPatch {
        title: Some("new".into()),
        priority: Some(-5),
        estimate: Some(77),
        retries: Some(9),
        ..Default::default()
    };
    let view = world.fleet.patch_task("admin:eve", "a", patch.clone()).await.unwrap();
    let line = view.line;
    assert_eq!(
        (line.title.as_str(), line.priority, line.estimate, line.retries_max),
        ("new", -5, 77, 9)
    );
    let entry = world.audit().await.remove(0);
    assert_eq!((entry.actor.as_str(), entry.action.as_str()), ("admin:eve", "task.patch"));
    assert_eq!(entry.before.unwrap()["priority"], 100);
    let after = entry.after.unwrap();
    assert_eq!(after["priority"], -5);
    assert!(after.get("prompt").is_none());
    // The same again changes nothing.
    world.fleet.patch_task("admin", "a", patch.clone()).await.unwrap();
    assert_eq!(world.audit().await[0].id, entry.id);
    let long = TaskPatch { prompt: Some("x".repeat((1 << 20) + 1)), ..Default::default() };
    assert_eq!(field(world.fleet.patch_task("admin", "a", long).await), "prompt");
    let unknown = world.fleet.patch_task("admin", "none", patch.clone()).await;
    assert!(matches!(unknown, Err(FleetError::NotFound { what: "task", .. })));
    world.hold("a", "b").await;
    let held = world.fleet.patch_task("admin", "a", patch).await.unwrap_err();
    assert!(held.to_string().contains("b works on it"), "{held}");
}

async fn ten_thousand_in_a_row(world: World) {
    let id = |n: usize| format!("n{n}");
    let task = |n: usize| {
        let needs = if n == 0 { Vec::new() } else { vec![id(n - 1)] };
        NewTask { needs, ..task_of("p", Some(&id(n))) }
    };
    // The last first, so that every need is found further on.
    let added = world.add_all((0..10_000).rev().map(task).collect()).await.unwrap();
    assert_eq!(added.added.len(), 10_000);
    // As far as anybody looks.
    let nearest: Vec<_> = (1..=200).map(id).collect();
    assert_eq!(world.task("n0").await.needed_by, nearest);
    let cancel = fairgate_api::fleet::TaskAction::Cancel { reason: None };
    let reason = world.fleet.act("admin", "n0", cancel).await.unwrap().line.reason.unwrap();
    assert!(reason.ends_with(
        "more than 10 tasks wait for it: n1, n2, n3, n4, n5, n6, n7, n8, n9, n10 and others"
    ));
    assert_eq!(world.number("SELECT COUNT(*) FROM fleet_tasks WHERE open_needs = 1").await, 9_999);
}

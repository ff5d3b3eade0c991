#![allow(clippy::unwrap_used)]

use fairgate_core::proportional::{
    AgentState, CreditWeight, ProjectStatus, ScheduleMode, ScheduleSnapshotParts, ScheduledAgent,
    ScheduledProject, ScheduledTask, TaskAssignment, TaskStatus, explain,
};
use fairgate_core::units::Tokens;

use super::*;

/// Returns the error for a snapshot, as a user sees it.
fn refused(text: &str) -> String {
    read_snapshot(text).unwrap_err().to_string()
}

/// Returns a snapshot of one project with these further fields.
fn with_project(fields: &str) -> String {
    format!(r#"{{"projects":[{{"id":"p",{fields}}}],"tasks":[],"agents":[]}}"#)
}

fn weight_of(number: &str) -> Option<u64> {
    let text = with_project(&format!(r#""credit_weight":{number}"#));
    let snapshot = read_snapshot(&text).ok()?;
    Some(snapshot.parts().projects[0].credit_weight.thousandths())
}

#[test]
fn what_is_not_said_has_its_default() {
    let text = r#"{"projects":[{"id":"p"}],"tasks":[{"id":"t","project_id":"p","status":"READY"}],
        "agents":[{"id":"a","state":"IDLE"}]}"#;
    let expected = ScheduleSnapshotParts {
        projects: vec![ScheduledProject::new("p")],
        tasks: vec![ScheduledTask::ready("t", "p")],
        agents: vec![ScheduledAgent::idle("a")],
        ..ScheduleSnapshotParts::default()
    };
    assert_eq!(read_snapshot(text).unwrap().parts(), &expected);
    assert_eq!(expected.mode, ScheduleMode::Classic);
    assert!(expected.min_task_guarantee);
    assert_eq!(expected.default_estimated_tokens, Tokens(1));
    assert_eq!(expected.projects[0].credit_weight.to_string(), "1");
    assert_eq!(expected.projects[0].max_concurrent_agents, 2);
    assert_eq!(expected.tasks[0].priority, 100);
}

#[test]
fn everything_that_can_be_said_is_read() {
    let text = r#"{"mode":"strict","min_task_guarantee":false,"default_estimated_tokens":7,
        "projects":[{"id":"p","status":"PAUSED","credit_weight":0.25,"max_concurrent_agents":9,"budget_limit":10}],
        "tasks":[{"id":"t","project_id":"p","status":"WAITING_INPUT","priority":-3,"created":-4,
                  "estimated_tokens":5,"preferred_workspace_id":"w"}],
        "agents":[{"id":"a","state":"RETIRED"}],
        "project_token_usage":{"p":18446744073709551615,"gone":1},"project_active_agent_counts":{"p":2},
        "tasks_completed_in_window":{"p":3},"project_available_workspaces":{"p":4},
        "workspace_locks":{"w":"t9","v":null},"project_reserved_tokens":{"p":5},
        "project_baseline_tokens":{"p":6},"global_budget":8,"global_tokens_used":9}"#;
    let parts = read_snapshot(text).unwrap().into_parts();
    assert_eq!(parts.mode, ScheduleMode::Strict);
    assert!(!parts.min_task_guarantee);
    assert_eq!(parts.default_estimated_tokens, Tokens(7));
    let project = ScheduledProject {
        id: "p".into(),
        status: ProjectStatus::Paused,
        credit_weight: CreditWeight::from_thousandths(250).unwrap(),
        max_concurrent_agents: 9,
        budget_limit: Some(Tokens(10)),
    };
    assert_eq!(parts.projects, [project]);
    let task = ScheduledTask {
        status: TaskStatus::WaitingInput,
        priority: -3,
        created: -4,
        estimated_tokens: Some(Tokens(5)),
        preferred_workspace_id: Some("w".into()),
        ..ScheduledTask::ready("t", "p")
    };
    assert_eq!(parts.tasks, [task]);
    assert_eq!(parts.agents, [ScheduledAgent { id: "a".into(), state: AgentState::Retired }]);
    assert_eq!(parts.project_token_usage["p"], Tokens(u64::MAX));
    assert_eq!(parts.project_active_agent_counts["p"], 2);
    assert_eq!(parts.tasks_completed_in_window["p"], 3);
    assert_eq!(parts.project_available_workspaces["p"], 4);
    assert_eq!(parts.workspace_locks["w"].as_deref(), Some("t9"));
    assert_eq!(parts.workspace_locks["v"], None);
    assert_eq!(parts.project_reserved_tokens["p"], Tokens(5));
    assert_eq!(parts.project_baseline_tokens["p"], Tokens(6));
    assert_eq!(parts.global_budget, Some(Tokens(8)));
    assert_eq!(parts.global_tokens_used, Tokens(9));
}

#[test]
fn null_is_none_where_there_may_be_none() {
    let text = r#"{"projects":[{"id":"p","budget_limit":null}],
        "tasks":[{"id":"t","project_id":"p","status":"READY","estimated_tokens":null,"preferred_workspace_id":null}],
        "agents":[],"global_budget":null}"#;
    let parts = read_snapshot(text).unwrap().into_parts();
    assert_eq!(parts.tasks, [ScheduledTask::ready("t", "p")]);
    let elsewhere = refused(&with_project(r#""max_concurrent_agents":null"#));
    assert!(elsewhere.starts_with("projects[0].max_concurrent_agents: must be an integer"));
}

#[test]
fn weights_are_exact_to_the_thousandth() {
    let accepted = [
        ("1", 1000),
        ("1.0", 1000),
        ("0.001", 1),
        ("5.25", 5250),
        ("0.1", 100),
        ("1.5000", 1500),
        ("1e-3", 1),
        ("12.5E+2", 1_250_000),
        ("0.00001e3", 10),
        ("1000000000000000", 1_000_000_000_000_000_000),
        ("999999999999999.999", 999_999_999_999_999_999),
        ("1e15", 1_000_000_000_000_000_000),
    ];
    for (number, thousandths) in accepted {
        assert_eq!(weight_of(number), Some(thousandths), "{number}");
    }
    let refused = [
        "0",
        "0.0",
        "-0",
        "-1",
        "-0.5",
        "0.0009",
        "0.0005",
        "1.0001",
        "1000000000000000.001",
        "1e16",
        "1e999999999999999999999",
        "1e-999999999999999999999",
        "0.10000000000000000001",
        "\"1\"",
        "null",
        "true",
        "[1]",
    ];
    for number in refused {
        assert_eq!(weight_of(number), None, "{number}");
    }
}

#[test]
fn a_bad_weight_names_its_field() {
    let no_value = "expected a value: JSON has no";
    let cases = [
        ("0", "must be 0.001 to 1000000000000000, not 0".into()),
        ("-1", "must be 0.001 to 1000000000000000, not -1".into()),
        ("1e16", "must be 0.001 to 1000000000000000, not 1e16".into()),
        ("1.0001", "must have at most 3 decimals, not 1.0001".into()),
        ("null", "must be a number, not null".into()),
        ("NaN", format!("malformed JSON at line 1, column 40: {no_value} NaN")),
        ("Infinity", format!("malformed JSON at line 1, column 40: {no_value} Infinity")),
        (
            "-Infinity",
            "malformed JSON at line 1, column 41: expected a digit: JSON has no Infinity".into(),
        ),
        ("nan", format!("malformed JSON at line 1, column 40: {no_value} nan")),
    ];
    for (number, message) in cases {
        let text = with_project(&format!(r#""credit_weight":{number}"#));
        assert_eq!(refused(&text), format!("projects[0].credit_weight: {message}"));
        let below = message.replace("line 1", "line 2");
        assert_eq!(refused(&format!("\n{text}")), format!("projects[0].credit_weight: {below}"));
    }
}

#[test]
fn errors_name_the_field() {
    let cases = [
        (r#"{"projects":[],"tasks":[]}"#, "agents: is missing"),
        (
            r#"{"projects":[],"tasks":[],"agents":[],"colour":1}"#,
            "colour: unknown; known here: projects, tasks, agents, mode",
        ),
        (r#"{"projects":[],"projects":[]}"#, "projects: given twice"),
        (r#"{"projects":{}}"#, "projects: must be a list, not an object"),
        (r#"{"mode":"lax"}"#, "mode: must be one of classic, strict, not the text \"lax\""),
        (r#"{"min_task_guarantee":1}"#, "min_task_guarantee: must be true or false, not 1"),
        (
            r#"{"projects":[{"name":"p"}],"tasks":[],"agents":[]}"#,
            "projects[0].name: unknown; known here: id, status",
        ),
        (r#"{"projects":[{}],"tasks":[],"agents":[]}"#, "projects[0].id: is missing"),
        (
            r#"{"projects":[{"id":"p"},3],"tasks":[],"agents":[]}"#,
            "projects[1]: must be an object, not 3",
        ),
        (r#"{"projects":[],"tasks":[],"agents":[{"id":"a"}]}"#, "agents[0].state: is missing"),
        (
            r#"{"projects":[],"tasks":[],"agents":[{"id":"a","state":"idle"}]}"#,
            "agents[0].state: must be one of IDLE, BUSY, PAUSED, ERROR, RETIRED, not the text \"idle\"",
        ),
        (
            r#"{"projects":[{"id":"p","status":"OPEN"}],"tasks":[],"agents":[]}"#,
            "projects[0].status: must be one of ACTIVE, PAUSED, ARCHIVED, not the text \"OPEN\"",
        ),
        (
            r#"{"projects":[],"tasks":[{"id":"t","project_id":"p"}],"agents":[]}"#,
            "tasks[0].status: is missing",
        ),
        (
            r#"{"projects":[],"tasks":[{"id":"t","project_id":"p","status":"READY"}],"agents":[]}"#,
            "tasks[0].project_id: there is no project \"p\"",
        ),
        (
            r#"{"projects":[{"id":"p"},{"id":"q"},{"id":"p"}],"tasks":[],"agents":[]}"#,
            "projects[2].id: \"p\" is already the id of [0]",
        ),
        (
            r#"{"projects":[],"tasks":[],"agents":[],"project_token_usage":{"p":-1}}"#,
            "project_token_usage.p: must be an integer of 0 or more, not -1",
        ),
        (
            r#"{"projects":[],"tasks":[],"agents":[],"project_token_usage":{"p":1,"p":1}}"#,
            "project_token_usage.p: given twice",
        ),
        (
            r#"{"projects":[],"tasks":[],"agents":[],"project_reserved_tokens":{"my project":1.5}}"#,
            "project_reserved_tokens.my project: must be an integer",
        ),
        (
            r#"{"projects":[],"tasks":[],"agents":[],"workspace_locks":{"w":1}}"#,
            "workspace_locks.w: must be text, not 1",
        ),
        (
            r#"{"projects":[],"tasks":[],"agents":[],"global_budget":-1}"#,
            "global_budget: must be an integer",
        ),
        (
            r#"{"projects":[],"tasks":[],"agents":[],"global_tokens_used":18446744073709551616}"#,
            "global_tokens_used: must be an integer",
        ),
        ("[]", "must be an object, not a list"),
    ];
    for (text, expected) in cases {
        let error = refused(text);
        assert!(error.starts_with(expected), "{text}\n  says {error}\n  not  {expected}");
    }
}

#[test]
fn broken_json_names_the_field_and_the_line() {
    let cases = [
        ("", "malformed JSON at line 1, column 1: expected a value"),
        ("{\"projects\":[", "projects[0]: malformed JSON at line 1, column 14: expected a value"),
        (
            "{\"projects\":[{\"id\":\"a,{\\\"b\"},\n{\"id\":x}]}",
            "projects[1].id: malformed JSON at line 2, column 7: expected a value",
        ),
        (
            "{\"workspace_locks\":{\"w1\":NaN}}",
            "workspace_locks.w1: malformed JSON at line 1, column 26: expected a value: JSON has no NaN",
        ),
        (
            "{\"projects\":[],\"tasks\":[],\"agents\":[]} 1",
            "malformed JSON at line 1, column 40: expected nothing more",
        ),
    ];
    for (text, expected) in cases {
        let error = refused(text);
        assert!(error.starts_with(expected), "{text}\n  says {error}\n  not  {expected}");
    }
    assert!(refused(r#"{"mode":"\ud800"}"#).starts_with("mode: "));
}

#[test]
fn assignments_are_a_json_list() {
    let assignment =
        TaskAssignment { agent_id: "a\"1".into(), task_id: "t".into(), project_id: "p".into() };
    let mut out = Vec::new();
    write_assignments(&mut out, &[assignment], JsonLayout::Compact).unwrap();
    let expected = "[{\"agent_id\":\"a\\\"1\",\"task_id\":\"t\",\"project_id\":\"p\"}]\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn layouts_differ_in_space_only() {
    let snapshot = read_snapshot(TWO_PROJECTS).unwrap();
    let written = |layout| {
        let mut out = Vec::new();
        write_explanation(&mut out, &explain(&snapshot), layout).unwrap();
        serde_json::from_slice::<serde_json::Value>(&out).unwrap()
    };
    assert_eq!(written(JsonLayout::Pretty), written(JsonLayout::Compact));
    let mut out = Vec::new();
    let assignment =
        TaskAssignment { agent_id: "a".into(), task_id: "t".into(), project_id: "p".into() };
    write_assignments(&mut out, &[assignment], JsonLayout::Pretty).unwrap();
    let expected = "[\n  {\n    \"agent_id\": \"a\",\n    \"task_id\": \"t\",\n    \"project_id\": \"p\"\n  }\n]\n";
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    let mut out = Vec::new();
    write_assignments(&mut out, &[], JsonLayout::Pretty).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), "[]\n");
}

/// Returns the explanation of a snapshot, as JSON.
fn explained(text: &str) -> serde_json::Value {
    let snapshot = read_snapshot(text).unwrap();
    let mut out = Vec::new();
    write_explanation(&mut out, &explain(&snapshot), JsonLayout::Compact).unwrap();
    serde_json::from_slice(&out).unwrap()
}

const TWO_PROJECTS: &str = r#"{"mode":"strict","default_estimated_tokens":100,
    "projects":[{"id":"A","credit_weight":3.25},{"id":"B","credit_weight":0.75,"budget_limit":600}],
    "tasks":[{"id":"a1","project_id":"A","status":"READY","preferred_workspace_id":"w"},
             {"id":"a2","project_id":"A","status":"READY","priority":200},
             {"id":"b1","project_id":"B","status":"READY"},
             {"id":"b2","project_id":"B","status":"READY","estimated_tokens":101},
             {"id":"b3","project_id":"B","status":"READY","preferred_workspace_id":"w","priority":7}],
    "agents":[{"id":"x","state":"IDLE"}],
    "project_token_usage":{"A":1000,"B":500},"tasks_completed_in_window":{"A":1,"B":1}}"#;

#[test]
fn an_explanation_has_codes_sentences_and_numbers() {
    let explanation = explained(TWO_PROJECTS);
    assert_eq!(explanation["assignments"][0]["task_id"], "a1");
    let [a, b] = [0, 1].map(|i| &explanation["projects"][i]);
    assert_eq!(a["reason"], "took_the_last_agent");
    assert_eq!(
        a["text"],
        "Of its ready tasks (2) no more than 1 went to agents: the last idle agent, x, went to a1 of the same \
         project."
    );
    assert_eq!(a["credit_weight"].to_string(), "3.25");
    assert_eq!((&a["spent"], &a["agents"], &a["given"]), (&1100.into(), &1.into(), &1.into()));
    assert_eq!(a["share"]["target_ppm"], 812_500);
    assert_eq!(a["share"]["actual_ppm"], 666_666);
    assert_eq!(a["share"]["gap_ppm"], -145_834);
    assert_eq!(a["share"]["weight_total"].to_string(), "4");
    assert_eq!(b["reason"], "lost_to");
    assert_eq!(b["budget_left"], 100);
    assert_eq!(b["lost_to"]["project_id"], "A");
    assert_eq!(b["lost_to"]["by"], "gap");
    assert_eq!(b["lost_to"]["by_ppm"], 291_667);
    assert_eq!(
        b["text"],
        "Of its ready tasks (3) none went to an agent: the last idle agent, x, went to project A, which had 66.7 % \
         of the tokens against a share of 81.3 %, while this one had 33.3 % of the tokens against a share of \
         18.8 %, a difference of 29.2 %."
    );
}

#[test]
fn every_ready_task_is_explained() {
    let explanation = explained(TWO_PROJECTS);
    let tasks = explanation["tasks"].as_array().unwrap();
    let of = |id: &str| tasks.iter().find(|task| task["task_id"] == id).unwrap();
    assert_eq!(tasks.len(), 5);
    assert_eq!(of("a1")["reason"], "given");
    assert_eq!(of("a1")["agent_id"], "x");
    assert_eq!(of("a2")["reason"], "took_the_last_agent");
    assert_eq!(of("a2")["went_first"], "a1");
    assert_eq!(of("b1")["reason"], "lost_to");
    let over = serde_json::json!([
        {"code": "over_project_budget", "spent": 500, "estimate": 101, "limit": 600},
    ]);
    assert_eq!(of("b2")["obstacles"], over);
    assert_eq!(
        of("b2")["text"],
        "It cannot start: its estimate of 101 does not fit, as the project has spent 500 of its 600 tokens."
    );
    let taken =
        serde_json::json!([{"code": "workspace_locked", "workspace": "w", "taken_by_task": "a1"}]);
    assert_eq!(of("b3")["obstacles"], taken);
}

//! Tests of reloads: planned changes, and changes that need a restart.

use fairgate_config::{Config, ConfigReload, ReloadPlan};

use crate::support::{Folder, LEAST, SECRET, environment};

fn words(plan: &ReloadPlan) -> Vec<String> {
    plan.changes.iter().map(ToString::to_string).collect()
}

#[test]
fn the_same_changes_nothing() {
    let folder = Folder::new();
    let config = folder.parse(LEAST).expect("it is right");
    assert_eq!(
        folder.reload(&config, &format!("# A comment.\n{LEAST}")),
        Ok(ReloadPlan::default())
    );
}

#[test]
fn changes_are_told_in_words() {
    let folder = Folder::new();
    let current = folder.parse(&format!("journal: {{}}\n{LEAST}")).expect("it is right");
    let next = "\
journal: {}
drain_grace: 5s
store: {keep_days: 30}
admin: {token: {env: FAIRGATE_ADMIN_TOKEN}}
upstreams:
  - {name: vllm.c, url: http://10.0.0.13:8000, slots: 8}
  - {name: vllm-a, url: http://10.0.0.11:8000, slots: 20, credential: {env: OPENAI_API_KEY}, health: {}}
pools:
  - {name: gpt, models: [gpt], workers: [vllm.c], capacity: 2}
  - name: llama
    models: [llama-8b, {name: big, upstream_name: llama-70b}]
    workers: [vllm-a]
    policy: {share: {by: tenant}}
    cost: {cached_input: 0.1}
";
    let plan = folder.reload(&current, next).expect("it can be applied");
    assert_eq!(
        words(&plan),
        [
            "upstreams.vllm.c: added",
            "pools.gpt: added",
            "upstreams.vllm-b: removed",
            "admin.token: none → a secret",
            "drain_grace: 30s → 5s",
            "store.keep_days: none → 30",
            "upstreams.vllm-a.credential: none → a secret",
            "upstreams.vllm-a.health: off → on",
            "upstreams.vllm-a.health.every: none → 5s",
            "upstreams.vllm-a.health.healthy_after: none → 1",
            "upstreams.vllm-a.health.path: none → /health",
            "upstreams.vllm-a.health.timeout: none → 2s",
            "upstreams.vllm-a.health.unhealthy_after: none → 3",
            "upstreams.vllm-a.slots: 16 → 20",
            "pools.llama.capacity: 24 → 20",
            "pools.llama.cost.cached_input: 1 → 0.1",
            "pools.llama.models: llama-8b → llama-8b, big as llama-70b",
            r#"pools.llama.policy: {"share":{"by":"group","inside":{"share":{"by":"tenant","inside":{"share":{"by":"key"}}}}}} → {"share":{"by":"tenant"}}"#,
            "pools.llama.workers: vllm-a, vllm-b → vllm-a",
        ]
    );
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(plan.upstreams.added, set(&["vllm.c"]));
    assert_eq!(plan.upstreams.removed, set(&["vllm-b"]));
    assert_eq!(plan.upstreams.changed, set(&["vllm-a"]));
    assert_eq!(plan.pools.added, set(&["gpt"]));
    assert_eq!(plan.pools.removed, set(&[]));
    assert_eq!(plan.pools.changed, set(&["llama"]));
}

#[test]
fn what_needs_a_restart_is_refused_with_its_line() {
    let folder = Folder::new();
    let current = folder.parse(&format!("listen: 127.0.0.1:1\n{LEAST}")).expect("it is right");
    let next = "\
upstreams:
  - {name: vllm-a, url: http://10.0.0.11:8000, slots: 99}
  - {name: vllm-b, url: https://10.0.0.12:8000, slots: 8}
pools:
  - name: llama
    models: [llama-8b]
    workers: [vllm-a, vllm-b]
    max_queue: 5
    brownout: {}
store:
  url: {env: FAIRGATE_STORE_URL}
";
    let errors = folder.reload(&current, next).expect_err("it needs a restart");
    let rest = "cannot be applied while the gateway runs; restart it, or set the old value back (nothing was changed)";
    assert_eq!(
        folder.shown(&errors),
        format!(
            "fairgate.yaml:1:1: listen: 127.0.0.1:1 → 127.0.0.1:8080: {rest}\n\
             fairgate.yaml:8:5: pools[0].max_queue: 10000 → 5: {rest}\n\
             fairgate.yaml:9:5: pools[0].brownout.wait: none → 750ms: {rest}\n\
             fairgate.yaml:11:3: store.url: changed: {rest}"
        )
    );
}

#[test]
fn a_wrong_file_is_told_as_at_the_start() {
    let folder = Folder::new();
    let current = folder.parse(LEAST).expect("it is right");
    let wrong = LEAST.replace("slots: 16", "slots: 0");
    assert_eq!(folder.reload(&current, &wrong).unwrap_err(), folder.parse(&wrong).unwrap_err());
}

#[test]
fn a_secret_that_changed_is_not_shown() {
    let folder = Folder::new();
    let text = LEAST.replace("slots: 16", "slots: 16, credential: {env: OPENAI_API_KEY}");
    let current = folder.parse(&text).expect("it is right");
    let text = text.replace("{env: OPENAI_API_KEY}", "{file: secrets/openai-key}");
    let plan = folder.reload(&current, &text).expect("it can be applied");
    assert_eq!(words(&plan), ["upstreams.vllm-a.credential: changed"]);
    let mut environment = environment();
    environment.insert("OPENAI_API_KEY".into(), "another".into());
    let reload = ConfigReload::parse(
        &current,
        &text.replace("{file: secrets/openai-key}", "{env: OPENAI_API_KEY}"),
        &folder.file(),
        &environment,
    );
    let reload = reload.expect("it can be applied");
    assert_eq!(words(&reload.plan), ["upstreams.vllm-a.credential: changed"]);
    let serialized = serde_json::to_string(&reload.next.upstreams).expect("it is JSON");
    assert!(!format!("{reload:?} {serialized}").contains(SECRET));
}

#[test]
fn a_file_is_reloaded() {
    let folder = Folder::new();
    folder.write("fairgate.yaml", LEAST);
    let current = Config::from_file(&folder.file(), &environment()).expect("it is right");
    folder.write("fairgate.yaml", &LEAST.replace("slots: 16", "slots: 17"));
    let reload =
        ConfigReload::from_file(&current, &folder.file(), &environment()).expect("it is right");
    assert_eq!(reload.next.pools[0].capacity, 25);
    assert_eq!(
        words(&reload.plan),
        ["upstreams.vllm-a.slots: 16 → 17", "pools.llama.capacity: 24 → 25"]
    );
}

#[test]
fn queue_timeout_and_deadlines_of_classes_can_change() {
    let folder = Folder::new();
    let pool =
        |more: &str| LEAST.replace("models: [llama-8b]", &format!("{more}, models: [llama-8b]"));
    let policy = |chat: &str| {
        format!(
            "policy: {{share: {{by: class, classes: [{{name: chat, weight: 4{chat}, queue: edf}}, {{name: batch, weight: 1}}]}}}}"
        )
    };
    let current = pool(&policy(", deadline: 5s"));
    let current = folder.parse(&current).expect("it is right");
    assert_eq!(current.pools[0].class_deadlines["chat"].as_secs(), 5);
    let next = pool(&format!("queue_timeout: 7s, {}", policy(", deadline: 750ms")));
    let plan = folder.reload(&current, &next).expect("it can be applied");
    assert_eq!(
        words(&plan),
        ["pools.llama.deadline.chat: 5s → 750ms", "pools.llama.queue_timeout: 1m → 7s"]
    );
    let plan = folder.reload(&current, &pool(&policy(""))).expect("it can be applied");
    assert_eq!(words(&plan), ["pools.llama.deadline.chat: 5s → none"]);
}

#[test]
fn deadlines_in_a_policy_file_are_those_of_its_classes() {
    let folder = Folder::new();
    let file = |deadline: &str| {
        format!(
            "policy_classes:\n  - {{name: chat, policy_family: standard, cache_bucket: all, quantum: 512, queue_policy: edf{deadline}}}\n\
             default_policy_family: standard\nuncached_isl_buckets: [{{bucket: all, min_tokens: 0}}]\n"
        )
    };
    let text = LEAST.replace("models: [llama-8b]", "policy_file: classes.yaml, models: [llama-8b]");
    folder.write("classes.yaml", &file(", deadline: 2s"));
    let current = folder.parse(&text).expect("it is right");
    assert_eq!(current.pools[0].class_deadlines["chat"].as_secs(), 2);
    folder.write("classes.yaml", &file(", deadline: 3s"));
    let plan = folder.reload(&current, &text).expect("it can be applied");
    assert_eq!(words(&plan), ["pools.llama.deadline.chat: 2s → 3s"]);
}

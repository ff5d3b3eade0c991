//! Tests of invalid policy files. Each error must have its line, column, field and advice.

use super::{LEAST, read};

/// Changes of the shortest profile, each with its one error. `▸` marks the position of the error.
const SINGLE: &[(&str, &str, &str)] = &[
    (
        "uncached_isl_buckets:\n  - {min_tokens: 0, bucket: cached}\n  - {min_tokens: 3072, bucket: uncached}\n",
        "uncached_isl_buckets: ▸[]\n",
        "uncached_isl_buckets: must have at least one element",
    ),
    (
        "policy_classes:\n  - {name: chat, policy_family: standard, cache_bucket: cached, quantum: 2048}\n  - {name: long, policy_family: standard, cache_bucket: uncached, quantum: 512}\n",
        "policy_classes: ▸[]\n",
        "policy_classes: must have at least one element",
    ),
    (
        "min_tokens: 0",
        "min_tokens: ▸1",
        "uncached_isl_buckets[0].min_tokens: must be 0 in the first bucket, not 1: requests with fewer tokens would be in none",
    ),
    (
        "min_tokens: 3072",
        "min_tokens: ▸0",
        "uncached_isl_buckets[1].min_tokens: must be over 0, the floor of the bucket before it, not 0: list buckets by rising floors",
    ),
    (
        "bucket: cached}\n  - {min_tokens: 3072, bucket: uncached}",
        "bucket: cached}\n  - {min_tokens: 3072, bucket: uncached}\n  - {min_tokens: 9000, bucket: ▸uncached}",
        r#"uncached_isl_buckets[2].bucket: another bucket is called "uncached", on line 4"#,
    ),
    (
        "name: long",
        "name: ▸chat",
        r#"policy_classes[1].name: another class is called "chat", on line 6"#,
    ),
    (
        "quantum: 512}",
        "quantum: 512}\n  - ▸{name: more, policy_family: standard, cache_bucket: cached, quantum: 1}",
        r#"policy_classes[2]: the class "chat" on line 6 is of the family "standard" and the bucket "cached" already: name another bucket, or remove one of them"#,
    ),
    (
        "policy_classes:\n  -",
        "policy_classes:\n  ▸- {name: lat, policy_family: latency, cache_bucket: cached, quantum: 1}\n  -",
        r#"policy_classes: no class is of the family "latency" and the bucket "uncached": add one with policy_family: latency and cache_bucket: uncached"#,
    ),
    (
        "cache_bucket: uncached",
        "cache_bucket: ▸uncashed",
        r#"policy_classes[1].cache_bucket: uncached_isl_buckets has no bucket "uncashed"; did you mean "uncached"? (it has cached, uncached)"#,
    ),
    (
        "default_policy_family: standard",
        "default_policy_family: ▸standart",
        r#"default_policy_family: no class is of the family "standart"; did you mean "standard"?"#,
    ),
    (
        "quantum: 512}",
        "quantum: 512}\n  - {name: ▸standard, quantum: 1}",
        r#"policy_classes[2].name: "standard" is a family too, so that a request which names it could mean either: rename the class, or give it a policy_family and a cache_bucket"#,
    ),
    (
        "quantum: 512",
        "quantum: ▸0",
        "policy_classes[1].quantum: must be an integer from 1 to 18446744073709551615, not 0",
    ),
    (
        "quantum: 512",
        "quantum: 512, cap: ▸3",
        "policy_classes[1].cap: does nothing with arbiter: drr, which knows no caps: remove it, or use arbiter: share or arbiter: bands",
    ),
    (
        "quantum: 2048}\n  - {name: long, policy_family: standard, cache_bucket: uncached, quantum: 512}",
        "cap: 1}\n  - {name: long, policy_family: standard, cache_bucket: uncached, quantum: ▸512}\narbiter: bands",
        "policy_classes[1].quantum: does nothing with arbiter: bands, where a class goes before all that are listed after it: remove it, and state cap to leave slots for the classes below",
    ),
    (
        ", quantum: 512",
        "",
        "policy_classes[1].quantum: is missing: the tokens that it may spend in each round, or its weight with arbiter: share",
    ),
    (
        "name: long, policy",
        "policy",
        "policy_classes[1].name: is missing: what journals, metrics and the live view call it",
    ),
    (
        "name: long",
        "name: ▸lo/ng",
        "policy_classes[1].name: must be a name of 1 to 256 letters, digits, _, . and -",
    ),
    (
        "name: long",
        "name: ▸''",
        "policy_classes[1].name: must be a name of 1 to 256 letters, digits, _, . and -",
    ),
    (
        "bucket: cached}",
        "bucket: ▸ca ched}",
        "uncached_isl_buckets[0].bucket: must be a name of 1 to 256 letters, digits, _, . and -",
    ),
    (
        ", cache_bucket: uncached",
        "",
        "policy_classes[1].cache_bucket: is missing: a class of a family serves one bucket of it; name it, or remove policy_family to make it an explicit class",
    ),
    (
        "policy_family: standard, cache_bucket: uncached",
        "cache_bucket: uncached",
        "policy_classes[1].policy_family: is missing: a bucket is a bucket of a family; name it, or remove cache_bucket to make it an explicit class",
    ),
    (
        "quantum: 512",
        "quantum: 512, queue_policy: ▸lifo",
        "policy_classes[1].queue_policy: must be one of fcfs, wspt, edf, not lifo",
    ),
    (
        "quantum: 512",
        "quantum: 512, prefill_busy_threshold: ▸-1",
        "policy_classes[1].prefill_busy_threshold: must be an integer from 0 to 18446744073709551615, not -1",
    ),
    (
        "quantum: 512",
        "quantum: 512, prefill_busy_threshold_frac: ▸-0.5",
        "policy_classes[1].prefill_busy_threshold_frac: must be a decimal from 0 to 1000000, a part of a worker's batch, not -0.5",
    ),
    (
        "quantum: 512",
        "quantum: 512, prefill_busy_threshold_frac: ▸.inf",
        "policy_classes[1].prefill_busy_threshold_frac: must be a decimal from 0 to 1000000, a part of a worker's batch, not .inf",
    ),
    (
        "quantum: 512",
        "quantum: 512, prefill_busy_threshold_frac: ▸nan",
        "policy_classes[1].prefill_busy_threshold_frac: must be a decimal from 0 to 1000000, a part of a worker's batch, not nan",
    ),
    (
        "quantum: 512",
        "quantum: 512, busy_worker_ratio: ▸0.5",
        "policy_classes[1].busy_worker_ratio: must be 1.0: a request is queued when all workers that may take it are busy, not a part of them, because it could be placed on one of the others; remove it, or lower the class's prefill_busy_threshold",
    ),
    (
        "quantum: 512",
        "quantum: 512, busy_worker_ratio: ▸0",
        "policy_classes[1].busy_worker_ratio: must be a decimal over 0 and at most 1, and here 1.0, not 0",
    ),
    (
        "quantum: 512",
        "quantum: 512, ▸request_queue_limit: 5",
        "policy_classes[1].request_queue_limit: is of an older edition of Dynamo, and counts for all workers together: state request_queue_limit_per_worker, which is times the workers",
    ),
    (
        "quantum: 512",
        "quantum: 512, ▸token_queue_limit: 5",
        "policy_classes[1].token_queue_limit: is of an older edition of Dynamo, and counts for all workers together: state raw_isl_token_queue_limit_per_worker, which is times the workers",
    ),
    (
        "quantum: 512",
        "quantum: 512, ▸cached_token_queue_limit: 5",
        "policy_classes[1].cached_token_queue_limit: is of an older edition of Dynamo, and counts for all workers together: state cached_token_queue_limit_per_worker, which is times the workers",
    ),
    (
        "default_policy_family: standard",
        "▸worker_selection: {policy: kv}\ndefault_policy_family: standard",
        "worker_selection: is not supported: it names a selection policy that is compiled into Dynamo's router; Fairgate always takes the open worker with the fewest waiting tokens less its cached ones: remove it, and state overlap_credit in the pool to weigh cached tokens",
    ),
    (
        "default_policy_family: standard",
        "▸queue_admission: {policy: x}\ndefault_policy_family: standard",
        "queue_admission: is not supported: it names an admission policy that is compiled into Dynamo's router; Fairgate queues a request when all workers that may take it are full or busy: remove it, and state prefill_busy_threshold in the classes",
    ),
    (
        "default_policy_family: standard",
        "▸stages: []\ndefault_policy_family: standard",
        "stages: is not supported: it names steps that are compiled into Dynamo's router, and Fairgate has none of them: remove it",
    ),
    (
        "default_policy_family: standard",
        "▸default_policy_class: chat\ndefault_policy_family: standard",
        "default_policy_class: is of an older edition of Dynamo, without families: state default_policy_family instead, and policy_family and cache_bucket in its class",
    ),
    (
        "quantum: 512",
        "quantum: 512, request_queue_limit_per_worker: ▸0",
        "policy_classes[1].request_queue_limit_per_worker: must be 1 or more: 0 would refuse every request of the class; remove it for no limit",
    ),
    (
        "quantum: 512",
        "quantum: 512, ▸raw_isl_queue_limit: 5",
        "policy_classes[1].raw_isl_queue_limit: unknown; known here: name, policy_family, cache_bucket, quantum, cap, queue_policy, prefill_busy_threshold, prefill_busy_threshold_frac, busy_worker_ratio, request_queue_limit_per_worker, raw_isl_token_queue_limit_per_worker, cached_token_queue_limit_per_worker, inside, max_wait, deadline",
    ),
    (
        "policy_classes:",
        "▸families: []\npolicy_classes:",
        "families: unknown; known here: default_policy_family, uncached_isl_buckets, policy_classes, arbiter, models",
    ),
    (
        "policy_classes:",
        "arbiter: ▸fair\npolicy_classes:",
        "arbiter: must be one of drr, share, bands, not fair",
    ),
    (
        "quantum: 512",
        "quantum: 512, max_wait: ▸5",
        "policy_classes[1].max_wait: must be a duration such as 750ms, 30s, 5m or 1h, not 5",
    ),
    (
        "quantum: 512",
        "quantum: 512, inside: ▸fcfs",
        "policy_classes[1].inside: must be a node (share, drr, load or bands), or queue for one queue of the whole class, not fcfs",
    ),
    (
        "quantum: 512",
        "quantum: 512, inside: {share: {▸by: agent}}",
        "policy_classes[1].inside.share.by: agent names are chosen by clients, so who uses many of them would gain: share by agent only inside a node that shares by tenant or key (and there not in a default class, where several meet)",
    ),
    (
        "quantum: 512",
        "quantum: 512, inside: {share: {by: tenant, ▸partition: true}}",
        "policy_classes[1].inside.share.partition: only the root node may be partitioned",
    ),
    (
        "quantum: 512",
        "quantum: 512, queue_policy: ▸wspt, inside: {share: {by: tenant}}",
        "policy_classes[1].queue_policy: does nothing beside a tree in inside, which has its own queues: remove it, and write queue: {order: …} into the tree",
    ),
    (
        "quantum: 512",
        "quantum: 512, max_wait: ▸5s, inside: {share: {by: tenant}}",
        "policy_classes[1].max_wait: does nothing beside a tree in inside, which has its own queues: remove it, and write queue: {max_wait_us: …} into the tree",
    ),
    (
        "policy_classes:",
        "models: ▸{}\npolicy_classes:",
        "models: names no model: give one a profile, or remove it",
    ),
    (
        "policy_classes:",
        "models: {llama: ▸5}\npolicy_classes:",
        "models.llama: must be a mapping with default_policy_family, uncached_isl_buckets, policy_classes, arbiter",
    ),
];

#[test]
fn single_errors() {
    for (old, new, expected) in SINGLE {
        assert!(LEAST.contains(old), "{old}");
        // What is missing is missing from the class.
        let marked = match new.contains('▸') {
            true => LEAST.replacen(old, new, 1),
            false => LEAST
                .replacen(old, new, 1)
                .replacen("- {name: long", "- ▸{name: long", 1)
                .replacen("2048}\n  - {policy", "2048}\n  - ▸{policy", 1),
        };
        let before: Vec<&str> = marked.split('▸').next().expect("a start").split('\n').collect();
        let column = before.last().expect("a line").chars().count() + 1;
        let expected = format!("router-policy.yaml:{}:{column}: {expected}", before.len());
        assert_eq!(read(&marked.replace('▸', "")), Err(expected), "{marked}");
    }
}

#[test]
fn the_busy_worker_ratio_that_is_kept_here_is_taken_and_changes_nothing() {
    for ratio in ["1.0", "1", "1.000", "null"] {
        let stated = LEAST.replace("512}", &format!("512, busy_worker_ratio: {ratio}}}"));
        assert_eq!(read(&stated), read(LEAST), "{ratio}");
    }
}

#[test]
fn a_file_of_another_edition_is_told_so_alone() {
    let alone = "worker_selection: {policy: kv}\n";
    assert!(fairgate_config::PolicyFile::is_policy_file(alone));
    let errors = read(alone).expect_err("it is of another edition");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.starts_with("router-policy.yaml:1:1: worker_selection: is not supported"),
        "{errors}"
    );
    // Inside a model's profile too.
    let inside =
        format!("models:\n  llama:\n    stages: []\n    {}", LEAST.replace('\n', "\n    "));
    let errors = read(inside.trim_end()).expect_err("it is of another edition");
    assert!(errors.contains("models.llama.stages: is not supported"), "{errors}");
}

/// The configuration printed on Dynamo's page, which Dynamo's own reader refuses.
const PAGE: &str = "\
policy_classes:
  - name: cached
    policy_family: standard
    cache_bucket: cached
    queue_policy: wspt
    quantum: 2048

  - name: uncached
    policy_family: standard
    cache_bucket: uncached
    queue_policy: fcfs
    quantum: 512
";

#[test]
fn the_snippet_of_the_page_is_told_the_two_things_that_it_lacks() {
    let lacks = "\
router-policy.yaml:1:1: default_policy_family: is missing: the family of requests that name none; add default_policy_family: standard
router-policy.yaml:1:1: uncached_isl_buckets: is missing: from how many uncached tokens on a request is in which bucket; add uncached_isl_buckets: [{min_tokens: 0, bucket: cached}, {min_tokens: 3072, bucket: uncached}] with floors that suit you";
    assert_eq!(read(PAGE), Err(lacks.to_owned()));
    // What the errors say to add makes it a policy.
    let added: String = lacks
        .lines()
        .map(|line| line.split("; add ").nth(1).expect("it says what to add"))
        .map(|line| format!("{}\n", line.trim_end_matches(" with floors that suit you")))
        .collect();
    let file = read(&format!("{added}{PAGE}")).expect("nothing else is missing");
    let classes = file.root.expect("a profile for all models");
    assert_eq!(classes.resolve(None, 3071).class.as_str(), "cached");
    assert_eq!(classes.resolve(Some("standard"), 3072).class.as_str(), "uncached");
}

#[test]
fn all_three_parts_of_a_profile_or_none() {
    for (text, expected) in [
        ("default_policy_family: a\n", &["uncached_isl_buckets", "policy_classes"][..]),
        ("arbiter: share\n", &["default_policy_family", "uncached_isl_buckets", "policy_classes"]),
        (
            "models: {llama: {default_policy_family: a}}\n",
            &["models.llama.uncached_isl_buckets", "models.llama.policy_classes"],
        ),
    ] {
        let errors = read(text).expect_err("something is missing");
        let fields: Vec<&str> =
            errors.lines().map(|line| line.split(": ").nth(1).expect("a field")).collect();
        assert_eq!(fields, expected, "{errors}");
    }
    assert_eq!(
        read("{}\n"),
        Err("router-policy.yaml:1:1: has no profile: state default_policy_family, uncached_isl_buckets and policy_classes, \
             for all models or for single ones under models"
            .to_owned())
    );
    assert_eq!(
        read(""),
        Err("router-policy.yaml:1:1: is empty: a policy file has at least policy_classes, or models with a profile each"
            .to_owned())
    );
}

#[test]
fn a_tree_inside_may_be_as_deep_as_the_core_allows() {
    let deep = |nodes: usize| {
        let open = "{share: {by: tenant, inside: ".repeat(nodes - 1);
        let tree = format!("{open}{{share: {{by: tenant}}}}{}", "}}".repeat(nodes - 1));
        read(&LEAST.replace("quantum: 512", &format!("quantum: 512, inside: {tree}")))
    };
    assert!(deep(63).is_ok());
    let errors = deep(64).expect_err("with the classes above it there are 65 nodes");
    assert!(errors.starts_with("router-policy.yaml:7:"), "{errors}");
    assert!(errors.contains("policy_classes[1].inside.share.inside.share"), "{errors}");
    assert!(errors.ends_with("the tree is deeper than 64 nodes"), "{errors}");
}

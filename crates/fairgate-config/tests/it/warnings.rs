//! Tests of warnings about policies with which requests may wait for ever.

use std::path::{Path, PathBuf};

use fairgate_config::{Config, EQUAL_WEIGHTS_WARNING, PolicyFile};

use crate::support::{Folder, repository};

/// Returns the warnings for a pool of eight slots on two workers with this policy. `second` has
/// further settings of the second worker.
fn warnings_on(policy: &str, second: &str) -> Vec<String> {
    let text = format!(
        "upstreams:\n  - {{name: a, url: 'http://10.0.0.1', slots: 4}}\n  - {{name: b, url: 'http://10.0.0.2', slots: 4{second}}}\n\
         pools: [{{name: p, models: [m], workers: [a, b], policy: {policy}}}]\n"
    );
    let config = Folder::new().parse(&text).unwrap_or_else(|errors| panic!("{policy}\n{errors}"));
    config.warnings(&config.pools[0]).iter().map(ToString::to_string).collect()
}

fn warnings(policy: &str) -> Vec<String> {
    warnings_on(policy, "")
}

/// Returns the warnings for a policy file with these classes and this arbiter.
fn of_file(head: &str, classes: &str) -> Vec<String> {
    let text = format!(
        "{head}\nuncached_isl_buckets: [{{min_tokens: 0, bucket: any}}]\npolicy_classes:\n{classes}"
    );
    let file = PolicyFile::parse(&text, Path::new("policy.yaml")).expect("it is right");
    file.root.expect("a profile").warnings().iter().map(ToString::to_string).collect()
}

const SHARED: &str = "inside: {share: {by: tenant}}";

#[test]
fn what_is_used_without_a_file_and_the_examples_are_not_warned_of() {
    let url = "http://127.0.0.1:9".parse().expect("an address");
    let embedded = Config::embedded(PathBuf::from("data"), ([127, 0, 0, 1], 0).into(), url);
    assert_eq!(embedded.warnings(&embedded.pools[0]), []);
    let example = Folder::new().parse(&repository("examples/fairgate.yaml")).expect("it is right");
    for pool in &example.pools {
        assert_eq!(example.warnings(pool), [], "{}", pool.name);
    }
    for fine in [
        format!("{{bands: {{by: class, classes: [{{name: a, cap: 7}}, {{name: b}}], default: b, {SHARED}}}}}"),
        "{bands: {by: class, classes: [{name: a}], inside: {share: {by: tenant}}}}".into(),
        "{drr: {by: class, classes: [{name: a, quantum: 1}, {name: b, quantum: 2}]}}".into(),
        "{share: {by: tenant, queue: {order: wspt, max_wait_us: 5}}}".into(),
        "{load: {by: tenant, max_wait_ticks: 9, queue: wspt}}".into(),
        // A queue of one tenant has nothing to share.
        "{share: {by: tenant, inside: {bands: {by: class, classes: [{name: a, cap: 1}, {name: b}], default: b}}}}".into(),
    ] {
        assert_eq!(warnings(&fine), Vec::<String>::new(), "{fine}");
    }
}

#[test]
fn equal_weights_of_tokens_are_warned_of_on_own_workers() {
    let told = |more: &str, cost: &str| {
        let text = format!(
            "upstreams: [{{name: a, url: 'http://10.0.0.1', slots: 4{more}}}]\n\
             pools: [{{name: p, models: [m], workers: [a]{cost}}}]\n"
        );
        let config = Folder::new().parse(&text).unwrap_or_else(|errors| panic!("{errors}"));
        config.has_equal_weights(&config.pools[0])
    };
    assert!(told("", ""), "the default weights are equal");
    assert!(told("", ", cost: {input: 2, cached_input: 2, output: 2}"));
    for cost in
        [", cost: {output: 4}", ", cost: {cached_input: 0.1}", ", cost: {unit: worker_time}"]
    {
        assert!(!told("", cost), "{cost}");
    }
    for hosted in [", tier: 1", ", requests_per_minute: 60"] {
        assert!(!told(hosted, ""), "{hosted}");
    }
    assert!(EQUAL_WEIGHTS_WARNING.ends_with("docs/currency.md#equal-weights"));
}

#[test]
fn the_first_band_needs_a_cap_that_leaves_something() {
    let bands = |cap: &str| {
        warnings(&format!(
            "{{bands: {{by: class, classes: [{{name: chat{cap}}}, {{name: api}}, {{name: batch}}], default: batch, {SHARED}}}}}"
        ))
    };
    assert_eq!(
        bands(""),
        [
            "policy.bands.classes[0]: chat goes before api and batch and has no cap: while it has work for all slots, nothing of api and batch goes. Give it a cap below 8, which leaves the rest to those below"
        ]
    );
    let [full] = &bands(", cap: 8")[..] else { panic!("one warning") };
    assert!(full.contains("has a cap of 8, and the pool has 8 slots"), "{full}");
    assert!(bands(", cap: 7").is_empty());
}

#[test]
fn the_default_of_a_strict_order_should_be_its_last_class() {
    let bands = |default: &str| {
        warnings(&format!(
            "{{bands: {{by: class, classes: [{{name: chat, cap: 4}}, {{name: api}}, {{name: batch}}]{default}, {SHARED}}}}}"
        ))
    };
    let first = "policy.bands.default: requests that name none of the classes go to chat, before api and batch: who is new or unknown goes before them. Write `default: batch`, or list chat last";
    assert_eq!(bands(""), [first]);
    assert_eq!(bands(", default: chat"), [first]);
    let [middle] = &bands(", default: api")[..] else { panic!("one warning") };
    assert!(middle.contains("go to api, before batch:"), "{middle}");
    assert!(bands(", default: batch").is_empty());
}

#[test]
fn a_plain_queue_in_a_band_is_shared_by_nobody() {
    let found = warnings(&format!(
        "{{bands: {{by: class, classes: [{{name: chat, cap: 4}}, {{name: batch, {SHARED}}}], default: batch}}}}"
    ));
    assert_eq!(
        found,
        [
            "policy.bands.classes[0]: one queue for everybody: nothing shares this band between tenants, so one of them can fill it while the others wait. To share it, give it `inside`, such as {share: {by: tenant}}"
        ]
    );
    // Where the classes are tenants, only the default class has several of them.
    let tenants =
        "{bands: {by: tenant, classes: [{name: vip, cap: 4}, {name: rest}], default: rest}}";
    let [rest] = &warnings(tenants)[..] else { panic!("one warning") };
    assert!(rest.starts_with("policy.bands.classes[1]: one queue for everybody"), "{rest}");
}

#[test]
fn the_cheapest_first_needs_an_end_of_waiting() {
    let expected = |at: &str, option: &str| {
        format!(
            "{at}: wspt without {option}: the cheapest goes first, so a large request waits for as long as smaller ones come. State {option}, after which a request goes before all that came later"
        )
    };
    assert_eq!(
        warnings("{share: {by: tenant, queue: wspt}}"),
        [expected("policy.share.queue", "max_wait_us")]
    );
    assert_eq!(
        warnings(
            "{share: {by: tenant, inside: {drr: {by: class, classes: [{name: a, quantum: 1, queue: wspt}]}}}}"
        ),
        [expected("policy.share.inside.drr.classes[0].queue", "max_wait_us")]
    );
    assert_eq!(warnings("{load: {by: tenant, queue: wspt}}").len(), 1);
    let head = "default_policy_family: f\narbiter: share";
    let class = |more: &str| {
        format!("  - {{name: c, policy_family: f, cache_bucket: any, quantum: 1{more}}}\n")
    };
    assert_eq!(
        of_file(head, &class(", queue_policy: wspt")),
        [expected("policy_classes[0]", "max_wait")]
    );
    assert!(of_file(head, &class(", queue_policy: wspt, max_wait: 5s")).is_empty());
}

#[test]
fn classes_of_drr_that_may_be_passed_over_for_ever_are_told() {
    let drr = |more: &str| {
        format!(
            "{{drr: {{by: class, classes: [{{name: a, quantum: 1}}, {{name: b, quantum: 2{more}}}]}}}}"
        )
    };
    assert_eq!(
        warnings(&drr(", busy_tokens: 4000")),
        [
            "policy.drr: b may wait for ever: with busy thresholds of their own, workers can be full for them and open for other classes, and drr passes over a class whose workers are full, each time. State the same thresholds for all classes"
        ]
    );
    let taints = warnings_on(&drr(""), ", taints: [eu]");
    assert_eq!(
        taints,
        [
            "policy.drr: a class whose requests need certain workers may wait for ever: the workers of this pool differ in their taints, and drr passes over a class whose workers are full, each time. Quanta are not shares then; use share with classes, where who was passed over goes next"
        ]
    );
    let [dialects] = &warnings_on(&drr(""), ", dialects: [anthropic]")[..] else { panic!("one") };
    assert!(dialects.contains("differ in their dialects"), "{dialects}");
    let one = "{drr: {by: class, classes: [{name: a, quantum: 1, busy_tokens: 4}]}}";
    assert!(warnings_on(one, ", taints: [eu]").is_empty(), "one class waits for no other");
    let same = "{drr: {by: class, classes: [{name: a, quantum: 1, busy_tokens: 4}, {name: b, quantum: 1, busy_tokens: 4}]}}";
    assert!(warnings(same).is_empty());
    let share = "{share: {by: class, classes: [{name: a, weight: 1}, {name: b, weight: 1}]}}";
    assert!(warnings_on(share, ", taints: [eu]").is_empty());
    let found = of_file(
        "default_policy_family: f",
        "  - {name: a, policy_family: f, cache_bucket: any, quantum: 1}\n  - {name: b, quantum: 1, prefill_busy_threshold: 9}\n",
    );
    let [thresholds] = &found[..] else { panic!("{found:?}") };
    assert!(thresholds.starts_with("policy_classes: b may wait for ever"), "{thresholds}");
}

#[test]
fn bands_of_a_policy_file_are_warned_of_too() {
    let found = of_file(
        "default_policy_family: chat\narbiter: bands",
        "  - {name: top, inside: queue}\n  - {name: chat, policy_family: chat, cache_bucket: any, cap: 3}\n  - {name: batch}\n",
    );
    assert_eq!(
        found,
        [
            "policy_classes[0]: top goes before chat and batch and has no cap: while it has work for all slots, nothing of chat and batch goes. Give it a cap below the pool's capacity, which leaves the rest to those below",
            "default_policy_family: requests that name no family are of chat, whose class chat goes before batch: who is new or unknown goes before them. List the classes of chat last, or name another default family",
            "policy_classes[0]: one queue for everybody: nothing shares this band between tenants, so one of them can fill it while the others wait. To share it, remove `inside: queue`, and its owners share it",
        ]
    );
    let fine = of_file(
        "default_policy_family: batch\narbiter: bands",
        "  - {name: chat, cap: 3}\n  - {name: batch, policy_family: batch, cache_bucket: any}\n",
    );
    assert_eq!(fine, Vec::<String>::new());
}

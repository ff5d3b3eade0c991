//! Tests of policy files: Dynamo's schema, its sample file, refused files, and our additions.

mod pool;
mod refused;

use std::path::Path;

use fairgate_config::{ClassArbiter, ClassReason, PolicyClass, PolicyClasses, PolicyFile};
use fairgate_journal::parse_policy;

use crate::support::repository;

fn read(text: &str) -> Result<PolicyFile, String> {
    PolicyFile::parse(text, Path::new("router-policy.yaml")).map_err(|errors| errors.to_string())
}

fn root(text: &str) -> PolicyClasses {
    read(text).expect("it is right").root.expect("it has a profile for all models")
}

/// Returns the quantum of a class that must have one.
fn quantum(class: &PolicyClass) -> u64 {
    class.quantum.expect("a quantum").get()
}

fn sample() -> PolicyClasses {
    root(&repository("examples/router-policy.yaml"))
}

/// Shortest valid profile.
const LEAST: &str = "\
default_policy_family: standard
uncached_isl_buckets:
  - {min_tokens: 0, bucket: cached}
  - {min_tokens: 3072, bucket: uncached}
policy_classes:
  - {name: chat, policy_family: standard, cache_bucket: cached, quantum: 2048}
  - {name: long, policy_family: standard, cache_bucket: uncached, quantum: 512}
";

#[test]
fn the_sample_has_its_facts() {
    let classes = sample();
    let quanta: Vec<(&str, u64)> =
        classes.all().iter().map(|class| (class.name.as_str(), quantum(class))).collect();
    assert_eq!(
        quanta,
        [
            ("standard_cached", 2048),
            ("standard_uncached", 512),
            ("latency_cached", 4096),
            ("latency_uncached", 1024),
            ("custom_priority", 4096),
        ]
    );
    let orders: Vec<_> =
        classes.all().iter().take(2).map(|class| format!("{:?}", class.queue.order)).collect();
    assert_eq!(orders, ["Wspt", "Fcfs"]);
    assert_eq!(classes.arbiter(), ClassArbiter::Drr);
    assert_eq!(classes.families().collect::<Vec<_>>(), ["standard", "latency"]);
    assert_eq!(classes.default_family(), "standard");
    let explicit: Vec<&str> = classes.explicit().map(|name| name.as_str()).collect();
    assert_eq!(explicit, ["custom_priority"]);
}

#[test]
fn a_request_gets_the_class_of_its_family_and_bucket() {
    let classes = sample();
    for (named, uncached, class, why) in [
        (None, 0, "standard_cached", ClassReason::NamedNothing),
        (None, 3071, "standard_cached", ClassReason::NamedNothing),
        (None, 3072, "standard_uncached", ClassReason::NamedNothing),
        (None, u64::MAX, "standard_uncached", ClassReason::NamedNothing),
        (Some("latency"), 3071, "latency_cached", ClassReason::NamedFamily),
        (Some("latency"), 3072, "latency_uncached", ClassReason::NamedFamily),
        (Some("standard"), 1, "standard_cached", ClassReason::NamedFamily),
        (Some("custom_priority"), 0, "custom_priority", ClassReason::NamedClass),
        (Some("custom_priority"), 1 << 40, "custom_priority", ClassReason::NamedClass),
        // Nobody gets round the buckets by naming the class of a cell.
        (Some("latency_cached"), 9000, "standard_uncached", ClassReason::NamedUnknown),
        (Some("Latency"), 9000, "standard_uncached", ClassReason::NamedUnknown),
        (Some(""), 0, "standard_cached", ClassReason::NamedUnknown),
    ] {
        let resolution = classes.resolve(named, uncached);
        assert_eq!(resolution.class.as_str(), class, "{named:?} {uncached}");
        assert_eq!(resolution.reason, why, "{named:?} {uncached}");
        let family = match why {
            ClassReason::NamedClass => None,
            ClassReason::NamedFamily => named,
            ClassReason::NamedNothing | ClassReason::NamedUnknown => Some("standard"),
        };
        assert_eq!(resolution.family, family);
        let bucket = family.map(|_| if uncached < 3072 { "cached" } else { "uncached" });
        assert_eq!(resolution.bucket.map(|bucket| &*bucket.name), bucket);
    }
}

#[test]
fn every_setting_reaches_the_core() {
    let text = "\
default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: any}]
policy_classes:
  - name: all
    policy_family: standard
    cache_bucket: any
    quantum: 7
    queue_policy: wspt
    prefill_busy_threshold: 4000
    prefill_busy_threshold_frac: 0.5
    request_queue_limit_per_worker: 1
    raw_isl_token_queue_limit_per_worker: 5
    cached_token_queue_limit_per_worker: 3
    max_wait: 5s
  - {name: plain, quantum: 9, inside: queue}
  - {name: tree, quantum: 1, inside: {share: {by: tenant, inside: {load: {by: agent}}}}}
";
    let all = r#""queue":{"order":"wspt","max_wait_us":5000000}"#;
    let classes = |quantum: &str| {
        format!(
            r#""classes":[{{"name":"all","{quantum}":7,"inside":{{"share":{{"by":"group","inside":{{"share":{{"by":"tenant","inside":{{"share":{{"by":"key",{all}}}}}}}}}}}}},"busy_tokens":4000,"busy_fraction":0.5,"limit_requests_per_worker":1,"limit_input_tokens_per_worker":5,"limit_cached_tokens_per_worker":3}},{{"name":"plain","{quantum}":9}},{{"name":"tree","{quantum}":1,"inside":{{"share":{{"by":"tenant","inside":{{"load":{{"by":"agent"}}}}}}}}}}],"default":"all""#
        )
    };
    let expected = |kind: &str, quantum: &str| {
        let node = format!(r#"{{"{kind}":{{"by":"class",{}}}}}"#, classes(quantum));
        parse_policy(&node).expect("a policy")
    };
    assert_eq!(root(text).policy(), expected("drr", "quantum"));
    let share = root(&format!("{text}arbiter: share\n"));
    assert_eq!(share.arbiter(), ClassArbiter::Share);
    assert_eq!(share.policy(), expected("share", "weight"));
    assert_eq!(share.policy_under(ClassArbiter::Drr), expected("drr", "quantum"));
}

#[test]
fn bands_have_an_order_and_caps_instead_of_quanta() {
    let text = "\
default_policy_family: batch
arbiter: bands
uncached_isl_buckets: [{min_tokens: 0, bucket: any}]
policy_classes:
  - {name: chat, cap: 12, queue_policy: edf, inside: queue, prefill_busy_threshold: 4000}
  - {name: batch, policy_family: batch, cache_bucket: any, request_queue_limit_per_worker: 3}
";
    let bands = root(text);
    assert_eq!((bands.arbiter(), bands.arbiter().word()), (ClassArbiter::Bands, "bands"));
    let owners = r#"{"share":{"by":"group","inside":{"share":{"by":"tenant","inside":{"share":{"by":"key"}}}}}}"#;
    let expected = format!(
        r#"{{"bands":{{"by":"class","classes":[{{"name":"chat","cap":12,"queue":"edf","busy_tokens":4000}},{{"name":"batch","inside":{owners},"limit_requests_per_worker":3}}],"default":"batch"}}}}"#
    );
    assert_eq!(bands.policy(), parse_policy(&expected).expect("a policy"));
    let capped = LEAST.replace("quantum: 512", "quantum: 512, cap: 3");
    let share = root(&format!("{capped}arbiter: share\n"));
    assert_eq!(share.all()[1].cap, Some(3));
    let policy = fairgate_journal::format_policy(&share.policy());
    assert!(policy.contains(r#""weight":512,"cap":3"#), "{policy}");
}

#[test]
fn what_dynamo_reads_as_absent_is_absent() {
    let nulls = LEAST.replace(
        "quantum: 512",
        "quantum: 512, queue_policy: null, prefill_busy_threshold: ~, prefill_busy_threshold_frac: null, \
         request_queue_limit_per_worker: null, raw_isl_token_queue_limit_per_worker: null, \
         cached_token_queue_limit_per_worker: null",
    );
    assert_eq!(root(&nulls), root(LEAST));
    let explicit =
        format!("{LEAST}  - {{name: e, quantum: 1, policy_family: null, cache_bucket: null}}\n");
    assert_eq!(root(&explicit).explicit().count(), 1);
}

#[test]
fn fractions_are_read_as_floats_and_kept_in_thousandths() {
    for (written, thousandths) in
        [("0", 0), ("0.5", 500), (".5", 500), ("5e-1", 500), ("16.0", 16_000), ("0.33333", 333)]
    {
        let text = LEAST.replace("512}", &format!("512, prefill_busy_threshold_frac: {written}}}"));
        let fraction = root(&text).all()[1].busy.fraction.expect("it is stated");
        assert_eq!(fraction.thousandths(), thousandths, "{written}");
    }
}

#[test]
fn a_model_has_its_own_profile_or_the_root() {
    let own = LEAST.replace("quantum: 512", "quantum: 513").replace('\n', "\n    ");
    let text = format!("{LEAST}models:\n  meta-llama/Llama-3.1-8B:\n    {}\n", own.trim_end());
    let file = read(&text).expect("it is right");
    let quantum_of = |model: &str| file.profile(model).map(|profile| quantum(&profile.all()[1]));
    assert_eq!(quantum_of("meta-llama/Llama-3.1-8B"), Some(513));
    assert_eq!(quantum_of("meta-llama/llama-3.1-8b"), Some(512), "names are exact");
    let without = text.strip_prefix(LEAST).expect("it is in front");
    let file = read(without).expect("a root is not needed");
    assert_eq!(file.root, None);
    assert!(file.profile("meta-llama/Llama-3.1-8B").is_some());
    assert!(file.profile("other").is_none());
}

/// Returns the processor time of this thread so far.
fn processor_time() -> u64 {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    times.split_whitespace().next().and_then(|time| time.parse().ok()).expect("nanoseconds")
}

/// Reads a file with this number of unknown fields three times, and returns the least processor
/// time.
fn time_of_unknown(fields: usize) -> u64 {
    let text: String = (0..fields).map(|number| format!("unknown_{number}: 1\n")).collect();
    let time = |_| {
        let before = processor_time();
        let errors = read(&text).expect_err("the fields are unknown");
        let time = processor_time() - before;
        let counted = format!("{} more fields are unknown", fields - 20);
        assert!(errors.contains(&counted), "{errors}");
        time
    };
    (0..3).map(time).min().expect("three times")
}

/// Eight times as many fields should take about eight times as long. A search for each field would
/// take 64 times as long.
#[test]
fn the_time_for_unknown_fields_grows_as_they_do() {
    let (few, many) = (time_of_unknown(6_200), time_of_unknown(8 * 6_200));
    assert!(many < 24 * few, "{few} ns for 6200 fields, {many} ns for eight times as many");
}

#[test]
fn more_values_than_any_policy_has_are_refused_at_once() {
    let fields: String = (0..50_000).map(|number| format!("unknown_{number}: 1\n")).collect();
    let errors = read(&fields).unwrap_err();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("there are more than 100000 values"), "{errors}");
}

#[test]
fn many_unknown_fields_are_counted_not_listed() {
    let fields: String = (0..49_000).map(|number| format!("unknown_{number}: 1\n")).collect();
    let errors = read(&fields).unwrap_err();
    assert!(errors.contains("48980 more fields are unknown"), "{errors}");
    assert!(errors.lines().count() < 30, "{errors}");
}

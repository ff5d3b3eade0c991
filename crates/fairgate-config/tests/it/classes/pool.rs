//! Tests of a policy file in a pool: the choice of the profile, costs, settings without effect, and
//! reloads.

use fairgate_config::{Config, ConfigErrors, CostConfig};
use fairgate_core::policy::PolicyNode;

use super::LEAST;
use crate::support::Folder;

/// A configuration with a pool that names the policy file.
const CONFIG: &str = "\
upstreams:
  - {name: vllm-a, url: 'http://10.0.0.11:8000', slots: 16, batch_tokens: 8192}
  - {name: vllm-b, url: 'http://10.0.0.12:8000', slots: 8}
pools:
  - name: llama
    models: [small, large]
    workers: [vllm-a, vllm-b]
    policy_file: policy/router.yaml
    prefix_index: {}
";

fn with(policy: &str, config: &str) -> (Folder, Result<Config, ConfigErrors>) {
    let folder = Folder::new();
    folder.write("policy/router.yaml", policy);
    let config = folder.parse(config);
    (folder, config)
}

fn errors(policy: &str, config: &str) -> Vec<String> {
    let (folder, config) = with(policy, config);
    let errors = config.expect_err("it is wrong");
    folder.shown(&errors).lines().map(str::to_owned).collect()
}

fn profile_of(model: &str, quantum: u64) -> String {
    let profile = LEAST.replace("512", &quantum.to_string()).replace('\n', "\n    ");
    format!("  {model}:\n    {}\n", profile.trim_end())
}

#[test]
fn its_policy_is_the_pools() {
    let (_, config) = with(LEAST, CONFIG);
    let pool = &config.expect("it is right").pools[0];
    let classes = pool.classes.as_ref().expect("it names a policy file");
    assert_eq!(pool.policy, classes.policy());
    let PolicyNode::Drr(drr) = &**pool.policy.root() else { panic!("a Dynamo file is drr") };
    assert_eq!(drr.classes.len(), 2);
    assert!(classes.file().ends_with("policy/router.yaml"));
}

#[test]
fn it_takes_the_place_of_a_policy() {
    let beside = |line: &str| errors(LEAST, &format!("{CONFIG}    {line}\n"));
    assert_eq!(
        beside("policy: {share: {by: tenant}}"),
        ["fairgate.yaml:8:18: pools[0].policy_file: takes the place of policy: remove one of them"]
    );
    assert_eq!(
        beside("partition: true"),
        [
            "fairgate.yaml:10:16: pools[0].partition: is for the default policy, and policy_file takes its place: remove one of them"
        ]
    );
}

#[test]
fn errors_are_told_where_they_are() {
    let broken = LEAST.replace("quantum: 512", "quantum: 0");
    let config = CONFIG.replace("slots: 8", "slots: 0");
    let config = format!(
        "{config}  - {{name: other, models: [x], workers: [vllm-b], capacity: 1, policy_file: policy/router.yaml}}\n"
    );
    // Two pools name the file; what is wrong with it is told once, after what is wrong with the configuration.
    assert_eq!(
        errors(&broken, &config),
        [
            "fairgate.yaml:3:57: upstreams[1].slots: must be an integer from 1 to 1000000, not 0",
            "policy/router.yaml:7:76: policy_classes[1].quantum: must be an integer from 1 to 18446744073709551615, not 0",
        ]
    );
    let missing = errors(LEAST, &CONFIG.replace("router.yaml", "routes.yaml"));
    assert_eq!(
        missing,
        [r#"fairgate.yaml:8:18: pools[0].policy_file: there is no file "policy/routes.yaml""#]
    );
}

#[test]
fn the_models_of_a_pool_have_one_profile() {
    let two = format!("{LEAST}models:\n{}", profile_of("large", 600));
    assert_eq!(
        errors(&two, CONFIG),
        [
            r#"fairgate.yaml:8:18: pools[0].policy_file: the models "small" and "large" have different profiles in this file, and a pool has one: put them into separate pools (a model's profile replaces the one at the top, they are not merged)"#
        ]
    );
    let one = format!("models:\n{}", profile_of("large", 600));
    assert_eq!(
        errors(&one, CONFIG),
        [
            r#"fairgate.yaml:8:18: pools[0].policy_file: has no profile for the model "small": add one under models, or one at the top for all models"#
        ]
    );
    let apart = CONFIG.replace("models: [small, large]", "models: [large]");
    for policy in [&one, &two] {
        let (_, config) = with(policy, &apart);
        let pool = &config.expect("it is right").pools[0];
        let classes = pool.classes.as_ref().expect("it names a policy file");
        assert_eq!(super::quantum(&classes.all()[1]), 600, "the model's own profile");
    }
    let same = format!("models:\n{}{}", profile_of("small", 600), profile_of("large", 600));
    assert!(with(&same, CONFIG).1.is_ok(), "a root is not needed where each model has the same");
}

#[test]
fn what_cannot_act_is_refused() {
    let fraction = LEAST.replace("512}", "512, prefill_busy_threshold_frac: 0.5}");
    assert!(with(&fraction, CONFIG).1.is_ok(), "one worker that states its batch is enough");
    assert_eq!(
        errors(&fraction, &CONFIG.replace(", batch_tokens: 8192", "")),
        [
            "policy/router.yaml:7:110: policy_classes[1].prefill_busy_threshold_frac: cannot act: no worker of the pool states its batch size; state batch_tokens (vLLM's --max-num-batched-tokens) in the upstreams, or use prefill_busy_threshold"
        ]
    );
    let elsewhere = CONFIG.replace("workers: [vllm-a, vllm-b]", "workers: [vllm-b]");
    assert_eq!(errors(&fraction, &elsewhere).len(), 1, "another pool's worker does not help");
    let cached = LEAST.replace("512}", "512, cached_token_queue_limit_per_worker: 3}");
    assert!(with(&cached, CONFIG).1.is_ok());
    assert_eq!(
        errors(&cached, &CONFIG.replace("    prefix_index: {}\n", "")),
        [
            "policy/router.yaml:7:118: policy_classes[1].cached_token_queue_limit_per_worker: cannot act: without an index of prefixes no tokens are known to be cached; add prefix_index: {} to the pool, or remove the limit"
        ]
    );
    // What a profile says that the pool does not use is no setting of the pool.
    let other = format!(
        "{LEAST}models:\n{}",
        profile_of("other", 512).replace("512}", "512, prefill_busy_threshold_frac: 0.5}")
    );
    assert!(with(&other, &CONFIG.replace(", batch_tokens: 8192", "")).1.is_ok());
}

#[test]
fn the_cost_is_dynamos_with_drr_and_ours_with_share() {
    let weights = |cost: &CostConfig| (cost.input_milli, cost.cached_milli, cost.output_milli);
    let cost = |policy: &str, config: &str| {
        let (_, config) = with(policy, config);
        weights(&config.expect("it is right").pools[0].cost)
    };
    let share = format!("{LEAST}arbiter: share\n");
    assert_eq!(cost(LEAST, CONFIG), (1000, 0, 0));
    assert_eq!(cost(&share, CONFIG), (1000, 1000, 1000));
    let stated = |line: &str| format!("{CONFIG}    cost: {line}\n");
    assert_eq!(cost(LEAST, &stated("{output: 0.5}")), (1000, 0, 500), "field by field");
    assert_eq!(cost(&share, &stated("{input: 1, cached_input: 0, output: 0}")), (1000, 0, 0));
}

#[test]
fn a_reload_reads_the_file_again() {
    let (folder, config) = with(LEAST, CONFIG);
    let current = config.expect("it is right");
    let change = |policy: &str| -> Vec<String> {
        folder.write("policy/router.yaml", policy);
        let plan = folder.reload(&current, CONFIG).expect("it can be applied");
        assert_eq!(plan.pools.changed.len(), usize::from(!plan.is_empty()), "{plan:?}");
        plan.changes.iter().map(ToString::to_string).collect()
    };
    assert_eq!(change(LEAST), [""; 0]);
    assert_eq!(change(&format!("# Another comment.\n{LEAST}")), [""; 0]);
    let quanta = change(&LEAST.replace("quantum: 512", "quantum: 600"));
    assert_eq!(quanta.len(), 1);
    assert!(quanta[0].starts_with(r#"pools.llama.policy: {"drr":{"by":"class","#), "{quanta:?}");
    assert!(quanta[0].contains(r#""quantum":600"#), "{quanta:?}");
    assert_eq!(
        change(&LEAST.replace("3072", "4096")),
        [
            "pools.llama.policy_file.uncached_isl_buckets: cached from 0, uncached from 3072 → cached from 0, uncached from 4096"
        ]
    );
    let share = change(&format!("{LEAST}arbiter: share\n"));
    let fields: Vec<&str> =
        share.iter().map(|line| line.split(": ").next().expect("a field")).collect();
    assert_eq!(
        fields,
        ["pools.llama.cost.cached_input", "pools.llama.cost.output", "pools.llama.policy"]
    );
    folder.write("policy/router.yaml", "policy_classes: []\n");
    let errors = folder.reload(&current, CONFIG).expect_err("it is wrong");
    assert!(folder.shown(&errors).starts_with("policy/router.yaml:1:1: "), "{errors}");
}

//! Scenarios with policy files. The classes of a file share a worker in the ratio of their quanta,
//! whatever requests cost and however much of their prompts is cached.

use std::time::Duration;

use super::{
    ClientBehaviour, ExperimentLength, ExperimentScale, JoinTime, PhaseDurations, RequestPattern,
    Scenario, ScenarioLevel, ScenarioPolicy, ScenarioTenant,
};

/// Policy file with two families and one bucket; the quanta are in the ratio 4 to 1.
const FAMILIES: &str = "\
arbiter: share
default_policy_family: interactive
uncached_isl_buckets: [{min_tokens: 0, bucket: any}]
policy_classes:
  - {name: interactive_any, policy_family: interactive, cache_bucket: any, quantum: 2048}
  - {name: batch_any, policy_family: batch, cache_bucket: any, quantum: 512}
";

/// Policy file with two families and two buckets, with the quanta of Dynamo's sample. Requests with
/// a cached prompt are in the first bucket.
const CACHE_BUCKETS: &str = "\
arbiter: share
default_policy_family: standard
uncached_isl_buckets: [{min_tokens: 0, bucket: cached}, {min_tokens: 100, bucket: uncached}]
policy_classes:
  - {name: standard_cached, policy_family: standard, cache_bucket: cached, quantum: 2048}
  - {name: standard_uncached, policy_family: standard, cache_bucket: uncached, quantum: 512}
  - {name: latency_cached, policy_family: latency, cache_bucket: cached, quantum: 4096}
  - {name: latency_uncached, policy_family: latency, cache_bucket: uncached, quantum: 1024}
";

/// Number of clients per tenant. It is small, because a queued request may be 80 KB long.
const CLIENTS: usize = 32;

/// Returns all scenarios with a policy file.
pub(super) fn classes(pace: ExperimentLength) -> Vec<Scenario> {
    vec![sizes(pace), cached(pace)]
}

/// Builds the scenario in which requests of 205, 2 050 and 20 500 tokens alternate. These sizes are
/// far below, about equal to and far above the larger quantum.
fn sizes(pace: ExperimentLength) -> Scenario {
    let mut scale = scale(pace, 300);
    scale.backend.prefill_per_token = Duration::from_micros(1);
    scale.pattern.prompt_tokens = 205;
    scale.pattern.prompt_times = &[1, 10, 100];
    let tenant = |name, family, weight, joins, class| ScenarioTenant {
        class: Some(class),
        ..scale.tenant(name, family, weight, joins)
    };
    Scenario {
        policy: ScenarioPolicy::Classes { file: FAMILIES, index: false },
        level: ScenarioLevel::Tenants,
        ..scale.scenario(
            "classes",
            "a policy file, quanta 2048 and 512: requests of 205, 2 050 and 20 500 tokens",
            vec![
                tenant("chat", "interactive", 2048, JoinTime::AtSaturation, "interactive_any"),
                tenant("reports", "batch", 512, JoinTime::First, "batch_any"),
            ],
        )
    }
}

fn cached(pace: ExperimentLength) -> Scenario {
    let mut scale = scale(pace, 80);
    scale.backend.prefix_cache_blocks = 1 << 20;
    scale.pattern.prompt_tokens = 200;
    let tenant = |name, family, weight, class| ScenarioTenant {
        class: Some(class),
        ..scale.tenant(name, family, weight, JoinTime::AtSaturation)
    };
    let mut standard_chat = tenant("standard-chat", "standard", 2048, "standard_cached");
    let mut latency_chat = tenant("latency-chat", "latency", 4096, "latency_cached");
    // Both send the same topics, so the first warms the cache for the other.
    standard_chat.pattern.topics = Some(4);
    latency_chat.pattern.topics = Some(4);
    standard_chat.joins = JoinTime::First;
    Scenario {
        policy: ScenarioPolicy::Classes { file: CACHE_BUCKETS, index: true },
        level: ScenarioLevel::Tenants,
        ..scale.scenario(
            "classes-cached",
            "a policy file, two families by cached and uncached prompts, with a prefix index",
            vec![
                standard_chat,
                tenant("standard-docs", "standard", 512, "standard_uncached"),
                latency_chat,
                tenant("latency-docs", "latency", 1024, "latency_uncached"),
            ],
        )
    }
}

fn scale(pace: ExperimentLength, grants_min: u64) -> ExperimentScale {
    let scale = ExperimentLength::Quick.scale();
    let times = match pace {
        ExperimentLength::Quick => 1,
        ExperimentLength::Normal => 2,
        ExperimentLength::Long => 8,
    };
    ExperimentScale {
        clients: CLIENTS,
        pattern: RequestPattern {
            output_tokens: (4, 12),
            max_tokens: 16,
            manner: ClientBehaviour::Honest,
            ..scale.pattern
        },
        length: PhaseDurations { grants_min: times * grants_min, ..pace.scale().length },
        ..scale
    }
}

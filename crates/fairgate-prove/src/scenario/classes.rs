//! Policy files: classes of a router share a worker by their quanta, whatever their requests cost and whether their prompts are
//! cached.

use std::time::Duration;

use super::{Ask, Joins, Length, Level, Manner, Pace, Policy, Scale, Scenario, Tenant};

/// Two families and one bucket: 4 to 1.
const FAMILIES: &str = "\
arbiter: share
default_policy_family: interactive
uncached_isl_buckets: [{min_tokens: 0, bucket: any}]
policy_classes:
  - {name: interactive_any, policy_family: interactive, cache_bucket: any, quantum: 2048}
  - {name: batch_any, policy_family: batch, cache_bucket: any, quantum: 512}
";

/// Two families and two buckets, with the quanta of Dynamo's sample. A prompt that is asked again is in the first bucket.
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

/// Few: a waiting request may be 80 KB long.
const CLIENTS: usize = 32;

/// All scenarios with a policy file.
pub(super) fn classes(pace: Pace) -> Vec<Scenario> {
    vec![sizes(pace), cached(pace)]
}

/// 205, 2 050 and 20 500 tokens in turn: far below, at and far above the larger quantum.
fn sizes(pace: Pace) -> Scenario {
    let mut scale = scale(pace, 300);
    scale.backend.prefill_per_token = Duration::from_micros(1);
    scale.ask.prompt_tokens = 205;
    scale.ask.prompt_times = &[1, 10, 100];
    let tenant = |name, family, weight, joins, class| Tenant {
        class: Some(class),
        ..scale.tenant(name, family, weight, joins)
    };
    Scenario {
        policy: Policy::Classes { file: FAMILIES, index: false },
        level: Level::Tenants,
        ..scale.scenario(
            "classes",
            "a policy file, quanta 2048 and 512: requests of 205, 2 050 and 20 500 tokens",
            vec![
                tenant("chat", "interactive", 2048, Joins::AtSaturation, "interactive_any"),
                tenant("reports", "batch", 512, Joins::First, "batch_any"),
            ],
        )
    }
}

fn cached(pace: Pace) -> Scenario {
    let mut scale = scale(pace, 80);
    scale.backend.prefix_cache_blocks = 1 << 20;
    scale.ask.prompt_tokens = 200;
    let tenant = |name, family, weight, class| Tenant {
        class: Some(class),
        ..scale.tenant(name, family, weight, Joins::AtSaturation)
    };
    let mut standard_chat = tenant("standard-chat", "standard", 2048, "standard_cached");
    let mut latency_chat = tenant("latency-chat", "latency", 4096, "latency_cached");
    // Both ask about the same, so the first has warmed the cache for the other.
    standard_chat.ask.topics = Some(4);
    latency_chat.ask.topics = Some(4);
    standard_chat.joins = Joins::First;
    Scenario {
        policy: Policy::Classes { file: CACHE_BUCKETS, index: true },
        level: Level::Tenants,
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

fn scale(pace: Pace, grants_min: u64) -> Scale {
    let scale = Pace::Quick.scale();
    let times = match pace {
        Pace::Quick => 1,
        Pace::Normal => 2,
        Pace::Long => 8,
    };
    Scale {
        clients: CLIENTS,
        ask: Ask { output_tokens: (4, 12), max_tokens: 16, manner: Manner::Honest, ..scale.ask },
        length: Length { grants_min: times * grants_min, ..pace.scale().length },
        ..scale
    }
}

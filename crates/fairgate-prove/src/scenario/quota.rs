//! A hosted provider's quota, shared by two tenants.
//!
//! The provider's limits are 1 200 requests and 400 000 tokens a minute, saved up for a minute. Where a minute is too long,
//! time is ten times as fast: limits are ten times as high, and saved up for a tenth as long.

use std::time::Duration;

use super::{Ask, Backend, Joins, Length, Manner, Pace, Quota, Scale, Scenario, States};

/// How many may be in flight: more than the quota ever lets through at once.
const CAPACITY: u64 = 16;

pub(super) fn quotas(pace: Pace) -> Vec<Scenario> {
    let faster = if pace == Pace::Long { 1 } else { 10 };
    let scale = scale(pace);
    let quota = Quota {
        requests_per_minute: 1200 * faster,
        tokens_per_minute: 400_000 * faster,
        burst: Duration::from_secs(60 / faster),
        states: States::OpenAi,
        burst_seconds: 10 / faster,
        only: None,
    };
    let scenario = Scenario {
        capacity: CAPACITY,
        quota: Some(quota),
        ..scale.scenario(
            "quota",
            "weights 300 and 100: a provider states its limits in headers",
            vec![
                scale.tenant("chatbot", "chatbot", 300, Joins::AtSaturation),
                scale.tenant("api-batch", "api", 100, Joins::First),
            ],
        )
    };
    let mut tiers = Scenario {
        name: "quota-tiers",
        title: "weights 300 and 100: two own workers, and a provider for when they are full",
        quota: Some(Quota { only: Some("hosted"), ..quota }),
        ..scenario.clone()
    };
    tiers.backend.workers = vec![("east", 4), ("west", 4), ("hosted", CAPACITY)];
    tiers.backend.decode_per_token = Duration::from_millis(1);
    tiers.capacity = CAPACITY + 8;
    let mut two_pools = Scenario {
        name: "quota-two-pools",
        title: "weights 300 and 100 in each of two pools that draw on one provider's account",
        second_pool: Some("second"),
        ..scenario.clone()
    };
    two_pools.backend.workers.push(("second", CAPACITY));
    // Each pool has half of the grants.
    two_pools.length.overlap *= 2;
    let mut all = vec![scenario.clone(), tiers, two_pools];
    // What nobody states is learned, which takes a minute however fast the provider is.
    if pace != Pace::Quick {
        all.push(Scenario {
            name: "quota-unstated",
            title: "weights 300 and 100: a provider says nothing about its limits",
            quota: Some(Quota { states: States::Nothing, ..quota }),
            length: unstated_length(pace),
            ..scenario
        });
    }
    all
}

/// A minute to learn the rate in, and as long as it takes to see how well it is kept to.
fn unstated_length(pace: Pace) -> Length {
    let overlap = if pace == Pace::Long { 120 } else { 20 };
    Length {
        alone: Duration::from_secs(60),
        overlap: Duration::from_secs(overlap),
        ..scale(pace).length
    }
}

fn scale(pace: Pace) -> Scale {
    let (alone, overlap, grants_min) = match pace {
        Pace::Quick => (500, 4000, 60),
        Pace::Normal => (1000, 6000, 80),
        // A minute until what is saved up is used, and a minute of it.
        Pace::Long => (60_000, 60_000, 80),
    };
    Scale {
        clients: 96,
        backend: Backend {
            workers: vec![("hosted", CAPACITY)],
            prefill_base: Duration::from_millis(5),
            prefill_per_token: Duration::ZERO,
            decode_per_token: Duration::from_micros(100),
            fault: None,
            prefix_cache_blocks: 0,
        },
        ask: Ask {
            prompt_tokens: 900,
            prompt_times: &[1],
            topics: None,
            output_tokens: (80, 100),
            max_tokens: 100,
            manner: Manner::Honest,
        },
        huge: 1,
        length: Length {
            alone: Duration::from_millis(alone),
            overlap: Duration::from_millis(overlap),
            grants_min,
            overlap_max: Duration::from_secs(300),
        },
    }
}

//! Scenarios with a hosted provider's quota, shared by two tenants.
//!
//! The provider allows 1 200 requests and 400 000 tokens per minute, and lets unused quota
//! accumulate for a minute. At all lengths except [`ExperimentLength::Long`], the limits are ten
//! times as high, and unused quota accumulates for a tenth of that time.

use std::time::Duration;

use super::{
    ClientBehaviour, ExperimentLength, ExperimentScale, JoinTime, PhaseDurations, RequestPattern,
    Scenario, ScenarioBackend, ScenarioQuota, StatedLimits,
};

/// Slots of the provider's worker, more than the quota ever needs at once.
const CAPACITY: u64 = 16;

pub(super) fn quotas(pace: ExperimentLength) -> Vec<Scenario> {
    let faster = if pace == ExperimentLength::Long { 1 } else { 10 };
    let scale = scale(pace);
    let quota = ScenarioQuota {
        requests_per_minute: 1200 * faster,
        tokens_per_minute: 400_000 * faster,
        burst: Duration::from_secs(60 / faster),
        states: StatedLimits::OpenAi,
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
                scale.tenant("chatbot", "chatbot", 300, JoinTime::AtSaturation),
                scale.tenant("api-batch", "api", 100, JoinTime::First),
            ],
        )
    };
    let mut tiers = Scenario {
        name: "quota-tiers",
        title: "weights 300 and 100: two own workers, and a provider for when they are full",
        quota: Some(ScenarioQuota { only: Some("hosted"), ..quota }),
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
    // Each pool gets half of the grants.
    two_pools.length.overlap *= 2;
    let mut all = vec![scenario.clone(), tiers, two_pools];
    // Unstated limits are learned, which takes a minute at any speed of the provider.
    if pace != ExperimentLength::Quick {
        all.push(Scenario {
            name: "quota-unstated",
            title: "weights 300 and 100: a provider says nothing about its limits",
            quota: Some(ScenarioQuota { states: StatedLimits::Nothing, ..quota }),
            length: unstated_length(pace),
            ..scenario
        });
    }
    all
}

/// Returns the durations of the scenario in which the provider does not state its limits: a minute
/// to learn them, then the time to measure.
fn unstated_length(pace: ExperimentLength) -> PhaseDurations {
    let overlap = if pace == ExperimentLength::Long { 120 } else { 20 };
    PhaseDurations {
        alone: Duration::from_secs(60),
        overlap: Duration::from_secs(overlap),
        ..scale(pace).length
    }
}

fn scale(pace: ExperimentLength) -> ExperimentScale {
    let (alone, overlap, grants_min) = match pace {
        ExperimentLength::Quick => (500, 4000, 60),
        ExperimentLength::Normal => (1000, 6000, 80),
        // One minute until the saved-up quota is used, then one minute of measurement.
        ExperimentLength::Long => (60_000, 60_000, 80),
    };
    ExperimentScale {
        clients: 96,
        backend: ScenarioBackend {
            workers: vec![("hosted", CAPACITY)],
            prefill_base: Duration::from_millis(5),
            prefill_per_token: Duration::ZERO,
            decode_per_token: Duration::from_micros(100),
            fault: None,
            prefix_cache_blocks: 0,
        },
        pattern: RequestPattern {
            prompt_tokens: 900,
            prompt_times: &[1],
            topics: None,
            output_tokens: (80, 100),
            max_tokens: 100,
            manner: ClientBehaviour::Honest,
        },
        huge: 1,
        length: PhaseDurations {
            alone: Duration::from_millis(alone),
            overlap: Duration::from_millis(overlap),
            grants_min,
            overlap_max: Duration::from_secs(300),
        },
    }
}

//! Scenarios with a hosted provider's quota, shared by two tenants.
//!
//! The provider allows 1 200 requests and 400 000 tokens per minute, and lets unused quota
//! accumulate for a minute. At all lengths except [`ExperimentLength::Long`], the limits are ten
//! times as high, and unused quota accumulates for a tenth of that time.

use std::time::Duration;

use fairgate_sim::QuotaRefill;

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
        refill: QuotaRefill::Evenly,
        judged_after_join: false,
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
            quota: Some(ScenarioQuota {
                states: StatedLimits::Nothing,
                judged_after_join: true,
                ..quota
            }),
            length: unstated_length(pace),
            ..scenario.clone()
        });
    }
    if pace == ExperimentLength::Long {
        all.extend(STRICT.map(|strict| strict_quota(&scenario, quota, strict)));
    }
    all
}

/// A provider that lets little quota accumulate, or gives it back in bursts.
struct StrictQuota {
    name: &'static str,
    title: &'static str,
    refill: QuotaRefill,
    limit: StrictLimit,
    /// Number of clients of both tenants together.
    clients: usize,
}

/// The limit that the scenario reaches. The other limit is too high to be reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StrictLimit {
    Requests,
    Tokens,
}

const STRICT: [StrictQuota; 8] = {
    const fn of(
        name: &'static str,
        title: &'static str,
        refill: QuotaRefill,
        limit: StrictLimit,
        clients: usize,
    ) -> StrictQuota {
        StrictQuota { name, title, refill, limit, clients }
    }
    use QuotaRefill::{Evenly, SlidingWindow};
    use StrictLimit::{Requests, Tokens};
    [
        of(
            "quota-bucket-requests-12",
            "a provider with a bucket of 10 s of requests; 12 clients",
            Evenly,
            Requests,
            12,
        ),
        of(
            "quota-bucket-requests-48",
            "a provider with a bucket of 10 s of requests; 48 clients",
            Evenly,
            Requests,
            48,
        ),
        of(
            "quota-bucket-tokens-12",
            "a provider with a bucket of 10 s of tokens; 12 clients",
            Evenly,
            Tokens,
            12,
        ),
        of(
            "quota-bucket-tokens-48",
            "a provider with a bucket of 10 s of tokens; 48 clients",
            Evenly,
            Tokens,
            48,
        ),
        of(
            "quota-window-requests-12",
            "a provider that counts the requests of the last minute; 12 clients",
            SlidingWindow,
            Requests,
            12,
        ),
        of(
            "quota-window-requests-48",
            "a provider that counts the requests of the last minute; 48 clients",
            SlidingWindow,
            Requests,
            48,
        ),
        of(
            "quota-window-tokens-12",
            "a provider that counts the tokens of the last minute; 12 clients",
            SlidingWindow,
            Tokens,
            12,
        ),
        of(
            "quota-window-tokens-48",
            "a provider that counts the tokens of the last minute; 48 clients",
            SlidingWindow,
            Tokens,
            48,
        ),
    ]
};

/// Returns a scenario with a provider of [`STRICT`]. Only refusals after the join are judged. The
/// join is two minutes after the start.
fn strict_quota(scenario: &Scenario, quota: ScenarioQuota, strict: StrictQuota) -> Scenario {
    let far = 1_000_000_000;
    let (requests_per_minute, tokens_per_minute) = match strict.limit {
        StrictLimit::Requests => (quota.requests_per_minute, far),
        StrictLimit::Tokens => (far, quota.tokens_per_minute),
    };
    let burst = match strict.refill {
        QuotaRefill::Evenly => Duration::from_secs(10),
        QuotaRefill::SlidingWindow => Duration::from_secs(60),
    };
    let mut scenario = Scenario {
        name: strict.name,
        title: strict.title,
        quota: Some(ScenarioQuota {
            requests_per_minute,
            tokens_per_minute,
            burst,
            refill: strict.refill,
            judged_after_join: true,
            ..quota
        }),
        length: PhaseDurations {
            alone: Duration::from_secs(120),
            overlap: Duration::from_secs(120),
            ..scenario.length
        },
        ..scenario.clone()
    };
    scenario.tenants.iter_mut().for_each(|tenant| tenant.clients = strict.clients / 2);
    scenario
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

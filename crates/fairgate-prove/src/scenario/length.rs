//! Speed and length of the experiments, and the numbers that depend on them.

use std::time::Duration;

use super::{
    ClientBehaviour, JoinTime, RequestPattern, Scenario, ScenarioBackend, ScenarioLevel,
    ScenarioPolicy, ScenarioTenant,
};

/// Durations of an experiment's phases, and the grants that it needs.
#[derive(Clone, Copy, Debug)]
pub struct PhaseDurations {
    /// Least time for which the first tenant is alone.
    pub alone: Duration,
    /// Least time for which all tenants send requests.
    pub overlap: Duration,
    /// Grants that each tenant must get while all tenants send requests. That phase lasts until
    /// each tenant has this number of grants.
    pub grants_min: u64,
    /// Time after which the phase with all tenants is given up as failed.
    pub overlap_max: Duration,
}

/// Speed and length of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentLength {
    /// As short as the bars allow, for tests.
    Quick,
    /// A few seconds for each scenario.
    Normal,
    /// As in the published experiment: 20 ms to the first token, 5 ms per token, max_tokens 150, 10
    /// s with the first tenant alone, 60 s with all tenants.
    Long,
}

/// Numbers that depend on the [`ExperimentLength`].
pub(super) struct ExperimentScale {
    pub(super) clients: usize,
    pub(super) backend: ScenarioBackend,
    pub(super) pattern: RequestPattern,
    /// Factor by which a huge prompt is longer than an ordinary prompt.
    pub(super) huge: u64,
    pub(super) length: PhaseDurations,
}

/// Slots of an experiment's pool.
pub(super) const CAPACITY: u64 = 8;
/// Number of clients per tenant in the published experiment.
const CLIENTS: usize = 32;
/// Number of clients per tenant if everything is about fifty times as fast. With this number, no
/// tenant's queue becomes empty while the machine or its disk pauses. With empty queues, the
/// experiment would prove nothing.
const CLIENTS_WHEN_FAST: usize = 96;

impl ExperimentLength {
    pub(super) fn scale(self) -> ExperimentScale {
        let workers = vec![("sim", CAPACITY)];
        let fast = ScenarioBackend {
            workers: workers.clone(),
            prefill_base: Duration::from_millis(4),
            prefill_per_token: Duration::from_micros(10),
            decode_per_token: Duration::from_micros(1500),
            fault: None,
            prefix_cache_blocks: 0,
        };
        let short = RequestPattern {
            prompt_tokens: 24,
            prompt_times: &[1],
            topics: None,
            output_tokens: (4, 12),
            max_tokens: 16,
            manner: ClientBehaviour::Honest,
        };
        let length = |alone, overlap, grants_min| PhaseDurations {
            alone: Duration::from_millis(alone),
            overlap: Duration::from_millis(overlap),
            grants_min,
            overlap_max: Duration::from_secs(120),
        };
        let clients = CLIENTS_WHEN_FAST;
        match self {
            Self::Quick => ExperimentScale {
                clients,
                backend: fast,
                pattern: short,
                huge: 12,
                length: length(200, 500, 140),
            },
            Self::Normal => ExperimentScale {
                clients,
                backend: fast,
                pattern: short,
                huge: 12,
                length: length(1000, 4000, 200),
            },
            Self::Long => ExperimentScale {
                clients: CLIENTS,
                backend: ScenarioBackend {
                    workers,
                    prefill_base: Duration::from_millis(20),
                    prefill_per_token: Duration::ZERO,
                    decode_per_token: Duration::from_millis(5),
                    fault: None,
                    prefix_cache_blocks: 0,
                },
                pattern: RequestPattern {
                    prompt_tokens: 24,
                    prompt_times: &[1],
                    topics: None,
                    output_tokens: (150, 150),
                    max_tokens: 150,
                    manner: ClientBehaviour::Honest,
                },
                huge: 4,
                length: PhaseDurations {
                    overlap_max: Duration::from_secs(600),
                    ..length(10_000, 60_000, 60)
                },
            },
        }
    }
}

impl ExperimentScale {
    pub(super) fn scenario(
        &self,
        name: &'static str,
        title: &'static str,
        tenants: Vec<ScenarioTenant>,
    ) -> Scenario {
        Scenario {
            name,
            title,
            capacity: CAPACITY,
            policy: ScenarioPolicy::Share { partition: false },
            level: ScenarioLevel::Groups,
            tenants,
            backend: self.backend.clone(),
            outage: None,
            quota: None,
            second_pool: None,
            budgets: false,
            gain: None,
            harm: None,
            leases: false,
            hosted: false,
            fleet: None,
            length: self.length,
        }
    }

    pub(super) fn tenant(
        &self,
        name: &'static str,
        group: &'static str,
        weight: u64,
        joins: JoinTime,
    ) -> ScenarioTenant {
        ScenarioTenant {
            name,
            group,
            weight,
            keys: 1,
            clients: self.clients,
            joins,
            pattern: self.pattern,
            class: None,
        }
    }

    /// Returns two tenants of equal weight in one group. `cheat` starts first, and `honest` joins
    /// it.
    pub(super) fn equals(
        &self,
        cheat: &'static str,
        honest: &'static str,
    ) -> (ScenarioTenant, ScenarioTenant) {
        let tenant = |name, joins| self.tenant(name, "all", 1, joins);
        (tenant(cheat, JoinTime::First), tenant(honest, JoinTime::AtSaturation))
    }
}

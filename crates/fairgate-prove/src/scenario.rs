//! The experiments as values: their tenants, requests, backends and policies.

mod attack;
mod bands;
mod classes;
mod deadlines;
mod fleet;
mod length;
mod published;
mod quota;

use std::time::Duration;

use fairgate_sim::{QuotaRefill, SimFault};

pub use fleet::FleetPlan;
use length::{CAPACITY, ExperimentScale};
pub use length::{ExperimentLength, PhaseDurations};
pub use published::published;

/// One experiment, with everything that describes its servers and clients.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Name of the experiment on the command line and in reports.
    pub name: &'static str,
    /// Description of the experiment in one line.
    pub title: &'static str,
    /// Requests that may be in flight at once in a pool.
    pub capacity: u64,
    /// Policy of the gateway's pool.
    pub policy: ScenarioPolicy,
    /// Node of the policy at which the tenants compete.
    pub level: ScenarioLevel,
    /// Tenants and their clients.
    pub tenants: Vec<ScenarioTenant>,
    /// Simulated workers and their speed.
    pub backend: ScenarioBackend,
    /// Planned death of a worker during the experiment, if any.
    pub outage: Option<WorkerOutage>,
    /// Limits of the provider behind the workers; `None` if the scenario has no provider.
    pub quota: Option<ScenarioQuota>,
    /// Name of the worker in a second pool, which serves another model; `None` for a single pool.
    /// Half of the clients request that model.
    pub second_pool: Option<&'static str>,
    /// True if the tenants have token budgets, which are larger than they can use. The gateway
    /// reads a budget before it submits a request, and must wait for the ledger's writes to do so;
    /// therefore the join takes a few milliseconds longer.
    pub budgets: bool,
    /// Two tenants of equal weight, one of which tries to get more than the other; `None` if no
    /// tenant does.
    pub gain: Option<GainAttempt>,
    /// Attack and its victim, with the scenario to compare with; `None` if the scenario has no
    /// attack.
    pub harm: Option<AttackComparison>,
    /// True if the pool leases its slots and no request reaches a worker.
    pub leases: bool,
    /// True if the workers belong to an account with a provider that has separate limits for each model. The pool then
    /// also serves the model of [`ClientBehaviour::MeetsModelLimit`].
    pub hosted: bool,
    /// Agents that work on tasks and replace the clients; `None` if the scenario has no fleet. With
    /// a fleet, the tenants are projects.
    pub fleet: Option<FleetPlan>,
    /// Durations of the experiment's phases, and the grants that it needs.
    pub length: PhaseDurations,
}

/// Policy of the gateway's pool in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioPolicy {
    /// The gateway's default: share by group, within each group by tenant, and within each tenant
    /// by key.
    Share {
        /// True if the capacity is divided into slots by weight.
        partition: bool,
    },
    /// Share by class. Each tenant has its own class, with the tenant's weight.
    ShareClasses,
    /// The load function by tenant. A request that has waited while `ticks_max` other requests
    /// ended goes first.
    Load {
        /// Value of `max_wait_ticks` in the policy.
        ticks_max: u64,
    },
    /// Deficit round robin by class. Each tenant has its own class, with a quantum in proportion to
    /// the tenant's weight.
    Drr,
    /// Share by group, with one queue in each group that dispatches the earliest deadline first.
    Edf,
    /// The classes of a policy file. A tenant's requests belong to the policy family with the name
    /// of the tenant's group.
    Classes {
        /// Contents of the policy file, in YAML.
        file: &'static str,
        /// True if the pool has a prefix index; cached input then costs half.
        index: bool,
    },
    /// Strict priority by class. Each tenant has its own class, in the order of the tenants; the
    /// last class is the default.
    Bands {
        /// Caps of all classes except the last, in slots.
        caps: &'static [u64],
    },
}

impl ScenarioPolicy {
    /// Returns whether the policy divides the capacity into slots.
    pub fn is_partition(self) -> bool {
        self == Self::Share { partition: true }
    }

    /// Returns whether the policy guarantees each flow its share of the tokens.
    pub fn shares_tokens(self) -> bool {
        matches!(self, Self::Share { .. } | Self::ShareClasses | Self::Classes { .. })
    }
}

/// Node of the policy at which the tenants compete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioLevel {
    /// Each tenant has its own group, and the scenario's weights are the weights of the groups.
    Groups,
    /// All tenants are in one group, and the scenario's weights are the weights of the tenants.
    Tenants,
}

/// One tenant of a scenario and its clients.
#[derive(Clone, Debug)]
pub struct ScenarioTenant {
    /// Name of the tenant; unique within a scenario.
    pub name: &'static str,
    /// Name of the tenant's group.
    pub group: &'static str,
    /// Weight of the tenant or of its group, depending on the [`ScenarioLevel`].
    pub weight: u64,
    /// Number of the tenant's keys, which its clients use in turn.
    pub keys: usize,
    /// Number of the tenant's clients. Each has one connection, and sends its next request when it has the answer to
    /// the previous one.
    pub clients: usize,
    /// Time at which the tenant's clients start.
    pub joins: JoinTime,
    /// Pattern of the requests that the tenant's clients send.
    pub pattern: RequestPattern,
    /// Class that the tenant's requests must get, for the bar about classes; `None` if that bar
    /// does not apply.
    pub class: Option<&'static str>,
}

/// Time at which a tenant's clients start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinTime {
    /// At the beginning, to flood the pool alone.
    First,
    /// As soon as the pool is full with requests queued, but not before the tenants that joined first have been alone
    /// for [`PhaseDurations::alone`]. In a scenario with a quota, the pool need not be full.
    AtSaturation,
}

/// Pattern of the requests that a tenant's clients send.
#[derive(Clone, Copy, Debug)]
pub struct RequestPattern {
    /// Length of an ordinary prompt, in tokens.
    pub prompt_tokens: u64,
    /// Factors by which `prompt_tokens` is multiplied; requests use them in turn.
    pub prompt_times: &'static [u64],
    /// Number of different prompts, which all clients of the tenant repeat. If `None`, every prompt
    /// is unique.
    pub topics: Option<u64>,
    /// Least and greatest length of an answer, in tokens. The length varies from request to request between these two.
    pub output_tokens: (u64, u64),
    /// Value of `max_tokens` in the request.
    pub max_tokens: u64,
    /// Behaviour of the tenant's clients.
    pub manner: ClientBehaviour,
}

impl RequestPattern {
    /// Returns the deadline of the requests of the tenant's client with that number, in
    /// milliseconds; `None` if its requests have none.
    pub fn deadline_ms(&self, client: usize) -> Option<u64> {
        match self.manner {
            ClientBehaviour::HasDeadlines { deadlines_ms } => {
                Some(deadlines_ms[client % deadlines_ms.len()])
            }
            _ => None,
        }
    }

    /// Returns the number of tokens after which the client leaves in the middle of a stream; `None`
    /// if it does not leave this way.
    pub fn leaves_after(&self) -> Option<u64> {
        match self.manner {
            ClientBehaviour::LeavesAfter(tokens) => Some(tokens),
            _ => None,
        }
    }
}

/// Behaviour of a tenant's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientBehaviour {
    /// Reads the whole of each answer.
    Honest,
    /// Leaves after that many tokens of the answer.
    LeavesAfter(u64),
    /// Makes the model produce hidden tokens, and leaves at `finish_reason`, before the usage
    /// arrives.
    LeavesAtFinish {
        /// Number of tokens that the client never sees.
        hidden: u64,
    },
    /// Uses HTTP/2 with a window of one byte, reads nothing of the answer for a while, and leaves.
    ReadsNothing {
        /// Time from the beginning of the request until the client leaves.
        until: Duration,
    },
    /// Sends a deadline with each request.
    HasDeadlines {
        /// Deadlines in milliseconds, which the tenant's clients use in turn.
        deadlines_ms: &'static [u64],
    },
    /// Reads the whole of each answer. Some clients ask for embeddings of long texts, the others for
    /// ordinary answers.
    Embeds {
        /// Every client whose number is a multiple of this asks for embeddings.
        every: usize,
        /// Factor by which the texts of these clients are longer than ordinary prompts.
        times: u64,
    },
    /// Reads the whole of each answer. Some clients ask for another model of the provider, whose limit for the day is
    /// used up. These clients are refused, or wait until the queue timeout. The scenario must be hosted.
    MeetsModelLimit {
        /// Every client whose number is a multiple of this asks for the limited model.
        every: usize,
    },
    /// Leases slots and calls no model. The scenario's pool must be one of leases.
    LeasesSlots {
        /// Time for which the client holds each slot.
        held: Duration,
        /// The report with which the client settles each lease.
        report: ScenarioLeaseReport,
    },
    /// Sends prompts that make the model reset the connection before it answers.
    Resets,
    /// Sends prompts that make the model fail.
    Fails {
        /// HTTP status of the failure.
        status: u16,
        /// Time for which the request holds its slot before it fails. If it is 0, the request fails at
        /// once and takes no slot.
        after: Duration,
    },
}

/// The report of a client that settles a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScenarioLeaseReport {
    /// The tokens of an ordinary prompt and answer.
    Used,
    /// No tokens, and headers of a provider that allows one request a minute.
    NothingAndLowLimits,
}

/// The simulated models behind the gateway.
#[derive(Clone, Debug)]
pub struct ScenarioBackend {
    /// Name and number of slots of each worker.
    pub workers: Vec<(&'static str, u64)>,
    /// Time to the first token of an empty prompt.
    pub prefill_base: Duration,
    /// Time that each input token adds to the time to the first token.
    pub prefill_per_token: Duration,
    /// Time from one output token to the next.
    pub decode_per_token: Duration,
    /// Fault of the simulated model in every request, if any.
    pub fault: Option<SimFault>,
    /// Blocks of prompts that each worker keeps in its prefix cache; 0 if workers have no cache.
    pub prefix_cache_blocks: usize,
}

/// Limits of a simulated provider, and the gateway's settings for it.
#[derive(Clone, Copy, Debug)]
pub struct ScenarioQuota {
    /// Requests that the provider allows per minute.
    pub requests_per_minute: u64,
    /// Tokens that the provider allows per minute, input and output together.
    pub tokens_per_minute: u64,
    /// Time for which the provider lets unused quota accumulate; with a sliding window, the length of the window.
    pub burst: Duration,
    /// Way in which the provider gives used quota back.
    pub refill: QuotaRefill,
    /// True if only refusals after the join are judged, because the gateway learns before the join how the provider
    /// counts.
    pub judged_after_join: bool,
    /// Rate limit headers that the provider sends in its answers.
    pub states: StatedLimits,
    /// Value of `burst_seconds` in the gateway's configuration: seconds for which the gateway lets
    /// unused quota accumulate.
    pub burst_seconds: u64,
    /// Name of the provider's only worker, if the other workers are the operator's own. The gateway
    /// uses that worker only when no other has a free slot. If `None`, all workers belong to the
    /// provider.
    pub only: Option<&'static str>,
}

impl ScenarioQuota {
    /// Returns whether a worker belongs to the provider.
    pub fn concerns(&self, worker: &str) -> bool {
        self.only.is_none_or(|only| only == worker)
    }
}

/// Rate limit headers in a provider's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatedLimits {
    /// Headers in OpenAI's format.
    OpenAi,
    /// No rate limit headers.
    Nothing,
}

/// A worker that dies and comes back. The tenant with the fewest answers determines the progress at which each of the
/// two happens.
#[derive(Clone, Copy, Debug)]
pub struct WorkerOutage {
    /// Name of the worker.
    pub worker: &'static str,
    /// Progress at which the worker dies, in percent of [`PhaseDurations::grants_min`].
    pub dies_percent: u64,
    /// Progress at which the worker is back, in percent of [`PhaseDurations::grants_min`].
    pub back_percent: u64,
}

/// A tenant that tries to get more than its share, and the tenant that it is compared with.
#[derive(Clone, Copy, Debug)]
pub struct GainAttempt {
    /// Name of the tenant that tries to gain.
    pub cheat: &'static str,
    /// Name of the honest tenant. It has the same weight as the other tenant.
    pub honest: &'static str,
}

/// An attack on a tenant, and the scenario without the attack.
#[derive(Clone, Debug)]
pub struct AttackComparison {
    /// Name of the tenant that must not suffer from the attack.
    pub victim: &'static str,
    /// The scenario without the attack, in which an honest tenant of equal weight replaces the
    /// attacker.
    pub honest: Box<Scenario>,
}

/// Returns all experiments of this length, in the order in which they run.
pub fn scenarios(pace: ExperimentLength) -> Vec<Scenario> {
    let mut all = published(pace);
    all.extend(attack::attacks(pace));
    all.extend(quota::quotas(pace));
    all.extend(classes::classes(pace));
    all.extend(bands::bands(pace));
    all.extend(deadlines::deadlines(pace));
    all.extend(fleet::fleets(pace));
    all
}

impl Scenario {
    /// Returns the sum of all tenants' weights.
    pub fn weights(&self) -> u64 {
        self.tenants.iter().map(|tenant| tenant.weight).sum()
    }

    /// Returns the number of pools, which is 1 or 2.
    pub fn pools(&self) -> usize {
        1 + usize::from(self.second_pool.is_some())
    }

    /// Returns the index of the tenant with this name in [`tenants`](Self::tenants).
    pub fn tenant(&self, name: &str) -> Option<usize> {
        self.tenants.iter().position(|tenant| tenant.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        for pace in [ExperimentLength::Quick, ExperimentLength::Normal, ExperimentLength::Long] {
            let table = scenarios(pace);
            for (i, scenario) in table.iter().enumerate() {
                let name = scenario.name;
                assert!(table[..i].iter().all(|other| other.name != name), "{name} is there twice");
                let slots: u64 = scenario.backend.workers.iter().map(|(_, slots)| slots).sum();
                assert!(slots >= scenario.capacity, "{name}: a full pool still has open workers");
                let first = scenario.tenants.iter().filter(|t| t.joins == JoinTime::First);
                // A fleet has agents in place of clients.
                let floods = if scenario.fleet.is_some() { scenario.tenants.len() } else { 1 };
                assert_eq!(first.count(), floods, "{name}: one tenant floods first");
                for tenant in &scenario.tenants {
                    // A quota keeps requests waiting, however few clients there are.
                    let is_backlogged = tenant.clients >= 3 * 8 || scenario.quota.is_some();
                    assert!(is_backlogged, "{name}: {} stays backlogged", tenant.name);
                    assert!(tenant.keys <= tenant.clients);
                    assert!(tenant.pattern.output_tokens.1 <= tenant.pattern.max_tokens);
                    let alone =
                        tenant.group == tenant.name || scenario.level == ScenarioLevel::Groups;
                    assert_eq!(alone, scenario.level == ScenarioLevel::Groups);
                }
                if scenario.quota.is_some_and(|quota| quota.states == StatedLimits::Nothing) {
                    let alone = scenario.length.alone;
                    assert!(alone >= Duration::from_secs(60), "{name}: judged after a minute");
                }
                if let Some(second) = scenario.second_pool {
                    let workers = &scenario.backend.workers;
                    assert!(workers.iter().any(|(worker, _)| *worker == second), "{name}");
                    assert!(!scenario.budgets, "{name}: budgets would count both pools");
                }
                if let Some(GainAttempt { cheat, honest }) = scenario.gain {
                    let weight = |name| scenario.tenants[scenario.tenant(name).unwrap()].weight;
                    assert_eq!(weight(cheat), weight(honest), "{name}: only equals compare");
                }
            }
        }
    }
}

//! The experiments, as values: who asks for what, of which backends, and what is looked at.

mod attack;
mod classes;
mod fleet;
mod quota;

use std::time::Duration;

use fairgate_sim::Fault;

pub use fleet::Fleet;

/// One experiment.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// By what it is asked for.
    pub name: &'static str,
    /// What happens in it, in one line.
    pub title: &'static str,
    /// How many requests may be in flight at once.
    pub capacity: u64,
    /// How it is shared.
    pub policy: Policy,
    /// Among whom.
    pub level: Level,
    /// Who asks.
    pub tenants: Vec<Tenant>,
    /// Who answers.
    pub backend: Backend,
    /// A worker that dies on the way.
    pub outage: Option<Outage>,
    /// The limits of the provider behind the workers, where there is one.
    pub quota: Option<Quota>,
    /// The one worker of a second pool with a model of its own, where there is one. Every other client asks for that model.
    pub second_pool: Option<&'static str>,
    /// Whether the tenants have token budgets, larger than they can use. A budget is read before each request is submitted,
    /// in turn with what the ledger writes; so a join takes some milliseconds longer.
    pub budgets: bool,
    /// Two tenants of equal weight of which one tries to get more than the other.
    pub gain: Option<Gain>,
    /// An attack, and who must not suffer from it.
    pub harm: Option<Harm>,
    /// Agents that work on tasks, in place of clients. The tenants are projects then.
    pub fleet: Option<Fleet>,
    /// How long it goes on.
    pub length: Length,
}

/// The policy of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The gateway's own: share by group, inside it by tenant, inside that by key.
    Share {
        /// Whether capacity is divided into slots by weight first.
        partition: bool,
    },
    /// Share by class; each tenant has a class of its own, of equal weight.
    ShareClasses,
    /// The load function by tenant. Who has waited for so many ends of other requests goes first.
    Load {
        /// `max_wait_ticks`.
        ticks_max: u64,
    },
    /// Deficit round robin by class; each tenant has a class of its own, with an equal quantum.
    Drr,
    /// The classes of a policy file. A tenant's requests are of the family that its group is named after.
    Classes {
        /// The file.
        file: &'static str,
        /// Whether the pool has an index of prefixes; cached input then costs half.
        index: bool,
    },
}

impl Policy {
    /// Whether capacity is divided into slots first.
    pub fn is_partition(self) -> bool {
        self == Self::Share { partition: true }
    }

    /// Whether it promises each its part of the tokens.
    pub fn shares_tokens(self) -> bool {
        matches!(self, Self::Share { .. } | Self::ShareClasses | Self::Classes { .. })
    }
}

/// At which node of the policy the tenants meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Each tenant has a group of its own, and the weights are the groups'.
    Groups,
    /// All are in one group, and the weights are their own.
    Tenants,
}

/// One tenant and its clients.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// Its name.
    pub name: &'static str,
    /// The group it is in.
    pub group: &'static str,
    /// Its weight among those it meets.
    pub weight: u64,
    /// Over how many keys its clients are spread.
    pub keys: usize,
    /// How many clients it has. Each sends its next request when it has the answer to the last, on a connection of its
    /// own.
    pub clients: usize,
    /// When it starts.
    pub joins: Joins,
    /// What its clients send.
    pub ask: Ask,
    /// The class of a policy file that its requests get.
    pub class: Option<&'static str>,
}

/// When a tenant starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joins {
    /// At once: it floods the pool while it is alone.
    First,
    /// When the pool is full, requests wait, and the flood has lasted for [`Length::alone`].
    AtSaturation,
}

/// What a client sends.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Tokens of its prompt.
    pub prompt_tokens: u64,
    /// Its prompts are so many times as long, in turn.
    pub prompt_times: &'static [u64],
    /// How many different prompts all its clients send, where they send them again and again.
    pub topics: Option<u64>,
    /// The answer's length in tokens: any from the first to the second, by the number of the request.
    pub output_tokens: (u64, u64),
    /// What it allows, in tokens.
    pub max_tokens: u64,
    /// How it goes about it.
    pub manner: Manner,
}

impl Ask {
    /// After how many tokens of the answer the client leaves, where it does in mid-stream.
    pub fn leaves_after(&self) -> Option<u64> {
        match self.manner {
            Manner::LeavesAfter(tokens) => Some(tokens),
            _ => None,
        }
    }
}

/// How a client goes about its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It reads the whole answer.
    Honest,
    /// It leaves after so many tokens of the answer.
    LeavesAfter(u64),
    /// It has the model think for so many tokens that nobody sees, and leaves at `finish_reason`, before the usage comes.
    LeavesAtFinish {
        /// Tokens that nobody sees.
        hidden: u64,
    },
    /// It asks over HTTP/2 with a window of one byte, takes nothing of the answer for so long, and leaves.
    ReadsNothing {
        /// How long.
        until: Duration,
    },
    /// It sends what makes the model fail.
    Fails {
        /// With which status.
        status: u16,
        /// After how long in its slot; zero fails at once, and takes none.
        after: Duration,
    },
}

/// The simulated models.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The workers, and how many requests each takes at once.
    pub workers: Vec<(&'static str, u64)>,
    /// Time to the first token of an empty prompt.
    pub prefill_base: Duration,
    /// What each input token adds to it.
    pub prefill_per_token: Duration,
    /// Time from one token to the next.
    pub decode_per_token: Duration,
    /// What goes wrong with every request.
    pub fault: Option<Fault>,
    /// How many blocks of a prompt each worker keeps in its cache; 0 for no cache.
    pub prefix_cache_blocks: usize,
}

/// What a provider lets through.
#[derive(Clone, Copy, Debug)]
pub struct Quota {
    /// Requests a minute.
    pub requests_per_minute: u64,
    /// Tokens a minute, input and output together.
    pub tokens_per_minute: u64,
    /// How long these may be saved up.
    pub burst: Duration,
    /// What its answers say about them.
    pub states: States,
    /// For how many seconds of them the gateway saves up.
    pub burst_seconds: u64,
    /// The one worker that is hosted, where the others are not. It is used only when no other has room.
    pub only: Option<&'static str>,
}

impl Quota {
    /// Whether a worker is the provider's.
    pub fn concerns(&self, worker: &str) -> bool {
        self.only.is_none_or(|only| only == worker)
    }
}

/// What a provider's answers say about its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum States {
    /// Headers as OpenAI's.
    OpenAi,
    /// Nothing.
    Nothing,
}

/// A worker that dies and comes back. When, is told by the progress of the tenant with the fewest grants.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// Which worker.
    pub worker: &'static str,
    /// It dies when each tenant has so many hundredths of [`Length::grants_min`].
    pub dies_percent: u64,
    /// And is back when each has so many.
    pub back_percent: u64,
}

/// Who tries to gain, and against whom.
#[derive(Clone, Copy, Debug)]
pub struct Gain {
    /// The tenant that tries.
    pub cheat: &'static str,
    /// The honest one.
    pub honest: &'static str,
}

/// An attack, and who must not suffer from it.
#[derive(Clone, Debug)]
pub struct Harm {
    /// The tenant that is attacked.
    pub victim: &'static str,
    /// The same without the attack: an honest tenant of equal weight in the attacker's place.
    pub honest: Box<Scenario>,
}

/// How long an experiment goes on.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// How long the first tenant is alone, at least.
    pub alone: Duration,
    /// How long all are there, at least.
    pub overlap: Duration,
    /// How many grants each tenant must have had meanwhile: the overlap goes on until then.
    pub grants_min: u64,
    /// When it is given up.
    pub overlap_max: Duration,
}

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// For tests: as short as the bars allow.
    Quick,
    /// Some seconds a scenario.
    Normal,
    /// The published experiment's own numbers: 20 ms to the first token, 5 ms a token, max_tokens 150, 10 s alone,
    /// 60 s of overlap.
    Long,
}

/// The numbers in which the paces differ.
struct Scale {
    clients: usize,
    backend: Backend,
    ask: Ask,
    /// How many times as long as another request a huge prompt is.
    huge: u64,
    length: Length,
}

const CAPACITY: u64 = 8;
/// Clients of a tenant, as published.
const CLIENTS: usize = 32;
/// Clients where everything is fifty times as fast or so. A moment in which the machine or its disk stands still must not
/// be long enough for a tenant's queue to run empty, or there would be nothing to prove.
const CLIENTS_WHEN_FAST: usize = 96;

impl Pace {
    fn scale(self) -> Scale {
        let workers = vec![("sim", CAPACITY)];
        let fast = Backend {
            workers: workers.clone(),
            prefill_base: Duration::from_millis(4),
            prefill_per_token: Duration::from_micros(10),
            decode_per_token: Duration::from_micros(1500),
            fault: None,
            prefix_cache_blocks: 0,
        };
        let short = Ask {
            prompt_tokens: 24,
            prompt_times: &[1],
            topics: None,
            output_tokens: (4, 12),
            max_tokens: 16,
            manner: Manner::Honest,
        };
        let length = |alone, overlap, grants_min| Length {
            alone: Duration::from_millis(alone),
            overlap: Duration::from_millis(overlap),
            grants_min,
            overlap_max: Duration::from_secs(120),
        };
        let clients = CLIENTS_WHEN_FAST;
        match self {
            Self::Quick => Scale {
                clients,
                backend: fast,
                ask: short,
                huge: 12,
                length: length(200, 500, 140),
            },
            Self::Normal => Scale {
                clients,
                backend: fast,
                ask: short,
                huge: 12,
                length: length(1000, 4000, 200),
            },
            Self::Long => Scale {
                clients: CLIENTS,
                backend: Backend {
                    workers,
                    prefill_base: Duration::from_millis(20),
                    prefill_per_token: Duration::ZERO,
                    decode_per_token: Duration::from_millis(5),
                    fault: None,
                    prefix_cache_blocks: 0,
                },
                ask: Ask {
                    prompt_tokens: 24,
                    prompt_times: &[1],
                    topics: None,
                    output_tokens: (150, 150),
                    max_tokens: 150,
                    manner: Manner::Honest,
                },
                huge: 4,
                length: Length {
                    overlap_max: Duration::from_secs(600),
                    ..length(10_000, 60_000, 60)
                },
            },
        }
    }
}

/// All experiments at this pace, in the order in which they are run.
pub fn scenarios(pace: Pace) -> Vec<Scenario> {
    let mut all = published(pace);
    all.extend(attack::attacks(pace));
    all.extend(quota::quotas(pace));
    all.extend(classes::classes(pace));
    all.extend(fleet::fleets(pace));
    all
}

/// The published experiment and its variants, in which everybody reads what it asked for.
pub fn published(pace: Pace) -> Vec<Scenario> {
    let scale = pace.scale();
    vec![
        two_tenants(&scale),
        Scenario {
            name: "two-tenants-partitioned",
            title: "weights 500 and 50 over 8 slots: 7 and 1",
            policy: Policy::Share { partition: true },
            ..two_tenants(&scale)
        },
        three_tiers(&scale),
        Scenario {
            name: "three-tiers-partitioned",
            title: "weights 500, 100 and 50 over 8 slots: 6, 1 and 1",
            policy: Policy::Share { partition: true },
            ..three_tiers(&scale)
        },
        fifty_keys(&scale),
        inflated_max_tokens(&scale),
        huge_prompts(&scale),
        clients_leave(&scale),
        worker_dies(&scale),
    ]
}

impl Scale {
    fn scenario(&self, name: &'static str, title: &'static str, tenants: Vec<Tenant>) -> Scenario {
        Scenario {
            name,
            title,
            capacity: CAPACITY,
            policy: Policy::Share { partition: false },
            level: Level::Groups,
            tenants,
            backend: self.backend.clone(),
            outage: None,
            quota: None,
            second_pool: None,
            budgets: false,
            gain: None,
            harm: None,
            fleet: None,
            length: self.length,
        }
    }

    fn tenant(&self, name: &'static str, group: &'static str, weight: u64, joins: Joins) -> Tenant {
        Tenant {
            name,
            group,
            weight,
            keys: 1,
            clients: self.clients,
            joins,
            ask: self.ask,
            class: None,
        }
    }

    /// Two tenants of one group and equal weight.
    fn equals(&self, cheat: &'static str, honest: &'static str) -> (Tenant, Tenant) {
        let tenant = |name, joins| self.tenant(name, "all", 1, joins);
        (tenant(cheat, Joins::First), tenant(honest, Joins::AtSaturation))
    }
}

fn two_tenants(scale: &Scale) -> Scenario {
    scale.scenario(
        "two-tenants",
        "weights 500 and 50: the small one floods, the big one joins",
        vec![
            scale.tenant("chatbot", "chatbot", 500, Joins::AtSaturation),
            scale.tenant("api-batch", "api", 50, Joins::First),
        ],
    )
}

fn three_tiers(scale: &Scale) -> Scenario {
    scale.scenario(
        "three-tiers",
        "weights 500, 100 and 50: the smallest floods, the others join",
        vec![
            scale.tenant("gold", "gold", 500, Joins::AtSaturation),
            scale.tenant("silver", "silver", 100, Joins::AtSaturation),
            scale.tenant("bronze", "bronze", 50, Joins::First),
        ],
    )
}

fn fifty_keys(scale: &Scale) -> Scenario {
    let (cheat, honest) = scale.equals("fifty-keys", "one-key");
    // As many clients as keys, and then some.
    let cheat = Tenant { keys: 50, clients: cheat.clients.max(50), ..cheat };
    Scenario {
        level: Level::Tenants,
        budgets: true,
        gain: Some(Gain { cheat: "fifty-keys", honest: "one-key" }),
        ..scale.scenario(
            "fifty-keys",
            "equal weights: one tenant spreads its requests over 50 keys",
            vec![honest, cheat],
        )
    }
}

fn inflated_max_tokens(scale: &Scale) -> Scenario {
    let (mut cheat, honest) = scale.equals("inflated", "honest");
    cheat.ask.max_tokens *= 100;
    Scenario {
        level: Level::Tenants,
        budgets: true,
        gain: Some(Gain { cheat: "inflated", honest: "honest" }),
        ..scale.scenario(
            "inflated-max-tokens",
            "equal weights: one tenant asks for a hundred times the tokens that it will use",
            vec![honest, cheat],
        )
    }
}

fn huge_prompts(scale: &Scale) -> Scenario {
    let (mut huge, small) = scale.equals("huge-prompts", "small-prompts");
    huge.ask.prompt_tokens = scale.huge * (small.ask.prompt_tokens + small.ask.output_tokens.1);
    Scenario {
        level: Level::Tenants,
        budgets: true,
        ..scale.scenario(
            "huge-prompts",
            "equal weights: one tenant's prompts are many times the other's",
            vec![small, huge],
        )
    }
}

fn clients_leave(scale: &Scale) -> Scenario {
    let (mut leaving, staying) = scale.equals("leaving", "staying");
    // Long enough that nobody could mistake who ended it. What leaves early was expected to use more, so estimates in
    // flight are large against what is used, and it takes more requests until they do not matter.
    leaving.ask.output_tokens = (96, 96);
    leaving.ask.max_tokens = 96;
    leaving.ask.manner = Manner::LeavesAfter(24);
    let grants_min = 3 * scale.length.grants_min;
    Scenario {
        level: Level::Tenants,
        budgets: true,
        length: Length { grants_min, ..scale.length },
        ..scale.scenario(
            "clients-leave",
            "equal weights: one tenant's clients leave in mid-stream",
            vec![staying, leaving],
        )
    }
}

fn worker_dies(scale: &Scale) -> Scenario {
    let mut scenario = scale.scenario(
        "worker-dies",
        "weights 300 and 100 over two workers: one dies under load and comes back",
        vec![
            scale.tenant("chatbot", "chatbot", 300, Joins::AtSaturation),
            scale.tenant("api-batch", "api", 100, Joins::First),
        ],
    );
    scenario.backend.workers = vec![("east", CAPACITY / 2), ("west", CAPACITY / 2)];
    scenario.budgets = true;
    scenario.outage = Some(Outage { worker: "west", dies_percent: 30, back_percent: 60 });
    scenario
}

impl Scenario {
    /// The sum of all weights.
    pub fn weights(&self) -> u64 {
        self.tenants.iter().map(|tenant| tenant.weight).sum()
    }

    /// How many pools there are.
    pub fn pools(&self) -> usize {
        1 + usize::from(self.second_pool.is_some())
    }

    /// The place of a tenant in [`tenants`](Self::tenants).
    pub fn tenant(&self, name: &str) -> Option<usize> {
        self.tenants.iter().position(|tenant| tenant.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sound() {
        for pace in [Pace::Quick, Pace::Normal, Pace::Long] {
            let table = scenarios(pace);
            for (i, scenario) in table.iter().enumerate() {
                let name = scenario.name;
                assert!(table[..i].iter().all(|other| other.name != name), "{name} is there twice");
                let slots: u64 = scenario.backend.workers.iter().map(|(_, slots)| slots).sum();
                assert!(slots >= scenario.capacity, "{name}: a full pool still has open workers");
                let first = scenario.tenants.iter().filter(|t| t.joins == Joins::First);
                // A fleet has agents in place of clients.
                let floods = if scenario.fleet.is_some() { scenario.tenants.len() } else { 1 };
                assert_eq!(first.count(), floods, "{name}: one tenant floods first");
                for tenant in &scenario.tenants {
                    assert!(tenant.clients >= 3 * 8, "{name}: {} stays backlogged", tenant.name);
                    assert!(tenant.keys <= tenant.clients);
                    assert!(tenant.ask.output_tokens.1 <= tenant.ask.max_tokens);
                    let alone = tenant.group == tenant.name || scenario.level == Level::Groups;
                    assert_eq!(alone, scenario.level == Level::Groups);
                }
                if scenario.quota.is_some_and(|quota| quota.states == States::Nothing) {
                    let alone = scenario.length.alone;
                    assert!(alone >= Duration::from_secs(60), "{name}: judged after a minute");
                }
                if let Some(second) = scenario.second_pool {
                    let workers = &scenario.backend.workers;
                    assert!(workers.iter().any(|(worker, _)| *worker == second), "{name}");
                    assert!(!scenario.budgets, "{name}: budgets would count both pools");
                }
                if let Some(Gain { cheat, honest }) = scenario.gain {
                    let weight = |name| scenario.tenants[scenario.tenant(name).unwrap()].weight;
                    assert_eq!(weight(cheat), weight(honest), "{name}: only equals compare");
                }
            }
        }
    }
}

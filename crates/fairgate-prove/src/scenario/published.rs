//! The published experiment and its variants.

use super::length::{CAPACITY, ExperimentLength, ExperimentScale, PhaseDurations};
use super::{
    ClientBehaviour, GainAttempt, JoinTime, Scenario, ScenarioLevel, ScenarioPolicy,
    ScenarioTenant, WorkerOutage,
};

/// Returns the published experiment and its variants.
pub fn published(pace: ExperimentLength) -> Vec<Scenario> {
    let scale = pace.scale();
    vec![
        two_tenants(&scale),
        Scenario {
            name: "two-tenants-partitioned",
            title: "weights 500 and 50 over 8 slots: 7 and 1",
            policy: ScenarioPolicy::Share { partition: true },
            ..two_tenants(&scale)
        },
        three_tiers(&scale),
        Scenario {
            name: "three-tiers-partitioned",
            title: "weights 500, 100 and 50 over 8 slots: 6, 1 and 1",
            policy: ScenarioPolicy::Share { partition: true },
            ..three_tiers(&scale)
        },
        fifty_keys(&scale),
        inflated_max_tokens(&scale),
        huge_prompts(&scale),
        clients_leave(&scale),
        worker_dies(&scale),
    ]
}

fn two_tenants(scale: &ExperimentScale) -> Scenario {
    scale.scenario(
        "two-tenants",
        "weights 500 and 50: the small one floods, the big one joins",
        vec![
            scale.tenant("chatbot", "chatbot", 500, JoinTime::AtSaturation),
            scale.tenant("api-batch", "api", 50, JoinTime::First),
        ],
    )
}

fn three_tiers(scale: &ExperimentScale) -> Scenario {
    scale.scenario(
        "three-tiers",
        "weights 500, 100 and 50: the smallest floods, the others join",
        vec![
            scale.tenant("gold", "gold", 500, JoinTime::AtSaturation),
            scale.tenant("silver", "silver", 100, JoinTime::AtSaturation),
            scale.tenant("bronze", "bronze", 50, JoinTime::First),
        ],
    )
}

fn fifty_keys(scale: &ExperimentScale) -> Scenario {
    let (cheat, honest) = scale.equals("fifty-keys", "one-key");
    // At least as many clients as keys.
    let cheat = ScenarioTenant { keys: 50, clients: cheat.clients.max(50), ..cheat };
    Scenario {
        level: ScenarioLevel::Tenants,
        budgets: true,
        gain: Some(GainAttempt { cheat: "fifty-keys", honest: "one-key" }),
        ..scale.scenario(
            "fifty-keys",
            "equal weights: one tenant spreads its requests over 50 keys",
            vec![honest, cheat],
        )
    }
}

fn inflated_max_tokens(scale: &ExperimentScale) -> Scenario {
    let (mut cheat, honest) = scale.equals("inflated", "honest");
    cheat.pattern.max_tokens *= 100;
    Scenario {
        level: ScenarioLevel::Tenants,
        budgets: true,
        gain: Some(GainAttempt { cheat: "inflated", honest: "honest" }),
        ..scale.scenario(
            "inflated-max-tokens",
            "equal weights: one tenant asks for a hundred times the tokens that it will use",
            vec![honest, cheat],
        )
    }
}

fn huge_prompts(scale: &ExperimentScale) -> Scenario {
    let (mut huge, small) = scale.equals("huge-prompts", "small-prompts");
    huge.pattern.prompt_tokens =
        scale.huge * (small.pattern.prompt_tokens + small.pattern.output_tokens.1);
    Scenario {
        level: ScenarioLevel::Tenants,
        budgets: true,
        ..scale.scenario(
            "huge-prompts",
            "equal weights: one tenant's prompts are many times the other's",
            vec![small, huge],
        )
    }
}

fn clients_leave(scale: &ExperimentScale) -> Scenario {
    let (mut leaving, staying) = scale.equals("leaving", "staying");
    // The answers are long enough that only the client can have ended them. A request that leaves
    // early was expected to use more, so estimates in flight are large compared with usage, and it
    // takes more requests until they do not matter.
    leaving.pattern.output_tokens = (96, 96);
    leaving.pattern.max_tokens = 96;
    leaving.pattern.manner = ClientBehaviour::LeavesAfter(24);
    let grants_min = 3 * scale.length.grants_min;
    Scenario {
        level: ScenarioLevel::Tenants,
        budgets: true,
        length: PhaseDurations { grants_min, ..scale.length },
        ..scale.scenario(
            "clients-leave",
            "equal weights: one tenant's clients leave in mid-stream",
            vec![staying, leaving],
        )
    }
}

fn worker_dies(scale: &ExperimentScale) -> Scenario {
    let mut scenario = scale.scenario(
        "worker-dies",
        "weights 300 and 100 over two workers: one dies under load and comes back",
        vec![
            scale.tenant("chatbot", "chatbot", 300, JoinTime::AtSaturation),
            scale.tenant("api-batch", "api", 100, JoinTime::First),
        ],
    );
    scenario.backend.workers = vec![("east", CAPACITY / 2), ("west", CAPACITY / 2)];
    scenario.budgets = true;
    scenario.outage = Some(WorkerOutage { worker: "west", dies_percent: 30, back_percent: 60 });
    scenario
}

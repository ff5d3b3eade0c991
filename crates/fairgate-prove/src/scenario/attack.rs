//! Tenants who try to live at the cost of another, and a worker that is hard to live with.
//!
//! Each attack is tried under four policies. Under the two that share tokens it is compared with a run in which an honest
//! tenant of equal weight has the attacker's place; under the two that do not, nobody may be refused or forgotten.

use std::time::Duration;

use fairgate_sim::Fault;

use super::{Ask, Backend, Harm, Length, Level, Manner, Pace, Policy, Scale, Scenario};

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trick {
    Poison,
    Fail,
    LeaveAtFinish,
    ReadNothing,
    CloseConnections,
}

const POLICIES: [Policy; 4] = [
    Policy::Share { partition: false },
    Policy::ShareClasses,
    // Less than what waits, so that it does come to that.
    Policy::Load { ticks_max: 24 },
    Policy::Drr,
];

/// Names under each of [`POLICIES`], and what happens.
const TRICKS: [(Trick, [&str; 4], &str); 5] = [
    (
        Trick::Poison,
        ["poison", "poison-classes", "poison-load", "poison-drr"],
        "one tenant's requests make every worker answer 500",
    ),
    (
        Trick::Fail,
        ["failing", "failing-classes", "failing-load", "failing-drr"],
        "one tenant's requests fail with 400 after five times the time of others",
    ),
    (
        Trick::LeaveAtFinish,
        [
            "leave-at-finish",
            "leave-at-finish-classes",
            "leave-at-finish-load",
            "leave-at-finish-drr",
        ],
        "one tenant lets the model think unseen and leaves before it is told the usage",
    ),
    (
        Trick::ReadNothing,
        ["slow-reader", "slow-reader-classes", "slow-reader-load", "slow-reader-drr"],
        "one tenant's clients do not read their answers",
    ),
    (
        Trick::CloseConnections,
        ["worker-closes", "worker-closes-classes", "worker-closes-load", "worker-closes-drr"],
        "the worker closes connections that it promised to keep",
    ),
];

/// What an ordinary request takes: 10 ms and 24 tokens of 2 ms.
const SERVICE: Duration = Duration::from_millis(58);
/// Few enough that a wait is some times as long as a request, and not so long that a change of it would not be seen.
const CLIENTS: usize = 24;
/// Clients who do not read are away for a while after each answer; so many always have enough others who wait.
const CLIENTS_WHO_DO_NOT_READ: usize = 120;

/// All attacks, under all policies.
pub(super) fn attacks(pace: Pace) -> Vec<Scenario> {
    let scale = scale(pace);
    let of = |(trick, names, title): (Trick, [&'static str; 4], &'static str)| {
        let scale = &scale;
        POLICIES
            .into_iter()
            .zip(names)
            .map(move |(policy, name)| attack(scale, trick, policy, name, title))
    };
    TRICKS.into_iter().flat_map(of).collect()
}

fn scale(pace: Pace) -> Scale {
    let (overlap, grants_min) = match pace {
        Pace::Quick => (1500, 40),
        Pace::Normal => (4000, 60),
        Pace::Long => (30_000, 200),
    };
    Scale {
        clients: CLIENTS,
        backend: Backend {
            // Each has room for all, so that a retry does not wait for the one worker that is left to it.
            workers: vec![("east", super::CAPACITY), ("west", super::CAPACITY)],
            prefill_base: Duration::from_millis(10),
            prefill_per_token: Duration::ZERO,
            decode_per_token: Duration::from_millis(2),
            fault: None,
            prefix_cache_blocks: 0,
        },
        ask: Ask {
            prompt_tokens: 24,
            prompt_times: &[1],
            topics: None,
            output_tokens: (20, 28),
            max_tokens: 32,
            manner: Manner::Honest,
        },
        huge: 1,
        length: Length {
            alone: Duration::from_millis(300),
            overlap: Duration::from_millis(overlap),
            grants_min,
            overlap_max: Duration::from_secs(120),
        },
    }
}

fn attack(
    scale: &Scale,
    trick: Trick,
    policy: Policy,
    name: &'static str,
    title: &'static str,
) -> Scenario {
    // The victim is there first: what it waits for until it has its share at all is not the attacker's doing.
    let (victim, attacker) = scale.equals("victim", "attacker");
    let honest = Scenario {
        level: Level::Tenants,
        policy,
        budgets: true,
        ..scale.scenario(name, title, vec![victim, attacker])
    };
    let mut attacked = honest.clone();
    let tenant = &mut attacked.tenants[1];
    match trick {
        Trick::Poison => {
            tenant.ask.manner = Manner::Fails { status: 500, after: Duration::ZERO };
        }
        Trick::Fail => {
            tenant.ask.manner = Manner::Fails { status: 400, after: 5 * SERVICE };
        }
        Trick::LeaveAtFinish => {
            // As many tokens as others have, of which four are seen, and one for the time until the usage comes.
            tenant.ask.output_tokens = (4, 4);
            tenant.ask.manner = Manner::LeavesAtFinish { hidden: 21 };
        }
        Trick::ReadNothing => {
            tenant.clients = CLIENTS_WHO_DO_NOT_READ;
            tenant.ask.manner = Manner::ReadsNothing { until: 10 * SERVICE };
        }
        Trick::CloseConnections => attacked.backend.fault = Some(Fault::CloseAfter),
    }
    if policy.shares_tokens() {
        attacked.harm = Some(Harm { victim: "victim", honest: Box::new(honest) });
    }
    attacked
}

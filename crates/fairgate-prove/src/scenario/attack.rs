//! Attacks: tenants that try to gain at the cost of another, and a worker that closes connections.
//!
//! Each attack runs under four policies. Under the two policies that share tokens, the attack is
//! compared with a run in which an honest tenant of equal weight replaces the attacker. Under the
//! other two, no tenant may be refused or starve.

use std::time::Duration;

use fairgate_sim::SimFault;

use super::{
    AttackComparison, ClientBehaviour, ExperimentLength, ExperimentScale, PhaseDurations,
    RequestPattern, Scenario, ScenarioBackend, ScenarioLeaseReport, ScenarioLevel, ScenarioPolicy,
};

/// Kind of attack that a scenario tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AttackKind {
    Poison,
    Reset,
    Fail,
    LeaveAtFinish,
    ReadNothing,
    CloseConnections,
    HoldForOneToken,
    Embed,
    LieAboutLeases,
    MeetModelLimit,
}

const POLICIES: [ScenarioPolicy; 4] = [
    ScenarioPolicy::Share { partition: false },
    ScenarioPolicy::ShareClasses,
    // A queued request waits for more ends than this, so the limit is reached.
    ScenarioPolicy::Load { ticks_max: 24 },
    ScenarioPolicy::Drr,
];

/// Attacks. Each entry has the kind, the names of the scenarios, and their title. The names are for [`POLICIES`] in
/// this order; an attack with one name runs only under the first policy.
const TRICKS: [(AttackKind, &[&str], &str); 10] = [
    (
        AttackKind::Poison,
        &["poison", "poison-classes", "poison-load", "poison-drr"],
        "one tenant's requests make every worker answer 500",
    ),
    (
        AttackKind::Reset,
        &["resets", "resets-classes", "resets-load", "resets-drr"],
        "one tenant's requests make every worker reset the connection",
    ),
    (
        AttackKind::Fail,
        &["failing", "failing-classes", "failing-load", "failing-drr"],
        "one tenant's requests fail with 400 after five times the time of others",
    ),
    (
        AttackKind::LeaveAtFinish,
        &[
            "leave-at-finish",
            "leave-at-finish-classes",
            "leave-at-finish-load",
            "leave-at-finish-drr",
        ],
        "one tenant lets the model think unseen and leaves before it is told the usage",
    ),
    (
        AttackKind::ReadNothing,
        &["slow-reader", "slow-reader-classes", "slow-reader-load", "slow-reader-drr"],
        "one tenant's clients do not read their answers",
    ),
    (
        AttackKind::CloseConnections,
        &["worker-closes", "worker-closes-classes", "worker-closes-load", "worker-closes-drr"],
        "the worker closes connections that it promised to keep",
    ),
    (
        AttackKind::HoldForOneToken,
        &["one-token"],
        "one tenant asks for one token, holds its slot five times as long as others, and fails",
    ),
    (
        AttackKind::Embed,
        &["embeddings"],
        "one tenant also embeds long texts, and the clients of the other leave in mid-stream",
    ),
    (
        AttackKind::LieAboutLeases,
        &["lease-lies"],
        "leases: one tenant holds slots five times as long, and reports no tokens and a low limit",
    ),
    (
        AttackKind::MeetModelLimit,
        &["model-limits"],
        "one tenant also asks for another model of the provider, whose limit for the day is used up",
    ),
];

/// Time that an ordinary request takes: 10 ms, plus 24 tokens of 2 ms each.
const SERVICE: Duration = Duration::from_millis(58);
/// Number of clients per tenant. It is large enough for a wait to be a few times as long as a
/// request, and small enough for a change of the wait to be visible.
const CLIENTS: usize = 24;
/// Number of clients of the tenant that does not read. These clients pause after each answer, so
/// more of them are needed to keep requests queued.
const CLIENTS_WHO_DO_NOT_READ: usize = 120;

/// Tokens after which the victim's clients leave in the attack with embeddings ([`AttackKind::Embed`]).
const LEFT_AFTER_TOKENS: u64 = 24;

/// Returns the scenarios of all attacks under all policies.
pub(super) fn attacks(pace: ExperimentLength) -> Vec<Scenario> {
    let scale = scale(pace);
    let of = |(trick, names, title): (AttackKind, &'static [&'static str], &'static str)| {
        let scale = &scale;
        POLICIES
            .into_iter()
            .zip(names)
            .map(move |(policy, &name)| attack(scale, trick, policy, name, title))
    };
    TRICKS.into_iter().flat_map(of).collect()
}

fn scale(pace: ExperimentLength) -> ExperimentScale {
    let (overlap, grants_min) = match pace {
        ExperimentLength::Quick => (1500, 40),
        ExperimentLength::Normal => (4000, 60),
        ExperimentLength::Long => (30_000, 200),
    };
    ExperimentScale {
        clients: CLIENTS,
        backend: ScenarioBackend {
            // Each worker has room for all requests, so that a retry does not wait for the one
            // worker that is left to it.
            workers: vec![("east", super::CAPACITY), ("west", super::CAPACITY)],
            prefill_base: Duration::from_millis(10),
            prefill_per_token: Duration::ZERO,
            decode_per_token: Duration::from_millis(2),
            fault: None,
            prefix_cache_blocks: 0,
        },
        pattern: RequestPattern {
            prompt_tokens: 24,
            prompt_times: &[1],
            topics: None,
            output_tokens: (20, 28),
            max_tokens: 32,
            manner: ClientBehaviour::Honest,
        },
        huge: 1,
        length: PhaseDurations {
            alone: Duration::from_millis(300),
            overlap: Duration::from_millis(overlap),
            grants_min,
            overlap_max: Duration::from_secs(120),
        },
    }
}

fn attack(
    scale: &ExperimentScale,
    trick: AttackKind,
    policy: ScenarioPolicy,
    name: &'static str,
    title: &'static str,
) -> Scenario {
    // The victim starts first, so that its ramp-up is not counted as the attacker's harm.
    let (mut victim, mut attacker) = scale.equals("victim", "attacker");
    if trick == AttackKind::LieAboutLeases {
        let manner =
            ClientBehaviour::LeasesSlots { held: SERVICE, report: ScenarioLeaseReport::Used };
        (victim.pattern.manner, attacker.pattern.manner) = (manner, manner);
    }
    if trick == AttackKind::Embed {
        // An answer that is left is charged for its time in the slot. The answers are long enough
        // that only the client can have ended them.
        (victim.pattern.output_tokens, victim.pattern.max_tokens) = ((96, 96), 96);
        victim.pattern.manner = ClientBehaviour::LeavesAfter(LEFT_AFTER_TOKENS);
    }
    if trick == AttackKind::MeetModelLimit {
        // A separate queue holds the requests that wait in vain.
        attacker.keys = 2;
    }
    let is_leased = trick == AttackKind::LieAboutLeases;
    let mut honest = Scenario {
        level: ScenarioLevel::Tenants,
        policy,
        // Budgets pay less for the time of a lease than the scheduler counts.
        budgets: !is_leased,
        leases: is_leased,
        hosted: trick == AttackKind::MeetModelLimit,
        ..scale.scenario(name, title, vec![victim, attacker])
    };
    if trick == AttackKind::MeetModelLimit {
        honest.backend.workers = vec![("hosted", super::CAPACITY)];
    }
    if trick == AttackKind::Embed {
        // The estimates of answers that are left are large, so it takes more of them until those in
        // flight do not matter.
        honest.length.grants_min *= 3;
    }
    let mut attacked = honest.clone();
    let tenant = &mut attacked.tenants[1];
    match trick {
        AttackKind::Poison => {
            tenant.pattern.manner = ClientBehaviour::Fails { status: 500, after: Duration::ZERO };
        }
        AttackKind::Reset => tenant.pattern.manner = ClientBehaviour::Resets,
        AttackKind::Fail => {
            tenant.pattern.manner = ClientBehaviour::Fails { status: 400, after: 5 * SERVICE };
        }
        AttackKind::LeaveAtFinish => {
            // About as many tokens as other answers: 4 visible and 21 hidden ones, one of which
            // covers the time until the usage is sent.
            tenant.pattern.output_tokens = (4, 4);
            tenant.pattern.manner = ClientBehaviour::LeavesAtFinish { hidden: 21 };
        }
        AttackKind::ReadNothing => {
            tenant.clients = CLIENTS_WHO_DO_NOT_READ;
            tenant.pattern.manner = ClientBehaviour::ReadsNothing { until: 10 * SERVICE };
        }
        AttackKind::HoldForOneToken => {
            tenant.pattern.output_tokens = (1, 1);
            tenant.pattern.max_tokens = 1;
            tenant.pattern.manner = ClientBehaviour::Fails { status: 400, after: 5 * SERVICE };
        }
        AttackKind::Embed => {
            tenant.pattern.manner = ClientBehaviour::Embeds { every: 4, times: 20 }
        }
        AttackKind::LieAboutLeases => {
            let report = ScenarioLeaseReport::NothingAndLowLimits;
            tenant.pattern.manner = ClientBehaviour::LeasesSlots { held: 5 * SERVICE, report };
        }
        AttackKind::MeetModelLimit => {
            tenant.pattern.manner = ClientBehaviour::MeetsModelLimit { every: 2 };
        }
        AttackKind::CloseConnections => attacked.backend.fault = Some(SimFault::CloseAfter),
    }
    if policy.shares_tokens() {
        attacked.harm = Some(AttackComparison { victim: "victim", honest: Box::new(honest) });
    }
    attacked
}

//! Explains in a sentence why one flow went before another.

use fairgate_core::explain::{FlowChoice, FlowStanding, MeteredService, PickRule};
use fairgate_core::units::Tokens;
use fairgate_journal::explain_text::{flow_name, strict_order};

use crate::text_format::{DecimalThousandths, counted};

/// Explains why the node at one level of the path picked its flow.
pub(crate) fn reason(choice: &FlowChoice, cost: Tokens) -> String {
    let flow = flow_name(choice.by, &choice.flow);
    let numbers = numbers(&choice.standing, false);
    let cost = cost.0;
    match choice.rule {
        PickRule::LowestScore => format!("{flow} had the lowest score: {numbers}"),
        PickRule::BelowItsSlots => {
            format!(
                "{flow} had fewer in flight than its slots, and then the lowest score: {numbers}"
            )
        }
        PickRule::Stayed => {
            format!("{flow} kept its turn, for its credit covers the cost of {cost}: {numbers}")
        }
        PickRule::Visited => {
            let covers = match choice.standing {
                FlowStanding::Drr { deficit, .. } if deficit >= u128::from(cost) => "its credit",
                _ => "with one quantum more its credit",
            };
            format!(
                "{flow} was next in the ring, and {covers} covers the cost of {cost}: {numbers}"
            )
        }
        PickRule::Bulk { rounds } => {
            let rounds = counted(rounds, "round");
            format!(
                "no class could pay with one quantum more, so all got {rounds} at once; {flow} was the first to \
                 cover the cost of {cost}, from {numbers}"
            )
        }
        PickRule::LargestLoad => format!("{flow} had the largest load: {numbers}"),
        PickRule::Late => format!("{flow} was late, which goes before all else: {numbers}"),
        PickRule::FirstBand => format!("{flow} was the first class that could go: {numbers}"),
    }
}

/// Describes the flow that would have been picked instead.
pub(crate) fn runner_up(choice: &FlowChoice) -> String {
    match &choice.runner_up {
        None => "no other flow was ready".to_owned(),
        Some((name, standing)) => {
            let flow = flow_name(choice.by, name);
            format!("next would have been {flow}: {}", numbers(standing, true))
        }
    }
}

/// Returns the service that a flow got and was due. Returns `None` if both are still 0, and for load and bands nodes,
/// which promise no shares.
pub(crate) fn metered(standing: &FlowStanding) -> Option<MeteredService> {
    match standing {
        FlowStanding::Drr { meter, .. } | FlowStanding::Share { meter, .. } => {
            Some(*meter).filter(|meter| (meter.got, meter.due.tokens) != (0, 0))
        }
        FlowStanding::Load { .. } | FlowStanding::Bands { .. } => None,
    }
}

/// Formats the numbers that a node compares for a flow. For a runner-up among drr classes, also formats the cost of its
/// first request and the number of rounds until it could pay this cost.
fn numbers(standing: &FlowStanding, is_runner_up: bool) -> String {
    match standing {
        FlowStanding::Drr { deficit, quantum, head_cost, rounds_needed, .. } => {
            let mut text = format!("credit {deficit} tokens, quantum {}", quantum.get());
            if let Some(cost) = head_cost.filter(|_| is_runner_up) {
                text.push_str(&format!(", its first request costs {}", cost.0));
            }
            if let Some(rounds) = rounds_needed.filter(|rounds| is_runner_up && *rounds > 0) {
                text.push_str(&format!(", {} away", counted(rounds, "round")));
            }
            text
        }
        FlowStanding::Share { score, weight, pending, slots, cap, .. } => {
            let mut text = format!("{score} tokens per weight (weight {}", weight.get());
            if *pending > 0 {
                text.push_str(&format!(", {} in flight", counted(*pending, "token")));
            }
            if let Some(slots) = slots {
                text.push_str(&format!(", {}", counted(*slots, "slot")));
            }
            if let Some(cap) = cap {
                text.push_str(&format!(", cap {cap}"));
            }
            text + ")"
        }
        FlowStanding::Load { depth_thousandths, age, load_millionths, alpha } => {
            // A runner-up's load is computed without the winner, so it cannot be compared with the winner's.
            let load = load_millionths.filter(|_| !is_runner_up).map(Millionths);
            let load = load.map_or_else(String::new, |load| format!("{load} of 1, "));
            format!(
                "{load}depth {}, its oldest waits {}, alpha {}",
                DecimalThousandths(*depth_thousandths),
                counted(age.0, "tick"),
                Millionths(u64::from(alpha.millionths()))
            )
        }
        FlowStanding::Bands { goes_before, cap, .. } => {
            let cap = cap.map(|cap| format!(", cap {cap}")).unwrap_or_default();
            format!("{}{cap}", strict_order(goes_before))
        }
    }
}

/// A number of millionths, printed as a decimal without trailing zeros.
struct Millionths(u64);

impl std::fmt::Display for Millionths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let decimal = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.pad(decimal.trim_end_matches('0').trim_end_matches('.'))
    }
}

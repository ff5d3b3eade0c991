//! Why one flow went before another, in a sentence.

use fairgate_core::explain::{Choice, Metered, Rule, Standing};
use fairgate_core::units::Tokens;

use crate::words::{Thousandths, counted, shown};

/// Why one level picked its flow.
pub(crate) fn reason(choice: &Choice, cost: Tokens) -> String {
    let flow = format!("{} {}", choice.by.name(), shown(&choice.flow));
    let numbers = numbers(&choice.standing, false);
    let cost = cost.0;
    match choice.rule {
        Rule::LowestScore => format!("{flow} had the lowest score: {numbers}"),
        Rule::BelowItsSlots => {
            format!(
                "{flow} had fewer in flight than its slots, and then the lowest score: {numbers}"
            )
        }
        Rule::Stayed => {
            format!("{flow} kept its turn, for its credit covers the cost of {cost}: {numbers}")
        }
        Rule::Visited => {
            let covers = match choice.standing {
                Standing::Drr { deficit, .. } if deficit >= u128::from(cost) => "its credit",
                _ => "with one quantum more its credit",
            };
            format!(
                "{flow} was next in the ring, and {covers} covers the cost of {cost}: {numbers}"
            )
        }
        Rule::Bulk { rounds } => {
            let rounds = counted(rounds, "round");
            format!(
                "no class could pay with one quantum more, so all got {rounds} at once; {flow} was the first to \
                 cover the cost of {cost}, from {numbers}"
            )
        }
        Rule::LargestLoad => format!("{flow} had the largest load: {numbers}"),
        Rule::Late => format!("{flow} was late, which goes before all else: {numbers}"),
    }
}

/// Who would have gone had it not been ready.
pub(crate) fn runner_up(choice: &Choice) -> String {
    match &choice.runner_up {
        None => "no other flow was ready".to_owned(),
        Some((name, standing)) => {
            let flow = format!("{} {}", choice.by.name(), shown(name));
            format!("next would have been {flow}: {}", numbers(standing, true))
        }
    }
}

/// What a flow got and was due; nothing where that is still 0, and in a load node, which promises no shares.
pub(crate) fn metered(standing: &Standing) -> Option<Metered> {
    match standing {
        Standing::Drr { meter, .. } | Standing::Share { meter, .. } => {
            Some(*meter).filter(|meter| (meter.got, meter.due.tokens) != (0, 0))
        }
        Standing::Load { .. } => None,
    }
}

/// A flow's numbers; of a runner-up among drr classes also what its first request is short of.
fn numbers(standing: &Standing, is_runner_up: bool) -> String {
    match standing {
        Standing::Drr { deficit, quantum, head_cost, rounds_needed, .. } => {
            let mut text = format!("credit {deficit} tokens, quantum {}", quantum.get());
            if let Some(cost) = head_cost.filter(|_| is_runner_up) {
                text.push_str(&format!(", its first request costs {}", cost.0));
            }
            if let Some(rounds) = rounds_needed.filter(|rounds| is_runner_up && *rounds > 0) {
                text.push_str(&format!(", {} away", counted(rounds, "round")));
            }
            text
        }
        Standing::Share { score, weight, pending, slots, cap, .. } => {
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
        Standing::Load { depth_thousandths, age, load_millionths, alpha } => {
            // A runner-up's is measured without the winner, and says nothing against it.
            let load = load_millionths.filter(|_| !is_runner_up).map(Millionths);
            let load = load.map_or_else(String::new, |load| format!("{load} of 1, "));
            format!(
                "{load}depth {}, its oldest waits {}, alpha {}",
                Thousandths(*depth_thousandths),
                counted(age.0, "tick"),
                Millionths(u64::from(alpha.millionths()))
            )
        }
    }
}

/// Millionths as a decimal without needless zeros.
struct Millionths(u64);

impl std::fmt::Display for Millionths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let decimal = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        f.pad(decimal.trim_end_matches('0').trim_end_matches('.'))
    }
}

//! Refusals for agents that call with a task key.

use std::time::Duration;

use fairgate_money::{Currency, MicroUnits};
use fairgate_store::{LeaseLost, TaskCapReached, TaskCapUnit, UnixMicros, WindowBudgetExhausted};

use super::{Refusal, RefusalCode};

fn lost(message: String) -> Refusal {
    Refusal::new(RefusalCode::TaskKeyLost, message)
}

/// Refuses with 401 because no claim has this task key. The key's task has ended or was given to another agent, or the
/// key never existed.
pub(crate) fn unknown_task_key() -> Refusal {
    lost(
        "This task key is no longer valid: its task has ended, or another agent has it. Stop working on it, and \
         claim a task for a new key."
            .to_owned(),
    )
}

/// Refuses a call because the claim of its task key is not in force. The status is 401 if the claim
/// is over, and 503 if that is not certain yet.
pub(crate) fn task_lost(LeaseLost { task, why, is_over }: &LeaseLost) -> Refusal {
    if *is_over {
        return lost(format!(
            "Task {task:?} is no longer yours: {why}. Stop working on it, and claim a task for a new key."
        ));
    }
    let message = format!(
        "It is not certain whether task {task:?} is still yours: {why}. Try again in a second; a heartbeat renews the lease \
         where it is."
    );
    Refusal::new(RefusalCode::LeaseUnclear, message)
}

/// Refuses with 429 because the cap of a task has too little left for a call.
pub(crate) fn task_cap_reached(reached: &TaskCapReached, currency: Option<Currency>) -> Refusal {
    let TaskCapReached { task, unit, limit, used, reserved, wanted } = reached;
    let shown = |amount: &u64| match unit {
        TaskCapUnit::Tokens => format!("{amount} tokens"),
        TaskCapUnit::Money => match currency {
            Some(currency) => format!("{} {currency}", MicroUnits(*amount)),
            None => MicroUnits(*amount).to_string(),
        },
    };
    let message = format!(
        "Task {task:?} may use at most {}; {} are used, {} are reserved for its other calls, and this call may take {}. \
         Send a smaller max_tokens if some are left, or give the task up: a person can raise its cap and restart it.",
        shown(limit),
        shown(used),
        shown(reserved),
        shown(wanted)
    );
    Refusal::new(RefusalCode::TaskCapReached, message)
}

/// Refuses with 429 because the budget of a project, or of the whole fleet, has too little left for a call.
pub(crate) fn project_budget_exhausted(
    exhausted: &WindowBudgetExhausted,
    now: UnixMicros,
) -> Refusal {
    let WindowBudgetExhausted { project, limit, used, reserved, wanted, room_at } = exhausted;
    let whose = match project {
        Some(project) => format!("project {project:?}"),
        None => "all projects together".to_owned(),
    };
    let stand = format!(
        "The budget of {whose} is {limit} tokens in the window; {used} are used, {reserved} are set aside for tasks and their \
         calls, and this call would take {wanted} more than is set aside for its task."
    );
    let refused = |code, advice: &str| Refusal::new(code, format!("{stand} {advice}"));
    if wanted > limit {
        let advice = "The call is larger than the whole budget: send a smaller max_tokens or a shorter prompt, or ask for a \
                      larger budget.";
        return refused(RefusalCode::ProjectBudgetExhausted, advice);
    }
    if used.saturating_add(*wanted) <= *limit {
        let advice = "Try again when some of those have ended, or send a smaller max_tokens.";
        return refused(RefusalCode::ProjectBudgetReserved, advice);
    }
    let advice =
        "Wait until older use has left the window, or send a smaller max_tokens if some are left.";
    let micros = |at: &UnixMicros| u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0);
    let after = room_at.as_ref().map(|at| Duration::from_micros(micros(at)));
    refused(RefusalCode::ProjectBudgetExhausted, advice).with_retry_after(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_when_use_fades_or_tasks_end_or_never() {
        let refused = |used, reserved, wanted| {
            let exhausted = WindowBudgetExhausted {
                project: Some("web".to_owned()),
                limit: 10,
                used,
                reserved,
                wanted,
                room_at: Some(UnixMicros(2_500_000)),
            };
            let refusal = project_budget_exhausted(&exhausted, UnixMicros(0));
            assert_eq!(refusal.code.as_str(), "project_budget_exhausted");
            (refusal.code.is_retry_pointless(), refusal.retry_after)
        };
        assert_eq!(refused(10, 0, 1), (true, Some(Duration::from_micros(2_500_000))));
        assert_eq!(refused(5, 5, 5), (false, Some(Duration::from_secs(2))));
        assert_eq!(refused(0, 0, 11), (true, None));
    }
}

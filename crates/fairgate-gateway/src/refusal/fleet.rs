//! What is said to agents that call with the key of their task.

use std::time::Duration;

use fairgate_store::{FleetExhausted, LeaseLost, UnixMicros};
use http::StatusCode;

use super::Refusal;

/// When to come back where what is missing is only set aside. Tasks end when they end; nobody knows.
const RESERVED_RETRY: Duration = Duration::from_secs(2);

fn lost(message: String) -> Refusal {
    let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "lease_lost", message);
    Refusal { hopeless: true, ..refusal }
}

/// A task key that no claim has: its task has ended or was given to somebody else, or there never was such a key.
pub(crate) fn unknown_task_key() -> Refusal {
    lost(
        "This task key opens nothing any more: its task has ended, or was given to somebody else. Stop working on it, and \
         claim a task for a new key."
            .to_owned(),
    )
}

/// The claim that a task key was made for is not in force.
pub(crate) fn task_lost(LeaseLost { task, why }: &LeaseLost) -> Refusal {
    lost(format!(
        "Task {task:?} is no longer yours: {why}. Stop working on it, and claim a task for a new key."
    ))
}

/// The budget of a project, or of the fleet as a whole, has too little left for a call.
pub(crate) fn project_budget_exhausted(exhausted: &FleetExhausted, now: UnixMicros) -> Refusal {
    let FleetExhausted { project, limit, used, reserved, wanted, room_at } = exhausted;
    let whose = match project {
        Some(project) => format!("project {project:?}"),
        None => "all projects together".to_owned(),
    };
    let stand = format!(
        "The budget of {whose} is {limit} tokens in the window; {used} are used, {reserved} are set aside for tasks and their \
         calls, and this call would take {wanted} more than is set aside for its task."
    );
    let refused = |advice: &str, after| {
        let message = format!("{stand} {advice}");
        let code = "project_budget_exhausted";
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, code, message).after(after)
    };
    if wanted > limit {
        let advice = "It never fits: send a smaller max_tokens or a shorter prompt, or ask for a larger budget.";
        return Refusal { hopeless: true, ..refused(advice, None) };
    }
    if used.saturating_add(*wanted) <= *limit {
        let advice = "Try again when some of those have ended, or send a smaller max_tokens.";
        return refused(advice, Some(RESERVED_RETRY));
    }
    let advice =
        "Wait until older use has left the window, or send a smaller max_tokens if some are left.";
    let micros = |at: &UnixMicros| u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0);
    let after = room_at.as_ref().map(|at| Duration::from_micros(micros(at)));
    Refusal { hopeless: true, ..refused(advice, after) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_when_use_fades_or_tasks_end_or_never() {
        let refused = |used, reserved, wanted| {
            let exhausted = FleetExhausted {
                project: Some("web".to_owned()),
                limit: 10,
                used,
                reserved,
                wanted,
                room_at: Some(UnixMicros(2_500_000)),
            };
            let refusal = project_budget_exhausted(&exhausted, UnixMicros(0));
            assert_eq!(refusal.problem.code, "project_budget_exhausted");
            (refusal.hopeless, refusal.retry_after)
        };
        assert_eq!(refused(10, 0, 1), (true, Some(Duration::from_micros(2_500_000))));
        assert_eq!(refused(5, 5, 5), (false, Some(RESERVED_RETRY)));
        assert_eq!(refused(0, 0, 11), (true, None));
    }
}

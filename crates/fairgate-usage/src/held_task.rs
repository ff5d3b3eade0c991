//! The states in which an agent holds a task.

/// Expands to the SQL list of the states in which an agent holds a task, for `state IN` and [`concat!`].
#[macro_export]
macro_rules! held_states {
    () => {
        "('ASSIGNED', 'IN_PROGRESS')"
    };
}

/// SQL list of the states in which an agent holds a task, for `state IN`.
pub const HELD_STATES: &str = held_states!();

/// Returns whether an agent holds a task that is in this state, as the database spells the state.
pub fn is_held(state: &str) -> bool {
    let in_list = |word: &str| word.trim_matches(['(', ')', ' ', '\'']) == state;
    HELD_STATES.split(',').any(in_list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_of_states_are_held() {
        assert!(is_held("ASSIGNED") && is_held("IN_PROGRESS"));
        for state in ["READY", "PAUSED", "assigned", "ASSIGNED'", "IN", "", "'"] {
            assert!(!is_held(state), "{state:?}");
        }
    }
}

//! Scenarios with deadlines. Requests that cannot be served in time are refused, and the earliest
//! deadline goes first.

use super::{
    ClientBehaviour, ExperimentLength, JoinTime, Scenario, ScenarioPolicy, ScenarioTenant,
};

/// Returns all scenarios with deadlines.
pub(super) fn deadlines(pace: ExperimentLength) -> Vec<Scenario> {
    let scale = pace.scale();
    // Half of the pool serves about half of these requests in time.
    let deadlines_ms: &[u64] = match pace {
        ExperimentLength::Quick | ExperimentLength::Normal => &[100, 300],
        ExperimentLength::Long => &[2000, 5000],
    };
    let mut hurried: ScenarioTenant =
        scale.tenant("hurried", "hurried", 100, JoinTime::AtSaturation);
    hurried.pattern.manner = ClientBehaviour::HasDeadlines { deadlines_ms };
    let patient = scale.tenant("patient", "patient", 100, JoinTime::First);
    vec![Scenario {
        policy: ScenarioPolicy::Edf,
        ..scale.scenario(
            "deadlines",
            "one tenant's clients wait for two deadlines in turn, the other's for as long as it takes",
            vec![hurried, patient],
        )
    }]
}

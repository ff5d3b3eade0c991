//! Scenarios with classes in a strict order. A class at its cap leaves exactly the other slots to
//! the classes below.

use super::{ExperimentLength, JoinTime, Scenario, ScenarioLevel, ScenarioPolicy, ScenarioTenant};

/// Caps of all bands except the last, which gets the rest of the 8 slots.
const CAPS: &[u64] = &[4, 2];

/// Returns all scenarios with strict priority.
pub(super) fn bands(pace: ExperimentLength) -> Vec<Scenario> {
    let scale = pace.scale();
    // The weight of a tenant is the number of slots that its band holds while all bands have work.
    let tenant = |name, slots, joins| ScenarioTenant {
        class: Some(name),
        ..scale.tenant(name, "all", slots, joins)
    };
    vec![Scenario {
        policy: ScenarioPolicy::Bands { caps: CAPS },
        level: ScenarioLevel::Tenants,
        ..scale.scenario(
            "bands",
            "a strict order with caps of 4 and 2 over 8 slots: the last class floods, the others join",
            vec![
                tenant("chat", 4, JoinTime::AtSaturation),
                tenant("agents", 2, JoinTime::AtSaturation),
                tenant("batch", 2, JoinTime::First),
            ],
        )
    }]
}

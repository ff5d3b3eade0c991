//! Converts the rights of keys and projects between the store and the API.

use fairgate_api::{RightsBody, RightsPatchBody, WeightNumber};
use fairgate_store::{KeyRights, RightsPatch};

/// Converts rights to the form of the API.
pub fn rights_body(rights: &KeyRights) -> RightsBody {
    let KeyRights {
        models,
        classes,
        priority_max,
        weight_max_milli,
        workers,
        may_pin,
        may_lease,
        may_use_foreign_ids,
        taints,
        deadline_ms,
        deadline_min_ms,
    } = rights.clone();
    RightsBody {
        models,
        classes,
        priority_max,
        weight_max: weight_max_milli.and_then(WeightNumber::from_thousandths),
        workers,
        may_pin,
        may_lease,
        may_use_foreign_ids,
        taints,
        deadline_ms,
        deadline_min_ms,
    }
}

/// Converts a change of rights to the form of the store.
pub(crate) fn rights_patch(body: RightsPatchBody) -> RightsPatch {
    let RightsPatchBody {
        models,
        classes,
        priority_max,
        weight_max,
        workers,
        may_pin,
        may_lease,
        may_use_foreign_ids,
        taints,
        deadline_ms,
        deadline_min_ms,
    } = body;
    RightsPatch {
        models,
        classes,
        priority_max,
        weight_max_milli: weight_max.map(|most| most.map(|weight| u64::from(weight.thousandths()))),
        workers,
        may_pin,
        may_lease,
        may_use_foreign_ids,
        taints,
        deadline_ms,
        deadline_min_ms,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_reaches_the_stored_rights_and_the_body_shows_them() {
        let patch = RightsPatchBody {
            classes: Some(None),
            may_lease: Some(true),
            priority_max: Some(5),
            weight_max: Some(WeightNumber::from_thousandths(2500)),
            ..RightsPatchBody::default()
        };
        let rights = KeyRights::default().patched(rights_patch(patch));
        let expected = KeyRights {
            classes: None,
            may_lease: true,
            priority_max: 5,
            weight_max_milli: Some(2500),
            ..KeyRights::default()
        };
        assert_eq!(rights, expected);
        let body = rights_body(&rights);
        assert_eq!(body.weight_max, WeightNumber::from_thousandths(2500));
        assert_eq!((body.classes, body.may_lease, body.priority_max), (None, true, 5));
    }
}

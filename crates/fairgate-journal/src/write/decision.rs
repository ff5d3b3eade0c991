//! The decisions.

use fairgate_core::decision::{Decision, Grant, Reject};
use fairgate_core::units::Micros;

use crate::write::explain::{place, why};
use crate::write::json::Json;

/// Writes a decision's line.
pub(crate) fn decision(json: &mut Json, at: Micros, decision: &Decision) {
    let (name, id) = match decision {
        Decision::Grant(grant) => ("grant", &grant.id),
        Decision::Reject(reject) => ("reject", &reject.id),
        Decision::Expire { id, .. } => ("expire", id),
    };
    json.object(|json| {
        json.field("at", at.0);
        json.text_field("decision", name);
        json.text_field("id", id);
        match decision {
            Decision::Grant(it) => grant(json, it),
            Decision::Reject(it) => reject(json, it),
            Decision::Expire { .. } => {}
        }
    });
}

fn grant(json: &mut Json, grant: &Grant) {
    json.field("waited_us", grant.waited.0);
    json.optional("brownout", grant.brownout);
    place(json, grant.place.as_ref());
    if let Some(numbers) = &grant.why {
        why(json.name("why"), numbers);
    }
}

fn reject(json: &mut Json, reject: &Reject) {
    json.text_field("reason", reject.reason.code());
    if let Some(limit) = &reject.limit {
        if let Some(class) = &limit.class {
            json.text_field("class", class);
        }
        json.field("current", limit.current);
        json.field("limit", limit.limit);
    }
}

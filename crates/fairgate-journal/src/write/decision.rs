//! Writes decisions, each as one line.

use fairgate_core::decision::{Decision, Grant, RejectedRequest};
use fairgate_core::units::Micros;

use crate::write::explain::{place, why};
use crate::write::json::JsonWriter;

/// Writes the line of a decision.
pub(crate) fn decision(json: &mut JsonWriter, at: Micros, decision: &Decision) {
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

fn grant(json: &mut JsonWriter, grant: &Grant) {
    json.field("waited_us", grant.waited.0);
    json.optional("brownout", grant.brownout);
    place(json, grant.place.as_ref());
    if let Some(numbers) = &grant.why {
        why(json.name("why"), numbers);
    }
}

fn reject(json: &mut JsonWriter, reject: &RejectedRequest) {
    json.text_field("reason", reject.reason.code());
    if let Some(limit) = &reject.limit {
        if let Some(class) = &limit.class {
            json.text_field("class", class);
        }
        json.field("current", limit.current);
        json.field("limit", limit.limit);
    }
}

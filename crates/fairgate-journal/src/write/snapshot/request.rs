//! Writes the requests of a snapshot.

use fairgate_core::snapshot::{InFlightSnapshot, RequestSnapshot};

use crate::write::event::{attributes, cached, places};
use crate::write::json::{JsonDecimal, JsonWriter};

/// Writes the fields of a request.
pub(super) fn request(json: &mut JsonWriter, request: &RequestSnapshot) {
    json.field("handle", request.handle);
    json.text_field("id", &request.id);
    json.field("seq", request.seq);
    json.field("at", request.at.0);
    json.field("tick", request.tick.0);
    json.field("cost", request.cost.0);
    json.field("input", request.input.0);
    json.field("cached_best_tokens", request.cached_best.0);
    json.field("quota", request.quota.0);
    json.field("priority", request.priority);
    json.field("weight", JsonDecimal { units: request.weight.thousandths(), scale: 1000 });
    attributes(json, &request.attributes);
    cached(json, &request.cached);
    places(json, request.pin.as_ref(), request.allow.as_deref(), &request.requires);
    json.optional("timeout_us", request.timeout.map(|t| t.0));
    if let Some(it) = &request.flight {
        json.name("flight").object(|json| flight(json, it));
    }
}

fn flight(json: &mut JsonWriter, flight: &InFlightSnapshot) {
    json.field("granted_at_us", flight.granted_at.0);
    json.field("number", flight.number);
    json.field("prefill_tokens", flight.prefill.0);
    if let Some(generations) = &flight.generations {
        json.name("generations").list(generations, JsonWriter::display);
    }
    if let Some((worker, rank)) = flight.place {
        json.name("place").object(|json| {
            json.field("worker_number", worker);
            json.field("rank", rank);
        });
    }
    if let Some((epoch, units)) = flight.taken {
        json.name("taken").object(|json| {
            json.field("epoch", epoch);
            json.wide_field("units", units);
        });
    }
}

//! Writes events, each as one line.

use std::sync::Arc;

use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::{Event, Pin, Submit};
use fairgate_core::units::{Micros, TaskWeight, Tokens};

use crate::write::header::worker;
use crate::write::json::{JsonDecimal, JsonWriter};
use crate::write::policy::node;

/// Writes the line of an event.
pub(crate) fn event(json: &mut JsonWriter, at: Micros, event: &Event) {
    json.object(|json| {
        json.field("at", at.0);
        fields(json, event);
    });
}

/// Writes the fields of an event, except its time.
pub(crate) fn fields(json: &mut JsonWriter, event: &Event) {
    json.text_field("event", name(event));
    match event {
        Event::Submit(it) => submit(json, it),
        Event::Release { id, tokens, quota } => {
            json.text_field("id", id);
            json.optional("tokens", tokens.map(|t| t.0));
            json.optional("quota", quota.map(|t| t.0));
        }
        Event::Cancel { id } | Event::FirstToken { id } => json.text_field("id", id),
        Event::Hold { by, flow: name } | Event::Resume { by, flow: name } => {
            flow(json, *by, name);
        }
        Event::Capacity { slots } => json.field("slots", slots),
        Event::Tick => {}
        Event::Weight { by, flow: name, weight } => {
            flow(json, *by, name);
            json.field("weight", weight.get());
        }
        Event::Policy(policy) => node(json.name("policy"), policy.root()),
        Event::Cap { by, flow: name, slots } => {
            flow(json, *by, name);
            json.optional("slots", *slots);
        }
        Event::Worker(it) => {
            json.text_field("name", &it.name);
            if let Some(state) = it.state {
                json.text_field("state", state.name());
            }
            worker(json, it);
        }
    }
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Submit(_) => "submit",
        Event::Release { .. } => "release",
        Event::Cancel { .. } => "cancel",
        Event::Hold { .. } => "hold",
        Event::Resume { .. } => "resume",
        Event::Capacity { .. } => "capacity",
        Event::Tick => "tick",
        Event::Weight { .. } => "weight",
        Event::Policy(_) => "policy",
        Event::Cap { .. } => "cap",
        Event::Worker(_) => "worker",
        Event::FirstToken { .. } => "first_token",
    }
}

/// Writes the attribute and name of a flow.
pub(crate) fn flow(json: &mut JsonWriter, by: Attribute, name: &str) {
    json.text_field("by", by.name());
    json.text_field("flow", name);
}

fn submit(json: &mut JsonWriter, submit: &Submit) {
    json.text_field("id", &submit.id);
    attributes(json, &submit.attributes);
    json.optional("cost", submit.cost.map(|t| t.0));
    if submit.priority != 0 {
        json.field("priority", submit.priority);
    }
    if submit.weight != TaskWeight::ONE {
        json.field("weight", JsonDecimal { units: submit.weight.thousandths(), scale: 1000 });
    }
    json.optional("input", submit.input.map(|t| t.0));
    cached(json, &submit.cached);
    places(json, submit.pin.as_ref(), submit.allow.as_deref(), &submit.requires);
    json.optional("quota", submit.quota.map(|t| t.0));
    json.optional("timeout_us", submit.timeout.map(|t| t.0));
}

/// Writes the attributes that a request has.
pub(crate) fn attributes(json: &mut JsonWriter, attributes: &Attributes) {
    for attribute in Attribute::ALL {
        if let Some(value) = attributes.get(attribute) {
            json.text_field(attribute.name(), value);
        }
    }
}

/// Writes the cached tokens of a request, if there are any.
pub(crate) fn cached(json: &mut JsonWriter, cached: &[(Arc<str>, Tokens)]) {
    if cached.is_empty() {
        return;
    }
    json.name("cached").object(|json| {
        for (worker, tokens) in cached {
            json.field(worker, tokens.0);
        }
    });
}

/// Writes the fields that say which workers may run a request, which are its pin, its allow-list and the taints it
/// requires.
pub(crate) fn places(
    json: &mut JsonWriter,
    pin: Option<&Pin>,
    allow: Option<&[Box<str>]>,
    requires: &[Box<str>],
) {
    if let Some(pin) = pin {
        json.name("pin").object(|json| {
            json.text_field("worker", &pin.worker);
            json.optional("rank", pin.rank);
        });
    }
    if let Some(allow) = allow {
        json.texts("allow", allow);
    }
    if !requires.is_empty() {
        json.texts("requires", requires);
    }
}

//! The policy tree.

use std::collections::BTreeMap;

use fairgate_core::policy::{
    BusyThresholds, Class, DEFAULT_WEIGHT, Drr, Inside, Load, Node, Order, Policy, Share,
};
use fairgate_core::units::Alpha;

use crate::write::json::{Decimal, Json};

/// A policy as text, on one line, as [`parse_policy`](crate::parse_policy) reads it.
pub fn format_policy(policy: &Policy) -> String {
    let mut json = Json::default();
    node(&mut json, policy.root());
    json.into_string()
}

/// Writes a node as the next value.
pub(crate) fn node(json: &mut Json, node: &Node) {
    json.object(|json| {
        json.name(node.kind()).object(|json| {
            json.text_field("by", node.by().name());
            match node {
                Node::Drr(node) => drr(json, node),
                Node::Share(node) => share(json, node),
                Node::Load(node) => load(json, node),
            }
        });
    });
}

/// Writes the thresholds that are stated.
pub(crate) fn busy(json: &mut Json, busy: &BusyThresholds) {
    json.optional("busy_tokens", busy.tokens.map(|t| t.0));
    let fraction = busy.fraction.map(|f| Decimal { units: f.thousandths(), scale: 1000 });
    json.optional("busy_fraction", fraction);
}

fn drr(json: &mut Json, drr: &Drr) {
    json.name("classes").list(&drr.classes, class);
    if let Some(default) = &drr.default {
        json.text_field("default", default);
    }
    flag(json, "settle", drr.settle);
}

fn class(json: &mut Json, class: &Class) {
    json.object(|json| {
        json.text_field("name", &class.name);
        json.field("quantum", class.quantum.get());
        busy(json, &class.busy);
        let limits = &class.limits;
        json.optional("limit_requests_per_worker", limits.requests_per_worker);
        let input = limits.input_tokens_per_worker.map(|t| t.0);
        json.optional("limit_input_tokens_per_worker", input);
        let cached = limits.cached_tokens_per_worker.map(|t| t.0);
        json.optional("limit_cached_tokens_per_worker", cached);
        inside(json, &class.inside);
    });
}

fn share(json: &mut Json, share: &Share) {
    by_name(json, "weights", &share.weights, |weight| weight.get());
    if share.default_weight.get() != DEFAULT_WEIGHT {
        json.field("default_weight", share.default_weight.get());
    }
    by_name(json, "caps", &share.caps, |cap| *cap);
    json.optional("default_cap", share.default_cap);
    flag(json, "partition", share.partition);
    inside(json, &share.inside);
}

fn load(json: &mut Json, load: &Load) {
    if load.alpha != Alpha::BALANCED {
        let alpha = Decimal { units: load.alpha.millionths(), scale: Alpha::SCALE };
        json.field("alpha", alpha);
    }
    flag(json, "auto_tune", load.auto_tune);
    json.optional("max_wait_ticks", load.max_wait_ticks);
    inside(json, &load.inside);
}

fn inside(json: &mut Json, inside: &Inside) {
    match inside {
        Inside::Queue(Order::Fcfs) => {}
        Inside::Queue(Order::Wspt) => json.text_field("queue", "wspt"),
        Inside::Node(inner) => node(json.name("inside"), inner),
    }
}

fn flag(json: &mut Json, name: &str, set: bool) {
    if set {
        json.field(name, true);
    }
}

fn by_name<T>(json: &mut Json, name: &str, values: &BTreeMap<Box<str>, T>, number: fn(&T) -> u64) {
    if !values.is_empty() {
        json.name(name).object(|json| {
            for (flow, value) in values {
                json.field(flow, number(value));
            }
        });
    }
}

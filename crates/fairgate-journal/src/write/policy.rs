//! The policy tree.

use std::collections::BTreeMap;

use fairgate_core::policy::{
    BusyThresholds, ClassLimits, Drr, Inside, Load, Node, Order, Policy, Queue, Share, ShareClass,
};
use fairgate_core::units::{Alpha, Weight};

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
    json.name("classes").list(&drr.classes, |json, class| {
        json.object(|json| {
            json.text_field("name", &class.name);
            json.field("quantum", class.quantum.get());
            busy(json, &class.busy);
            limits(json, &class.limits);
            inside(json, &class.inside);
        });
    });
    default(json, drr.default.as_deref());
}

fn limits(json: &mut Json, limits: &ClassLimits) {
    json.optional("limit_requests_per_worker", limits.requests_per_worker);
    let input = limits.input_tokens_per_worker.map(|t| t.0);
    json.optional("limit_input_tokens_per_worker", input);
    let cached = limits.cached_tokens_per_worker.map(|t| t.0);
    json.optional("limit_cached_tokens_per_worker", cached);
}

fn share(json: &mut Json, share: &Share) {
    if !share.classes.is_empty() {
        json.name("classes").list(&share.classes, |json, class| {
            json.object(|json| share_class(json, class, &share.inside));
        });
    }
    default(json, share.default.as_deref());
    by_name(json, "weights", &share.weights, |weight| weight.get());
    if share.default_weight != Weight::DEFAULT {
        json.field("default_weight", share.default_weight.get());
    }
    by_name(json, "caps", &share.caps, |cap| *cap);
    json.optional("default_cap", share.default_cap);
    flag(json, "partition", share.partition);
    inside(json, &share.inside);
}

fn share_class(json: &mut Json, class: &ShareClass, node_inside: &Inside) {
    json.text_field("name", &class.name);
    json.field("weight", class.weight.get());
    json.optional("cap", class.cap);
    busy(json, &class.busy);
    limits(json, &class.limits);
    // A class that says nothing has inside it what the node has.
    if class.inside != *node_inside {
        stated_inside(json, &class.inside);
    }
}

fn default(json: &mut Json, class: Option<&str>) {
    if let Some(class) = class {
        json.text_field("default", class);
    }
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

/// Writes what is inside a flow, where it is not the queue that nothing need be said about.
fn inside(json: &mut Json, inside: &Inside) {
    if *inside != Inside::FCFS {
        stated_inside(json, inside);
    }
}

fn stated_inside(json: &mut Json, inside: &Inside) {
    match inside {
        Inside::Queue(it) => queue(json.name("queue"), it),
        Inside::Node(inner) => node(json.name("inside"), inner),
    }
}

fn queue(json: &mut Json, queue: &Queue) {
    let Some(max_wait) = queue.max_wait else { return json.text(order(queue.order)) };
    json.object(|json| {
        if queue.order != Order::default() {
            json.text_field("order", order(queue.order));
        }
        json.field("max_wait_us", max_wait.0);
    });
}

fn order(order: Order) -> &'static str {
    match order {
        Order::Fcfs => "fcfs",
        Order::Wspt => "wspt",
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

//! Writes a policy tree as JSON.

use std::collections::BTreeMap;

use fairgate_core::policy::{
    BandClass, BandsPolicy, BusyThresholds, ClassLimits, DrrPolicy, FlowInside, LoadPolicy, Policy,
    PolicyNode, QueueOrder, QueuePolicy, ShareClass, SharePolicy,
};
use fairgate_core::units::{Alpha, Weight};

use crate::write::json::{JsonDecimal, JsonWriter};

/// Formats a policy as text on one line, which [`parse_policy`](crate::parse_policy) can read.
pub fn format_policy(policy: &Policy) -> String {
    let mut json = JsonWriter::default();
    node(&mut json, policy.root());
    json.into_string()
}

/// Writes a node as the next value.
pub(crate) fn node(json: &mut JsonWriter, node: &PolicyNode) {
    json.object(|json| {
        json.name(node.kind()).object(|json| {
            json.text_field("by", node.by().name());
            match node {
                PolicyNode::Drr(node) => drr(json, node),
                PolicyNode::Share(node) => share(json, node),
                PolicyNode::Load(node) => load(json, node),
                PolicyNode::Bands(node) => bands(json, node),
            }
        });
    });
}

/// Writes the busy thresholds that are stated. An absent threshold is left out.
pub(crate) fn busy(json: &mut JsonWriter, busy: &BusyThresholds) {
    json.optional("busy_tokens", busy.tokens.map(|t| t.0));
    let fraction = busy.fraction.map(|f| JsonDecimal { units: f.thousandths(), scale: 1000 });
    json.optional("busy_fraction", fraction);
}

fn drr(json: &mut JsonWriter, drr: &DrrPolicy) {
    json.name("classes").list(&drr.classes, |json, class| {
        json.object(|json| {
            json.text_field("name", &class.name);
            json.field("quantum", class.quantum.get());
            busy(json, &class.busy);
            limits(json, &class.limits);
            class_inside(json, &class.inside, &drr.inside);
        });
    });
    default(json, drr.default.as_deref());
    inside(json, &drr.inside);
}

fn limits(json: &mut JsonWriter, limits: &ClassLimits) {
    json.optional("limit_requests_per_worker", limits.requests_per_worker);
    let input = limits.input_tokens_per_worker.map(|t| t.0);
    json.optional("limit_input_tokens_per_worker", input);
    let cached = limits.cached_tokens_per_worker.map(|t| t.0);
    json.optional("limit_cached_tokens_per_worker", cached);
}

fn share(json: &mut JsonWriter, share: &SharePolicy) {
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

fn share_class(json: &mut JsonWriter, class: &ShareClass, node_inside: &FlowInside) {
    json.text_field("name", &class.name);
    json.field("weight", class.weight.get());
    json.optional("cap", class.cap);
    busy(json, &class.busy);
    limits(json, &class.limits);
    class_inside(json, &class.inside, node_inside);
}

fn bands(json: &mut JsonWriter, bands: &BandsPolicy) {
    json.name("classes").list(&bands.classes, |json, class| {
        json.object(|json| band_class(json, class, &bands.inside));
    });
    default(json, bands.default.as_deref());
    inside(json, &bands.inside);
}

fn band_class(json: &mut JsonWriter, class: &BandClass, node_inside: &FlowInside) {
    json.text_field("name", &class.name);
    json.optional("cap", class.cap);
    busy(json, &class.busy);
    limits(json, &class.limits);
    class_inside(json, &class.inside, node_inside);
}

/// Writes the inside of a class, unless it equals the inside of the class's node.
fn class_inside(json: &mut JsonWriter, inside: &FlowInside, node_inside: &FlowInside) {
    if inside != node_inside {
        stated_inside(json, inside);
    }
}

fn default(json: &mut JsonWriter, class: Option<&str>) {
    if let Some(class) = class {
        json.text_field("default", class);
    }
}

fn load(json: &mut JsonWriter, load: &LoadPolicy) {
    if load.alpha != Alpha::BALANCED {
        let alpha = JsonDecimal { units: load.alpha.millionths(), scale: Alpha::SCALE };
        json.field("alpha", alpha);
    }
    flag(json, "auto_tune", load.auto_tune);
    json.optional("max_wait_ticks", load.max_wait_ticks);
    inside(json, &load.inside);
}

/// Writes the inside of a flow, unless it is the default, a first-come queue.
fn inside(json: &mut JsonWriter, inside: &FlowInside) {
    if *inside != FlowInside::FCFS {
        stated_inside(json, inside);
    }
}

fn stated_inside(json: &mut JsonWriter, inside: &FlowInside) {
    match inside {
        FlowInside::Queue(it) => queue(json.name("queue"), it),
        FlowInside::Node(inner) => node(json.name("inside"), inner),
    }
}

fn queue(json: &mut JsonWriter, queue: &QueuePolicy) {
    let Some(max_wait) = queue.max_wait else { return json.text(queue.order.name()) };
    json.object(|json| {
        if queue.order != QueueOrder::default() {
            json.text_field("order", queue.order.name());
        }
        json.field("max_wait_us", max_wait.0);
    });
}

fn flag(json: &mut JsonWriter, name: &str, set: bool) {
    if set {
        json.field(name, true);
    }
}

fn by_name<T>(
    json: &mut JsonWriter,
    name: &str,
    values: &BTreeMap<Box<str>, T>,
    number: fn(&T) -> u64,
) {
    if !values.is_empty() {
        json.name(name).object(|json| {
            for (flow, value) in values {
                json.field(flow, number(value));
            }
        });
    }
}

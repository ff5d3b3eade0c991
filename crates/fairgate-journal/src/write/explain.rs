//! Writes the explanation of a grant, the location of a request, and the fairness of flows.
//!
//! Names of fields include their units. Tokens per weight are written as text, which is a decimal with three places as
//! the core prints it. All other numbers are ordinary JSON numbers, however large. Absent values are left out.

use std::sync::Arc;

use fairgate_core::decision::GrantedPlace;
use fairgate_core::explain::{
    FlowChoice, FlowStanding, GrantExplanation, MeteredService, PickRule, RequestLocation,
    RequestsAhead, WaitingLevel, WaitingRequest,
};
use fairgate_core::fairness::{FlowFairness, LagWithBound, NodeFairness};
use fairgate_core::units::{Alpha, PerWeight};

use crate::write::event::flow;
use crate::write::json::{JsonDecimal, JsonWriter};

/// Writes the location of a request, queued or in flight, as a JSON object on one line.
///
/// A queued request is `{"state":"waiting","submitted_at_us":…,"cost":…,"levels":[…],"ahead_in_queue":…,"ahead":[…],
/// "grants_ahead":…}`, without `grants_ahead` if the request would never be granted unless something changes. Each
/// level is `{"by":…,"flow":…,"readiness":"ready"|"held"|"at_cap"|"blocked","waiting":…,"in_flight":…,"standing":{…}}`,
/// the standing as in a decision's `why`; each of `ahead` is `{"path":[…],"requests":…,"tokens":…}`.
///
/// A request in flight is `{"state":"in_flight","granted_at_us":…,"worker":…,"rank":…}`. The last two fields are
/// present only if the pool has workers.
pub fn write_request_location(whereabouts: &RequestLocation) -> String {
    let mut json = JsonWriter::default();
    json.object(|json| match whereabouts {
        RequestLocation::Waiting(it) => waiting(json, it),
        RequestLocation::InFlight { granted_at, place: it } => {
            json.text_field("state", "in_flight");
            json.field("granted_at_us", granted_at.0);
            place(json, it.as_ref());
        }
    });
    json.into_string()
}

/// Writes the tokens that every flow got and those that it was due, as a JSON list on one line with one object per
/// node: `{"path":[…],"kind":"share"|"drr"|"load"|"bands","by":…,"flows":[…]}`.
///
/// Each flow is `{"flow":…,"weight":…,"waiting":…,"in_flight":…,"got_tokens":…,"due_tokens":…,"difference_tokens":…,
/// "bound_tokens":…,"within_bound":…,"cap_use":…,"lag_tokens_per_weight":"…","lag_bound_tokens_per_weight":
/// {"least":"…","most":"…"}}`:
/// - `weight` and the four fields from `due_tokens` to `within_bound` are absent in a load or bands node, which
///   promises no shares;
/// - `goes_before`, a list of the classes that wait while this one is ready, is present only in a bands node;
/// - `cap_use` is a decimal with three places, present if the flow has a cap and a request has waited in the flow since
///   the cap was set;
/// - `lag_tokens_per_weight` is present if a request waits in a flow of a share or drr node; its bound is absent in a
///   partitioned share node.
pub fn write_fairness(nodes: &[NodeFairness]) -> String {
    let mut json = JsonWriter::default();
    json.list(nodes, |json, node| {
        json.object(|json| {
            path(json, &node.path);
            json.text_field("kind", node.kind);
            json.text_field("by", node.by.name());
            json.name("flows").list(&node.flows, |json, it| {
                json.object(|json| flow_fairness(json, it));
            });
        });
    });
    json.into_string()
}

/// Writes the numbers that decided a grant as the next value.
pub(crate) fn why(json: &mut JsonWriter, why: &GrantExplanation) {
    json.object(|json| {
        json.field("cost", why.cost.0);
        json.name("levels").list(&why.levels, |json, it| json.object(|json| choice(json, it)));
    });
}

/// Writes the worker and the rank of a request; writes nothing if they are not known.
pub(crate) fn place(json: &mut JsonWriter, place: Option<&GrantedPlace>) {
    if let Some(place) = place {
        json.text_field("worker", &place.worker);
        json.field("rank", place.rank);
    }
}

fn choice(json: &mut JsonWriter, choice: &FlowChoice) {
    flow(json, choice.by, &choice.flow);
    json.text_field("rule", rule(choice.rule));
    if let PickRule::Bulk { rounds } = choice.rule {
        json.field("bulk_rounds", rounds);
    }
    standing(json, &choice.standing);
    if let Some((name, its)) = &choice.runner_up {
        json.name("runner_up").object(|json| {
            json.text_field("flow", name);
            standing(json, its);
        });
    }
}

fn rule(rule: PickRule) -> &'static str {
    match rule {
        PickRule::Stayed => "stayed",
        PickRule::Visited => "visited",
        PickRule::Bulk { .. } => "bulk",
        PickRule::LowestScore => "lowest_score",
        PickRule::BelowItsSlots => "below_its_slots",
        PickRule::LargestLoad => "largest_load",
        PickRule::Late => "late",
        PickRule::FirstBand => "first_band",
    }
}

fn standing(json: &mut JsonWriter, standing: &FlowStanding) {
    json.name("standing").object(|json| match *standing {
        FlowStanding::Drr { deficit, quantum, head_cost, rounds_needed, meter } => {
            json.text_field("kind", "drr");
            json.field("deficit_tokens", deficit);
            json.field("quantum_tokens", quantum.get());
            json.optional("head_cost_tokens", head_cost.map(|t| t.0));
            json.optional("rounds_needed", rounds_needed);
            metered(json, meter);
        }
        FlowStanding::Share {
            score,
            settled,
            virtual_time,
            weight,
            pending,
            slots,
            cap,
            new,
            meter,
        } => {
            json.text_field("kind", "share");
            per_weight(json, "score_tokens_per_weight", score);
            per_weight(json, "settled_tokens_per_weight", settled);
            per_weight(json, "virtual_time_tokens_per_weight", virtual_time);
            json.field("weight", weight.get());
            json.field("pending_tokens", pending);
            json.optional("slots", slots);
            json.optional("cap", cap);
            json.field("new", new);
            metered(json, meter);
        }
        FlowStanding::Load { depth_thousandths, age, load_millionths, alpha } => {
            json.text_field("kind", "load");
            json.field("depth_thousandths", depth_thousandths);
            json.field("age_ticks", age.0);
            json.optional("load_millionths", load_millionths);
            json.field("alpha", JsonDecimal { units: alpha.millionths(), scale: Alpha::SCALE });
        }
        FlowStanding::Bands { ref comes_after, ref goes_before, cap, got } => {
            json.text_field("kind", "bands");
            json.name("comes_after").list(comes_after, |json, name| json.text(name));
            json.name("goes_before").list(goes_before, |json, name| json.text(name));
            json.optional("cap", cap);
            json.field("got_tokens", got);
        }
    });
}

fn metered(json: &mut JsonWriter, meter: MeteredService) {
    json.field("got_tokens", meter.got);
    json.field("due_tokens", meter.due.tokens);
    json.field("bound_tokens", meter.due.bound);
}

fn per_weight(json: &mut JsonWriter, name: &str, height: PerWeight) {
    json.wide_field(name, height);
}

fn waiting(json: &mut JsonWriter, waiting: &WaitingRequest) {
    json.text_field("state", "waiting");
    json.field("submitted_at_us", waiting.submitted_at.0);
    json.field("cost", waiting.cost.0);
    json.name("levels").list(&waiting.levels, |json, it| json.object(|json| level(json, it)));
    json.field("ahead_in_queue", waiting.ahead_in_queue);
    json.name("ahead").list(&waiting.ahead, |json, it| json.object(|json| ahead(json, it)));
    json.optional("grants_ahead", waiting.place);
}

fn level(json: &mut JsonWriter, level: &WaitingLevel) {
    flow(json, level.by, &level.flow);
    json.text_field("readiness", level.readiness.name());
    json.field("waiting", level.waiting);
    json.field("in_flight", level.in_flight);
    standing(json, &level.standing);
}

fn ahead(json: &mut JsonWriter, ahead: &RequestsAhead) {
    path(json, &ahead.path);
    json.field("requests", ahead.requests);
    json.field("tokens", ahead.tokens);
}

fn path(json: &mut JsonWriter, path: &[Arc<str>]) {
    json.name("path").list(path, |json, name| json.text(name));
}

fn flow_fairness(json: &mut JsonWriter, flow: &FlowFairness) {
    json.text_field("flow", &flow.name);
    json.optional("weight", flow.weight.map(|weight| weight.get()));
    json.field("waiting", flow.waiting);
    json.field("in_flight", flow.in_flight);
    json.field("got_tokens", flow.got);
    if let Some(due) = flow.due {
        json.field("due_tokens", due.tokens);
        json.optional("difference_tokens", flow.difference());
        json.field("bound_tokens", due.bound);
        json.field("within_bound", flow.is_within_bound());
    }
    if let Some(cap_use) = flow.cap_use {
        let thousandths = cap_use.thousandths();
        json.field("cap_use", format_args!("{}.{:03}", thousandths / 1000, thousandths % 1000));
    }
    if let Some(it) = flow.lag {
        lag(json, it);
    }
    if let Some(names) = &flow.goes_before {
        json.name("goes_before").list(names, |json, name| json.text(name));
    }
}

fn lag(json: &mut JsonWriter, lag: LagWithBound) {
    per_weight(json, "lag_tokens_per_weight", lag.lag);
    if let Some((least, most)) = lag.bound {
        json.name("lag_bound_tokens_per_weight").object(|json| {
            per_weight(json, "least", least);
            per_weight(json, "most", most);
        });
    }
}

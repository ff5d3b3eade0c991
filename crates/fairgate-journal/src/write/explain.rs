//! Why a request was granted, where a request is, and how far flows are from their shares.
//!
//! Names carry their units. Tokens per weight are text, a decimal with three places as the core prints it;
//! everything else is an ordinary number, however large. What is absent is left out.

use std::sync::Arc;

use fairgate_core::decision::GrantedPlace;
use fairgate_core::explain::{
    Ahead, Choice, Readiness, Rule, Standing, Waiting, WaitingLevel, Whereabouts, Why,
};
use fairgate_core::fairness::{FlowFairness, NodeFairness};
use fairgate_core::units::{Alpha, PerWeight};

use crate::write::event::flow;
use crate::write::json::{Decimal, Json};

/// Where a request is, as a JSON object on one line.
///
/// One that waits: `{"state":"waiting","submitted_at_us":…,"cost":…,"levels":[…],"ahead_in_queue":…,"ahead":[…],
/// "grants_ahead":…}`, without `grants_ahead` where it would never be granted as things are. Each level is
/// `{"by":…,"flow":…,"readiness":"ready"|"held"|"at_cap"|"blocked","waiting":…,"flying":…,"standing":{…}}`, the
/// standing as in a decision's `why`; each of `ahead` is `{"path":[…],"requests":…,"tokens":…}`.
///
/// One that flies: `{"state":"flying","granted_at_us":…,"worker":…,"rank":…}`, the last two where the pool has
/// workers.
pub fn write_whereabouts(whereabouts: &Whereabouts) -> String {
    let mut json = Json::default();
    json.object(|json| match whereabouts {
        Whereabouts::Waiting(it) => waiting(json, it),
        Whereabouts::Flying { granted_at, place: it } => {
            json.text_field("state", "flying");
            json.field("granted_at_us", granted_at.0);
            place(json, it.as_ref());
        }
    });
    json.into_string()
}

/// How far backlogged flows are from their shares, as a JSON list on one line, one object for each node:
/// `{"path":[…],"kind":"share"|"drr","by":…,"flows":[…]}`.
///
/// Each flow is `{"flow":…,"weight":…,"waiting":…,"flying":…,"lag_tokens_per_weight":"…","bound_tokens_per_weight":
/// {"least":"…","most":"…"}}`, without the bound where slots are divided instead.
pub fn write_fairness(nodes: &[NodeFairness]) -> String {
    let mut json = Json::default();
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
pub(crate) fn why(json: &mut Json, why: &Why) {
    json.object(|json| {
        json.field("cost", why.cost.0);
        json.name("levels").list(&why.levels, |json, it| json.object(|json| choice(json, it)));
    });
}

/// Writes where a request runs, where that is known.
pub(crate) fn place(json: &mut Json, place: Option<&GrantedPlace>) {
    if let Some(place) = place {
        json.text_field("worker", &place.worker);
        json.field("rank", place.rank);
    }
}

fn choice(json: &mut Json, choice: &Choice) {
    flow(json, choice.by, &choice.flow);
    json.text_field("rule", rule(choice.rule));
    if let Rule::Bulk { rounds } = choice.rule {
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

fn rule(rule: Rule) -> &'static str {
    match rule {
        Rule::Stayed => "stayed",
        Rule::Visited => "visited",
        Rule::Bulk { .. } => "bulk",
        Rule::LowestScore => "lowest_score",
        Rule::BelowItsSlots => "below_its_slots",
        Rule::LargestLoad => "largest_load",
        Rule::Late => "late",
    }
}

fn standing(json: &mut Json, standing: &Standing) {
    json.name("standing").object(|json| match *standing {
        Standing::Drr { deficit, quantum, head_cost, rounds_needed } => {
            json.text_field("kind", "drr");
            json.field("deficit_tokens", deficit);
            json.field("quantum_tokens", quantum.get());
            json.optional("head_cost_tokens", head_cost.map(|t| t.0));
            json.optional("rounds_needed", rounds_needed);
        }
        Standing::Share { score, settled, virtual_time, weight, pending, slots, cap } => {
            json.text_field("kind", "share");
            per_weight(json, "score_tokens_per_weight", score);
            per_weight(json, "settled_tokens_per_weight", settled);
            per_weight(json, "virtual_time_tokens_per_weight", virtual_time);
            json.field("weight", weight.get());
            json.field("pending_tokens", pending);
            json.optional("slots", slots);
            json.optional("cap", cap);
        }
        Standing::Load { depth_thousandths, age, load_millionths, alpha } => {
            json.text_field("kind", "load");
            json.field("depth_thousandths", depth_thousandths);
            json.field("age_ticks", age.0);
            json.optional("load_millionths", load_millionths);
            json.field("alpha", Decimal { units: alpha.millionths(), scale: Alpha::SCALE });
        }
    });
}

fn per_weight(json: &mut Json, name: &str, height: PerWeight) {
    json.wide_field(name, height);
}

fn waiting(json: &mut Json, waiting: &Waiting) {
    json.text_field("state", "waiting");
    json.field("submitted_at_us", waiting.submitted_at.0);
    json.field("cost", waiting.cost.0);
    json.name("levels").list(&waiting.levels, |json, it| json.object(|json| level(json, it)));
    json.field("ahead_in_queue", waiting.ahead_in_queue);
    json.name("ahead").list(&waiting.ahead, |json, it| json.object(|json| ahead(json, it)));
    json.optional("grants_ahead", waiting.place);
}

fn level(json: &mut Json, level: &WaitingLevel) {
    flow(json, level.by, &level.flow);
    let readiness = match level.readiness {
        Readiness::Ready => "ready",
        Readiness::Held => "held",
        Readiness::AtCap => "at_cap",
        Readiness::Blocked => "blocked",
    };
    json.text_field("readiness", readiness);
    json.field("waiting", level.waiting);
    json.field("flying", level.flying);
    standing(json, &level.standing);
}

fn ahead(json: &mut Json, ahead: &Ahead) {
    path(json, &ahead.path);
    json.field("requests", ahead.requests);
    json.field("tokens", ahead.tokens);
}

fn path(json: &mut Json, path: &[Arc<str>]) {
    json.name("path").list(path, |json, name| json.text(name));
}

fn flow_fairness(json: &mut Json, flow: &FlowFairness) {
    json.text_field("flow", &flow.name);
    json.field("weight", flow.weight.get());
    json.field("waiting", flow.waiting);
    json.field("flying", flow.flying);
    per_weight(json, "lag_tokens_per_weight", flow.lag);
    if let Some((least, most)) = flow.bound {
        json.name("bound_tokens_per_weight").object(|json| {
            per_weight(json, "least", least);
            per_weight(json, "most", most);
        });
    }
}

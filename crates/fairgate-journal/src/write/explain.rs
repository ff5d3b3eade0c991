//! Why a request was granted, where a request is, and how far flows are from their shares.
//!
//! Names carry their units. Tokens per weight are text, a decimal with three places as the core prints it;
//! everything else is an ordinary number, however large. What is absent is left out.

use std::sync::Arc;

use fairgate_core::decision::GrantedPlace;
use fairgate_core::explain::{
    Ahead, Choice, Metered, Readiness, Rule, Standing, Waiting, WaitingLevel, Whereabouts, Why,
};
use fairgate_core::fairness::{FlowFairness, Lag, NodeFairness};
use fairgate_core::units::{Alpha, PerWeight};

use crate::write::event::flow;
use crate::write::json::{Decimal, Json};

/// Where a request is, as a JSON object on one line.
///
/// One that waits: `{"state":"waiting","submitted_at_us":…,"cost":…,"levels":[…],"ahead_in_queue":…,"ahead":[…],
/// "grants_ahead":…}`, without `grants_ahead` where it would never be granted as things are. Each level is
/// `{"by":…,"flow":…,"readiness":"ready"|"held"|"at_cap"|"blocked","waiting":…,"in_flight":…,"standing":{…}}`, the
/// standing as in a decision's `why`; each of `ahead` is `{"path":[…],"requests":…,"tokens":…}`.
///
/// One in flight: `{"state":"in_flight","granted_at_us":…,"worker":…,"rank":…}`, the last two where the pool has
/// workers.
pub fn write_whereabouts(whereabouts: &Whereabouts) -> String {
    let mut json = Json::default();
    json.object(|json| match whereabouts {
        Whereabouts::Waiting(it) => waiting(json, it),
        Whereabouts::InFlight { granted_at, place: it } => {
            json.text_field("state", "in_flight");
            json.field("granted_at_us", granted_at.0);
            place(json, it.as_ref());
        }
    });
    json.into_string()
}

/// What every flow got beside what it was due, as a JSON list on one line, one object for each node:
/// `{"path":[…],"kind":"share"|"drr"|"load","by":…,"flows":[…]}`.
///
/// Each flow is `{"flow":…,"weight":…,"waiting":…,"in_flight":…,"got_tokens":…,"due_tokens":…,"difference_tokens":…,
/// "bound_tokens":…,"within_bound":…,"cap_use":…,"lag_tokens_per_weight":"…","lag_bound_tokens_per_weight":
/// {"least":"…","most":"…"}}`:
/// - `weight` and the four fields from `due_tokens` on are not there in a load node, which promises no shares;
/// - `cap_use` is a decimal with three places, there where the flow has a cap and something has waited;
/// - the lag is there where something waits in a flow of a share or drr node, its bound where slots are not divided
///   instead.
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
        Standing::Drr { deficit, quantum, head_cost, rounds_needed, meter } => {
            json.text_field("kind", "drr");
            json.field("deficit_tokens", deficit);
            json.field("quantum_tokens", quantum.get());
            json.optional("head_cost_tokens", head_cost.map(|t| t.0));
            json.optional("rounds_needed", rounds_needed);
            metered(json, meter);
        }
        Standing::Share {
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
        Standing::Load { depth_thousandths, age, load_millionths, alpha } => {
            json.text_field("kind", "load");
            json.field("depth_thousandths", depth_thousandths);
            json.field("age_ticks", age.0);
            json.optional("load_millionths", load_millionths);
            json.field("alpha", Decimal { units: alpha.millionths(), scale: Alpha::SCALE });
        }
    });
}

fn metered(json: &mut Json, meter: Metered) {
    json.field("got_tokens", meter.got);
    json.field("due_tokens", meter.due.tokens);
    json.field("bound_tokens", meter.due.bound);
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
    json.field("in_flight", level.in_flight);
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
}

fn lag(json: &mut Json, lag: Lag) {
    per_weight(json, "lag_tokens_per_weight", lag.lag);
    if let Some((least, most)) = lag.bound {
        json.name("lag_bound_tokens_per_weight").object(|json| {
            per_weight(json, "least", least);
            per_weight(json, "most", most);
        });
    }
}

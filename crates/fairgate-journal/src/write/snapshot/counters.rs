//! The counters of a snapshot's tree.

use std::io::{self, Write};

use fairgate_core::snapshot::{FlowSnapshot, NodeCounters, NodeSnapshot, ShareFlowSnapshot};
use fairgate_core::units::Alpha;

use super::Parts;
use crate::write::json::{Decimal, Json};

/// Writes a node as the next value.
pub(super) fn node<W: Write>(parts: &mut Parts<'_, W>, node: &NodeSnapshot) -> io::Result<()> {
    parts.json.open('{');
    parts.json.name(kind(&node.state)).open('{');
    counters(parts.json, &node.state);
    parts.json.name("flows").open('{');
    for each in &node.flows {
        flow(parts, each)?;
        parts.pass_on()?;
    }
    for _ in 0..3 {
        parts.json.close('}');
    }
    Ok(())
}

fn kind(counters: &NodeCounters) -> &'static str {
    match counters {
        NodeCounters::Drr { .. } => "drr",
        NodeCounters::Share { .. } => "share",
        NodeCounters::Load { .. } => "load",
    }
}

fn counters(json: &mut Json, counters: &NodeCounters) {
    match counters {
        NodeCounters::Drr { cursor, stayed, deficits } => {
            json.field("cursor", cursor);
            json.field("stayed", stayed);
            json.name("deficits").list(deficits, |json, (deficit, least, most)| {
                json.object(|json| {
                    json.wide_field("tokens", deficit);
                    json.wide_field("least", least);
                    json.wide_field("most", most);
                });
            });
        }
        NodeCounters::Share { virtual_time, rises } => {
            json.wide_field("virtual_time", virtual_time);
            json.field("rises", rises);
        }
        NodeCounters::Load { alpha, history } => {
            json.field("alpha", Decimal { units: alpha.millionths(), scale: Alpha::SCALE });
            json.name("history").list(history, Json::wide);
        }
    }
}

fn flow<W: Write>(parts: &mut Parts<'_, W>, flow: &FlowSnapshot) -> io::Result<()> {
    parts.json.name(&flow.name).open('{');
    if let Some(share) = &flow.share {
        parts.json.name("share").object(|json| share_flow(json, share));
    }
    if let Some(inside) = &flow.inside {
        parts.json.name("inside");
        node(parts, inside)?;
    }
    parts.json.close('}');
    Ok(())
}

fn share_flow(json: &mut Json, flow: &ShareFlowSnapshot) {
    json.wide_field("base", flow.base);
    json.wide_field("served", flow.served);
    json.wide_field("pending", flow.pending);
    json.field("generation", flow.generation);
    if let Some(stopped) = flow.stopped {
        json.wide_field("stopped", stopped);
    }
    let (fallen, rise, ended) = flow.bound;
    json.name("bound").object(|json| {
        json.wide_field("fallen", fallen);
        json.field("rise", rise);
        json.wide_field("ended", ended);
    });
}

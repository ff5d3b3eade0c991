//! Writes the counters of a snapshot's tree.

use std::io::{self, Write};

use fairgate_core::snapshot::{
    CapUseSnapshot, DrrClassSnapshot, FlowMeterSnapshot, FlowSnapshot, NodeCounters,
    NodeMeterSnapshot, NodeSnapshot, ShareFlowSnapshot,
};
use fairgate_core::units::Alpha;

use super::SnapshotOutput;
use crate::write::json::{JsonDecimal, JsonWriter};

/// Writes the counters of a node and of its flows as the next value.
pub(super) fn node<W: Write>(
    parts: &mut SnapshotOutput<'_, W>,
    node: &NodeSnapshot,
) -> io::Result<()> {
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
        NodeCounters::Bands => "bands",
    }
}

fn counters(json: &mut JsonWriter, counters: &NodeCounters) {
    match counters {
        NodeCounters::Drr { cursor, stayed, classes, meter } => {
            json.field("cursor", cursor);
            json.field("stayed", stayed);
            json.name("classes").list(classes, |json, each| json.object(|json| class(json, each)));
            node_meter(json, meter);
        }
        NodeCounters::Share { virtual_time, rises, moments, meter } => {
            json.wide_field("virtual_time", virtual_time);
            json.field("rises", rises);
            json.field("moments", moments);
            node_meter(json, meter);
        }
        NodeCounters::Load { alpha, history } => {
            json.field("alpha", JsonDecimal { units: alpha.millionths(), scale: Alpha::SCALE });
            json.name("history").list(history, JsonWriter::wide);
        }
        NodeCounters::Bands => {}
    }
}

fn class(json: &mut JsonWriter, class: &DrrClassSnapshot) {
    json.wide_field("deficit_tokens", class.deficit);
    json.wide_field("reached_tokens", class.reached);
    flow_meter(json, &class.meter);
}

fn flow<W: Write>(parts: &mut SnapshotOutput<'_, W>, flow: &FlowSnapshot) -> io::Result<()> {
    parts.json.name(&flow.name).open('{');
    if let Some(share) = &flow.share {
        parts.json.name("share").object(|json| share_flow(json, share));
    }
    if let Some(got) = flow.load_got {
        parts.json.name("load").object(|json| json.wide_field("got_tokens", got));
    }
    if let Some(band) = flow.band {
        parts.json.name("bands").object(|json| {
            json.wide_field("got_tokens", band.got);
            cap_use(json, band.cap_use);
        });
    }
    if let Some(inside) = &flow.inside {
        parts.json.name("inside");
        node(parts, inside)?;
    }
    parts.json.close('}');
    Ok(())
}

fn share_flow(json: &mut JsonWriter, flow: &ShareFlowSnapshot) {
    json.wide_field("base", flow.base);
    json.wide_field("served_tokens", flow.served);
    json.wide_field("pending_tokens", flow.pending);
    json.field("generation", flow.generation);
    json.field("moment", flow.moment);
    json.field("new", flow.new);
    let (fallen, rise, ended) = flow.bound;
    json.name("bound").object(|json| {
        json.wide_field("fallen", fallen);
        json.field("rise", rise);
        json.wide_field("ended", ended);
    });
    flow_meter(json, &flow.meter);
    cap_use(json, flow.cap_use);
    if let Some(stopped) = flow.stopped {
        json.wide_field("stopped", stopped);
    }
}

fn node_meter(json: &mut JsonWriter, meter: &NodeMeterSnapshot) {
    json.name("meter").object(|json| {
        json.wide_field("volume", meter.volume);
        json.wide_field("carried", meter.carried);
        json.wide_field("widest", meter.widest);
    });
}

fn flow_meter(json: &mut JsonWriter, meter: &FlowMeterSnapshot) {
    json.name("meter").object(|json| {
        json.wide_field("due", meter.due);
        json.wide_field("floor", meter.floor);
        json.wide_field("got_tokens", meter.got);
        json.wide_field("rise_tokens", meter.rise);
        json.wide_field("fall_tokens", meter.fall);
        json.wide_field("worst_tokens", meter.worst);
    });
}

/// Writes the use of a cap, as a field of its flow.
pub(super) fn cap_use(json: &mut JsonWriter, cap_use: CapUseSnapshot) {
    json.name("cap_use").object(|json| {
        json.wide_field("used_slot_us", cap_use.used);
        json.wide_field("allowed_slot_us", cap_use.allowed);
    });
}

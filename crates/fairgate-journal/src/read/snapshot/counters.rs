//! Reads the counters of a snapshot's tree. Recursion follows the nesting of the text, which the cursor bounds.

use fairgate_core::snapshot::{
    BandSnapshot, CapUseSnapshot, DrrClassSnapshot, FlowMeterSnapshot, FlowSnapshot, NodeCounters,
    NodeMeterSnapshot, NodeSnapshot, ShareFlowSnapshot,
};
use fairgate_core::units::Alpha;

use crate::journal_text_error::JournalTextError;
use crate::read::cursor::JsonCursor;
use crate::read::event::repeated;
use crate::read::number::{alpha, count, signed_wide, small_count, wide};
use crate::read::policy::node_by_kind;

/// The fields of a drr node's counters. In this list and the ones below, required fields come first.
const DRR: &[&str] = &["cursor", "stayed", "classes", "meter", "flows"];
const CLASS: &[&str] = &["deficit_tokens", "reached_tokens", "meter"];
const SHARE: &[&str] = &["virtual_time", "rises", "moments", "meter", "flows"];
const LOAD: &[&str] = &["alpha", "history", "flows"];
const BANDS: &[&str] = &["flows"];
const FLOW: &[&str] = &["share", "load", "bands", "inside"];
const SHARE_FLOW: &[&str] = &[
    "base",
    "served_tokens",
    "pending_tokens",
    "generation",
    "moment",
    "new",
    "bound",
    "meter",
    "cap_use",
    "stopped",
];
const LOAD_FLOW: &[&str] = &["got_tokens"];
const BAND: &[&str] = &["got_tokens", "cap_use"];
const BOUND: &[&str] = &["fallen", "rise", "ended"];
const NODE_METER: &[&str] = &["volume", "carried", "widest"];
const FLOW_METER: &[&str] =
    &["due", "floor", "got_tokens", "rise_tokens", "fall_tokens", "worst_tokens"];
const CAP_USE: &[&str] = &["used_slot_us", "allowed_slot_us"];

/// Reads the counters of a node and of its flows. The kind of the node is the name of the only field.
pub(super) fn node(cursor: &mut JsonCursor<'_>) -> Result<NodeSnapshot, JournalTextError> {
    node_by_kind(cursor, |kind, cursor| match kind {
        "drr" => drr(cursor),
        "share" => share(cursor),
        "load" => load(cursor),
        _ => bands(cursor),
    })
}

fn drr(cursor: &mut JsonCursor<'_>) -> Result<NodeSnapshot, JournalTextError> {
    let (mut position, mut stayed) = (0, false);
    let (mut classes, mut within) = (Vec::new(), Vec::new());
    let mut meter = NodeMeterSnapshot::default();
    cursor.record(DRR, 5, |field, cursor| {
        match field {
            "cursor" => position = small_count(cursor, u32::MAX)?,
            "stayed" => stayed = cursor.bool()?,
            "classes" => classes = cursor.list(class)?,
            "meter" => meter = node_meter(cursor)?,
            _ => within = flows(cursor)?,
        }
        Ok(())
    })?;
    let state = NodeCounters::Drr { cursor: position, stayed, classes, meter };
    Ok(NodeSnapshot { state, flows: within })
}

fn class(cursor: &mut JsonCursor<'_>) -> Result<DrrClassSnapshot, JournalTextError> {
    let mut class = DrrClassSnapshot::default();
    cursor.record(CLASS, 3, |field, cursor| {
        match field {
            "deficit_tokens" => class.deficit = wide(cursor)?,
            "reached_tokens" => class.reached = wide(cursor)?,
            _ => class.meter = flow_meter(cursor)?,
        }
        Ok(())
    })?;
    Ok(class)
}

fn share(cursor: &mut JsonCursor<'_>) -> Result<NodeSnapshot, JournalTextError> {
    let (mut virtual_time, mut rises, mut moments) = (0, 0, 0);
    let (mut meter, mut within) = (NodeMeterSnapshot::default(), Vec::new());
    cursor.record(SHARE, 5, |field, cursor| {
        match field {
            "virtual_time" => virtual_time = wide(cursor)?,
            "rises" => rises = count(cursor)?,
            "moments" => moments = count(cursor)?,
            "meter" => meter = node_meter(cursor)?,
            _ => within = flows(cursor)?,
        }
        Ok(())
    })?;
    let state = NodeCounters::Share { virtual_time, rises, moments, meter };
    Ok(NodeSnapshot { state, flows: within })
}

fn load(cursor: &mut JsonCursor<'_>) -> Result<NodeSnapshot, JournalTextError> {
    let (mut tuned, mut history, mut within) = (Alpha::BALANCED, Vec::new(), Vec::new());
    cursor.record(LOAD, 3, |field, cursor| {
        match field {
            "alpha" => tuned = alpha(cursor)?,
            "history" => history = cursor.list(wide)?,
            _ => within = flows(cursor)?,
        }
        Ok(())
    })?;
    Ok(NodeSnapshot { state: NodeCounters::Load { alpha: tuned, history }, flows: within })
}

fn bands(cursor: &mut JsonCursor<'_>) -> Result<NodeSnapshot, JournalTextError> {
    let mut within = Vec::new();
    cursor.record(BANDS, 1, |_, cursor| {
        within = flows(cursor)?;
        Ok(())
    })?;
    Ok(NodeSnapshot { state: NodeCounters::Bands, flows: within })
}

fn flows(cursor: &mut JsonCursor<'_>) -> Result<Vec<FlowSnapshot>, JournalTextError> {
    let mark = cursor.mark();
    let mut flows: Vec<FlowSnapshot> = Vec::new();
    cursor.map(|name, cursor| {
        flows.push(flow(name, cursor)?);
        Ok(())
    })?;
    match repeated(flows.iter().map(|flow| &*flow.name).collect()) {
        Some(name) => Err(JournalTextError::new(mark, "given twice").in_field(name)),
        None => Ok(flows),
    }
}

fn flow(name: &str, cursor: &mut JsonCursor<'_>) -> Result<FlowSnapshot, JournalTextError> {
    let mut flow =
        FlowSnapshot { name: name.into(), share: None, load_got: None, band: None, inside: None };
    cursor.object(FLOW, |field, cursor| {
        match field {
            "share" => flow.share = Some(share_flow(cursor)?),
            "load" => flow.load_got = Some(load_flow(cursor)?),
            "bands" => flow.band = Some(band(cursor)?),
            _ => flow.inside = Some(Box::new(node(cursor)?)),
        }
        Ok(())
    })?;
    Ok(flow)
}

fn share_flow(cursor: &mut JsonCursor<'_>) -> Result<ShareFlowSnapshot, JournalTextError> {
    let mut flow = ShareFlowSnapshot::default();
    cursor.record(SHARE_FLOW, 9, |field, cursor| {
        match field {
            "base" => flow.base = wide(cursor)?,
            "served_tokens" => flow.served = wide(cursor)?,
            "pending_tokens" => flow.pending = wide(cursor)?,
            "generation" => flow.generation = count(cursor)?,
            "moment" => flow.moment = count(cursor)?,
            "new" => flow.new = cursor.bool()?,
            "bound" => flow.bound = bound(cursor)?,
            "meter" => flow.meter = flow_meter(cursor)?,
            "cap_use" => flow.cap_use = cap_use(cursor)?,
            _ => flow.stopped = Some(wide(cursor)?),
        }
        Ok(())
    })?;
    Ok(flow)
}

fn load_flow(cursor: &mut JsonCursor<'_>) -> Result<i128, JournalTextError> {
    let mut got = 0;
    cursor.record(LOAD_FLOW, 1, |_, cursor| {
        got = signed_wide(cursor)?;
        Ok(())
    })?;
    Ok(got)
}

fn band(cursor: &mut JsonCursor<'_>) -> Result<BandSnapshot, JournalTextError> {
    let mut band = BandSnapshot::default();
    cursor.record(BAND, 2, |field, cursor| {
        match field {
            "got_tokens" => band.got = signed_wide(cursor)?,
            _ => band.cap_use = cap_use(cursor)?,
        }
        Ok(())
    })?;
    Ok(band)
}

fn bound(cursor: &mut JsonCursor<'_>) -> Result<(u128, u64, u128), JournalTextError> {
    let (mut fallen, mut rise, mut ended) = (0, 0, 0);
    cursor.record(BOUND, 3, |field, cursor| {
        match field {
            "fallen" => fallen = wide(cursor)?,
            "rise" => rise = count(cursor)?,
            _ => ended = wide(cursor)?,
        }
        Ok(())
    })?;
    Ok((fallen, rise, ended))
}

fn node_meter(cursor: &mut JsonCursor<'_>) -> Result<NodeMeterSnapshot, JournalTextError> {
    let mut meter = NodeMeterSnapshot::default();
    cursor.record(NODE_METER, 3, |field, cursor| {
        match field {
            "volume" => meter.volume = signed_wide(cursor)?,
            "carried" => meter.carried = signed_wide(cursor)?,
            _ => meter.widest = wide(cursor)?,
        }
        Ok(())
    })?;
    Ok(meter)
}

fn flow_meter(cursor: &mut JsonCursor<'_>) -> Result<FlowMeterSnapshot, JournalTextError> {
    let mut meter = FlowMeterSnapshot::default();
    cursor.record(FLOW_METER, 6, |field, cursor| {
        match field {
            "due" => meter.due = signed_wide(cursor)?,
            "floor" => meter.floor = signed_wide(cursor)?,
            "got_tokens" => meter.got = signed_wide(cursor)?,
            "rise_tokens" => meter.rise = wide(cursor)?,
            "fall_tokens" => meter.fall = wide(cursor)?,
            _ => meter.worst = wide(cursor)?,
        }
        Ok(())
    })?;
    Ok(meter)
}

/// Reads the use of a cap, which a flow has as a field.
pub(super) fn cap_use(cursor: &mut JsonCursor<'_>) -> Result<CapUseSnapshot, JournalTextError> {
    let mut cap_use = CapUseSnapshot::default();
    cursor.record(CAP_USE, 2, |field, cursor| {
        match field {
            "used_slot_us" => cap_use.used = wide(cursor)?,
            _ => cap_use.allowed = wide(cursor)?,
        }
        Ok(())
    })?;
    Ok(cap_use)
}

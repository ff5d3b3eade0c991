//! The counters of a snapshot's tree. Recursion follows the nesting of the text, which the cursor bounds.

use fairgate_core::snapshot::{FlowSnapshot, NodeCounters, NodeSnapshot, ShareFlowSnapshot};
use fairgate_core::units::Alpha;

use crate::read::cursor::Cursor;
use crate::read::event::repeated;
use crate::read::fault::Fault;
use crate::read::number::{alpha, count, signed_wide, small_count, wide};
use crate::read::policy::node_by_kind;

/// The fields of a node's counters, those that must be there first; so too below.
const DRR: &[&str] = &["cursor", "stayed", "deficits", "flows"];
const DEFICIT: &[&str] = &["tokens", "least", "most"];
const SHARE: &[&str] = &["virtual_time", "rises", "flows"];
const LOAD: &[&str] = &["alpha", "history", "flows"];
const FLOW: &[&str] = &["share", "inside"];
const SHARE_FLOW: &[&str] = &["base", "served", "pending", "generation", "bound", "stopped"];
const BOUND: &[&str] = &["fallen", "rise", "ended"];

/// Reads a node: what kind it is, its counters and its flows.
pub(super) fn node(cursor: &mut Cursor<'_>) -> Result<NodeSnapshot, Fault> {
    node_by_kind(cursor, |kind, cursor| match kind {
        "drr" => drr(cursor),
        "share" => share(cursor),
        _ => load(cursor),
    })
}

fn drr(cursor: &mut Cursor<'_>) -> Result<NodeSnapshot, Fault> {
    let (mut position, mut stayed) = (0, false);
    let (mut deficits, mut within) = (Vec::new(), Vec::new());
    cursor.record(DRR, 4, |field, cursor| {
        match field {
            "cursor" => position = small_count(cursor, u32::MAX)?,
            "stayed" => stayed = cursor.bool()?,
            "deficits" => deficits = cursor.list(deficit)?,
            _ => within = flows(cursor)?,
        }
        Ok(())
    })?;
    let state = NodeCounters::Drr { cursor: position, stayed, deficits };
    Ok(NodeSnapshot { state, flows: within })
}

fn deficit(cursor: &mut Cursor<'_>) -> Result<(i128, i128, i128), Fault> {
    let (mut tokens, mut least, mut most) = (0, 0, 0);
    cursor.record(DEFICIT, 3, |field, cursor| {
        match field {
            "tokens" => tokens = signed_wide(cursor)?,
            "least" => least = signed_wide(cursor)?,
            _ => most = signed_wide(cursor)?,
        }
        Ok(())
    })?;
    Ok((tokens, least, most))
}

fn share(cursor: &mut Cursor<'_>) -> Result<NodeSnapshot, Fault> {
    let (mut virtual_time, mut rises, mut within) = (0, 0, Vec::new());
    cursor.record(SHARE, 3, |field, cursor| {
        match field {
            "virtual_time" => virtual_time = wide(cursor)?,
            "rises" => rises = count(cursor)?,
            _ => within = flows(cursor)?,
        }
        Ok(())
    })?;
    Ok(NodeSnapshot { state: NodeCounters::Share { virtual_time, rises }, flows: within })
}

fn load(cursor: &mut Cursor<'_>) -> Result<NodeSnapshot, Fault> {
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

fn flows(cursor: &mut Cursor<'_>) -> Result<Vec<FlowSnapshot>, Fault> {
    let mark = cursor.mark();
    let mut flows: Vec<FlowSnapshot> = Vec::new();
    cursor.map(|name, cursor| {
        flows.push(flow(name, cursor)?);
        Ok(())
    })?;
    match repeated(flows.iter().map(|flow| &*flow.name).collect()) {
        Some(name) => Err(Fault::new(mark, "given twice").in_field(name)),
        None => Ok(flows),
    }
}

fn flow(name: &str, cursor: &mut Cursor<'_>) -> Result<FlowSnapshot, Fault> {
    let mut flow = FlowSnapshot { name: name.into(), share: None, inside: None };
    cursor.object(FLOW, |field, cursor| {
        match field {
            "share" => flow.share = Some(share_flow(cursor)?),
            _ => flow.inside = Some(Box::new(node(cursor)?)),
        }
        Ok(())
    })?;
    Ok(flow)
}

fn share_flow(cursor: &mut Cursor<'_>) -> Result<ShareFlowSnapshot, Fault> {
    let mut flow = ShareFlowSnapshot::default();
    cursor.record(SHARE_FLOW, 5, |field, cursor| {
        match field {
            "base" => flow.base = wide(cursor)?,
            "served" => flow.served = wide(cursor)?,
            "pending" => flow.pending = wide(cursor)?,
            "generation" => flow.generation = count(cursor)?,
            "bound" => flow.bound = bound(cursor)?,
            _ => flow.stopped = Some(wide(cursor)?),
        }
        Ok(())
    })?;
    Ok(flow)
}

fn bound(cursor: &mut Cursor<'_>) -> Result<(u128, u64, u128), Fault> {
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

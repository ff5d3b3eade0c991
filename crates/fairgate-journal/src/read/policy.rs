//! The policy tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{
    BusyThresholds, Class, ClassLimits, DEFAULT_WEIGHT, Drr, Inside, Load, MAX_DEPTH, Node, Order,
    Policy, PolicyProblem, Share,
};
use fairgate_core::units::{Alpha, Weight};

use crate::read::cursor::Cursor;
use crate::read::fault::Fault;
use crate::read::number::{alpha, count, fraction, tokens, weight};

const NODES: &[&str] = &["drr", "share", "load"];
const DRR: &[&str] = &["by", "classes", "default", "settle"];
const CLASS: &[&str] = &[
    "name",
    "quantum",
    "queue",
    "inside",
    "busy_tokens",
    "busy_fraction",
    "limit_requests_per_worker",
    "limit_input_tokens_per_worker",
    "limit_cached_tokens_per_worker",
];
const SHARE: &[&str] =
    &["by", "weights", "default_weight", "caps", "default_cap", "partition", "queue", "inside"];
const LOAD: &[&str] =
    &["by", "alpha", "optimize_for", "auto_tune", "max_wait_ticks", "queue", "inside"];

/// The names of an alpha in `optimize_for`.
const GOALS: [(&str, Alpha); 3] =
    [("latency", Alpha::LATENCY), ("balanced", Alpha::BALANCED), ("throughput", Alpha::THROUGHPUT)];

/// Reads a policy and checks it as a whole.
pub(crate) fn policy(cursor: &mut Cursor<'_>) -> Result<Policy, Fault> {
    let mark = cursor.mark();
    let root = node(cursor, 1)?;
    Policy::new(root).map_err(|e| Fault::new(mark, e.problem.to_string()).in_step(&e.field))
}

/// Reads the attribute that a node shares by.
pub(crate) fn attribute(cursor: &mut Cursor<'_>) -> Result<Attribute, Fault> {
    cursor.one_of(Attribute::ALL.map(|a| (a.name(), a)))
}

/// Reads the node that is `depth` nodes from the top, the root being 1.
fn node(cursor: &mut Cursor<'_>, depth: usize) -> Result<Node, Fault> {
    if depth > MAX_DEPTH {
        return Err(cursor.fault(PolicyProblem::TooDeep.to_string()));
    }
    node_by_kind(cursor, |kind, cursor| match kind {
        "drr" => drr(cursor, depth).map(Node::Drr),
        "share" => share(cursor, depth).map(Node::Share),
        _ => load(cursor, depth).map(Node::Load),
    })
}

/// Reads an object whose one field says of what kind a node is, and has the rest of it.
pub(crate) fn node_by_kind<'a, T>(
    cursor: &mut Cursor<'a>,
    read: impl Fn(&str, &mut Cursor<'a>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let mark = cursor.mark();
    let mut node = None;
    cursor.object(NODES, |kind, cursor| {
        if node.is_some() {
            return Err(cursor.fault("a node is only one of drr, share, load"));
        }
        node = Some(read(kind, cursor)?);
        Ok(())
    })?;
    node.ok_or_else(|| Fault::new(mark, "a node must be one of drr, share, load"))
}

fn drr(cursor: &mut Cursor<'_>, depth: usize) -> Result<Drr, Fault> {
    let mut by = None;
    let mut classes = None;
    let mut default = None;
    let mut settle = false;
    cursor.object(DRR, |field, cursor| {
        match field {
            "by" => by = Some(attribute(cursor)?),
            "classes" => classes = Some(cursor.list(|cursor| class(cursor, depth))?),
            "default" => default = Some(cursor.text()?.into()),
            _ => settle = cursor.bool()?,
        }
        Ok(())
    })?;
    Ok(Drr {
        by: by.ok_or_else(|| cursor.missing("by"))?,
        classes: classes.ok_or_else(|| cursor.missing("classes"))?,
        default,
        settle,
    })
}

fn class(cursor: &mut Cursor<'_>, depth: usize) -> Result<Class, Fault> {
    let mut name = None;
    let mut quantum = None;
    let mut inside = None;
    let mut busy = BusyThresholds::default();
    let mut limits = ClassLimits::default();
    cursor.object(CLASS, |field, cursor| {
        match field {
            "name" => name = Some(cursor.text()?.into()),
            "quantum" => quantum = Some(weight(cursor)?),
            "queue" | "inside" => inside = Some(inside_field(&inside, field, cursor, depth)?),
            "busy_tokens" => busy.tokens = Some(tokens(cursor)?),
            "busy_fraction" => busy.fraction = Some(fraction(cursor)?),
            "limit_requests_per_worker" => limits.requests_per_worker = Some(count(cursor)?),
            "limit_input_tokens_per_worker" => {
                limits.input_tokens_per_worker = Some(tokens(cursor)?);
            }
            _ => limits.cached_tokens_per_worker = Some(tokens(cursor)?),
        }
        Ok(())
    })?;
    Ok(Class {
        name: name.ok_or_else(|| cursor.missing("name"))?,
        quantum: quantum.ok_or_else(|| cursor.missing("quantum"))?,
        inside: inside.unwrap_or(DEFAULT_INSIDE),
        busy,
        limits,
    })
}

fn share(cursor: &mut Cursor<'_>, depth: usize) -> Result<Share, Fault> {
    let mark = cursor.mark();
    let mut by = None;
    let mut weights = BTreeMap::new();
    let mut default_weight = None;
    let mut caps = BTreeMap::new();
    let mut default_cap = None;
    let mut partition = false;
    let mut inside = None;
    cursor.object(SHARE, |field, cursor| {
        match field {
            "by" => by = Some(attribute(cursor)?),
            "weights" => weights = cursor.by_name(weight)?,
            "default_weight" => default_weight = Some(weight(cursor)?),
            "caps" => caps = cursor.by_name(count)?,
            "default_cap" => default_cap = Some(count(cursor)?),
            "partition" => partition = cursor.bool()?,
            _ => inside = Some(inside_field(&inside, field, cursor, depth)?),
        }
        Ok(())
    })?;
    let default_weight = match default_weight {
        Some(weight) => weight,
        None => Weight::new(DEFAULT_WEIGHT).map_err(|out| Fault::new(mark, out.to_string()))?,
    };
    Ok(Share {
        by: by.ok_or_else(|| cursor.missing("by"))?,
        weights,
        default_weight,
        caps,
        default_cap,
        partition,
        inside: inside.unwrap_or(DEFAULT_INSIDE),
    })
}

fn load(cursor: &mut Cursor<'_>, depth: usize) -> Result<Load, Fault> {
    let mut by = None;
    let mut start = None;
    let mut auto_tune = false;
    let mut max_wait_ticks = None;
    let mut inside = None;
    cursor.object(LOAD, |field, cursor| {
        match field {
            "by" => by = Some(attribute(cursor)?),
            "alpha" | "optimize_for" => {
                if start.is_some() {
                    return Err(cursor.fault("alpha and optimize_for exclude each other"));
                }
                let goal = field == "optimize_for";
                start = Some(if goal { cursor.one_of(GOALS)? } else { alpha(cursor)? });
            }
            "auto_tune" => auto_tune = cursor.bool()?,
            "max_wait_ticks" => max_wait_ticks = Some(count(cursor)?),
            _ => inside = Some(inside_field(&inside, field, cursor, depth)?),
        }
        Ok(())
    })?;
    Ok(Load {
        by: by.ok_or_else(|| cursor.missing("by"))?,
        alpha: start.unwrap_or(Alpha::BALANCED),
        auto_tune,
        max_wait_ticks,
        inside: inside.unwrap_or(DEFAULT_INSIDE),
    })
}

const DEFAULT_INSIDE: Inside = Inside::Queue(Order::Fcfs);

/// Reads `queue` or `inside` of a flow in a node of that depth.
fn inside_field(
    already: &Option<Inside>,
    field: &str,
    cursor: &mut Cursor<'_>,
    depth: usize,
) -> Result<Inside, Fault> {
    if already.is_some() {
        return Err(cursor.fault("queue and inside exclude each other"));
    }
    match field {
        "queue" => cursor.one_of(ORDERS).map(Inside::Queue),
        _ => Ok(Inside::Node(Arc::new(node(cursor, depth + 1)?))),
    }
}

const ORDERS: [(&str, Order); 2] = [("fcfs", Order::Fcfs), ("wspt", Order::Wspt)];

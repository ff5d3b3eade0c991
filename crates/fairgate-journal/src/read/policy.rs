//! The policy tree.

mod class;

use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{
    Drr, Inside, Load, MAX_DEPTH, Node, Order, Policy, PolicyProblem, Queue, Share,
};
use fairgate_core::units::{Alpha, Micros};

use crate::read::cursor::{Cursor, Kind};
use crate::read::fault::Fault;
use crate::read::number::{alpha, count, weight};

const NODES: &[&str] = &["drr", "share", "load"];
const DRR: &[&str] = &["by", "classes", "default"];
/// What to do without `settle`, which charged a class for what its requests really used.
const SETTLE: (&str, &str) = (
    "settle",
    "it did not make real usage follow the quanta. Where usage must follow weights, use \
     {\"share\":{\"by\":…,\"classes\":[{\"name\":…,\"weight\":…},…]}}; for drr by stated costs, leave settle out",
);
const SHARE: &[&str] = &[
    "by",
    "classes",
    "default",
    "weights",
    "default_weight",
    "caps",
    "default_cap",
    "partition",
    "queue",
    "inside",
];
const LOAD: &[&str] =
    &["by", "alpha", "optimize_for", "auto_tune", "max_wait_ticks", "queue", "inside"];

const QUEUE: &[&str] = &["order", "max_wait_us"];

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
    cursor.object_with_removed(DRR, &[SETTLE], |field, cursor| {
        match field {
            "by" => by = Some(attribute(cursor)?),
            "classes" => classes = Some(cursor.list(|cursor| class::drr_class(cursor, depth))?),
            _ => default = Some(cursor.text()?.into()),
        }
        Ok(())
    })?;
    Ok(Drr {
        by: by.ok_or_else(|| cursor.missing("by"))?,
        classes: classes.ok_or_else(|| cursor.missing("classes"))?,
        default,
    })
}

fn share(cursor: &mut Cursor<'_>, depth: usize) -> Result<Share, Fault> {
    let mut by = None;
    let mut classes = None;
    let mut beside_classes = None;
    let mut share = Share::new(Attribute::Class);
    let mut inside = None;
    cursor.object(SHARE, |field, cursor| {
        if let "weights" | "default_weight" | "caps" = field {
            beside_classes.get_or_insert((field, cursor.mark()));
        }
        match field {
            "by" => by = Some(attribute(cursor)?),
            "classes" => classes = Some(class::share_classes(cursor, depth)?),
            "default" => share.default = Some(cursor.text()?.into()),
            "weights" => share.weights = cursor.by_name(weight)?,
            "default_weight" => share.default_weight = weight(cursor)?,
            "caps" => share.caps = cursor.by_name(count)?,
            "default_cap" => share.default_cap = Some(count(cursor)?),
            "partition" => share.partition = cursor.bool()?,
            _ => inside = Some(inside_field(&inside, field, cursor, depth)?),
        }
        Ok(())
    })?;
    share.by = by.ok_or_else(|| cursor.missing("by"))?;
    share.inside = inside.unwrap_or(Inside::FCFS);
    if let Some(classes) = classes {
        if let Some((field, mark)) = beside_classes {
            let problem = PolicyProblem::WeightsBesideClasses.to_string();
            return Err(Fault::new(mark, problem).in_field(field));
        }
        // Only now: what is inside the node may stand behind its classes.
        share.classes = classes.into_iter().map(|class| class.in_node(&share.inside)).collect();
    }
    Ok(share)
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
        inside: inside.unwrap_or(Inside::FCFS),
    })
}

/// Reads `queue` or `inside` of a flow in a node of that depth.
pub(super) fn inside_field(
    already: &Option<Inside>,
    field: &str,
    cursor: &mut Cursor<'_>,
    depth: usize,
) -> Result<Inside, Fault> {
    if already.is_some() {
        return Err(cursor.fault("queue and inside exclude each other"));
    }
    match field {
        "queue" => queue(cursor).map(Inside::Queue),
        _ => Ok(Inside::Node(Arc::new(node(cursor, depth + 1)?))),
    }
}

/// Reads a queue: the name of its order, or an object.
fn queue(cursor: &mut Cursor<'_>) -> Result<Queue, Fault> {
    let mut queue = Queue::default();
    if cursor.kind()? != Kind::Object {
        queue.order = cursor.one_of(ORDERS)?;
        return Ok(queue);
    }
    cursor.object(QUEUE, |field, cursor| {
        match field {
            "order" => queue.order = cursor.one_of(ORDERS)?,
            _ => queue.max_wait = Some(Micros(count(cursor)?)),
        }
        Ok(())
    })?;
    Ok(queue)
}

const ORDERS: [(&str, Order); 2] = [("fcfs", Order::Fcfs), ("wspt", Order::Wspt)];

//! Reads a policy tree from JSON.

mod class;

use std::sync::Arc;

use fairgate_core::attribute::Attribute;
use fairgate_core::policy::{
    BandsPolicy, DrrPolicy, FlowInside, LoadPolicy, MAX_DEPTH, Policy, PolicyErrorKind, PolicyNode,
    QueueOrder, QueuePolicy, SharePolicy,
};
use fairgate_core::units::{Alpha, Micros};

use crate::journal_text_error::JournalTextError;
use crate::read::cursor::{JsonCursor, JsonKind};
use crate::read::number::{alpha, count, weight};

const NODES: &[&str] = &["drr", "share", "load", "bands"];
const DRR: &[&str] = &["by", "classes", "default", "queue", "inside"];
/// The removed field `settle`, which charged a class for the real usage of its requests, with advice on its
/// replacement.
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

const BANDS: &[&str] = &["by", "classes", "default", "queue", "inside"];

const QUEUE: &[&str] = &["order", "max_wait_us"];

/// The values that `optimize_for` may have, each with the alpha that it denotes.
const GOALS: [(&str, Alpha); 3] =
    [("latency", Alpha::LATENCY), ("balanced", Alpha::BALANCED), ("throughput", Alpha::THROUGHPUT)];

/// Reads a policy, and checks the rules that concern the whole tree.
pub(crate) fn policy(cursor: &mut JsonCursor<'_>) -> Result<Policy, JournalTextError> {
    let mark = cursor.mark();
    let root = node(cursor, 1)?;
    Policy::new(root)
        .map_err(|e| JournalTextError::new(mark, e.problem.to_string()).in_step(&e.field))
}

/// Reads the attribute by which a node divides service.
pub(crate) fn attribute(cursor: &mut JsonCursor<'_>) -> Result<Attribute, JournalTextError> {
    cursor.one_of(Attribute::ALL.map(|a| (a.name(), a)))
}

/// Reads a node. `depth` is the number of nodes from the root to this one, both included.
fn node(cursor: &mut JsonCursor<'_>, depth: usize) -> Result<PolicyNode, JournalTextError> {
    if depth > MAX_DEPTH {
        return Err(cursor.fault(PolicyErrorKind::TooDeep.to_string()));
    }
    node_by_kind(cursor, |kind, cursor| match kind {
        "drr" => drr(cursor, depth).map(PolicyNode::Drr),
        "share" => share(cursor, depth).map(PolicyNode::Share),
        "load" => load(cursor, depth).map(PolicyNode::Load),
        _ => bands(cursor, depth).map(PolicyNode::Bands),
    })
}

/// Reads an object with a single field. The field's name is the kind of a node, and `read` reads the field's value.
pub(crate) fn node_by_kind<'a, T>(
    cursor: &mut JsonCursor<'a>,
    read: impl Fn(&str, &mut JsonCursor<'a>) -> Result<T, JournalTextError>,
) -> Result<T, JournalTextError> {
    let mark = cursor.mark();
    let mut node = None;
    cursor.object(NODES, |kind, cursor| {
        if node.is_some() {
            return Err(cursor.fault("a node is only one of drr, share, load, bands"));
        }
        node = Some(read(kind, cursor)?);
        Ok(())
    })?;
    node.ok_or_else(|| JournalTextError::new(mark, "a node must be one of drr, share, load, bands"))
}

fn drr(cursor: &mut JsonCursor<'_>, depth: usize) -> Result<DrrPolicy, JournalTextError> {
    let mut by = None;
    let mut classes = None;
    let mut default = None;
    let mut inside = None;
    cursor.object_with_removed(DRR, &[SETTLE], |field, cursor| {
        match field {
            "by" => by = Some(attribute(cursor)?),
            "classes" => classes = Some(cursor.list(|cursor| class::drr_class(cursor, depth))?),
            "default" => default = Some(cursor.text()?.into()),
            _ => inside = Some(inside_field(&inside, field, cursor, depth)?),
        }
        Ok(())
    })?;
    let inside = inside.unwrap_or(FlowInside::FCFS);
    let classes = classes.ok_or_else(|| cursor.missing("classes"))?;
    Ok(DrrPolicy {
        by: by.ok_or_else(|| cursor.missing("by"))?,
        classes: classes.into_iter().map(|class| class.in_node(&inside)).collect(),
        default,
        inside,
    })
}

fn share(cursor: &mut JsonCursor<'_>, depth: usize) -> Result<SharePolicy, JournalTextError> {
    let mut by = None;
    let mut classes = None;
    let mut beside_classes = None;
    let mut share = SharePolicy::new(Attribute::Class);
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
    share.inside = inside.unwrap_or(FlowInside::FCFS);
    if let Some(classes) = classes {
        if let Some((field, mark)) = beside_classes {
            let problem = PolicyErrorKind::WeightsBesideClasses.to_string();
            return Err(JournalTextError::new(mark, problem).in_field(field));
        }
        // Only now, because the node's inside may follow its classes in the text.
        share.classes = classes.into_iter().map(|class| class.in_node(&share.inside)).collect();
    }
    Ok(share)
}

fn load(cursor: &mut JsonCursor<'_>, depth: usize) -> Result<LoadPolicy, JournalTextError> {
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
    Ok(LoadPolicy {
        by: by.ok_or_else(|| cursor.missing("by"))?,
        alpha: start.unwrap_or(Alpha::BALANCED),
        auto_tune,
        max_wait_ticks,
        inside: inside.unwrap_or(FlowInside::FCFS),
    })
}

fn bands(cursor: &mut JsonCursor<'_>, depth: usize) -> Result<BandsPolicy, JournalTextError> {
    let mut by = None;
    let mut classes = None;
    let mut default = None;
    let mut inside = None;
    cursor.object(BANDS, |field, cursor| {
        match field {
            "by" => by = Some(attribute(cursor)?),
            "classes" => classes = Some(cursor.list(|cursor| class::band_class(cursor, depth))?),
            "default" => default = Some(cursor.text()?.into()),
            _ => inside = Some(inside_field(&inside, field, cursor, depth)?),
        }
        Ok(())
    })?;
    let inside = inside.unwrap_or(FlowInside::FCFS);
    let classes = classes.ok_or_else(|| cursor.missing("classes"))?;
    Ok(BandsPolicy {
        by: by.ok_or_else(|| cursor.missing("by"))?,
        classes: classes.into_iter().map(|class| class.in_node(&inside)).collect(),
        default,
        inside,
    })
}

/// Reads the field `queue` or `inside` of a node of this depth, or of one of its classes. Either field states what is
/// inside a flow: a queue or another node.
pub(super) fn inside_field(
    already: &Option<FlowInside>,
    field: &str,
    cursor: &mut JsonCursor<'_>,
    depth: usize,
) -> Result<FlowInside, JournalTextError> {
    if already.is_some() {
        return Err(cursor.fault("queue and inside exclude each other"));
    }
    match field {
        "queue" => queue(cursor).map(FlowInside::Queue),
        _ => Ok(FlowInside::Node(Arc::new(node(cursor, depth + 1)?))),
    }
}

/// Reads a queue, which is written as the name of its order or as an object.
fn queue(cursor: &mut JsonCursor<'_>) -> Result<QueuePolicy, JournalTextError> {
    let mut queue = QueuePolicy::default();
    if cursor.kind()? != JsonKind::Object {
        queue.order = order(cursor)?;
        return Ok(queue);
    }
    cursor.object(QUEUE, |field, cursor| {
        match field {
            "order" => queue.order = order(cursor)?,
            _ => queue.max_wait = Some(Micros(count(cursor)?)),
        }
        Ok(())
    })?;
    Ok(queue)
}

fn order(cursor: &mut JsonCursor<'_>) -> Result<QueueOrder, JournalTextError> {
    cursor.one_of(QueueOrder::ALL.map(|order| (order.name(), order)))
}

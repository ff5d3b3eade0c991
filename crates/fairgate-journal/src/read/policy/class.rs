//! The classes of drr and share nodes.

use fairgate_core::policy::{BusyThresholds, Class, ClassLimits, Inside, ShareClass};
use fairgate_core::units::{Tokens, Weight};

use super::inside_field;
use crate::read::cursor::Cursor;
use crate::read::fault::Fault;
use crate::read::number::{count, fraction, positive, tokens, weight};

/// The fields of a class, those that must be there first; so too below.
const DRR_CLASS: &[&str] = &[
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
const SHARE_CLASS: &[&str] = &[
    "name",
    "weight",
    "cap",
    "queue",
    "inside",
    "busy_tokens",
    "busy_fraction",
    "limit_requests_per_worker",
    "limit_input_tokens_per_worker",
    "limit_cached_tokens_per_worker",
];

/// What classes of both kinds may say.
#[derive(Default)]
struct Common {
    name: Box<str>,
    inside: Option<Inside>,
    busy: BusyThresholds,
    limits: ClassLimits,
}

impl Common {
    /// Reads a field that classes of both kinds have.
    fn read(&mut self, field: &str, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), Fault> {
        let Self { name, inside, busy, limits } = self;
        match field {
            "name" => *name = cursor.text()?.into(),
            "queue" | "inside" => *inside = Some(inside_field(inside, field, cursor, depth)?),
            "busy_tokens" => busy.tokens = Some(tokens(cursor)?),
            "busy_fraction" => busy.fraction = Some(fraction(cursor)?),
            "limit_requests_per_worker" => limits.requests_per_worker = Some(positive(cursor)?),
            "limit_input_tokens_per_worker" => {
                limits.input_tokens_per_worker = Some(Tokens(positive(cursor)?));
            }
            _ => limits.cached_tokens_per_worker = Some(Tokens(positive(cursor)?)),
        }
        Ok(())
    }
}

/// Reads a class of a drr node of that depth.
pub(super) fn drr_class(cursor: &mut Cursor<'_>, depth: usize) -> Result<Class, Fault> {
    let mut quantum = None;
    let mut common = Common::default();
    cursor.record(DRR_CLASS, 2, |field, cursor| match field {
        "quantum" => {
            quantum = Some(weight(cursor)?);
            Ok(())
        }
        _ => common.read(field, cursor, depth),
    })?;
    let Common { name, inside, busy, limits } = common;
    let quantum = quantum.ok_or_else(|| cursor.missing("quantum"))?;
    Ok(Class { name, quantum, inside: inside.unwrap_or(Inside::FCFS), busy, limits })
}

/// A class of a share node, before it is known what is inside the node.
pub(super) struct StatedClass {
    weight: Weight,
    cap: Option<u64>,
    common: Common,
}

impl StatedClass {
    /// The class in its node: what the class does not say about its inside, the node says.
    pub(super) fn in_node(self, node_inside: &Inside) -> ShareClass {
        let Self { weight, cap, common: Common { name, inside, busy, limits } } = self;
        let inside = inside.unwrap_or_else(|| node_inside.clone());
        ShareClass { name, weight, cap, inside, busy, limits }
    }
}

/// Reads the classes of a share node of that depth.
pub(super) fn share_classes(
    cursor: &mut Cursor<'_>,
    depth: usize,
) -> Result<Vec<StatedClass>, Fault> {
    let mark = cursor.mark();
    let classes = cursor.list(|cursor| share_class(cursor, depth))?;
    match classes.is_empty() {
        true => Err(Fault::new(mark, "a share node with classes needs at least one")),
        false => Ok(classes),
    }
}

fn share_class(cursor: &mut Cursor<'_>, depth: usize) -> Result<StatedClass, Fault> {
    let mut stated_weight = None;
    let mut cap = None;
    let mut common = Common::default();
    cursor.record(SHARE_CLASS, 2, |field, cursor| {
        match field {
            "weight" => stated_weight = Some(weight(cursor)?),
            "cap" => cap = Some(count(cursor)?),
            _ => common.read(field, cursor, depth)?,
        }
        Ok(())
    })?;
    let weight = stated_weight.ok_or_else(|| cursor.missing("weight"))?;
    Ok(StatedClass { weight, cap, common })
}

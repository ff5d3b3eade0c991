//! Reads the classes of drr, share and bands nodes.

use fairgate_core::policy::{
    BandClass, BusyThresholds, ClassLimits, DrrClassPolicy, FlowInside, ShareClass,
};
use fairgate_core::units::{Tokens, Weight};

use super::inside_field;
use crate::journal_text_error::JournalTextError;
use crate::read::cursor::JsonCursor;
use crate::read::number::{count, fraction, positive, tokens, weight};

/// The fields of a class of a drr node. In this list and the ones below, required fields come first.
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

const BAND_CLASS: &[&str] = &[
    "name",
    "cap",
    "queue",
    "inside",
    "busy_tokens",
    "busy_fraction",
    "limit_requests_per_worker",
    "limit_input_tokens_per_worker",
    "limit_cached_tokens_per_worker",
];

/// The fields that classes of drr, share and bands nodes have in common.
#[derive(Default)]
struct CommonClassFields {
    name: Box<str>,
    inside: Option<FlowInside>,
    busy: BusyThresholds,
    limits: ClassLimits,
}

impl CommonClassFields {
    /// Reads a field that classes of all kinds have in common.
    fn read(
        &mut self,
        field: &str,
        cursor: &mut JsonCursor<'_>,
        depth: usize,
    ) -> Result<(), JournalTextError> {
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

/// A class of a drr node as it is written, before the inside of its node is known.
pub(super) struct StatedDrrClass {
    quantum: Weight,
    common: CommonClassFields,
}

impl StatedDrrClass {
    /// Completes the class. A class that states no inside of its own gets the inside of its node.
    pub(super) fn in_node(self, node_inside: &FlowInside) -> DrrClassPolicy {
        let Self { quantum, common: CommonClassFields { name, inside, busy, limits } } = self;
        let inside = inside.unwrap_or_else(|| node_inside.clone());
        DrrClassPolicy { name, quantum, inside, busy, limits }
    }
}

/// Reads a class of a drr node of this depth.
pub(super) fn drr_class(
    cursor: &mut JsonCursor<'_>,
    depth: usize,
) -> Result<StatedDrrClass, JournalTextError> {
    let mut quantum = None;
    let mut common = CommonClassFields::default();
    cursor.record(DRR_CLASS, 2, |field, cursor| match field {
        "quantum" => {
            quantum = Some(weight(cursor)?);
            Ok(())
        }
        _ => common.read(field, cursor, depth),
    })?;
    let quantum = quantum.ok_or_else(|| cursor.missing("quantum"))?;
    Ok(StatedDrrClass { quantum, common })
}

/// A class of a bands node as it is written, before the inside of its node is known.
pub(super) struct StatedBandClass {
    cap: Option<u64>,
    common: CommonClassFields,
}

impl StatedBandClass {
    /// Completes the class. A class that states no inside of its own gets the inside of its node.
    pub(super) fn in_node(self, node_inside: &FlowInside) -> BandClass {
        let Self { cap, common: CommonClassFields { name, inside, busy, limits } } = self;
        let inside = inside.unwrap_or_else(|| node_inside.clone());
        BandClass { name, cap, inside, busy, limits }
    }
}

/// Reads a class of a bands node of this depth.
pub(super) fn band_class(
    cursor: &mut JsonCursor<'_>,
    depth: usize,
) -> Result<StatedBandClass, JournalTextError> {
    let mut cap = None;
    let mut common = CommonClassFields::default();
    cursor.record(BAND_CLASS, 1, |field, cursor| {
        match field {
            "cap" => cap = Some(count(cursor)?),
            _ => common.read(field, cursor, depth)?,
        }
        Ok(())
    })?;
    Ok(StatedBandClass { cap, common })
}

/// A class of a share node as it is written, before the inside of its node is known.
pub(super) struct StatedShareClass {
    weight: Weight,
    cap: Option<u64>,
    common: CommonClassFields,
}

impl StatedShareClass {
    /// Completes the class. A class that states no inside of its own gets the inside of its node.
    pub(super) fn in_node(self, node_inside: &FlowInside) -> ShareClass {
        let Self { weight, cap, common: CommonClassFields { name, inside, busy, limits } } = self;
        let inside = inside.unwrap_or_else(|| node_inside.clone());
        ShareClass { name, weight, cap, inside, busy, limits }
    }
}

/// Reads the classes of a share node of this depth.
pub(super) fn share_classes(
    cursor: &mut JsonCursor<'_>,
    depth: usize,
) -> Result<Vec<StatedShareClass>, JournalTextError> {
    let mark = cursor.mark();
    let classes = cursor.list(|cursor| share_class(cursor, depth))?;
    match classes.is_empty() {
        true => Err(JournalTextError::new(mark, "a share node with classes needs at least one")),
        false => Ok(classes),
    }
}

fn share_class(
    cursor: &mut JsonCursor<'_>,
    depth: usize,
) -> Result<StatedShareClass, JournalTextError> {
    let mut stated_weight = None;
    let mut cap = None;
    let mut common = CommonClassFields::default();
    cursor.record(SHARE_CLASS, 2, |field, cursor| {
        match field {
            "weight" => stated_weight = Some(weight(cursor)?),
            "cap" => cap = Some(count(cursor)?),
            _ => common.read(field, cursor, depth)?,
        }
        Ok(())
    })?;
    let weight = stated_weight.ok_or_else(|| cursor.missing("weight"))?;
    Ok(StatedShareClass { weight, cap, common })
}

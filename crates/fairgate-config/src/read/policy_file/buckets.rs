//! Reads the buckets of uncached tokens.

use std::collections::BTreeMap;

use super::class::identifier;
use crate::classes::ClassBucket;
use crate::field::ConfigField;

/// Reads buckets in the order of rising `min_tokens`, starting at 0.
pub(super) fn buckets(field: ConfigField<'_>) -> Option<Vec<ClassBucket>> {
    let mut names = BTreeMap::new();
    let mut floor_before = None;
    let read = |field| bucket(field, &mut names, &mut floor_before);
    let all: Vec<Option<ClassBucket>> = field.list()?.into_iter().map(read).collect();
    all.into_iter().collect()
}

fn bucket(
    field: ConfigField<'_>,
    names: &mut BTreeMap<String, usize>,
    floor_before: &mut Option<u64>,
) -> Option<ClassBucket> {
    let line = field.node.place.line;
    let section = field.section(&["min_tokens", "bucket"])?;
    let min_tokens = section.required(
        "min_tokens",
        "the fewest uncached tokens of a request in it; 0 in the first bucket",
        |field| {
            let floor = field.clone().integer(0..=u64::MAX)?;
            match floor_before.replace(floor) {
                None if floor > 0 => field.wrong(format!(
                    "must be 0 in the first bucket, not {floor}: requests with fewer tokens would be in none"
                )),
                Some(before) if floor <= before => field.wrong(format!(
                    "must be over {before}, the floor of the bucket before it, not {floor}: list buckets by rising floors"
                )),
                _ => Some(floor),
            }
        },
    );
    let name = section.required("bucket", "what classes call it in cache_bucket", |field| {
        let name = identifier(field.clone())?;
        match names.insert(name.clone(), line) {
            None => Some(name),
            Some(first) => {
                field.wrong(format!("another bucket is called {name:?}, on line {first}"))
            }
        }
    });
    Some(ClassBucket { min_tokens: min_tokens?, name: name? })
}

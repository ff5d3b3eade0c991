//! Reads the rules for the fields and headers that go to an upstream.

use crate::field::ConfigField;
use crate::field_rules::{FieldRule, FieldRules};

/// Fields that the gateway reads and may change itself. A rule for them would disable the limits that depend on them.
const READ_BY_THE_GATEWAY: &[&str] = &[
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "n",
    "best_of",
    "prompt",
    "background",
    "min_tokens",
    "thinking",
    "previous_response_id",
    "conversation",
];

const LISTS: [(&str, FieldRule); 3] =
    [("allow", FieldRule::Allow), ("strip", FieldRule::Strip), ("refuse", FieldRule::Refuse)];

pub(super) fn fields(field: ConfigField<'_>) -> Option<FieldRules> {
    rules(field, |name| {
        let read = READ_BY_THE_GATEWAY.iter().find(|read| covers(name, read));
        read.map(|read| format!("{read} is read by the gateway itself and can have no rule"))
    })
}

pub(super) fn headers(field: ConfigField<'_>) -> Option<FieldRules> {
    rules(field, |name| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.*".contains(c);
        (!name.chars().all(fits)).then(|| "must be the name of a header".to_owned())
    })
}

fn rules(field: ConfigField<'_>, wrong: impl Fn(&str) -> Option<String>) -> Option<FieldRules> {
    let section = field.section(&["allow", "strip", "refuse"])?;
    let mut named: Vec<(String, FieldRule)> = Vec::new();
    let mut well = true;
    for (list, rule) in LISTS {
        let read = section.optional(list, |field| {
            let mut names = Vec::new();
            for field in field.list()? {
                names.push((name(field.clone(), &wrong)?, field));
            }
            Some(names)
        });
        let Some(names) = read else {
            well = false;
            continue;
        };
        for (name, field) in names.into_iter().flatten() {
            if named.iter().any(|(other, _)| *other == name) {
                field.wrong::<()>(format!("{name:?} has a rule already"));
                well = false;
            }
            named.push((name, rule));
        }
    }
    well.then_some(FieldRules { named })
}

/// Reads a name, in lower case, with `*` at most at its end.
fn name(field: ConfigField<'_>, wrong: impl Fn(&str) -> Option<String>) -> Option<String> {
    let text = field.scalar().unwrap_or_default().to_ascii_lowercase();
    let beginning = text.strip_suffix('*').unwrap_or(&text);
    if beginning.is_empty() || text.len() > 128 || beginning.contains(['*', ' ']) {
        return field
            .wrong("must be a name of 1 to 128 bytes; a * at its end stands for any ending");
    }
    match wrong(&text) {
        Some(message) => field.wrong(message),
        None => Some(text),
    }
}

fn covers(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => pattern == name,
    }
}

//! Rules for the fields and headers that go to an upstream.

use crate::field::Field;
use crate::rules::{Rule, Rules};

/// What the gateway reads and may have to change itself: a rule for these would take away what limits rest on.
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

const LISTS: [(&str, Rule); 3] =
    [("allow", Rule::Allow), ("strip", Rule::Strip), ("refuse", Rule::Refuse)];

pub(super) fn fields(field: Field<'_>) -> Option<Rules> {
    rules(field, |name| {
        let read = READ_BY_THE_GATEWAY.iter().find(|read| covers(name, read));
        read.map(|read| format!("{read} is read by the gateway itself and can have no rule"))
    })
}

pub(super) fn headers(field: Field<'_>) -> Option<Rules> {
    rules(field, |name| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.*".contains(c);
        (!name.chars().all(fits)).then(|| "must be the name of a header".to_owned())
    })
}

fn rules(field: Field<'_>, wrong: impl Fn(&str) -> Option<String>) -> Option<Rules> {
    let section = field.section(&["allow", "strip", "refuse"])?;
    let mut named: Vec<(String, Rule)> = Vec::new();
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
    well.then_some(Rules { named })
}

/// A name in lower case, with a `*` at most at its end.
fn name(field: Field<'_>, wrong: impl Fn(&str) -> Option<String>) -> Option<String> {
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

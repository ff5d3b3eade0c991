//! Changes a request's body. Only the bytes of the changed fields are replaced.

use std::ops::Range;

use bytes::Bytes;

use crate::request_fields::{
    OutputCapField, OutputFloorField, RequestFields, StreamOptions, StreamOptionsContent,
    UnreadMember,
};
use crate::route::Route;

/// Changes to make to a request's body. The default changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyChanges<'a> {
    /// The upstream's name for the model; `None` keeps the client's name.
    pub model: Option<&'a str>,
    /// Cap on the output tokens of each answer; `None` for no cap. The cap lowers the client's limit, or sets a limit
    /// if the client sets none. [`RequestFields::capped`] returns the resulting limit.
    pub max_tokens: Option<u64>,
    /// True to request usage in a stream (`stream_options.include_usage`), on routes that report usage only on request.
    pub ask_usage: bool,
    /// Value for the field `cache_salt`; `None` adds no such field. An upstream reuses a cached prompt only for
    /// requests with the same salt. If the client sent a `cache_salt` of its own, `strip` must remove it.
    pub cache_salt: Option<&'a str>,
    /// Indexes of the members to remove, as [`RequestFields::other_members`] returns them, in ascending order.
    pub strip: &'a [usize],
}

impl RequestFields {
    /// Returns the body with these changes, and with every other byte unchanged. Returns the same [`Bytes`] if nothing
    /// changes.
    ///
    /// A cap below [`RequestFields::least_tokens`] is raised to that value. The cap then replaces each limit of the
    /// client that is higher. A chat may have two such fields, and both are replaced. If the client sets no limit, the
    /// cap is inserted at the front of the body. The inserted field is `max_output_tokens` for responses,
    /// `max_completion_tokens` for OpenAI's reasoning models, which refuse `max_tokens`, and `max_tokens` for all
    /// others. Fields that ask for more output than the cap (`min_tokens`, `thinking.budget_tokens`) are lowered too.
    ///
    /// # Panics
    ///
    /// Panics if `body` is not the body that was read.
    pub fn changed(&self, route: Route, body: Bytes, changes: BodyChanges<'_>) -> Bytes {
        let places = &self.places;
        assert_eq!(body.len(), places.body_bytes, "the body that was read is the one that changes");
        let mut splices = ByteSplices::default();
        let mut fresh = String::new();
        if let Some(model) = changes.model.filter(|&model| model != self.model) {
            splices.replace(places.model.clone(), serde_json::Value::from(model).to_string());
        }
        let cap = changes.max_tokens.filter(|_| route.generates());
        if let Some(cap) = cap.map(|cap| cap.max(self.least_tokens)) {
            if !lower(&places.caps, cap, &mut splices) {
                let field = cap_field(route, changes.model.unwrap_or(&self.model));
                fresh += &format!("\"{field}\":{cap},");
            }
            for OutputFloorField { value, tokens, margin } in &places.floors {
                if tokens.saturating_add(*margin) > cap {
                    splices.replace(value.clone(), cap.saturating_sub(*margin).to_string());
                }
            }
        }
        strip(&places.others, changes.strip, &mut splices);
        if changes.ask_usage && self.must_ask_usage(route) {
            match &places.stream_options {
                Some(options) => ask_usage(options, &mut splices),
                None => fresh += "\"stream_options\":{\"include_usage\":true},",
            }
        }
        if let Some(salt) = changes.cache_salt {
            fresh += &format!("\"cache_salt\":{},", serde_json::Value::from(salt));
        }
        // The member `model` is always present, so a member always follows the inserted ones.
        if !fresh.is_empty() {
            splices.replace(places.inside..places.inside, fresh);
        }
        splices.apply(body)
    }
}

/// Writes the cap into the limit fields that are present and allow more output. Returns false if the body has no limit
/// field.
fn lower(caps: &[OutputCapField], cap: u64, splices: &mut ByteSplices) -> bool {
    let numbers = caps.iter().filter(|stated| stated.allowed.is_some());
    // A null beside a number sets no limit and stays. A null alone is replaced.
    let places: Vec<_> =
        if numbers.clone().count() > 0 { numbers.collect() } else { caps.iter().take(1).collect() };
    for OutputCapField { value, allowed } in &places {
        if allowed.is_none_or(|allowed| cap < allowed) {
            splices.replace(value.clone(), cap.to_string());
        }
    }
    !places.is_empty()
}

/// Removes members, each with one comma: the comma after a member at the front of the body, and the comma before any
/// other member. That comma always exists, because the member `model` is never removed.
fn strip(others: &[UnreadMember], numbers: &[usize], splices: &mut ByteSplices) {
    let members = numbers.iter().filter_map(|&number| others.get(number));
    for (gone, member) in members.enumerate() {
        let is_at_front = member.position == gone;
        let part = match is_at_front {
            true => member.key.inner.start - 1..member.next,
            false => member.before..member.end,
        };
        splices.replace(part, String::new());
    }
}

/// Returns the name of the field in which a cap is inserted if the client sets no limit.
pub(crate) fn cap_field(route: Route, model: &str) -> &'static str {
    match route {
        Route::Responses => "max_output_tokens",
        Route::ChatCompletions if refuses_max_tokens(model) => "max_completion_tokens",
        _ => "max_tokens",
    }
}

/// Returns true for OpenAI's reasoning models (o1, o3-mini, gpt-5 and later), which answer 400 to `max_tokens` in a
/// chat.
pub(crate) fn refuses_max_tokens(model: &str) -> bool {
    let name = model.strip_prefix("openai/").unwrap_or(model);
    let numbered = |prefix: &str, least: u8| {
        let digit = name.strip_prefix(prefix).and_then(|rest| rest.bytes().next());
        digit.is_some_and(|digit| digit.is_ascii_digit() && digit >= least)
    };
    numbered("o", b'1') || numbered("gpt-", b'5')
}

fn ask_usage(options: &StreamOptions, splices: &mut ByteSplices) {
    match &options.content {
        StreamOptionsContent::Null => {
            splices.replace(options.value.clone(), "{\"include_usage\":true}".to_owned());
        }
        StreamOptionsContent::Silent { inside, followed } => {
            let comma = if *followed { "," } else { "" };
            splices.replace(*inside..*inside, format!("\"include_usage\":true{comma}"));
        }
        StreamOptionsContent::Says(value) => splices.replace(value.clone(), "true".to_owned()),
    }
}

/// Ranges of a body that do not overlap, and the text that replaces each.
#[derive(Default)]
struct ByteSplices(Vec<(Range<usize>, String)>);

impl ByteSplices {
    fn replace(&mut self, part: Range<usize>, by: String) {
        self.0.push((part, by));
    }

    fn apply(mut self, body: Bytes) -> Bytes {
        if self.0.is_empty() {
            return body;
        }
        self.0.sort_by_key(|(part, _)| (part.start, part.end));
        let added: usize = self.0.iter().map(|(_, by)| by.len()).sum();
        let mut changed = Vec::with_capacity(body.len() + added);
        let mut copied = 0;
        for (part, by) in &self.0 {
            changed.extend_from_slice(&body[copied..part.start]);
            changed.extend_from_slice(by.as_bytes());
            copied = part.end;
        }
        changed.extend_from_slice(&body[copied..]);
        Bytes::from(changed)
    }
}

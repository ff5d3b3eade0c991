//! Changes to a body: the bytes of the fields that change, and no other.

use std::ops::Range;

use bytes::Bytes;

use crate::ask::{Ask, Cap, Floor, Member, OptionsContent, StreamOptions};
use crate::route::Route;

/// What a rule changes in a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes<'a> {
    /// The upstream's name for the model.
    pub model: Option<&'a str>,
    /// A cap on the output tokens of each answer: lowers what the caller allows, or sets it where it states none;
    /// [`Ask::capped`] says what comes of it.
    pub max_tokens: Option<u64>,
    /// Asks for usage in a stream (`stream_options.include_usage`), where the dialect needs asking.
    pub ask_usage: bool,
    /// Text under which the upstream keeps what it caches of the prompt apart (`cache_salt`). A caller's own must be taken
    /// out.
    pub cache_salt: Option<&'a str>,
    /// Members to take out, by their numbers in [`Ask::other_members`], in order.
    pub strip: &'a [usize],
}

impl Ask {
    /// The body with these changes and every other byte as it was; the very same [`Bytes`] where nothing changes.
    ///
    /// A cap is never lower than [`Ask::least_tokens`]. It goes where the caller stated its own, to both fields of a chat where both are stated. Where it stated none,
    /// the cap is put in front: `max_output_tokens` for responses, else `max_tokens`, which every server of this API
    /// knows, except for OpenAI's reasoning models, which refuse it and are told by `max_completion_tokens`. What asks for
    /// more output than the cap (`min_tokens`, `thinking.budget_tokens`) is lowered to it.
    ///
    /// # Panics
    ///
    /// Where `body` is not the one that was read.
    pub fn changed(&self, route: Route, body: Bytes, changes: Changes<'_>) -> Bytes {
        let places = &self.places;
        assert_eq!(body.len(), places.body_bytes, "the body that was read is the one that changes");
        let mut splices = Splices::default();
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
            for Floor { value, tokens, margin } in &places.floors {
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
        // The model is there, so something always follows what is put in front.
        if !fresh.is_empty() {
            splices.replace(places.inside..places.inside, fresh);
        }
        splices.apply(body)
    }
}

/// Writes the cap into the fields that are there and allow more; false where there is none.
fn lower(caps: &[Cap], cap: u64, splices: &mut Splices) -> bool {
    let numbers = caps.iter().filter(|stated| stated.allowed.is_some());
    // A null beside a number bounds nothing and stays; alone it is the place to write to.
    let places: Vec<_> =
        if numbers.clone().count() > 0 { numbers.collect() } else { caps.iter().take(1).collect() };
    for Cap { value, allowed } in &places {
        if allowed.is_none_or(|allowed| cap < allowed) {
            splices.replace(value.clone(), cap.to_string());
        }
    }
    !places.is_empty()
}

/// Takes members out, each with one comma. Those at the front go with the comma after them, all others with the one
/// before: the model always stays, so one of the two is there.
fn strip(others: &[Member], numbers: &[usize], splices: &mut Splices) {
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

/// The field for a cap where the caller states none.
fn cap_field(route: Route, model: &str) -> &'static str {
    match route {
        Route::Responses => "max_output_tokens",
        Route::ChatCompletions if refuses_max_tokens(model) => "max_completion_tokens",
        _ => "max_tokens",
    }
}

/// OpenAI's reasoning models (o1, o3-mini, gpt-5 and on) answer 400 to `max_tokens` in a chat.
pub(crate) fn refuses_max_tokens(model: &str) -> bool {
    let name = model.strip_prefix("openai/").unwrap_or(model);
    let numbered = |prefix: &str, least: u8| {
        let digit = name.strip_prefix(prefix).and_then(|rest| rest.bytes().next());
        digit.is_some_and(|digit| digit.is_ascii_digit() && digit >= least)
    };
    numbered("o", b'1') || numbered("gpt-", b'5')
}

fn ask_usage(options: &StreamOptions, splices: &mut Splices) {
    match &options.content {
        OptionsContent::Null => {
            splices.replace(options.value.clone(), "{\"include_usage\":true}".to_owned());
        }
        OptionsContent::Silent { inside, followed } => {
            let comma = if *followed { "," } else { "" };
            splices.replace(*inside..*inside, format!("\"include_usage\":true{comma}"));
        }
        OptionsContent::Says(value) => splices.replace(value.clone(), "true".to_owned()),
    }
}

/// Parts of a body and what they become; they do not overlap.
#[derive(Default)]
struct Splices(Vec<(Range<usize>, String)>);

impl Splices {
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

//! The four generating APIs as they look on the wire, whole and streamed.

mod chat;
mod completions;
mod embeddings;
mod messages;
mod responses;

use std::fmt::Write;

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::ask::{Ask, Route};

pub(crate) use embeddings::embeddings;

/// How one API tells an answer. A stream is an opening, every piece of every choice, and a closing.
pub(crate) trait Voice: Send {
    /// The answer as one JSON value.
    fn whole(&self, answer: &Answer) -> Value;
    /// The events before the first token.
    fn opening(&mut self, answer: &Answer, out: &mut String);
    /// The event of the `index`th token of a choice.
    fn piece(&mut self, answer: &Answer, choice: usize, index: u64, out: &mut String);
    /// The events after the last token.
    fn closing(&mut self, answer: &Answer, out: &mut String);
}

/// The voice of a route; `None` where a route does not generate.
pub(crate) fn voice(route: Route, ask: &Ask, answer: &Answer) -> Option<Box<dyn Voice>> {
    Some(match route {
        Route::Chat => Box::new(chat::Chat::new(ask, answer)),
        Route::Completions => Box::new(completions::Completions::new(ask, answer)),
        Route::Responses => Box::new(responses::Responses::new(ask)),
        Route::Messages => Box::new(messages::Messages),
        Route::Embeddings | Route::CountTokens => return None,
    })
}

/// What `GET /v1/models` answers: OpenAI's fields and Anthropic's, since one route serves both.
pub(crate) fn models(models: &[String]) -> Value {
    let listed = |model: &String| {
        json!({
            "id": model, "object": "model", "created": 0, "owned_by": "fairgate-sim",
            "type": "model", "display_name": model, "created_at": "1970-01-01T00:00:00Z",
        })
    };
    let data: Vec<_> = models.iter().map(listed).collect();
    let (first, last) = (models.first(), models.last());
    json!({"object": "list", "data": data, "has_more": false, "first_id": first, "last_id": last})
}

/// Writes a text as a JSON string. Most texts here are plain words, and those are only copied.
fn write_json_string(out: &mut String, text: &str) {
    let plain = |byte: u8| (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
    if text.bytes().all(plain) {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        write(out, format_args!("{}", Value::from(text)));
    }
}

/// Writes an event that has a name.
fn write_event(out: &mut String, name: &str, data: &Value) {
    write(out, format_args!("event: {name}\ndata: {data}\n\n"));
}

fn write(out: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(what);
}

/// Adds a usage to an object, where there is one.
fn with_usage(mut object: Value, usage: Option<Value>) -> Value {
    if let Some(usage) = usage {
        object["usage"] = usage;
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_where_they_must_be() {
        for text in ["plain words.", "quote \" and \\", "line\nbreak", "ä"] {
            let mut out = String::new();
            write_json_string(&mut out, text);
            assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
        }
    }
}

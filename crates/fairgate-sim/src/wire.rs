//! Formats of answers, whole and streamed, for the APIs whose model generates text.

mod chat;
mod completions;
mod embeddings;
mod messages;
mod responses;

use std::fmt::Write;

use serde_json::{Value, json};

use crate::answer::SimAnswer;
use crate::request::SimRequest;
use crate::route::SimRoute;

pub(crate) use embeddings::embeddings;

/// The format of one API's answers. A stream consists of an opening, all tokens of all choices, and a closing.
pub(crate) trait AnswerFormat: Send {
    /// Formats the answer as one JSON value.
    fn whole(&self, answer: &SimAnswer) -> Value;
    /// Writes the events before the first token.
    fn opening(&mut self, answer: &SimAnswer, out: &mut String);
    /// Writes the event of one token of a choice. `choice` and `index` are counted from 0.
    fn piece(&mut self, answer: &SimAnswer, choice: usize, index: u64, out: &mut String);
    /// Writes the events after the last token.
    fn closing(&mut self, answer: &SimAnswer, out: &mut String);
}

/// Returns the answer format of a route; `None` for embeddings and token counts, which generate no text.
pub(crate) fn answer_format(
    route: SimRoute,
    request: &SimRequest,
    answer: &SimAnswer,
) -> Option<Box<dyn AnswerFormat>> {
    Some(match route {
        SimRoute::Chat => Box::new(chat::ChatFormat::new(request, answer)),
        SimRoute::Completions => Box::new(completions::CompletionsFormat::new(request, answer)),
        SimRoute::Responses => Box::new(responses::ResponsesFormat::new(request)),
        SimRoute::Messages => Box::new(messages::MessagesFormat),
        SimRoute::Embeddings | SimRoute::CountTokens => return None,
    })
}

/// Builds the answer of `GET /v1/models`. It has both OpenAI's and Anthropic's fields, because one route serves clients
/// of both.
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

/// Writes a text as a JSON string. Most texts here are plain words, which are copied without
/// escaping.
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

/// Writes a server-sent event with a name.
fn write_event(out: &mut String, name: &str, data: &Value) {
    write(out, format_args!("event: {name}\ndata: {data}\n\n"));
}

fn write(out: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(what);
}

/// Adds the field `usage` to an object, unless `usage` is `None`.
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

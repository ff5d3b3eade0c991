//! Tool calls in answers. Decides whether a request gets a tool call, and generates the call's arguments.
//!
//! An answer calls a tool if the request's `tool_choice` requires one (`required`, `any`, or a tool by name). An answer
//! also calls a tool if `tool_choice` does not forbid it and the last message contains the word `call_tool`, or
//! `call_tool:name` for a certain tool. If the last message is a tool's result, the answer is text.

use serde_json::{Map, Value, json};

use crate::error_response::SimErrorResponse;
use crate::route::SimRoute;

const CALL_WORD: &str = "call_tool";
/// Number of characters of a tool call's arguments that make one token.
const PIECE_CHARS: usize = 4;

/// One call of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolCall {
    pub(crate) name: String,
    /// Arguments of the call as JSON text, cut into tokens.
    pub(crate) arguments: Vec<String>,
}

struct ToolDefinition<'a> {
    name: &'a str,
    schema: Option<&'a Value>,
}

enum ToolChoice<'a> {
    Never,
    Any,
    Named(&'a str),
    ByPrompt,
}

/// Returns the tool call of the answer to a request; `None` if the answer is text.
pub(crate) fn wanted(
    route: SimRoute,
    fields: &Map<String, Value>,
) -> Result<Option<ToolCall>, SimErrorResponse> {
    let Some(Value::Array(tools)) = fields.get("tools") else { return Ok(None) };
    let tools: Vec<_> = tools.iter().filter_map(|tool| read_tool(route, tool)).collect();
    let named = |name: &str| tools.iter().find(|tool| tool.name == name);
    let tool = match choice(fields.get("tool_choice")) {
        ToolChoice::Never => None,
        ToolChoice::Any => tools.first(),
        ToolChoice::Named(name) => {
            let missing = || {
                SimErrorResponse::field(
                    "tool_choice",
                    "`tool_choice` names a tool that is not in `tools`.",
                )
            };
            Some(named(name).ok_or_else(missing)?)
        }
        ToolChoice::ByPrompt => match last_message(route, fields).and_then(called_in) {
            None => None,
            Some("") => tools.first(),
            Some(name) => named(name).or(tools.first()),
        },
    };
    Ok(tool.map(|tool| ToolCall {
        name: tool.name.to_owned(),
        arguments: pieces(&tool.schema.map_or_else(|| json!({}), sample).to_string()),
    }))
}

fn read_tool(route: SimRoute, tool: &Value) -> Option<ToolDefinition<'_>> {
    let (tool, schema) = match route {
        SimRoute::Chat => (tool.get("function")?, "parameters"),
        SimRoute::Messages => (tool, "input_schema"),
        _ => (tool, "parameters"),
    };
    Some(ToolDefinition { name: tool.get("name")?.as_str()?, schema: tool.get(schema) })
}

fn choice(value: Option<&Value>) -> ToolChoice<'_> {
    let name = |value: &Value| match value {
        Value::String(word) => Some(word.clone()),
        Value::Object(fields) => fields.get("type").and_then(Value::as_str).map(str::to_owned),
        _ => None,
    };
    let Some(value) = value else { return ToolChoice::ByPrompt };
    match name(value).as_deref() {
        Some("none") => ToolChoice::Never,
        Some("required" | "any") => ToolChoice::Any,
        Some("function" | "tool") => {
            let holder = value.get("function").unwrap_or(value);
            holder
                .get("name")
                .and_then(Value::as_str)
                .map_or(ToolChoice::ByPrompt, ToolChoice::Named)
        }
        _ => ToolChoice::ByPrompt,
    }
}

fn last_message(route: SimRoute, fields: &Map<String, Value>) -> Option<&Value> {
    let messages = fields.get(if route == SimRoute::Responses { "input" } else { "messages" })?;
    messages.as_array().map_or(Some(messages), |all| all.last())
}

/// Returns the tool's name in `call_tool:name`; an empty name for `call_tool` alone, and `None` if the text has
/// neither.
fn called_in(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => {
            let (_, after) = text.split_once(CALL_WORD)?;
            let name = after.strip_prefix(':').unwrap_or("");
            let letter = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
            Some(name.split(|c| !letter(c)).next().unwrap_or(""))
        }
        Value::Array(items) => items.iter().find_map(called_in),
        Value::Object(fields) => fields.values().find_map(called_in),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Builds a value that is valid for a JSON Schema. Supports types, enums, const, anyOf, oneOf, properties and items.
fn sample(schema: &Value) -> Value {
    let first = |name: &str| schema.get(name).and_then(Value::as_array).and_then(|all| all.first());
    if let Some(value) = schema.get("const").or_else(|| first("enum")) {
        return value.clone();
    }
    if let Some(variant) = first("anyOf").or_else(|| first("oneOf")) {
        return sample(variant);
    }
    let kind = match schema.get("type") {
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
        Some(kind) => kind.as_str(),
        None => schema.get("properties").map(|_| "object"),
    };
    match kind {
        Some("object") | None => {
            let properties = schema.get("properties").and_then(Value::as_object);
            let sampled = properties.into_iter().flatten();
            sampled.map(|(name, schema)| (name.clone(), sample(schema))).collect()
        }
        Some("array") => {
            schema.get("items").map_or_else(|| json!([]), |item| json!([sample(item)]))
        }
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        Some(_) => json!("quiet harbour"),
    }
}

fn pieces(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(PIECE_CHARS).map(|piece| piece.iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools() -> Value {
        let schema =
            |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
        json!([
            {"type": "function", "function": {"name": "weather", "parameters": schema("city")}},
            {"type": "function", "function": {"name": "time", "parameters": schema("zone")}},
        ])
    }

    fn called(tool_choice: Value, content: &str) -> Option<String> {
        let body = json!({
            "tools": tools(), "tool_choice": tool_choice, "messages": [{"role": "user", "content": content}],
        });
        wanted(SimRoute::Chat, body.as_object().unwrap()).unwrap().map(|call| call.name)
    }

    #[test]
    fn the_choice_or_the_word_calls_a_tool() {
        let time = json!({"type": "function", "function": {"name": "time"}});
        assert_eq!(called(json!("required"), "hi").as_deref(), Some("weather"));
        assert_eq!(called(time, "hi").as_deref(), Some("time"));
        assert_eq!(called(json!("auto"), "hi"), None);
        assert_eq!(called(json!(null), "please call_tool now").as_deref(), Some("weather"));
        assert_eq!(called(json!("auto"), "please call_tool:time.").as_deref(), Some("time"));
        assert_eq!(called(json!("none"), "call_tool"), None);
    }

    #[test]
    fn a_named_tool_must_exist() {
        let choice = json!({"type": "tool", "name": "dance"});
        let body = json!({"tools": [{"name": "sing"}], "tool_choice": choice, "messages": [{}]});
        assert!(wanted(SimRoute::Messages, body.as_object().unwrap()).is_err());
    }

    #[test]
    fn only_the_last_message_calls() {
        let body = json!({"tools": tools(), "messages": [
            {"role": "user", "content": "call_tool"}, {"role": "tool", "content": "sunny"},
        ]});
        assert_eq!(wanted(SimRoute::Chat, body.as_object().unwrap()).unwrap(), None);
    }

    #[test]
    fn arguments_fit_their_schema() {
        let schema = json!({"type": "object", "properties": {
            "city": {"type": "string"}, "days": {"type": "integer", "minimum": 3}, "unit": {"enum": ["C", "F"]},
            "tags": {"type": "array", "items": {"type": ["string", "null"]}}, "deep": {"properties": {"x": {"type": "boolean"}}},
        }});
        let expected = json!({
            "city": "quiet harbour", "days": 3, "unit": "C", "tags": ["quiet harbour"], "deep": {"x": true},
        });
        assert_eq!(sample(&schema), expected);
        assert_eq!(pieces("äöüß1").concat(), "äöüß1");
    }
}

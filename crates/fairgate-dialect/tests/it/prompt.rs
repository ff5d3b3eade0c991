//! Tests of the canonical bytes of prompts. They must ignore what no engine reads, show all other differences, and be a
//! beginning of those of the next turn.

use fairgate_dialect::{PromptPiece, RequestFields, Route};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// Returns the canonical bytes of a prompt, with files in angle brackets.
fn canonical(route: Route, body: &str) -> Vec<u8> {
    let ask = RequestFields::read(route, body.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    let told = ask.prompt(route, body.as_bytes(), |piece| match piece {
        PromptPiece::Text(text) => bytes.extend_from_slice(text),
        PromptPiece::File { bytes: file, counted_bytes } => {
            bytes.extend_from_slice(format!("<{counted_bytes}:").as_bytes());
            bytes.extend_from_slice(file);
            bytes.push(b'>');
        }
    });
    assert!(told);
    bytes
}

fn chat(body: &Value) -> Vec<u8> {
    canonical(Route::ChatCompletions, &body.to_string())
}

#[test]
fn white_space_key_order_and_escapes_do_not_matter() {
    let one = r#"{"model":"m","messages":[{"role":"user","content":"a\nb é"}],"tools":[{"type":"function","function":{"name":"f"}}]}"#;
    let two = r#" { "tools" : [ {"function": {"name" :"f"}, "type":"function"} ],
        "messages": [ { "content" : "a\u000ab \u00e9", "role":"user" } ], "model" : "m" } "#;
    let route = Route::ChatCompletions;
    assert_eq!(canonical(route, one), canonical(route, two));
}

#[test]
fn what_follows_the_prompt_is_left_out() {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "hello"}]});
    let mut more = body.clone();
    for (name, value) in [
        ("max_tokens", json!(7)),
        ("temperature", json!(0.5)),
        ("stream", json!(true)),
        ("stop", json!(["x"])),
        ("user", json!("somebody")),
        ("seed", json!(1)),
    ] {
        more[name] = value;
    }
    assert_eq!(chat(&body), chat(&more));
}

#[test]
fn everything_that_an_engine_reads_matters() {
    let body = json!({
        "model": "m",
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": 1, "b": 2}}}],
        "messages": [
            {"role": "system", "content": "rules"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "done"},
        ],
    });
    let changed = |pointer: &str, value: Value| {
        let mut body = body.clone();
        *body.pointer_mut(pointer).unwrap() = value;
        chat(&body)
    };
    let all = [
        chat(&body),
        changed("/tools/0/function/name", json!("g")),
        changed("/tools/0/function/parameters/b", json!(3)),
        changed("/messages/0/role", json!("user")),
        changed("/messages/0/content", json!("rule")),
        changed("/messages/1/tool_calls/0/function/arguments", json!("{ }")),
        changed("/messages/2/content", json!("done.")),
        changed("/messages/2/content", json!(["done"])),
        changed("/messages", json!([])),
        chat(&{
            let mut body = body.clone();
            body["cache_salt"] = json!("s");
            body
        }),
    ];
    for (number, one) in all.iter().enumerate() {
        assert!(all[number + 1..].iter().all(|other| other != one), "{number}");
    }
}

#[test]
fn schemas_and_arguments_keep_their_order() {
    let tool = |parameters: &str| {
        let body = format!(
            r#"{{"model":"m","messages":[],"tools":[{{"function":{{"name":"f","parameters":{parameters}}}}}]}}"#
        );
        canonical(Route::ChatCompletions, &body)
    };
    assert_ne!(tool(r#"{"a":null,"b":[1]}"#), tool(r#"{"b":[1],"a":null}"#));
    assert_ne!(tool(r#"{"a":null}"#), tool("{}"));
    assert_eq!(tool(r#"{"a":null,"b":[1,2]}"#), tool(r#"{ "a" : null, "b" : [ 1, 2 ] }"#));
}

#[test]
fn the_order_is_tools_then_system_then_messages() {
    let body = r#"{"messages":[{"role":"user","content":"QUESTION"}],"system":"RULES","tools":[{"name":"TOOL"}],"model":"m"}"#;
    let bytes = canonical(Route::Messages, body);
    let place =
        |word: &str| bytes.windows(word.len()).position(|part| part == word.as_bytes()).unwrap();
    assert!(place("TOOL") < place("RULES") && place("RULES") < place("QUESTION"));
}

/// Returns the length of the common beginning of two byte strings.
fn shared(one: &[u8], two: &[u8]) -> usize {
    one.iter().zip(two).take_while(|(a, b)| a == b).count()
}

#[test]
fn the_next_turn_begins_with_this_one() {
    let turn = |messages: &[Value]| {
        json!({"model": "m", "messages": messages, "tools": [{"name": "t"}]}).to_string()
    };
    let all = [
        json!({"role": "user", "content": "first question"}),
        json!({"role": "assistant", "content": "first answer", "refusal": null}),
        json!({"role": "user", "content": "second question"}),
    ];
    for route in [Route::ChatCompletions, Route::Messages] {
        let (one, two) = (canonical(route, &turn(&all[..1])), canonical(route, &turn(&all)));
        // All but the bracket that closes the list.
        assert_eq!(shared(&one, &two), one.len() - 1, "{route:?}");
    }
}

#[test]
fn anthropics_cache_marks_may_wander() {
    let body = |content: Value| {
        let last = json!({"role": "user", "content": content});
        json!({"model": "m", "system": [{"type": "text", "text": "rules"}], "messages": [last]})
            .to_string()
    };
    let marked = json!([{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]);
    let plain = canonical(Route::Messages, &body(json!("hi")));
    assert_eq!(plain, canonical(Route::Messages, &body(marked)));
    let system = r#"{"model":"m","system":"rules","messages":[{"role":"user","content":"hi"}]}"#;
    assert_eq!(plain, canonical(Route::Messages, system));
}

#[test]
fn an_answer_of_the_responses_api_is_the_same_as_input() {
    let text = r#"{"model":"m","instructions":"rules","input":"hi"}"#;
    let items = r#"{"model":"m","instructions":"rules","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]},
        {"type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"yes","annotations":[]}]}]}"#;
    let (one, two) = (canonical(Route::Responses, text), canonical(Route::Responses, items));
    assert_eq!(shared(&one, &two), one.len());
    let other =
        r#"{"model":"m","instructions":"rules","input":"hi","previous_response_id":"resp_1"}"#;
    assert_eq!(shared(&one, &canonical(Route::Responses, other)), 0);
}

#[test]
fn completions_have_texts_and_token_ids() {
    let prompt = |prompt: &str| {
        canonical(Route::Completions, &format!(r#"{{"model":"m","prompt":{prompt}}}"#))
    };
    assert_ne!(prompt(r#""ab""#), prompt(r#"["a","b"]"#));
    assert_eq!(prompt("[1,2,3]"), prompt("[ 1, 2,\n3 ]"));
    assert_ne!(prompt("[1,2,3]"), prompt("[12,3]"));
    assert_ne!(prompt("[[1,2],[3]]"), prompt("[[1],[2,3]]"));
    let (short, long) = (prompt("[1,2]"), prompt("[1,2,3]"));
    assert_eq!(shared(&short, &long), short.len() - 2);
}

#[test]
fn a_file_is_told_apart_from_text_and_counts_as_4096_bytes_at_most() {
    let image = |letter: &str, size: usize| {
        let url = format!("data:image/png;base64,{}", letter.repeat(size));
        chat(
            &json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]}),
        )
    };
    assert_ne!(image("A", 9000), image("B", 9000));
    let text = image("A", 9000);
    assert!(text.windows(6).any(|part| part == b"<4096:"));
}

#[test]
fn embeddings_and_token_counts_have_no_prompt_to_reuse() {
    for (route, body) in [
        (Route::Embeddings, r#"{"model":"m","input":"text"}"#),
        (Route::CountTokens, r#"{"model":"m","messages":[]}"#),
    ] {
        let ask = RequestFields::read(route, body.as_bytes()).unwrap();
        assert!(!ask.prompt(route, body.as_bytes(), |_| panic!("nothing is told")));
    }
}

#[test]
fn a_body_of_too_many_parts_is_not_described() {
    let body = format!(r#"{{"model":"m","messages":[{}1]}}"#, "[],".repeat(1 << 18));
    let ask = RequestFields::read(Route::ChatCompletions, body.as_bytes()).unwrap();
    assert!(!ask.prompt(Route::ChatCompletions, body.as_bytes(), |_| panic!("nothing is told")));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("role"),
        Just("type"),
        Just("text"),
        Just("content"),
        Just("input"),
        Just("status"),
        Just("name"),
        Just("é"),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..5).prop_map(|members| {
                Value::Object(
                    members
                        .into_iter()
                        .map(|(key, value)| (key.to_owned(), value))
                        .collect::<Map<_, _>>(),
                )
            }),
        ]
    })
}

/// Writes the same value with white space everywhere and with every character escaped.
fn respelled(value: &Value, out: &mut String) {
    let escape = |text: &str, out: &mut String| {
        out.push('"');
        text.encode_utf16().for_each(|unit| *out += &format!("\\u{unit:04x}"));
        out.push('"');
    };
    match value {
        Value::String(text) => escape(text, out),
        Value::Array(items) => {
            out.push('[');
            for (number, item) in items.iter().enumerate() {
                *out += if number > 0 { " ,\n" } else { "\t" };
                respelled(item, out);
            }
            *out += " ]";
        }
        Value::Object(members) => {
            out.push('{');
            for (number, (key, value)) in members.iter().enumerate() {
                *out += if number > 0 { " , " } else { " " };
                *out += &format!("{} : ", Value::from(key.as_str()));
                respelled(value, out);
            }
            *out += " }";
        }
        other => *out += &other.to_string(),
    }
}

proptest! {
    #[test]
    fn the_spelling_of_any_value_does_not_matter(messages in value()) {
        let plain = format!(r#"{{"model":"m","messages":{messages}}}"#);
        let mut spelled = r#"{"model":"m","messages":"#.to_owned();
        respelled(&messages, &mut spelled);
        spelled.push('}');
        let route = Route::ChatCompletions;
        prop_assert_eq!(canonical(route, &plain), canonical(route, &spelled));
    }
}

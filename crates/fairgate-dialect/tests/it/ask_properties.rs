//! Property tests with random bodies. A body must be read if it is JSON, and only the named fields
//! may change.

use fairgate_dialect::fuzz::{ask, check_ask};
use fairgate_dialect::{BodyChanges, RequestFields, Route};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Value, json};

fn route() -> impl Strategy<Value = Route> {
    select(&Route::ALL)
}

/// Generates random JSON values of limited size.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::btree_map(".{0,10}", inner, 0..5)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Generates the fields that this crate reads, with allowed values.
fn fields() -> impl Strategy<Value = Vec<(String, Value)>> {
    let tokens = || prop_oneof![Just(Value::Null), (0..2000_u64).prop_map(Value::from)];
    let options = prop_oneof![
        Just(json!(null)),
        Just(json!({})),
        Just(json!({"other": [1, {"include_usage": 1}]})),
        Just(json!({"include_usage": true})),
        Just(json!({"include_usage": false, "z": 1})),
        Just(json!({"a": 1, "include_usage": null})),
    ];
    let stream =
        prop_oneof![Just(json!(null)), Just(json!(true)), Just(json!(true)), Just(json!(false))];
    let thinking = prop_oneof![
        Just(json!({"type": "disabled"})),
        (0..900_u64).prop_map(|budget| json!({"budget_tokens": budget}))
    ];
    ((tokens(), tokens(), tokens(), tokens()), options, stream, thinking, 0..8_usize).prop_flat_map(
        |((tokens, completion, output, least), options, stream, thinking, count)| {
            let fields = vec![
                ("max_tokens".to_owned(), tokens),
                ("max_completion_tokens".to_owned(), completion),
                ("max_output_tokens".to_owned(), output),
                ("stream_options".to_owned(), options),
                ("stream".to_owned(), stream),
                ("min_tokens".to_owned(), least),
                ("thinking".to_owned(), thinking),
            ];
            subsequence(fields, count)
        },
    )
}

/// Generates bodies as text, with members in any order, any white space, and some escaped keys.
fn body() -> impl Strategy<Value = String> {
    let others = proptest::collection::vec(("[a-z_]{1,12}x|.{0,8}x", value()), 0..6);
    let model = "\\PC{1,20}";
    let members = (fields(), others, model).prop_map(|(mut members, others, model)| {
        members.extend(others);
        members.push(("model".to_owned(), model.into()));
        members
    });
    let spaces = proptest::collection::vec(select(vec!["", " ", "\n", "\t", "\r\n  "]), 8);
    let escapes = proptest::collection::vec(any::<bool>(), 16);
    (members.prop_shuffle(), spaces, escapes).prop_map(|(members, spaces, escapes)| {
        let mut text = String::new();
        let mut spaces = spaces.iter().cycle();
        let mut space = |text: &mut String| text.push_str(spaces.next().unwrap());
        space(&mut text);
        text.push('{');
        for (i, (key, value)) in members.iter().enumerate() {
            if i > 0 {
                text.push(',');
            }
            space(&mut text);
            text += &if escapes[i] { escaped(key) } else { json!(key).to_string() };
            space(&mut text);
            text.push(':');
            space(&mut text);
            text += &value.to_string();
            space(&mut text);
        }
        text.push('}');
        space(&mut text);
        text
    })
}

fn escaped(key: &str) -> String {
    let units = key.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<String>();
    format!("\"{units}\"")
}

fn changes() -> impl Strategy<Value = (Option<String>, Option<u64>, bool)> {
    (proptest::option::of("\\PC{1,12}"), proptest::option::of(0..2000_u64), any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn changes_change_nothing_else(route in route(), body in body(), changes in changes()) {
        let (model, max_tokens, ask_usage) = &changes;
        let changes = BodyChanges { model: model.as_deref(), max_tokens: *max_tokens, ask_usage: *ask_usage, ..BodyChanges::default() };
        prop_assert!(RequestFields::read(route, body.as_bytes()).is_ok(), "{}", body);
        check_ask(route, body.as_bytes(), changes);
    }

    #[test]
    fn damaged_bodies_are_read_or_refused(
        route in route(),
        body in body(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), select(&b"{}[]\",:\\0eu-x\x00\xff "[..])), 1..4),
    ) {
        let mut body = body.into_bytes();
        for (place, byte) in damage {
            let place = place.index(body.len());
            body[place] = byte;
        }
        check_ask(route, &body, BodyChanges { model: Some("n"), max_tokens: Some(3), ask_usage: true, ..BodyChanges::default() });
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        ask(&bytes);
    }
}

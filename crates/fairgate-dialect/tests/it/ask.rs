//! Tests of the fields that are read from requests, of refusals, and of changes to bodies.

use bytes::Bytes;
use fairgate_dialect::{BodyChanges, InvalidRequestError, RequestFields, Route};

const CHAT: Route = Route::ChatCompletions;

fn read(route: Route, body: &str) -> RequestFields {
    RequestFields::read(route, body.as_bytes()).unwrap_or_else(|bad| panic!("{body}: {bad}"))
}

fn refused(route: Route, body: &[u8]) -> InvalidRequestError {
    RequestFields::read(route, body).expect_err("a bad body")
}

fn changed(route: Route, body: &str, changes: BodyChanges<'_>) -> String {
    let bytes = read(route, body).changed(route, Bytes::copy_from_slice(body.as_bytes()), changes);
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_chat_is_read() {
    let body = r#" { "messages":[{"role":"user","content":"hi \" } there"}], "model" : "gpt-4o", "n":2,
        "stream":true, "max_tokens":100, "stream_options":{"include_usage":true}, "x":{"model":"not me"} } "#;
    let ask = read(CHAT, body);
    assert_eq!(ask.model, "gpt-4o");
    assert_eq!(
        (ask.stream, ask.usage_asked, ask.choices, ask.max_tokens),
        (true, true, 2, Some(100))
    );
    assert_eq!(ask.input_bytes, body.len() as u64);
    assert!(!ask.must_ask_usage(CHAT));
}

#[test]
fn what_is_not_said_has_its_default() {
    let ask = read(CHAT, r#"{"model":"m"}"#);
    assert_eq!((ask.stream, ask.usage_asked, ask.choices, ask.max_tokens), (false, false, 1, None));
    let nulls = r#"{"model":"m","stream":null,"n":null,"max_tokens":null,"max_completion_tokens":null,"stream_options":null}"#;
    let ask = read(CHAT, nulls);
    assert_eq!((ask.stream, ask.usage_asked, ask.choices, ask.max_tokens), (false, false, 1, None));
}

#[test]
fn each_route_has_its_own_fields() {
    let body = r#"{"model":"m","max_tokens":1,"max_completion_tokens":2,"max_output_tokens":3,"stream":true,"n":4,"best_of":5}"#;
    let cases = [
        (CHAT, Some(2), 5, true),
        (Route::Completions, Some(1), 5, true),
        (Route::Responses, Some(3), 1, true),
        (Route::Messages, Some(1), 1, true),
        (Route::Embeddings, None, 0, false),
        (Route::CountTokens, None, 0, false),
    ];
    for (route, max_tokens, choices, stream) in cases {
        let ask = read(route, body);
        assert_eq!(
            (ask.max_tokens, ask.choices, ask.stream),
            (max_tokens, choices, stream),
            "{route:?}"
        );
    }
    // What means nothing on a route may stand there in any form.
    read(Route::Embeddings, r#"{"model":"m","stream":"x","stream":1,"n":-1,"max_tokens":"12"}"#);
}

#[test]
fn a_list_of_prompts_is_as_many_answers() {
    let choices = |body: &str| read(Route::Completions, body).choices;
    assert_eq!(choices(r#"{"model":"m","prompt":"a"}"#), 1);
    assert_eq!(choices(r#"{"model":"m","prompt":["a","b","c"],"n":2}"#), 6);
    assert_eq!(choices(r#"{"model":"m","prompt":[1,2,3]}"#), 1, "token ids");
    assert_eq!(choices(r#"{"model":"m","prompt":[[1,2,3],[4]]}"#), 2);
    assert_eq!(choices(r#"{"model":"m","prompt":[]}"#), 1);
    assert_eq!(choices(r#"{"model":"m","prompt":[ "a" , "b" ],"best_of":3}"#), 6);
}

#[test]
fn escaped_keys_are_understood() {
    let ask = read(CHAT, r#"{"mod\u0065l":"m\u00e9","\u0073tream":true}"#);
    assert_eq!((&*ask.model, ask.stream), ("mé", true));
    assert_eq!(
        refused(CHAT, br#"{"model":"a","mod\u0065l":"b"}"#).code.as_str(),
        "duplicate_field"
    );
    // Half a surrogate is a key like any other.
    read(CHAT, r#"{"model":"m","\ud800":1}"#);
}

#[test]
fn files_do_not_count_by_the_byte() {
    let file = "iVBORw0KGgo".repeat(10_000);
    let text = "some words ".repeat(10_000);
    for (content, counts) in [
        (format!("data:image/png;base64,{file}"), 4096),
        (file.clone(), 4096),
        (text.clone(), text.len()),
        (format!("data: {text}"), text.len()),
    ] {
        let body = format!(r#"{{"model":"m","x":{{"url":"{content}"}}}}"#);
        let bytes = read(CHAT, &body).input_bytes;
        assert!(bytes.abs_diff(counts as u64) < 100, "{bytes} for {counts}: {}", &content[..20]);
        // To a model it is text wherever text stands.
        let body = format!(r#"{{"model":"m","x":{{"url":"u","text":"{content}"}}}}"#);
        assert!(read(CHAT, &body).input_bytes > content.len() as u64);
    }
}

#[test]
fn bad_values_name_their_field() {
    let cases = [
        (r#"{}"#, "missing_model", "model"),
        (r#"{"model":null}"#, "missing_model", "model"),
        (r#"{"model":""}"#, "invalid_value", "model"),
        (r#"{"model":7}"#, "invalid_value", "model"),
        (r#"{"model":"a\nb"}"#, "invalid_value", "model"),
        (r#"{"model":"\ud800"}"#, "invalid_value", "model"),
        (r#"{"model":"m","max_tokens":"12"}"#, "invalid_value", "max_tokens"),
        (r#"{"model":"m","max_tokens":-1}"#, "invalid_value", "max_tokens"),
        (r#"{"model":"m","max_tokens":1.0}"#, "invalid_value", "max_tokens"),
        (r#"{"model":"m","max_tokens":1e3}"#, "invalid_value", "max_tokens"),
        (r#"{"model":"m","max_tokens":1000000001}"#, "invalid_value", "max_tokens"),
        (r#"{"model":"m","max_tokens":99999999999999999999999}"#, "invalid_value", "max_tokens"),
        (r#"{"model":"m","max_completion_tokens":[]}"#, "invalid_value", "max_completion_tokens"),
        (r#"{"model":"m","n":0}"#, "invalid_value", "n"),
        (r#"{"model":"m","n":1025}"#, "invalid_value", "n"),
        (r#"{"model":"m","best_of":true}"#, "invalid_value", "best_of"),
        (r#"{"model":"m","stream":"true"}"#, "invalid_value", "stream"),
        (r#"{"model":"m","stream":1}"#, "invalid_value", "stream"),
        (r#"{"model":"m","stream_options":true}"#, "invalid_value", "stream_options"),
        (
            r#"{"model":"m","stream_options":{"include_usage":1}}"#,
            "invalid_value",
            "stream_options",
        ),
        (
            r#"{"model":"m","stream_options":{"include_usage":true,"include_usage":false}}"#,
            "duplicate_field",
            "stream_options",
        ),
        (r#"{"model":"m","model":"m"}"#, "duplicate_field", "model"),
        (r#"{"model":"m","Model":"other"}"#, "duplicate_field", "model"),
        (r#"{"model":"m","MAX_\u0054okens":9}"#, "duplicate_field", "max_tokens"),
        (
            r#"{"model":"m","max_tokens":1,"x":2,"max_tokens":null}"#,
            "duplicate_field",
            "max_tokens",
        ),
        (r#"{"model":"m","stream":false,"stream":true}"#, "duplicate_field", "stream"),
    ];
    for (body, code, param) in cases {
        let bad = refused(CHAT, body.as_bytes());
        assert_eq!((bad.code.as_str(), bad.param), (code, Some(param)), "{body}: {bad}");
        assert!(bad.message.contains(param), "{bad}");
    }
    let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(257));
    assert_eq!(refused(CHAT, long.as_bytes()).code.as_str(), "invalid_value");
    let background = br#"{"model":"m","background":true}"#;
    assert_eq!(refused(Route::Responses, background).code.as_str(), "unsupported_value");
    read(CHAT, r#"{"model":"m","background":true}"#);
}

#[test]
fn what_is_no_json_object_is_refused_with_its_place() {
    let cases: [(&[u8], usize); 31] = [
        (b"", 0),
        (b"   ", 3),
        (b"[]", 0),
        (b"\"model\"", 0),
        (b"null", 0),
        (b"{", 1),
        (b"{\"model\"", 8),
        (b"{\"model\":", 9),
        (b"{\"model\":\"m\"", 12),
        (b"{\"model\":\"m", 11),
        (b"{\"model\":\"m\",}", 13),
        (b"{\"model\":\"m\"} x", 14),
        (b"{\"model\":\"m\"}{}", 13),
        (b"{\"model\" \"m\"}", 9),
        (b"{model:1}", 1),
        (b"{'model':1}", 1),
        (b"{\"a\":[1,]}", 8),
        (b"{\"a\":[1 2]}", 8),
        (b"{\"a\":[}", 6),
        (b"{\"a\":{]}", 6),
        (b"{\"a\":01}", 5),
        (b"{\"a\":+1}", 5),
        (b"{\"a\":1.}", 7),
        (b"{\"a\":1e}", 7),
        (b"{\"a\":-}", 6),
        (b"{\"a\":nul}", 5),
        (b"{\"a\":NaN}", 5),
        (b"{\"a\":\"\\x\"}", 6),
        (b"{\"a\":\"\\u12g4\"}", 6),
        (b"{\"a\":\"\n\"}", 6),
        (b"{\"a\":\"\xff\"}", 6),
    ];
    for (body, at) in cases {
        let bad = refused(CHAT, body);
        assert_eq!((bad.code.as_str(), bad.param), ("invalid_json", None), "{body:?}");
        assert!(bad.message.ends_with(&format!("at byte {at}")), "{}: {bad}", body.escape_ascii());
    }
}

#[test]
fn no_control_character_may_stand_in_a_string() {
    for byte in 0..=0x20_u8 {
        for before in 0..130 {
            let text = "x".repeat(before);
            let body = format!("{{\"model\":\"m\",\"a\":\"{text}{}{text}\"}}", char::from(byte));
            assert_eq!(
                RequestFields::read(CHAT, body.as_bytes()).is_ok(),
                byte == 0x20,
                "{byte} after {before}"
            );
        }
    }
}

#[test]
fn nesting_ends_before_the_stack_does() {
    let nested =
        |depth: usize| format!(r#"{{"model":"m","a":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    read(CHAT, &nested(127));
    assert_eq!(refused(CHAT, nested(128).as_bytes()).code.as_str(), "invalid_json");
    assert_eq!(refused(CHAT, "[".repeat(10_000_000).as_bytes()).code.as_str(), "invalid_json");
    assert_eq!(refused(CHAT, nested(5_000_000).as_bytes()).code.as_str(), "invalid_json");
    let objects = format!(r#"{{"model":"m","a":{}"#, r#"{"a":"#.repeat(2_000_000));
    assert_eq!(refused(CHAT, objects.as_bytes()).code.as_str(), "invalid_json");
}

#[test]
fn errors_never_quote_the_body() {
    for body in
        [r#"{"model":"SECRET\n"}"#, r#"{"SECRET" "SECRET"}"#, r#"{"model":"m","n":"SECRET"}"#]
    {
        assert!(!refused(CHAT, body.as_bytes()).message.contains("SECRET"), "{body}");
    }
}

#[test]
fn only_the_bytes_of_changed_fields_change() {
    let body =
        r#" {"z": 1e5,  "model" : "alias","messages":[ ],"max_tokens":  900 , "stream":true}  "#;
    let all = BodyChanges {
        model: Some("real/\"m\""),
        max_tokens: Some(256),
        ask_usage: true,
        ..BodyChanges::default()
    };
    assert_eq!(
        changed(CHAT, body, all),
        r#" {"stream_options":{"include_usage":true},"z": 1e5,  "model" : "real/\"m\"","messages":[ ],"max_tokens":  256 , "stream":true}  "#
    );
}

#[test]
fn other_members_have_values() {
    let body = br#"{"model":"m", "a b" :  {"x": 1} ,"messages":[],"z":null}"#;
    let ask = RequestFields::read(CHAT, body).unwrap();
    let values = ask.other_members(body).map(|(number, name)| {
        let value = ask.other_value(body, number).unwrap();
        (name.into_owned(), std::str::from_utf8(value).unwrap())
    });
    let values: Vec<_> = values.filter(|(name, _)| name != "messages").collect();
    assert_eq!(values, [("a b".to_owned(), r#"{"x": 1}"#), ("z".to_owned(), "null")]);
}

#[test]
fn a_cache_salt_is_put_in_front() {
    let changes = BodyChanges { cache_salt: Some("a\"b"), ..BodyChanges::default() };
    assert_eq!(
        changed(CHAT, r#"{"model":"m","messages":[]}"#, changes),
        r#"{"cache_salt":"a\"b","model":"m","messages":[]}"#
    );
}

#[test]
fn a_body_without_changes_is_the_very_same() {
    let body = Bytes::from_static(
        br#"{"model":"m","max_tokens":5,"stream":true,"stream_options":{"include_usage":true}}"#,
    );
    let ask = RequestFields::read(CHAT, &body).unwrap();
    let same = BodyChanges {
        model: Some("m"),
        max_tokens: Some(5),
        ask_usage: true,
        ..BodyChanges::default()
    };
    for changes in [BodyChanges::default(), same] {
        assert_eq!(ask.changed(CHAT, body.clone(), changes).as_ptr(), body.as_ptr());
    }
}

#[test]
fn a_cap_lowers_where_the_caller_stated_its_own() {
    let cap = |route, body| {
        changed(route, body, BodyChanges { max_tokens: Some(50), ..BodyChanges::default() })
    };
    let unchanged = r#"{"model":"m","max_tokens":20}"#;
    assert_eq!(cap(CHAT, unchanged), unchanged);
    assert_eq!(cap(CHAT, r#"{"model":"m","max_tokens":90}"#), r#"{"model":"m","max_tokens":50}"#);
    assert_eq!(
        cap(CHAT, r#"{"model":"m","max_completion_tokens":90}"#),
        r#"{"model":"m","max_completion_tokens":50}"#
    );
    assert_eq!(
        cap(CHAT, r#"{"max_tokens":90,"model":"m","max_completion_tokens":70}"#),
        r#"{"max_tokens":50,"model":"m","max_completion_tokens":50}"#
    );
    assert_eq!(
        cap(CHAT, r#"{"max_tokens":null,"model":"m","max_completion_tokens":70}"#),
        r#"{"max_tokens":null,"model":"m","max_completion_tokens":50}"#
    );
    assert_eq!(
        cap(CHAT, r#"{"max_completion_tokens":null,"model":"m"}"#),
        r#"{"max_completion_tokens":50,"model":"m"}"#
    );
}

#[test]
fn a_cap_is_put_in_front_where_none_was_stated() {
    let cap = |route, body| {
        changed(route, body, BodyChanges { max_tokens: Some(50), ..BodyChanges::default() })
    };
    let body = r#"{"model":"m"}"#;
    assert_eq!(cap(CHAT, body), r#"{"max_tokens":50,"model":"m"}"#);
    assert_eq!(cap(Route::Completions, body), r#"{"max_tokens":50,"model":"m"}"#);
    assert_eq!(cap(Route::Messages, body), r#"{"max_tokens":50,"model":"m"}"#);
    assert_eq!(cap(Route::Responses, body), r#"{"max_output_tokens":50,"model":"m"}"#);
    assert_eq!(cap(Route::Embeddings, body), body);
    assert_eq!(cap(Route::CountTokens, body), body);
}

#[test]
fn a_cap_is_never_so_low_that_the_upstream_refuses() {
    let cap = |route, body| {
        changed(route, body, BodyChanges { max_tokens: Some(50), ..BodyChanges::default() })
    };
    let body =
        r#"{"model":"m","max_tokens":9000,"thinking":{"type":"enabled","budget_tokens":1024}}"#;
    assert_eq!(cap(Route::Messages, body), body.replace("9000", "1025"));
    let ask = read(Route::Messages, body);
    assert_eq!(
        (ask.least_tokens, ask.capped(50), ask.capped(2000), ask.capped(10_000)),
        (1025, 1025, 2000, 9000)
    );
    assert_eq!(read(CHAT, r#"{"model":"m"}"#).capped(50), 50);
    // A budget beyond what the caller allows is the caller's mistake, and stays.
    let body = r#"{"model":"m","max_tokens":10,"thinking":{"budget_tokens":1024}}"#;
    assert_eq!(cap(Route::Messages, body), body);
    for thinking in ["null", "{}", "[]", "7", r#"{"budget_tokens":"x"}"#, r#"{"type":"disabled"}"#]
    {
        let body = format!(r#"{{"model":"m","thinking":{thinking}}}"#);
        assert_eq!(read(Route::Messages, &body).least_tokens, 0, "{thinking}");
    }
}

#[test]
fn what_asks_for_more_than_a_cap_is_lowered_to_it() {
    let cap = |route, body| {
        changed(route, body, BodyChanges { max_tokens: Some(50), ..BodyChanges::default() })
    };
    let body = r#"{"model":"m","min_tokens":60}"#;
    assert_eq!(cap(CHAT, body), r#"{"max_tokens":50,"model":"m","min_tokens":50}"#);
    assert_eq!(read(CHAT, body).capped(50), 50);
    let body = r#"{"model":"m","max_tokens":900,"min_tokens":40}"#;
    assert_eq!(cap(CHAT, body), body.replace("900", "50"));
    let body = r#"{"model":"m","max_tokens":90000,"thinking":{"budget_tokens":50000}}"#;
    let sent = r#"{"model":"m","max_tokens":1025,"thinking":{"budget_tokens":1024}}"#;
    assert_eq!(cap(Route::Messages, body), sent);
}

#[test]
fn members_are_taken_out_with_their_commas() {
    let gone = ["a", "b"];
    let cases = [
        (r#"{"a":1,"model":"m"}"#, r#"{"model":"m"}"#),
        (r#"{"model":"m","a":1}"#, r#"{"model":"m"}"#),
        (r#"{ "a" : [1,2] , "b":{"a":1}, "model":"m" }"#, r#"{ "model":"m" }"#),
        (r#"{"a":1,"x":2,"b":3,"model":"m","a":4,"b":5}"#, r#"{"x":2,"model":"m"}"#),
        (r#"{"model":"m","a":1,"a":2,"x":{"a":1}}"#, r#"{"model":"m","x":{"a":1}}"#),
        (r#"{"model":"m" , "\u0061":1 , "x":2}"#, r#"{"model":"m" , "x":2}"#),
        (r#"{"model":"m","A":1}"#, r#"{"model":"m","A":1}"#),
    ];
    for (body, left) in cases {
        let ask = read(CHAT, body);
        let members = ask.other_members(body.as_bytes());
        let strip: Vec<usize> =
            members.filter_map(|(number, name)| gone.contains(&&*name).then_some(number)).collect();
        let changes = BodyChanges { strip: &strip, ..BodyChanges::default() };
        assert_eq!(changed(CHAT, body, changes), left);
        let capped = BodyChanges { max_tokens: Some(5), ..changes };
        let left: serde_json::Value = serde_json::from_str(left).unwrap();
        let mut capped: serde_json::Value =
            serde_json::from_str(&changed(CHAT, body, capped)).unwrap();
        assert_eq!(capped.as_object_mut().unwrap().remove("max_tokens"), Some(5.into()));
        assert_eq!(capped, left, "{body}");
    }
    let many: String = (0..2000).map(|n| format!("\"k{n}\":1,")).collect();
    let body = format!("{{{many}\"model\":\"m\"}}");
    assert_eq!(
        RequestFields::read(CHAT, body.as_bytes()).unwrap_err().code.as_str(),
        "invalid_value"
    );
}

#[test]
fn what_a_response_goes_on_from_is_read() {
    let body = r#"{"model":"m","previous_response_id":"resp_1","conversation":{"id":"conv_1"}}"#;
    let ask = read(Route::Responses, body);
    assert_eq!(ask.previous_response.as_deref(), Some("resp_1"));
    assert_eq!(ask.conversation.as_deref(), Some("conv_1"));
    let ask = read(Route::Responses, r#"{"model":"m","conversation":"conv_2"}"#);
    assert_eq!((ask.previous_response, ask.conversation.as_deref()), (None, Some("conv_2")));
    assert_eq!(read(CHAT, body).previous_response, None);
    for bad in [r#""previous_response_id":7"#, r#""conversation":{}"#, r#""conversation":"""#] {
        let body = format!(r#"{{"model":"m",{bad}}}"#);
        let bad = RequestFields::read(Route::Responses, body.as_bytes()).unwrap_err();
        assert_eq!(bad.code.as_str(), "invalid_value");
    }
}

#[test]
fn openais_reasoning_models_get_the_field_that_they_take() {
    let field = |model: &str| {
        let changes =
            BodyChanges { model: Some(model), max_tokens: Some(50), ..BodyChanges::default() };
        let body = changed(CHAT, r#"{"model":"alias"}"#, changes);
        body.contains("max_completion_tokens")
    };
    for model in ["o1", "o3-mini", "o4-mini", "gpt-5", "gpt-5.1-codex", "openai/gpt-5-nano"] {
        assert!(field(model), "{model}");
    }
    for model in ["gpt-4o", "gpt-35-turbo", "gpt-oss-120b", "llama-3", "olmo-2", "o", "qwen/o1"] {
        assert!(!field(model), "{model}");
    }
}

#[test]
fn usage_is_asked_for_where_it_must_be() {
    let ask = |route, body| {
        changed(route, body, BodyChanges { ask_usage: true, ..BodyChanges::default() })
    };
    let cases = [
        (
            r#"{"model":"m","stream":true}"#,
            r#"{"stream_options":{"include_usage":true},"model":"m","stream":true}"#,
        ),
        (
            r#"{"model":"m","stream":true,"stream_options":{ }}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true }}"#,
        ),
        (
            r#"{"model":"m","stream":true,"stream_options":{"a":{}}}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true,"a":{}}}"#,
        ),
        (
            r#"{"model":"m","stream":true,"stream_options":{"a":1,"include_usage" : false}}"#,
            r#"{"model":"m","stream":true,"stream_options":{"a":1,"include_usage" : true}}"#,
        ),
        (
            r#"{"model":"m","stream":true,"stream_options":{"include_\u0075sage":null}}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_\u0075sage":true}}"#,
        ),
        (
            r#"{"model":"m","stream":true,"stream_options":null}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#,
        ),
    ];
    for (body, asked) in cases {
        assert!(read(CHAT, body).must_ask_usage(CHAT));
        assert_eq!(ask(CHAT, body), asked);
        assert_eq!(ask(Route::Completions, body), asked);
        assert_eq!(ask(Route::Messages, body), body, "it is always told there");
    }
    for body in [
        r#"{"model":"m"}"#,
        r#"{"model":"m","stream":false,"stream_options":{}}"#,
        r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#,
    ] {
        assert_eq!(ask(CHAT, body), body);
    }
}

#[test]
#[should_panic(expected = "the body that was read is the one that changes")]
fn another_body_cannot_be_changed() {
    let ask = read(CHAT, r#"{"model":"m"}"#);
    ask.changed(
        CHAT,
        Bytes::from_static(b"{}"),
        BodyChanges { model: Some("n"), ..BodyChanges::default() },
    );
}

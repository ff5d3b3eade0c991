//! Tests of answers as they pass: the bytes that are forwarded or hidden, and the reports that are
//! accepted.

use bytes::Bytes;
use fairgate_dialect::{BodyFraming, CacheWrites, MeteredChunk, Route, TokenUsage, UsageMeter};

use crate::recorded::{ALL, CHAT};

fn joined(parts: &[Bytes]) -> String {
    String::from_utf8(parts.concat()).unwrap()
}

fn chat(hide: bool) -> UsageMeter {
    UsageMeter::new(Route::ChatCompletions, BodyFraming::Sse, hide, 1000)
}

fn pass(meter: &mut UsageMeter, text: &str) -> MeteredChunk {
    meter.pass(Bytes::copy_from_slice(text.as_bytes()))
}

/// Returns the usage that is measured for a chat stream with this usage, and whether it was
/// reported.
fn usage_of(usage: &str) -> (TokenUsage, bool) {
    let mut meter = chat(false);
    pass(&mut meter, "data: {\"choices\":[{\"delta\":{\"content\":\"12345678\"}}]}\n\n");
    pass(&mut meter, &format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\ndata: [DONE]\n\n"));
    let measured = meter.finish().1;
    (measured.usage, measured.reported)
}

#[test]
fn none_cached_is_told_from_nothing_said() {
    let says = |usage: &str| {
        let mut meter = chat(false);
        pass(&mut meter, &format!("data: {{\"choices\":[],\"usage\":{usage}}}\n\n"));
        meter.reports_cached()
    };
    assert!(!says(r#"{"prompt_tokens":9,"completion_tokens":2}"#));
    assert!(!says(r#"{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":null}"#));
    assert!(says(
        r#"{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":0}}"#
    ));
}

#[test]
fn recorded_answers_are_measured() {
    for recorded in ALL {
        let mut meter = UsageMeter::new(recorded.route, recorded.framing, false, 1000);
        let passed = meter.pass(Bytes::from_static(recorded.text.as_bytes()));
        let early = meter.measured();
        let (rest, measured) = meter.finish();
        assert_eq!(measured, recorded.measured, "{}", recorded.name);
        assert!(rest.is_empty(), "{}", recorded.name);
        if passed.terminal {
            assert_eq!(early, measured, "{}: settled before its end", recorded.name);
        }
    }
}

#[test]
fn a_chunk_goes_on_as_it_is_without_a_copy() {
    let mut meter = chat(true);
    let (events, done) = CHAT.split_once("data: {\"id\":\"c1\",\"choices\":[],").unwrap();
    let chunk = Bytes::from(events.replace(",\"usage\":null", ""));
    let passed = meter.pass(chunk.clone());
    assert_eq!((passed.forward.len(), passed.end.len()), (1, 0));
    assert_eq!(
        (passed.forward[0].as_ptr(), passed.forward[0].len()),
        (chunk.as_ptr(), chunk.len())
    );
    assert!(passed.first_token && !passed.terminal);
    let passed = pass(&mut meter, &format!("data: {{\"id\":\"c1\",\"choices\":[],{done}"));
    assert!(passed.forward.is_empty() && passed.terminal && !passed.first_token);
    assert_eq!(joined(&passed.end), "data: [DONE]\n\n");
}

#[test]
fn the_end_waits_and_what_is_before_it_does_not() {
    let mut meter = chat(false);
    let text = "data: {\"choices\":[{\"delta\":{\"content\":\"1\"}}]}\n\ndata: [DONE]\n\n: bye\n\n";
    let passed = pass(&mut meter, text);
    assert_eq!(joined(&passed.forward), &text[..text.find("data: [D").unwrap()]);
    assert_eq!(joined(&passed.end), "data: [DONE]\n\n: bye\n\n");
    assert!(passed.terminal);
    let after = pass(&mut meter, "data: [DONE]\n\n");
    assert!(!after.terminal && after.end.is_empty(), "it ends once");
    assert_eq!(joined(&after.forward), "data: [DONE]\n\n");
}

#[test]
fn nothing_is_held_where_nothing_is_hidden() {
    let mut meter = chat(false);
    for (i, byte) in CHAT.bytes().enumerate() {
        let passed = meter.pass(Bytes::copy_from_slice(&[byte]));
        assert_eq!(passed.forward.len() + passed.end.len(), 1, "byte {i}");
        // With the line feed of the line, not only with the empty line: some clients act on lines.
        assert_eq!(passed.terminal, i == CHAT.len() - 2, "byte {i}");
    }
}

#[test]
fn a_partial_event_is_held_until_it_is_known() {
    let mut meter = chat(true);
    let event = "data: {\"choices\":[{\"delta\":{\"content\":\"12345678\"}}]}\n\n";
    let (first, second) = event.split_at(20);
    assert!(pass(&mut meter, first).forward.is_empty());
    assert_eq!(joined(&pass(&mut meter, second).forward), event);
    let hidden =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\r\n\r";
    assert!(pass(&mut meter, &hidden[..30]).forward.is_empty());
    assert!(pass(&mut meter, &hidden[30..]).forward.is_empty());
    let passed = pass(&mut meter, "\ndata: [DONE]\r\n");
    assert_eq!(
        joined(&passed.end),
        "data: [DONE]\r\n",
        "the hidden event's own line feed is hidden"
    );
    assert_eq!(meter.finish().1.usage, TokenUsage { input: 1, cached: 0, output: 2 });
}

#[test]
fn only_usage_events_are_hidden() {
    for event in [
        "data: {\"choices\":[],\"prompt_filter_results\":[{}]}\n\n",
        "data: {\"choices\":[{\"delta\":{}}],\"usage\":{\"prompt_tokens\":1}}\n\n",
        "data: {\"usage\":{\"prompt_tokens\":1}}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1},\"error\":{}}\n\n",
        ": comment\n\n",
        "\n",
    ] {
        assert_eq!(joined(&pass(&mut chat(true), event).forward), event);
    }
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n";
    assert!(pass(&mut chat(true), usage).forward.is_empty());
    // Where the client asked itself, and on routes that always tell.
    assert_eq!(joined(&pass(&mut chat(false), usage).forward), usage);
    let mut messages = UsageMeter::new(Route::Messages, BodyFraming::Sse, true, 0);
    assert_eq!(joined(&pass(&mut messages, usage).forward), usage);
}

#[test]
fn where_usage_was_not_asked_for_there_is_no_null_in_its_place() {
    let cases = [
        ("{\"choices\":[],\"usage\":null}", "{\"choices\":[]}"),
        ("{\"a\":{\"b\":[1,2]} , \"usage\" : null , \"c\":3}", "{\"a\":{\"b\":[1,2]}  , \"c\":3}"),
        ("{\"usage\":null,\"choices\":[]}", "{\"choices\":[]}"),
        ("{ \"usage\": null , \"a\":1,\"b\":2}", "{  \"a\":1,\"b\":2}"),
        ("{\"usage\":null}", "{}"),
        // Not the answer's own usage, or none at all.
        ("{\"x\":{\"a\":1,\"usage\":null}}", "{\"x\":{\"a\":1,\"usage\":null}}"),
        ("{\"x\":\",\\\"usage\\\":null\"}", "{\"x\":\",\\\"usage\\\":null\"}"),
        ("{\"a\":1,\"usage\":nullable}", "{\"a\":1,\"usage\":nullable}"),
        ("{\"a\":1,\"usage\":null", "{\"a\":1,\"usage\":null"),
        // Over two lines it stays as it is.
        ("{\"a\":1\ndata: ,\"usage\":null}", "{\"a\":1\ndata: ,\"usage\":null}"),
    ];
    for (sent, seen) in cases {
        let event = |data: &str| format!(": hm\ndata: {data}\nid: 7\n\n");
        let text = format!("{}{}", event(sent), event("{\"b\":2}"));
        let expected = format!("{}{}", event(seen), event("{\"b\":2}"));
        for cut in 0..=text.len() {
            let mut meter = chat(true);
            let mut parts = pass(&mut meter, &text[..cut]).forward;
            parts.extend(pass(&mut meter, &text[cut..]).forward);
            assert_eq!(joined(&parts), expected, "cut at {cut}");
        }
        let mut asked = chat(false);
        assert_eq!(joined(&pass(&mut asked, &text).forward), text);
    }
}

#[test]
fn what_was_held_comes_out_where_the_stream_breaks_off() {
    let mut meter = chat(true);
    let part = "data: {\"choices\":[{\"delta\":{\"content\":\"12345678";
    assert!(pass(&mut meter, part).forward.is_empty());
    assert_eq!(meter.so_far().output, 2);
    let (rest, measured) = meter.finish();
    assert_eq!(joined(&rest), part);
    assert_eq!((measured.usage.output, measured.reported, measured.complete), (2, false, false));
}

#[test]
fn an_event_without_end_is_held_to_a_bound_and_counted() {
    let mut meter = chat(true);
    let mut forwarded =
        pass(&mut meter, "data: {\"choices\":[{\"delta\":{\"content\":\"").forward.concat().len();
    let chunk = Bytes::from(vec![b'x'; 1 << 16]);
    for i in 0..160 {
        forwarded += meter.pass(chunk.clone()).forward.concat().len();
        let came = 40 + (i + 1) * (1 << 16);
        assert!(came - forwarded <= (1 << 20) + 100, "{} bytes held", came - forwarded);
    }
    assert_eq!(meter.so_far().output, 160 << 14);
    let end = "\"}}]}\n\ndata: {\"choices\":[{\"delta\":{}}]}\n\n";
    assert_eq!(joined(&pass(&mut meter, end).forward), end);
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2700000}}\n\n";
    assert!(pass(&mut meter, &usage[..9]).forward.is_empty(), "the next event is held again");
    assert!(pass(&mut meter, &usage[9..]).forward.is_empty(), "and hidden");
    assert_eq!(meter.measured().usage.output, 2_700_000);
}

#[test]
fn usage_is_believed_within_reason() {
    let good =
        r#"{"prompt_tokens":5,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":5}}"#;
    assert_eq!(usage_of(good), (TokenUsage { input: 5, cached: 5, output: 4 }, true));
    let hidden_thoughts = r#"{"prompt_tokens":5,"completion_tokens":250000}"#;
    assert_eq!(
        usage_of(hidden_thoughts),
        (TokenUsage { input: 5, cached: 0, output: 250_000 }, true)
    );
    for absurd in [
        "null",
        "7",
        "[]",
        "{}",
        r#"{"prompt_tokens":-5,"completion_tokens":4}"#,
        r#"{"prompt_tokens":5,"completion_tokens":4.5}"#,
        r#"{"prompt_tokens":5,"completion_tokens":"4"}"#,
        r#"{"prompt_tokens":5,"completion_tokens":[4]}"#,
        r#"{"prompt_tokens":5,"completion_tokens":true}"#,
        r#"{"prompt_tokens":1000000001,"completion_tokens":4}"#,
        r#"{"prompt_tokens":5,"completion_tokens":1000000000}"#,
        r#"{"prompt_tokens":5,"completion_tokens":99999999999999999999999999999999999999}"#,
        r#"{"prompt_tokens":5,"completion_tokens":0}"#,
        r#"{"prompt_tokens":5,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":6}}"#,
    ] {
        assert_eq!(
            usage_of(absurd),
            (TokenUsage { input: 1000, cached: 0, output: 2 }, false),
            "{absurd}"
        );
    }
    let half = usage_of(r#"{"prompt_tokens":5}"#);
    assert_eq!(half, (TokenUsage { input: 5, cached: 0, output: 2 }, false));
    let half = usage_of(r#"{"prompt_tokens":0,"completion_tokens":4}"#);
    assert_eq!(half, (TokenUsage { input: 1000, cached: 0, output: 4 }, false));
}

#[test]
fn each_event_with_text_is_a_token_at_least() {
    let mut meter = chat(false);
    for _ in 0..10 {
        pass(&mut meter, "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n");
    }
    assert_eq!(meter.so_far().output, 10);
    pass(&mut meter, "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n");
    assert_eq!(meter.so_far().output, 10);
}

#[test]
fn a_json_body_ends_with_its_last_brace_and_streams_until_then() {
    let mut meter = UsageMeter::new(Route::ChatCompletions, BodyFraming::Json, true, 1000);
    let first = pass(&mut meter, "{\"choices\":[{\"message\":{\"content\":\"12345678\"}}],");
    assert!(first.first_token && !first.terminal && first.forward.len() == 1);
    assert_eq!(meter.so_far(), TokenUsage { input: 1000, cached: 0, output: 2 });
    let last = pass(&mut meter, "\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}");
    assert!(!last.first_token && last.terminal && last.forward.is_empty());
    assert_eq!(last.end.len(), 1);
    assert_eq!(meter.measured().usage, TokenUsage { input: 3, cached: 0, output: 1 });
    assert_eq!(meter.so_far(), TokenUsage { input: 1000, cached: 0, output: 2 }, "never less");
    assert!(meter.measured().complete && meter.measured().reported);
    assert!(!pass(&mut meter, "\n").terminal);
}

#[test]
fn a_json_body_that_breaks_off_or_says_error_is_not_complete() {
    for (text, output) in [
        ("", 0),
        ("{\"choices\":[{\"message\":{\"content\":\"12345678", 2),
        ("{\"error\":{\"message\":\"no\"}}", 0),
        ("12345678", 2),
        ("{]", 1),
        ("upstream is down!", 5),
    ] {
        let mut meter = UsageMeter::new(Route::ChatCompletions, BodyFraming::Json, false, 1000);
        pass(&mut meter, text);
        let measured = meter.finish().1;
        assert_eq!(
            (measured.usage.output, measured.reported, measured.complete),
            (output, false, false),
            "{text}"
        );
    }
}

#[test]
fn large_embeddings_are_read_without_being_kept() {
    let mut meter = UsageMeter::new(Route::Embeddings, BodyFraming::Json, false, 1000);
    pass(&mut meter, "{\"data\":[{\"usage\":{\"prompt_tokens\":1},\"embedding\":[");
    let numbers = Bytes::from("0.0123,-4.5e-3,".repeat(5000));
    for _ in 0..100 {
        meter.pass(numbers.clone());
    }
    let end = pass(&mut meter, "1]}],\"usage\":{\"prompt_tokens\":12,\"total_tokens\":12}}");
    assert!(end.terminal);
    assert_eq!(meter.finish().1.usage, TokenUsage { input: 12, cached: 0, output: 0 });
}

#[test]
fn an_opaque_body_is_counted_by_its_bytes() {
    let mut meter = UsageMeter::new(Route::ChatCompletions, BodyFraming::Opaque, true, 7);
    let passed = pass(&mut meter, "<html>");
    assert!(passed.first_token && !passed.terminal);
    assert_eq!(joined(&passed.forward), "<html>");
    let measured = meter.finish().1;
    assert_eq!(measured.usage, TokenUsage { input: 7, cached: 0, output: 2 });
    assert!(!measured.reported && !measured.complete);
}

#[test]
fn tool_calls_and_other_choices_count_too() {
    let mut meter = UsageMeter::new(Route::ChatCompletions, BodyFraming::Json, false, 0);
    let text = r#"{"choices":[{"index":0,"message":{"content":null,"reasoning":"1234","tool_calls":[{"id":"ignored","type":"function","function":{"name":"abcd","arguments":"{\"a\":12}"}}]},"logprobs":{"content":[{"token":"ignored","text":"ignored"}]}},{"index":1,"message":{"content":[{"type":"text","text":"1234"}]}}]}"#;
    pass(&mut meter, text);
    assert_eq!(meter.so_far().output, 5);
}

/// Returns the number of output tokens that are counted for a chat message with this content.
fn counted(content: &str) -> u64 {
    let mut meter = UsageMeter::new(Route::ChatCompletions, BodyFraming::Json, false, 0);
    pass(&mut meter, &format!(r#"{{"choices":[{{"message":{{"content":{content}}}}}]}}"#));
    meter.finish().1.usage.output
}

#[test]
fn escapes_count_as_the_text_that_they_stand_for() {
    assert_eq!(counted(&format!("\"{}\"", "\\u6f22".repeat(400))), 300, "three bytes each");
    assert_eq!(counted(&format!("\"{}\"", "\\n".repeat(400))), 100);
    assert_eq!(counted(&format!("\"{}\"", "\\\"\\\\".repeat(200))), 100);
}

#[test]
fn strings_in_a_list_are_no_keys() {
    assert_eq!(counted(r#"["a","logprobs",{"text":"12345678"}]"#), 2);
}

#[test]
fn an_answer_may_be_nested_64_deep() {
    // Three levels are around the content already, and one is the message.
    let nested =
        |depth: usize| counted(&format!("{}\"text\"{}", "[".repeat(depth), "]".repeat(depth)));
    assert_eq!(nested(60), 0, "no text by its key");
    assert!(nested(61) > 20, "unreadable, so all of it counts");
}

#[test]
fn the_id_of_a_response_is_seen_however_it_is_cut() {
    let document = r#"{"object":"response","output":[{"id":"msg_1"}],"id":"resp_1","usage":null}"#;
    let stream = "event: response.created\ndata: {\"type\":\"response.created\",\"id\":\"ev_1\",\
                  \"response\":{\"output\":[{\"id\":\"msg_1\"}],\"id\":\"resp_1\"}}\n\n\
                  data: {\"response\":{\"id\":\"resp_2\"}}\n\n";
    for (framing, text) in [(BodyFraming::Json, document), (BodyFraming::Sse, stream)] {
        for bytes in [1, 3, text.len()] {
            for (route, id) in [(Route::Responses, Some("resp_1")), (Route::Messages, None)] {
                let mut meter = UsageMeter::new(route, framing, false, 1);
                for chunk in text.as_bytes().chunks(bytes) {
                    meter.pass(Bytes::copy_from_slice(chunk));
                }
                assert_eq!(meter.response_id(), id, "{route:?} {framing:?} {bytes}");
            }
        }
    }
}

/// Anthropic's `cache_creation` has the tokens written to the cache, by the time for which they are kept.
#[test]
fn cache_writes_are_read_by_their_time() {
    let writes = |usage: &str| {
        let mut meter = UsageMeter::new(Route::Messages, BodyFraming::Json, false, 1000);
        pass(&mut meter, &format!(r#"{{"type":"message","content":[],"usage":{usage}}}"#));
        let measured = meter.finish().1;
        (measured.usage.input, measured.usage.cached, measured.writes)
    };
    let both = r#"{"input_tokens":5,"cache_creation_input_tokens":30,"cache_read_input_tokens":7,
        "cache_creation":{"ephemeral_5m_input_tokens":10,"ephemeral_1h_input_tokens":20},"output_tokens":1}"#;
    assert_eq!(writes(both), (42, 7, CacheWrites { total: 30, one_hour: 20 }));
    let total = r#"{"input_tokens":5,"cache_creation_input_tokens":30,"cache_creation":null,"output_tokens":1}"#;
    assert_eq!(writes(total), (35, 0, CacheWrites { total: 30, one_hour: 0 }));
    let parts =
        r#"{"input_tokens":5,"cache_creation":{"ephemeral_1h_input_tokens":20},"output_tokens":1}"#;
    assert_eq!(writes(parts), (25, 0, CacheWrites { total: 20, one_hour: 20 }));
    let absurd = r#"{"input_tokens":5,"cache_creation":{"ephemeral_1h_input_tokens":-20},"output_tokens":1}"#;
    assert_eq!(writes(absurd), (1000, 0, CacheWrites::default()));
}

//! Property tests with random answers that are cut into random chunks. The chunks must not change the forwarded bytes
//! or the usage, and the usage must equal that of a plain reading.

use fairgate_dialect::fuzz::{check_meter, meter};
use fairgate_dialect::{BodyFraming, CacheWrites, MeasuredUsage, Route, TokenUsage};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::recorded::ALL;

#[test]
fn recorded_answers_can_be_cut_at_every_byte() {
    for recorded in ALL {
        for hide in [false, true] {
            for first in 1..recorded.text.len() {
                let rest = recorded.text.len() - first;
                let sizes = [first, rest];
                let measured = check_meter(
                    recorded.route,
                    recorded.framing,
                    hide,
                    recorded.text.as_bytes(),
                    &sizes,
                );
                assert_eq!(measured, recorded.measured, "{} cut at {first}", recorded.name);
            }
            for size in 1..8 {
                check_meter(
                    recorded.route,
                    recorded.framing,
                    hide,
                    recorded.text.as_bytes(),
                    &[size],
                );
            }
        }
    }
}

/// One event of a chat stream, with its content.
#[derive(Clone, Debug)]
enum Said {
    Text(String),
    Usage(u64, u64),
    Both(String, u64, u64),
    Comment,
    Nothing,
}

fn said() -> impl Strategy<Value = Said> {
    prop_oneof![
        4 => "[a-zA-Z \"\\\\\n{}\\[\\]:,é漢]{0,30}".prop_map(Said::Text),
        1 => (1..5000_u64, 100..5000_u64).prop_map(|(input, output)| Said::Usage(input, output)),
        1 => ("[a-z]{0,10}", 1..5000_u64, 100..5000_u64).prop_map(|(text, input, output)| Said::Both(text, input, output)),
        1 => Just(Said::Comment),
        1 => Just(Said::Nothing),
    ]
}

fn usage(input: u64, output: u64) -> Value {
    json!({"prompt_tokens": input, "completion_tokens": output})
}

fn event(said: &Said) -> Option<Value> {
    let choice = |text: &str| json!([{"index": 0, "delta": {"content": text}}]);
    match said {
        Said::Text(text) => Some(json!({"id": "x", "choices": choice(text), "usage": null})),
        Said::Usage(input, output) => Some(json!({"choices": [], "usage": usage(*input, *output)})),
        Said::Both(text, input, output) => {
            Some(json!({"choices": choice(text), "usage": usage(*input, *output)}))
        }
        Said::Comment => None,
        Said::Nothing => Some(json!({"choices": [{"delta": {}}]})),
    }
}

/// Returns the usage by a plain reading of the whole answer: the last reported usage, plus the text
/// after that report.
fn plainly(events: &[Said], done: bool) -> MeasuredUsage {
    let (mut input, mut output, mut bytes, mut tokens) = (None, 0, 0, 0);
    for said in events {
        match said {
            Said::Text(text) => {
                bytes += text.len() as u64;
                tokens += u64::from(!text.is_empty());
            }
            Said::Usage(i, o) | Said::Both(_, i, o) => {
                (input, output, bytes, tokens) = (Some(*i), *o, 0, 0);
            }
            Said::Comment | Said::Nothing => {}
        }
    }
    let since = bytes.div_ceil(4).max(tokens);
    let usage = TokenUsage { input: input.unwrap_or(1000), cached: 0, output: output + since };
    MeasuredUsage {
        usage,
        writes: CacheWrites::default(),
        reported: input.is_some() && since == 0,
        complete: done,
    }
}

fn stream(events: &[Said], line_end: &str, done: bool) -> String {
    let mut text = String::new();
    for said in events {
        match event(said) {
            Some(value) => text += &format!("data: {value}{line_end}{line_end}"),
            None => text += &format!(": comment{line_end}{line_end}"),
        }
    }
    if done {
        text += &format!("data: [DONE]{line_end}{line_end}");
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn streams_are_measured_as_a_plain_reading_does(
        events in proptest::collection::vec(said(), 0..12),
        line_end in select(vec!["\n", "\r\n", "\r"]),
        done in any::<bool>(),
        hide in any::<bool>(),
        sizes in proptest::collection::vec(1..120_usize, 1..6),
    ) {
        let text = stream(&events, line_end, done);
        let measured = check_meter(Route::ChatCompletions, BodyFraming::Sse, hide, text.as_bytes(), &sizes);
        prop_assert_eq!(measured, plainly(&events, done));
    }

    #[test]
    fn hidden_streams_are_streams_without_usage(
        events in proptest::collection::vec(said(), 0..12),
        line_end in select(vec!["\n", "\r\n", "\r"]),
        sizes in proptest::collection::vec(1..120_usize, 1..6),
    ) {
        let text = stream(&events, line_end, true);
        let seen: Vec<Said> = events.into_iter().filter(|said| !matches!(said, Said::Usage(..))).collect();
        let expected = stream(&seen, line_end, true).replace(",\"usage\":null", "");
        let mut meter = fairgate_dialect::UsageMeter::new(Route::ChatCompletions, BodyFraming::Sse, true, 0);
        let mut client = Vec::new();
        let mut rest = text.as_bytes();
        for size in sizes.into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, after) = rest.split_at(size.min(rest.len()));
            rest = after;
            let passed = meter.pass(bytes::Bytes::copy_from_slice(chunk));
            passed.forward.iter().chain(&passed.end).for_each(|part| client.extend_from_slice(part));
        }
        meter.finish().0.iter().for_each(|part| client.extend_from_slice(part));
        prop_assert_eq!(String::from_utf8_lossy(&client), expected);
    }

    #[test]
    fn damaged_answers_are_measured_somehow(
        which in 0..ALL.len(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), select(&b"{}[]\",:\\0u-x\x00\xff \r\n"[..])), 1..6),
        hide in any::<bool>(),
        sizes in proptest::collection::vec(1..200_usize, 1..4),
    ) {
        let mut text = ALL[which].text.as_bytes().to_vec();
        for (place, byte) in damage {
            let place = place.index(text.len());
            text[place] = byte;
        }
        check_meter(ALL[which].route, ALL[which].framing, hide, &text, &sizes);
    }

    #[test]
    fn any_bytes_are_measured_somehow(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        meter(&bytes);
    }

    #[test]
    fn any_marks_are_measured_somehow(
        head in any::<[u8; 4]>(),
        marks in proptest::collection::vec(select(vec![
            "data: ", "data:", "data", ":", "\n", "\r", "\r\n", "{", "}", "[", "]", "\"", "\\", "\\u", ",", "[DONE]",
            "\"choices\":", "\"usage\":", "\"delta\":", "\"content\":", "\"type\":\"message_stop\"", "\"prompt_tokens\":",
            "null", "-1", "12", "\"x\"", " ", "\u{feff}", "event: x",
        ]), 0..60),
    ) {
        let mut bytes = head.to_vec();
        marks.iter().for_each(|mark| bytes.extend_from_slice(mark.as_bytes()));
        meter(&bytes);
    }
}

//! Tests of malicious journals, and of journals torn by a crash. Each is read correctly, or refused
//! with an error.

use std::io::{BufReader, Read};
use std::time::{Duration, Instant};

use fairgate_core::Pool;
use fairgate_core::event::{Event, Submit};
use fairgate_core::units::Micros;
use fairgate_journal::{
    JournalError, JournalReader, JournalStart, JournalWriter, format_policy, parse_policy,
};

const HEADER: &str =
    r#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"share":{"by":"tenant"}}}}"#;

/// Reads a journal to its end. Returns its events or its first error.
fn read(journal: &[u8]) -> Result<Vec<(Micros, Event)>, JournalError> {
    let (_, mut reader) = JournalReader::open(journal)?;
    let mut events = Vec::new();
    while let Some(event) = reader.next_event()? {
        events.push(event);
    }
    Ok(events)
}

/// Returns the error of a journal.
#[track_caller]
fn refused(journal: impl AsRef<[u8]>) -> String {
    read(journal.as_ref()).expect_err("a bad journal").to_string()
}

/// Returns the error of a journal whose second line is this line.
#[track_caller]
fn refused_line(line: impl AsRef<[u8]>) -> String {
    let error = refused([HEADER.as_bytes(), b"\n", line.as_ref(), b"\n"].concat());
    error.strip_prefix("line 2: ").expect("an error of line 2").into()
}

/// Returns the id of a request that states this JSON string as its id.
#[track_caller]
fn id_of(json: &str) -> String {
    let line = format!(r#"{{"at":0,"event":"cancel","id":{json}}}"#);
    match &read(format!("{HEADER}\n{line}").as_bytes()).unwrap()[..] {
        [(_, Event::Cancel { id })] => id.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_that_are_no_journals() {
    let empty = "line 1: the journal is empty: its first line is missing";
    for nothing in ["", "\n", "\r\n", " \t \n\n \r\n"] {
        assert_eq!(refused(nothing), empty, "{nothing:?}");
    }
    let no_value = "line 1: malformed JSON at column 1: expected a value";
    assert_eq!(refused("\0\0\0\0"), no_value);
    assert_eq!(refused(b"PK\x03\x04"), no_value);
    assert_eq!(refused(b"\x1f\x8b\x08"), "line 1: not valid UTF-8 at column 2");
    assert_eq!(refused(b"\xff\xfe{\0\"\0"), "line 1: not valid UTF-8 at column 1");
    assert_eq!(refused(b"\xef\xbb\xbf{}"), no_value);
    assert_eq!(refused("[]"), "line 1: must be an object, not a list");
}

#[test]
fn lines_may_end_as_windows_ends_them() {
    let tick = r#"{"at":5,"event":"tick"}"#;
    for end in ["\n", "\r\n", " \t\r\n"] {
        for last in ["", end] {
            let journal = format!("{HEADER}{end}{tick}{end}{tick}{last}");
            assert_eq!(read(journal.as_bytes()).unwrap().len(), 2, "{journal:?}");
        }
    }
    // A lone carriage return ends no line.
    let error = refused(format!("{HEADER}\r{tick}\r"));
    assert_eq!(error, "line 1: malformed JSON at column 81: expected nothing more");
    // Nor does anything else that some call the end of a line.
    for separator in ["\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}"] {
        let error = refused(format!("{HEADER}{separator}{tick}"));
        assert!(error.ends_with("expected nothing more"), "{error}");
    }
}

#[test]
fn a_torn_last_line_is_refused_and_the_lines_before_it_are_read() {
    let line = r#"{"at":5,"event":"submit","id":"é\u00e9","tenant":"chat","cost":700}"#;
    let whole = format!("{HEADER}\n{line}\n{line}");
    let second = HEADER.len() + 1 + line.len() + 1;
    for end in second + 1..whole.len() {
        let (_, mut reader) = JournalReader::open(&whole.as_bytes()[..end]).unwrap();
        reader.next_event().unwrap().unwrap();
        let error = reader.next_event().unwrap_err();
        assert_eq!(error.line(), 3, "{error}");
        assert_eq!(reader.next_event().unwrap(), None);
    }
    // What a file system leaves of a line that it had room for and no text.
    let zeros = [whole.as_bytes(), b"\n", &[0; 4096]].concat();
    assert_eq!(refused(&zeros), "line 4: malformed JSON at column 1: expected a value");
}

#[test]
fn text_is_what_unicode_says() {
    assert_eq!(id_of(r#""\u0000""#), "\0");
    assert_eq!(id_of(r#""\ud83d\ude00\uD83D\uDE00""#), "😀😀");
    assert_eq!(id_of(r#""\\u0041\/\b\f\n\r\t""#), "\\u0041/\u{8}\u{c}\n\r\t");
    assert_eq!(id_of("\"\u{2028}\u{feff}\u{7f}\u{10ffff}\""), "\u{2028}\u{feff}\u{7f}\u{10ffff}");
    let escape = "a string with an escape that JSON has not";
    for bad in [
        r"\ud800",
        r"\udc00",
        r"\ude00\ud83d",
        r"\ud83d\ud83d",
        r"\ud83d\u0041",
        r"\ud83dx",
        r"\ud83d\n",
        r"\u12",
        r"\u12g4",
        r"\u+123",
        r"\U0041",
        r"\x41",
        r"\0",
        r"\'",
        r"\é",
        "\\\t",
    ] {
        for (line, field) in [
            (format!(r#"{{"at":0,"event":"cancel","id":"{bad}"}}"#), "field \"id\": "),
            (format!(r#"{{"at":0,"{bad}":1}}"#), ""),
        ] {
            let error = refused_line(&line);
            let expected = [field, "malformed JSON at column"];
            assert!(error.starts_with(&expected.concat()), "{error} for {line}");
            assert!(error.ends_with(escape), "{error} for {line}");
        }
    }
    assert!(refused_line(r#"{"at":0,"id":"\"#).ends_with("a string without an end"));
    assert!(refused_line(r#"{"at":0,"id":"\"}"#).ends_with("a string without an end"));
    for control in ["\0", "\u{1}", "\u{1f}", "\r"] {
        let error = refused_line(format!(r#"{{"at":0,"id":"{control}"}}"#));
        assert!(error.ends_with("a control character in a string"), "{error}");
    }
}

#[test]
fn bytes_that_are_no_utf8_are_found_wherever_they_are() {
    for bad in [
        &b"\xff"[..],
        b"\x80",
        b"\xc0\xaf",
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf0\x9f\x98",
        b"\xf8\x88\x80\x80\x80",
    ] {
        let in_text = [br#"{"at":0,"event":"cancel","id":""#, bad, br#""}"#].concat();
        assert_eq!(refused_line(in_text), "not valid UTF-8 at column 32");
        let in_name = [br#"{"at":0,""#, bad, br#"":1}"#].concat();
        assert_eq!(refused_line(in_name), "not valid UTF-8 at column 10");
        let in_header = [br#"{"fairgate_journal":1,""#, bad].concat();
        assert_eq!(refused(in_header), "line 1: not valid UTF-8 at column 24");
    }
}

#[test]
fn numbers_of_any_length_take_no_time_and_no_room() {
    let digits = "9".repeat(1 << 20);
    let zeros = "0".repeat(1 << 20);
    let fields = [
        ("at", r#"{"event":"tick","at":N}"#),
        ("cost", r#"{"at":0,"event":"submit","id":"r","cost":N}"#),
        ("priority", r#"{"at":0,"event":"submit","id":"r","priority":N}"#),
        ("weight", r#"{"at":0,"event":"submit","id":"r","weight":N}"#),
        ("slots", r#"{"at":0,"event":"capacity","slots":N}"#),
        ("ranks", r#"{"at":0,"event":"worker","name":"w","ranks":N}"#),
        ("weight", r#"{"at":0,"event":"weight","by":"key","flow":"a","weight":N}"#),
        ("quota", r#"{"at":0,"event":"release","id":"r","quota":N}"#),
        ("tier", r#"{"at":0,"event":"worker","name":"w","tier":N}"#),
        ("burst_seconds", r#"{"at":0,"event":"worker","name":"w","burst_seconds":N}"#),
        ("tokens_per_minute", r#"{"at":0,"event":"worker","name":"w","tokens_per_minute":N}"#),
    ];
    let numbers = [
        digits.clone(),
        format!("-{digits}"),
        format!("0.{digits}"),
        format!("1e{digits}"),
        format!("1e-{digits}"),
        format!("0.{zeros}1"),
        format!("1{zeros}"),
        format!("1.5e+{zeros}1"),
    ];
    let start = Instant::now();
    for (field, line) in fields {
        for number in &numbers {
            let line = line.replace('N', number);
            let journal = format!("{HEADER}\n{line}\n");
            if let Err(error) = read(journal.as_bytes()) {
                assert_eq!(error.field(), Some(field));
                assert!(error.to_string().len() < 300, "{error}");
            } else {
                assert_eq!(field, "weight", "{number:.20}");
            }
        }
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn the_largest_numbers_are_read() {
    let line = |number: &str| format!(r#"{{"event":"tick","at":{number}}}"#);
    let at = |number: &str| read(format!("{HEADER}\n{}", line(number)).as_bytes()).unwrap()[0].0;
    assert_eq!(at("18446744073709551615"), Micros(u64::MAX));
    assert_eq!(at("0"), Micros(0));
    assert_eq!(at("-0"), Micros(0));
    for wrong in ["-0.0", "0.0", "0e0", "1E2", "-1"] {
        assert!(refused_line(line(wrong)).contains("must be an integer of 0 or more"));
    }
    for malformed in ["00", "-01", "1_000", "0x10", "1e", "--1", "٣", "1.e2", "NaN", "-Infinity"] {
        assert!(refused_line(line(malformed)).contains("malformed JSON"), "{malformed}");
    }
}

/// Every object of a journal, with the field that is repeated in it.
#[test]
fn no_object_names_a_field_twice() {
    let node = |inner: &str| format!(r#"{{"at":0,"event":"policy","policy":{inner}}}"#);
    let cases = [
        (r#"{"at":0,"at":1,"event":"tick"}"#.into(), "at"),
        (r#"{"at":0,"event":"tick","event":"resume"}"#.into(), "event"),
        (r#"{"at":0,"event":"capacity","slots":1,"slots":1}"#.into(), "slots"),
        (r#"{"at":0,"event":"release","id":"a","tokens":1,"tokens":1}"#.into(), "tokens"),
        (r#"{"at":0,"event":"hold","by":"key","flow":"a","flow":"a"}"#.into(), "flow"),
        (r#"{"at":0,"event":"worker","name":"w","name":"w"}"#.into(), "name"),
        (r#"{"at":0,"event":"worker","name":"w","taints":[],"taints":[]}"#.into(), "taints"),
        (r#"{"at":0,"event":"worker","name":"w","tier":0,"tier":0}"#.into(), "tier"),
        (
            r#"{"at":0,"event":"worker","name":"w","tokens_per_minute":null,"tokens_per_minute":null}"#.into(),
            "tokens_per_minute",
        ),
        (r#"{"at":0,"event":"submit","id":"r","tenant":"a","tenant":"a"}"#.into(), "tenant"),
        (r#"{"at":0,"event":"submit","id":"r","quota":1,"quota":1}"#.into(), "quota"),
        (r#"{"at":0,"event":"submit","id":"r","cost":1,"c\u006fst":1}"#.into(), "cost"),
        (
            r#"{"at":0,"event":"submit","id":"r","cached":{"é":1,"\u00e9":1}}"#.into(),
            "cached.é",
        ),
        (
            r#"{"at":0,"event":"submit","id":"r","pin":{"worker":"w","rank":0,"rank":0}}"#.into(),
            "pin.rank",
        ),
        (
            r#"{"at":0,"event":"policy","policy":{"share":{"by":"key"}},"policy":{"share":{"by":"key"}}}"#.into(),
            "policy",
        ),
        (node(r#"{"drr":{"by":"key","classes":[],"classes":[]}}"#), "policy.drr.classes"),
        (
            node(r#"{"drr":{"by":"key","classes":[{"name":"a","quantum":1,"quantum":1}]}}"#),
            "policy.drr.classes[0].quantum",
        ),
        (
            node(r#"{"share":{"by":"key","classes":[{"name":"a","weight":1}],"classes":[]}}"#),
            "policy.share.classes",
        ),
        (
            node(r#"{"share":{"by":"key","classes":[{"name":"a","cap":1,"cap":1}]}}"#),
            "policy.share.classes[0].cap",
        ),
        (
            node(r#"{"share":{"by":"key","queue":{"max_wait_us":1,"max_wait_us":1}}}"#),
            "policy.share.queue.max_wait_us",
        ),
        (
            node(r#"{"share":{"by":"key","weights":{},"weights":{}}}"#),
            "policy.share.weights",
        ),
        (
            node(r#"{"share":{"by":"key","caps":{"a":1,"a":1}}}"#),
            "policy.share.caps.a",
        ),
        (
            node(r#"{"share":{"by":"key","inside":{"load":{"by":"key","by":"key"}}}}"#),
            "policy.share.inside.load.by",
        ),
        (node(r#"{"load":{"by":"key","alpha":0,"alpha":0}}"#), "policy.load.alpha"),
    ];
    for (line, field) in cases {
        assert_eq!(refused_line(&line), format!("field \"{field}\": given twice"), "for {line}");
    }
    let headers = [
        (HEADER.replace(r#"{"fairgate"#, r#"{"fairgate_journal":1,"fairgate"#), "fairgate_journal"),
        (HEADER.replace(r#"{"capacity":2"#, r#"{"capacity":2,"capacity":2"#), "pool.capacity"),
        (
            HEADER.replace(r#","pool""#, r#","clock":{"at":0,"unix_us":0},"clock":{},"pool""#),
            "clock",
        ),
        (
            HEADER.replace(
                r#""capacity":2"#,
                r#""capacity":2,"workers":[{"name":"w","slots":1,"slots":2}]"#,
            ),
            "pool.workers[0].slots",
        ),
        (
            HEADER.replace(
                r#"1,"pool""#,
                r#"1,"pool":{"capacity":2,"policy":{"share":{"by":"key"}}},"pool""#,
            ),
            "pool",
        ),
    ];
    for (line, field) in headers {
        assert_eq!(refused(&line), format!("line 1: field \"{field}\": given twice"));
    }
}

#[test]
fn deep_lines_fit_a_small_stack() {
    let deep = [
        format!("{}1{}", "[".repeat(500), "]".repeat(500)),
        format!("{}1{}", r#"{"a":"#.repeat(500), "}".repeat(500)),
        "[".repeat(1 << 20),
        r#"[{"":"#.repeat(1 << 18),
    ];
    let small = std::thread::Builder::new().stack_size(1 << 20).spawn(move || {
        for value in deep {
            let line = format!(r#"{{"at":0,"event":"policy","policy":{value}}}"#);
            let error = refused_line(line);
            assert!(error.len() < 100_000, "an error of {} bytes", error.len());
            let header = format!(r#"{{"fairgate_journal":1,"snapshot":{value}}}"#);
            assert!(refused(header).starts_with("line 1: field \"snapshot"));
        }
    });
    small.unwrap().join().unwrap();
}

#[test]
fn wide_objects_take_no_time() {
    let many = |each: fn(usize) -> String| (0..200_000).map(each).collect::<Vec<_>>().join(",");
    let start = Instant::now();
    let names = many(|i| format!(r#""w{}":1"#, 200_000 - i));
    let line = format!(r#"{{"at":0,"event":"submit","id":"r","cached":{{{names}}}}}"#);
    read(format!("{HEADER}\n{line}").as_bytes()).unwrap();
    let policy = format!(r#"{{"share":{{"by":"tenant","weights":{{{names}}}}}}}"#);
    parse_policy(&policy).unwrap();
    let classes = many(|i| format!(r#"{{"name":"c{i}","weight":1,"queue":"wspt"}}"#));
    let inside = r#""inside":{"load":{"by":"agent"}}"#;
    let policy = format!(r#"{{"share":{{"by":"class","classes":[{classes}],{inside}}}}}"#);
    let policy = parse_policy(&policy).unwrap();
    assert_eq!(parse_policy(&format_policy(&policy)).unwrap(), policy);
    let unknown = format!(r#"{{"at":0,"event":"tick",{names}}}"#);
    assert_eq!(refused_line(unknown), "field \"w200000\": unknown; known here: at, event");
    let same = many(|_| r#""at":1"#.into());
    assert_eq!(refused_line(format!("{{{same},\"event\":\"tick\"}}")), "field \"at\": given twice");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn messages_stay_on_one_line_and_short() {
    let names = ["\n", "\u{1b}[2J", "\u{202e}", "\"", "\\", "\u{0}"];
    for name in names {
        let mut writer = JournalWriter::new(Vec::new());
        writer.write_event(Micros(0), &Event::Submit(Box::new(Submit::new(name)))).unwrap();
        let line = String::from_utf8(writer.into_inner()).unwrap();
        let id = line.split(r#""id":"#).nth(1).unwrap().trim_end_matches("}\n");
        for bad in
            [format!(r#"{{"at":0,"event":{id}}}"#), format!(r#"{{"at":0,{id}:1,"event":"tick"}}"#)]
        {
            let error = refused_line(bad);
            assert!(!error.chars().any(char::is_control), "{error:?}");
            assert!(!error.contains('\u{202e}'), "{error:?}");
        }
    }
    let long = "x".repeat(1 << 20);
    for bad in [
        format!(r#"{{"at":0,"event":"{long}"}}"#),
        format!(r#"{{"at":0,"event":"tick","{long}":1}}"#),
        format!(r#"{{"at":0,"event":"submit","id":"r","cached":{{"{long}":-1}}}}"#),
    ] {
        assert!(refused_line(bad).len() < 400);
    }
}

/// Classes inherit the inside of their node. So a short text could describe a tree that is too
/// large for memory.
#[test]
fn a_tree_does_not_unfold_without_bound() {
    let nested = |levels: usize, classes: usize| {
        let classes: Vec<String> =
            (0..classes).map(|i| format!(r#"{{"name":"c{i}","weight":1}}"#)).collect();
        let open = format!(r#"{{"share":{{"by":"class","classes":[{}],"#, classes.join(","));
        let inside = format!(r#"{open}"inside":"#).repeat(levels - 1);
        format!(r#"{inside}{open}"queue":"wspt"}}}}{}"#, "}}".repeat(levels - 1))
    };
    let start = Instant::now();
    for bomb in [nested(64, 1), nested(64, 2), nested(21, 2), nested(4, 200)] {
        let error = parse_policy(&bomb).unwrap_err().to_string();
        assert_eq!(error, "line 1: field \"share\": the tree has more than 1048576 nodes");
    }
    for policy in [nested(12, 1), nested(8, 3), nested(3, 200)] {
        let tree = parse_policy(&policy).unwrap();
        assert_eq!(format_policy(&tree), policy);
        assert_eq!(parse_policy(&policy).unwrap(), tree);
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

/// A reader needs only one line at a time, so a pipe that stays open does not delay events.
#[test]
fn events_come_as_soon_as_their_lines_do() {
    struct Pipe(Vec<&'static [u8]>);
    impl Read for Pipe {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let part = self.0.pop().expect("nobody asks for what has not come");
            buffer[..part.len()].copy_from_slice(part);
            Ok(part.len())
        }
    }
    let parts = [HEADER.as_bytes(), b"\n{\"at\":1,\"ev", b"ent\":\"tick\"}", b"\n"];
    let pipe = BufReader::new(Pipe(parts.into_iter().rev().collect()));
    let (start, mut reader) = JournalReader::open(pipe).unwrap();
    assert!(matches!(start, JournalStart::Fresh(_)));
    assert_eq!(reader.next_event().unwrap(), Some((Micros(1), Event::Tick)));
}

/// At the last time that a journal can state, time cannot advance. A rate that is exhausted stays
/// so, and the pool still answers.
#[test]
fn the_end_of_time() {
    let header = r#"{"fairgate_journal":1,"pool":{"capacity":2,"policy":{"share":{"by":"tenant","queue":{"max_wait_us":18446744073709551615}}},"queue_timeout_us":18446744073709551615,"workers":[{"name":"w","requests_per_minute":1}]}}"#;
    let end = u64::MAX;
    let journal = format!(
        r#"{header}
{{"at":{end},"event":"submit","id":"a"}}
{{"at":{end},"event":"submit","id":"b"}}
{{"at":{end},"event":"worker","name":"w","pause_until":{end}}}
{{"at":{end},"event":"tick"}}
"#
    );
    let (start, mut reader) = JournalReader::open(journal.as_bytes()).unwrap();
    let mut pool = start.into_pool().unwrap();
    while let Some((at, event)) = reader.next_event().unwrap() {
        pool.apply(at, event, &mut Vec::new()).unwrap();
        pool = Pool::restore(pool.snapshot()).unwrap();
    }
    assert_eq!((pool.waiting(), pool.in_flight()), (1, 1));
}

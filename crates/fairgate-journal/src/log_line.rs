//! Events as lines of a log that several writers share.
//!
//! Such a line has no `at`, because its place in the log determines its time. Besides the fields of
//! the event, it has fields that the log adds, such as the name of the pool. The event's own fields
//! are those of a journal.

use std::borrow::Cow;

use fairgate_core::event::Event;

use crate::error::JournalError;
use crate::journal_text_error::JournalTextError;
use crate::read::cursor::{JsonCursor, JsonKind};
use crate::read::event::untimed_event;
use crate::read::number::count;
use crate::write::event::fields;
use crate::write::json::JsonWriter;

/// The value of a field that the log adds to an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogFieldValue<'a> {
    /// Text, such as a name.
    Text(Cow<'a, str>),
    /// An integer of 0 or more.
    Count(u64),
    /// A truth value, `true` or `false`.
    Flag(bool),
}

/// Reads one line. `own` names the fields that the log adds: at most 64, and none may be a field of
/// an event. `each` is called with every such field of the line. All other fields must be those of
/// the event, without `at`.
///
/// ```
/// use fairgate_journal::{LogFieldValue, read_log_line};
///
/// let line = r#"{"pool":"llama","event":"cancel","id":"r7"}"#;
/// let mut pool = None;
/// let event = read_log_line(line, &["pool"], |_, value| pool = Some(value))?;
/// assert_eq!(event, fairgate_core::event::Event::Cancel { id: "r7".into() });
/// assert_eq!(pool, Some(LogFieldValue::Text("llama".into())));
/// # Ok::<(), fairgate_journal::JournalError>(())
/// ```
pub fn read_log_line<'a>(
    text: &'a str,
    own: &'static [&'static str],
    mut each: impl FnMut(&'static str, LogFieldValue<'a>),
) -> Result<Event, JournalError> {
    let read = untimed_event(text, own, |name, cursor| {
        each(name, value(cursor)?);
        Ok(())
    });
    read.map_err(|fault| JournalError::from_fault(fault, text, 1))
}

fn value<'a>(cursor: &mut JsonCursor<'a>) -> Result<LogFieldValue<'a>, JournalTextError> {
    match cursor.kind()? {
        JsonKind::Text => cursor.text().map(LogFieldValue::Text),
        JsonKind::Number => count(cursor).map(LogFieldValue::Count),
        JsonKind::Bool => cursor.bool().map(LogFieldValue::Flag),
        _ => Err(cursor.wrong("text, an integer of 0 or more, or true or false")),
    }
}

/// Appends one line and its line end to `out`: first the log's own fields, then those of the event.
///
/// ```
/// use fairgate_core::event::Event;
/// use fairgate_journal::{LogFieldValue, write_log_line};
///
/// let mut out = String::new();
/// let pool = LogFieldValue::Text("llama".into());
/// write_log_line(&mut out, &[("pool", pool)], &Event::Cancel { id: "r7".into() });
/// assert_eq!(out, "{\"pool\":\"llama\",\"event\":\"cancel\",\"id\":\"r7\"}\n");
/// ```
pub fn write_log_line(out: &mut String, own: &[(&str, LogFieldValue<'_>)], event: &Event) {
    let mut json = JsonWriter::default();
    json.object(|json| {
        for (name, value) in own {
            match value {
                LogFieldValue::Text(text) => json.text_field(name, text),
                LogFieldValue::Count(count) => json.field(name, count),
                LogFieldValue::Flag(flag) => json.field(name, flag),
            }
        }
        fields(json, event);
    });
    json.end_line();
    out.push_str(json.as_str());
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &[&str] = &["pool", "bytes", "held"];

    fn read(line: &str) -> Result<Event, String> {
        read_log_line(line, OWN, |_, _| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_line_comes_back_as_it_was_written() {
        let event = Event::Release { id: "r\"1".into(), tokens: None, quota: None };
        let own = [
            ("pool", LogFieldValue::Text("a b".into())),
            ("bytes", LogFieldValue::Count(u64::MAX)),
            ("held", LogFieldValue::Flag(true)),
        ];
        let mut line = String::new();
        write_log_line(&mut line, &own, &event);
        let mut seen = Vec::new();
        let back = read_log_line(line.trim_end(), OWN, |name, value| seen.push((name, value)));
        assert_eq!((back.unwrap(), seen.as_slice()), (event, &own[..]));
    }

    #[test]
    fn lines_are_read_strictly() {
        let bad = [
            (r#"{"at":1,"event":"tick"}"#, "field \"at\": unknown"),
            (r#"{"event":"tick","pool":1,"pool":2}"#, "field \"pool\": given twice"),
            (r#"{"event":"tick","other":1}"#, "field \"other\": unknown"),
            (r#"{"event":"submit","id":"r","pin":{"pool":1}}"#, "field \"pin.pool\": unknown"),
            (r#"{"event":"tick","pool":[]}"#, "field \"pool\": must be text"),
            (r#"{"pool":"p"}"#, "field \"event\": is missing"),
        ];
        for (line, problem) in bad {
            let error = read(line).unwrap_err();
            assert!(error.contains(problem), "{line}: {error}");
        }
        assert_eq!(read(r#"{"held":false,"event":"tick"}"#), Ok(Event::Tick));
    }
}

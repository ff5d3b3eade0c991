//! A cursor over one JSON text. The caller asks for the next value as the type that it should have, and the value is
//! read in place.
//!
//! Only values that the caller keeps are built. Recursion follows the nesting of the text, which is bounded by
//! [`MAX_NESTING`], so that no text can exhaust the stack. Escapes in strings are decoded by `serde_json`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::journal_text_error::{JournalTextError, printable};

/// Greatest nesting of objects and lists in one line. The deepest policy tree
/// ([`MAX_DEPTH`](fairgate_core::policy::MAX_DEPTH) nodes with classes) needs four levels per node, 256 in all.
pub const MAX_NESTING: usize = 512;

/// A position in a JSON text.
pub(crate) struct JsonCursor<'a> {
    text: &'a str,
    offset: usize,
    nesting: usize,
    /// Fields of the outermost object that an earlier pass has read. They are skipped.
    read_before: &'static [&'static str],
}

/// The kind of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonKind {
    Object,
    List,
    Text,
    Number,
    Bool,
    Null,
}

impl<'a> JsonCursor<'a> {
    /// Creates a cursor at the beginning of a text.
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, offset: 0, nesting: 0, read_before: &[] }
    }

    /// Makes the cursor skip these fields in the outermost object.
    pub(crate) fn with_fields_read_before(self, names: &'static [&'static str]) -> Self {
        Self { read_before: names, ..self }
    }

    /// Returns the byte offset at which the next value begins.
    pub(crate) fn mark(&mut self) -> usize {
        self.skip_space();
        self.offset
    }

    /// Returns the kind of the next value without reading it.
    pub(crate) fn kind(&mut self) -> Result<JsonKind, JournalTextError> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => Ok(JsonKind::Object),
            Some(b'[') => Ok(JsonKind::List),
            Some(b'"') => Ok(JsonKind::Text),
            Some(b'-' | b'0'..=b'9') => Ok(JsonKind::Number),
            Some(b't' | b'f') => Ok(JsonKind::Bool),
            Some(b'n') => Ok(JsonKind::Null),
            _ => Err(self.expected("a value")),
        }
    }

    /// Reads a value that must be text.
    pub(crate) fn text(&mut self) -> Result<Cow<'a, str>, JournalTextError> {
        self.require(JsonKind::Text, "text")?;
        self.quoted()
    }

    /// Reads text that must be one of the given names, and returns the value that belongs to the name.
    pub(crate) fn one_of<T: Copy, const N: usize>(
        &mut self,
        names: [(&'static str, T); N],
    ) -> Result<T, JournalTextError> {
        let named = |text: &str| names.iter().find(|(name, _)| *name == text).map(|(_, it)| *it);
        self.text_of(named, || {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            format!("one of {}", names.join(", "))
        })
    }

    /// Reads text that denotes another value, and returns that value. `expected` describes the allowed values in the
    /// error message.
    pub(crate) fn text_of<T>(
        &mut self,
        meaning: impl FnOnce(&str) -> Option<T>,
        expected: impl FnOnce() -> String,
    ) -> Result<T, JournalTextError> {
        if self.kind()? == JsonKind::Text {
            let start = self.offset;
            if let Some(meant) = meaning(&self.quoted()?) {
                return Ok(meant);
            }
            self.offset = start;
        }
        Err(self.wrong(&expected()))
    }

    /// Reads `true` or `false`.
    pub(crate) fn bool(&mut self) -> Result<bool, JournalTextError> {
        self.require(JsonKind::Bool, "true or false")?;
        let value = self.peek() == Some(b't');
        self.word(if value { "true" } else { "false" })?;
        Ok(value)
    }

    /// Reads a number and returns its text, which follows JSON's grammar. `expected` describes the allowed values in
    /// the error message if the value is not a number.
    pub(crate) fn number(
        &mut self,
        expected: impl Fn() -> String,
    ) -> Result<&'a str, JournalTextError> {
        if self.kind()? != JsonKind::Number {
            return Err(self.wrong(&expected()));
        }
        let start = self.offset;
        if self.peek() == Some(b'-') {
            self.offset += 1;
        }
        match self.peek() {
            Some(b'0') => self.offset += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.offset += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.offset += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.offset += 1;
            }
            self.digits()?;
        }
        Ok(&self.text[start..self.offset])
    }

    /// Reads an object. Calls `each` with the name of every field, with the cursor at the field's value.
    pub(crate) fn map(
        &mut self,
        mut each: impl FnMut(&str, &mut Self) -> Result<(), JournalTextError>,
    ) -> Result<(), JournalTextError> {
        self.require(JsonKind::Object, "an object")?;
        self.sequence(b'}', |cursor, _| {
            if cursor.peek() != Some(b'"') {
                return Err(cursor.malformed("expected a field's name in quotes"));
            }
            let name = cursor.quoted()?;
            cursor.skip_space();
            if cursor.peek() != Some(b':') {
                return Err(cursor.malformed("expected ':' after a field's name"));
            }
            cursor.offset += 1;
            each(&name, cursor).map_err(|fault| fault.in_field(&name))
        })
    }

    /// Reads an object with arbitrary field names into a map; fails if a name occurs twice.
    pub(crate) fn by_name<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, JournalTextError>,
    ) -> Result<BTreeMap<Box<str>, T>, JournalTextError> {
        let mut values = BTreeMap::new();
        self.map(|name, cursor| {
            let mark = cursor.mark();
            match values.insert(name.into(), read(cursor)?) {
                None => Ok(()),
                Some(_) => Err(JournalTextError::new(mark, "given twice")),
            }
        })?;
        Ok(values)
    }

    /// Reads an object that may have only these fields, of which there may be at most 64. Each field may occur at most
    /// once, in any order.
    pub(crate) fn object(
        &mut self,
        known: &'static [&'static str],
        each: impl FnMut(&'static str, &mut Self) -> Result<(), JournalTextError>,
    ) -> Result<(), JournalTextError> {
        self.record(known, 0, each)
    }

    /// Reads an object with known fields. `removed` has fields that only earlier versions knew, each with advice on its
    /// replacement.
    pub(crate) fn object_with_removed(
        &mut self,
        known: &'static [&'static str],
        removed: &[(&str, &str)],
        each: impl FnMut(&'static str, &mut Self) -> Result<(), JournalTextError>,
    ) -> Result<(), JournalTextError> {
        self.fields(known, 0, removed, each)
    }

    /// Reads an object with known fields, the first `required` of which must be present.
    pub(crate) fn record(
        &mut self,
        known: &'static [&'static str],
        required: usize,
        each: impl FnMut(&'static str, &mut Self) -> Result<(), JournalTextError>,
    ) -> Result<(), JournalTextError> {
        self.fields(known, required, &[], each)
    }

    fn fields(
        &mut self,
        known: &'static [&'static str],
        required: usize,
        removed: &[(&str, &str)],
        mut each: impl FnMut(&'static str, &mut Self) -> Result<(), JournalTextError>,
    ) -> Result<(), JournalTextError> {
        let mut seen = 0u64;
        let mut next = 0;
        self.map(|name, cursor| {
            let Some(i) = find(known, name, next) else {
                if cursor.nesting == 1 && cursor.read_before.contains(&name) {
                    return cursor.skip();
                }
                return Err(match removed.iter().find(|(removed, _)| *removed == name) {
                    Some((_, advice)) => cursor.fault(format!("was removed: {advice}")),
                    None => cursor.fault(format!("unknown; known here: {}", known.join(", "))),
                });
            };
            if seen & 1 << i != 0 {
                return Err(cursor.fault("given twice"));
            }
            seen |= 1 << i;
            next = i + 1;
            each(known[i], cursor)
        })?;
        match (0..required).find(|i| seen & 1 << i == 0) {
            Some(i) => Err(self.missing(known[i])),
            None => Ok(()),
        }
    }

    /// Reads a list. Calls `read` for each element and collects the results.
    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, JournalTextError>,
    ) -> Result<Vec<T>, JournalTextError> {
        self.require(JsonKind::List, "a list")?;
        let mut elements = Vec::new();
        self.sequence(b']', |cursor, i| {
            elements.push(read(cursor).map_err(|fault| fault.in_element(i))?);
            Ok(())
        })?;
        Ok(elements)
    }

    /// Reads a value, or `null` as `None`.
    pub(crate) fn nullable<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, JournalTextError>,
    ) -> Result<Option<T>, JournalTextError> {
        match self.kind()? {
            JsonKind::Null => self.word("null").map(|()| None),
            _ => read(self).map(Some),
        }
    }

    /// Skips the next value of any kind, and checks that it is valid JSON.
    pub(crate) fn skip(&mut self) -> Result<(), JournalTextError> {
        match self.kind()? {
            JsonKind::Object => self.map(|_, cursor| cursor.skip()),
            JsonKind::List => self.list(Self::skip).map(drop),
            JsonKind::Text => self.quoted().map(drop),
            JsonKind::Number => self.number(String::new).map(drop),
            JsonKind::Bool => self.bool().map(drop),
            JsonKind::Null => self.word("null"),
        }
    }

    /// Checks that only white space is left.
    pub(crate) fn end(&mut self) -> Result<(), JournalTextError> {
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.malformed("expected nothing more")),
        }
    }

    /// Creates a fault about the next value.
    pub(crate) fn fault(&mut self, message: impl Into<String>) -> JournalTextError {
        JournalTextError::new(self.mark(), message)
    }

    /// Creates a fault for a field that is missing in the object just read.
    pub(crate) fn missing(&self, name: &str) -> JournalTextError {
        JournalTextError::new(self.offset.saturating_sub(1), "is missing").in_field(name)
    }

    /// Creates a fault because the next value is not of the expected kind.
    pub(crate) fn wrong(&mut self, expected: &str) -> JournalTextError {
        let mark = self.mark();
        match self.describe() {
            Ok(found) => JournalTextError::new(mark, format!("must be {expected}, not {found}")),
            Err(malformed) => malformed,
        }
    }

    fn describe(&mut self) -> Result<String, JournalTextError> {
        Ok(match self.kind()? {
            JsonKind::Object => "an object".into(),
            JsonKind::List => "a list".into(),
            JsonKind::Text => format!("the text \"{}\"", printable(&self.quoted()?)),
            JsonKind::Number => printable(self.number(String::new)?),
            JsonKind::Bool => self.bool()?.to_string(),
            JsonKind::Null => self.word("null").map(|()| "null".into())?,
        })
    }

    fn require(&mut self, kind: JsonKind, expected: &str) -> Result<(), JournalTextError> {
        match self.kind()? == kind {
            true => Ok(()),
            false => Err(self.wrong(expected)),
        }
    }

    /// Reads the comma-separated elements from the opening bracket at the cursor up to the bracket `close`.
    fn sequence(
        &mut self,
        close: u8,
        mut each: impl FnMut(&mut Self, usize) -> Result<(), JournalTextError>,
    ) -> Result<(), JournalTextError> {
        if self.nesting == MAX_NESTING {
            return Err(self.fault(format!("nested deeper than {MAX_NESTING} levels")));
        }
        self.nesting += 1;
        self.offset += 1;
        self.skip_space();
        if self.peek() != Some(close) {
            for i in 0.. {
                self.skip_space();
                each(self, i)?;
                self.skip_space();
                match self.peek() {
                    Some(b',') => self.offset += 1,
                    Some(byte) if byte == close => break,
                    _ => {
                        return Err(
                            self.malformed(format!("expected ',' or '{}'", char::from(close)))
                        );
                    }
                }
            }
        }
        self.nesting -= 1;
        self.offset += 1;
        Ok(())
    }

    /// Reads the string that begins at the cursor. The result borrows from the text if the string has no escapes.
    fn quoted(&mut self) -> Result<Cow<'a, str>, JournalTextError> {
        let start = self.offset;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        let mut escaped = false;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    end += 2;
                }
                Some(0..0x20) => {
                    return Err(JournalTextError::malformed(
                        end,
                        "a control character in a string",
                    ));
                }
                Some(_) => end += 1,
                None => {
                    return Err(JournalTextError::malformed(
                        bytes.len(),
                        "a string without an end",
                    ));
                }
            }
        }
        self.offset = end + 1;
        if !escaped {
            return Ok(Cow::Borrowed(&self.text[start + 1..end]));
        }
        serde_json::from_str(&self.text[start..=end]).map(Cow::Owned).map_err(|_| {
            JournalTextError::malformed(start, "a string with an escape that JSON has not")
        })
    }

    /// Skips one digit or more.
    fn digits(&mut self) -> Result<(), JournalTextError> {
        let digits = &self.text.as_bytes()[self.offset..];
        match digits.iter().take_while(|b| b.is_ascii_digit()).count() {
            0 => Err(self.expected("a digit")),
            n => {
                self.offset += n;
                Ok(())
            }
        }
    }

    fn word(&mut self, word: &str) -> Result<(), JournalTextError> {
        if !self.text.as_bytes()[self.offset..].starts_with(word.as_bytes()) {
            return Err(self.expected("a value"));
        }
        self.offset += word.len();
        Ok(())
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.offset += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    /// Creates a fault for text that is not JSON, because `what` was expected. The message names numbers that other
    /// writers use and JSON lacks (NaN, infinity).
    fn expected(&self, what: &str) -> JournalTextError {
        let rest = &self.text[self.offset..];
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let word = &rest[..end];
        match ["nan", "inf", "infinity"].iter().any(|it| word.eq_ignore_ascii_case(it)) {
            true => self.malformed(format!("expected {what}: JSON has no {word}")),
            false => self.malformed(format!("expected {what}")),
        }
    }

    fn malformed(&self, message: impl Into<String>) -> JournalTextError {
        JournalTextError::malformed(self.offset, message)
    }
}

/// Finds the index of a field's name among the known names. The search begins at `next`, because fields usually arrive
/// in the known order.
fn find(known: &[&str], name: &str, next: usize) -> Option<usize> {
    let (before, after) = known.split_at(next);
    let later = after.iter().position(|&k| k == name).map(|i| i + next);
    later.or_else(|| before.iter().position(|&k| k == name))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample::{Index, select};

    use super::*;

    /// Texts that are inserted into JSON: all its tokens, and a few invalid ones.
    const PIECES: &[&str] = &[
        "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u", "\\ud83d", "\\ude00", "\\n", "\\x", "0",
        "1", "27", "-", "+", ".", "e", "E", "true", "false", "null", "t", "n", "a", "é", " ", "\t",
        "\n", "\r", "\u{b}", "\u{1}", "{}", "[]", "\"a\"", "\"a\":1", "[1,2]",
    ];

    const TEXTS: &[&str] = &[
        "",
        "{}",
        "[]",
        "0",
        "\"\"",
        r#"{"at":0,"event":"submit","id":"r1","cost":700,"weight":1.50,"allow":["w0","w1"]}"#,
        r#" { "a" : [ true , false , null , -1.5e+2 , "\u00e9\ud83d\ude00\"\\" ] , "b" : { } } "#,
        r#"[[[{"a":{"b":[{}]}}]]]"#,
    ];

    fn accepts(text: &str) -> bool {
        let mut cursor = JsonCursor::new(text);
        cursor.skip().and_then(|()| cursor.end()).is_ok()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Checks that the cursor accepts the same texts as `serde_json`.
        #[test]
        fn it_agrees_with_another_parser(
            text in select(TEXTS),
            edits in vec((any::<Index>(), select(PIECES), 0..3usize), 0..4),
        ) {
            let mut text: Vec<char> = text.chars().collect();
            for (at, piece, removed) in edits {
                let at = at.index(text.len() + 1);
                let end = (at + removed).min(text.len());
                text.splice(at..end, piece.chars());
            }
            let text: String = text.into_iter().collect();
            match serde_json::from_str::<serde_json::Value>(&text) {
                Err(e) if e.to_string().starts_with("number out of range") => {}
                other => prop_assert_eq!(accepts(&text), other.is_ok(), "{}", text),
            }
        }
    }

    #[test]
    fn text_is_decoded() {
        let text = |json: &str| JsonCursor::new(json).text().unwrap().into_owned();
        assert_eq!(text(r#""plain é""#), "plain é");
        assert_eq!(text(r#""\u0069\ud83d\ude00\/\n""#), "i😀/\n");
        assert!(matches!(JsonCursor::new(r#""plain""#).text(), Ok(Cow::Borrowed("plain"))));
    }

    #[test]
    fn fields_come_in_any_order() {
        let known: &[&str] = &["a", "b", "c", "d"];
        for json in [r#"{"a":0,"b":1,"d":3}"#, r#"{"d":3,"b":1,"a":0}"#, r#"{"b":1,"c":2}"#] {
            let mut cursor = JsonCursor::new(json);
            let read = cursor.object(known, |name, cursor| {
                let number = cursor.number(String::new)?;
                assert_eq!(known[number.parse::<usize>().unwrap()], name);
                Ok(())
            });
            assert!(read.is_ok());
        }
    }
}

//! A walk over one JSON text: the next value is asked for as what it should be, and read in place.
//!
//! Nothing is built but what the caller keeps. Recursion follows the nesting of the text, which is bounded by
//! [`MAX_NESTING`], so that no text can exhaust the stack. Escapes in strings are decoded by `serde_json`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::read::fault::{Fault, printable};

/// How deep objects and lists may be nested in one line. The deepest policy tree
/// ([`MAX_DEPTH`](fairgate_core::policy::MAX_DEPTH) nodes with classes) needs four levels per node, 256 in all.
pub const MAX_NESTING: usize = 512;

/// A place in a JSON text.
pub(crate) struct Cursor<'a> {
    text: &'a str,
    offset: usize,
    nesting: usize,
}

/// What kind of value comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Object,
    List,
    Text,
    Number,
    Bool,
    Null,
}

impl<'a> Cursor<'a> {
    /// At the beginning of a text.
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, offset: 0, nesting: 0 }
    }

    /// The byte at which the next value begins.
    pub(crate) fn mark(&mut self) -> usize {
        self.skip_space();
        self.offset
    }

    /// The kind of the next value.
    pub(crate) fn kind(&mut self) -> Result<Kind, Fault> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::List),
            Some(b'"') => Ok(Kind::Text),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Bool),
            Some(b'n') => Ok(Kind::Null),
            _ => Err(self.expected("a value")),
        }
    }

    /// Reads text.
    pub(crate) fn text(&mut self) -> Result<Cow<'a, str>, Fault> {
        self.require(Kind::Text, "text")?;
        self.quoted()
    }

    /// Reads text that is one of a few names, and gives what it names.
    pub(crate) fn one_of<T: Copy, const N: usize>(
        &mut self,
        names: [(&'static str, T); N],
    ) -> Result<T, Fault> {
        let named = |text: &str| names.iter().find(|(name, _)| *name == text).map(|(_, it)| *it);
        self.text_of(named, || {
            let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            format!("one of {}", names.join(", "))
        })
    }

    /// Reads text that stands for something else, and gives that. `expected` is what the field wants, for the
    /// message where it stands for nothing.
    pub(crate) fn text_of<T>(
        &mut self,
        meaning: impl FnOnce(&str) -> Option<T>,
        expected: impl FnOnce() -> String,
    ) -> Result<T, Fault> {
        if self.kind()? == Kind::Text {
            let start = self.offset;
            if let Some(meant) = meaning(&self.quoted()?) {
                return Ok(meant);
            }
            self.offset = start;
        }
        Err(self.wrong(&expected()))
    }

    /// Reads `true` or `false`.
    pub(crate) fn bool(&mut self) -> Result<bool, Fault> {
        self.require(Kind::Bool, "true or false")?;
        let value = self.peek() == Some(b't');
        self.word(if value { "true" } else { "false" })?;
        Ok(value)
    }

    /// Reads a number and gives its text, which keeps to JSON's grammar. `expected` is what the field wants,
    /// for the message where something else than a number is there.
    pub(crate) fn number(&mut self, expected: impl Fn() -> String) -> Result<&'a str, Fault> {
        if self.kind()? != Kind::Number {
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

    /// Reads an object, calling `each` at every value with its field's name.
    pub(crate) fn map(
        &mut self,
        mut each: impl FnMut(&str, &mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.require(Kind::Object, "an object")?;
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

    /// Reads an object whose fields are called as its writer likes, each at most once.
    pub(crate) fn by_name<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, Fault>,
    ) -> Result<BTreeMap<Box<str>, T>, Fault> {
        let mut values = BTreeMap::new();
        self.map(|name, cursor| {
            let mark = cursor.mark();
            match values.insert(name.into(), read(cursor)?) {
                None => Ok(()),
                Some(_) => Err(Fault::new(mark, "given twice")),
            }
        })?;
        Ok(values)
    }

    /// Reads an object that may have these fields, at most 64, and no others, each at most once, in any order.
    pub(crate) fn object(
        &mut self,
        known: &'static [&'static str],
        each: impl FnMut(&'static str, &mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.record(known, 0, each)
    }

    /// Reads such an object. Earlier versions knew the fields in `removed`, each given with what to do instead.
    pub(crate) fn object_with_removed(
        &mut self,
        known: &'static [&'static str],
        removed: &[(&str, &str)],
        each: impl FnMut(&'static str, &mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.fields(known, 0, removed, each)
    }

    /// Reads such an object, of whose known fields the first `required` must be there.
    pub(crate) fn record(
        &mut self,
        known: &'static [&'static str],
        required: usize,
        each: impl FnMut(&'static str, &mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        self.fields(known, required, &[], each)
    }

    fn fields(
        &mut self,
        known: &'static [&'static str],
        required: usize,
        removed: &[(&str, &str)],
        mut each: impl FnMut(&'static str, &mut Self) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut seen = 0u64;
        let mut next = 0;
        self.map(|name, cursor| {
            let Some(i) = find(known, name, next) else {
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

    /// Reads a list, each element by `read`.
    pub(crate) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, Fault>,
    ) -> Result<Vec<T>, Fault> {
        self.require(Kind::List, "a list")?;
        let mut elements = Vec::new();
        self.sequence(b']', |cursor, i| {
            elements.push(read(cursor).map_err(|fault| fault.in_element(i))?);
            Ok(())
        })?;
        Ok(elements)
    }

    /// Reads a value, or `null` for none.
    pub(crate) fn nullable<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        match self.kind()? {
            Kind::Null => self.word("null").map(|()| None),
            _ => read(self).map(Some),
        }
    }

    /// Passes over the next value, whatever it is, checking that it is JSON.
    pub(crate) fn skip(&mut self) -> Result<(), Fault> {
        match self.kind()? {
            Kind::Object => self.map(|_, cursor| cursor.skip()),
            Kind::List => self.list(Self::skip).map(drop),
            Kind::Text => self.quoted().map(drop),
            Kind::Number => self.number(String::new).map(drop),
            Kind::Bool => self.bool().map(drop),
            Kind::Null => self.word("null"),
        }
    }

    /// Checks that nothing but space is left.
    pub(crate) fn end(&mut self) -> Result<(), Fault> {
        self.skip_space();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.malformed("expected nothing more")),
        }
    }

    /// A fault of the next value.
    pub(crate) fn fault(&mut self, message: impl Into<String>) -> Fault {
        Fault::new(self.mark(), message)
    }

    /// A field that the object just read should have had.
    pub(crate) fn missing(&self, name: &str) -> Fault {
        Fault::new(self.offset.saturating_sub(1), "is missing").in_field(name)
    }

    /// A fault of the next value: it is not what was expected.
    pub(crate) fn wrong(&mut self, expected: &str) -> Fault {
        let mark = self.mark();
        match self.describe() {
            Ok(found) => Fault::new(mark, format!("must be {expected}, not {found}")),
            Err(malformed) => malformed,
        }
    }

    fn describe(&mut self) -> Result<String, Fault> {
        Ok(match self.kind()? {
            Kind::Object => "an object".into(),
            Kind::List => "a list".into(),
            Kind::Text => format!("the text \"{}\"", printable(&self.quoted()?)),
            Kind::Number => printable(self.number(String::new)?),
            Kind::Bool => self.bool()?.to_string(),
            Kind::Null => self.word("null").map(|()| "null".into())?,
        })
    }

    fn require(&mut self, kind: Kind, expected: &str) -> Result<(), Fault> {
        match self.kind()? == kind {
            true => Ok(()),
            false => Err(self.wrong(expected)),
        }
    }

    /// Reads what stands between the bracket at the cursor and `close`, separated by commas.
    fn sequence(
        &mut self,
        close: u8,
        mut each: impl FnMut(&mut Self, usize) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
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

    /// Reads the string that begins at the cursor, borrowed where it has no escapes.
    fn quoted(&mut self) -> Result<Cow<'a, str>, Fault> {
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
                    return Err(Fault::malformed(end, "a control character in a string"));
                }
                Some(_) => end += 1,
                None => return Err(Fault::malformed(bytes.len(), "a string without an end")),
            }
        }
        self.offset = end + 1;
        if !escaped {
            return Ok(Cow::Borrowed(&self.text[start + 1..end]));
        }
        serde_json::from_str(&self.text[start..=end])
            .map(Cow::Owned)
            .map_err(|_| Fault::malformed(start, "a string with an escape that JSON has not"))
    }

    /// Passes over one digit or more.
    fn digits(&mut self) -> Result<(), Fault> {
        let digits = &self.text.as_bytes()[self.offset..];
        match digits.iter().take_while(|b| b.is_ascii_digit()).count() {
            0 => Err(self.expected("a digit")),
            n => {
                self.offset += n;
                Ok(())
            }
        }
    }

    fn word(&mut self, word: &str) -> Result<(), Fault> {
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

    /// Text that is no JSON: something else comes than `what`. Numbers that other writers have and JSON has not are
    /// called by their names.
    fn expected(&self, what: &str) -> Fault {
        let rest = &self.text[self.offset..];
        let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let word = &rest[..end];
        match ["nan", "inf", "infinity"].iter().any(|it| word.eq_ignore_ascii_case(it)) {
            true => self.malformed(format!("expected {what}: JSON has no {word}")),
            false => self.malformed(format!("expected {what}")),
        }
    }

    fn malformed(&self, message: impl Into<String>) -> Fault {
        Fault::malformed(self.offset, message)
    }
}

/// Finds a field's name among the known ones, from `next` on first: fields mostly come in the known order.
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

    /// What edits are made of: all that has a meaning in JSON, and a little that has none.
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
        let mut cursor = Cursor::new(text);
        cursor.skip().and_then(|()| cursor.end()).is_ok()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// The cursor takes as JSON just what `serde_json` does.
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
        let text = |json: &str| Cursor::new(json).text().unwrap().into_owned();
        assert_eq!(text(r#""plain é""#), "plain é");
        assert_eq!(text(r#""\u0069\ud83d\ude00\/\n""#), "i😀/\n");
        assert!(matches!(Cursor::new(r#""plain""#).text(), Ok(Cow::Borrowed("plain"))));
    }

    #[test]
    fn fields_come_in_any_order() {
        let known: &[&str] = &["a", "b", "c", "d"];
        for json in [r#"{"a":0,"b":1,"d":3}"#, r#"{"d":3,"b":1,"a":0}"#, r#"{"b":1,"c":2}"#] {
            let mut cursor = Cursor::new(json);
            let read = cursor.object(known, |name, cursor| {
                let number = cursor.number(String::new)?;
                assert_eq!(known[number.parse::<usize>().unwrap()], name);
                Ok(())
            });
            assert!(read.is_ok());
        }
    }
}

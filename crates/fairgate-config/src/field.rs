//! Fields being read: each knows its node, its path and whom to tell what is wrong. A reader that gives nothing has
//! said why; the others go on, so that one pass finds everything.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::environment::Environment;
use crate::error::{ConfigError, ConfigErrors, Place};
use crate::suggest::did_you_mean;
use crate::values::{
    digits, format_duration, format_size, format_thousandths, parse_duration, parse_size,
    parse_thousandths,
};
use crate::yaml::{Entry, Flaw, Node, Value, join};

/// What all fields of a file share.
pub(crate) struct Context<'a> {
    /// The folder of the file: where relative paths start.
    pub(crate) folder: &'a Path,
    pub(crate) environment: &'a dyn Environment,
    pub(crate) flaws: RefCell<Vec<Flaw>>,
    /// What is wrong in other files that this one names.
    pub(crate) elsewhere: RefCell<Vec<ConfigError>>,
}

/// A value and its path.
#[derive(Clone)]
pub(crate) struct Field<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) path: String,
    pub(crate) node: &'a Node,
    /// Where its name stands; the value itself where it has none.
    name_place: Place,
}

impl<'a> Field<'a> {
    /// The whole file.
    pub(crate) fn root(context: &'a Context<'a>, node: &'a Node) -> Self {
        Self { context, path: String::new(), node, name_place: node.place }
    }

    /// Says what is wrong with the value, and gives nothing.
    pub(crate) fn wrong<T>(&self, message: impl Into<String>) -> Option<T> {
        self.wrong_at(self.node.place, &self.path, message)
    }

    /// Says what is wrong at some place in the value.
    pub(crate) fn wrong_at<T>(
        &self,
        place: Place,
        field: &str,
        message: impl Into<String>,
    ) -> Option<T> {
        let flaw = Flaw { place, field: field.to_owned(), message: message.into() };
        self.context.flaws.borrow_mut().push(flaw);
        None
    }

    /// Says what is wrong at a path below the value, such as `[1].inside`.
    pub(crate) fn wrong_below<T>(&self, path: &str, message: String) -> Option<T> {
        let place = self.node.locate(path).unwrap_or(self.node.place);
        let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
        self.wrong_at(place, &format!("{}{dot}{path}", self.path), message)
    }

    /// Says what is wrong in a file that the value names. What another field said of that file is not repeated.
    pub(crate) fn wrong_elsewhere<T>(&self, errors: ConfigErrors) -> Option<T> {
        let mut elsewhere = self.context.elsewhere.borrow_mut();
        for error in errors.into_vec() {
            if !elsewhere.contains(&error) {
                elsewhere.push(error);
            }
        }
        None
    }

    pub(crate) fn expected<T>(&self, expected: impl Display) -> Option<T> {
        self.wrong(format!("must be {expected}, not {}", self.shown()))
    }

    /// The value as an error may repeat it.
    fn shown(&self) -> String {
        match &self.node.value {
            Value::Scalar { text, quoted: false } if text.chars().count() <= SHOWN => {
                text.escape_debug().to_string()
            }
            Value::Scalar { text, .. } => {
                let shown: String = text.chars().take(SHOWN).collect();
                let rest = if shown.len() < text.len() { "…" } else { "" };
                format!("the text {shown:?}{rest}")
            }
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a mapping".into(),
        }
    }

    /// A scalar that is not in quotes, so may be a number.
    pub(crate) fn plain(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Scalar { text, quoted: false } => Some(text),
            _ => None,
        }
    }

    /// Any scalar, without a word where there is none.
    pub(crate) fn scalar(&self) -> Option<&'a str> {
        match &self.node.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// A text that is not empty.
    pub(crate) fn text(self) -> Option<&'a str> {
        self.scalar().filter(|text| !text.is_empty()).or_else(|| self.expected("a text"))
    }

    pub(crate) fn boolean(self) -> Option<bool> {
        match self.plain() {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => self.expected("true or false"),
        }
    }

    pub(crate) fn integer<T>(self, range: RangeInclusive<T>) -> Option<T>
    where
        T: TryFrom<u64> + PartialOrd + Display,
    {
        let value = self.plain().and_then(digits).and_then(|value| T::try_from(value).ok());
        value.filter(|value| range.contains(value)).or_else(|| {
            self.expected(format_args!("an integer from {} to {}", range.start(), range.end()))
        })
    }

    /// A decimal of at most three places, as thousandths.
    pub(crate) fn thousandths(self, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.plain().and_then(parse_thousandths);
        value.filter(|value| range.contains(value)).or_else(|| {
            let [least, most] = [range.start(), range.end()].map(|end| format_thousandths(*end));
            self.expected(format_args!("a decimal from {least} to {most} of at most 3 places"))
        })
    }

    pub(crate) fn duration(self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let Some(value) = self.scalar().and_then(parse_duration) else {
            return self.expected("a duration such as 750ms, 30s, 5m or 1h");
        };
        match range.contains(&value) {
            true => Some(value),
            false => {
                let [least, most] = [range.start(), range.end()].map(|end| format_duration(*end));
                self.expected(format_args!("a duration from {least} to {most}"))
            }
        }
    }

    /// A size in bytes.
    pub(crate) fn size<T>(self, range: RangeInclusive<u64>) -> Option<T>
    where
        T: TryFrom<u64>,
    {
        let Some(value) = self.scalar().and_then(parse_size) else {
            return self.expected("a size such as 512B, 64KiB, 64MiB or 1GB");
        };
        match T::try_from(value) {
            Ok(size) if range.contains(&value) => Some(size),
            _ => {
                let [least, most] = [range.start(), range.end()].map(|end| format_size(*end));
                self.expected(format_args!("a size from {least} to {most}"))
            }
        }
    }

    pub(crate) fn one_of<T: Copy>(self, words: &[(&str, T)]) -> Option<T> {
        let text = self.scalar().unwrap_or_default();
        let found = words.iter().find(|(word, _)| *word == text);
        found.map(|(_, meaning)| *meaning).or_else(|| {
            let list = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
            let guess = did_you_mean(text, words.iter().map(|(word, _)| *word));
            self.expected(format_args!("one of {list}")).or_else(|| self.add(&guess))
        })
    }

    /// Adds to what was said last.
    fn add<T>(&self, more: &str) -> Option<T> {
        if let Some(flaw) = self.context.flaws.borrow_mut().last_mut() {
            flaw.message.push_str(more);
        }
        None
    }

    /// A path; where it is relative, it starts at the file's folder.
    pub(crate) fn path(self) -> Option<PathBuf> {
        let folder = self.context.folder;
        self.text().map(|text| folder.join(text))
    }

    /// The path of a file that is there.
    pub(crate) fn file(self) -> Option<PathBuf> {
        let path = self.clone().path()?;
        match path.is_file() {
            true => Some(path),
            false => self.wrong(format!("there is no file {:?}", path.display().to_string())),
        }
    }

    /// The elements of a list, at least one.
    pub(crate) fn list(self) -> Option<Vec<Self>> {
        let Value::List(nodes) = &self.node.value else { return self.expected("a list") };
        match nodes.is_empty() {
            true => self.wrong("must have at least one element"),
            false => Some(self.elements()),
        }
    }

    /// The elements of a list; none where it is none, without a word.
    pub(crate) fn elements(&self) -> Vec<Self> {
        let Value::List(nodes) = &self.node.value else { return Vec::new() };
        let element = |(i, node): (usize, &'a Node)| {
            let path = format!("{}[{i}]", self.path);
            Self { context: self.context, path, node, name_place: node.place }
        };
        nodes.iter().enumerate().map(element).collect()
    }

    /// The fields of a mapping, whatever their names.
    pub(crate) fn entries(&self) -> Option<Vec<(&'a Entry, Self)>> {
        let Value::Map(entries) = &self.node.value else { return None };
        let field = |entry: &'a Entry| {
            let path = join(&self.path, &entry.name);
            let Entry { node, place, .. } = entry;
            (entry, Self { context: self.context, path, node, name_place: *place })
        };
        Some(entries.iter().map(field).collect())
    }

    /// The fields of a mapping that may have these; says so of all others.
    pub(crate) fn section(self, known: &'static [&'static str]) -> Option<Section<'a>> {
        let Some(entries) = self.entries() else {
            // Not what stands there: it may be a secret in the wrong place.
            return self.wrong(format!("must be a mapping with {}", known.join(", ")));
        };
        for (Entry { name, place, .. }, field) in &entries {
            if known.contains(&&**name) {
                continue;
            }
            let message = match &**name {
                "<<" => {
                    "merging is not supported: repeat the fields, or alias a whole value".into()
                }
                _ => {
                    let guess = did_you_mean(name, known.iter().copied());
                    let next = if guess.is_empty() { ";" } else { "" };
                    format!("unknown{guess}{next} known here: {}", known.join(", "))
                }
            };
            self.wrong_at::<()>(*place, &field.path, message);
        }
        Some(Section { field: self, known, entries })
    }
}

/// The most characters of a value that a message repeats.
const SHOWN: usize = 60;

/// A mapping whose fields are known by name.
pub(crate) struct Section<'a> {
    pub(crate) field: Field<'a>,
    known: &'static [&'static str],
    entries: Vec<(&'a Entry, Field<'a>)>,
}

impl<'a> Section<'a> {
    fn find(&self, name: &str) -> Option<&Field<'a>> {
        debug_assert!(self.known.contains(&name), "{name} is listed as known");
        self.entries.iter().find(|(entry, _)| entry.name == name).map(|(_, field)| field)
    }

    /// Whether there is such a field, whatever is in it.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// A field that may be absent.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(Field<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        let Some(field) = self.find(name) else { return Some(None) };
        if field.node.is_null() {
            let message =
                "has no value: give one ({} for a section with its defaults), or remove it";
            return field.wrong_at(field.name_place, &field.path, message);
        }
        read(field.clone()).map(Some)
    }

    /// A field that may be absent, which is also said by `null`.
    pub(crate) fn nullable<T>(
        &self,
        name: &str,
        read: impl FnOnce(Field<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.stated(name) {
            None => Some(None),
            Some(field) => read(field).map(Some),
        }
    }

    /// A field with something in it, whatever that is.
    pub(crate) fn stated(&self, name: &str) -> Option<Field<'a>> {
        self.find(name).filter(|field| !field.node.is_null()).cloned()
    }

    /// A field with a default.
    pub(crate) fn or<T>(
        &self,
        name: &str,
        default: T,
        read: impl FnOnce(Field<'a>) -> Option<T>,
    ) -> Option<T> {
        self.optional(name, read).map(|value| value.unwrap_or(default))
    }

    /// A field that must be there; `what` says what it is.
    pub(crate) fn required<T>(
        &self,
        name: &str,
        what: &str,
        read: impl FnOnce(Field<'a>) -> Option<T>,
    ) -> Option<T> {
        self.optional(name, read)?.or_else(|| self.missing(name, what))
    }

    /// Says that a field is missing.
    pub(crate) fn missing<T>(&self, name: &str, what: &str) -> Option<T> {
        let Field { name_place, path, .. } = &self.field;
        self.field.wrong_at(*name_place, &join(path, name), format!("is missing: {what}"))
    }
}

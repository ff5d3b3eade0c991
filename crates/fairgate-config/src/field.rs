//! Fields of a file while the file is read. A field knows its node, its path and the list that collects errors. A
//! method that reads a value and returns `None` has recorded an error. Other fields are still read after an error, so
//! that one pass finds all errors.

use std::cell::RefCell;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::environment::Environment;
use crate::error::{ConfigError, ConfigErrors, FilePosition};
use crate::suggest::did_you_mean;
use crate::values::{
    digits, format_duration, format_size, format_thousandths, parse_duration, parse_size,
    parse_thousandths,
};
use crate::yaml::{FieldError, YamlEntry, YamlNode, YamlValue, join};

/// State shared by all fields of a file.
pub(crate) struct ConfigReadContext<'a> {
    /// Folder of the file, from which relative paths start.
    pub(crate) folder: &'a Path,
    /// Path of the file, as errors show it.
    pub(crate) file: &'a Path,
    pub(crate) environment: &'a dyn Environment,
    pub(crate) flaws: RefCell<Vec<FieldError>>,
    /// Errors in other files that this file names.
    pub(crate) other_files: RefCell<Vec<ConfigError>>,
}

/// A value and its path in the file.
#[derive(Clone)]
pub(crate) struct ConfigField<'a> {
    pub(crate) context: &'a ConfigReadContext<'a>,
    pub(crate) path: String,
    pub(crate) node: &'a YamlNode,
    /// Position of the field's name, or of the value if the field has no name.
    name_place: FilePosition,
}

impl<'a> ConfigField<'a> {
    /// Returns the field for the whole file.
    pub(crate) fn root(context: &'a ConfigReadContext<'a>, node: &'a YamlNode) -> Self {
        Self { context, path: String::new(), node, name_place: node.place }
    }

    /// Returns a field with the path of this one and another value.
    pub(crate) fn with_value<'b>(self, node: &'b YamlNode) -> ConfigField<'b>
    where
        'a: 'b,
    {
        ConfigField { node, ..self }
    }

    /// Records an error at the value. Always returns `None`.
    pub(crate) fn wrong<T>(&self, message: impl Into<String>) -> Option<T> {
        self.wrong_at(self.node.place, &self.path, message)
    }

    /// Records an error at a given position and path. Always returns `None`.
    pub(crate) fn wrong_at<T>(
        &self,
        place: FilePosition,
        field: &str,
        message: impl Into<String>,
    ) -> Option<T> {
        let flaw = FieldError { place, field: field.to_owned(), message: message.into() };
        self.context.flaws.borrow_mut().push(flaw);
        None
    }

    /// Records an error at a path below the value, such as `[1].inside`. Always returns `None`.
    pub(crate) fn wrong_below<T>(&self, path: &str, message: String) -> Option<T> {
        let place = self.node.locate(path).unwrap_or(self.node.place);
        let dot = if path.is_empty() || path.starts_with('[') { "" } else { "." };
        self.wrong_at(place, &format!("{}{dot}{path}", self.path), message)
    }

    /// Records the errors of another file, which the value names. Each error is recorded only once. Always returns
    /// `None`.
    pub(crate) fn wrong_in_other_file<T>(&self, errors: ConfigErrors) -> Option<T> {
        let mut elsewhere = self.context.other_files.borrow_mut();
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

    /// Returns the value in the form in which an error message shows it, cut to [`SHOWN`] characters.
    fn shown(&self) -> String {
        match &self.node.value {
            YamlValue::Scalar { text, quoted: false } if text.chars().count() <= SHOWN => {
                text.escape_debug().to_string()
            }
            YamlValue::Scalar { text, .. } => {
                let shown: String = text.chars().take(SHOWN).collect();
                let rest = if shown.len() < text.len() { "…" } else { "" };
                format!("the text {shown:?}{rest}")
            }
            YamlValue::List(_) => "a list".into(),
            YamlValue::Map(_) => "a mapping".into(),
        }
    }

    /// Returns the text of an unquoted scalar, which may be a number. Returns `None` for any other value, and records
    /// no error.
    pub(crate) fn plain(&self) -> Option<&'a str> {
        match &self.node.value {
            YamlValue::Scalar { text, quoted: false } => Some(text),
            _ => None,
        }
    }

    /// Returns the text of a scalar, quoted or not. Returns `None` for any other value, and records no error.
    pub(crate) fn scalar(&self) -> Option<&'a str> {
        match &self.node.value {
            YamlValue::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// Reads a non-empty text.
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

    /// Reads a decimal of at most three places, and returns it in thousandths.
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

    /// Reads a size with a unit, such as `64MiB`, and returns it in bytes.
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

    /// Appends text to the last recorded error. Always returns `None`.
    fn add<T>(&self, more: &str) -> Option<T> {
        if let Some(flaw) = self.context.flaws.borrow_mut().last_mut() {
            flaw.message.push_str(more);
        }
        None
    }

    /// Reads a path. A relative path starts at the folder of the file.
    pub(crate) fn path(self) -> Option<PathBuf> {
        let folder = self.context.folder;
        self.text().map(|text| folder.join(text))
    }

    /// Reads the path of an existing file.
    pub(crate) fn file(self) -> Option<PathBuf> {
        let path = self.clone().path()?;
        match path.is_file() {
            true => Some(path),
            false => self.wrong(format!("there is no file {:?}", path.display().to_string())),
        }
    }

    /// Reads a list and returns its elements; an empty list is an error.
    pub(crate) fn list(self) -> Option<Vec<Self>> {
        let YamlValue::List(nodes) = &self.node.value else { return self.expected("a list") };
        match nodes.is_empty() {
            true => self.wrong("must have at least one element"),
            false => Some(self.elements()),
        }
    }

    /// Reads a list and returns its elements. The list may be empty.
    pub(crate) fn list_or_empty(self) -> Option<Vec<Self>> {
        match &self.node.value {
            YamlValue::List(_) => Some(self.elements()),
            _ => self.expected("a list"),
        }
    }

    /// Returns the elements of a list. Returns an empty list for any other value, and records no error.
    pub(crate) fn elements(&self) -> Vec<Self> {
        let YamlValue::List(nodes) = &self.node.value else { return Vec::new() };
        let element = |(i, node): (usize, &'a YamlNode)| {
            let path = format!("{}[{i}]", self.path);
            Self { context: self.context, path, node, name_place: node.place }
        };
        nodes.iter().enumerate().map(element).collect()
    }

    /// Returns all fields of a mapping, also those with unknown names. Returns `None` for any other value, and records
    /// no error.
    pub(crate) fn entries(&self) -> Option<Vec<(&'a YamlEntry, Self)>> {
        let YamlValue::Map(entries) = &self.node.value else { return None };
        let field = |entry: &'a YamlEntry| {
            let path = join(&self.path, &entry.name);
            let YamlEntry { node, place, .. } = entry;
            (entry, Self { context: self.context, path, node, name_place: *place })
        };
        Some(entries.iter().map(field).collect())
    }

    /// Returns the mapping as a section. Records an error for each field whose name is not in `known`.
    pub(crate) fn section(self, known: &'static [&'static str]) -> Option<ConfigSection<'a>> {
        self.section_without(known, &[])
    }

    /// Returns the mapping as a section. Records an error for each field whose name is not in `known`. `unsupported`
    /// has pairs of a name and the error message for a field of that name.
    pub(crate) fn section_without(
        self,
        known: &'static [&'static str],
        unsupported: &[(&str, &str)],
    ) -> Option<ConfigSection<'a>> {
        let Some(entries) = self.entries() else {
            // The message does not repeat the value, which may be a secret in the wrong place.
            return self.wrong(format!("must be a mapping with {}", known.join(", ")));
        };
        let unknown = |(entry, _): &&(&YamlEntry, Self)| !known.contains(&&*entry.name);
        let mut left = entries.iter().filter(unknown).count();
        for (YamlEntry { name, place, .. }, field) in
            entries.iter().filter(unknown).take(UNKNOWN_MAX)
        {
            left -= 1;
            let why = unsupported.iter().find(|(other, _)| other == name);
            let message = match (&**name, why) {
                (_, Some((_, why))) => (*why).into(),
                ("<<", None) => {
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
        if left > 0 {
            self.wrong::<()>(format!("{left} more fields are unknown"));
        }
        Some(ConfigSection { field: self, known, entries })
    }
}

/// The most unknown fields of one mapping that are reported one by one. Further ones are only counted.
const UNKNOWN_MAX: usize = 20;

/// The most characters of a value that an error message repeats.
const SHOWN: usize = 60;

/// A mapping with a fixed set of field names.
pub(crate) struct ConfigSection<'a> {
    pub(crate) field: ConfigField<'a>,
    known: &'static [&'static str],
    entries: Vec<(&'a YamlEntry, ConfigField<'a>)>,
}

impl<'a> ConfigSection<'a> {
    fn find(&self, name: &str) -> Option<&ConfigField<'a>> {
        debug_assert!(self.known.contains(&name), "{name} is listed as known");
        self.entries.iter().find(|(entry, _)| entry.name == name).map(|(_, field)| field)
    }

    /// Returns true if the field is present, even if its value is null.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Reads a field that may be absent. A null value is an error.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(ConfigField<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        let Some(field) = self.find(name) else { return Some(None) };
        if field.node.is_null() {
            let message =
                "has no value: give one ({} for a section with its defaults), or remove it";
            return field.wrong_at(field.name_place, &field.path, message);
        }
        read(field.clone()).map(Some)
    }

    /// Reads a field that may be absent or null.
    pub(crate) fn nullable<T>(
        &self,
        name: &str,
        read: impl FnOnce(ConfigField<'a>) -> Option<T>,
    ) -> Option<Option<T>> {
        match self.stated(name) {
            None => Some(None),
            Some(field) => read(field).map(Some),
        }
    }

    /// Returns a field that is present and not null.
    pub(crate) fn stated(&self, name: &str) -> Option<ConfigField<'a>> {
        self.find(name).filter(|field| !field.node.is_null()).cloned()
    }

    /// Reads a field, or returns the default if it is absent.
    pub(crate) fn or<T>(
        &self,
        name: &str,
        default: T,
        read: impl FnOnce(ConfigField<'a>) -> Option<T>,
    ) -> Option<T> {
        self.optional(name, read).map(|value| value.unwrap_or(default))
    }

    /// Reads a field that must be present. `what` describes it in the error message.
    pub(crate) fn required<T>(
        &self,
        name: &str,
        what: &str,
        read: impl FnOnce(ConfigField<'a>) -> Option<T>,
    ) -> Option<T> {
        self.optional(name, read)?.or_else(|| self.missing(name, what))
    }

    /// Records the error that a field is missing. Always returns `None`.
    pub(crate) fn missing<T>(&self, name: &str, what: &str) -> Option<T> {
        let ConfigField { name_place, path, .. } = &self.field;
        self.field.wrong_at(*name_place, &join(path, name), format!("is missing: {what}"))
    }
}

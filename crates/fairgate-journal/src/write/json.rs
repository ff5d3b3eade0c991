//! A writer that builds JSON text.

use std::fmt::{self, Display, Write};

/// The layout in which JSON text is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JsonLayout {
    /// The whole text is on one line, without spaces.
    #[default]
    Compact,
    /// The text is indented, with one value per line.
    Pretty,
}

/// A JSON text that is built from its beginning to its end. Commas are added automatically.
#[derive(Debug, Default)]
pub(crate) struct JsonWriter {
    text: String,
    layout: JsonLayout,
    /// Number of objects and lists that are open at the end of the text so far.
    depth: usize,
}

impl JsonWriter {
    /// Creates an empty text.
    pub(crate) fn new(layout: JsonLayout) -> Self {
        Self { layout, ..Self::default() }
    }

    /// Returns the text written so far.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the whole text.
    pub(crate) fn into_string(self) -> String {
        self.text
    }

    /// Empties the text but keeps its memory for reuse.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
    }

    /// Appends the end of a line.
    pub(crate) fn end_line(&mut self) {
        self.text.push('\n');
    }

    /// Begins an object or a list as the next value.
    pub(crate) fn open(&mut self, bracket: char) {
        self.text.push(bracket);
        self.depth += 1;
    }

    /// Ends the innermost open object or list.
    pub(crate) fn close(&mut self, bracket: char) {
        self.depth -= 1;
        if !self.text.ends_with(['{', '[']) {
            self.indent();
        }
        self.text.push(bracket);
    }

    /// Begins an element of a list.
    pub(crate) fn element(&mut self) -> &mut Self {
        self.comma();
        self
    }

    /// Writes an object as the next value.
    pub(crate) fn object(&mut self, fields: impl FnOnce(&mut Self)) {
        self.open('{');
        fields(self);
        self.close('}');
    }

    /// Writes a list as the next value. Calls `element` to write each element.
    pub(crate) fn list<T>(
        &mut self,
        elements: impl IntoIterator<Item = T>,
        mut element: impl FnMut(&mut Self, T),
    ) {
        self.open('[');
        for each in elements {
            element(self.element(), each);
        }
        self.close(']');
    }

    /// Writes text as the next value.
    pub(crate) fn text(&mut self, text: &str) {
        self.text.push('"');
        let mut rest = text;
        while let Some(i) = rest.bytes().position(|b| matches!(b, b'"' | b'\\' | 0..0x20)) {
            self.text.push_str(&rest[..i]);
            match rest.as_bytes()[i] {
                byte @ (b'"' | b'\\') => self.text.extend(['\\', char::from(byte)]),
                control => self.display(format_args!("\\u{control:04x}")),
            }
            rest = &rest[i + 1..];
        }
        self.text.push_str(rest);
        self.text.push('"');
    }

    /// Writes the name of a field, whose value comes next.
    pub(crate) fn name(&mut self, name: &str) -> &mut Self {
        self.comma();
        self.text(name);
        self.text.push_str(match self.layout {
            JsonLayout::Compact => ":",
            JsonLayout::Pretty => ": ",
        });
        self
    }

    /// Writes a field whose value is text.
    pub(crate) fn text_field(&mut self, name: &str, value: &str) {
        self.name(name).text(value);
    }

    /// Writes a field whose value is a number, `true` or `false`.
    pub(crate) fn field(&mut self, name: &str, value: impl Display) {
        self.name(name).display(value);
    }

    /// Writes a field whose value is a number, `true` or `false`; writes nothing for `None`.
    pub(crate) fn optional(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    /// Writes a value with `write` as the next value, or `null` for `None`.
    pub(crate) fn or_null<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.display("null"),
        }
    }

    /// Writes a field with an integer that may be too large for many readers of JSON. Its digits are always written as
    /// text.
    pub(crate) fn wide_field(&mut self, name: &str, value: impl Display) {
        self.name(name).wide(value);
    }

    /// Writes an integer as text, as the next value, because it may be too large for many readers of JSON.
    pub(crate) fn wide(&mut self, value: impl Display) {
        self.display(format_args!("\"{value}\""));
    }

    /// Writes a field whose value is a list of texts.
    pub(crate) fn texts(&mut self, name: &str, values: &[Box<str>]) {
        self.name(name).list(values, |json, value| json.text(value));
    }

    /// Writes a number, `true` or `false` as the next value.
    pub(crate) fn display(&mut self, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{value}");
    }

    fn comma(&mut self) {
        if !self.text.ends_with(['{', '[']) {
            self.text.push(',');
        }
        self.indent();
    }

    fn indent(&mut self) {
        if self.layout == JsonLayout::Pretty {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n("  ", self.depth));
        }
    }
}

/// A decimal, stored as an integer number of units. `scale`, a power of ten, is the number of units in 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JsonDecimal {
    pub(crate) units: u32,
    pub(crate) scale: u32,
}

impl Display for JsonDecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.units / self.scale)?;
        let mut rest = self.units % self.scale;
        let mut unit = self.scale / 10;
        loop {
            write!(f, "{}", rest / unit)?;
            rest %= unit;
            if rest == 0 {
                return Ok(());
            }
            unit /= 10;
        }
    }
}

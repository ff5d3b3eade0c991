//! JSON as it is being written.

use std::fmt::{self, Display, Write};

/// How JSON is laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// On one line.
    #[default]
    Compact,
    /// Indented.
    Pretty,
}

/// One JSON text, built from its beginning. Commas come by themselves.
#[derive(Debug, Default)]
pub(crate) struct Json {
    text: String,
    layout: Layout,
    /// How many objects and lists are open.
    depth: usize,
}

impl Json {
    /// A text that is still empty.
    pub(crate) fn new(layout: Layout) -> Self {
        Self { layout, ..Self::default() }
    }

    /// What was written so far.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// All that was written.
    pub(crate) fn into_string(self) -> String {
        self.text
    }

    /// Starts anew, in the same memory.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
    }

    /// Ends the line.
    pub(crate) fn end_line(&mut self) {
        self.text.push('\n');
    }

    /// Begins an object or a list as the next value.
    pub(crate) fn open(&mut self, bracket: char) {
        self.text.push(bracket);
        self.depth += 1;
    }

    /// Ends it.
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

    /// Writes a list as the next value, by `element` for each.
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
            Layout::Compact => ":",
            Layout::Pretty => ": ",
        });
        self
    }

    /// Writes a field that is text.
    pub(crate) fn text_field(&mut self, name: &str, value: &str) {
        self.name(name).text(value);
    }

    /// Writes a field that is a number, `true` or `false`.
    pub(crate) fn field(&mut self, name: &str, value: impl Display) {
        self.name(name).display(value);
    }

    /// Writes such a field where it has a value.
    pub(crate) fn optional(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    /// Writes the next value where there is one, else `null`.
    pub(crate) fn or_null<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        match value {
            Some(value) => write(self, value),
            None => self.display("null"),
        }
    }

    /// Writes a field that is an integer too large for many readers of JSON, or that may become so: its digits,
    /// as text.
    pub(crate) fn wide_field(&mut self, name: &str, value: impl Display) {
        self.name(name).wide(value);
    }

    /// Writes such an integer as the next value.
    pub(crate) fn wide(&mut self, value: impl Display) {
        self.display(format_args!("\"{value}\""));
    }

    /// Writes a field that is a list of text.
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
        if self.layout == Layout::Pretty {
            self.text.push('\n');
            self.text.extend(std::iter::repeat_n("  ", self.depth));
        }
    }
}

/// A decimal kept as a whole number of units, `scale` (a power of ten) of them in 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decimal {
    pub(crate) units: u32,
    pub(crate) scale: u32,
}

impl Display for Decimal {
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

//! What is wrong inside one text, before anybody has said which line of which file it is.

use std::fmt::Display;

/// A field that cannot be accepted, or text that is no JSON. It is made where the fault is found, without a
/// path; each object and list on the way out puts its own step in front ([`Fault::in_field`],
/// [`Fault::in_element`]), so that reading what is right costs nothing for paths.
#[derive(Debug)]
pub(crate) struct Fault(Box<Parts>);

#[derive(Debug)]
struct Parts {
    /// The field so far, from the innermost object that was left: `share.weights.chat`.
    path: String,
    message: String,
    /// The byte of the text at which it was found.
    offset: usize,
    malformed: bool,
}

/// The most characters of a name or a value that a message repeats.
const SHOWN_CHARS: usize = 60;

impl Fault {
    /// A value that cannot be accepted.
    pub(crate) fn new(offset: usize, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Parts { path: String::new(), message, offset, malformed: false }))
    }

    /// Text that is no JSON.
    pub(crate) fn malformed(offset: usize, message: impl Into<String>) -> Self {
        let mut fault = Self::new(offset, message);
        fault.0.malformed = true;
        fault
    }

    /// The same fault, seen from the object that has it in this field.
    pub(crate) fn in_field(self, name: &str) -> Self {
        self.in_step(&printable(name))
    }

    /// The same fault, seen from the list that has it in this element.
    pub(crate) fn in_element(self, index: usize) -> Self {
        self.in_step(&format!("[{index}]"))
    }

    /// The same fault, seen from above a whole path, which is taken as it is.
    pub(crate) fn in_step(mut self, step: &str) -> Self {
        let path = &mut self.0.path;
        if !path.is_empty() && !path.starts_with('[') {
            path.insert(0, '.');
        }
        path.insert_str(0, step);
        self
    }

    /// How many lines of `text` come before the fault, and its column in bytes, counted from 1.
    pub(crate) fn position(&self, text: &str) -> (u64, usize) {
        let before = &text.as_bytes()[..self.0.offset.min(text.len())];
        let lines = before.iter().filter(|&&b| b == b'\n').count();
        let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        (lines as u64, before.len() - line_start + 1)
    }

    /// The field's path, empty where there is none, and the message. `place` is where text that is no JSON breaks.
    pub(crate) fn into_parts(self, place: impl Display) -> (String, String) {
        let Parts { path, message, malformed, .. } = *self.0;
        let message = match malformed {
            true => format!("malformed JSON at {place}: {message}"),
            false => message,
        };
        (path, message)
    }
}

/// Text as a message may show it: no control characters, no quotes left open, not too long.
pub(crate) fn printable(text: &str) -> String {
    shortened(text, SHOWN_CHARS)
}

/// A path with many names in it, as a message may show it.
pub(crate) fn printable_path(path: &str) -> String {
    shortened(path, 20 * SHOWN_CHARS)
}

fn shortened(text: &str, most_chars: usize) -> String {
    let mut shown: String = text.chars().take(most_chars).flat_map(char::escape_debug).collect();
    if text.chars().nth(most_chars).is_some() {
        shown.push('…');
    }
    shown
}

//! Faults in one text, created before the line number and the file are known.

use std::fmt::Display;

/// A field that cannot be accepted, or text that is not JSON. A fault is created without a path. Each object and list
/// that contains the fault then prepends its own step ([`JournalTextError::in_field`], [`JournalTextError::in_element`]), so
/// that reading valid text spends no time on paths.
#[derive(Debug)]
pub(crate) struct JournalTextError(Box<JournalTextErrorParts>);

#[derive(Debug)]
struct JournalTextErrorParts {
    /// The path of the field so far, such as `share.weights.chat`. It begins at the object or list that added the last
    /// step.
    path: String,
    message: String,
    /// The offset in bytes into the text at which the fault was found.
    offset: usize,
    malformed: bool,
}

/// Greatest number of characters of a name or a value that a message repeats.
const SHOWN_CHARS: usize = 60;

impl JournalTextError {
    /// Creates a fault for a value that cannot be accepted.
    pub(crate) fn new(offset: usize, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(JournalTextErrorParts {
            path: String::new(),
            message,
            offset,
            malformed: false,
        }))
    }

    /// Creates a fault for text that is not JSON.
    pub(crate) fn malformed(offset: usize, message: impl Into<String>) -> Self {
        let mut fault = Self::new(offset, message);
        fault.0.malformed = true;
        fault
    }

    /// Prepends to the path the name of the field that contains the fault.
    pub(crate) fn in_field(self, name: &str) -> Self {
        self.in_step(&printable(name))
    }

    /// Prepends to the path the index of the list element that contains the fault.
    pub(crate) fn in_element(self, index: usize) -> Self {
        self.in_step(&format!("[{index}]"))
    }

    /// Prepends a step to the path without escaping it.
    pub(crate) fn in_step(mut self, step: &str) -> Self {
        let path = &mut self.0.path;
        if !path.is_empty() && !path.starts_with('[') {
            path.insert(0, '.');
        }
        path.insert_str(0, step);
        self
    }

    /// Returns the number of lines of `text` before the fault, and the fault's column in bytes, counted from 1.
    pub(crate) fn position(&self, text: &str) -> (u64, usize) {
        let before = &text.as_bytes()[..self.0.offset.min(text.len())];
        let lines = before.iter().filter(|&&b| b == b'\n').count();
        let line_start = before.iter().rposition(|&b| b == b'\n').map_or(0, |i| i + 1);
        (lines as u64, before.len() - line_start + 1)
    }

    /// Returns the path of the field, which is empty if there is none, and the message. `place` describes the position
    /// of the fault if the text is not JSON.
    pub(crate) fn into_parts(self, place: impl Display) -> (String, String) {
        let JournalTextErrorParts { path, message, malformed, .. } = *self.0;
        let message = match malformed {
            true => format!("malformed JSON at {place}: {message}"),
            false => message,
        };
        (path, message)
    }
}

/// Shortens and escapes text for a message, so that it has no control characters and no unescaped quotes.
pub(crate) fn printable(text: &str) -> String {
    shortened(text, SHOWN_CHARS)
}

/// Shortens and escapes a path with many names for a message.
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

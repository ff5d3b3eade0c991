//! The errors that can occur when a journal is read.

use std::io;

use crate::journal_text_error::JournalTextError;

/// Error that ended the reading of a journal, with the line, the field and the reason. It displays as `line 7: field
/// "policy.share.weights.chat": must be an integer of 1 or more, not 0`.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The line could not be read from the input; `source` has the reason.
    #[error("line {line}: cannot be read")]
    Io {
        /// The line that was being read, counted from 1.
        line: u64,
        /// Error of the input from which the line was read.
        source: io::Error,
    },
    /// The line was read, but is not a valid line of a journal.
    #[error("line {line}: {}{message}", shown(field.as_deref()))]
    Bad {
        /// Number of the bad line, counted from 1.
        line: u64,
        /// The full path of the bad field, such as `pool.workers[2].name`; `None` if the line as a whole is bad.
        field: Option<String>,
        /// The rule that the field or line breaks.
        message: String,
    },
}

fn shown(field: Option<&str>) -> String {
    field.map(|f| format!("field \"{f}\": ")).unwrap_or_default()
}

impl JournalError {
    /// Returns the number of the line that the error concerns, counted from 1.
    pub fn line(&self) -> u64 {
        match self {
            Self::Io { line, .. } | Self::Bad { line, .. } => *line,
        }
    }

    /// Returns the full path of the field that is bad; `None` if the error concerns a whole line.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Io { .. } => None,
            Self::Bad { field, .. } => field.as_deref(),
        }
    }

    /// Creates an error about a whole line.
    pub(crate) fn bad(line: u64, message: impl Into<String>) -> Self {
        Self::Bad { line, field: None, message: message.into() }
    }

    /// Creates an error from a fault in `text`. The first line of `text` is line `first_line` of the journal.
    pub(crate) fn from_fault(fault: JournalTextError, text: &str, first_line: u64) -> Self {
        let (line_offset, column) = fault.position(text);
        let (path, message) = fault.into_parts(format_args!("column {column}"));
        let field = (!path.is_empty()).then_some(path);
        Self::Bad { line: first_line + line_offset, field, message }
    }
}

//! What can go wrong with a journal.

use std::io;

use crate::read::fault::Fault;

/// A journal could not be read on: where, and why. It displays as
/// `line 7: field "policy.share.weights.chat": must be an integer of 1 or more, not 0`.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The line could not be read at all; the source says why.
    #[error("line {line}: cannot be read")]
    Io {
        /// The line that was being read, counted from 1.
        line: u64,
        /// What the reader underneath said.
        source: io::Error,
    },
    /// The line was read, and is not what a journal may hold.
    #[error("line {line}: {}{message}", shown(field.as_deref()))]
    Bad {
        /// The line, counted from 1.
        line: u64,
        /// The field's full path, such as `pool.workers[2].name`; none where the line as a whole is bad.
        field: Option<String>,
        /// What is wrong with it.
        message: String,
    },
}

fn shown(field: Option<&str>) -> String {
    field.map(|f| format!("field \"{f}\": ")).unwrap_or_default()
}

impl JournalError {
    /// The line it happened on, counted from 1.
    pub fn line(&self) -> u64 {
        match self {
            Self::Io { line, .. } | Self::Bad { line, .. } => *line,
        }
    }

    /// The full path of the field it is about, where it is about one.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Io { .. } => None,
            Self::Bad { field, .. } => field.as_deref(),
        }
    }

    /// A line that is bad as a whole.
    pub(crate) fn bad(line: u64, message: impl Into<String>) -> Self {
        Self::Bad { line, field: None, message: message.into() }
    }

    /// A fault in `text`, which begins on line `first_line`.
    pub(crate) fn from_fault(fault: Fault, text: &str, first_line: u64) -> Self {
        let (line_offset, column) = fault.position(text);
        let (path, message) = fault.into_parts(format_args!("column {column}"));
        let field = (!path.is_empty()).then_some(path);
        Self::Bad { line: first_line + line_offset, field, message }
    }
}

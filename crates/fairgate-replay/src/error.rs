//! The errors of a replay.

use std::io;

use fairgate_config::ConfigErrors;
use fairgate_core::TimeWentBackError;
use fairgate_journal::JournalError;

/// Error of a replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A file or folder cannot be read.
    #[error("{name}")]
    Input {
        /// Name of the file, as the caller gave it.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
    /// A line of a journal is wrong.
    #[error("{name}")]
    Journal {
        /// Name of the file, as the caller gave it.
        name: String,
        /// Error with the line, the field and the reason.
        source: JournalError,
    },
    /// A policy node of a what-if is wrong.
    #[error("{name}")]
    Policy {
        /// Name of the policy's file, or `policy`.
        name: String,
        /// Error with the line, the field and the reason.
        source: JournalError,
    },
    /// A policy file of a what-if is wrong.
    #[error(transparent)]
    PolicyFile(ConfigErrors),
    /// A policy file cannot be applied to a journal.
    #[error("{name}: {problem}")]
    UnusablePolicy {
        /// Name of the policy's file, or `policy`.
        name: String,
        /// Description of the problem, with advice.
        problem: String,
    },
    /// A weight of a what-if is wrong.
    #[error("{0}")]
    Weight(String),
    /// An event came before an earlier one.
    #[error(transparent)]
    Time(#[from] TimeWentBackError),
    /// The output cannot be written.
    #[error("standard output")]
    Output(#[source] io::Error),
    /// The folder has no journal file.
    #[error("{folder}: there is no journal file in this folder")]
    NoFiles {
        /// Name of the folder.
        folder: String,
    },
    /// A time of day was given, and the journal has none.
    #[error(
        "{name}: its first line states no time of day (clock), so since and until cannot be used"
    )]
    NoClock {
        /// Name of the file.
        name: String,
    },
    /// The time range begins before the oldest file.
    #[error("{folder}: the journal begins at {oldest}; choose since from then on")]
    NotKept {
        /// Name of the folder.
        folder: String,
        /// Beginning of the oldest file, RFC 3339 in UTC.
        oldest: String,
    },
    /// The time range is empty, or is after the end of the journal.
    #[error("{name}: there is no line between since and until")]
    EmptyRange {
        /// Name of the file or folder.
        name: String,
    },
    /// Events are missing within the time range.
    #[error(
        "{folder}: the journal was interrupted before {resumed}; choose since from then on, or until before it"
    )]
    Interrupted {
        /// Name of the folder.
        folder: String,
        /// Time at which the journal continued, RFC 3339 in UTC.
        resumed: String,
    },
    /// The time range has more lines than the caller allows.
    #[error(
        "the time range has more than {lines_max} lines, of which this reads {reached} until {until}; choose a shorter one"
    )]
    TooLong {
        /// Greatest number of lines.
        lines_max: u64,
        /// Number of lines that were read.
        reached: u64,
        /// Time of the last line that was read, RFC 3339 in UTC or microseconds of the journal.
        until: String,
    },
}

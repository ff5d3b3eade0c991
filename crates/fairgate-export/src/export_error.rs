//! Errors of an export.

use fairgate_store::StoreError;

/// Longest text of ClickHouse that an error repeats, in characters.
const TEXT_MAX: usize = 300;

/// Reason why rows could not be exported or compared. Such an error never affects a request.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The ledger could not be read.
    #[error("the ledger cannot be read: {0}")]
    Ledger(#[from] StoreError),
    /// ClickHouse did not answer.
    #[error("ClickHouse at {url} does not answer: {problem}")]
    Away {
        /// URL of the server, which has no password.
        url: String,
        /// Cause of the failure, in words.
        problem: String,
    },
    /// ClickHouse does not know the user, or the password is wrong.
    #[error(
        "ClickHouse at {url} refuses the user or the password of store.clickhouse.credential: {text}"
    )]
    Credential {
        /// URL of the ClickHouse server.
        url: String,
        /// Beginning of ClickHouse's answer.
        text: String,
    },
    /// ClickHouse refused a statement.
    #[error("ClickHouse at {url} refused {statement} with status {status}: {text}")]
    Refused {
        /// URL of the ClickHouse server.
        url: String,
        /// Kind of the refused statement, in words.
        statement: &'static str,
        /// HTTP status of the answer.
        status: u16,
        /// Beginning of ClickHouse's answer.
        text: String,
    },
    /// The table has other columns than the export needs, or another engine.
    #[error(
        "the table {table} in ClickHouse is not as the export needs it: {problems}; nothing is exported until it is: change \
         it, or rename it and a new one is made (`fairgate export table` prints the statement)"
    )]
    OtherTable {
        /// Database and name of the table.
        table: String,
        /// Each difference, separated by semicolons.
        problems: String,
    },
    /// ClickHouse has no table with which the ledger could be compared.
    #[error("there is no table {table} in ClickHouse: the export makes it when it starts")]
    NoTable {
        /// Database and name of the table.
        table: String,
    },
    /// ClickHouse's answer to a statement cannot be read.
    #[error("ClickHouse at {url} gave an answer to {statement} that is not understood: {text}")]
    Answer {
        /// URL of the ClickHouse server.
        url: String,
        /// Kind of the statement, in words.
        statement: &'static str,
        /// Beginning of ClickHouse's answer.
        text: String,
    },
}

impl ExportError {
    /// Returns the kind of the problem in a few words, which anybody may see.
    pub fn summary(&self) -> &'static str {
        match self {
            Self::Ledger(_) => "the ledger cannot be read",
            Self::Away { .. } => "ClickHouse does not answer",
            Self::Credential { .. } => "ClickHouse refuses the user or the password",
            Self::Refused { .. } | Self::Answer { .. } => "ClickHouse does not do what it is asked",
            Self::NoTable { .. } => "there is no table in ClickHouse",
            Self::OtherTable { .. } => {
                "the table in ClickHouse has other columns or another engine"
            }
        }
    }
}

/// Returns the first line of a text, shortened.
pub(crate) fn shortened(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let mut short: String = line.chars().filter(|c| !c.is_control()).take(TEXT_MAX).collect();
    if line.chars().count() > TEXT_MAX {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_answers_is_shortened_to_a_line() {
        assert_eq!(shortened("\n Code: 60.\u{1b}[2J\n more"), "Code: 60.[2J");
        assert_eq!(shortened(&"x".repeat(301)).chars().count(), 301);
        assert!(shortened(&"x".repeat(301)).ends_with('…'));
        assert_eq!(shortened(""), "");
    }
}

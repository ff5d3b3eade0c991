//! The unit in which the costs of a journal are shown to people. A journal does not state it.

use std::borrow::Cow;

use fairgate_journal::explain_text;

/// Unit of the costs in a journal, and of all counters that follow from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShownUnit {
    /// Weighted tokens.
    #[default]
    Tokens,
    /// Microseconds of a full worker.
    WorkerTime,
}

impl ShownUnit {
    /// All units, with the names that the configuration has for them.
    pub const NAMES: [(&str, Self); 2] =
        [("tokens", Self::Tokens), ("worker_time", Self::WorkerTime)];

    /// Returns the word for the unit in the heading of a column.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::WorkerTime => "µs",
        }
    }

    /// Returns a text about counted tokens in this unit.
    pub(crate) fn in_words(self, text: &str) -> Cow<'_, str> {
        match self {
            Self::Tokens => text.into(),
            Self::WorkerTime => {
                let served = text.replace(": tokens served ", ": µs of worker time served ");
                explain_text::in_unit(&served, explain_text::WORKER_TIME).into()
            }
        }
    }
}

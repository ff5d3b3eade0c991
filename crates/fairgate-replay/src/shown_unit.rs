//! The unit in which the costs of a journal are shown to people. A journal does not state its unit.

use std::borrow::Cow;

use fairgate_journal::explain_text;

/// Unit of the costs in a journal, and of all counters that follow from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShownUnit {
    /// Tokens, weighted by the pool's weights.
    #[default]
    Tokens,
    /// Microseconds of a full worker.
    WorkerTime,
    /// Micro-units of the currency.
    Money,
}

impl ShownUnit {
    /// All units, with the names that the configuration has for them.
    pub const NAMES: [(&str, Self); 3] = [
        (Self::Tokens.name(), Self::Tokens),
        (Self::WorkerTime.name(), Self::WorkerTime),
        (Self::Money.name(), Self::Money),
    ];

    /// Returns the unit's name in the configuration, in the API and in reports as JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::WorkerTime => "worker_time",
            Self::Money => "money",
        }
    }

    /// Returns the word for the unit in the heading of a column.
    pub fn word(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::WorkerTime => "µs",
            Self::Money => "micro-units",
        }
    }

    /// Returns the words for the unit in sentences; `None` for tokens, because sentences are
    /// composed in tokens.
    pub(crate) fn words(self) -> Option<&'static str> {
        match self {
            Self::Tokens => None,
            Self::WorkerTime => Some(explain_text::WORKER_TIME),
            Self::Money => Some(explain_text::MONEY),
        }
    }

    /// Returns a text about counted tokens in this unit.
    pub(crate) fn in_words(self, text: &str) -> Cow<'_, str> {
        let Some(words) = self.words() else { return text.into() };
        let served = text.replace(": tokens served ", &format!(": {words} served "));
        explain_text::in_unit(&served, words).into()
    }
}

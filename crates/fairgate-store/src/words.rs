//! The words by which a database knows the values of our enums.

use crate::budget::{BudgetTier, HostedUse, Period, Scope, Unit};
use crate::error::StoreError;
use crate::ledger::{Outcome, UsageSource};

/// A value that is stored as a word.
pub(crate) trait Word: Copy + 'static {
    /// What a column of such words holds, for errors.
    const WHAT: &'static str;
    /// Every value and its word.
    const WORDS: &'static [(Self, &'static str)];

    /// Its word.
    fn word(self) -> &'static str;

    /// The value of a word.
    fn from_word(word: &str) -> Result<Self, StoreError> {
        let known = Self::WORDS.iter().find(|(_, name)| *name == word);
        let unknown = || StoreError::Database(format!("unknown {} {word:?}", Self::WHAT));
        known.map(|(value, _)| *value).ok_or_else(unknown)
    }
}

macro_rules! words {
    ($type:ident, $what:literal, $($value:ident = $word:literal),+) => {
        impl Word for $type {
            const WHAT: &'static str = $what;
            const WORDS: &'static [(Self, &'static str)] = &[$(($type::$value, $word)),+];

            fn word(self) -> &'static str {
                match self {
                    $($type::$value => $word),+
                }
            }
        }
    };
}

words!(Period, "period", Day = "day", Month = "month");
words!(Unit, "unit of a budget", Tokens = "tokens", Money = "money");
words!(BudgetTier, "tier of a budget", Any = "any", Hosted = "hosted");
words!(HostedUse, "use of hosted workers", Allowed = "allowed", Never = "never");
words!(
    Scope,
    "scope",
    Tenant = "tenant",
    Key = "key",
    HostedModel = "hosted_model",
    Hosted = "hosted",
    Group = "group"
);
words!(
    UsageSource,
    "source of usage",
    Reported = "reported",
    Counted = "counted",
    None = "none",
    Assumed = "assumed",
    Occupied = "occupied"
);
words!(
    Outcome,
    "outcome",
    Completed = "completed",
    Refused = "refused",
    UpstreamError = "upstream_error",
    Timeout = "timeout",
    ClientLeft = "client_left",
    Retried = "retried",
    Lost = "lost"
);

#[cfg(test)]
mod tests {
    use super::*;

    fn same_as_in_json<W: Word + PartialEq + serde::Serialize + std::fmt::Debug>() {
        for (value, word) in W::WORDS {
            assert_eq!(serde_json::to_value(value).unwrap(), *word);
            assert_eq!(value.word(), *word);
            assert_eq!(W::from_word(word).unwrap(), *value);
        }
        assert!(W::from_word("nonsense").is_err());
    }

    #[test]
    fn words_are_those_of_json() {
        same_as_in_json::<Period>();
        same_as_in_json::<Unit>();
        same_as_in_json::<BudgetTier>();
        same_as_in_json::<HostedUse>();
        same_as_in_json::<Scope>();
        same_as_in_json::<UsageSource>();
        same_as_in_json::<Outcome>();
    }
}

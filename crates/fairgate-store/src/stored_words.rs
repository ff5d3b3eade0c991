//! Words that the database stores for the values of enums.

use crate::budget::{BudgetPeriod, BudgetScope, BudgetTier, BudgetUnit, HostedUse};
use crate::error::StoreError;
use crate::ledger::{AttemptOutcome, UsageSource};

/// Enum whose values are stored as words.
pub(crate) trait StoredWord: Copy + 'static {
    /// Description of the enum, for error messages.
    const WHAT: &'static str;
    /// Every value and its word.
    const WORDS: &'static [(Self, &'static str)];

    /// Returns the word of the value.
    fn word(self) -> &'static str;

    /// Returns the value of a word; an unknown word is an error.
    fn from_word(word: &str) -> Result<Self, StoreError> {
        let known = Self::WORDS.iter().find(|(_, name)| *name == word);
        let unknown = || StoreError::Database(format!("unknown {} {word:?}", Self::WHAT));
        known.map(|(value, _)| *value).ok_or_else(unknown)
    }
}

macro_rules! words {
    ($type:ident, $what:literal, $($value:ident = $word:literal),+) => {
        impl StoredWord for $type {
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

words!(BudgetPeriod, "period", Day = "day", Month = "month");
words!(BudgetUnit, "unit of a budget", Tokens = "tokens", Money = "money");
words!(BudgetTier, "tier of a budget", Any = "any", Hosted = "hosted");
words!(HostedUse, "use of hosted workers", Allowed = "allowed", Never = "never");
words!(
    BudgetScope,
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
    AttemptOutcome,
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

    fn same_as_in_json<W: StoredWord + PartialEq + serde::Serialize + std::fmt::Debug>() {
        for (value, word) in W::WORDS {
            assert_eq!(serde_json::to_value(value).unwrap(), *word);
            assert_eq!(value.word(), *word);
            assert_eq!(W::from_word(word).unwrap(), *value);
        }
        assert!(W::from_word("nonsense").is_err());
    }

    #[test]
    fn words_are_those_of_json() {
        same_as_in_json::<BudgetPeriod>();
        same_as_in_json::<BudgetUnit>();
        same_as_in_json::<BudgetTier>();
        same_as_in_json::<HostedUse>();
        same_as_in_json::<BudgetScope>();
        same_as_in_json::<UsageSource>();
        same_as_in_json::<AttemptOutcome>();
    }
}

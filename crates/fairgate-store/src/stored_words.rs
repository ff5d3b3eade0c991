//! Words that the database stores for the values of enums. strum derives the words from the names
//! of the variants.

use std::str::FromStr;

use crate::error::StoreError;

/// Enum whose values are stored as words.
pub(crate) trait StoredWord: Copy + Into<&'static str> + FromStr {
    /// Returns the word of the value.
    fn word(self) -> &'static str {
        self.into()
    }

    /// Returns the value of a word; an unknown word is an error.
    fn from_word(word: &str) -> Result<Self, StoreError> {
        word.parse().map_err(|_| {
            let kind = std::any::type_name::<Self>().rsplit("::").next().unwrap_or_default();
            StoreError::Database(format!("unknown {kind} {word:?}"))
        })
    }
}

impl<E: Copy + Into<&'static str> + FromStr> StoredWord for E {}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;
    use crate::budget::{BudgetPeriod, BudgetScope, BudgetTier, BudgetUnit, HostedUse};
    use crate::ledger::{AttemptOutcome, UsageSource};

    fn same_as_in_json<W>()
    where
        W: StoredWord + VariantArray + PartialEq + serde::Serialize + std::fmt::Debug,
    {
        for value in W::VARIANTS {
            assert_eq!(serde_json::to_value(value).unwrap(), value.word());
            assert_eq!(W::from_word(value.word()).unwrap(), *value);
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

    /// Existing databases contain these words, so a renamed variant must keep its word.
    #[test]
    fn words_stay_as_they_are() {
        let words = |values: &[AttemptOutcome]| values.iter().map(|v| v.word()).collect::<Vec<_>>();
        let outcomes = "completed refused upstream_error timeout client_left retried lost";
        assert_eq!(words(AttemptOutcome::VARIANTS).join(" "), outcomes);
        let sources = UsageSource::VARIANTS.iter().map(|v| v.word()).collect::<Vec<_>>();
        assert_eq!(sources.join(" "), "reported counted none assumed occupied");
        let scopes = BudgetScope::VARIANTS.iter().map(|v| v.word()).collect::<Vec<_>>();
        assert_eq!(scopes.join(" "), "tenant key hosted_model hosted group");
    }
}

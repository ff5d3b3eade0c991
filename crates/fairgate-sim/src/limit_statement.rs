//! The formats in which a simulated provider states its limits, and the deliberate errors in them.

use std::fmt;
use std::str::FromStr;

/// Format of the headers that state the limits of an account. The headers show the account's state right after the
/// request was accepted or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitHeaders {
    /// `route`: the headers have the format of the API that the request used, OpenAI's or Anthropic's.
    Route,
    /// `openai`: the headers are `x-ratelimit-limit-requests` and so on, with resets written as `6m0s`. A refusal also
    /// has `retry-after-ms`.
    OpenAi,
    /// `anthropic`: the headers are `anthropic-ratelimit-tokens-remaining` and so on, with remaining tokens rounded to
    /// a thousand and resets as RFC 3339 times.
    Anthropic,
    /// `none`: responses have no headers about limits, and errors have no numbers.
    Nothing,
}

/// Deliberate error in the headers that state the limits. The enforced limits are not affected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitHeaderFault {
    /// `remaining-zero`: every remaining amount is stated as 0.
    RemainingZero,
    /// `reset-in-a-year`: every reset time, and `retry-after`, is stated as a year from now.
    ResetInAYear,
    /// `negative`: every number is stated as -1.
    Negative,
    /// `absurd`: every number is stated as 10^18 or more.
    Absurd,
    /// `flapping`: every other answer states a tenth of the limit, and states that nothing is left for 59 seconds.
    Flapping,
}

const STATEMENTS: [(&str, LimitHeaders); 4] = [
    ("route", LimitHeaders::Route),
    ("openai", LimitHeaders::OpenAi),
    ("anthropic", LimitHeaders::Anthropic),
    ("none", LimitHeaders::Nothing),
];

const LIES: [(&str, LimitHeaderFault); 5] = [
    ("remaining-zero", LimitHeaderFault::RemainingZero),
    ("reset-in-a-year", LimitHeaderFault::ResetInAYear),
    ("negative", LimitHeaderFault::Negative),
    ("absurd", LimitHeaderFault::Absurd),
    ("flapping", LimitHeaderFault::Flapping),
];

fn named<T: Copy>(all: &[(&str, T)], text: &str) -> Result<T, String> {
    all.iter().find(|(name, _)| *name == text).map(|(_, one)| *one).ok_or_else(|| {
        let names: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        format!("`{text}` is none of {}", names.join(", "))
    })
}

impl FromStr for LimitHeaders {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(&STATEMENTS, text)
    }
}

impl FromStr for LimitHeaderFault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        named(&LIES, text)
    }
}

impl fmt::Display for LimitHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = STATEMENTS.iter().find(|(_, one)| one == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for (name, statement) in STATEMENTS {
            assert_eq!((name.parse(), statement.to_string().as_str()), (Ok(statement), name));
        }
        for (name, lie) in LIES {
            assert_eq!(name.parse(), Ok(lie));
        }
        assert!("truth".parse::<LimitHeaderFault>().unwrap_err().contains("remaining-zero"));
    }
}

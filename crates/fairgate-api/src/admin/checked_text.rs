//! Texts that are checked when they are read.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

/// Name of a model, class, taint or existing tenant: 1 to `MOST` visible ASCII characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct AsciiName<const MOST: usize>(pub String);

impl<'de, const MOST: usize> Deserialize<'de> for AsciiName<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let fits = (1..=MOST).contains(&word.len());
        if fits && word.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Self(word));
        }
        let message = format!("must be 1 to {MOST} visible ASCII characters without spaces");
        Err(Error::custom(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_visible_and_bounded() {
        let reads = |text: &str| serde_json::from_value::<AsciiName<8>>(text.into()).is_ok();
        assert!(reads("gpt/4:o"));
        assert!(["", "a b", "123456789", "ü"].iter().all(|word| !reads(word)));
    }
}

//! What a body may say, beyond its shape.

use serde::{Deserialize, Deserializer};

/// The weight of what states none.
pub(super) fn default_weight() -> u64 {
    fairgate_core::policy::DEFAULT_WEIGHT
}

/// A field that may be absent, and is no null.
pub(super) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// The name of a new group or tenant: 1 to 128 letters, digits and `. _ : @ + -`, beginning with a letter or digit. So
/// it looks the same in a URL, a header, a table and a metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name(pub(super) String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        let rest = |byte: u8| byte.is_ascii_alphanumeric() || b"._:@+-".contains(&byte);
        let begins = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins && name.len() <= 128 && name.bytes().all(rest) {
            return Ok(Self(name));
        }
        Err(serde::de::Error::custom(
            "a name is 1 to 128 letters, digits and . _ : @ + - and begins with a letter or digit",
        ))
    }
}

/// What the owner of a key calls it: up to 128 ASCII characters, or up to 32 of any kind; no control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Label(pub(super) String);

impl<'de> Deserialize<'de> for Label {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let label = String::deserialize(deserializer)?;
        let longest = if label.is_ascii() { 128 } else { 32 };
        if label.chars().count() <= longest && !label.contains(char::is_control) {
            return Ok(Self(label));
        }
        Err(serde::de::Error::custom(
            "a key's name is up to 128 ASCII characters, or up to 32 of any kind, without control characters",
        ))
    }
}

/// Visible ASCII characters, at most `MOST` of them: the name of a model or a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word<const MOST: usize>(pub(super) String);

impl<'de, const MOST: usize> Deserialize<'de> for Word<MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        let fits = (1..=MOST).contains(&word.len());
        if fits && word.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Ok(Self(word));
        }
        let message = format!("must be 1 to {MOST} visible ASCII characters without spaces");
        Err(serde::de::Error::custom(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads<T: for<'de> Deserialize<'de>>(text: &str) -> bool {
        serde_json::from_value::<T>(text.into()).is_ok()
    }

    #[test]
    fn names() {
        assert!(
            ["a", "chat-prod_2", "team:a@b.c+d", &"x".repeat(128)].iter().all(|n| reads::<Name>(n))
        );
        let bad = ["", "-a", ".", "a b", "ü", "a/b", "a\n", &"x".repeat(129)];
        assert!(bad.iter().all(|name| !reads::<Name>(name)));
    }

    #[test]
    fn labels() {
        assert!(
            ["", "my laptop", "Grüße", &"x".repeat(128), &"ü".repeat(32)].iter().all(|l| reads::<
                Label,
            >(
                l
            ))
        );
        assert!(
            ["\n", &"x".repeat(129), &"ü".repeat(33)].iter().all(|label| !reads::<Label>(label))
        );
    }

    #[test]
    fn words() {
        assert!(reads::<Word<8>>("gpt/4:o"));
        assert!(["", "a b", "123456789", "ü"].iter().all(|word| !reads::<Word<8>>(word)));
    }
}

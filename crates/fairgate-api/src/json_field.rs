//! Readers of fields for which absence and `null` mean different things.

use serde::{Deserialize, Deserializer};

/// Reads a field in which `null` is a value. A field that is absent stays `None`, and `null` gives `Some(None)`.
pub(crate) fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Reads a field that may be absent but not `null`.
pub(crate) fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

//! Weight of a project's share.

use std::fmt;

use fairgate_core::proportional::CreditWeight;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// Weight of a project relative to the other projects: 0.001 to 10^15, with at most three decimals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = f64, minimum = 0.001, example = 3.0)]
pub struct ProjectShareWeight(pub CreditWeight);

impl fmt::Display for ProjectShareWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for ProjectShareWeight {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let number: serde_json::Number =
            self.0.to_string().parse().map_err(serde::ser::Error::custom)?;
        number.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ProjectShareWeight {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = serde_json::Number::deserialize(deserializer)?;
        let exact: Result<Self, String> = number.to_string().parse();
        // A computed number may be slightly off: 0.30000000000000004.
        let near = |number: f64| {
            let text = format!("{number:.3}");
            let off = text.parse::<f64>().ok()? - number;
            (off.abs() <= number * 1e-12).then(|| text.parse().ok())?
        };
        exact
            .or_else(|problem| number.as_f64().and_then(near).ok_or(problem))
            .map_err(serde::de::Error::custom)
    }
}

impl std::str::FromStr for ProjectShareWeight {
    type Err = String;

    /// Parses a decimal number exactly, without going through a float.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text} is no weight: a number from 0.001 to 1000000000000000 with at most three decimals"
            )
        };
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        let part = part.trim_end_matches('0');
        if whole.is_empty() || !is_digits(whole) || !is_digits(part) || part.len() > 3 {
            return Err(wrong());
        }
        let thousandths = format!("{whole}{part:0<3}").parse().map_err(|_| wrong())?;
        CreditWeight::from_thousandths(thousandths).map(Self).map_err(|_| wrong())
    }
}

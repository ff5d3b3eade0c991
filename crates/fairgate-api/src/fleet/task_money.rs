//! Amounts of money of a task.

use fairgate_money::MicroUnits;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// Amount of money as a decimal text, such as `"50"` or `"0.25"`: below 1000000000, with at most
/// six places. It is a text because many clients would read a number as a float.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, pattern = "^[0-9]{1,9}(\\.[0-9]{1,6})?$", example = "2.50")]
pub struct TaskMoney(pub MicroUnits);

impl TaskMoney {
    /// Largest amount: just below 10⁹ units of the currency.
    const LARGEST: MicroUnits = MicroUnits(999_999_999_999_999);
}

impl std::str::FromStr for TaskMoney {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let amount = MicroUnits::parse(text).filter(|amount| *amount <= Self::LARGEST);
        amount.map(Self).ok_or_else(|| {
            "must be an amount of money such as \"50\" or \"0.25\": below 1000000000, with at most six places"
                .to_owned()
        })
    }
}

impl Serialize for TaskMoney {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for TaskMoney {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

//! The rights of keys and projects as JSON.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use crate::weight_number::WeightNumber;
use crate::{json_field, whole_number};

/// Rights of a key or a project, which limit the choices of its requests. The task keys of a
/// project have the project's rights.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Rights)]
pub struct RightsBody {
    /// Models that requests may name, and patterns such as `gpt-*`; null means all.
    pub models: Option<Vec<String>>,
    /// Policy classes and families that requests may name. A request that names none gets the first one of the list.
    /// Null means all classes of the policy, or only the default class if the classes have a strict order (`bands`). An
    /// empty list means only the default class.
    pub classes: Option<Vec<String>>,
    /// Highest priority that requests may ask for. Lower priorities are always allowed.
    pub priority_max: i64,
    /// Highest weight that requests may state for a `load` node. A request may always state a
    /// weight up to that of its model. Null means that no request may state more.
    #[schema(value_type = Option<f64>)]
    pub weight_max: Option<WeightNumber>,
    /// Workers that requests may go to; null means all.
    pub workers: Option<Vec<String>>,
    /// True if requests may choose their worker, or a list of workers.
    pub may_pin: bool,
    /// True if the key may open leases.
    pub may_lease: bool,
    /// True if requests may name files, vector stores, containers and stored prompts of the upstream's account.
    pub may_use_foreign_ids: bool,
    /// Taints that requests may require of a worker; null means all.
    pub taints: Option<Vec<String>>,
    /// Default deadline of requests, in milliseconds; null means the deadline of the request's class.
    pub deadline_ms: Option<u64>,
    /// Shortest deadline that a request may state in an `edf` queue, in milliseconds. Null means
    /// the deadline that the request would get if it stated no deadline: the shorter of the
    /// deadlines of its key and its class, or the pool's `queue_timeout` if both have none.
    pub deadline_min_ms: Option<u64>,
}

/// Name of a policy class, a family, a worker or a taint.
#[derive(ToSchema)]
#[schema(as = RightName, value_type = String, pattern = "^[!-~]{1,128}$")]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct RightNameSchema(String);

/// Name of a model, as clients send it.
#[derive(ToSchema)]
#[schema(as = RightModelName, value_type = String, pattern = "^[!-~]{1,256}$")]
#[allow(dead_code, reason = "only its schema is used")]
pub(crate) struct RightModelNameSchema(String);

/// Rights of a project to set. Absent rights stay as they are; in a new project they have the
/// defaults below.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[schema(as = RightsPatch)]
pub struct RightsPatchBody {
    /// Models that requests may name, and patterns such as `gpt-*` with a `*` at the end for any ending; null means all.
    #[serde(deserialize_with = "names::<256, _>", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<RightModelNameSchema>>, max_items = 256)]
    pub models: Option<Option<Vec<String>>>,
    /// Policy classes and families that requests may name. A request that names none gets the first one of the list.
    /// Null means all classes of the policy, or only the default class if the classes have a strict order (`bands`). An
    /// empty list, which a new project has, means only the default class.
    #[serde(deserialize_with = "names::<128, _>", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<RightNameSchema>>, max_items = 256)]
    pub classes: Option<Option<Vec<String>>>,
    /// Highest priority that requests may ask for; 0 in a new project. Lower priorities are always allowed.
    #[serde(deserialize_with = "whole_number::present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 2_147_483_647, nullable = false)]
    pub priority_max: Option<i64>,
    /// Highest weight that requests may state for a `load` node; null, as in a new project, means the weight of their
    /// model.
    #[serde(deserialize_with = "json_field::nullable", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>, minimum = 0.001, maximum = 1_000_000, multiple_of = 0.001)]
    pub weight_max: Option<Option<WeightNumber>>,
    /// Workers that requests may go to; null means all, as in a new project.
    #[serde(deserialize_with = "names::<128, _>", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<RightNameSchema>>, max_items = 256)]
    pub workers: Option<Option<Vec<String>>>,
    /// True if requests may choose their worker, or a list of workers; false in a new project.
    #[serde(deserialize_with = "json_field::present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<bool>, nullable = false)]
    pub may_pin: Option<bool>,
    /// True if task keys may open leases; false in a new project.
    #[serde(deserialize_with = "json_field::present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<bool>, nullable = false)]
    pub may_lease: Option<bool>,
    /// True if requests may name files, vector stores, containers and stored prompts of the upstream's account; false in
    /// a new project.
    #[serde(deserialize_with = "json_field::present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<bool>, nullable = false)]
    pub may_use_foreign_ids: Option<bool>,
    /// Taints that requests may require of a worker; null means all. A new project has none.
    #[serde(deserialize_with = "names::<128, _>", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<RightNameSchema>>, max_items = 256)]
    pub taints: Option<Option<Vec<String>>>,
    /// Default deadline of requests, in milliseconds; null means the deadline of the request's class.
    #[serde(deserialize_with = "whole_number::given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 86_400_000)]
    pub deadline_ms: Option<Option<u64>>,
    /// Shortest deadline that a request may state in an `edf` queue, in milliseconds. Null means the deadline that the
    /// request would get if it stated no deadline.
    #[serde(deserialize_with = "whole_number::given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 1, maximum = 86_400_000)]
    pub deadline_min_ms: Option<Option<u64>>,
}

impl RightsPatchBody {
    /// Returns true if the patch changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Deserializes rights from an object. A plain serde struct would also accept a list of its values.
pub(crate) fn object<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<RightsPatchBody, D::Error> {
    struct RightsVisitor;

    impl<'de> Visitor<'de> for RightsVisitor {
        type Value = RightsPatchBody;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RightsPatchBody, A::Error> {
            RightsPatchBody::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_map(RightsVisitor)
}

/// Deserializes a list of names of 1 to `MAX` visible ASCII characters each, or null, which gives `Some(None)`.
fn names<'de, const MAX: usize, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<Vec<String>>>, D::Error> {
    let list = Option::<Vec<String>>::deserialize(deserializer)?;
    let is_name = |name: &String| {
        (1..=MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
    };
    match list.iter().flatten().all(is_name) {
        true => Ok(Some(list)),
        false => Err(D::Error::custom(format!(
            "each name must be 1 to {MAX} visible ASCII characters without spaces"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_opens_a_list_and_absence_leaves_it() {
        let read = |text: &str| serde_json::from_str::<RightsPatchBody>(text);
        let open = read(r#"{"classes":null,"may_lease":true,"priority_max":5.0,"weight_max":2.5}"#)
            .unwrap();
        let expected = RightsPatchBody {
            classes: Some(None),
            may_lease: Some(true),
            priority_max: Some(5),
            weight_max: Some(WeightNumber::from_thousandths(2500)),
            ..RightsPatchBody::default()
        };
        assert_eq!(open, expected);
        let text = serde_json::to_string(&open).unwrap();
        assert_eq!(text, r#"{"classes":null,"priority_max":5,"weight_max":2.5,"may_lease":true}"#);
        assert!(read("{}").unwrap().is_empty());
        for wrong in [
            r#"{"may_pin":null}"#,
            r#"{"classes":["a b"]}"#,
            r#"{"classes":[""]}"#,
            r#"{"class":["a"]}"#,
            r#"{"priority_max":null}"#,
            r#"{"weight_max":0}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

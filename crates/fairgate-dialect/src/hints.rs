//! Scheduling hints in a request's body, in the format of NVIDIA Dynamo: `nvext.agent_hints` and
//! `nvext.routing_constraints`. Other members of `nvext` are not read.

use serde::Deserialize;

use crate::request_fields::{InvalidRequestCode, InvalidRequestError, RequestFields};

/// Scheduling hints of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SchedulingHints {
    /// Priority of the request, from `agent_hints.strict_priority` or, if that is absent, `agent_hints.priority`.
    /// Higher goes first. `strict_priority` is an unsigned and `priority` a signed number of 32 bits.
    pub priority: Option<i64>,
    /// Names of the taints that the worker must have (`routing_constraints.required_taints`).
    pub required_taints: Vec<String>,
}

#[derive(Default, Deserialize)]
struct NvextBody {
    agent_hints: Option<AgentHintsBody>,
    routing_constraints: Option<RoutingConstraintsBody>,
}

#[derive(Default, Deserialize)]
struct AgentHintsBody {
    priority: Option<i32>,
    strict_priority: Option<u32>,
}

#[derive(Default, Deserialize)]
struct RoutingConstraintsBody {
    required_taints: Option<Vec<String>>,
}

impl RequestFields {
    /// Reads the hints from the body of this request. The member `nvext` stays in the body; the rules about fields
    /// decide if it is sent to the upstream.
    pub fn hints(&self, body: &[u8]) -> Result<SchedulingHints, InvalidRequestError> {
        let mut members = self.other_members(body).filter(|(_, name)| name == "nvext");
        let Some((number, _)) = members.next() else { return Ok(SchedulingHints::default()) };
        if members.next().is_some() {
            return Err(bad(
                InvalidRequestCode::DuplicateField,
                "`nvext` stands twice in the body; send it once",
            ));
        }
        let value = self.other_value(body, number).unwrap_or_default();
        let extension: Option<NvextBody> = serde_json::from_slice(value).map_err(|_| {
            bad(
                InvalidRequestCode::InvalidValue,
                "`nvext` must be an object in which `agent_hints.priority` is a 32-bit integer, \
                 `agent_hints.strict_priority` one of 0 or more, and `routing_constraints.required_taints` a list of names",
            )
        })?;
        let NvextBody { agent_hints, routing_constraints } = extension.unwrap_or_default();
        let AgentHintsBody { priority, strict_priority } = agent_hints.unwrap_or_default();
        let strict = strict_priority.map(i64::from);
        let taints = routing_constraints.unwrap_or_default().required_taints;
        Ok(SchedulingHints {
            priority: strict.or(priority.map(i64::from)),
            required_taints: taints.unwrap_or_default(),
        })
    }
}

fn bad(code: InvalidRequestCode, message: &str) -> InvalidRequestError {
    InvalidRequestError { code, param: Some("nvext"), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Route;

    fn read(nvext: &str) -> Result<SchedulingHints, InvalidRequestError> {
        let body = format!(r#"{{"model":"m","nvext" : {nvext} ,"messages":[]}}"#);
        RequestFields::read(Route::ChatCompletions, body.as_bytes()).unwrap().hints(body.as_bytes())
    }

    #[test]
    fn hints_are_read_and_the_rest_is_left_alone() {
        let none = SchedulingHints::default();
        for empty in ["null", "{}", r#"{"agent_hints":null,"token_data":[1,2]}"#] {
            assert_eq!(read(empty).unwrap(), none, "{empty}");
        }
        let hints = read(r#"{"agent_hints":{"priority":-5,"osl":9}}"#).unwrap();
        assert_eq!(hints, SchedulingHints { priority: Some(-5), ..none.clone() });
        let hints = read(r#"{"agent_hints":{"priority":5,"strict_priority":4294967295}}"#).unwrap();
        assert_eq!(hints.priority, Some(4_294_967_295), "the strict one orders the queue");
        let hints = read(r#"{"routing_constraints":{"required_taints":["eu","h100"]}}"#).unwrap();
        assert_eq!(hints.required_taints, ["eu", "h100"]);
        let body = br#"{"model":"m"}"#;
        assert_eq!(
            RequestFields::read(Route::Completions, body).unwrap().hints(body).unwrap(),
            none
        );
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for nvext in [
            "[]",
            "7",
            r#"{"agent_hints":{"priority":"5"}}"#,
            r#"{"agent_hints":{"priority":2147483648}}"#,
            r#"{"agent_hints":{"strict_priority":-1}}"#,
            r#"{"agent_hints":{"priority":1,"priority":2}}"#,
            r#"{"routing_constraints":{"required_taints":"eu"}}"#,
        ] {
            assert_eq!(read(nvext).unwrap_err().code.as_str(), "invalid_value", "{nvext}");
        }
        let twice = read(r#"{},"nv\u0065xt":{}"#).unwrap_err();
        assert_eq!((twice.code.as_str(), twice.param), ("duplicate_field", Some("nvext")));
    }
}

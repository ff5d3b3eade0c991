//! Schemas of names that several bodies contain, for the OpenAPI document.

use utoipa::ToSchema;

/// A label that a tenant, project or task requires, such as `docker` or `machine:m1`: a name, or
/// two names with a colon between them.
#[derive(Clone, Debug, ToSchema)]
#[schema(
    value_type = String,
    min_length = 1,
    max_length = 129,
    pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$"
)]
pub struct LabelSchema(pub String);

/// A label of an agent. The label `type:TYPE` follows from the agent's type and cannot be given.
#[derive(Clone, Debug, ToSchema)]
#[schema(
    value_type = String,
    min_length = 1,
    max_length = 129,
    pattern = "^(?!type:)[A-Za-z0-9][A-Za-z0-9._-]{0,63}(:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$"
)]
pub struct AgentLabelSchema(pub String);

/// Type of an agent, as a key of a JSON object: 1 to 64 of `a`–`z`, `0`–`9`, `.`, `_` and `-`.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
pub struct AgentKind(pub String);

//! Groups, and the tenants that divide their shares.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::declared::DeclaredInBody;
use super::limits::{GroupLimits, LimitsBody};

/// A tenant, which gets a share of each pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Tenant)]
pub struct TenantBody {
    /// Name of the tenant; unique across groups.
    pub name: String,
    /// Name of the tenant's group.
    pub group: String,
    /// Weight of the tenant relative to the other tenants of its group, 1 to 1 000 000.
    pub weight: u64,
    /// True if the tenant is disabled; its keys are then refused.
    pub disabled: bool,
    /// Limits for all keys of the tenant together.
    pub limits: LimitsBody,
    /// Labels that an agent must have to work on the tenant's tasks.
    pub requires: Vec<String>,
    /// Time of creation, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Place in the configuration file that declares the tenant; null if no file does.
    pub declared: Option<DeclaredInBody>,
}

/// A page of tenants, sorted by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = TenantPage)]
pub struct TenantPage {
    /// The tenants of the page.
    pub items: Vec<TenantBody>,
    /// Value for `after` to get the next page; null on the last page.
    pub next: Option<String>,
}

/// A group of tenants. Its tenants divide the group's share of each pool.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = Group)]
pub struct GroupBody {
    /// Name of the group; unique.
    pub name: String,
    /// Weight of the group relative to the other groups, 1 to 1 000 000.
    pub weight: u64,
    /// Limits for all tenants of the group together.
    pub limits: GroupLimits,
    /// Time of creation, RFC 3339 in UTC.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Place in the configuration file that declares the group; null if no file does.
    pub declared: Option<DeclaredInBody>,
}

/// A page of groups, sorted by name.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[schema(as = GroupPage)]
pub struct GroupPage {
    /// The groups of the page.
    pub items: Vec<GroupBody>,
    /// Value for `after` to get the next page; null on the last page.
    pub next: Option<String>,
}

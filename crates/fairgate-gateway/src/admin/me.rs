//! What a tenant is due, and why.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use fairgate_config::Classes;
use fairgate_store::Owners;
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::api_error::ApiError;
use super::auth::Viewer;
use super::budgets::{BudgetBody, budgets, model_budgets};
use super::keys::RightsBody;
use super::limits::LimitsBody;
use crate::app::App;
use crate::identity::Caller;
use crate::limits::{Left, Owner};
use crate::live::{ClassView, GroupView, PoolView, ServiceView, TenantView};

/// What a key's tenant is due, has and has left.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = Me)]
pub(super) struct Me {
    /// The group of the tenant.
    group: String,
    /// The tenant.
    tenant: String,
    /// The key's id.
    key: String,
    /// The models that the key may ask for; null is all.
    models: Option<Vec<String>>,
    /// What the key may choose for its requests.
    #[serde(flatten)]
    rights: RightsBody,
    /// How the tenant stands against its limits.
    tenant_limits: Standing,
    /// How the key stands against its limits.
    key_limits: Standing,
    /// The budgets that its requests count in: those of the tenant and the key, of the group, and, where it may use hosted
    /// workers, those of the hosted tier and of models there.
    budgets: Vec<BudgetBody>,
    /// Its part of each pool.
    pools: Vec<MyPool>,
}

/// Limits, and what is left of them. What is null is not limited.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = LimitsLeft)]
pub(super) struct Standing {
    /// The limits.
    limits: LimitsBody,
    /// How many requests may be sent now, of those for a minute.
    requests_left: Option<i64>,
    /// How many tokens are left of those for a minute; below 0 more were used.
    tokens_left: Option<i64>,
}

/// A tenant's part of a pool.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(as = MyPool)]
pub(super) struct MyPool {
    /// The pool.
    pool: String,
    /// How many requests the pool has in flight at most, of all tenants.
    max_in_flight: u64,
    /// How many of the tenant's requests are in flight.
    in_flight: u64,
    /// How many of the tenant's requests wait.
    queued: u64,
    /// How many may be in flight; null is any number.
    slot_cap: Option<u64>,
    /// The part of the pool that the tenant is due among those that want something now: 0 to 1.
    weight_share: Option<f64>,
    /// What the tenant is owed, in tokens; below 0 it has had more than its share.
    lag_tokens: i64,
    /// The most that it could be owed now, in tokens.
    lag_bound_tokens: Option<i64>,
    /// What the tenant was served beside what it was due.
    #[serde(flatten)]
    service: ServiceView,
    /// The policy classes that the key may use; none where the pool's policy has no classes. What a class has and waits
    /// for is everybody's together.
    classes: Vec<ClassView>,
    /// Where the share comes from, in words.
    why: String,
}

/// Shows what the caller's tenant is due of each pool and why, what it has under way, and what is left of its limits.
#[utoipa::path(
    get, path = "/api/v1/me", tag = "tenants", security(("tenant" = [])),
    responses((status = 200, description = "What the tenant is due, has and has left", body = Me)),
)]
pub(super) async fn me(State(app): State<Arc<App>>, viewer: Viewer) -> Result<Json<Me>, ApiError> {
    let Viewer::Tenant(caller) = viewer else {
        let message =
            "this is for tenants: send a tenant's key; the admin sees /api/v1/fairshare/live";
        return Err(ApiError::new(StatusCode::FORBIDDEN, "tenant_only", message));
    };
    let directory = app.identity.directory();
    let mut pools = Vec::new();
    for pool in app.pools.all() {
        let sight = app.control.sights.of(&pool).await?;
        let view = sight.view(&pool.name, &directory);
        pools.push(my_pool(view, &caller, pool.setup().config.classes.as_ref()));
    }
    let now = Instant::now();
    let left = |owner, name, limits| standing(limits, app.limits.left(owner, name, limits, now));
    Ok(Json(Me {
        group: caller.group.to_string(),
        tenant: caller.tenant.to_string(),
        key: caller.key.to_string(),
        models: caller.models.clone(),
        rights: RightsBody::from(&caller.rights),
        tenant_limits: left(Owner::Tenant, &caller.tenant, &caller.tenant_limits),
        key_limits: left(Owner::Key, &caller.key, &caller.key_limits),
        budgets: my_budgets(&app, &caller).await?,
        pools,
    }))
}

/// All budgets that the caller's requests count in.
async fn my_budgets(app: &App, caller: &Caller) -> Result<Vec<BudgetBody>, ApiError> {
    let hosted = caller.may_use_hosted && app.pools.all().iter().any(|pool| pool.has_hosted_tier());
    let owners = Owners {
        group: Some(&caller.group),
        key: Some(&caller.key),
        hosted,
        ..Owners::tenant(&caller.tenant)
    };
    let mut all = budgets(app, owners).await?;
    if hosted {
        let may_ask = |model: &str| {
            caller.models.as_ref().is_none_or(|allowed| allowed.iter().any(|name| name == model))
        };
        all.extend(model_budgets(app, may_ask).await?);
    }
    Ok(all)
}

fn standing(limits: &fairgate_store::Limits, left: Left) -> Standing {
    Standing {
        limits: LimitsBody::from(limits),
        requests_left: left.requests,
        tokens_left: left.tokens,
    }
}

fn my_pool(view: &PoolView, caller: &Caller, classes: Option<&Classes>) -> MyPool {
    let mine = view.tenants.iter().find(|tenant| {
        *tenant.tenant_id == *caller.tenant && *tenant.fairshare_group == *caller.group
    });
    let group = view.groups.iter().find(|group| *group.name == *caller.group);
    let mut my_pool = MyPool {
        pool: view.pool.clone(),
        max_in_flight: view.max_in_flight,
        in_flight: 0,
        queued: 0,
        slot_cap: None,
        weight_share: None,
        lag_tokens: 0,
        lag_bound_tokens: None,
        service: ServiceView::default(),
        classes: my_classes(view, caller, classes),
        why: "it has sent nothing to this pool yet; its share is worked out when it does"
            .to_owned(),
    };
    if let Some(mine) = mine {
        my_pool.in_flight = mine.in_flight;
        my_pool.queued = mine.queued;
        my_pool.slot_cap = mine.slot_cap.or_else(|| group.and_then(|group| group.slot_cap));
        my_pool.weight_share = mine.weight_share;
        my_pool.lag_tokens = mine.lag_tokens;
        my_pool.lag_bound_tokens = mine.lag_bound_tokens;
        my_pool.service = mine.service;
        my_pool.why = why(view, group, mine);
    }
    my_pool
}

/// The classes that a key may use: all, or those that its list names, by themselves or by their family.
fn my_classes(view: &PoolView, caller: &Caller, classes: Option<&Classes>) -> Vec<ClassView> {
    let Some(list) = &caller.rights.classes else { return view.classes.clone() };
    let of_policy = |name: &str| {
        classes.and_then(|classes| classes.all().iter().find(|class| class.name.as_str() == name))
    };
    let may_use = |class: &&ClassView| {
        let cell = of_policy(&class.name).and_then(|class| class.cell.as_ref());
        list.contains(&class.name) || cell.is_some_and(|cell| list.contains(&cell.family))
    };
    view.classes.iter().filter(may_use).cloned().collect()
}

/// Where a tenant's share comes from. Others are counted, never named.
fn why(view: &PoolView, group: Option<&GroupView>, mine: &TenantView) -> String {
    if mine.share_score.is_none() {
        return format!("this pool does not share by tenants, but {}", view.algorithm);
    }
    let siblings = view.tenants.iter().filter(|tenant| {
        tenant.fairshare_group == mine.fairshare_group
            && (tenant.in_flight + tenant.queued > 0 || tenant.tenant_id == mine.tenant_id)
    });
    let (count, sum) = siblings.fold((0_u64, 0), |(n, sum), tenant| (n + 1, sum + tenant.weight));
    let own = format!(
        "tenant {} has weight {} of {sum}, of {count} tenant(s) of its group that want something now",
        mine.tenant_id, mine.weight
    );
    let Some(group) = group.filter(|group| group.share_score.is_some()) else { return own };
    let wanting = view
        .groups
        .iter()
        .filter(|other| other.in_flight + other.queued > 0 || other.name == group.name);
    let (count, sum) = wanting.fold((0_u64, 0), |(n, sum), group| (n + 1, sum + group.weight));
    format!(
        "{own}; group {} has weight {} of {sum}, of {count} group(s) that want something now",
        group.name, group.weight
    )
}

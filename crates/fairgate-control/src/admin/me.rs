//! Handler of `/api/v1/me`, which shows a tenant its own shares, limits and budgets, with the reasons.

use super::limits::limits_body;
use crate::live::{
    FlowNowSource, PoolUnavailableError, add_counts, hide_tokens, only_counts, without_names,
    without_tokens,
};
use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use fairgate_api::admin::{
    BudgetBody, ClassView, FlowCondition, FlowNow, GroupView, LimitsLeftBody, MeBody, MyPoolBody,
    PoolView, ServiceView, TenantView,
};
use fairgate_config::CostUnit;
use fairgate_core::attribute::Attribute;
use fairgate_core::units::Percentage;
use fairgate_proxy::identity::Caller;
use fairgate_proxy::limits::{LimitOwner, LimitsLeft};
use fairgate_proxy::pools::{PoolHandle, PoolSetup};
use fairgate_proxy::rounding::floor_to_u64;
use fairgate_store::{BudgetOwners, Directory};

use super::api_error::ApiError;
use super::auth::Viewer;
use super::budgets::{budgets, model_budgets};
use super::explanation;
use super::fairshare::flow_source;
use super::own_usage::tenant_only;
use crate::control_plane::ControlPlane;

/// Shows the caller's share of each pool and the reason for it.
///
/// Also shows how many of the caller's requests wait and are in flight, and how much is left of the
/// caller's limits and budgets.
#[utoipa::path(
    get, path = "/api/v1/me", tag = "tenants", security(("tenant" = [])),
    responses((status = 200, description = "What the tenant is due, has and has left", body = MeBody)),
)]
pub(super) async fn me(
    State(app): State<Arc<ControlPlane>>,
    viewer: Viewer,
) -> Result<Json<MeBody>, ApiError> {
    let caller = tenant_only(viewer, "/api/v1/fairshare/live")?;
    let directory = app.data.identity.directory();
    let mut pools = Vec::new();
    for pool in app.data.pools.all() {
        pools.push(pool_of(&app, &pool, &caller, &directory).await?);
    }
    let now = Instant::now();
    let left =
        |owner, name, limits| limits_left(limits, app.data.limits.left(owner, name, limits, now));
    Ok(Json(MeBody {
        group: caller.group.to_string(),
        tenant: caller.tenant.to_string(),
        key: caller.key.to_string(),
        rights: fairgate_fleet::rights_body(&caller.rights),
        tenant_limits: left(LimitOwner::Tenant, &caller.tenant, &caller.tenant_limits),
        key_limits: left(LimitOwner::Key, &caller.key, &caller.key_limits),
        budgets: my_budgets(&app, &caller).await?,
        pools,
    }))
}

/// Returns all budgets that the caller's requests use.
async fn my_budgets(app: &ControlPlane, caller: &Caller) -> Result<Vec<BudgetBody>, ApiError> {
    let hosted =
        caller.may_use_hosted && app.data.pools.all().iter().any(|pool| pool.has_hosted_tier());
    let owners = BudgetOwners {
        group: Some(&caller.group),
        key: Some(&caller.key),
        hosted,
        ..BudgetOwners::tenant(&caller.tenant)
    };
    let mut all = budgets(app, owners).await?;
    if hosted {
        let may_ask = |model: &str| caller.rights.allows_model(model);
        all.extend(model_budgets(app, may_ask).await?);
    }
    Ok(all)
}

fn limits_left(limits: &fairgate_store::DirectoryLimits, left: LimitsLeft) -> LimitsLeftBody {
    LimitsLeftBody {
        limits: limits_body(limits),
        requests_left: left.requests,
        tokens_left: left.tokens,
    }
}

/// Returns the caller's share of a pool.
pub(super) async fn pool_of(
    app: &ControlPlane,
    pool: &PoolHandle,
    caller: &Caller,
    directory: &Directory,
) -> Result<MyPoolBody, PoolUnavailableError> {
    let recent = app.flows.recent(pool).await?;
    let view = recent.view(&pool.name, directory);
    let source = flow_source(app, &pool.name, directory);
    Ok(my_pool(view, caller, &pool.setup(), &source))
}

fn my_pool(
    view: &PoolView,
    caller: &Caller,
    setup: &PoolSetup,
    source: &FlowNowSource<'_>,
) -> MyPoolBody {
    let mine = view
        .tenants
        .iter()
        .find(|tenant| *tenant.tenant == *caller.tenant && *tenant.group == *caller.group);
    let group = view.groups.iter().find(|group| *group.name == *caller.group);
    let mut my_pool = MyPoolBody {
        pool: view.pool.clone(),
        unit: setup.unit().name().to_owned(),
        summary: String::new(),
        slots: view.slots,
        expected_wait_ms: None,
        now: FlowNow::default(),
        max_in_flight: view.slots,
        in_flight: 0,
        queued: 0,
        slot_cap: None,
        weight_share: None,
        lag: Some(0),
        lag_bound: None,
        lag_tokens: Some(0),
        lag_bound_tokens: None,
        service: ServiceView::default(),
        classes: my_classes(view, caller, setup, source),
        why: "it has sent nothing to this pool yet; its share is worked out when it does"
            .to_owned(),
    };
    if let Some(mine) = mine {
        my_pool.in_flight = mine.in_flight;
        my_pool.queued = mine.queued;
        my_pool.slot_cap = mine.slot_cap.or_else(|| group.and_then(|group| group.slot_cap));
        my_pool.expected_wait_ms = mine.expected_wait_ms.filter(|_| mine.queued > 0);
        my_pool.now = FlowNow { cap: my_pool.slot_cap, ..mine.now.clone() };
        let in_flight = mine.in_flight;
        source.complete(Attribute::Tenant, &caller.tenant, in_flight, &mut my_pool.now);
        my_pool.weight_share = mine.weight_share;
        (my_pool.lag, my_pool.lag_bound) = (Some(mine.lag), mine.lag_bound);
        my_pool.lag_tokens = mine.lag_tokens;
        my_pool.lag_bound_tokens = mine.lag_bound_tokens;
        my_pool.service = without_names(mine.service.clone());
        my_pool.why = why(view, group, mine);
    } else {
        source.complete(Attribute::Tenant, &caller.tenant, 0, &mut my_pool.now);
        if my_pool.now.state == FlowCondition::Idle && my_pool.now.last_refusal.is_none() {
            my_pool.now.state = FlowCondition::NeverSeen;
        } else {
            my_pool.why = "none of its requests waits or is in flight here; its share is worked out when one does"
                .to_owned();
        }
    }
    if setup.shares_cached_prompts() {
        hide_pool_tokens(&mut my_pool);
        merge_families(&mut my_pool, setup);
    }
    if setup.unit() != CostUnit::Tokens {
        clear_token_names(&mut my_pool);
    }
    my_pool.summary = summary(&my_pool);
    my_pool
}

/// Returns one sentence about the state of the tenant's requests, and the reason for it.
fn summary(mine: &MyPoolBody) -> String {
    let (pool, waiting) = (&mine.pool, mine.now.waiting);
    let parts = match (mine.now.due_share, mine.now.got_share) {
        (Some(due), Some(got)) => format!(
            "; you were due {} of the last {} s and got {}",
            percent(due),
            mine.now.window_s,
            percent(got)
        ),
        _ => String::new(),
    };
    let wait = match mine.expected_wait_ms {
        Some(wait) => format!(", the last of them for about {}", explanation::duration(wait)),
        None => String::new(),
    };
    let in_flight = mine.in_flight;
    match mine.now.state {
        FlowCondition::NeverSeen => format!("You have sent nothing to {pool} yet"),
        FlowCondition::Disabled => "Your tenant is disabled; an operator can enable it".to_owned(),
        FlowCondition::Held => {
            format!("An operator holds your requests to {pool}; {waiting} of them wait")
        }
        FlowCondition::OverBudget => format!(
            "A budget is used up, so requests to {pool} are refused; {waiting} of yours wait{wait}"
        ),
        FlowCondition::RateLimited => format!(
            "A limit per minute is reached, so some requests are refused; {waiting} of yours wait in {pool}{wait}"
        ),
        FlowCondition::AtCap => format!(
            "You have {in_flight} requests in flight in {pool}, as many as your cap allows; {waiting} wait{wait}"
        ),
        FlowCondition::Waiting => {
            format!("{waiting} of your requests wait in {pool}{wait}{parts}")
        }
        FlowCondition::Idle => {
            format!("Nothing of yours waits in {pool}; {in_flight} in flight{parts}")
        }
    }
}

/// Clears fields such as `lag_tokens`, because the pool counts in another unit than tokens.
fn clear_token_names(mine: &mut MyPoolBody) {
    (mine.lag_tokens, mine.lag_bound_tokens) = (None, None);
    mine.now.clear_token_names();
    mine.service.clear_token_names();
    mine.classes.iter_mut().for_each(ClassView::clear_token_names);
}

/// Removes the token counts, because they depend on which prompts other tenants have sent.
fn hide_pool_tokens(mine: &mut MyPoolBody) {
    (mine.lag, mine.lag_bound) = (None, None);
    (mine.lag_tokens, mine.lag_bound_tokens) = (None, None);
    mine.service = without_tokens(std::mem::take(&mut mine.service));
    hide_tokens(&mut mine.now);
    for class in &mut mine.classes {
        hide_tokens(&mut class.now);
        (class.deficit, class.deficit_tokens) = (None, None);
        class.service = without_tokens(std::mem::take(&mut class.service));
    }
}

/// Replaces the classes of each family by one row. What is cached decides which class of its family
/// a request is in, so the classes would show a tenant what is cached.
fn merge_families(mine: &mut MyPoolBody, setup: &PoolSetup) {
    let mut merged: Vec<ClassView> = Vec::new();
    for mut class in std::mem::take(&mut mine.classes) {
        if let Some(family) = setup.family(&class.name) {
            // The share depends on the weight of the class that the tenant's requests are in.
            mine.weight_share = None;
            class = ClassView {
                name: family.to_owned(),
                in_flight: class.in_flight,
                queued: class.queued,
                now: only_counts(&class.now),
                ..ClassView::default()
            };
        }
        match merged.iter_mut().find(|known| known.name == class.name) {
            Some(known) => {
                known.in_flight += class.in_flight;
                known.queued += class.queued;
                add_counts(&mut known.now, &class.now);
            }
            None => merged.push(class),
        }
    }
    merged.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    mine.classes = merged;
}

/// Returns the classes that a key may use, with their current state.
fn my_classes(
    view: &PoolView,
    caller: &Caller,
    setup: &PoolSetup,
    source: &FlowNowSource<'_>,
) -> Vec<ClassView> {
    let mut classes = allowed_classes(view, caller, setup);
    for class in &mut classes {
        source.complete(Attribute::Class, &class.name, class.in_flight, &mut class.now);
        // Refusals in the class are not shown, because they may be those of other tenants.
        (class.now.refused, class.now.last_refusal) = (0, None);
    }
    classes
}

/// Returns the classes that a key may use. These are the classes that the key's list names directly or by their family.
/// A key with an empty list may use only the default class. A key without a list may use all classes, or only the default
/// class if the classes have a strict order.
fn allowed_classes(view: &PoolView, caller: &Caller, setup: &PoolSetup) -> Vec<ClassView> {
    let list: Vec<&str> = match (&caller.rights.classes, &setup.strict_defaults) {
        (Some(list), _) if list.is_empty() => {
            setup.default_classes.iter().map(|name| &**name).collect()
        }
        (Some(list), _) => list.iter().map(String::as_str).collect(),
        (None, Some(defaults)) => defaults.iter().map(|name| &**name).collect(),
        (None, None) => return view.classes.clone(),
    };
    let classes = setup.config.classes.as_ref();
    let of_policy = |name: &str| {
        classes.and_then(|classes| classes.all().iter().find(|class| class.name.as_str() == name))
    };
    let may_use = |class: &&ClassView| {
        let cell = of_policy(&class.name).and_then(|class| class.cell.as_ref());
        list.contains(&&*class.name) || cell.is_some_and(|cell| list.contains(&&*cell.family))
    };
    view.classes.iter().filter(may_use).cloned().collect()
}

/// Prints a part as a percentage.
fn percent(part: f64) -> String {
    Percentage::from_ppm(floor_to_u64((part * 1e6).round())).to_string()
}

/// Explains a tenant's share in words. Other tenants are counted, never named.
fn why(view: &PoolView, group: Option<&GroupView>, mine: &TenantView) -> String {
    if mine.share_score.is_none() {
        return format!("this pool does not share by tenants, but {}", view.algorithm);
    }
    let strict = match view.classes.iter().any(|class| class.service.strict.is_some()) {
        true => {
            "; this is a share of what the classes before its own leave, which have a strict order"
        }
        false => "",
    };
    let siblings = view.tenants.iter().filter(|tenant| {
        tenant.group == mine.group
            && (tenant.in_flight + tenant.queued > 0 || tenant.tenant == mine.tenant)
    });
    let (count, sum) = siblings.fold((0_u64, 0), |(n, sum), tenant| (n + 1, sum + tenant.weight));
    let own = format!(
        "tenant {} has weight {} of {sum}, of {count} tenant(s) of its group that want something now",
        mine.tenant, mine.weight
    );
    let Some(group) = group.filter(|group| group.share_score.is_some()) else {
        return format!("{own}{strict}");
    };
    let wanting = view
        .groups
        .iter()
        .filter(|other| other.in_flight + other.queued > 0 || other.name == group.name);
    let (count, sum) = wanting.fold((0_u64, 0), |(n, sum), group| (n + 1, sum + group.weight));
    format!(
        "{own}; group {} has weight {} of {sum}, of {count} group(s) that want something now{strict}",
        group.name, group.weight
    )
}

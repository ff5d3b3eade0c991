//! Applies the groups, tenants and keys of the configuration file to the directory.

use std::path::PathBuf;
use std::sync::Arc;

use fairgate_config::{
    ConfigError, ConfigErrors, DeclaredBudget, DeclaredDirectory, DeclaredGroup, DeclaredKey,
    DeclaredLimits, DeclaredRights, DeclaredTenant, FilePosition,
};
use fairgate_store::{
    Budget, BudgetPeriod, BudgetTier, BudgetUnit, DeclarationConflict, DeclarationError,
    DeclarationPlan, Declarations, DeclaredObject, DeclaredSource, DirectoryLimits, Group,
    HostedUse, Key, KeyHash, KeyRights, Store, StoreError, Tenant, UnixMicros,
};
use fairgate_time::wall_clock;

/// Reason why the groups, tenants and keys of a file were not applied. Nothing has changed then.
#[derive(Debug, thiserror::Error)]
pub enum GatewayDeclarationError {
    /// A declaration contradicts the directory.
    #[error(transparent)]
    Conflict(#[from] ConfigErrors),
    /// More than half of the declared tenants and keys that can be used now would be disabled.
    #[error(
        "the file no longer declares {disabled} of {usable} tenants and keys, which is more than half: they would be \
         disabled, so nothing has changed; the log lists them, and if that is meant, say so: `fairgate reload --yes`, or \
         `fairgate serve --yes` at a start"
    )]
    DisablesMost {
        /// Number of tenants and keys that would be disabled.
        disabled: usize,
        /// Number of declared tenants and keys that can be used now.
        usable: usize,
    },
    /// The database could not be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Converts the declarations of a file to the form of the store. `gateway` is the name of this
/// gateway.
pub(crate) fn declarations(declared: &DeclaredDirectory, gateway: String) -> Arc<Declarations> {
    let DeclaredDirectory { file, is_stated, groups, tenants, keys } = declared;
    Arc::new(Declarations {
        file: file.display().to_string(),
        gateway,
        is_stated: *is_stated,
        groups: groups.iter().map(|it| object(it.line, group(it))).collect(),
        tenants: tenants.iter().map(|it| object(it.line, tenant(it))).collect(),
        keys: keys.iter().map(|it| object(it.line, key(it))).collect(),
    })
}

/// Compares the declarations with the directory, and changes nothing.
pub(crate) async fn preview(
    store: &Store,
    declared: &Arc<Declarations>,
) -> Result<DeclarationPlan, GatewayDeclarationError> {
    let plan = store.preview_declarations(declared.clone(), wall_clock::now()).await;
    plan.map_err(|error| located(error, declared))
}

/// Logs what the declarations change, and then applies them. Changes nothing if they would disable
/// more than half of the declared tenants and keys, unless `may_disable_most`.
pub(crate) async fn apply(
    store: &Store,
    declared: &Arc<Declarations>,
    may_disable_most: bool,
) -> Result<DeclarationPlan, GatewayDeclarationError> {
    log(&preview(store, declared).await?, declared);
    let plan =
        store.apply_declarations(declared.clone(), wall_clock::now(), may_disable_most).await;
    plan.map_err(|error| located(error, declared))
}

fn log(plan: &DeclarationPlan, declared: &Declarations) {
    if let Some(DeclaredSource { gateway, file, applied_at, .. }) = &plan.replaces {
        tracing::warn!(
            by = gateway,
            other_file = file,
            file = declared.file,
            at = %fairgate_time::to_rfc3339(*applied_at),
            "this file replaces the groups, tenants and keys that another gateway has declared: the later reload wins; give \
             all gateways on one database the same ones"
        );
    }
    if let Some(DeclaredSource { gateway, file, .. }) = &plan.leaves {
        tracing::info!(
            by = gateway,
            other_file = file,
            "this file has no groups, tenants and keys, and leaves those that another file declares"
        );
    }
    for step in &plan.steps {
        match step.is_disabling() {
            true => tracing::warn!(%step, "to be disabled: the file no longer declares it"),
            false => tracing::info!(%step, "declared by the configuration file"),
        }
    }
}

/// Adds the path and the line of the file to a conflict.
fn located(error: DeclarationError, declared: &Declarations) -> GatewayDeclarationError {
    match error {
        DeclarationError::Conflict(DeclarationConflict { line, field, problem }) => {
            let line = usize::try_from(line).unwrap_or(usize::MAX);
            let error = ConfigError {
                file: Some(PathBuf::from(&declared.file)),
                place: Some(FilePosition { line, column: 1 }),
                field,
                message: problem,
            };
            ConfigErrors::from(error).into()
        }
        DeclarationError::DisablesMost { disabled, usable } => {
            GatewayDeclarationError::DisablesMost { disabled, usable }
        }
        DeclarationError::Store(error) => error.into(),
    }
}

fn object<T>(line: usize, object: T) -> DeclaredObject<T> {
    DeclaredObject { line: u64::try_from(line).unwrap_or(u64::MAX), object }
}

/// Creation time of an object that is declared and not created yet.
const UNKNOWN: UnixMicros = UnixMicros(0);

fn group(declared: &DeclaredGroup) -> Group {
    let DeclaredGroup { line: _, name, weight, budgets } = declared;
    Group {
        name: name.clone(),
        weight: *weight,
        budgets: budgets.iter().map(budget).collect(),
        created_at: UNKNOWN,
    }
}

fn tenant(declared: &DeclaredTenant) -> Tenant {
    let DeclaredTenant { line: _, name, group, weight, disabled, limits: bounds, requires } =
        declared;
    Tenant {
        name: name.clone(),
        group: group.clone(),
        weight: *weight,
        disabled: *disabled,
        limits: limits(bounds),
        requires: requires.clone(),
        created_at: UNKNOWN,
    }
}

fn key(declared: &DeclaredKey) -> Key {
    let DeclaredKey {
        line: _,
        tenant,
        name,
        hash,
        hint,
        source: _,
        weight,
        limits: bounds,
        rights: choices,
        expires_at,
    } = declared;
    Key {
        id: String::new(),
        tenant: tenant.clone(),
        name: name.clone(),
        hint: hint.clone(),
        hash: KeyHash(hash.0),
        weight: *weight,
        limits: limits(bounds),
        rights: rights(choices),
        created_at: UNKNOWN,
        expires_at: *expires_at,
        revoked_at: None,
    }
}

fn limits(declared: &DeclaredLimits) -> DirectoryLimits {
    let DeclaredLimits {
        in_flight,
        queued_requests,
        queued_bytes,
        requests_per_minute,
        tokens_per_minute,
        never_hosted,
        budgets,
    } = declared;
    DirectoryLimits {
        in_flight: *in_flight,
        queued_requests: *queued_requests,
        queued_bytes: *queued_bytes,
        requests_per_minute: *requests_per_minute,
        tokens_per_minute: *tokens_per_minute,
        budgets: budgets.iter().map(budget).collect(),
        hosted: if *never_hosted { HostedUse::Never } else { HostedUse::Allowed },
    }
}

fn budget(declared: &DeclaredBudget) -> Budget {
    let DeclaredBudget { is_hosted, is_monthly, is_money, amount } = *declared;
    Budget {
        period: if is_monthly { BudgetPeriod::Month } else { BudgetPeriod::Day },
        unit: if is_money { BudgetUnit::Money } else { BudgetUnit::Tokens },
        tier: if is_hosted { BudgetTier::Hosted } else { BudgetTier::Any },
        amount,
    }
}

fn rights(declared: &DeclaredRights) -> KeyRights {
    let DeclaredRights {
        models,
        classes,
        priority_max,
        weight_max_milli,
        workers,
        may_pin,
        may_lease,
        may_use_foreign_ids,
        taints,
        deadline,
        deadline_min,
    } = declared.clone();
    let millis = |time: std::time::Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    KeyRights {
        models,
        classes,
        priority_max,
        weight_max_milli,
        workers,
        may_pin,
        may_lease,
        may_use_foreign_ids,
        taints,
        deadline_ms: deadline.map(millis),
        deadline_min_ms: deadline_min.map(millis),
    }
}

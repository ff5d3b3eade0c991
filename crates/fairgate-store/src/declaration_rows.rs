//! Reads and writes declarations inside a transaction, with the same code for both databases.

use serde_json::Value as Json;

use fairgate_time::UnixMicros;

use crate::declaration_record::{DeclarationRecord, DeclaredSource};
use crate::declarations::{
    DeclarationAction, DeclarationError, DeclarationPlan, DeclarationStep, Declarations,
    DeclaredChange, plan_declarations,
};
use crate::directory::Directory;
use crate::error::StoreError;
use crate::rows::{self, RowColumns, WordColumns};
use crate::sql::{self, SqlStatement, SqlValue};
use crate::stored_words::StoredWord;
use crate::transaction::{DatabaseKind, Transaction};

type Result<T> = std::result::Result<T, StoreError>;

/// Author of the changes in the audit trail.
const ACTOR: &str = "config";

/// Selects the notes about all declared objects.
pub(crate) const DECLARED: &str = "SELECT kind, name, file, line, withdrawn FROM declared_objects";
pub(crate) const WHERE_KIND_AND_NAME: &str = " WHERE kind = $1 AND name = $2";
pub(crate) const DECLARED_SOURCE: &str =
    "SELECT gateway, file, digest, applied_at FROM declared_source";

pub(crate) fn record(row: &(impl RowColumns + ?Sized)) -> Result<DeclarationRecord> {
    Ok(DeclarationRecord {
        kind: row.word(0)?,
        name: row.text(1)?,
        file: row.text(2)?,
        line: row.count(3)?,
        is_withdrawn: row.flag(4)?,
    })
}

pub(crate) fn source(row: &(impl RowColumns + ?Sized)) -> Result<DeclaredSource> {
    Ok(DeclaredSource {
        gateway: row.text(0)?,
        file: row.text(1)?,
        digest: row.text(2)?,
        applied_at: row.moment(3)?,
    })
}

/// Reads the whole directory inside a transaction.
fn directory(transaction: &mut dyn Transaction) -> Result<Directory> {
    let version = transaction.first(sql::DIRECTORY_VERSION, &[], |row| row.int(0))?;
    let mut directory = rows::directory(
        version.unwrap_or(0),
        transaction.list(sql::GROUPS, &[], |row| rows::group(row))?,
        transaction.list(sql::TENANTS, &[], |row| rows::tenant(row))?,
        transaction.list(sql::KEYS, &[], |row| rows::key(row))?,
        transaction.list(sql::BUDGETS, &[], |row| rows::budget(row))?,
    );
    directory.set_declarations(
        transaction.list(DECLARED, &[], |row| record(row))?,
        transaction.first(DECLARED_SOURCE, &[], |row| source(row))?,
    );
    Ok(directory)
}

/// Returns what the declarations would change.
pub(crate) fn preview(
    transaction: &mut dyn Transaction,
    declared: &Declarations,
    at: UnixMicros,
) -> std::result::Result<DeclarationPlan, DeclarationError> {
    Ok(plan_declarations(declared, &directory(transaction)?, at)?)
}

/// Makes the changes of the declarations, with an audit entry for each. Fails without any change if
/// they would disable more than half of the declared tenants and keys, unless `may_disable_most` is
/// true.
pub(crate) fn apply(
    transaction: &mut dyn Transaction,
    declared: &Declarations,
    at: UnixMicros,
    may_disable_most: bool,
) -> std::result::Result<DeclarationPlan, DeclarationError> {
    // No other change of the directory may come between the plan and its statements. SQLite needs
    // no lock, because it has one writer.
    if transaction.database() == DatabaseKind::Postgres {
        let lock = [sql::DIRECTORY_VERSION, " FOR UPDATE"].concat();
        transaction.first(&lock, &[], |row| row.int(0))?;
    }
    let plan = preview(transaction, declared, at)?;
    if plan.disables_most() && !may_disable_most {
        let (disabled, usable) = (plan.disabled(), plan.usable);
        return Err(DeclarationError::DisablesMost { disabled, usable });
    }
    if plan.is_empty() {
        return Ok(plan);
    }
    let steps = plan.steps.iter().flat_map(|step| step_statements(step, at));
    let records = plan.records.iter().map(put_record);
    let source = plan.source.as_ref().map(put_source);
    for SqlStatement { sql, values } in steps.chain(records).chain(source) {
        transaction.run(&sql, &values)?;
    }
    transaction.first(sql::BUMP_VERSION, &[], |row| row.int(0))?;
    Ok(plan)
}

/// Builds the statements of a step, and its audit entry.
fn step_statements(step: &DeclarationStep, at: UnixMicros) -> Vec<SqlStatement> {
    let DeclarationStep { action, change, .. } = step;
    let is_written = !matches!(action, DeclarationAction::Declare | DeclarationAction::Release);
    let (kind, subject, mut statements, before, after) = match change {
        DeclaredChange::Group(before, after) => {
            let put = if is_written { sql::put_group(after) } else { Vec::new() };
            ("group", &after.name, put, before.as_ref().map(json), json(after))
        }
        DeclaredChange::Tenant(before, after) => {
            let put = if is_written { sql::put_tenant(after) } else { Vec::new() };
            ("tenant", &after.name, put, before.as_ref().map(json), json(after))
        }
        DeclaredChange::Key(before, after) => {
            let put = if is_written { sql::put_key(after) } else { Vec::new() };
            ("key", &after.id, put, before.as_ref().map(json), json(after))
        }
    };
    let word = match (action, kind) {
        (DeclarationAction::Create, "key") => "create",
        (DeclarationAction::Create, _) => "add",
        (DeclarationAction::Change, _) => "patch",
        (DeclarationAction::Rotate, _) => "rotate",
        (DeclarationAction::Disable, "key") => "revoke",
        // A disabled tenant can then be restored by undoing the entry, like any other patch.
        (DeclarationAction::Disable, _) => "patch",
        (DeclarationAction::Declare, _) => "declare",
        (DeclarationAction::Release, _) => "release",
    };
    let text = |json: Json| json.to_string();
    let action = format!("{kind}.{word}");
    statements.push(sql::put_audit(
        ACTOR,
        at,
        &action,
        subject,
        before.map(text),
        Some(text(after)),
    ));
    statements
}

fn json(value: &impl serde::Serialize) -> Json {
    serde_json::to_value(value).unwrap_or(Json::Null)
}

fn put_record(record: &DeclarationRecord) -> SqlStatement {
    let DeclarationRecord { kind, name, file, line, is_withdrawn } = record;
    SqlStatement::new(
        "INSERT INTO declared_objects (kind, name, file, line, withdrawn) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT (kind, name) DO UPDATE SET file = excluded.file, line = excluded.line, \
         withdrawn = excluded.withdrawn",
        vec![
            StoredWord::word(*kind).into(),
            name.clone().into(),
            file.clone().into(),
            SqlValue::Int(i64::try_from(*line).unwrap_or(i64::MAX)),
            (*is_withdrawn).into(),
        ],
    )
}

fn put_source(source: &DeclaredSource) -> SqlStatement {
    let DeclaredSource { gateway, file, digest, applied_at } = source;
    SqlStatement::new(
        "INSERT INTO declared_source (one, gateway, file, digest, applied_at) VALUES (1, $1, $2, $3, $4) \
         ON CONFLICT (one) DO UPDATE SET gateway = excluded.gateway, file = excluded.file, \
         digest = excluded.digest, applied_at = excluded.applied_at",
        vec![
            gateway.clone().into(),
            file.clone().into(),
            digest.clone().into(),
            (*applied_at).into(),
        ],
    )
}

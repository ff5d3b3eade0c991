//! SQL statements that are identical for both databases.
//!
//! Placeholders are written `$1`, `$2`, … and must first appear in that order, because SQLite
//! treats them as names and gives them numbers in the order of their appearance.

mod sums;
mod usage;

use fairgate_money::Price;
use fairgate_time::UnixMicros;

use crate::budget::{Budget, BudgetScope, HOSTED_OWNER};
use crate::directory::{DirectoryLimits, Group, Key, Tenant};
use crate::ledger::{AuditQuery, LedgerQuery};
use crate::stored_words::StoredWord;

pub(crate) use sums::{
    ADD_SUM, ATTEMPTS_MADE, BUDGETS_LEFT, BUDGETS_USED, DROP_LOST, DROP_LOST_ATTEMPT,
    DROP_RESERVATION, MODEL_SUMS, NOTE_LOST, NOTE_LOST_ATTEMPT, PUT_RESERVATION, RESERVATIONS,
    add_to_sum, guess_columns, note_removed, reservation_columns, sum_columns,
};

pub(crate) use usage::usage;

/// Value for a placeholder of an SQL statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlValue {
    /// An integer that is not null.
    Int(i64),
    /// An integer, or null.
    MaybeInt(Option<i64>),
    /// A text that is not null.
    Text(String),
    /// A text, or null.
    MaybeText(Option<String>),
    /// A boolean that is not null.
    Flag(bool),
    /// Bytes that are not null.
    Bytes(Vec<u8>),
    /// Bytes of a blob column, or null.
    MaybeBytes(Option<Vec<u8>>),
}

macro_rules! value_from {
    ($($from:ty => $kind:ident;)*) => {$(
        impl From<$from> for SqlValue {
            fn from(value: $from) -> Self {
                Self::$kind(value.into())
            }
        }
    )*};
}

value_from! {
    i64 => Int;
    u32 => Int;
    &str => Text;
    String => Text;
    bool => Flag;
    Vec<u8> => Bytes;
    Option<i64> => MaybeInt;
    Option<String> => MaybeText;
    Option<Vec<u8>> => MaybeBytes;
}

impl From<UnixMicros> for SqlValue {
    fn from(moment: UnixMicros) -> Self {
        Self::Int(moment.0)
    }
}

/// A statement and the values for its placeholders.
#[derive(Clone, Debug)]
pub(crate) struct SqlStatement {
    pub(crate) sql: String,
    pub(crate) values: Vec<SqlValue>,
}

impl SqlStatement {
    pub(crate) fn new(sql: &str, values: Vec<SqlValue>) -> Self {
        Self { sql: sql.to_owned(), values }
    }

    /// Adds a condition to the statement if `value` is not `None`. The first condition follows
    /// `WHERE`, the others follow `AND`.
    pub(crate) fn filter(&mut self, condition: &str, value: Option<SqlValue>) {
        if let Some(value) = value {
            let word = if self.values.is_empty() { "WHERE" } else { "AND" };
            let place = self.value(value);
            self.sql.push_str(&format!(" {word} {condition} {place}"));
        }
    }

    pub(crate) fn limit(&mut self, rows: i64) {
        let place = self.value(SqlValue::Int(rows));
        self.sql.push_str(&format!(" LIMIT {place}"));
    }

    /// Adds a value and returns its placeholder, which the caller writes into the statement.
    pub(crate) fn value(&mut self, value: SqlValue) -> String {
        self.values.push(value);
        format!("${}", self.values.len())
    }
}

/// Minimal query with which the store checks that the database answers.
pub(crate) const PING: &str = "SELECT version FROM directory";

// The directory.

pub(crate) const DIRECTORY_VERSION: &str = "SELECT version FROM directory";
pub(crate) const BUMP_VERSION: &str =
    "UPDATE directory SET version = version + 1 RETURNING version";
pub(crate) const GROUPS: &str = "SELECT name, weight, created_at FROM tenant_groups";
pub(crate) const TENANTS: &str = "SELECT name, group_name, weight, disabled, in_flight, queued_requests, queued_bytes, \
     requests_per_minute, tokens_per_minute, hosted, created_at, requires FROM tenants";
pub(crate) const KEYS: &str = "SELECT id, tenant, name, hint, hash, weight, in_flight, queued_requests, queued_bytes, \
     requests_per_minute, tokens_per_minute, hosted, rights, created_at, expires_at, revoked_at FROM tenant_keys";
pub(crate) const BUDGETS: &str = "SELECT scope, owner, period, unit, tier, amount FROM budgets";
pub(crate) const WHERE_NAME: &str = " WHERE name = $1";
pub(crate) const WHERE_ID: &str = " WHERE id = $1";
pub(crate) const WHERE_OWNER: &str = " WHERE scope = $1 AND owner = $2";
pub(crate) const TENANTS_OF_GROUP: &str = "SELECT COUNT(*) FROM tenants WHERE group_name = $1";
pub(crate) const KEYS_OF_TENANT: &str = "SELECT id FROM tenant_keys WHERE tenant = $1 ORDER BY id";

/// Selects all prices that were ever in force, oldest first.
pub(crate) const PRICES: &str = "SELECT id, model, upstream, currency, input, cached_input, output, request, from_day, \
     first_seen, cache_write, cache_write_1h FROM prices ORDER BY first_seen, model, id";
/// Selects the currency of the installation; no row before the first price was stored.
pub(crate) const CURRENCY: &str = "SELECT currency FROM prices LIMIT 1";

pub(crate) fn put_price(price: &Price, at: UnixMicros) -> SqlStatement {
    let rates = &price.rates;
    let numbers = [rates.input.0, rates.cached_input.0, rates.output.0, rates.request.0];
    let mut values = vec![
        SqlValue::Text(price.id.clone()),
        SqlValue::Text(price.model.clone()),
        SqlValue::MaybeText(price.upstream.clone()),
        SqlValue::Text(price.currency.to_string()),
    ];
    values.extend(numbers.map(|number| SqlValue::Int(int(number))));
    values.extend([SqlValue::MaybeInt(price.from.map(|day| day.0)), SqlValue::Int(at.0)]);
    let writes = [rates.cache_write, rates.cache_write_1h];
    values.extend(writes.map(|rate| SqlValue::MaybeInt(rate.map(|rate| int(rate.0)))));
    SqlStatement::new(
        "INSERT INTO prices (id, model, upstream, currency, input, cached_input, output, request, from_day, first_seen, \
         cache_write, cache_write_1h) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        values,
    )
}

fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn moment(at: Option<UnixMicros>) -> SqlValue {
    SqlValue::MaybeInt(at.map(|at| at.0))
}

pub(crate) fn put_group(group: &Group) -> Vec<SqlStatement> {
    let put = SqlStatement::new(
        "INSERT INTO tenant_groups (name, weight, created_at) VALUES ($1, $2, $3) \
         ON CONFLICT (name) DO UPDATE SET weight = excluded.weight",
        vec![
            SqlValue::Text(group.name.clone()),
            SqlValue::Int(int(group.weight)),
            SqlValue::Int(group.created_at.0),
        ],
    );
    std::iter::once(put)
        .chain(put_budgets(BudgetScope::Group, &group.name, &group.budgets))
        .collect()
}

/// Builds the statements that delete a group and its budgets.
pub(crate) fn drop_group(name: &str) -> Vec<SqlStatement> {
    let values = vec![SqlValue::Text(name.to_owned())];
    let drop = SqlStatement::new("DELETE FROM tenant_groups WHERE name = $1", values);
    vec![drop_budgets(BudgetScope::Group, name), drop, drop_record("group", name)]
}

/// Builds the statements that replace the budgets of the hosted tier as a whole.
pub(crate) fn put_hosted(budgets: &[Budget]) -> Vec<SqlStatement> {
    put_budgets(BudgetScope::Hosted, HOSTED_OWNER, budgets)
}

pub(crate) fn put_tenant(tenant: &Tenant) -> Vec<SqlStatement> {
    let mut values = vec![
        SqlValue::Text(tenant.name.clone()),
        SqlValue::Text(tenant.group.clone()),
        SqlValue::Int(int(tenant.weight)),
        SqlValue::Flag(tenant.disabled),
    ];
    values.extend(limits(&tenant.limits));
    values.push(SqlValue::Int(tenant.created_at.0));
    values.push(SqlValue::Text(serde_json::Value::from(tenant.requires.as_slice()).to_string()));
    let put = SqlStatement::new(
        "INSERT INTO tenants (name, group_name, weight, disabled, in_flight, queued_requests, queued_bytes, \
         requests_per_minute, tokens_per_minute, hosted, created_at, requires) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) \
         ON CONFLICT (name) DO UPDATE SET group_name = excluded.group_name, weight = excluded.weight, \
         disabled = excluded.disabled, in_flight = excluded.in_flight, \
         queued_requests = excluded.queued_requests, queued_bytes = excluded.queued_bytes, \
         requests_per_minute = excluded.requests_per_minute, tokens_per_minute = excluded.tokens_per_minute, \
         hosted = excluded.hosted, requires = excluded.requires",
        values,
    );
    let budgets = put_budgets(BudgetScope::Tenant, &tenant.name, &tenant.limits.budgets);
    std::iter::once(put).chain(budgets).collect()
}

/// Builds the statements that delete a tenant, its keys, and the budgets of all of them.
pub(crate) fn drop_tenant(name: &str, keys: &[String]) -> Vec<SqlStatement> {
    let mut statements = vec![drop_budgets(BudgetScope::Tenant, name)];
    statements.extend(keys.iter().map(|key| drop_budgets(BudgetScope::Key, key)));
    statements.push(drop_record("tenant", name));
    statements.extend(keys.iter().map(|key| drop_record("key", key)));
    let name = || vec![SqlValue::Text(name.to_owned())];
    let uses =
        "DELETE FROM key_uses WHERE key_id IN (SELECT id FROM tenant_keys WHERE tenant = $1)";
    statements.push(SqlStatement::new(uses, name()));
    statements.push(SqlStatement::new("DELETE FROM tenant_keys WHERE tenant = $1", name()));
    statements.push(SqlStatement::new("DELETE FROM tenants WHERE name = $1", name()));
    statements
}

/// Builds the statements that write a key and its budgets. Rights are stored as JSON.
pub(crate) fn put_key(key: &Key) -> Vec<SqlStatement> {
    let mut values = vec![
        SqlValue::Text(key.id.clone()),
        SqlValue::Text(key.tenant.clone()),
        SqlValue::Text(key.name.clone()),
        SqlValue::Text(key.hint.clone()),
        SqlValue::Bytes(key.hash.0.to_vec()),
        SqlValue::Int(int(key.weight)),
    ];
    values.extend(limits(&key.limits));
    values.extend([
        SqlValue::Text(key.rights.to_stored_text()),
        SqlValue::Int(key.created_at.0),
        moment(key.expires_at),
        moment(key.revoked_at),
    ]);
    let put = SqlStatement::new(
        "INSERT INTO tenant_keys (id, tenant, name, hint, hash, weight, in_flight, queued_requests, queued_bytes, \
         requests_per_minute, tokens_per_minute, hosted, rights, created_at, expires_at, revoked_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) \
         ON CONFLICT (id) DO UPDATE SET name = excluded.name, hint = excluded.hint, hash = excluded.hash, \
         weight = excluded.weight, in_flight = excluded.in_flight, \
         queued_requests = excluded.queued_requests, queued_bytes = excluded.queued_bytes, \
         requests_per_minute = excluded.requests_per_minute, tokens_per_minute = excluded.tokens_per_minute, \
         hosted = excluded.hosted, rights = excluded.rights, \
         expires_at = excluded.expires_at, revoked_at = excluded.revoked_at",
        values,
    );
    let budgets = put_budgets(BudgetScope::Key, &key.id, &key.limits.budgets);
    std::iter::once(put).chain(budgets).collect()
}

/// Lists the values of all limits except budgets, which are in a table of their own.
fn limits(limits: &DirectoryLimits) -> impl Iterator<Item = SqlValue> {
    let numbers = [
        limits.in_flight,
        limits.queued_requests,
        limits.queued_bytes,
        limits.requests_per_minute,
        limits.tokens_per_minute,
    ];
    let numbers = numbers.map(|limit| SqlValue::MaybeInt(limit.map(int)));
    numbers.into_iter().chain([SqlValue::Text(limits.hosted.word().to_owned())])
}

/// Builds the statement that deletes the note about a declared object, because the object is
/// removed.
fn drop_record(kind: &str, name: &str) -> SqlStatement {
    let values = vec![kind.into(), name.into()];
    SqlStatement::new("DELETE FROM declared_objects WHERE kind = $1 AND name = $2", values)
}

fn drop_budgets(scope: BudgetScope, owner: &str) -> SqlStatement {
    SqlStatement::new(
        "DELETE FROM budgets WHERE scope = $1 AND owner = $2",
        vec![SqlValue::Text(scope.word().to_owned()), SqlValue::Text(owner.to_owned())],
    )
}

fn put_budgets(scope: BudgetScope, owner: &str, budgets: &[Budget]) -> Vec<SqlStatement> {
    let put = |budget: &Budget| {
        SqlStatement::new(
            "INSERT INTO budgets (scope, owner, period, unit, tier, amount) VALUES ($1, $2, $3, $4, $5, $6)",
            vec![
                SqlValue::Text(scope.word().to_owned()),
                SqlValue::Text(owner.to_owned()),
                SqlValue::Text(budget.period.word().to_owned()),
                SqlValue::Text(budget.unit.word().to_owned()),
                SqlValue::Text(budget.tier.word().to_owned()),
                SqlValue::Int(int(budget.amount)),
            ],
        )
    };
    std::iter::once(drop_budgets(scope, owner)).chain(budgets.iter().map(put)).collect()
}

// The audit trail.

pub(crate) fn put_audit(
    actor: &str,
    at: UnixMicros,
    action: &str,
    subject: &str,
    before: Option<String>,
    after: Option<String>,
) -> SqlStatement {
    SqlStatement::new(
        "INSERT INTO audit (at, actor, action, subject, before_json, after_json) VALUES ($1, $2, $3, $4, $5, $6)",
        vec![
            SqlValue::Int(at.0),
            SqlValue::Text(actor.to_owned()),
            SqlValue::Text(action.to_owned()),
            SqlValue::Text(subject.to_owned()),
            SqlValue::MaybeText(before),
            SqlValue::MaybeText(after),
        ],
    )
}

pub(crate) fn audit(query: &AuditQuery) -> SqlStatement {
    let mut statement = SqlStatement::new(
        "SELECT id, at, actor, action, subject, before_json, after_json FROM audit",
        Vec::new(),
    );
    statement.filter("id <", query.before.map(SqlValue::Int));
    statement.filter("id =", query.id.map(SqlValue::Int));
    statement.filter("at >=", query.since.map(|at| SqlValue::Int(at.0)));
    statement.filter("at <", query.until.map(|at| SqlValue::Int(at.0)));
    statement.filter("subject =", query.subject.clone().map(SqlValue::Text));
    filter_family(&mut statement, "actor", query.actor.as_deref(), ':');
    filter_family(&mut statement, "action", query.action.as_deref(), '.');
    statement.sql.push_str(" ORDER BY id DESC");
    statement.limit(list_limit(query.limit));
    statement
}

/// Adds a condition on a column. The column must equal `name`. If `name` has no separator, a column
/// that begins with `name` and a separator matches too.
fn filter_family(statement: &mut SqlStatement, column: &str, name: Option<&str>, separator: char) {
    let Some(name) = name else { return };
    if name.contains(separator) {
        return statement.filter(&format!("{column} ="), Some(name.into()));
    }
    // The condition is a range of texts, because a name may have characters with a meaning in a
    // pattern.
    let first = format!("{name}{separator}");
    let after = char::from_u32(u32::from(separator) + 1).unwrap_or(separator);
    let word = if statement.values.is_empty() { "WHERE" } else { "AND" };
    let exact = statement.value(name.into());
    let low = statement.value(first.into());
    let high = statement.value(format!("{name}{after}").into());
    statement.sql.push_str(&format!(
        " {word} ({column} = {exact} OR ({column} >= {low} AND {column} < {high}))"
    ));
}

/// Maximum number of rows or audit entries in a list.
const LIST_MAX: u32 = 1_000;

pub(crate) fn list_limit(asked: u32) -> i64 {
    i64::from(if asked == 0 { LIST_MAX } else { asked.min(LIST_MAX) })
}

// The ledger.

/// SQL columns of an attempt, in the order in which [`crate::rows::attempt`] reads them.
macro_rules! attempt_columns {
    () => {
        "request, attempt, last_attempt, started_at, group_name, tenant, key_id, agent, session, route, streamed, \
         model, pool, worker, estimate, input_tokens, cached_tokens, output_tokens, charged, usage_source, waited_us, \
         first_token_us, total_us, status, outcome, code, brownout, occupied, provider_tokens, money, price, tier, class, \
         project, task, epoch, estimate_uncached, charged_uncached, cache_written_tokens, cache_written_1h_tokens, \
         worker_us, price_set"
    };
}

pub(crate) use attempt_columns;

/// Inserts one row into the ledger. Inserting the same attempt again has no effect.
pub(crate) const PUT_ATTEMPT: &str = concat!(
    "INSERT INTO attempts (",
    attempt_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, \
     $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42) ON CONFLICT (request, attempt) DO NOTHING"
);

pub(crate) fn attempts(query: &LedgerQuery) -> SqlStatement {
    let mut statement =
        SqlStatement::new(concat!("SELECT ", attempt_columns!(), " FROM attempts"), Vec::new());
    statement.filter("request =", query.request.clone().map(SqlValue::Text));
    statement.filter("tenant =", query.tenant.clone().map(SqlValue::Text));
    statement.filter("project =", query.project.clone().map(SqlValue::Text));
    statement.filter("task =", query.task.clone().map(SqlValue::Text));
    statement.filter("started_at >=", query.since.map(|at| SqlValue::Int(at.0)));
    statement.filter("started_at <", query.until.map(|at| SqlValue::Int(at.0)));
    statement.sql.push_str(" ORDER BY started_at DESC, request DESC, attempt DESC");
    statement.limit(list_limit(query.limit));
    statement
}

/// Deletes at most `$2` rows of requests that arrived before `$1`.
pub(crate) const PRUNE: &str = "DELETE FROM attempts WHERE (request, attempt) IN \
     (SELECT request, attempt FROM attempts WHERE started_at < $1 ORDER BY started_at LIMIT $2)";

/// Number of rows that [`PRUNE`] deletes at a time. It is small enough that other transactions need
/// not wait long.
pub(crate) const PRUNE_ROWS: i64 = 1_000;

#[cfg(test)]
mod tests {
    use super::*;
    use fairgate_usage::sql as usage;

    /// SQLite numbers placeholders in the order of their appearance, and PostgreSQL uses their own
    /// numbers. Both must agree.
    #[test]
    fn placeholders_first_appear_in_order() {
        let everything = LedgerQuery {
            request: Some(String::new()),
            tenant: Some(String::new()),
            project: Some(String::new()),
            task: Some(String::new()),
            since: Some(UnixMicros(0)),
            until: Some(UnixMicros(0)),
            limit: 1,
        };
        let statements = [
            PUT_ATTEMPT,
            PRUNE,
            BUDGETS_LEFT,
            BUDGETS_USED,
            MODEL_SUMS,
            ADD_SUM,
            PUT_RESERVATION,
            usage::TASK,
            usage::PROJECT,
            usage::ROLL,
            usage::ADD_TO_BUCKET,
            usage::ADD_TO_PROJECT,
            usage::ADD_TO_TASK,
            &attempts(&everything).sql,
        ];
        for sql in statements {
            let mut highest = 0;
            for text in sql.split('$').skip(1) {
                let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
                let number: u32 = text[..digits].parse().unwrap();
                assert!(number <= highest + 1, "${number} before ${} in {sql}", highest + 1);
                highest = highest.max(number);
            }
        }
    }

    #[test]
    fn lists_are_bounded() {
        assert_eq!(list_limit(0), 1_000);
        assert_eq!(list_limit(7), 7);
        assert_eq!(list_limit(u32::MAX), 1_000);
    }
}

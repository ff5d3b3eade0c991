//! Stores which tenant owns each response, conversation and item id, so that the owners are known
//! after a restart and to other gateways on the same database.
//!
//! The number of ids of each tenant is limited. Beyond the limit, the tenant's own oldest ids are
//! removed, so that no tenant can displace another's ids. Each write also removes expired ids.

use fairgate_time::UnixMicros;

use crate::error::StoreError;
use crate::store::{Store, TransactionFuture};
use crate::transaction::{DatabaseKind, SqlValue, Transaction, TransactionDurability};

/// An id under which an upstream stores something for a tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponseId {
    /// Id of the response, the conversation or the item, as the upstream gave it.
    pub id: String,
    /// Name of the tenant that owns the id.
    pub tenant: String,
    /// Tokens of the conversation so far; 0 for an item. A request that names the id adds them to
    /// its input.
    pub tokens: u64,
    /// Time at which the id expires. After that, the id counts as unknown.
    pub expires_at: UnixMicros,
}

/// Adds an id, or renews it if the same tenant has it. An unexpired id of another tenant stays as it is. No id is added
/// for a tenant that no longer exists.
const PUT: &str = "INSERT INTO response_ids (id, tenant, tokens, stored_at, expires_at) \
     SELECT CAST($1 AS TEXT), name, CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS BIGINT) FROM tenants WHERE name = $5 \
     ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, tokens = excluded.tokens, \
     stored_at = excluded.stored_at, expires_at = excluded.expires_at \
     WHERE response_ids.tenant = excluded.tenant OR response_ids.expires_at <= CAST($3 AS BIGINT)";
/// Removes all ids of tenant `$1` except the newest `$2`.
const TRIM: &str = "DELETE FROM response_ids WHERE tenant = $1 AND id NOT IN \
     (SELECT id FROM response_ids WHERE tenant = $1 ORDER BY stored_at DESC, id DESC LIMIT $2)";
const COUNT: &str = "SELECT COUNT(*) FROM response_ids WHERE tenant = $1";
const DROP_EXPIRED: &str = "DELETE FROM response_ids WHERE expires_at <= $1";

impl Store {
    /// Stores ids in the given order. Then keeps only the newest `per_tenant_max` ids of each tenant in the list, and
    /// removes the expired ids of all tenants.
    pub fn put_response_ids(
        &self,
        ids: Vec<StoredResponseId>,
        per_tenant_max: usize,
        now: UnixMicros,
    ) -> TransactionFuture<'_, (), StoreError> {
        self.transact(TransactionDurability::ThroughKill, move |transaction| {
            put(transaction, &ids, per_tenant_max, now)
        })
    }

    /// Returns those of the ids that are stored and not expired.
    pub fn response_ids(
        &self,
        ids: Vec<String>,
        now: UnixMicros,
    ) -> TransactionFuture<'_, Vec<StoredResponseId>, StoreError> {
        self.inspect(move |transaction| find(transaction, &ids, now))
    }
}

fn put(
    transaction: &mut dyn Transaction,
    ids: &[StoredResponseId],
    per_tenant_max: usize,
    now: UnixMicros,
) -> Result<(), StoreError> {
    let int = |number: u64| SqlValue::Int(i64::try_from(number).unwrap_or(i64::MAX));
    for stored in ids {
        let values = [
            SqlValue::Text(stored.id.clone()),
            int(stored.tokens),
            SqlValue::Int(now.0),
            SqlValue::Int(stored.expires_at.0),
            SqlValue::Text(stored.tenant.clone()),
        ];
        transaction.run(PUT, &values)?;
    }
    transaction.run(DROP_EXPIRED, &[SqlValue::Int(now.0)])?;
    let mut tenants: Vec<&str> = ids.iter().map(|stored| &*stored.tenant).collect();
    tenants.sort_unstable();
    tenants.dedup();
    let most = i64::try_from(per_tenant_max).unwrap_or(i64::MAX);
    for tenant in tenants {
        let tenant = || SqlValue::Text(tenant.to_owned());
        let count = transaction.first(COUNT, &[tenant()], |row| row.int(0))?;
        if count.unwrap_or(0) > most {
            transaction.run(TRIM, &[tenant(), SqlValue::Int(most)])?;
        }
    }
    Ok(())
}

fn find(
    transaction: &mut dyn Transaction,
    ids: &[String],
    now: UnixMicros,
) -> Result<Vec<StoredResponseId>, StoreError> {
    let texts = match transaction.database() {
        DatabaseKind::Sqlite => "SELECT e.value FROM json_each($1) AS e",
        DatabaseKind::Postgres => {
            "SELECT e.value FROM jsonb_array_elements_text(CAST(CAST($1 AS TEXT) AS JSONB)) AS e(value)"
        }
    };
    let sql = format!(
        "SELECT id, tenant, tokens, expires_at FROM response_ids WHERE id IN ({texts}) AND expires_at > $2"
    );
    let values = [SqlValue::Text(serde_json::Value::from(ids).to_string()), SqlValue::Int(now.0)];
    transaction.list(&sql, &values, |row| {
        Ok(StoredResponseId {
            id: row.text(0)?,
            tenant: row.text(1)?,
            tokens: row.count(2)?,
            expires_at: row.moment(3)?,
        })
    })
}

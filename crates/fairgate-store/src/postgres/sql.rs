//! SQL statements for PostgreSQL only. They write many rows at once, with one array for each
//! column, or they lock rows.
//!
//! Each statement sees all rows that were committed before the statement began. So after a statement that waited for a
//! lock, the next statement of the same transaction sees what the former holder of the lock has changed.

use crate::sql::{
    add_to_sum, attempt_columns, guess_columns, note_removed, reservation_columns, sum_columns,
};

/// Inserts many rows into the ledger, with one array for each column. Returns those that did not
/// exist yet.
pub(super) const PUT_ATTEMPTS: &str = concat!(
    "INSERT INTO attempts (",
    attempt_columns!(),
    ") SELECT * FROM UNNEST($1::text[], $2::bigint[], $3::boolean[], $4::bigint[], $5::text[], $6::text[], $7::text[], \
     $8::text[], $9::text[], $10::text[], $11::boolean[], $12::text[], $13::text[], $14::text[], $15::bigint[], \
     $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[], $20::text[], $21::bigint[], $22::bigint[], \
     $23::bigint[], $24::bigint[], $25::text[], $26::text[], $27::boolean[], $28::bigint[], $29::bigint[], \
     $30::bigint[], $31::text[], $32::bigint[], $33::text[], $34::text[], $35::text[], $36::bigint[], \
     $37::bigint[], $38::bigint[], $39::bigint[], $40::bigint[], $41::bigint[], $42::text[]) \
     ON CONFLICT (request, attempt) DO NOTHING RETURNING request, attempt"
);

/// Writes the last use of each of many keys; see [`crate::key_uses::PUT_KEY_USE`].
pub(super) const PUT_KEY_USES: &str = "INSERT INTO key_uses (key_id, used_at) \
     SELECT k.id, u.at FROM UNNEST($1::text[], $2::bigint[]) AS u (id, at) JOIN tenant_keys k ON k.id = u.id \
     ORDER BY k.id \
     ON CONFLICT (key_id) DO UPDATE SET used_at = excluded.used_at WHERE excluded.used_at > key_uses.used_at";

/// End of a statement whose `WITH` query `dropped` deletes guessed rows, that is, rows with the outcome
/// `lost`. This end stores the removals of the rows if the ledger is exported, and returns the rows.
macro_rules! note_and_return_dropped {
    () => {
        concat!(
            " RETURNING *), noted AS (",
            note_removed!(),
            " FROM dropped WHERE EXISTS (SELECT 1 FROM ledger_exports)) SELECT ",
            guess_columns!(),
            " FROM dropped"
        )
    };
}

/// Deletes and returns the guessed rows of these requests; see [`crate::sql::DROP_LOST`].
pub(super) const DROP_LOST: &str = concat!(
    "WITH dropped AS (DELETE FROM attempts WHERE request = ANY($1) AND outcome = 'lost'",
    note_and_return_dropped!()
);

/// Deletes and returns the guessed rows with the same request and attempt number as these attempts;
/// see [`crate::sql::DROP_LOST_ATTEMPT`].
pub(super) const DROP_LOST_ATTEMPTS: &str = concat!(
    "WITH dropped AS (DELETE FROM attempts WHERE outcome = 'lost' \
     AND (request, attempt) IN (SELECT * FROM unnest($1::TEXT[], $2::BIGINT[]))",
    note_and_return_dropped!()
);

/// Selects, for each request, the number of its last attempt, and true if the request has ended; see
/// [`crate::sql::ATTEMPTS_MADE`].
pub(super) const ATTEMPTS_MADE: &str = "SELECT request, MAX(attempt), BOOL_OR(last_attempt) FROM attempts \
     WHERE request = ANY($1) GROUP BY request";

/// Adds amounts to sums. The sums are locked in the order in which they are given.
pub(super) const ADD_SUMS: &str = concat!(
    "INSERT INTO sums (scope, owner, period, first_day, ",
    sum_columns!(),
    ") SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
     $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[])",
    add_to_sum!()
);

/// Inserts sums of 0 where none exist yet, so that they can be locked.
pub(super) const ENSURE_SUMS: &str = "INSERT INTO sums (scope, owner, period, first_day, tokens_used, tokens_reserved) \
     SELECT *, 0, 0 FROM UNNEST($1::text[], $2::text[], $3::text[], $4::bigint[]) ON CONFLICT DO NOTHING";

/// Locks sums, always in the order of [`crate::sums::SumKey`], and reads them.
pub(super) const LOCK_SUMS: &str = concat!(
    "SELECT s.scope, s.owner, s.period, s.first_day, ",
    sum_columns!(),
    " FROM sums s \
     JOIN UNNEST($1::text[], $2::text[], $3::text[], $4::bigint[]) AS asked (scope, owner, period, first_day) \
     ON s.scope = asked.scope AND s.owner = asked.owner AND s.period = asked.period AND s.first_day = asked.first_day \
     ORDER BY s.scope DESC, s.owner, s.period, s.first_day FOR UPDATE OF s"
);

/// Selects the budgets of tenants `$1`, keys `$2`, groups `$3` and the hosted tier.
pub(super) const BUDGETS_OF: &str = "SELECT scope, owner, period, unit, tier, amount FROM budgets \
     WHERE (scope = 'tenant' AND owner = ANY($1)) OR (scope = 'key' AND owner = ANY($2)) \
     OR (scope = 'group' AND owner = ANY($3)) OR scope = 'hosted'";

/// Selects the reservations of requests.
pub(super) const SEE_RESERVATIONS: &str =
    concat!("SELECT ", reservation_columns!(), " FROM reservations WHERE request = ANY($1)");

/// Deletes the reservations of requests and returns them.
pub(super) const END_RESERVATIONS: &str =
    concat!("DELETE FROM reservations WHERE request = ANY($1) RETURNING ", reservation_columns!());

/// Inserts reservations of instance `$16`.
pub(super) const PUT_RESERVATIONS: &str = concat!(
    "INSERT INTO reservations (",
    reservation_columns!(),
    ", instance) SELECT *, $16::bigint FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], \
     $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::text[], \
     $14::bigint[], $15::bigint[])"
);

/// Selects the reservations of requests with files that belong to one of the tenants `$1`, keys
/// `$2` or groups `$3`, or that may use hosted workers.
pub(super) const FILE_RESERVATIONS: &str = concat!(
    "SELECT ",
    reservation_columns!(),
    " FROM reservations WHERE has_files <> 0 AND (tenant = ANY($1) OR key_id = ANY($2) OR group_name = ANY($3) \
     OR hosted_tokens IS NOT NULL)"
);

/// Deletes and returns at most `$1` reservations of instances whose lease has run out. Skips
/// reservations that another transaction has locked.
pub(super) const TAKE_ABANDONED: &str = concat!(
    "DELETE FROM reservations WHERE request IN (SELECT r.request FROM reservations r \
     LEFT JOIN instances i ON i.id = r.instance AND i.lease_until > clock_timestamp() \
     WHERE i.id IS NULL ORDER BY r.request LIMIT $1 FOR UPDATE OF r SKIP LOCKED) RETURNING ",
    reservation_columns!()
);

/// Extends the lease of instance `$1` to `$2` microseconds from now, by the database's clock.
pub(super) const HEARTBEAT: &str = "INSERT INTO instances (id, lease_until) \
     VALUES ($1, clock_timestamp() + $2::bigint * interval '1 microsecond') \
     ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until";

/// Deletes the row of an instance that ends normally.
pub(super) const END_INSTANCE: &str = "DELETE FROM instances WHERE id = $1";

/// Counts the instances whose lease has not run out.
pub(super) const LIVE_INSTANCES: &str =
    "SELECT COUNT(*) FROM instances WHERE lease_until > clock_timestamp()";

/// Deletes the rows of instances whose lease ran out over a day ago.
pub(super) const FORGET_INSTANCES: &str =
    "DELETE FROM instances WHERE lease_until < clock_timestamp() - interval '1 day'";

/// Selects the directory's version, and locks the directory until the transaction ends.
pub(super) const LOCK_DIRECTORY: &str = "SELECT version FROM directory FOR UPDATE";

/// Makes the commit wait for the server's disk, even if the database acknowledges commits earlier
/// by default. Otherwise a crash of the server could make a revoked key valid again. Stricter
/// settings, which also wait for other servers, are not changed.
pub(super) const SYNCED: &str = "SELECT set_config('synchronous_commit', 'on', true) \
     WHERE current_setting('synchronous_commit') = 'off'";

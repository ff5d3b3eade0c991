//! What only PostgreSQL is asked: many rows at once, from one array for each column, and row locks.
//!
//! A statement on its own sees what was committed before it began, so each of these sees what those before it waited for.

use crate::sql::attempt_columns;

/// Many rows at once, from one array for each column; says which were new.
pub(super) const PUT_ATTEMPTS: &str = concat!(
    "INSERT INTO attempts (",
    attempt_columns!(),
    ") SELECT * FROM UNNEST($1::text[], $2::bigint[], $3::boolean[], $4::bigint[], $5::text[], $6::text[], $7::text[], \
     $8::text[], $9::text[], $10::text[], $11::boolean[], $12::text[], $13::text[], $14::text[], $15::bigint[], \
     $16::bigint[], $17::bigint[], $18::bigint[], $19::bigint[], $20::text[], $21::bigint[], $22::bigint[], \
     $23::bigint[], $24::bigint[], $25::text[], $26::text[], $27::boolean[], $28::bigint[]) \
     ON CONFLICT (request, attempt) DO NOTHING RETURNING request, attempt"
);

/// Takes guessed rows back; see [`crate::sql::DROP_LOST`].
pub(super) const DROP_LOST: &str = "DELETE FROM attempts WHERE request = ANY($1) AND outcome = 'lost' \
     RETURNING request, tenant, key_id, started_at, charged";

/// The same, where the guesses are about these very attempts; see [`crate::sql::DROP_LOST_ATTEMPT`].
pub(super) const DROP_LOST_ATTEMPTS: &str = "DELETE FROM attempts WHERE outcome = 'lost' \
     AND (request, attempt) IN (SELECT * FROM unnest($1::TEXT[], $2::BIGINT[])) \
     RETURNING request, tenant, key_id, started_at, charged";

/// How far requests had got, and whether they have ended; see [`crate::sql::ATTEMPTS_MADE`].
pub(super) const ATTEMPTS_MADE: &str = "SELECT request, MAX(attempt), BOOL_OR(last_attempt) FROM attempts \
     WHERE request = ANY($1) GROUP BY request";

/// Adds to sums, which are locked in the order in which they are given.
pub(super) const ADD_SUMS: &str = "INSERT INTO sums (scope, owner, period, first_day, used, reserved) \
     SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) \
     ON CONFLICT (scope, owner, period, first_day) \
     DO UPDATE SET used = sums.used + excluded.used, reserved = sums.reserved + excluded.reserved";

/// Makes sure that sums are there to be locked.
pub(super) const ENSURE_SUMS: &str = "INSERT INTO sums (scope, owner, period, first_day, used, reserved) \
     SELECT *, 0, 0 FROM UNNEST($1::text[], $2::text[], $3::text[], $4::bigint[]) ON CONFLICT DO NOTHING";

/// Locks sums, always in the order of [`crate::sums::SumKey`], and reads them.
pub(super) const LOCK_SUMS: &str = "SELECT s.scope, s.owner, s.period, s.first_day, s.used, s.reserved FROM sums s \
     JOIN UNNEST($1::text[], $2::text[], $3::text[], $4::bigint[]) AS asked (scope, owner, period, first_day) \
     ON s.scope = asked.scope AND s.owner = asked.owner AND s.period = asked.period AND s.first_day = asked.first_day \
     ORDER BY s.scope DESC, s.owner, s.period, s.first_day FOR UPDATE OF s";

/// The budgets of tenants and keys.
pub(super) const BUDGETS_OF: &str = "SELECT scope, owner, period, tokens FROM budgets \
     WHERE (scope = 'tenant' AND owner = ANY($1)) OR (scope = 'key' AND owner = ANY($2)) ORDER BY scope DESC, period";

/// The columns of [`crate::sql::RESERVATIONS`].
macro_rules! reservation_columns {
    () => {
        "request, group_name, tenant, key_id, model, tokens, at"
    };
}

/// The reservations of requests.
pub(super) const SEE_RESERVATIONS: &str =
    concat!("SELECT ", reservation_columns!(), " FROM reservations WHERE request = ANY($1)");

/// Ends the reservations of requests, and says what they were.
pub(super) const END_RESERVATIONS: &str =
    concat!("DELETE FROM reservations WHERE request = ANY($1) RETURNING ", reservation_columns!());

/// New reservations of instance `$8`.
pub(super) const PUT_RESERVATIONS: &str = concat!(
    "INSERT INTO reservations (",
    reservation_columns!(),
    ", instance) SELECT *, $8::bigint FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], \
     $6::bigint[], $7::bigint[])"
);

/// Takes at most `$1` reservations of instances whose lease has run out. Who finds one locked leaves it to the other.
pub(super) const TAKE_ABANDONED: &str = concat!(
    "DELETE FROM reservations WHERE request IN (SELECT r.request FROM reservations r \
     LEFT JOIN instances i ON i.id = r.instance AND i.lease_until > clock_timestamp() \
     WHERE i.id IS NULL ORDER BY r.request LIMIT $1 FOR UPDATE OF r SKIP LOCKED) RETURNING ",
    reservation_columns!()
);

/// Instance `$1` lives for `$2` microseconds more, by the database's clock.
pub(super) const HEARTBEAT: &str = "INSERT INTO instances (id, lease_until) \
     VALUES ($1, clock_timestamp() + $2::bigint * interval '1 microsecond') \
     ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until";

/// An instance that ends in good order.
pub(super) const END_INSTANCE: &str = "DELETE FROM instances WHERE id = $1";

/// Instances that ended otherwise, long ago.
pub(super) const FORGET_INSTANCES: &str =
    "DELETE FROM instances WHERE lease_until < clock_timestamp() - interval '1 day'";

/// The directory's version; nobody else changes the directory until this transaction ends.
pub(super) const LOCK_DIRECTORY: &str = "SELECT version FROM directory FOR UPDATE";

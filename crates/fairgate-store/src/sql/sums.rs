//! SQL statements for reservations, sums and budgets.
//!
//! A *guessed row* is a row with the outcome `lost`. It is written for a request whose process seems to have
//! died, and deleted if the request turns out to be alive.

/// SQL columns of a guessed row that is deleted, in the order in which [`crate::rows::guess`] reads the
/// columns.
macro_rules! guess_columns {
    () => {
        "request, group_name, tenant, key_id, started_at, provider_tokens, money, tier, model, \
         project, task, epoch"
    };
}

/// Beginning of the statement that stores the removal of guessed rows.
macro_rules! note_removed {
    () => {
        "INSERT INTO removed_attempts (row_number, request, attempt, tenant, started_at) \
         SELECT row_number, request, attempt, tenant, started_at"
    };
}

/// SQL columns of the amounts of a sum, in the order of [`crate::sums::UsageSum::columns`].
macro_rules! sum_columns {
    () => {
        "tokens_used, tokens_reserved, money_used, money_reserved, hosted_tokens_used, hosted_tokens_reserved, \
         hosted_money_used, hosted_money_reserved"
    };
}

/// Conflict clause of an `INSERT` that adds the amounts to an existing sum.
macro_rules! add_to_sum {
    () => {
        " ON CONFLICT (scope, owner, period, first_day) DO UPDATE SET \
         tokens_used = sums.tokens_used + excluded.tokens_used, \
         tokens_reserved = sums.tokens_reserved + excluded.tokens_reserved, \
         money_used = sums.money_used + excluded.money_used, \
         money_reserved = sums.money_reserved + excluded.money_reserved, \
         hosted_tokens_used = sums.hosted_tokens_used + excluded.hosted_tokens_used, \
         hosted_tokens_reserved = sums.hosted_tokens_reserved + excluded.hosted_tokens_reserved, \
         hosted_money_used = sums.hosted_money_used + excluded.hosted_money_used, \
         hosted_money_reserved = sums.hosted_money_reserved + excluded.hosted_money_reserved"
    };
}

/// SQL columns of a reservation, in the order in which [`crate::rows::reservation`] reads them.
macro_rules! reservation_columns {
    () => {
        "request, group_name, tenant, key_id, model, tokens, at, provider_tokens, money, hosted_tokens, hosted_money, \
         project, task, epoch, has_files"
    };
}

pub(crate) use {add_to_sum, guess_columns, note_removed, reservation_columns, sum_columns};

/// Deletes and returns the guessed row of a request that was not lost after all.
pub(crate) const DROP_LOST: &str = concat!(
    "DELETE FROM attempts WHERE request = $1 AND outcome = 'lost' RETURNING ",
    guess_columns!()
);

/// Deletes and returns the guessed row of a request if it has the same attempt number as this
/// attempt.
pub(crate) const DROP_LOST_ATTEMPT: &str = concat!(
    "DELETE FROM attempts WHERE request = $1 AND attempt = $2 AND outcome = 'lost' RETURNING ",
    guess_columns!()
);

/// Stores the removal of a request's guessed row, which is about to be deleted, if the ledger is
/// exported.
pub(crate) const NOTE_LOST: &str = concat!(
    note_removed!(),
    " FROM attempts WHERE request = $1 AND outcome = 'lost' AND EXISTS (SELECT 1 FROM ledger_exports)"
);

/// Stores the removal of a request's guessed row if it has the same attempt number as this attempt;
/// see [`NOTE_LOST`].
pub(crate) const NOTE_LOST_ATTEMPT: &str = concat!(
    note_removed!(),
    " FROM attempts WHERE request = $1 AND attempt = $2 AND outcome = 'lost' AND EXISTS (SELECT 1 FROM ledger_exports)"
);

/// Selects the number of a request's last attempt, and true if the request has ended.
pub(crate) const ATTEMPTS_MADE: &str = "SELECT COALESCE(MAX(attempt), 0), COALESCE(MAX(last_attempt), 0) FROM attempts WHERE request = $1";

/// Selects the balances of the budgets of tenant `$3`, key `$4`, group `$5` and the hosted tier,
/// whose owner name is `$6`. Daily budgets are those of the day `$1`, and monthly budgets those of
/// the month that begins on `$2`.
pub(crate) const BUDGETS_LEFT: &str = concat!(
    "SELECT b.scope, b.owner, b.period, b.unit, b.tier, b.amount, ",
    sum_columns!(),
    " FROM budgets b LEFT JOIN sums s ON s.scope = b.scope AND s.owner = b.owner AND s.period = b.period \
     AND s.first_day = CASE b.period WHEN 'day' THEN CAST($1 AS BIGINT) ELSE CAST($2 AS BIGINT) END \
     WHERE (b.scope = 'tenant' AND b.owner = $3) OR (b.scope = 'key' AND b.owner = $4) \
     OR (b.scope = 'group' AND b.owner = $5) OR (b.scope = 'hosted' AND b.owner = $6) \
     ORDER BY b.scope DESC, b.tier, b.unit DESC, b.period"
);

/// Selects the balances of the budgets of tenants and groups of which about `$3` percent or more is used. Daily budgets
/// are those of the day `$1`, and monthly budgets those of the month that begins on `$2`.
pub(crate) const BUDGETS_USED: &str = concat!(
    "SELECT b.scope, b.owner, b.period, b.unit, b.tier, b.amount, ",
    sum_columns!(),
    " FROM budgets b JOIN sums s ON s.scope = b.scope AND s.owner = b.owner AND s.period = b.period \
     AND s.first_day = CASE b.period WHEN 'day' THEN CAST($1 AS BIGINT) ELSE CAST($2 AS BIGINT) END \
     WHERE b.scope IN ('tenant', 'group') AND b.amount > 0 AND b.amount / 100 * CAST($3 AS BIGINT) <= \
     CASE b.unit WHEN 'tokens' THEN CASE b.tier WHEN 'any' THEN s.tokens_used ELSE s.hosted_tokens_used END \
     ELSE CASE b.tier WHEN 'any' THEN s.money_used ELSE s.hosted_money_used END END"
);

/// Selects the amounts that model `$1` has used and reserved on the hosted tier, on the day `$2`
/// and in the month that begins on `$3`.
pub(crate) const MODEL_SUMS: &str = concat!(
    "SELECT period, ",
    sum_columns!(),
    " FROM sums WHERE scope = 'hosted_model' AND owner = $1 \
     AND first_day = CASE period WHEN 'day' THEN CAST($2 AS BIGINT) ELSE CAST($3 AS BIGINT) END"
);

/// Adds amounts to one sum, which is created if missing.
pub(crate) const ADD_SUM: &str = concat!(
    "INSERT INTO sums (scope, owner, period, first_day, ",
    sum_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
    add_to_sum!()
);

pub(crate) const RESERVATIONS: &str =
    concat!("SELECT ", reservation_columns!(), " FROM reservations");
pub(crate) const PUT_RESERVATION: &str = concat!(
    "INSERT INTO reservations (",
    reservation_columns!(),
    ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)"
);
pub(crate) const DROP_RESERVATION: &str = "DELETE FROM reservations WHERE request = $1";

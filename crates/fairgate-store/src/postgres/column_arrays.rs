//! Converts a list of rows to arrays, one for each column. The statements of [`super::sql`] that
//! write or lock many rows take their values as such arrays.

use fairgate_usage::TaskClaim;
use tokio_postgres::types::ToSql;

use crate::ledger::{AttemptRow, Reservation};
use crate::stored_words::StoredWord;
use crate::sums::{SumKey, UsageSum, signed};

type Parameter<'a> = &'a (dyn ToSql + Sync);

/// Column arrays for [`super::sql::PUT_ATTEMPTS`].
#[derive(Default)]
pub(super) struct AttemptArrays<'a> {
    requests: Vec<&'a str>,
    attempts: Vec<i64>,
    lasts: Vec<bool>,
    started_at: Vec<i64>,
    groups: Vec<&'a str>,
    tenants: Vec<&'a str>,
    keys: Vec<&'a str>,
    agents: Vec<Option<&'a str>>,
    sessions: Vec<Option<&'a str>>,
    routes: Vec<&'a str>,
    streams: Vec<bool>,
    models: Vec<&'a str>,
    pools: Vec<Option<&'a str>>,
    workers: Vec<Option<&'a str>>,
    /// Columns of the estimate and of the input, cached, output and charged tokens, in this order.
    tokens: [Vec<i64>; 5],
    usages: Vec<&'a str>,
    waited_us: Vec<i64>,
    first_token_us: Vec<Option<i64>>,
    total_us: Vec<i64>,
    statuses: Vec<i64>,
    outcomes: Vec<&'a str>,
    codes: Vec<Option<&'a str>>,
    brownouts: Vec<bool>,
    occupied: Vec<i64>,
    provider_tokens: Vec<i64>,
    money: Vec<i64>,
    prices: Vec<Option<&'a str>>,
    tiers: Vec<i64>,
    classes: Vec<Option<&'a str>>,
    /// Columns of four numbers: the estimate as if nothing were cached, the charged tokens as if
    /// nothing were cached, the tokens written to a cache, and the part of these that is kept for
    /// an hour.
    cache: [Vec<i64>; 4],
    worker_us: Vec<i64>,
    price_sets: Vec<Option<&'a str>>,
    claims: ClaimArrays<'a>,
}

/// Column arrays of the tasks and claims to which rows or reservations belong.
#[derive(Default)]
struct ClaimArrays<'a> {
    projects: Vec<Option<&'a str>>,
    tasks: Vec<Option<&'a str>>,
    epochs: Vec<Option<i64>>,
}

impl<'a> ClaimArrays<'a> {
    fn push(&mut self, claim: Option<&'a TaskClaim>) {
        self.projects.push(claim.map(|claim| &*claim.project));
        self.tasks.push(claim.map(|claim| &*claim.task));
        self.epochs.push(claim.map(|claim| signed(claim.epoch)));
    }
}

impl<'a> FromIterator<&'a AttemptRow> for AttemptArrays<'a> {
    fn from_iter<I: IntoIterator<Item = &'a AttemptRow>>(rows: I) -> Self {
        let mut arrays = Self::default();
        rows.into_iter().for_each(|row| arrays.push(row));
        arrays
    }
}

impl<'a> AttemptArrays<'a> {
    fn push(&mut self, row: &'a AttemptRow) {
        self.requests.push(&row.request);
        self.attempts.push(i64::from(row.attempt));
        self.lasts.push(row.last);
        self.started_at.push(row.started_at.0);
        self.groups.push(&row.group);
        self.tenants.push(&row.tenant);
        self.keys.push(&row.key);
        self.agents.push(row.agent.as_deref());
        self.sessions.push(row.session.as_deref());
        self.routes.push(&row.route);
        self.streams.push(row.stream);
        self.models.push(&row.model);
        self.pools.push(row.pool.as_deref());
        self.workers.push(row.worker.as_deref());
        let tokens =
            [row.estimate, row.input_tokens, row.cached_tokens, row.output_tokens, row.charged];
        for (column, tokens) in self.tokens.iter_mut().zip(tokens) {
            column.push(signed(tokens));
        }
        self.usages.push(row.usage.word());
        self.waited_us.push(signed(row.waited_us));
        self.first_token_us.push(row.first_token_us.map(signed));
        self.total_us.push(signed(row.total_us));
        self.statuses.push(i64::from(row.status));
        self.outcomes.push(row.outcome.word());
        self.codes.push(row.code.as_deref());
        self.brownouts.push(row.brownout);
        self.occupied.push(signed(row.occupied));
        self.provider_tokens.push(signed(row.provider_tokens));
        self.money.push(signed(row.money.0));
        self.prices.push(row.price.as_deref());
        self.tiers.push(i64::from(row.tier));
        self.classes.push(row.class.as_deref());
        self.worker_us.push(signed(row.worker_us));
        self.price_sets.push(row.price_set.as_deref());
        self.claims.push(row.claim.as_ref());
        let cache = [
            row.estimate_uncached,
            row.charged_uncached,
            row.cache_written_tokens,
            row.cache_written_1h_tokens,
        ];
        for (column, tokens) in self.cache.iter_mut().zip(cache) {
            column.push(signed(tokens));
        }
    }

    pub(super) fn values(&self) -> [Parameter<'_>; 42] {
        let [estimates_uncached, charged_uncached, written, written_1h] = &self.cache;
        let [estimates, inputs, cached, outputs, charged] = &self.tokens;
        [
            &self.requests,
            &self.attempts,
            &self.lasts,
            &self.started_at,
            &self.groups,
            &self.tenants,
            &self.keys,
            &self.agents,
            &self.sessions,
            &self.routes,
            &self.streams,
            &self.models,
            &self.pools,
            &self.workers,
            estimates,
            inputs,
            cached,
            outputs,
            charged,
            &self.usages,
            &self.waited_us,
            &self.first_token_us,
            &self.total_us,
            &self.statuses,
            &self.outcomes,
            &self.codes,
            &self.brownouts,
            &self.occupied,
            &self.provider_tokens,
            &self.money,
            &self.prices,
            &self.tiers,
            &self.classes,
            &self.claims.projects,
            &self.claims.tasks,
            &self.claims.epochs,
            estimates_uncached,
            charged_uncached,
            written,
            written_1h,
            &self.worker_us,
            &self.price_sets,
        ]
    }
}

/// Column arrays for [`super::sql::PUT_RESERVATIONS`].
#[derive(Default)]
pub(super) struct ReservationArrays<'a> {
    requests: Vec<&'a str>,
    groups: Vec<&'a str>,
    tenants: Vec<&'a str>,
    keys: Vec<&'a str>,
    models: Vec<&'a str>,
    tokens: Vec<i64>,
    at: Vec<i64>,
    provider_tokens: Vec<i64>,
    money: Vec<i64>,
    hosted_tokens: Vec<Option<i64>>,
    hosted_money: Vec<Option<i64>>,
    claims: ClaimArrays<'a>,
    has_files: Vec<i64>,
    instance: i64,
}

impl<'a> ReservationArrays<'a> {
    pub(super) fn new(rows: impl IntoIterator<Item = &'a Reservation>, instance: i64) -> Self {
        let mut arrays = Self { instance, ..Self::default() };
        for row in rows {
            arrays.requests.push(&row.request);
            arrays.groups.push(&row.group);
            arrays.tenants.push(&row.tenant);
            arrays.keys.push(&row.key);
            arrays.models.push(&row.model);
            arrays.tokens.push(signed(row.tokens));
            arrays.at.push(row.at.0);
            arrays.provider_tokens.push(signed(row.provider_tokens));
            arrays.money.push(signed(row.money.0));
            arrays.hosted_tokens.push(row.hosted.map(|most| signed(most.provider_tokens)));
            arrays.hosted_money.push(row.hosted.map(|most| signed(most.money.0)));
            arrays.claims.push(row.claim.as_ref());
            arrays.has_files.push(row.has_files.into());
        }
        arrays
    }

    pub(super) fn values(&self) -> [Parameter<'_>; 16] {
        [
            &self.requests,
            &self.groups,
            &self.tenants,
            &self.keys,
            &self.models,
            &self.tokens,
            &self.at,
            &self.provider_tokens,
            &self.money,
            &self.hosted_tokens,
            &self.hosted_money,
            &self.claims.projects,
            &self.claims.tasks,
            &self.claims.epochs,
            &self.has_files,
            &self.instance,
        ]
    }
}

/// Column arrays for [`super::sql::ADD_SUMS`]. [`super::sql::LOCK_SUMS`] takes the same arrays without the amounts.
#[derive(Default)]
pub(super) struct SumArrays<'a> {
    scopes: Vec<&'a str>,
    owners: Vec<&'a str>,
    periods: Vec<&'a str>,
    first_days: Vec<i64>,
    /// One array per amount, in the order of [`UsageSum::columns`].
    amounts: [Vec<i64>; 8],
}

impl<'a> FromIterator<(&'a SumKey<'a>, &'a UsageSum)> for SumArrays<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a SumKey<'a>, &'a UsageSum)>>(sums: I) -> Self {
        let mut arrays = Self::default();
        for (sum, delta) in sums {
            arrays.scopes.push(sum.scope.word());
            arrays.owners.push(&sum.owner);
            arrays.periods.push(sum.period.word());
            arrays.first_days.push(sum.first_day.0);
            for (column, amount) in arrays.amounts.iter_mut().zip(delta.columns()) {
                column.push(amount);
            }
        }
        arrays
    }
}

impl SumArrays<'_> {
    pub(super) fn which(&self) -> [Parameter<'_>; 4] {
        [&self.scopes, &self.owners, &self.periods, &self.first_days]
    }

    pub(super) fn values(&self) -> [Parameter<'_>; 12] {
        let [scopes, owners, periods, first_days] = self.which();
        let [a, b, c, d, e, f, g, h] = &self.amounts;
        [scopes, owners, periods, first_days, a, b, c, d, e, f, g, h]
    }
}

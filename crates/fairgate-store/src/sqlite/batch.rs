//! One transaction with all rows and commands that were pending when it began.

use std::cell::RefCell;
use std::collections::HashMap;

use rusqlite::{CachedStatement, Connection, Row, params};

use super::columns::{ConnectionTransaction, first, run};
use super::queries;
use fairgate_time::UnixMicros;
use fairgate_usage::{ClaimCharges, TaskClaim, UsageBalances, UsageTerms, sql as usage};

use crate::budget::{BudgetOwners, ReservationGrant, ReservationRefused};
use crate::directory::{DirectoryChange, DirectoryChangeResult};
use crate::error::StoreError;
use crate::key_uses::PUT_KEY_USE;
use crate::ledger::{AttemptRow, Reservation, ResolvedReservations};
use crate::reservation::{FileRequestsInFlight, decide, has_counting_budget};
use crate::rows::{self, GuessedRow, RowColumns};
use crate::sql;
use crate::stored_words::StoredWord;
use crate::sums::{SumDeltas, SumOwners, signed};
use crate::transaction::{Transaction, TransactionJob};

type Result<T> = std::result::Result<T, StoreError>;

/// Current reservations by request id, in the form in which they were granted. The map has the same
/// content as the database, so that the many rows of requests without a reservation need no lookup.
pub(super) type HeldReservations = HashMap<String, Reservation>;

/// An open transaction. Changes of sums are collected, and are written at the end, or before a
/// statement that reads sums.
pub(super) struct SqliteBatch<'a> {
    connection: &'a Connection,
    /// Statement that writes a row; prepared with the first row. A look-up in the connection's cache for each row would
    /// hash its text, which is a kilobyte.
    put_attempt: Option<CachedStatement<'a>>,
    held: &'a mut HeldReservations,
    deltas: SumDeltas<'a>,
    charges: ClaimCharges,
}

impl<'a> SqliteBatch<'a> {
    pub(super) fn begin(
        connection: &'a Connection,
        held: &'a mut HeldReservations,
    ) -> Result<Self> {
        run(connection, "BEGIN IMMEDIATE", [])?;
        Ok(Self {
            connection,
            put_attempt: None,
            held,
            deltas: SumDeltas::default(),
            charges: ClaimCharges::default(),
        })
    }

    pub(super) fn commit(mut self) -> Result<()> {
        self.check_open()?;
        self.write_sums()?;
        run(self.connection, "COMMIT", [])?;
        Ok(())
    }

    /// Fails if the transaction is no longer open. SQLite may roll back a whole transaction when
    /// one statement fails, for example on a full disk. Each later statement would then be
    /// committed at once, and again when the transaction is retried.
    fn check_open(&self) -> Result<()> {
        if self.connection.is_autocommit() {
            return Err(StoreError::Full("the transaction was rolled back".into()));
        }
        Ok(())
    }

    fn write_sums(&mut self) -> Result<()> {
        self.write_charges()?;
        if self.deltas.is_empty() {
            return Ok(());
        }
        let mut add = self.connection.prepare_cached(sql::ADD_SUM)?;
        for (sum, delta) in self.deltas.iter() {
            let [a, b, c, d, e, f, g, h] = delta.columns();
            let (scope, period) = (sum.scope.word(), sum.period.word());
            let first_day = sum.first_day.0;
            add.execute(params![scope, sum.owner, period, first_day, a, b, c, d, e, f, g, h])?;
        }
        self.deltas.clear();
        Ok(())
    }

    /// Adds the collected usage of claims to their tasks and projects.
    fn write_charges(&mut self) -> Result<()> {
        if self.charges.is_empty() {
            self.charges.clear();
            return Ok(());
        }
        let on: &mut dyn Transaction = &mut ConnectionTransaction(self.connection);
        for (claim, used) in self.charges.iter() {
            usage::add_to_task(on, claim, used)?;
        }
        usage::count_change(on)?;
        self.charges.clear();
        Ok(())
    }

    /// Writes a row, adds its usage to the sums, and ends the request's reservation if this is the request's last row.
    pub(super) fn record(&mut self, attempt: &'a AttemptRow) -> Result<()> {
        let mut period = self.held.get(&attempt.request).map(|held| held.at);
        let mut is_new = self.put(attempt)?;
        if !is_new
            && let Some(lost_at) = self.delete_lost_row(&attempt.request, Some(attempt.attempt))?
        {
            period = Some(lost_at);
            is_new = self.put(attempt)?;
        }
        if is_new {
            self.deltas.add(attempt, period.unwrap_or(attempt.started_at), attempt.usage_sum());
            self.charges.add(attempt.charge());
        }
        if attempt.last { self.release(&attempt.request) } else { Ok(()) }
    }

    /// Writes the times at which keys were last used.
    pub(super) fn put_key_uses(&self, uses: &[(String, UnixMicros)]) -> Result<()> {
        uses.iter().try_for_each(|(key, at)| {
            run(self.connection, PUT_KEY_USE, params![at.0, key]).map(drop)
        })
    }

    fn put(&mut self, attempt: &AttemptRow) -> Result<bool> {
        let statement = match &mut self.put_attempt {
            Some(statement) => statement,
            none => none.insert(self.connection.prepare_cached(sql::PUT_ATTEMPT)?),
        };
        let rows = statement.execute(params![
            attempt.request,
            attempt.attempt,
            attempt.last,
            attempt.started_at.0,
            attempt.group,
            attempt.tenant,
            attempt.key,
            attempt.agent,
            attempt.session,
            attempt.route,
            attempt.stream,
            attempt.model,
            attempt.pool,
            attempt.worker,
            signed(attempt.estimate),
            signed(attempt.input_tokens),
            signed(attempt.cached_tokens),
            signed(attempt.output_tokens),
            signed(attempt.charged),
            attempt.usage.word(),
            signed(attempt.waited_us),
            attempt.first_token_us.map(signed),
            signed(attempt.total_us),
            attempt.status,
            attempt.outcome.word(),
            attempt.code,
            attempt.brownout,
            signed(attempt.occupied),
            signed(attempt.provider_tokens),
            signed(attempt.money.0),
            attempt.price,
            attempt.tier,
            attempt.class,
            attempt.claim.as_ref().map(|claim| &claim.project),
            attempt.claim.as_ref().map(|claim| &claim.task),
            attempt.claim.as_ref().map(|claim| signed(claim.epoch)),
            signed(attempt.estimate_uncached),
            signed(attempt.charged_uncached),
            signed(attempt.cache_written_tokens),
            signed(attempt.cache_written_1h_tokens),
            signed(attempt.worker_us),
            attempt.price_set,
        ])?;
        Ok(rows > 0)
    }

    /// Deletes the guessed row of a request that was not lost after all, and subtracts the row's
    /// usage. If `attempt` is not `None`, deletes the row only if it has this attempt number.
    /// Returns the time of the deleted row, which determines the periods in which its usage was
    /// counted; `None` if there was no such row.
    fn delete_lost_row(
        &mut self,
        request: &str,
        attempt: Option<u32>,
    ) -> Result<Option<UnixMicros>> {
        let read = |row: &Row<'_>| rows::guess(row);
        let lost = match attempt {
            Some(attempt) => {
                let which = params![request, attempt];
                run(self.connection, sql::NOTE_LOST_ATTEMPT, which)?;
                first(self.connection, sql::DROP_LOST_ATTEMPT, which, read)?
            }
            None => {
                run(self.connection, sql::NOTE_LOST, [request])?;
                first(self.connection, sql::DROP_LOST, [request], read)?
            }
        };
        Ok(lost.map(|guess| {
            self.charges.add(guess.refund());
            let GuessedRow { payers, at, uses, .. } = guess;
            self.deltas.add(payers, at, uses.negative());
            at
        }))
    }

    /// Ends the reservation of a request, if it has one.
    pub(super) fn release(&mut self, request: &str) -> Result<()> {
        let Some(held) = self.held.remove(request) else { return Ok(()) };
        run(self.connection, sql::DROP_RESERVATION, [request])?;
        let delta = held.held_amounts(true).negative();
        self.deltas.add(owners_of(&held), held.at, delta);
        Ok(())
    }

    /// Makes a reservation if all budgets have room. Replaces an existing reservation of the same request.
    pub(super) fn reserve(
        &mut self,
        reservation: &'a Reservation,
    ) -> Result<std::result::Result<ReservationGrant, ReservationRefused>> {
        let earlier = self.held.get(&reservation.request).cloned();
        self.release(&reservation.request)?;
        self.write_sums()?;
        let books = self.usage_balances(reservation)?;
        let Reservation { group, tenant, key, model, model_budgets, at, .. } = reservation;
        let is_hosted = reservation.hosted.is_some();
        let owners = BudgetOwners {
            group: Some(group),
            tenant: Some(tenant),
            key: Some(key),
            hosted: is_hosted,
            model: is_hosted.then_some((model, model_budgets)),
        };
        let budgets = queries::budgets(self.connection, owners, *at)?;
        let files = FileRequestsInFlight::of(reservation, self.held.values());
        let decided = decide(&budgets, &books, &files, reservation);
        match &decided {
            Err(_) => earlier.map_or(Ok(()), |earlier| self.hold(earlier))?,
            Ok(granted)
                if has_counting_budget(&budgets, granted.hosted) || reservation.claim.is_some() =>
            {
                self.hold(reservation.as_granted(granted.hosted))?;
            }
            Ok(_) => {}
        }
        Ok(decided)
    }

    /// Reads the balances of the task and the projects that decide about a reservation.
    fn usage_balances(&self, reservation: &Reservation) -> Result<UsageBalances> {
        let (Some(claim), terms, at) = (&reservation.claim, reservation.terms, reservation.at)
        else {
            return Ok(UsageBalances::default());
        };
        let books = self.read_usage_balances(claim, terms)?;
        if books.is_current(terms.window, at) {
            return Ok(books);
        }
        let on: &mut dyn Transaction = &mut ConnectionTransaction(self.connection);
        usage::roll(on, terms.window, at)?;
        self.read_usage_balances(claim, terms)
    }

    fn read_usage_balances(&self, claim: &TaskClaim, terms: UsageTerms) -> Result<UsageBalances> {
        let books = RefCell::new(UsageBalances::default());
        let put = |row: &Row<'_>| books.borrow_mut().put_task(row as &dyn RowColumns);
        first(self.connection, usage::TASK, [&claim.task], put)?;
        let put = |row: &Row<'_>| books.borrow_mut().put_project(row as &dyn RowColumns);
        first(self.connection, usage::PROJECT, [&claim.project], put)?;
        if terms.budget.is_some() {
            let put = |row: &Row<'_>| books.borrow_mut().put_total(row as &dyn RowColumns, terms);
            first(self.connection, usage::TOTAL, [], put)?;
        }
        Ok(books.into_inner())
    }

    fn hold(&mut self, reservation: Reservation) -> Result<()> {
        let Reservation { request, group, tenant, key, model, claim, .. } = &reservation;
        let values = params![
            request,
            group,
            tenant,
            key,
            model,
            signed(reservation.tokens),
            reservation.at.0,
            signed(reservation.provider_tokens),
            signed(reservation.money.0),
            reservation.hosted.map(|most| signed(most.provider_tokens)),
            reservation.hosted.map(|most| signed(most.money.0)),
            claim.as_ref().map(|claim| &claim.project),
            claim.as_ref().map(|claim| &claim.task),
            claim.as_ref().map(|claim| signed(claim.epoch)),
            i64::from(reservation.has_files),
        ];
        run(self.connection, sql::PUT_RESERVATION, values)?;
        self.deltas.add(owners_of(&reservation), reservation.at, reservation.held_amounts(true));
        self.held.insert(request.clone(), reservation);
        Ok(())
    }

    /// Turns every reservation into a row with the outcome `lost`, because the process that could
    /// end the reservation no longer exists. If a request already has its last row, the client had
    /// left before the reservation was made. The reservation is then only released.
    pub(super) fn resolve(&mut self) -> Result<ResolvedReservations> {
        let mut resolved = ResolvedReservations::default();
        let mut left: Vec<_> = self.held.values().cloned().collect();
        left.sort_by(|one, other| one.request.cmp(&other.request));
        for reservation in left {
            // Each request has at most one guessed row.
            self.delete_lost_row(&reservation.request, None)?;
            let made = first(self.connection, sql::ATTEMPTS_MADE, [&reservation.request], |row| {
                Ok((row.count(0)?, row.flag(1)?))
            })?;
            let (made, has_ended) = made.unwrap_or_default();
            if has_ended {
                self.release(&reservation.request)?;
                continue;
            }
            let row = reservation.to_lost_row(u32::try_from(made).unwrap_or(u32::MAX));
            if self.put(&row)? {
                self.deltas.add(owners_of(&reservation), row.started_at, row.usage_sum());
                self.charges.add(row.charge());
            }
            self.release(&reservation.request)?;
            resolved.reservations += 1;
            resolved.tokens += reservation.tokens;
        }
        Ok(resolved)
    }

    /// Runs a caller's transaction inside this transaction. Its changes are rolled back if the job
    /// returns false.
    pub(super) fn transact(&mut self, job: &mut dyn TransactionJob) -> Result<()> {
        // The job may read sums and rows.
        self.write_sums()?;
        run(self.connection, "SAVEPOINT a_job", [])?;
        let keep = job.work(&mut ConnectionTransaction(self.connection));
        self.check_open()?;
        if !keep {
            run(self.connection, "ROLLBACK TO a_job", [])?;
        }
        run(self.connection, "RELEASE a_job", [])?;
        Ok(())
    }

    /// Applies a change to the directory. A failed change does not affect the rest of the transaction.
    pub(super) fn change(
        &self,
        actor: &str,
        at: UnixMicros,
        change: &DirectoryChange,
    ) -> Result<Result<DirectoryChangeResult>> {
        run(self.connection, "SAVEPOINT a_change", [])?;
        let changed = self.make_change(actor, at, change);
        self.check_open()?;
        if changed.is_err() {
            run(self.connection, "ROLLBACK TO a_change", [])?;
        }
        run(self.connection, "RELEASE a_change", [])?;
        Ok(changed)
    }

    fn make_change(
        &self,
        actor: &str,
        at: UnixMicros,
        change: &DirectoryChange,
    ) -> Result<DirectoryChangeResult> {
        let found = queries::found(self.connection, change.subject())?;
        let edit = change.edit(actor, at, found)?;
        let version = if edit.statements.is_empty() || !change.changes_directory() {
            queries::directory_version(self.connection)?
        } else {
            first(self.connection, sql::BUMP_VERSION, [], |row| row.int(0))?.unwrap_or(0)
        };
        for statement in &edit.statements {
            run(self.connection, &statement.sql, rusqlite::params_from_iter(&statement.values))?;
        }
        Ok(DirectoryChangeResult { version, ..edit.changed })
    }

    /// Removes at most [`PRUNE_ROWS`](crate::sql::PRUNE_ROWS) rows of requests that arrived before
    /// the time `before`. Returns the number of removed rows.
    pub(super) fn prune(&self, before: UnixMicros) -> Result<u64> {
        let rows = run(self.connection, sql::PRUNE, [before.0, sql::PRUNE_ROWS])?;
        Ok(u64::try_from(rows).unwrap_or(u64::MAX))
    }
}

/// Returns copies of the names of a reservation's owners, which may be needed after the reservation
/// was dropped.
fn owners_of(reservation: &Reservation) -> SumOwners<'static> {
    let text = |name: &String| name.clone().into();
    let Reservation { group, tenant, key, model, .. } = reservation;
    SumOwners { group: text(group), tenant: text(tenant), key: text(key), model: text(model) }
}

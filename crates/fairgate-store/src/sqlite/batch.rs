//! One transaction: everything that was pending when it began.

use std::cell::RefCell;
use std::collections::HashMap;

use rusqlite::{Connection, Row, params};

use super::columns::{OnConnection, first, run};
use super::queries;
use fairgate_money::UnixMicros;

use crate::budget::{Granted, Owners, Refused};
use crate::claims::{self, Books, Charges, FleetTerms, Use};
use crate::decide::{concerns, decide};
use crate::directory::{Change, Changed};
use crate::error::StoreError;
use crate::fleet::{self, TaskClaim};
use crate::ledger::{Attempt, Reservation, Resolved};
use crate::rows::{self, Columns, Guess};
use crate::sql;
use crate::sums::{Deltas, Payers, signed};
use crate::transaction::Job;
use crate::words::Word;

type Result<T> = std::result::Result<T, StoreError>;

/// The reservations that there are, by request, as they were granted: the same as in the database, so that the many rows without one cost no look.
pub(super) type Held = HashMap<String, Reservation>;

/// A transaction that is being written. Sums are added up and written when somebody must see them, and at the end.
pub(super) struct Batch<'a> {
    connection: &'a Connection,
    held: &'a mut Held,
    deltas: Deltas<'a>,
    charges: Charges,
}

impl<'a> Batch<'a> {
    pub(super) fn begin(connection: &'a Connection, held: &'a mut Held) -> Result<Self> {
        run(connection, "BEGIN IMMEDIATE", [])?;
        Ok(Self { connection, held, deltas: Deltas::default(), charges: Charges::default() })
    }

    pub(super) fn commit(mut self) -> Result<()> {
        self.check_open()?;
        self.write_sums()?;
        run(self.connection, "COMMIT", [])?;
        Ok(())
    }

    /// SQLite may end a whole transaction where one statement fails (disk full, out of memory). What came after that would
    /// be written at once, and again when the transaction is tried again.
    fn check_open(&self) -> Result<()> {
        if self.connection.is_autocommit() {
            return Err(StoreError::Database("the transaction was rolled back".into()));
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

    /// Writes what tasks used, as part of the fleet.
    fn write_charges(&mut self) -> Result<()> {
        if self.charges.is_empty() {
            self.charges.clear();
            return Ok(());
        }
        let on = &mut OnConnection(self.connection);
        for (claim, Use { tokens, calls }) in self.charges.iter() {
            fleet::add_to_task(on, claim, tokens, calls)?;
        }
        run(self.connection, fleet::COUNT_CHANGE, [])?;
        self.charges.clear();
        Ok(())
    }

    /// Writes a row, settles what it used, and ends its reservation where it is the request's last.
    pub(super) fn record(&mut self, attempt: &'a Attempt) -> Result<()> {
        let mut period = self.held.get(&attempt.request).map(|held| held.at);
        let mut is_new = self.put(attempt)?;
        if !is_new
            && let Some(lost_at) = self.take_back_lost(&attempt.request, Some(attempt.attempt))?
        {
            period = Some(lost_at);
            is_new = self.put(attempt)?;
        }
        if is_new {
            self.deltas.add(attempt, period.unwrap_or(attempt.started_at), attempt.uses());
            self.charges.add(attempt.charge());
        }
        if attempt.last { self.release(&attempt.request) } else { Ok(()) }
    }

    fn put(&self, attempt: &Attempt) -> Result<bool> {
        let rows = run(
            self.connection,
            sql::PUT_ATTEMPT,
            params![
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
            ],
        )?;
        Ok(rows > 0)
    }

    /// A request, or one attempt of it, that was taken for lost, and was not: its guessed row goes, and so does what that
    /// used. Says in which periods that was.
    fn take_back_lost(
        &mut self,
        request: &str,
        attempt: Option<u32>,
    ) -> Result<Option<UnixMicros>> {
        let read = |row: &Row<'_>| rows::guess(row);
        let lost = match attempt {
            Some(attempt) => {
                let which = params![request, attempt];
                first(self.connection, sql::DROP_LOST_ATTEMPT, which, read)?
            }
            None => first(self.connection, sql::DROP_LOST, [request], read)?,
        };
        Ok(lost.map(|guess| {
            self.charges.take_back(&guess);
            let Guess { payers, at, uses, .. } = guess;
            self.deltas.add(payers, at, uses.negative());
            at
        }))
    }

    /// Ends a request's reservation, where it has one.
    pub(super) fn release(&mut self, request: &str) -> Result<()> {
        let Some(held) = self.held.remove(request) else { return Ok(()) };
        run(self.connection, sql::DROP_RESERVATION, [request])?;
        let delta = held.holds(true).negative();
        self.deltas.add(owned(&held), held.at, delta);
        Ok(())
    }

    /// Holds what was asked for where all budgets have room. A request that holds something already holds this instead.
    pub(super) fn reserve(
        &mut self,
        reservation: &'a Reservation,
    ) -> Result<std::result::Result<Granted, Refused>> {
        let earlier = self.held.get(&reservation.request).cloned();
        self.release(&reservation.request)?;
        self.write_sums()?;
        let books = self.books(reservation)?;
        let Reservation { group, tenant, key, model, model_budgets, at, .. } = reservation;
        let is_hosted = reservation.hosted.is_some();
        let owners = Owners {
            group: Some(group),
            tenant: Some(tenant),
            key: Some(key),
            hosted: is_hosted,
            model: is_hosted.then_some((model, model_budgets)),
        };
        let budgets = queries::budgets(self.connection, owners, *at)?;
        let decided = decide(&budgets, &books, reservation);
        match &decided {
            Err(_) => earlier.map_or(Ok(()), |earlier| self.hold(earlier))?,
            Ok(granted) if concerns(&budgets, granted.hosted) || reservation.claim.is_some() => {
                self.hold(reservation.granted(granted.hosted))?;
            }
            Ok(_) => {}
        }
        Ok(decided)
    }

    /// How the fleet stands, as far as it concerns a reservation.
    fn books(&self, reservation: &Reservation) -> Result<Books> {
        let (Some(claim), terms, at) = (&reservation.claim, reservation.fleet, reservation.at)
        else {
            return Ok(Books::default());
        };
        let books = self.read_books(claim, terms)?;
        if books.are_current(terms.window, at) {
            return Ok(books);
        }
        fleet::roll(&mut OnConnection(self.connection), terms.window, at)?;
        self.read_books(claim, terms)
    }

    fn read_books(&self, claim: &TaskClaim, terms: FleetTerms) -> Result<Books> {
        let books = RefCell::new(Books::default());
        let put = |row: &Row<'_>| books.borrow_mut().put_task(row);
        first(self.connection, claims::TASK, [&claim.task], put)?;
        let put = |row: &Row<'_>| books.borrow_mut().put_project(row);
        first(self.connection, claims::PROJECT, [&claim.project], put)?;
        if terms.budget.is_some() {
            let put = |row: &Row<'_>| books.borrow_mut().put_fleet(row, terms);
            first(self.connection, claims::FLEET, [], put)?;
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
        ];
        run(self.connection, sql::PUT_RESERVATION, values)?;
        self.deltas.add(owned(&reservation), reservation.at, reservation.holds(true));
        self.held.insert(request.clone(), reservation);
        Ok(())
    }

    /// Turns every reservation into a row of outcome `lost`: nobody is left who could end it. Where the request has its last
    /// row, its client had left before the reservation was made: it is released, and nothing was lost.
    pub(super) fn resolve(&mut self) -> Result<Resolved> {
        let mut resolved = Resolved::default();
        let mut left: Vec<_> = self.held.values().cloned().collect();
        left.sort_by(|one, other| one.request.cmp(&other.request));
        for reservation in left {
            // A request has one guess at most.
            self.take_back_lost(&reservation.request, None)?;
            let made = first(self.connection, sql::ATTEMPTS_MADE, [&reservation.request], |row| {
                Ok((row.count(0)?, row.flag(1)?))
            })?;
            let (made, has_ended) = made.unwrap_or_default();
            if has_ended {
                self.release(&reservation.request)?;
                continue;
            }
            let row = reservation.lost(u32::try_from(made).unwrap_or(u32::MAX));
            if self.put(&row)? {
                self.deltas.add(owned(&reservation), row.started_at, row.uses());
                self.charges.add(row.charge());
            }
            self.release(&reservation.request)?;
            resolved.reservations += 1;
            resolved.tokens += reservation.tokens;
        }
        Ok(resolved)
    }

    /// Runs a transaction of the fleet inside this one; what it does is undone where it says so.
    pub(super) fn transact(&mut self, job: &mut dyn Job) -> Result<()> {
        // It may look at sums and rows.
        self.write_sums()?;
        run(self.connection, "SAVEPOINT a_job", [])?;
        let keep = job.work(&mut OnConnection(self.connection));
        self.check_open()?;
        if !keep {
            run(self.connection, "ROLLBACK TO a_job", [])?;
        }
        run(self.connection, "RELEASE a_job", [])?;
        Ok(())
    }

    /// Changes the directory; a change that fails leaves the rest of the transaction alone.
    pub(super) fn change(
        &self,
        actor: &str,
        at: UnixMicros,
        change: &Change,
    ) -> Result<Result<Changed>> {
        run(self.connection, "SAVEPOINT a_change", [])?;
        let changed = self.make_change(actor, at, change);
        self.check_open()?;
        if changed.is_err() {
            run(self.connection, "ROLLBACK TO a_change", [])?;
        }
        run(self.connection, "RELEASE a_change", [])?;
        Ok(changed)
    }

    fn make_change(&self, actor: &str, at: UnixMicros, change: &Change) -> Result<Changed> {
        let found = queries::found(self.connection, change.concern())?;
        let edit = change.edit(actor, at, found)?;
        let version = if edit.statements.is_empty() {
            queries::directory_version(self.connection)?
        } else {
            first(self.connection, sql::BUMP_VERSION, [], |row| row.int(0))?.unwrap_or(0)
        };
        for statement in &edit.statements {
            run(self.connection, &statement.sql, rusqlite::params_from_iter(&statement.values))?;
        }
        Ok(Changed { version, ..edit.changed })
    }

    /// Removes some rows that started before a moment; says how many.
    pub(super) fn prune(&self, before: UnixMicros) -> Result<u64> {
        let rows = run(self.connection, sql::PRUNE, [before.0, sql::PRUNE_ROWS])?;
        Ok(u64::try_from(rows).unwrap_or(u64::MAX))
    }
}

/// Whose a reservation is, for longer than it is kept.
fn owned(reservation: &Reservation) -> Payers<'static> {
    let text = |name: &String| name.clone().into();
    let Reservation { group, tenant, key, model, .. } = reservation;
    Payers { group: text(group), tenant: text(tenant), key: text(key), model: text(model) }
}

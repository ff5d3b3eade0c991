//! The async task that makes reservations. It makes all pending reservations in one transaction,
//! which locks the sums that it reads, so that no other transaction decides by the same numbers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use fairgate_time::UtcDay;
use fairgate_usage::UsageBalances;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_postgres::Row;

use super::claims;
use super::column_arrays::{ReservationArrays, SumArrays};
use super::connection::{PostgresConnection, PostgresSession, execute, query, with_answer_timeout};
use super::error::PostgresError;
use super::ledger::reservations;
use super::sql;
use super::writer::Reply;
use crate::budget::{BudgetBalance, BudgetScope, ReservationGrant, ReservationRefused};
use crate::error::StoreError;
use crate::ledger::Reservation;
use crate::reservation::{FileRequestsInFlight, decide, has_counting_budget};
use crate::rows::{self, OwnedBudget, RowColumns, WordColumns};
use crate::sums::{SumDeltas, SumKey, UsageSum, sums_of};

type Result<T> = std::result::Result<T, PostgresError>;
type ReservationAnswer = std::result::Result<ReservationGrant, ReservationRefused>;

/// Maximum number of reservations in one transaction.
const BATCH_MAX: usize = 256;
/// Maximum number of times that a batch is tried. A retry is safe even if the first try was
/// committed, because a second reservation of a request replaces the first one.
const TRIES: u32 = 3;

/// Pause after a failed release of orphans, before the next try. A new reservation ends the pause.
const RELEASE_PAUSE: Duration = Duration::from_millis(200);

/// Commands to the [`PostgresReserver`].
pub(super) enum ReserverCommand {
    Reserve(Box<Reservation>, Reply<ReservationAnswer>),
    Close(Reply<()>),
}

/// State of the async task that makes the reservations of one instance.
pub(super) struct PostgresReserver {
    link: PostgresConnection,
    instance: i64,
    /// Ids of requests that may have a reservation that no caller will end, because the caller left
    /// before the result or got an error. These reservations are released before new ones are made.
    orphans: HashSet<String>,
    /// Earliest time of the next try to release orphans, after a try that failed.
    release_at: Instant,
    /// True if any statement of the last batch may have reached the server.
    was_sent: bool,
}

impl PostgresReserver {
    pub(super) fn new(link: PostgresConnection, instance: i64) -> Self {
        let release_at = Instant::now();
        Self { link, instance, orphans: HashSet::new(), release_at, was_sent: false }
    }

    /// Makes reservations until a close command arrives, or until all senders of `inbox` are gone.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<ReserverCommand>) {
        let mut commands = Vec::with_capacity(BATCH_MAX);
        let mut closers = Vec::new();
        while self.wait_for_commands(&mut inbox, &mut commands).await {
            let mut asked = Vec::with_capacity(commands.len());
            for command in commands.drain(..) {
                match command {
                    // The caller gave up while the server did not answer. Nothing was reserved.
                    ReserverCommand::Reserve(_, reply) if reply.is_closed() => {}
                    ReserverCommand::Reserve(reservation, reply) => {
                        asked.push((reservation, reply))
                    }
                    ReserverCommand::Close(reply) => {
                        inbox.close();
                        closers.push(reply);
                    }
                }
            }
            self.reserve(asked).await;
        }
        drop(self);
        for reply in closers {
            let _ = reply.send(Ok(()));
        }
    }

    /// Waits for commands or for the time to release orphans. Returns false if no more commands can arrive.
    async fn wait_for_commands(
        &self,
        inbox: &mut mpsc::Receiver<ReserverCommand>,
        commands: &mut Vec<ReserverCommand>,
    ) -> bool {
        if self.orphans.is_empty() {
            return inbox.recv_many(commands, BATCH_MAX).await > 0;
        }
        // Orphans are released at once, or as soon as there is a connection again. Those that
        // remain when the process ends are resolved like those of any dead process.
        tokio::select! {
            biased;
            received = inbox.recv_many(commands, BATCH_MAX) => received > 0,
            () = sleep_until(self.link.next_attempt().max(self.release_at)) => true,
        }
    }

    async fn reserve(&mut self, asked: Vec<(Box<Reservation>, Reply<ReservationAnswer>)>) {
        let (wanted, replies): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        match self.reserve_with_retries(&wanted).await {
            Ok(answers) => {
                self.orphans.clear();
                for ((reservation, reply), answer) in wanted.into_iter().zip(replies).zip(answers) {
                    let held = answer.is_ok();
                    if reply.send(Ok(answer)).is_err() && held {
                        self.orphans.insert(reservation.request);
                    }
                }
            }
            Err(trouble) => {
                let problem = StoreError::from(trouble).to_string();
                self.release_at = Instant::now() + RELEASE_PAUSE;
                // Otherwise nothing was reserved, and a long outage must not fill the memory.
                if self.was_sent {
                    self.orphans.extend(wanted.into_iter().map(|reservation| reservation.request));
                }
                for reply in replies {
                    let _ = reply.send(Err(StoreError::Database(problem.clone())));
                }
            }
        }
    }

    async fn reserve_with_retries(
        &mut self,
        wanted: &[Box<Reservation>],
    ) -> Result<Vec<ReservationAnswer>> {
        let mut tries = 1;
        self.was_sent = false;
        loop {
            match self.reserve_once(wanted).await {
                Err(PostgresError::Connection(_) | PostgresError::Conflict(_)) if tries < TRIES => {
                    tries += 1
                }
                outcome => return outcome,
            }
        }
    }

    async fn reserve_once(
        &mut self,
        wanted: &[Box<Reservation>],
    ) -> Result<Vec<ReservationAnswer>> {
        let mut session = self.link.take_session().await?;
        self.was_sent = true;
        let orphans = self.orphans.iter().map(String::as_str);
        let outcome =
            with_answer_timeout(transact(&mut session, self.instance, orphans, wanted)).await;
        self.link.return_session(session, &outcome).await;
        outcome
    }
}

/// Runs one transaction in two round trips. The first locks and reads the sums, the second writes. If there are
/// reservations for tasks, a round trip for their projects comes before these.
async fn transact(
    session: &mut PostgresSession,
    instance: i64,
    orphans: impl Iterator<Item = &str>,
    wanted: &[Box<Reservation>],
) -> Result<Vec<ReservationAnswer>> {
    let for_tasks = wanted.iter().any(|it| it.claim.is_some());
    let usage = match for_tasks {
        true => claims::begin_reserving(session, wanted).await?,
        false => UsageBalances::default(),
    };
    let [end, ensure, lock, budgets, files, put, add] = session
        .prepare([
            sql::END_RESERVATIONS,
            sql::ENSURE_SUMS,
            sql::LOCK_SUMS,
            sql::BUDGETS_OF,
            sql::FILE_RESERVATIONS,
            sql::PUT_RESERVATIONS,
            sql::ADD_SUMS,
        ])
        .await?;
    let client = &session.client;
    let orphans: Vec<_> = orphans.collect();
    let wanted_requests = wanted.iter().map(|it| it.request.as_str());
    let requests: Vec<_> = orphans.iter().copied().chain(wanted_requests).collect();
    let tenants: Vec<_> = wanted.iter().map(|it| it.tenant.as_str()).collect();
    let keys: Vec<_> = wanted.iter().map(|it| it.key.as_str()).collect();
    let groups: Vec<_> = wanted.iter().map(|it| it.group.as_str()).collect();
    let which: BTreeMap<_, _> = wanted
        .iter()
        .flat_map(|it| sums_of(&**it, it.at, it.hosted.is_some()))
        .map(|sum| (sum, UsageSum::default()))
        .collect();
    let which: SumArrays<'_> = which.iter().collect();
    // Reservations are locked before sums, as in all transactions.
    let with_files = wanted.iter().any(|it| it.has_files);
    let (begun, ended, ensured, locked, budgets, files) = tokio::join!(
        async { if for_tasks { Ok(()) } else { client.batch_execute("BEGIN").await } },
        query(client, &end, [&requests]),
        execute(client, &ensure, which.which()),
        query(client, &lock, which.which()),
        query(client, &budgets, [&tenants, &keys, &groups]),
        // Files are read after the sums are locked, so that no other transaction can add a request
        // with files.
        async {
            match with_files {
                true => query(client, &files, [&tenants, &keys, &groups]).await,
                false => Ok(Vec::new()),
            }
        },
    );
    begun?;
    ensured?;
    let (ended, locked, budgets) = (reservations(&ended?)?, locked?, budgets?);
    let files = reservations(&files?)?;
    let mut book = ReservationBatch::new(&locked, &budgets, &ended, usage)?;
    book.files = files.iter().map(|it| (it.request.as_str(), it)).collect();
    orphans.into_iter().for_each(|request| book.release(request));
    let answers = wanted.iter().map(|reservation| book.reserve(reservation)).collect();

    let held: Vec<_> =
        book.held.values().map(|(reservation, hosted)| reservation.as_granted(*hosted)).collect();
    let held = ReservationArrays::new(&held, instance);
    let sums: SumArrays<'_> = book.deltas.iter().collect();
    let (put, added, committed) = tokio::join!(
        execute(client, &put, held.values()),
        execute(client, &add, sums.values()),
        client.batch_execute("COMMIT"),
    );
    put?;
    added?;
    committed?;
    Ok(answers)
}

/// The amounts by which the reservations of a batch are decided. No other transaction can change
/// them during this one.
struct ReservationBatch<'a> {
    sums: HashMap<SumKey<'a>, UsageSum>,
    budgets: HashMap<(BudgetScope, String), Vec<OwnedBudget>>,
    /// Existing reservations of the requests in this batch, by request id. The flag is true if the reservation includes
    /// hosted workers.
    held: BTreeMap<&'a str, (&'a Reservation, bool)>,
    deltas: SumDeltas<'a>,
    /// Reservations of requests with files, by request id. Includes those of this batch.
    files: BTreeMap<&'a str, &'a Reservation>,
    /// Balances of tasks and projects. They include the existing reservations of the batch's
    /// requests.
    usage: UsageBalances,
}

impl<'a> ReservationBatch<'a> {
    fn new(
        sums: &'a [Row],
        budgets: &[Row],
        held: &'a [Reservation],
        usage: UsageBalances,
    ) -> Result<Self> {
        let held = held.iter().map(|it| (it.request.as_str(), (it, it.hosted.is_some())));
        let mut book = Self {
            sums: HashMap::with_capacity(sums.len()),
            budgets: HashMap::new(),
            held: held.collect(),
            deltas: SumDeltas::default(),
            files: BTreeMap::new(),
            usage,
        };
        for row in sums {
            let sum = SumKey {
                scope: row.word(0)?,
                owner: row.try_get::<_, &str>(1)?.into(),
                period: row.word(2)?,
                first_day: UtcDay(row.int(3)?),
            };
            book.sums.insert(sum, rows::sum(row, 4)?);
        }
        for row in budgets {
            let owned = rows::budget(row)?;
            book.budgets.entry((owned.scope, owned.owner.clone())).or_default().push(owned);
        }
        Ok(book)
    }

    fn add(&mut self, reservation: &'a Reservation, delta: UsageSum) {
        let mut alone = SumDeltas::default();
        alone.add(reservation, reservation.at, delta);
        for (sum, delta) in alone.iter() {
            self.sums.entry(sum.clone()).or_default().add(delta);
        }
        self.deltas.add(reservation, reservation.at, delta);
    }

    fn release(&mut self, request: &str) {
        self.files.remove(request);
        if let Some((held, hosted)) = self.held.remove(request) {
            self.add(held, held.held_amounts(hosted).negative());
            self.count_for_task(held, hosted, -1);
        }
    }

    fn hold(&mut self, reservation: &'a Reservation, hosted: bool) {
        self.add(reservation, reservation.held_amounts(hosted));
        self.count_for_task(reservation, hosted, 1);
        self.held.insert(&reservation.request, (reservation, hosted));
        if reservation.has_files {
            self.files.insert(&reservation.request, reservation);
        }
    }

    fn count_for_task(&mut self, reservation: &Reservation, hosted: bool, sign: i64) {
        if let Some(claim) = &reservation.claim {
            let holds = reservation.held_amounts(hosted).reserved;
            self.usage.hold(claim, sign * holds.tokens, sign * holds.money);
        }
    }

    /// Makes a reservation if all budgets have room. Replaces an existing reservation of the same request.
    fn reserve(&mut self, reservation: &'a Reservation) -> ReservationAnswer {
        let earlier = self.held.get(reservation.request.as_str()).copied();
        self.release(&reservation.request);
        let budgets = self.balances(reservation);
        let files = FileRequestsInFlight::of(reservation, self.files.values().copied());
        let decided = decide(&budgets, &self.usage, &files, reservation);
        match (&decided, earlier) {
            (Err(_), Some((earlier, hosted))) => self.hold(earlier, hosted),
            (Ok(granted), _)
                if has_counting_budget(&budgets, granted.hosted) || reservation.claim.is_some() =>
            {
                self.hold(reservation, granted.hosted);
            }
            _ => {}
        }
        decided
    }

    fn balances(&self, reservation: &Reservation) -> Vec<BudgetBalance> {
        let at = reservation.at;
        let mut left = Vec::new();
        for sum in sums_of(reservation, at, reservation.hosted.is_some()) {
            let whose = (sum.scope, sum.owner.clone().into_owned());
            let of_model = reservation.model_budgets.iter();
            let of_model = of_model
                .filter(|_| sum.scope == BudgetScope::HostedModel)
                .map(|budget| OwnedBudget::of_model(&reservation.model, *budget));
            let budgets = self.budgets.get(&whose).into_iter().flatten().cloned().chain(of_model);
            for owned in budgets.filter(|owned| owned.budget.period == sum.period) {
                let stands = self.sums.get(&sum).copied().unwrap_or_default();
                left.push(owned.balance(&stands, at));
            }
        }
        left
    }
}

//! The task that reserves: whatever is pending goes into one transaction that holds the sums it looks at, so that nobody
//! else, in this process or another, decides on the same numbers.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use fairgate_money::Day;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_postgres::Row;

use super::arrays::{Reservations, Sums};
use super::fleet;
use super::ledger::reservations;
use super::link::{Link, Session, execute, in_time, query};
use super::sql;
use super::trouble::Trouble;
use super::writer::Reply;
use crate::budget::{BudgetLeft, Granted, Refused, Scope};
use crate::claims::Books;
use crate::decide::{concerns, decide};
use crate::error::StoreError;
use crate::ledger::Reservation;
use crate::rows::{self, Columns, Owned, Words};
use crate::sums::{Deltas, Sum, SumKey, sums_of};

type Result<T> = std::result::Result<T, Trouble>;
type Answer = std::result::Result<Granted, Refused>;

/// How many reservations one transaction makes.
const BATCH_MAX: usize = 256;
/// How often a batch is tried: reserving again replaces, so this is safe whatever became of the first try.
const TRIES: u32 = 3;

/// How long to wait after a failure before orphans are released again, unless somebody reserves before that.
const RELEASE_PAUSE: Duration = Duration::from_millis(200);

/// What the task is asked.
pub(super) enum Command {
    Reserve(Box<Reservation>, Reply<Answer>),
    Close(Reply<()>),
}

/// The task and the instance that it reserves for.
pub(super) struct Reserver {
    link: Link,
    instance: i64,
    /// Requests that may hold something though nobody knows of it: whoever asked left before the answer, or was told that it
    /// failed. They are released before anything else is reserved.
    orphans: HashSet<String>,
    /// When they may be released, where that has just failed.
    release_at: Instant,
    /// Whether anything of the last batch may have reached the server.
    was_sent: bool,
}

impl Reserver {
    pub(super) fn new(link: Link, instance: i64) -> Self {
        let release_at = Instant::now();
        Self { link, instance, orphans: HashSet::new(), release_at, was_sent: false }
    }

    /// Reserves until it is told to close, or until nobody is left who could ask.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        let mut commands = Vec::with_capacity(BATCH_MAX);
        let mut closers = Vec::new();
        while self.next(&mut inbox, &mut commands).await {
            let mut asked = Vec::with_capacity(commands.len());
            for command in commands.drain(..) {
                match command {
                    // Whoever asked gave up while the server was away. Nothing was reserved.
                    Command::Reserve(_, reply) if reply.is_closed() => {}
                    Command::Reserve(reservation, reply) => asked.push((reservation, reply)),
                    Command::Close(reply) => {
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

    /// Waits for something to do; false where there will never be anything.
    async fn next(&self, inbox: &mut mpsc::Receiver<Command>, commands: &mut Vec<Command>) -> bool {
        if self.orphans.is_empty() {
            return inbox.recv_many(commands, BATCH_MAX).await > 0;
        }
        // Orphans are released at once, or as soon as there is a connection again. Those left at the end are resolved as
        // those of any process that is gone.
        tokio::select! {
            biased;
            received = inbox.recv_many(commands, BATCH_MAX) => received > 0,
            () = sleep_until(self.link.next_attempt().max(self.release_at)) => true,
        }
    }

    async fn reserve(&mut self, asked: Vec<(Box<Reservation>, Reply<Answer>)>) {
        let (wanted, replies): (Vec<_>, Vec<_>) = asked.into_iter().unzip();
        match self.persistently(&wanted).await {
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
                // Without a connection nothing was reserved, and a long outage must not fill the memory.
                if self.was_sent {
                    self.orphans.extend(wanted.into_iter().map(|reservation| reservation.request));
                }
                for reply in replies {
                    let _ = reply.send(Err(StoreError::Database(problem.clone())));
                }
            }
        }
    }

    async fn persistently(&mut self, wanted: &[Box<Reservation>]) -> Result<Vec<Answer>> {
        let mut tries = 1;
        self.was_sent = false;
        loop {
            match self.once(wanted).await {
                Err(Trouble::Link(_) | Trouble::Conflict(_)) if tries < TRIES => tries += 1,
                outcome => return outcome,
            }
        }
    }

    async fn once(&mut self, wanted: &[Box<Reservation>]) -> Result<Vec<Answer>> {
        let mut session = self.link.take().await?;
        self.was_sent = true;
        let orphans = self.orphans.iter().map(String::as_str);
        let outcome = in_time(transact(&mut session, self.instance, orphans, wanted)).await;
        self.link.give_back(session, &outcome).await;
        outcome
    }
}

/// One transaction in two round trips: lock and look, then write. One for the fleet comes before those where tasks reserve.
async fn transact(
    session: &mut Session,
    instance: i64,
    orphans: impl Iterator<Item = &str>,
    wanted: &[Box<Reservation>],
) -> Result<Vec<Answer>> {
    let for_tasks = wanted.iter().any(|it| it.claim.is_some());
    let fleet = match for_tasks {
        true => fleet::begin_reserving(session, wanted).await?,
        false => Books::default(),
    };
    let [end, ensure, lock, budgets, put, add] = session
        .prepare([
            sql::END_RESERVATIONS,
            sql::ENSURE_SUMS,
            sql::LOCK_SUMS,
            sql::BUDGETS_OF,
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
        .map(|sum| (sum, Sum::default()))
        .collect();
    let which: Sums<'_> = which.iter().collect();
    // Reservations before sums, as everywhere.
    let (begun, ended, ensured, locked, budgets) = tokio::join!(
        async { if for_tasks { Ok(()) } else { client.batch_execute("BEGIN").await } },
        query(client, &end, [&requests]),
        execute(client, &ensure, which.which()),
        query(client, &lock, which.which()),
        query(client, &budgets, [&tenants, &keys, &groups]),
    );
    begun?;
    ensured?;
    let (ended, locked, budgets) = (reservations(&ended?)?, locked?, budgets?);
    let mut book = Book::new(&locked, &budgets, &ended, fleet)?;
    orphans.into_iter().for_each(|request| book.release(request));
    let answers = wanted.iter().map(|reservation| book.reserve(reservation)).collect();

    let held: Vec<_> =
        book.held.values().map(|(reservation, hosted)| reservation.granted(*hosted)).collect();
    let held = Reservations::new(&held, instance);
    let sums: Sums<'_> = book.deltas.iter().collect();
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

/// The numbers that a batch is decided on, which nobody else can change in the meantime.
struct Book<'a> {
    sums: HashMap<SumKey<'a>, Sum>,
    budgets: HashMap<(Scope, String), Vec<Owned>>,
    /// The reservations there are of the requests of this batch, and whether they hold something on hosted workers.
    held: BTreeMap<&'a str, (&'a Reservation, bool)>,
    deltas: Deltas<'a>,
    /// The tasks, projects and budgets of the fleet. What the reservations of this batch hold already is part of it.
    fleet: Books,
}

impl<'a> Book<'a> {
    fn new(
        sums: &'a [Row],
        budgets: &[Row],
        held: &'a [Reservation],
        fleet: Books,
    ) -> Result<Self> {
        let held = held.iter().map(|it| (it.request.as_str(), (it, it.hosted.is_some())));
        let mut book = Self {
            sums: HashMap::with_capacity(sums.len()),
            budgets: HashMap::new(),
            held: held.collect(),
            deltas: Deltas::default(),
            fleet,
        };
        for row in sums {
            let sum = SumKey {
                scope: row.word(0)?,
                owner: row.try_get::<_, &str>(1)?.into(),
                period: row.word(2)?,
                first_day: Day(row.int(3)?),
            };
            book.sums.insert(sum, rows::sum(row, 4)?);
        }
        for row in budgets {
            let owned = rows::budget(row)?;
            book.budgets.entry((owned.scope, owned.owner.clone())).or_default().push(owned);
        }
        Ok(book)
    }

    fn add(&mut self, reservation: &'a Reservation, delta: Sum) {
        let mut alone = Deltas::default();
        alone.add(reservation, reservation.at, delta);
        for (sum, delta) in alone.iter() {
            self.sums.entry(sum.clone()).or_default().add(delta);
        }
        self.deltas.add(reservation, reservation.at, delta);
    }

    fn release(&mut self, request: &str) {
        if let Some((held, hosted)) = self.held.remove(request) {
            self.add(held, held.holds(hosted).negative());
            self.count_for_task(held, hosted, -1);
        }
    }

    fn hold(&mut self, reservation: &'a Reservation, hosted: bool) {
        self.add(reservation, reservation.holds(hosted));
        self.count_for_task(reservation, hosted, 1);
        self.held.insert(&reservation.request, (reservation, hosted));
    }

    fn count_for_task(&mut self, reservation: &Reservation, hosted: bool, sign: i64) {
        if let Some(claim) = &reservation.claim {
            self.fleet.hold(claim, sign * reservation.holds(hosted).reserved.tokens);
        }
    }

    /// Holds what was asked for where all budgets have room. A request that holds something already holds this instead.
    fn reserve(&mut self, reservation: &'a Reservation) -> Answer {
        let earlier = self.held.get(reservation.request.as_str()).copied();
        self.release(&reservation.request);
        let budgets = self.left(reservation);
        let decided = decide(&budgets, &self.fleet, reservation);
        match (&decided, earlier) {
            (Err(_), Some((earlier, hosted))) => self.hold(earlier, hosted),
            (Ok(granted), _)
                if concerns(&budgets, granted.hosted) || reservation.claim.is_some() =>
            {
                self.hold(reservation, granted.hosted);
            }
            _ => {}
        }
        decided
    }

    fn left(&self, reservation: &Reservation) -> Vec<BudgetLeft> {
        let at = reservation.at;
        let mut left = Vec::new();
        for sum in sums_of(reservation, at, reservation.hosted.is_some()) {
            let whose = (sum.scope, sum.owner.clone().into_owned());
            let of_model = reservation.model_budgets.iter();
            let of_model = of_model
                .filter(|_| sum.scope == Scope::HostedModel)
                .map(|budget| Owned::of_model(&reservation.model, *budget));
            let budgets = self.budgets.get(&whose).into_iter().flatten().cloned().chain(of_model);
            for owned in budgets.filter(|owned| owned.budget.period == sum.period) {
                let stands = self.sums.get(&sum).copied().unwrap_or_default();
                left.push(owned.left(&stands, at));
            }
        }
        left
    }
}

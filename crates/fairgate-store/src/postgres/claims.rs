//! Reads and writes the usage of tasks and projects in transactions of the ledger and of budgets.
//! Each such transaction first runs the statement [`usage::LOCK`], which prevents deadlocks.

use std::collections::{BTreeMap, BTreeSet};

use fairgate_usage::{ClaimCharges, ClaimUsage, UsageBalances, sql as usage};

use super::connection::{PostgresSession, execute, query};
use super::error::PostgresError;
use crate::ledger::Reservation;
use crate::rows::RowColumns;
use crate::sums::signed;

type Result<T> = std::result::Result<T, PostgresError>;

/// Begins a transaction that changes the usage of tasks.
pub(super) async fn begin(session: &mut PostgresSession) -> Result<()> {
    let [lock] = session.prepare([usage::LOCK]).await?;
    let client = &session.client;
    let (begun, locked) = tokio::join!(client.batch_execute("BEGIN"), query(client, &lock, []));
    begun?;
    locked.map(drop)
}

/// Begins a transaction with reservations for tasks, and returns the balances of these tasks and their projects.
pub(super) async fn begin_reserving(
    session: &mut PostgresSession,
    wanted: &[Box<Reservation>],
) -> Result<UsageBalances> {
    begin(session).await?;
    let books = read(session, wanted).await?;
    let of_tasks = wanted.iter().filter(|it| it.claim.is_some());
    let Some((window, at)) = of_tasks.map(|it| (it.terms.window, it.at)).max_by_key(|it| it.1)
    else {
        return Ok(books);
    };
    if books.is_current(window, at) {
        return Ok(books);
    }
    let [roll, forget] = session.prepare([usage::ROLL, usage::FORGET]).await?;
    let client = &session.client;
    let [bucket, oldest, before, kept] = window.edges(at);
    let (rolled, forgotten) = tokio::join!(
        execute(client, &roll, [&bucket, &oldest, &before]),
        execute(client, &forget, [&kept]),
    );
    rolled?;
    forgotten?;
    read(session, wanted).await
}

async fn read(session: &mut PostgresSession, wanted: &[Box<Reservation>]) -> Result<UsageBalances> {
    let [tasks, projects, total] =
        session.prepare([usage::TASKS, usage::PROJECTS, usage::TOTAL]).await?;
    let client = &session.client;
    let claims = || wanted.iter().filter_map(|it| it.claim.as_ref());
    let of_tasks: BTreeSet<_> = claims().map(|claim| claim.task.as_str()).collect();
    let of_projects: BTreeSet<_> = claims().map(|claim| claim.project.as_str()).collect();
    let (of_tasks, of_projects) = (Vec::from_iter(of_tasks), Vec::from_iter(of_projects));
    let terms = wanted.iter().find(|it| it.claim.is_some() && it.terms.budget.is_some());
    let whole = async {
        match terms {
            Some(_) => query(client, &total, []).await,
            None => Ok(Vec::new()),
        }
    };
    let (tasks, projects, whole) = tokio::join!(
        query(client, &tasks, [&of_tasks]),
        query(client, &projects, [&of_projects]),
        whole,
    );
    let mut books = UsageBalances::default();
    tasks?.iter().try_for_each(|row| books.put_task(row as &dyn RowColumns))?;
    projects?.iter().try_for_each(|row| books.put_project(row as &dyn RowColumns))?;
    if let Some(it) = terms {
        whole?.iter().try_for_each(|row| books.put_total(row as &dyn RowColumns, it.terms))?;
    }
    Ok(books)
}

/// Adds the usage of claims to their tasks and projects.
pub(super) async fn charge(session: &mut PostgresSession, charges: &ClaimCharges) -> Result<()> {
    if charges.is_empty() {
        return Ok(());
    }
    let [buckets, projects, tasks, count] = session
        .prepare([
            usage::ADD_TO_BUCKETS,
            usage::ADD_TO_PROJECTS,
            usage::ADD_TO_TASKS,
            usage::COUNT_CHANGE,
        ])
        .await?;
    let mut by_project: BTreeMap<&str, i64> = BTreeMap::new();
    let mut by_task = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (claim, ClaimUsage { tokens, calls, money, answered_at }) in charges.iter() {
        *by_project.entry(&claim.project).or_default() += tokens;
        by_task.0.push(claim.task.as_str());
        by_task.1.push(signed(claim.epoch));
        by_task.2.push(tokens);
        by_task.3.push(calls);
        by_task.4.push(money);
        by_task.5.push(answered_at);
    }
    let (names, tokens): (Vec<_>, Vec<_>) = by_project.into_iter().unzip();
    let client = &session.client;
    let (a, b, c, d) = tokio::join!(
        execute(client, &buckets, [&names, &tokens]),
        execute(client, &projects, [&names, &tokens]),
        execute(
            client,
            &tasks,
            [&by_task.0, &by_task.1, &by_task.2, &by_task.3, &by_task.4, &by_task.5]
        ),
        execute(client, &count, []),
    );
    a.and(b).and(c).and(d)
}

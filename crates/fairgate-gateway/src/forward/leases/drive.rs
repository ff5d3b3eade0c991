//! The task of one lease: the way of its request, from the same checks to the same guard as any other's. Only the call
//! itself is made elsewhere.

use std::sync::Arc;

use fairgate_config::{HostedBudget, ModelConfig, OnStoreFailure};
use fairgate_dialect::estimate::Expected;
use fairgate_dialect::{Ask, Usage};
use fairgate_store::{Outcome, UsageSource};
use tokio::sync::mpsc;

use super::super::bill::{Stated, Used};
use super::super::passage::{CLIENT_LEFT, Charge, End, In, Passage};
use super::super::send::{Again, Wish, board};
use super::super::stage::{Accepted, Counted, InFlight, Terms};
use super::super::{budget, chosen, cost, provider};
use super::lease::{Lease, Over, Report, State, Word};
use super::wire::Submission;
use crate::app::App;
use crate::phase;
use crate::pools::{Model, PoolHandle};
use crate::refusal::{self, Refusal};

/// How the way of a lease ended.
enum Fate {
    Refused(Refusal),
    Settled(Report),
    Cancelled,
    Lost,
    /// The gateway closes: the guard writes the row.
    Drained,
}

/// A lease whose task runs. However the task ends, the lease is over.
struct Running {
    lease: Arc<Lease>,
    app: Arc<App>,
    key: Arc<str>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Says nothing new, unless the task did not come to its end.
        self.lease.enter(State::Over(Arc::new(Over::Lost(Charge::default()))));
        self.app.leases.ended(&self.key, &self.lease);
    }
}

/// Brings a lease to its end.
pub(super) async fn drive(
    mut passage: Box<Passage>,
    lease: Arc<Lease>,
    mut words: mpsc::Receiver<Word>,
    pool: Arc<PoolHandle>,
    submission: Submission,
) {
    let app = passage.arrival.app.clone();
    let _counted = app.leases.running.one();
    let running = Running { lease, app, key: passage.arrival.caller.key.clone() };
    let lease = &running.lease;
    let fate = Box::pin(way(&mut passage, lease, &mut words, pool, submission)).await;
    if let Some(over) = close(&mut passage, fate).await {
        lease.enter(State::Over(Arc::new(over)));
    }
    // Where it has not ended, the guard ends it now: before the lease is known to be over.
    drop(passage);
}

/// From the checks to the last word.
async fn way(
    passage: &mut Passage,
    lease: &Lease,
    words: &mut mpsc::Receiver<Word>,
    pool: Arc<PoolHandle>,
    submission: Submission,
) -> Fate {
    let (accepted, wish) = match accept(passage, pool, submission).await {
        Ok(accepted) => accepted,
        Err(refusal) => return Fate::Refused(refusal),
    };
    let (mut counted, listed) = match accepted.count_in(0) {
        Ok(counted) => counted,
        Err(limited) => return Fate::Refused(limited.into()),
    };
    let mut listed = Some(listed);
    let mut again = Again::default();
    loop {
        lease.enter(State::Queued);
        let boarded = tokio::select! {
            biased;
            boarded = board(counted, &wish, &[], &again) => boarded,
            fate = given_up(lease, words) => return fate,
        };
        let mut in_flight = match boarded {
            Ok((in_flight, _)) => in_flight,
            Err(refusal) => return Fate::Refused(refusal),
        };
        drop(listed.take());
        let quota = cost::quota(&in_flight, None);
        in_flight.flight.sent(&wish.model.pool.name, false, quota);
        let (attempt, waited) = (in_flight.attempt, in_flight.waited.unwrap_or_default());
        lease.enter(State::Granted { attempt, waited });
        let heard = match held(&mut in_flight, lease, words).await {
            Ok(heard) => heard,
            Err(fate) => return fate,
        };
        counted = match come_back(in_flight, &mut again, heard).await {
            Ok(counted) => counted,
            Err(refusal) => return Fate::Refused(refusal),
        };
    }
}

/// Ready once a lease that waits is given up by its client.
async fn given_up(lease: &Lease, words: &mut mpsc::Receiver<Word>) -> Fate {
    let cancelled = async {
        // Nothing else can be said of a call that was not made.
        while let Some(word) = words.recv().await {
            if matches!(word, Word::Cancel) {
                return;
            }
        }
    };
    tokio::select! {
        () = cancelled => Fate::Cancelled,
        () = lease.silence() => Fate::Lost,
    }
}

/// Waits for the word that ends the time in the slot. Gives what the provider said where it has not taken the call on.
async fn held(
    in_flight: &mut In<'_, InFlight>,
    lease: &Lease,
    words: &mut mpsc::Receiver<Word>,
) -> Result<Box<provider::Heard>, Fate> {
    let mut phase = in_flight.arrival().app.phase.watch();
    let word = tokio::select! {
        biased;
        word = words.recv() => word,
        () = lease.silence() => return Err(Fate::Lost),
        _ = phase.wait_for(|stage| *stage == phase::Stage::Closing) => return Err(Fate::Drained),
    };
    match word {
        Some(Word::Limited(heard)) => Ok(heard),
        Some(Word::Settle(mut report)) => {
            if let Some(heard) = report.heard.take() {
                report.succeeded &= hear_last(in_flight, *heard);
                Box::pin(in_flight.pool.reporter.is_told()).await;
            }
            Err(Fate::Settled(report))
        }
        Some(Word::Cancel) => Err(Fate::Cancelled),
        // The lease holds its own sender.
        None => Err(Fate::Lost),
    }
}

/// Hears the last answer of a call that is not made again. One that the provider has not taken on is charged nothing.
/// Says whether it was taken on.
fn hear_last(in_flight: &mut In<'_, InFlight>, heard: provider::Heard) -> bool {
    if matches!(heard.said, fairgate_dialect::limits::Refusal::Other) {
        provider::hear_accepted(in_flight, &heard.told);
        return true;
    }
    let not_taken = provider::hear_refused(in_flight, heard);
    if not_taken.is_some_and(|not_taken| not_taken.is_for_this_worker()) {
        in_flight.flight.not_taken();
    }
    false
}

/// A call that its provider has not taken on gives its slot back, charged nothing, and waits again: first in its flow.
async fn come_back<'p>(
    mut in_flight: In<'p, InFlight>,
    again: &mut Again,
    heard: Box<provider::Heard>,
) -> Result<In<'p, Counted>, Refusal> {
    let Some(not_taken) = provider::hear_refused(&in_flight, *heard) else {
        return Err(refusal::not_a_limit());
    };
    if not_taken.is_for_this_worker() {
        in_flight.flight.not_taken();
    }
    if !again.may_follow(&in_flight, &not_taken, &[], true) {
        return Err(not_taken.refusal());
    }
    // Else the slot would go to the next before the pool knows of the pause.
    Box::pin(in_flight.pool.reporter.is_told()).await;
    let (code, status) = (not_taken.code(), not_taken.status);
    again.after = Some(not_taken);
    let (counted, recording) = in_flight.end_attempt(code, status);
    recording.await.map_err(|_| refusal::unrecorded())?;
    Ok(counted)
}

/// Everything that is refused before it is submitted, but for the limits.
async fn accept(
    passage: &mut Passage,
    pool: Arc<PoolHandle>,
    submission: Submission,
) -> Result<(In<'_, Accepted>, Wish), Refusal> {
    let (app, caller) = (passage.arrival.app.clone(), passage.arrival.caller.clone());
    if app.config.load().on_store_failure == OnStoreFailure::Refuse && !app.store.can_record() {
        return Err(refusal::unrecorded());
    }
    let Submission { model, agent, session, class, priority, .. } = submission;
    let name = model.unwrap_or_default();
    let setup = pool.setup();
    let tenant = &caller.tenant;
    let usual = pool.estimator.expect(tenant, &name, &Ask::elsewhere(name.clone(), u64::MAX), None);
    let (expected, usual) = match (submission.input_tokens, submission.output_tokens) {
        (None, None) => match submission.cost {
            Some(cost) => (expected(0, cost), cost),
            None => (expected(0, usual.output), cost::estimate(setup.weights, usual, 0)),
        },
        (input, output) => {
            let expected = expected(input.unwrap_or(0), output.unwrap_or(usual.output));
            let by_weights = cost::estimate(setup.weights, expected, 0);
            (expected, submission.cost.unwrap_or(by_weights))
        }
    };
    let read = passage.read(Ask::elsewhere(name.clone(), expected.output));
    if caller.models.as_ref().is_some_and(|allowed| !allowed.contains(&name)) {
        return Err(refusal::forbidden_model(&name));
    }
    let chosen = Box::new(chosen::stated(&caller.rights, &setup, class, priority)?);
    let class = setup.class(chosen.class.as_deref(), expected.input);
    let routed = read.route(pool.clone(), agent, session);
    let estimate = pool.occupation.expected(tenant, usual);
    let accepted =
        routed.accept(Terms { expected, estimate, class, prefix: None, last_worker: None });
    let cap = match caller.budgeted {
        true => Box::pin(budget::look(&accepted)).await?,
        false => None,
    };
    let hosted_budget = HostedBudget::default();
    let config = ModelConfig { name, upstream_name: None, hosted: true, hosted_budget };
    drop(setup);
    Ok((accepted, Wish { model: Arc::new(Model { pool, config }), chosen, cap }))
}

/// What a client expects to use is also the most that is set aside for it.
fn expected(input: u64, output: u64) -> Expected {
    Expected { input, input_max: input, output, output_max: Some(output) }
}

/// Ends the request as its fate says, and waits for its row. `None` where the guard does it.
async fn close(passage: &mut Passage, fate: Fate) -> Option<Over> {
    let left = |code| End {
        status: CLIENT_LEFT,
        outcome: Outcome::ClientLeft,
        code: Some(code),
        used: Used::SoFar,
    };
    let (end, over): (End, fn(Charge) -> Over) = match fate {
        Fate::Drained => return None,
        Fate::Refused(refusal) => {
            // It is refused with or without a row.
            let _ = passage.refuse(&refusal).await;
            return Some(Over::Refused(refusal));
        }
        Fate::Cancelled => (left("lease_cancelled"), Over::Cancelled),
        Fate::Lost => (left("lease_lost"), Over::Lost),
        Fate::Settled(report) => (settled(passage, &report), Over::Settled),
    };
    let (charge, recording) = passage.settle(&end);
    match recording.await {
        Ok(()) => Some(over(charge)),
        Err(_) => Some(Over::Refused(refusal::unrecorded())),
    }
}

/// The end of a call that its client has told.
fn settled(passage: &mut Passage, report: &Report) -> End {
    let stated = report.stated.or_else(|| {
        let terms = &passage.in_flight()?.terms;
        let Expected { input, output, .. } = terms.expected;
        let usage = Usage { input, cached: 0, output };
        Some(Stated { usage, charged: Some(terms.estimate), source: UsageSource::Assumed })
    });
    let used = stated.map_or(Used::Expected, Used::Stated);
    match report.succeeded {
        true => End { status: 200, outcome: Outcome::Completed, code: None, used },
        false => {
            End { status: 502, outcome: Outcome::UpstreamError, code: Some("lease_failed"), used }
        }
    }
}

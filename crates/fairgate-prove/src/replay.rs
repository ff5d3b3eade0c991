//! Replay of the journal, which gives the submit, grant and usage of each request.
//!
//! Decisions that the gateway reports are not used here; instead, the core runs again on the
//! journal's events. At the end of each journal file, the replayed state must equal the snapshot
//! with which the next file begins. At the end of the last file, it must equal the final snapshot
//! of the gateway's pool.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::attribute::Attribute;
use fairgate_core::decision::{Decision, Grant};
use fairgate_core::event::{Event, Submit};
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::Micros;
use fairgate_journal::{JournalError, JournalReader, JournalStart};

use crate::evidence::JournalFile;

/// Requests, steps and differences that the replay of a journal found.
#[derive(Debug, Default)]
pub(crate) struct ReplayedJournal {
    /// Changes of requests, in the order of the events.
    pub(crate) steps: Vec<FlowStep>,
    /// All submitted requests; a retried request has one entry for each submit.
    pub(crate) requests: Vec<ReplayedRequest>,
    /// Number of events replayed.
    pub(crate) events: u64,
    /// Descriptions of the core's rejections, one sentence each.
    pub(crate) rejected: Vec<String>,
    /// Differences between the replay and the gateway's own state, one sentence each.
    pub(crate) differences: Vec<String>,
}

/// Index of a request in [`ReplayedJournal::requests`].
pub(crate) type RequestIndex = usize;

/// One change of a request's state, which also changes the state of the request's flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowStep {
    pub(crate) at: Micros,
    /// Sequence number of the event that caused the change.
    pub(crate) event: u64,
    pub(crate) request: RequestIndex,
    pub(crate) what: FlowChange,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowChange {
    /// The request is queued.
    Waits,
    /// The request left the queue without a grant.
    Gone,
    /// The request was granted a slot.
    Granted,
    /// The request gave its slot back.
    Ended,
}

/// One submitted request, as the journal records it.
#[derive(Clone, Debug)]
pub(crate) struct ReplayedRequest {
    pub(crate) id: Arc<str>,
    /// Index of the request's tenant in the scenario; `None` if the scenario has no such tenant.
    pub(crate) tenant: Option<usize>,
    pub(crate) class: Option<Box<str>>,
    /// True if the request's id was submitted before, so that this is a retry on another worker.
    pub(crate) is_retry: bool,
    /// Time until which the request may wait; `None` if its submit has no timeout.
    pub(crate) deadline: Option<Micros>,
    /// True if the request waited until its deadline and expired.
    pub(crate) expired: bool,
    pub(crate) grant: Option<ReplayedGrant>,
    /// Time at which the request ended, and the tokens that its flow was charged then; `None` if it
    /// did not end after a grant.
    pub(crate) ended: Option<(Micros, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct ReplayedGrant {
    pub(crate) cost: u64,
    pub(crate) waited: Micros,
    pub(crate) worker: Option<Box<str>>,
}

impl ReplayedRequest {
    /// Returns the tokens that the request's flow is charged while the request is in flight; 0 if
    /// it was never granted.
    pub(crate) fn cost(&self) -> u64 {
        self.grant.as_ref().map_or(0, |grant| grant.cost)
    }

    /// Returns the tokens that the request used. If the journal has no usage of the request,
    /// returns its cost.
    pub(crate) fn used(&self) -> u64 {
        self.ended.map_or(self.cost(), |(_, used)| used)
    }

    /// Returns the tokens that the request's end adds to its flow's service: its usage, but at
    /// least 1.
    pub(crate) fn counted(&self) -> u64 {
        self.used().max(1)
    }
}

/// Replays the files of a journal. `tenant` maps a tenant's name to its index in the scenario;
/// `last` is the final snapshot of the gateway's pool.
pub(crate) fn replay(
    files: &[JournalFile],
    last: Option<&Snapshot>,
    tenant: impl Fn(&str) -> Option<usize>,
) -> ReplayedJournal {
    let mut player = JournalReplayer {
        replayed: ReplayedJournal::default(),
        live: HashMap::new(),
        known_ids: HashSet::new(),
        tenant,
    };
    if let Err(error) = player.play(files, last) {
        player.replayed.differences.push(error);
    }
    player.replayed
}

struct JournalReplayer<F> {
    replayed: ReplayedJournal,
    /// Index of each request that is queued or in flight, by id.
    live: HashMap<Arc<str>, RequestIndex>,
    /// Ids of all requests submitted so far.
    known_ids: HashSet<Arc<str>>,
    tenant: F,
}

impl<F: Fn(&str) -> Option<usize>> JournalReplayer<F> {
    fn play(&mut self, files: &[JournalFile], last: Option<&Snapshot>) -> Result<(), String> {
        let mut before: Option<Snapshot> = None;
        for file in files {
            let bad = |error: JournalError| format!("{}: {error}", file.name);
            let (start, mut reader) = JournalReader::open(&file.bytes[..]).map_err(bad)?;
            if let (Some(ours), JournalStart::Snapshot(theirs)) = (&before, &start)
                && ours != theirs.as_ref()
            {
                let what = difference(ours, theirs);
                self.add_difference(format!(
                    "{} begins in another state than the replay: {what}",
                    file.name
                ));
            }
            let mut pool = start.into_pool().map_err(bad)?;
            while let Some((at, event)) = reader.next_event().map_err(bad)? {
                self.apply(&mut pool, at, event)
                    .map_err(|error| format!("{}: {error}", file.name))?;
            }
            before = Some(pool.snapshot());
        }
        match (before, last) {
            (None, _) => Err("there is no journal".into()),
            (Some(ours), Some(theirs)) if &ours != theirs => {
                let what = difference(&ours, theirs);
                Err(format!("the gateway's pool ended in another state than the replay: {what}"))
            }
            _ => Ok(()),
        }
    }

    fn apply(&mut self, pool: &mut Pool, at: Micros, event: Event) -> Result<(), String> {
        self.replayed.events += 1;
        match &event {
            Event::Submit(submit) => self.submitted(at, submit),
            Event::Release { id, tokens, .. } => self.ended(at, id, tokens.map(|tokens| tokens.0)),
            Event::Cancel { id } => self.ended(at, id, None),
            _ => {}
        }
        let mut decisions = Vec::new();
        pool.apply(at, event, &mut decisions).map_err(|error| error.to_string())?;
        for decision in decisions {
            match decision {
                Decision::Grant(grant) => self.granted(at, grant),
                Decision::Reject(reject) => {
                    let reason = reject.reason.code();
                    self.replayed.rejected.push(format!("{} was refused: {reason}", reject.id));
                    self.gone(at, &reject.id);
                }
                Decision::Expire { id, .. } => {
                    if let Some(request) = self.live.get(&id) {
                        self.replayed.requests[*request].expired = true;
                    }
                    self.gone(at, &id);
                }
            }
        }
        Ok(())
    }

    fn submitted(&mut self, at: Micros, submit: &Submit) {
        let tenant = submit.attributes.get(Attribute::Tenant).and_then(&self.tenant);
        if tenant.is_none() {
            self.add_difference(format!("{} belongs to no tenant of the scenario", submit.id));
        }
        let request = self.replayed.requests.len();
        self.replayed.requests.push(ReplayedRequest {
            id: submit.id.clone(),
            tenant,
            class: submit.attributes.get(Attribute::Class).map(Into::into),
            is_retry: !self.known_ids.insert(submit.id.clone()),
            deadline: submit.timeout.map(|timeout| Micros(at.0.saturating_add(timeout.0))),
            expired: false,
            grant: None,
            ended: None,
        });
        self.live.insert(submit.id.clone(), request);
        self.step(at, request, FlowChange::Waits);
    }

    fn granted(&mut self, at: Micros, grant: Grant) {
        let Some(request) = self.live.get(&grant.id).copied() else {
            return self.add_difference(format!("{} was granted and never submitted", grant.id));
        };
        self.replayed.requests[request].grant = Some(ReplayedGrant {
            cost: grant.cost.0,
            waited: grant.waited,
            worker: grant.place.map(|place| place.worker.as_ref().into()),
        });
        self.step(at, request, FlowChange::Granted);
    }

    /// Ends a request. If `tokens` is `None`, its usage equals its cost.
    fn ended(&mut self, at: Micros, id: &str, tokens: Option<u64>) {
        let Some(index) = self.live.remove(id) else {
            return self
                .add_difference(format!("{id} ended, and neither waited nor was in flight"));
        };
        let request = &mut self.replayed.requests[index];
        let Some(grant) = &request.grant else { return self.step(at, index, FlowChange::Gone) };
        request.ended = Some((at, tokens.unwrap_or(grant.cost)));
        self.step(at, index, FlowChange::Ended);
    }

    fn gone(&mut self, at: Micros, id: &str) {
        if let Some(request) = self.live.remove(id) {
            self.step(at, request, FlowChange::Gone);
        }
    }

    fn step(&mut self, at: Micros, request: RequestIndex, what: FlowChange) {
        self.replayed.steps.push(FlowStep { at, event: self.replayed.events, request, what });
    }

    fn add_difference(&mut self, difference: String) {
        self.replayed.differences.push(difference);
    }
}

/// Describes the first difference between the replayed state, `ours`, and the gateway's, `theirs`.
fn difference(ours: &Snapshot, theirs: &Snapshot) -> String {
    let pair = |what: &str, ours: u64, theirs: u64| {
        (ours != theirs).then(|| format!("{what} {ours}, there {theirs}"))
    };
    let ids = |snapshot: &Snapshot| snapshot.requests.len() as u64;
    pair("grants", ours.grants, theirs.grants)
        .or_else(|| pair("ended", ours.ticks.0, theirs.ticks.0))
        .or_else(|| pair("submitted", ours.next_seq, theirs.next_seq))
        .or_else(|| pair("waiting or in flight", ids(ours), ids(theirs)))
        .or_else(|| pair("time in µs", ours.now.0, theirs.now.0))
        .unwrap_or_else(|| "scores or counters".into())
}

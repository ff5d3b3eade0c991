//! The journal, replayed: what each request asked for, when it was granted and what it used.
//!
//! Nothing of what the gateway says about itself is used here. The core is run again on the journal's events, and each
//! file must end in the very state with which the next one begins; the last, in the state that the gateway's pool was in.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use fairgate_core::Pool;
use fairgate_core::attribute::Attribute;
use fairgate_core::decision::{Decision, Grant};
use fairgate_core::event::{Event, Submit};
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::Micros;
use fairgate_journal::{JournalError, Reader, Start};

use crate::evidence::JournalFile;

/// What a journal says.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    /// What happened to flows, in order.
    pub(crate) steps: Vec<Step>,
    /// Every request that was submitted, each time that it was.
    pub(crate) requests: Vec<Request>,
    /// How many events there were.
    pub(crate) events: u64,
    /// Who was refused or waited too long: one sentence each.
    pub(crate) turned_away: Vec<String>,
    /// Where the replay and production part ways: one sentence each.
    pub(crate) differences: Vec<String>,
}

/// The place of a request in [`Replay::requests`].
pub(crate) type Index = usize;

/// Something that happened to a flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) at: Micros,
    /// The number of the event that brought it about.
    pub(crate) event: u64,
    pub(crate) request: Index,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It begins to wait.
    Waits,
    /// It waits no more, and was not granted.
    Gone,
    /// It has a slot.
    Granted,
    /// It has given its slot back.
    Ended,
}

/// One request, as far as the journal tells.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) id: Arc<str>,
    /// Its tenant's place in the scenario; `None` where it is nobody's.
    pub(crate) tenant: Option<usize>,
    pub(crate) class: Option<Box<str>>,
    /// Whether it was submitted before and is tried again, on another worker.
    pub(crate) again: bool,
    pub(crate) grant: Option<Granted>,
    /// When it ended, and the tokens that it was charged in the end.
    pub(crate) ended: Option<(Micros, u64)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Granted {
    pub(crate) cost: u64,
    pub(crate) waited: Micros,
    pub(crate) worker: Option<Box<str>>,
}

impl Request {
    /// What it costs while it is in flight; 0 where it never was.
    pub(crate) fn cost(&self) -> u64 {
        self.grant.as_ref().map_or(0, |grant| grant.cost)
    }

    /// What it used: its cost where its end is not told.
    pub(crate) fn used(&self) -> u64 {
        self.ended.map_or(self.cost(), |(_, used)| used)
    }

    /// What its end counts in its flow's share: what it used, and at least one token.
    pub(crate) fn counted(&self) -> u64 {
        self.used().max(1)
    }
}

/// Replays the files of a journal. `tenant` finds a tenant's place by its name; `last` is the pool as production left it.
pub(crate) fn replay(
    files: &[JournalFile],
    last: Option<&Snapshot>,
    tenant: impl Fn(&str) -> Option<usize>,
) -> Replay {
    let mut player =
        Player { told: Replay::default(), live: HashMap::new(), met: HashSet::new(), tenant };
    if let Err(error) = player.play(files, last) {
        player.told.differences.push(error);
    }
    player.told
}

struct Player<F> {
    told: Replay,
    /// What waits or is in flight.
    live: HashMap<Arc<str>, Index>,
    /// Every id so far.
    met: HashSet<Arc<str>>,
    tenant: F,
}

impl<F: Fn(&str) -> Option<usize>> Player<F> {
    fn play(&mut self, files: &[JournalFile], last: Option<&Snapshot>) -> Result<(), String> {
        let mut before: Option<Snapshot> = None;
        for file in files {
            let bad = |error: JournalError| format!("{}: {error}", file.name);
            let (start, mut reader) = Reader::open(&file.bytes[..]).map_err(bad)?;
            if let (Some(ours), Start::Snapshot(theirs)) = (&before, &start)
                && ours != theirs.as_ref()
            {
                let what = difference(ours, theirs);
                self.differ(format!(
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
        self.told.events += 1;
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
                    self.told.turned_away.push(format!("{} was refused: {reason}", reject.id));
                    self.gone(at, &reject.id);
                }
                Decision::Expire { id, .. } => {
                    self.told.turned_away.push(format!("{id} waited too long"));
                    self.gone(at, &id);
                }
            }
        }
        Ok(())
    }

    fn submitted(&mut self, at: Micros, submit: &Submit) {
        let tenant = submit.attributes.get(Attribute::Tenant).and_then(&self.tenant);
        if tenant.is_none() {
            self.differ(format!("{} belongs to no tenant of the scenario", submit.id));
        }
        let request = self.told.requests.len();
        self.told.requests.push(Request {
            id: submit.id.clone(),
            tenant,
            class: submit.attributes.get(Attribute::Class).map(Into::into),
            again: !self.met.insert(submit.id.clone()),
            grant: None,
            ended: None,
        });
        self.live.insert(submit.id.clone(), request);
        self.step(at, request, What::Waits);
    }

    fn granted(&mut self, at: Micros, grant: Grant) {
        let Some(request) = self.live.get(&grant.id).copied() else {
            return self.differ(format!("{} was granted and never submitted", grant.id));
        };
        self.told.requests[request].grant = Some(Granted {
            cost: grant.cost.0,
            waited: grant.waited,
            worker: grant.place.map(|place| place.worker.as_ref().into()),
        });
        self.step(at, request, What::Granted);
    }

    /// What is not told was used as it cost.
    fn ended(&mut self, at: Micros, id: &str, tokens: Option<u64>) {
        let Some(index) = self.live.remove(id) else {
            return self.differ(format!("{id} ended, and neither waited nor was in flight"));
        };
        let request = &mut self.told.requests[index];
        let Some(grant) = &request.grant else { return self.step(at, index, What::Gone) };
        request.ended = Some((at, tokens.unwrap_or(grant.cost)));
        self.step(at, index, What::Ended);
    }

    fn gone(&mut self, at: Micros, id: &str) {
        if let Some(request) = self.live.remove(id) {
            self.step(at, request, What::Gone);
        }
    }

    fn step(&mut self, at: Micros, request: Index, what: What) {
        self.told.steps.push(Step { at, event: self.told.events, request, what });
    }

    fn differ(&mut self, difference: String) {
        self.told.differences.push(difference);
    }
}

/// The first thing in which two states differ.
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

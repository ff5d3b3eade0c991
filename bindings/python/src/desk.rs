//! The desk: one pool, those who wait for it and hold of it, budgets and counts. All of it changes together.
//!
//! Every request has one entry from the moment it asks until it ends, in one of three phases. The pool is the truth
//! about who has a slot: a request that gives up is cancelled there, and whether that takes it out of a queue or
//! gives a slot to the next is the core's business. So it does not matter whether giving up or being granted comes
//! first.
//!
//! `W` is how somebody who waits is woken. The desk never does it: it puts notices into [`Desk::outbox`], for
//! whoever called it to deliver when the lock is no longer held. For the same reason a `W` that is no longer needed
//! goes to [`Desk::discarded`]: to drop it may run code.

mod budgets;
mod decisions;
mod pace;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::mem;
use std::time::Instant;

use fairgate_core::Pool;
use fairgate_core::attribute::Attributes;
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::policy::Policy;
use fairgate_core::units::{TaskWeight, Ticks, Tokens};

use self::pace::Pace;
use crate::agents::{AgentIndex, Agents};
use crate::journal::Journal;
use crate::owners::{Owner, Owners};
use crate::usage::{Ledger, Used};

/// A request's number; in the journal its id.
pub(crate) type Id = u64;

/// What somebody asks for.
pub(crate) struct Ask {
    pub(crate) agent: Box<str>,
    pub(crate) attributes: Attributes,
    pub(crate) weight: TaskWeight,
    pub(crate) cost: Tokens,
    pub(crate) priority: i64,
    pub(crate) owner: Owner,
    /// Whether the grant should come with the numbers that decided it.
    pub(crate) explain: bool,
}

/// What the one who asks is told at once.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted,
    Waits,
    Refused(Refusal),
}

/// Why a request gets no slot.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The pool is full, or it was pushed out; `retry_us` is how long ends of requests are apart lately.
    QueueFull { reason: &'static str, waiting: u64, limit: u64, retry_us: Option<u64> },
    /// Its agent's budget has too little left.
    OverBudget { limit: u64, spent: u64, reserved: u64, asked: u64 },
    /// Everybody who holds a slot waits for another one.
    Deadlock { held: u64, flying: u64 },
    /// The scheduler is closed.
    Closed,
}

impl Refusal {
    /// The stable code by which refusals are counted.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::QueueFull { reason, .. } => reason,
            Self::OverBudget { .. } => "over_budget",
            Self::Deadlock { .. } => "deadlock",
            Self::Closed => "closed",
        }
    }
}

/// News for somebody who waits.
pub(crate) struct Notice<W> {
    pub(crate) id: Id,
    pub(crate) waiter: W,
    pub(crate) news: News,
}

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum News {
    Granted { waited_us: u64 },
    Refused(Refusal),
}

struct Entry<W> {
    agent: AgentIndex,
    weight: TaskWeight,
    cost: u64,
    owner: Owner,
    phase: Phase<W>,
}

enum Phase<W> {
    /// Waits for budget.
    Parked { waiter: W, submit: Box<Submit> },
    /// Waits for a slot since that tick.
    Waiting { waiter: W, since: Ticks },
    /// Holds a slot.
    Flying,
}

/// See the module's text.
pub(crate) struct Desk<W> {
    pub(crate) config: PoolConfig,
    pub(crate) pool: Pool,
    pub(crate) agents: Agents,
    pub(crate) ledger: Ledger,
    pub(crate) journal: Option<Journal>,
    pub(crate) outbox: VecDeque<Notice<W>>,
    pub(crate) discarded: Vec<W>,
    entries: HashMap<Id, Entry<W>>,
    owners: Owners,
    /// Whose grants are to be explained, and the explanations of those that hold a slot.
    to_explain: HashSet<Id>,
    whys: HashMap<Id, String>,
    /// Agents whose budget may have become large enough for somebody who waits for it.
    relieved: BTreeSet<AgentIndex>,
    parked: u64,
    pace: Pace,
    started: Instant,
    closed: bool,
}

impl<W> Desk<W> {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self {
            pool: Pool::new(config.clone()),
            config,
            agents: Agents::default(),
            ledger: Ledger::default(),
            journal: None,
            outbox: VecDeque::new(),
            discarded: Vec::new(),
            entries: HashMap::new(),
            owners: Owners::default(),
            to_explain: HashSet::new(),
            whys: HashMap::new(),
            relieved: BTreeSet::new(),
            parked: 0,
            pace: Pace::default(),
            started: Instant::now(),
            closed: false,
        }
    }

    /// Asks for a slot under a number that is used once. Where the answer is that it waits, `waiter` is told later how
    /// that ended.
    pub(crate) fn ask(&mut self, id: Id, ask: Ask, waiter: W) -> Answer {
        let agent = self.agents.named(&ask.agent);
        let answer = match self.admit(id, agent, ask, waiter) {
            Ok(()) => match self.entries.get(&id).map(|entry| &entry.phase) {
                Some(Phase::Flying) => Answer::Granted,
                _ => Answer::Waits,
            },
            Err(refusal) => {
                self.agents.get(agent).refused(refusal.code());
                Answer::Refused(refusal)
            }
        };
        self.relieve();
        answer
    }

    fn admit(&mut self, id: Id, agent: AgentIndex, ask: Ask, waiter: W) -> Result<(), Refusal> {
        if self.closed {
            self.discarded.push(waiter);
            return Err(Refusal::Closed);
        }
        if ask.explain {
            self.to_explain.insert(id);
        }
        let (weight, cost, owner) = (ask.weight, ask.cost.0, ask.owner);
        let mut submit = Box::new(Submit::new(&name(id)));
        submit.attributes = ask.attributes;
        (submit.weight, submit.cost, submit.priority) = (weight, Some(ask.cost), ask.priority);
        let entry = |phase| Entry { agent, weight, cost, owner, phase };
        let budget = &mut self.agents.get(agent).budget;
        if budget.as_mut().is_none_or(|its| its.reserve(cost)) {
            let since = self.pool.ticks();
            self.entries.insert(id, entry(Phase::Waiting { waiter, since }));
            self.submit(id, submit, Some(id))?;
        } else {
            if let Some(refusal) = self.refuse_to_park(agent, cost) {
                self.to_explain.remove(&id);
                self.discarded.push(waiter);
                return Err(refusal);
            }
            self.entries.insert(id, entry(Phase::Parked { waiter, submit }));
            self.park(id, agent, owner);
        }
        self.refuse_deadlock(id, owner)
    }

    /// Puts a request into the pool whose entry says that it waits there.
    fn submit(&mut self, id: Id, submit: Box<Submit>, asking: Option<Id>) -> Result<(), Refusal> {
        if let Some(entry) = self.entries.get(&id) {
            let its = self.agents.get(entry.agent);
            its.waiting += 1;
            its.depth_thousandths += u64::from(entry.weight.thousandths());
            self.owners.starts_to_wait(entry.owner);
        }
        self.apply(Event::Submit(submit), asking)
    }

    /// Takes a request back that has just started to wait, where nobody would ever go on for it.
    fn refuse_deadlock(&mut self, id: Id, owner: Owner) -> Result<(), Refusal> {
        let waits = self.entries.get(&id).is_some_and(|e| !matches!(e.phase, Phase::Flying));
        let (held, flying) = (self.owners.held(owner), self.pool.flying());
        // Where slots are free it waits for something else, such as the end of a hold.
        let all_taken = flying >= self.pool.capacity().max(1);
        if !(waits && held > 0 && all_taken && self.owners.stuck() >= flying) {
            return Ok(());
        }
        self.end(id);
        Err(Refusal::Deadlock { held, flying })
    }

    /// Takes a request out that still waits, and says whether it did: otherwise it is granted or over, and stays so.
    pub(crate) fn withdraw(&mut self, id: Id) -> bool {
        let waits = self.entries.get(&id).is_some_and(|e| !matches!(e.phase, Phase::Flying));
        if waits {
            self.cancel(id);
        }
        waits
    }

    /// Ends a request wherever it is: whoever asked gave up.
    pub(crate) fn cancel(&mut self, id: Id) {
        let Some(entry) = self.entries.get(&id) else { return };
        self.agents.get(entry.agent).withdrawals += 1;
        self.end(id);
        self.relieve();
    }

    fn end(&mut self, id: Id) {
        match self.entries.get(&id).map(|entry| &entry.phase) {
            // It was granted a slot, and never ran: nothing was used.
            Some(Phase::Flying) => self.land(id, Some(0)),
            Some(Phase::Waiting { .. }) => {
                let waiter = self.leave_queue(id);
                self.discarded.extend(waiter);
                self.apply_quietly(Event::Cancel { id: name(id).into() });
            }
            Some(Phase::Parked { .. }) => {
                let waiter = self.unpark(id).map(|(waiter, _)| waiter);
                self.entries.remove(&id);
                self.to_explain.remove(&id);
                self.discarded.extend(waiter);
            }
            None => {}
        }
    }

    /// Ends a request that holds a slot, with what it used. Nothing where it does not hold one any more.
    pub(crate) fn release(&mut self, id: Id, used: &Used) {
        if let Some(Entry { agent, cost, phase: Phase::Flying, .. }) = self.entries.get(&id) {
            let agent = self.agents.get(*agent).name.clone();
            self.ledger.add(agent, used.tokens.unwrap_or(*cost), used);
            self.land(id, used.tokens);
            self.relieve();
        }
    }

    /// Takes a slot back. `tokens` is what was used; the estimate where that is not known.
    fn land(&mut self, id: Id, tokens: Option<u64>) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.whys.remove(&id);
        self.owners.gives_back(entry.owner);
        let its = self.agents.get(entry.agent);
        its.flying -= 1;
        if let Some(budget) = &mut its.budget {
            budget.settle(entry.cost, tokens.unwrap_or(entry.cost));
            self.relieved.insert(entry.agent);
        }
        self.pace.ended(self.now());
        self.apply_quietly(Event::Release { id: name(id).into(), tokens: tokens.map(Tokens) });
    }

    /// Forgets that a request waits in the pool; what it reserved is free again.
    fn leave_queue(&mut self, id: Id) -> Option<W> {
        let entry = self.entries.remove(&id)?;
        self.to_explain.remove(&id);
        self.owners.stops_waiting(entry.owner);
        let its = self.agents.get(entry.agent);
        its.waiting -= 1;
        its.depth_thousandths -= u64::from(entry.weight.thousandths());
        if let Some(budget) = &mut its.budget {
            budget.unreserve(entry.cost);
            self.relieved.insert(entry.agent);
        }
        match entry.phase {
            Phase::Waiting { waiter, .. } => Some(waiter),
            Phase::Parked { .. } | Phase::Flying => None,
        }
    }

    /// Says of a slot that it belongs to nobody in particular.
    pub(crate) fn disown(&mut self, id: Id) {
        if let Some(entry) = self.entries.get_mut(&id)
            && matches!(entry.phase, Phase::Flying)
        {
            self.owners.gives_back(mem::replace(&mut entry.owner, Owner::NOBODY));
        }
    }

    /// An operator's event, such as a hold or another capacity.
    pub(crate) fn operate(&mut self, event: Event) {
        self.apply_quietly(event);
        self.relieve();
    }

    pub(crate) fn set_capacity(&mut self, slots: u64) {
        self.config.capacity = slots;
        if !self.closed {
            self.operate(Event::Capacity { slots });
        }
    }

    pub(crate) fn set_policy(&mut self, policy: Policy) {
        self.config.policy = policy.clone();
        self.operate(Event::Policy(policy));
    }

    /// Refuses everybody who waits, and whoever asks from now on. Who holds a slot keeps it until it is given back.
    pub(crate) fn close(&mut self) {
        if mem::replace(&mut self.closed, true) {
            return;
        }
        // Without slots nobody is granted one while others are still being sent away.
        self.apply_quietly(Event::Capacity { slots: 0 });
        for id in self.waiting_ids() {
            let waiter = match self.entries.get(&id).map(|entry| &entry.phase) {
                Some(Phase::Parked { .. }) => self.unpark(id).map(|(waiter, _)| waiter),
                _ => {
                    let waiter = self.leave_queue(id);
                    self.apply_quietly(Event::Cancel { id: name(id).into() });
                    waiter
                }
            };
            self.entries.remove(&id);
            self.to_explain.remove(&id);
            let news = News::Refused(Refusal::Closed);
            self.outbox.extend(waiter.map(|waiter| Notice { id, waiter, news }));
        }
        self.relieved.clear();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Starts anew with nobody in it, as in a child process: its parent's requests are not its own.
    pub(crate) fn forget_requests(&mut self) {
        self.pool = Pool::new(self.config.clone());
        self.started = Instant::now();
        if let Some(journal) = self.journal.take() {
            journal.abandon();
        }
        for (_, entry) in self.entries.drain() {
            match entry.phase {
                Phase::Parked { waiter, .. } | Phase::Waiting { waiter, .. } => {
                    self.discarded.push(waiter);
                }
                Phase::Flying => {}
            }
        }
        self.discarded.extend(self.outbox.drain(..).map(|notice| notice.waiter));
        self.owners = Owners::default();
        self.agents.forget_requests();
        self.to_explain.clear();
        self.whys.clear();
        self.relieved.clear();
        self.parked = 0;
        self.pace = Pace::default();
    }

    /// Those who wait, for budget or for a slot, in the order in which they came.
    fn waiting_ids(&self) -> Vec<Id> {
        let waits = |entry: &Entry<W>| !matches!(entry.phase, Phase::Flying);
        let mut ids: Vec<Id> =
            self.entries.iter().filter(|(_, entry)| waits(entry)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// How many requests wait for budget.
    pub(crate) fn parked(&self) -> u64 {
        self.parked
    }

    /// The numbers that decided a grant, as JSON, where they were asked for and its slot is held.
    pub(crate) fn why(&self, id: Id) -> Option<&str> {
        self.whys.get(&id).map(String::as_str)
    }

    /// For each agent by index: the ticks since its oldest request that waits for a slot came.
    pub(crate) fn oldest_ages(&self) -> HashMap<AgentIndex, u64> {
        let mut ages = HashMap::new();
        for entry in self.entries.values() {
            if let Phase::Waiting { since, .. } = entry.phase {
                let age: &mut u64 = ages.entry(entry.agent).or_default();
                *age = (*age).max(self.pool.ticks().0 - since.0);
            }
        }
        ages
    }
}

/// A request's id in the journal.
pub(crate) fn name(id: Id) -> String {
    id.to_string()
}

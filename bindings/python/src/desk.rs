//! The desk: one pool, those who wait for it and hold of it, budgets and counts. All of it changes together.
//!
//! Who has asked waits for budget, waits for a slot or holds one. Who waits for budget is known by its number alone;
//! from then on it is in the pool, and what belongs to it lies in [`Desk::entries`] under the handle that the pool gave
//! it. The pool is the truth about who has a slot: a request that gives up is cancelled there, and whether that takes it
//! out of a queue or gives a slot to the next is the core's business. So it does not matter whether giving up or being
//! granted comes first.
//!
//! No timer runs here. Where the provider's limits are known, time alone can open the pool again ([`Desk::next_alarm`]):
//! whoever drives the desk then says so with [`Desk::tick`]. How long somebody waits at most is its own affair: it
//! withdraws.
//!
//! `W` is how somebody who waits is woken; asking does not need it where a slot is free, so it is said later. The desk
//! never wakes anybody: it puts notices into [`Desk::outbox`], for whoever called it to deliver when the lock is no
//! longer held. For the same reason a `W` that is no longer needed goes to [`Desk::discarded`]: to drop it may run code.

mod budgets;
mod decisions;
mod pace;
mod provider;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fairgate_core::attribute::Attributes;
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::policy::Policy;
use fairgate_core::units::{Micros, TaskWeight, Ticks, Tokens};
use fairgate_core::{Handle, Pool};
use fairgate_dialect::quota::Ticket;
use fairgate_money::UnixMicros;

use self::budgets::Parked;
use self::decisions::Said;
use self::pace::Pace;
use self::provider::Provider;
pub(crate) use self::provider::{ProviderReport, Rates};
use crate::agents::{AgentIndex, Agents};
use crate::budget::{Moment, Terms};
use crate::journal::Journal;
use crate::owners::{Owner, Owners};
use crate::usage::{Ledger, Used};

/// A request's number, which is used once; as text it is its id in the journal.
pub(crate) type Number = u64;

/// What somebody asks for.
pub(crate) struct Ask<'a> {
    pub(crate) agent: &'a str,
    /// What else it says of itself than whose it is, by the attributes' numbers.
    pub(crate) attributes: Option<[Option<&'a str>; 7]>,
    pub(crate) weight: TaskWeight,
    pub(crate) cost: Tokens,
    pub(crate) priority: i64,
    /// Who waits.
    pub(crate) owner: Owner,
    /// Whether the same will give the slot back; else that may be anybody.
    pub(crate) keeps: bool,
    /// Whether it gives up by itself after a while.
    pub(crate) timed: bool,
    /// Whether the grant should come with the numbers that decided it.
    pub(crate) explain: bool,
}

/// What the one who asks is told at once.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted(Handle),
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
    Deadlock { held: u64, in_flight: u64 },
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

/// A part of a budget is spent.
#[derive(Debug)]
pub(crate) struct Alert {
    pub(crate) agent: Arc<str>,
    /// In thousandths of the limit.
    pub(crate) part: u32,
    pub(crate) spent: u64,
    pub(crate) limit: u64,
}

/// News for somebody who waits.
pub(crate) struct Notice<W> {
    pub(crate) number: Number,
    pub(crate) waiter: W,
    pub(crate) news: News,
}

/// What the desk leaves to whoever called it.
pub(crate) struct FollowUp<W> {
    /// Somebody to wake.
    pub(crate) notice: Option<Notice<W>>,
    /// After how long [`Desk::tick`] is due.
    pub(crate) alarm: Option<Duration>,
    pub(crate) alerts: Vec<Alert>,
    /// To be dropped.
    pub(crate) discarded: Vec<W>,
}

/// How a wait ended.
#[derive(Debug)]
pub(crate) enum News {
    Granted { waited_us: u64 },
    Refused(Refusal),
}

/// What is kept of a request wherever it is.
struct Request {
    number: Number,
    id: Arc<str>,
    agent: AgentIndex,
    weight: TaskWeight,
    cost: u64,
    /// Who waits, then who gives the slot back.
    owner: Owner,
    /// Who asked.
    asker: Owner,
    keeps: bool,
    timed: bool,
    attributes: Attributes,
}

impl Request {
    /// Who waits until it is granted, however long that takes: nobody where it gives up by itself.
    fn waiting_owner(&self) -> Owner {
        if self.timed { Owner::NOBODY } else { self.owner }
    }

    /// How it asks for a slot, with this priority.
    fn submit(&self, priority: i64) -> Box<Submit> {
        Box::new(Submit {
            id: self.id.clone(),
            attributes: self.attributes.clone(),
            cost: Some(Tokens(self.cost)),
            priority,
            weight: self.weight,
            input: None,
            cached: Vec::new(),
            pin: None,
            allow: None,
            requires: Vec::new(),
            quota: None,
        })
    }
}

/// A request that is in the pool.
struct Entry<W> {
    request: Request,
    phase: Phase<W>,
}

enum Phase<W> {
    /// Waits for a slot since that tick; not every waiter has said yet how to be woken.
    Waiting { waiter: Option<W>, since: Ticks },
    /// Holds a slot. Why it was granted it, as JSON, where that was asked for; how it stood with the provider then.
    InFlight { why: Option<Box<str>>, ticket: Ticket },
}

impl<W> Entry<W> {
    fn is_in_flight(&self) -> bool {
        matches!(self.phase, Phase::InFlight { .. })
    }
}

/// See the module's text.
pub(crate) struct Desk<W> {
    pub(crate) config: PoolConfig,
    pub(crate) pool: Pool,
    pub(crate) agents: Agents,
    pub(crate) ledger: Ledger,
    pub(crate) journal: Option<Journal>,
    pub(crate) outbox: VecDeque<Notice<W>>,
    discarded: Vec<W>,
    /// How waits ended whose waiters have not said yet how to be woken.
    pub(crate) early: HashMap<Number, News>,
    /// Who waits for a slot or holds one, by its handle in the pool.
    entries: Vec<Option<Entry<W>>>,
    /// Who waits for budget; numbers are given in the order in which requests come.
    parked: BTreeMap<Number, Parked<W>>,
    pub(crate) owners: Owners,
    /// Whose grants are to be explained.
    to_explain: HashSet<Arc<str>>,
    /// The budget of agents for whom none was stated.
    default_budget: Option<Terms>,
    /// Budgets of which a part was spent that somebody wants to be told of.
    alerts: Vec<Alert>,
    /// Agents whose budget may have become large enough for somebody who waits for it.
    relieved: BTreeSet<AgentIndex>,
    pace: Pace,
    provider: Provider,
    /// How often the provider has refused a request because of a limit.
    limits_met: u64,
    /// When somebody outside will say that time has passed, in the pool's time.
    pub(crate) alarm: Option<Micros>,
    /// What the pool says to one event; kept for its memory.
    said: Vec<Said>,
    started: Instant,
    started_unix: UnixMicros,
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
            early: HashMap::new(),
            entries: Vec::new(),
            parked: BTreeMap::new(),
            owners: Owners::default(),
            to_explain: HashSet::new(),
            default_budget: None,
            alerts: Vec::new(),
            relieved: BTreeSet::new(),
            pace: Pace::default(),
            provider: Provider::default(),
            limits_met: 0,
            alarm: None,
            said: Vec::new(),
            started: Instant::now(),
            started_unix: unix_now(),
            closed: false,
        }
    }

    /// Asks for a slot under a number that is used once. Where the answer is that it waits, [`Desk::set_waiter`] says who
    /// is told how that ended.
    pub(crate) fn ask(&mut self, number: Number, ask: &Ask<'_>) -> Answer {
        let agent = self.agents.named(ask.agent);
        let answer = self.admit(number, agent, ask).unwrap_or_else(|refusal| {
            self.agents.get(agent).refused(refusal.code());
            Answer::Refused(refusal)
        });
        self.relieve();
        answer
    }

    fn admit(
        &mut self,
        number: Number,
        agent: AgentIndex,
        ask: &Ask<'_>,
    ) -> Result<Answer, Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        self.prepare_budget(agent);
        let its = self.agents.get(agent);
        let attributes = match ask.attributes {
            Some(texts) => Attributes::of(texts),
            None => its.attributes.clone(),
        };
        let (weight, cost) = (ask.weight, ask.cost.0);
        let id = Decimal::of(number).as_str().into();
        let Ask { owner, keeps, timed, .. } = *ask;
        let request = Request {
            number,
            id,
            agent,
            weight,
            cost,
            owner,
            asker: owner,
            keeps,
            timed,
            attributes,
        };
        let fits = its.budget.as_mut().is_none_or(|budget| budget.reserve(cost));
        if !fits && let Some(refusal) = self.refuse_to_park(agent, cost) {
            return Err(refusal);
        }
        if ask.explain {
            self.to_explain.insert(request.id.clone());
        }
        let submit = request.submit(ask.priority);
        if !fits {
            self.park(Parked { request, waiter: None, submit });
            return Ok(Answer::Waits);
        }
        match self.enter(request, submit) {
            Answer::Refused(refusal) => Err(refusal),
            answer => Ok(answer),
        }
    }

    /// Puts a request into the pool for somebody who asks: granted, or waiting, or refused.
    fn enter(&mut self, request: Request, submit: Box<Submit>) -> Answer {
        match self.submit(request, None, submit, true) {
            Ok(Some(handle)) if self.entry(handle).is_some_and(Entry::is_in_flight) => {
                Answer::Granted(handle)
            }
            Ok(_) => Answer::Waits,
            Err(refusal) => Answer::Refused(refusal),
        }
    }

    /// Takes a request back that has just started to wait, because nobody would ever go on for it.
    pub(crate) fn refuse_deadlock(&mut self, number: Number, owner: Owner) -> Refusal {
        let refusal =
            Refusal::Deadlock { held: self.owners.held(owner), in_flight: self.pool.in_flight() };
        if let Some(agent) = self.end(number) {
            self.agents.get(agent).refused(refusal.code());
            self.relieve();
        }
        refusal
    }

    /// Whether every slot is taken, by somebody in particular. Where one is free, a request waits for something else, such
    /// as the end of a hold.
    pub(crate) fn is_all_owned(&self) -> bool {
        let in_flight = self.pool.in_flight();
        in_flight >= self.pool.capacity().max(1) && self.owners.owned() >= in_flight
    }

    /// Takes a request out that still waits, and says whether it did: otherwise it is granted or over, and stays so.
    pub(crate) fn withdraw(&mut self, number: Number) -> bool {
        let in_pool = self.find(number).and_then(|handle| self.entry(handle));
        let waits = match in_pool {
            Some(entry) => !entry.is_in_flight(),
            None => self.parked.contains_key(&number),
        };
        if waits {
            self.cancel(number);
        }
        waits
    }

    /// Ends a request wherever it is: whoever asked gave up.
    pub(crate) fn cancel(&mut self, number: Number) {
        self.early.remove(&number);
        if let Some(agent) = self.end(number) {
            self.agents.get(agent).withdrawals += 1;
            self.relieve();
        }
    }

    /// Ends a request without telling it; whose it was, where there was one.
    fn end(&mut self, number: Number) -> Option<AgentIndex> {
        let Some(handle) = self.find(number) else {
            let Parked { request, waiter, .. } = self.unpark(number)?;
            self.to_explain.remove(&request.id);
            self.discarded.extend(waiter);
            return Some(request.agent);
        };
        let Entry { request, phase } = self.take_entry(handle)?;
        let agent = request.agent;
        match phase {
            Phase::Waiting { waiter, .. } => {
                self.leave_queue(&request);
                self.discarded.extend(waiter);
                self.apply(Event::Cancel { id: request.id });
            }
            // It was granted a slot, and never ran: nothing was used.
            Phase::InFlight { .. } => self.give_back(request, Some(0)),
        }
        Some(agent)
    }

    /// Ends a request that holds a slot, with what it used. Nothing where it does not hold one any more. `handle` is the
    /// one that it was granted under, where that is known.
    pub(crate) fn release(&mut self, number: Number, handle: Option<Handle>, used: &Used) {
        let is_its = |entry: &Entry<W>| entry.request.number == number;
        let known = handle.filter(|handle| self.entry(*handle).is_some_and(is_its));
        let Some(handle) = known.or_else(|| self.find(number)) else { return };
        if !self.entry(handle).is_some_and(Entry::is_in_flight) {
            return;
        }
        let Some(Entry { request, .. }) = self.take_entry(handle) else { return };
        self.ledger.add(request.agent, used.tokens.unwrap_or(request.cost), used);
        self.give_back(request, used.tokens);
        self.relieve();
    }

    /// Takes a slot back. `tokens` is what was used; the estimate where that is not known.
    fn give_back(&mut self, request: Request, tokens: Option<u64>) {
        self.owners.gives_back(request.owner);
        let its = self.agents.get(request.agent);
        its.in_flight -= 1;
        if its.budget.is_some() {
            self.settle_budget(&request, tokens.unwrap_or(request.cost));
        }
        let tokens = tokens.map(Tokens);
        self.apply(Event::Release { id: request.id, tokens, quota: None });
        self.pace.ended(self.pool.now());
    }

    fn settle_budget(&mut self, request: &Request, used: u64) {
        let now = self.moment();
        let its = self.agents.get(request.agent);
        let Some(budget) = &mut its.budget else { return };
        if let Some(part) = budget.settle(request.cost, used, now) {
            let (spent, limit) = (budget.spent, budget.terms.limit);
            self.alerts.push(Alert { agent: its.name.clone(), part, spent, limit });
        }
        self.relieved.insert(request.agent);
    }

    /// What time it is, by both clocks.
    fn moment(&self) -> Moment {
        let elapsed = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        let unix = UnixMicros(self.started_unix.0.saturating_add(elapsed));
        Moment { pool_us: self.now().0, unix }
    }

    /// A request waits in the pool no more, and was not granted a slot.
    fn leave_queue(&mut self, request: &Request) {
        self.to_explain.remove(&request.id);
        self.owners.stops_waiting(request.waiting_owner());
        let its = self.agents.get(request.agent);
        its.waiting -= 1;
        its.depth_thousandths -= u64::from(request.weight.thousandths());
        self.unreserve(request);
    }

    /// What a request reserved of its agent's budget is free again.
    fn unreserve(&mut self, request: &Request) {
        if let Some(budget) = &mut self.agents.get(request.agent).budget {
            budget.unreserve(request.cost);
            self.relieved.insert(request.agent);
        }
    }

    /// Says who will give a slot back from now on.
    pub(crate) fn set_owner(&mut self, number: Number, owner: Owner) {
        let Some(handle) = self.find(number) else { return };
        if let Some(Some(entry)) = self.entries.get_mut(handle.index())
            && entry.is_in_flight()
        {
            self.owners.gives_back(mem::replace(&mut entry.request.owner, owner));
            self.owners.takes(owner);
        }
    }

    /// Puts in place who is to be told how a wait ends, where it still goes on.
    pub(crate) fn set_waiter(&mut self, number: Number, waiter: W) {
        let handle = self.find(number);
        let entry = handle.and_then(|handle| self.entries.get_mut(handle.index())?.as_mut());
        let place = match entry {
            Some(Entry { phase: Phase::Waiting { waiter, .. }, .. }) => Some(waiter),
            Some(_) => None,
            None => self.parked.get_mut(&number).map(|its| &mut its.waiter),
        };
        let before = match place {
            Some(place) => place.replace(waiter),
            None => Some(waiter),
        };
        self.discarded.extend(before);
    }

    /// Has somebody who waits told how that ended: by a notice, or when it says how to be woken.
    fn tell(&mut self, number: Number, waiter: Option<W>, news: News) {
        match waiter {
            Some(waiter) => self.outbox.push_back(Notice { number, waiter, news }),
            None => {
                self.early.insert(number, news);
            }
        }
    }

    /// An operator's event, such as a hold or another capacity.
    pub(crate) fn operate(&mut self, event: Event) {
        self.apply(event);
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
        self.apply(Event::Capacity { slots: 0 });
        let mut gone: Vec<(Number, Option<W>)> = mem::take(&mut self.parked)
            .into_values()
            .map(|Parked { request, waiter, .. }| {
                self.leave_budget(&request);
                (request.number, waiter)
            })
            .collect();
        for Entry { request, phase } in self.take_waiting() {
            self.leave_queue(&request);
            if let Phase::Waiting { waiter, .. } = phase {
                gone.push((request.number, waiter));
            }
            self.apply(Event::Cancel { id: request.id });
        }
        gone.sort_unstable_by_key(|(number, _)| *number);
        for (number, waiter) in gone {
            self.tell(number, waiter, News::Refused(Refusal::Closed));
        }
        self.to_explain.clear();
        self.relieved.clear();
    }

    /// What is left to do for whoever called, with the desk unlocked; nothing where that is all.
    pub(crate) fn next_follow_up(&mut self) -> Option<FollowUp<W>> {
        let notice = self.outbox.pop_front();
        let alarm = if notice.is_none() { self.next_alarm() } else { None };
        let is_all = notice.is_none()
            && alarm.is_none()
            && self.alerts.is_empty()
            && self.discarded.is_empty();
        (!is_all).then(|| FollowUp {
            notice,
            alarm,
            alerts: mem::take(&mut self.alerts),
            discarded: mem::take(&mut self.discarded),
        })
    }

    /// When the pool should be told that time has passed, where that is sooner than anybody has been asked to.
    fn next_alarm(&mut self) -> Option<Duration> {
        let in_pool = (self.has_provider() && self.pool.waiting() > 0)
            .then(|| self.pool.next_change())
            .flatten();
        let in_budgets = match self.alarm {
            // It is looked at again then.
            Some(_) => None,
            None => self.next_relief_us().map(|us| Micros(self.now().0.saturating_add(us))),
        };
        let next = in_pool.into_iter().chain(in_budgets).min()?;
        if self.alarm.is_some_and(|alarm| alarm <= next) {
            return None;
        }
        self.alarm = Some(next);
        Some(Duration::from_micros(next.0.saturating_sub(self.now().0)))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Starts anew with nobody in it, as in a child process: its parent's requests are not its own.
    pub(crate) fn forget_requests(&mut self) {
        self.pool = Pool::new(self.config.clone());
        (self.started, self.started_unix) = (Instant::now(), unix_now());
        if let Some(journal) = self.journal.take() {
            journal.abandon();
        }
        for entry in self.entries.drain(..).flatten() {
            if let Phase::Waiting { waiter, .. } = entry.phase {
                self.discarded.extend(waiter);
            }
        }
        self.discarded
            .extend(mem::take(&mut self.parked).into_values().filter_map(|its| its.waiter));
        self.discarded.extend(self.outbox.drain(..).map(|notice| notice.waiter));
        self.early.clear();
        self.owners = Owners::default();
        self.agents.forget_requests();
        self.to_explain.clear();
        self.relieved.clear();
        self.pace = Pace::default();
        self.alarm = None;
        self.restart_provider();
    }

    /// The request of that number, where it is in the pool.
    fn find(&self, number: Number) -> Option<Handle> {
        self.pool.find(Decimal::of(number).as_str())
    }

    fn entry(&self, handle: Handle) -> Option<&Entry<W>> {
        self.entries.get(handle.index())?.as_ref()
    }

    fn put_entry(&mut self, handle: Handle, entry: Entry<W>) {
        if self.entries.len() <= handle.index() {
            self.entries.resize_with(handle.index() + 1, || None);
        }
        self.entries[handle.index()] = Some(entry);
    }

    fn take_entry(&mut self, handle: Handle) -> Option<Entry<W>> {
        self.entries.get_mut(handle.index())?.take()
    }

    /// Takes out who waits for a slot, in the order in which they came.
    fn take_waiting(&mut self) -> Vec<Entry<W>> {
        let waits = |entry: &mut Entry<W>| !entry.is_in_flight();
        let mut waiting: Vec<_> =
            self.entries.iter_mut().filter_map(|entry| entry.take_if(waits)).collect();
        waiting.sort_unstable_by_key(|entry| entry.request.number);
        waiting
    }

    /// How many requests wait for budget.
    pub(crate) fn parked(&self) -> u64 {
        self.parked.len() as u64
    }

    /// The numbers that decided a grant, as JSON, where they were asked for and its slot is held.
    pub(crate) fn why(&self, number: Number) -> Option<&str> {
        match &self.entry(self.find(number)?)?.phase {
            Phase::InFlight { why, .. } => why.as_deref(),
            Phase::Waiting { .. } => None,
        }
    }

    /// A copy of the pool as it is at this moment: late is who has become so since the last event, too.
    pub(crate) fn pool_now(&self) -> Pool {
        let mut pool = self.pool.clone();
        let now = self.now();
        if pool.next_change().is_some_and(|change| change <= now) {
            // Time does not go back, and who is late is granted nothing for that.
            let _ = pool.apply(now, Event::Tick, &mut Vec::new());
        }
        pool
    }

    /// For each agent by index: the ticks since its oldest request that waits for a slot came.
    pub(crate) fn oldest_ages(&self) -> HashMap<AgentIndex, u64> {
        let mut ages = HashMap::new();
        for entry in self.entries.iter().flatten() {
            if let Phase::Waiting { since, .. } = entry.phase {
                let age: &mut u64 = ages.entry(entry.request.agent).or_default();
                *age = (*age).max(self.pool.ticks().0 - since.0);
            }
        }
        ages
    }
}

fn unix_now() -> UnixMicros {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMicros(i64::try_from(unix.as_micros()).unwrap_or(i64::MAX))
}

/// A number as text, on the stack: a request's id in the journal and in the pool.
pub(crate) struct Decimal {
    digits: [u8; 20],
    start: usize,
}

impl Decimal {
    pub(crate) fn of(mut number: Number) -> Self {
        let (mut digits, mut start) = ([b'0'; 20], 20);
        while number > 0 || start == 20 {
            start -= 1;
            digits[start] += u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
        }
        Self { digits, start }
    }

    pub(crate) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.digits[self.start..]).unwrap_or_default()
    }
}

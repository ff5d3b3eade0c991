//! The scheduler behind Python's `Scheduler`: one pool, with its waiting and running requests, budgets and counters.
//! All of these change together under one lock.
//!
//! A request waits for budget, waits for a slot, or holds a slot. While a request waits for budget, it is known by its
//! number alone. After that the request is in the pool, and its data is in [`LocalScheduler::entries`] under the handle
//! from the pool. The pool alone decides which requests hold a slot. When a client gives up, its request is cancelled
//! in the pool. The core then either takes the request out of its queue or gives its slot to the next request, so it
//! does not matter if the client gives up before or after the grant.
//!
//! No timer runs here. Three changes happen only because time passes: a provider's limit allows further requests, a
//! request reaches its deadline, and a budget becomes free. [`LocalScheduler::next_alarm`] returns the time until the
//! next change. After that time the caller calls [`LocalScheduler::tick`].
//!
//! `W` is the waker of a waiting client. The waker is set after the request was submitted, because a request that gets
//! a slot at once needs no waker. The scheduler never calls a waker. It puts notices into [`LocalScheduler::outbox`],
//! and the caller delivers them after releasing the lock. A waker that is no longer needed is put into
//! [`LocalScheduler::discarded`]. The caller drops it after releasing the lock too, because that may run Python code.

mod budgets;
mod decisions;
mod end_interval;
mod provider;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fairgate_core::attribute::Attributes;
use fairgate_core::event::{Event, PoolConfig, Submit};
use fairgate_core::policy::Policy;
use fairgate_core::units::{Micros, TaskWeight, Ticks, Tokens};
use fairgate_core::{Pool, RequestHandle};
use fairgate_dialect::quota::QuotaTicket;
use fairgate_journal::JournalClock;
use fairgate_time::{UnixMicros, wall_clock};

use self::budgets::BudgetWaiter;
use self::decisions::LocalPoolOutput;
use self::end_interval::MeanEndInterval;
use self::provider::ProviderState;
pub(crate) use self::provider::{ProviderRates, ProviderReport};
use crate::agents::{AgentIndex, LocalAgents};
use crate::budget::{BudgetTime, LocalBudgetTerms};
use crate::journal::LocalJournal;
use crate::owners::{SlotOwner, SlotOwners};
use crate::request_number::{RequestNumber, RequestNumberText};
use crate::usage::{LocalUsage, SlotUsage};

/// A request for a slot.
pub(crate) struct SlotRequest<'a> {
    pub(crate) agent: &'a str,
    /// Attributes other than the agent, indexed by the attribute's number; `None` if the request sets none.
    pub(crate) attributes: Option<[Option<&'a str>; 7]>,
    pub(crate) weight: TaskWeight,
    pub(crate) cost: Tokens,
    pub(crate) priority: i64,
    /// The task or thread that waits for the slot.
    pub(crate) owner: SlotOwner,
    /// True if `owner` will also give the slot back; false if anyone may give it back.
    pub(crate) keeps: bool,
    /// Longest time to wait; `None` for no limit.
    pub(crate) timeout: Option<Micros>,
    /// True if the grant should include the numbers that decided it.
    pub(crate) explain: bool,
}

/// The immediate result of a request.
#[derive(Debug)]
pub(crate) enum SlotAnswer {
    Granted(RequestHandle),
    Waits,
    Refused(SlotRefusal),
}

/// The reason why a request gets no slot.
#[derive(Clone, Debug)]
pub(crate) enum SlotRefusal {
    /// The queue is full, or the request was evicted from the queue. `retry_us` is the recent mean time between ends of
    /// requests, in microseconds; `None` if too few requests have ended.
    QueueFull { reason: &'static str, waiting: u64, limit: u64, retry_us: Option<u64> },
    /// The agent's budget has fewer tokens left than the request's estimate.
    OverBudget { limit: u64, spent: u64, reserved: u64, asked: u64 },
    /// The wait would never end, because every slot is held by a task or thread that waits for another slot.
    Deadlock { held: u64, in_flight: u64 },
    /// The deadline passed before a slot was granted.
    DeadlinePassed,
    /// The scheduler is closed.
    Closed,
}

impl SlotRefusal {
    /// Returns the stable code under which refusals are counted.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::QueueFull { reason, .. } => reason,
            Self::OverBudget { .. } => "over_budget",
            Self::Deadlock { .. } => "deadlock",
            Self::DeadlinePassed => "deadline_passed",
            Self::Closed => "closed",
        }
    }
}

/// Alert that an agent's usage has reached a level of the agent's budget.
#[derive(Debug)]
pub(crate) struct BudgetAlert {
    pub(crate) agent: Arc<str>,
    /// Alert level in thousandths of the limit.
    pub(crate) part: u32,
    pub(crate) spent: u64,
    pub(crate) limit: u64,
}

/// The end of a wait, to be delivered to the waiting client.
pub(crate) struct WaitNotice<W> {
    pub(crate) number: RequestNumber,
    pub(crate) waiter: W,
    pub(crate) result: WaitResult,
}

/// Work that the caller of the scheduler must do after releasing the lock.
pub(crate) struct FollowUp<W> {
    /// The client to wake and its result; `None` if no client must be woken.
    pub(crate) notice: Option<WaitNotice<W>>,
    /// Time after which the caller must call [`LocalScheduler::tick`]; `None` if an alarm that is early enough is
    /// already set.
    pub(crate) alarm: Option<Duration>,
    pub(crate) alerts: Vec<BudgetAlert>,
    /// Wakers that are no longer needed and must be dropped.
    pub(crate) discarded: Vec<W>,
}

/// The result of a wait: a grant or a refusal.
#[derive(Debug)]
pub(crate) enum WaitResult {
    Granted { waited_us: u64 },
    Refused(SlotRefusal),
}

/// Data of a request that waits for budget, waits for a slot, or holds a slot.
struct LocalRequest {
    number: RequestNumber,
    id: Arc<str>,
    agent: AgentIndex,
    weight: TaskWeight,
    cost: u64,
    /// Before the grant, the owner that waits. After the grant, the owner that will give the slot back.
    owner: SlotOwner,
    /// The owner that sent the request.
    caller: SlotOwner,
    keeps: bool,
    /// Time on the pool's clock at which the wait ends; `None` for no deadline.
    deadline: Option<Micros>,
    attributes: Attributes,
}

impl LocalRequest {
    /// Returns the waiting owner if only a grant can end the wait; [`SlotOwner::NOBODY`] if the request has a deadline.
    fn waiting_owner(&self) -> SlotOwner {
        if self.deadline.is_some() { SlotOwner::NOBODY } else { self.owner }
    }

    /// Returns true if the deadline is at or before this time.
    fn is_late(&self, now: Micros) -> bool {
        self.deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Builds the submit event with this priority and timeout.
    fn submit(&self, priority: i64, timeout: Option<Micros>) -> Box<Submit> {
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
            timeout,
        })
    }
}

/// A request that is in the pool, where it waits for a slot or holds one.
struct PoolEntry<W> {
    request: LocalRequest,
    phase: PoolEntryPhase<W>,
}

enum PoolEntryPhase<W> {
    /// The request has waited for a slot since the tick `since`. The waker may not be set yet.
    Waiting { waiter: Option<W>, since: Ticks },
    /// The request holds a slot. `why` is the explained decision as JSON; `None` if the request did not want it.
    /// `ticket` is the state of the provider's quota at the time of the grant.
    InFlight { why: Option<Box<str>>, ticket: QuotaTicket },
}

impl<W> PoolEntry<W> {
    fn is_in_flight(&self) -> bool {
        matches!(self.phase, PoolEntryPhase::InFlight { .. })
    }
}

/// One local scheduler; see the module's documentation.
pub(crate) struct LocalScheduler<W> {
    pub(crate) config: PoolConfig,
    pub(crate) pool: Pool,
    pub(crate) agents: LocalAgents,
    pub(crate) ledger: LocalUsage,
    pub(crate) journal: Option<LocalJournal>,
    pub(crate) outbox: VecDeque<WaitNotice<W>>,
    discarded: Vec<W>,
    /// Results of waits whose clients have not set a waker yet.
    pub(crate) early_results: HashMap<RequestNumber, WaitResult>,
    /// Requests that are queued for a slot or hold one, by their handle in the pool.
    entries: Vec<Option<PoolEntry<W>>>,
    /// Requests that wait for budget, in the order of arrival, because numbers are given in this order.
    parked: BTreeMap<RequestNumber, BudgetWaiter<W>>,
    /// Deadlines of the requests in `parked`. The pool knows all other deadlines.
    parked_deadlines: BTreeSet<(Micros, RequestNumber)>,
    /// True if any request has had a deadline, so that the pool's timers matter.
    has_deadlines: bool,
    pub(crate) owners: SlotOwners,
    /// Ids of the requests whose grants should be explained.
    to_explain: HashSet<Arc<str>>,
    /// Budget of agents that have no setting of their own; `None` for no budget.
    default_budget: Option<LocalBudgetTerms>,
    /// Budget alerts that the caller has not delivered yet.
    alerts: Vec<BudgetAlert>,
    /// Agents whose budget may now be enough for a request that waits for budget.
    agents_with_room: BTreeSet<AgentIndex>,
    pace: MeanEndInterval,
    provider: ProviderState,
    /// Number of requests that the provider refused because of a limit or of overload.
    limits_met: u64,
    /// Time on the pool's clock at which the caller will call [`LocalScheduler::tick`]; `None` if no alarm is set.
    pub(crate) alarm: Option<Micros>,
    /// Buffer for the pool's output on one event. It is kept to reuse its memory.
    pool_outputs: Vec<LocalPoolOutput>,
    started: Instant,
    /// Time by which tests have moved the clock forward.
    skipped: Duration,
    started_unix: UnixMicros,
    closed: bool,
}

impl<W> LocalScheduler<W> {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self {
            pool: Pool::new(config.clone()),
            config,
            agents: LocalAgents::default(),
            ledger: LocalUsage::default(),
            journal: None,
            outbox: VecDeque::new(),
            discarded: Vec::new(),
            early_results: HashMap::new(),
            entries: Vec::new(),
            parked: BTreeMap::new(),
            parked_deadlines: BTreeSet::new(),
            has_deadlines: false,
            owners: SlotOwners::default(),
            to_explain: HashSet::new(),
            default_budget: None,
            alerts: Vec::new(),
            agents_with_room: BTreeSet::new(),
            pace: MeanEndInterval::default(),
            provider: ProviderState::default(),
            limits_met: 0,
            alarm: None,
            pool_outputs: Vec::new(),
            started: Instant::now(),
            skipped: Duration::ZERO,
            started_unix: wall_clock::now(),
            closed: false,
        }
    }

    /// Requests a slot under a number that no other request has. If the result is `Waits`, the caller sets the waker
    /// with [`LocalScheduler::set_waiter`].
    pub(crate) fn ask(&mut self, number: RequestNumber, ask: &SlotRequest<'_>) -> SlotAnswer {
        let agent = self.agents.find_or_add(ask.agent);
        let answer = self.admit(number, agent, ask).unwrap_or_else(|refusal| {
            self.agents.get(agent).refused(refusal.code());
            SlotAnswer::Refused(refusal)
        });
        self.admit_parked_requests();
        answer
    }

    fn admit(
        &mut self,
        number: RequestNumber,
        agent: AgentIndex,
        ask: &SlotRequest<'_>,
    ) -> Result<SlotAnswer, SlotRefusal> {
        if self.closed {
            return Err(SlotRefusal::Closed);
        }
        self.prepare_budget(agent);
        let its = self.agents.get(agent);
        let attributes = match ask.attributes {
            Some(texts) => Attributes::of(texts),
            None => its.attributes.clone(),
        };
        let (weight, cost) = (ask.weight, ask.cost.0);
        let id = RequestNumberText::of(number).as_str().into();
        let SlotRequest { owner, keeps, timeout, .. } = *ask;
        let deadline = timeout.map(|timeout| self.after(timeout));
        self.has_deadlines |= deadline.is_some();
        let request = LocalRequest {
            number,
            id,
            agent,
            weight,
            cost,
            owner,
            caller: owner,
            keeps,
            deadline,
            attributes,
        };
        let its = self.agents.get(agent);
        let fits = its.budget.as_mut().is_none_or(|budget| budget.reserve(cost));
        if !fits && let Some(refusal) = self.refuse_to_park(agent, cost) {
            return Err(refusal);
        }
        if ask.explain {
            self.to_explain.insert(request.id.clone());
        }
        let submit = request.submit(ask.priority, timeout);
        if !fits {
            self.park(BudgetWaiter { request, waiter: None, submit });
            return Ok(SlotAnswer::Waits);
        }
        match self.enter(request, submit) {
            SlotAnswer::Refused(refusal) => Err(refusal),
            answer => Ok(answer),
        }
    }

    /// Puts a request into the pool on behalf of a caller. Returns whether the request was granted, waits or was
    /// refused.
    fn enter(&mut self, request: LocalRequest, submit: Box<Submit>) -> SlotAnswer {
        match self.submit(request, None, submit, true) {
            Ok(Some(handle)) if self.entry(handle).is_some_and(PoolEntry::is_in_flight) => {
                SlotAnswer::Granted(handle)
            }
            Ok(_) => SlotAnswer::Waits,
            Err(refusal) => SlotAnswer::Refused(refusal),
        }
    }

    /// Withdraws a request that has just started to wait, because its wait would never end.
    pub(crate) fn refuse_deadlock(
        &mut self,
        number: RequestNumber,
        owner: SlotOwner,
    ) -> SlotRefusal {
        let refusal = SlotRefusal::Deadlock {
            held: self.owners.held(owner),
            in_flight: self.pool.in_flight(),
        };
        if let Some(agent) = self.end(number) {
            self.agents.get(agent).refused(refusal.code());
            self.admit_parked_requests();
        }
        refusal
    }

    /// Returns true if every slot is taken and has a known owner. If a slot is free, a waiting request waits for
    /// something other than a slot, such as the end of a hold.
    pub(crate) fn is_all_owned(&self) -> bool {
        let in_flight = self.pool.in_flight();
        in_flight >= self.pool.capacity().max(1) && self.owners.owned() >= in_flight
    }

    /// Withdraws a request that still waits. Returns false, and changes nothing, if the request was granted or has
    /// ended.
    pub(crate) fn withdraw(&mut self, number: RequestNumber) -> bool {
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

    /// Ends a request in any phase, because its client gave up.
    pub(crate) fn cancel(&mut self, number: RequestNumber) {
        self.early_results.remove(&number);
        if let Some(agent) = self.end(number) {
            self.agents.get(agent).withdrawals += 1;
            self.admit_parked_requests();
        }
    }

    /// Ends a request without a notice. Returns the request's agent; `None` if there is no such request.
    fn end(&mut self, number: RequestNumber) -> Option<AgentIndex> {
        let Some(handle) = self.find(number) else {
            let BudgetWaiter { request, waiter, .. } = self.unpark(number)?;
            self.to_explain.remove(&request.id);
            self.discarded.extend(waiter);
            return Some(request.agent);
        };
        let PoolEntry { request, phase } = self.take_entry(handle)?;
        let agent = request.agent;
        match phase {
            PoolEntryPhase::Waiting { waiter, .. } => {
                self.leave_queue(&request);
                self.discarded.extend(waiter);
                self.apply(Event::Cancel { id: request.id });
            }
            // The request was granted a slot but never ran, so it used no tokens.
            PoolEntryPhase::InFlight { .. } => self.give_back(request, Some(0)),
        }
        Some(agent)
    }

    /// Ends a request that holds a slot, and records its usage. Does nothing if the request no longer holds a slot.
    /// `handle` is the handle of the grant, if the caller knows it.
    pub(crate) fn release(
        &mut self,
        number: RequestNumber,
        handle: Option<RequestHandle>,
        used: &SlotUsage,
    ) {
        let is_its = |entry: &PoolEntry<W>| entry.request.number == number;
        let known = handle.filter(|handle| self.entry(*handle).is_some_and(is_its));
        let Some(handle) = known.or_else(|| self.find(number)) else { return };
        if !self.entry(handle).is_some_and(PoolEntry::is_in_flight) {
            return;
        }
        let Some(PoolEntry { request, .. }) = self.take_entry(handle) else { return };
        self.ledger.add(request.agent, used.tokens.unwrap_or(request.cost), used);
        self.give_back(request, used.tokens);
        self.admit_parked_requests();
    }

    /// Takes a slot back. `tokens` is the usage of the request; `None` charges the estimate.
    fn give_back(&mut self, request: LocalRequest, tokens: Option<u64>) {
        self.owners.remove_held(request.owner);
        let its = self.agents.get(request.agent);
        its.in_flight -= 1;
        if its.budget.is_some() {
            self.settle_budget(&request, tokens.unwrap_or(request.cost));
        }
        let tokens = tokens.map(Tokens);
        self.apply(Event::Release { id: request.id, tokens, quota: None });
        self.pace.record_end(self.pool.now());
    }

    fn settle_budget(&mut self, request: &LocalRequest, used: u64) {
        let now = self.moment();
        let its = self.agents.get(request.agent);
        let Some(budget) = &mut its.budget else { return };
        if let Some(part) = budget.settle(request.cost, used, now) {
            let (spent, limit) = (budget.spent, budget.terms.limit);
            self.alerts.push(BudgetAlert { agent: its.name.clone(), part, spent, limit });
        }
        self.agents_with_room.insert(request.agent);
    }

    /// Returns the time since the scheduler was created, including time that tests skipped.
    fn elapsed(&self) -> Duration {
        self.started.elapsed().saturating_add(self.skipped)
    }

    /// Returns the calendar time at which the pool's clock was 0.
    pub(crate) fn journal_clock(&self) -> JournalClock {
        let unix_us = u64::try_from(self.started_unix.0).unwrap_or(0);
        JournalClock { at: Micros(0), unix_us }
    }

    /// Moves the clock forward by `time`, and does the work that is due at the new time.
    pub(crate) fn skip_time(&mut self, time: Duration) {
        self.skipped = self.skipped.saturating_add(time);
        self.tick();
    }

    /// Returns the current time on the pool's clock and on the calendar.
    fn moment(&self) -> BudgetTime {
        let elapsed = i64::try_from(self.elapsed().as_micros()).unwrap_or(i64::MAX);
        let unix = UnixMicros(self.started_unix.0.saturating_add(elapsed));
        BudgetTime { pool_us: self.now().0, unix }
    }

    /// Removes a request that was not granted a slot from the counts of waiting requests.
    fn leave_queue(&mut self, request: &LocalRequest) {
        self.to_explain.remove(&request.id);
        self.owners.remove_wait(request.waiting_owner());
        let its = self.agents.get(request.agent);
        its.waiting -= 1;
        its.depth_thousandths -= u64::from(request.weight.thousandths());
        self.unreserve(request);
    }

    /// Releases the request's reservation in its agent's budget.
    fn unreserve(&mut self, request: &LocalRequest) {
        if let Some(budget) = &mut self.agents.get(request.agent).budget {
            budget.unreserve(request.cost);
            self.agents_with_room.insert(request.agent);
        }
    }

    /// Sets the owner that will give a slot back from now on.
    pub(crate) fn set_owner(&mut self, number: RequestNumber, owner: SlotOwner) {
        let Some(handle) = self.find(number) else { return };
        if let Some(Some(entry)) = self.entries.get_mut(handle.index())
            && entry.is_in_flight()
        {
            self.owners.remove_held(mem::replace(&mut entry.request.owner, owner));
            self.owners.add_held(owner);
        }
    }

    /// Sets the waker of a request that still waits. Discards the waker if the request no longer waits.
    pub(crate) fn set_waiter(&mut self, number: RequestNumber, waiter: W) {
        let handle = self.find(number);
        let entry = handle.and_then(|handle| self.entries.get_mut(handle.index())?.as_mut());
        let place = match entry {
            Some(PoolEntry { phase: PoolEntryPhase::Waiting { waiter, .. }, .. }) => Some(waiter),
            Some(_) => None,
            None => self.parked.get_mut(&number).map(|its| &mut its.waiter),
        };
        let before = match place {
            Some(place) => place.replace(waiter),
            None => Some(waiter),
        };
        self.discarded.extend(before);
    }

    /// Reports the end of a wait. Without a waker, the result is kept until the client sets one.
    fn notify(&mut self, number: RequestNumber, waiter: Option<W>, result: WaitResult) {
        match waiter {
            Some(waiter) => self.outbox.push_back(WaitNotice { number, waiter, result }),
            None => {
                self.early_results.insert(number, result);
            }
        }
    }

    /// Applies an operator's event, such as a hold or another capacity.
    pub(crate) fn operate(&mut self, event: Event) {
        self.apply(event);
        self.admit_parked_requests();
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

    /// Refuses all waiting requests and all later ones. Slots that are held stay held until they are given back.
    pub(crate) fn close(&mut self) {
        if mem::replace(&mut self.closed, true) {
            return;
        }
        // With no slots, no request is granted while the waiting requests are refused one by one.
        self.apply(Event::Capacity { slots: 0 });
        let mut gone: Vec<(RequestNumber, Option<W>)> = mem::take(&mut self.parked)
            .into_values()
            .map(|BudgetWaiter { request, waiter, .. }| {
                self.leave_budget(&request);
                (request.number, waiter)
            })
            .collect();
        for PoolEntry { request, phase } in self.take_waiting() {
            self.leave_queue(&request);
            if let PoolEntryPhase::Waiting { waiter, .. } = phase {
                gone.push((request.number, waiter));
            }
            self.apply(Event::Cancel { id: request.id });
        }
        gone.sort_unstable_by_key(|(number, _)| *number);
        for (number, waiter) in gone {
            self.notify(number, waiter, WaitResult::Refused(SlotRefusal::Closed));
        }
        self.to_explain.clear();
        self.agents_with_room.clear();
    }

    /// Returns the next work that the caller must do after releasing the lock; `None` if no work is left.
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

    /// Puts work back that the caller could not finish. The next call of [`LocalScheduler::next_follow_up`] returns it
    /// again. `alarm` is true if the alarm was not set.
    pub(crate) fn put_back(&mut self, alerts: impl Iterator<Item = BudgetAlert>, alarm: bool) {
        self.alerts.splice(..0, alerts);
        if alarm {
            self.alarm = None;
        }
    }

    /// Returns the time until [`LocalScheduler::tick`] is due, if that is earlier than the alarm that is already set;
    /// otherwise `None`.
    fn next_alarm(&mut self) -> Option<Duration> {
        let may_change = (self.has_provider() || self.has_deadlines) && self.pool.waiting() > 0;
        let in_pool = may_change.then(|| self.pool.next_change()).flatten();
        let parked = self.parked_deadlines.first().map(|(deadline, _)| *deadline);
        let in_budgets = match self.alarm {
            // The alarm checks the budgets again.
            Some(_) => None,
            None => self.next_budget_release_us().map(|us| self.after(Micros(us))),
        };
        let next = [in_pool, parked, in_budgets].into_iter().flatten().min()?;
        if self.alarm.is_some_and(|alarm| alarm <= next) {
            return None;
        }
        self.alarm = Some(next);
        Some(Duration::from_micros(next.0.saturating_sub(self.now().0)))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Removes all requests, for a child process after a fork, because the requests belong to the parent process.
    pub(crate) fn forget_requests(&mut self) {
        self.pool = Pool::new(self.config.clone());
        (self.started, self.started_unix) = (Instant::now(), wall_clock::now());
        self.skipped = Duration::ZERO;
        if let Some(journal) = self.journal.take() {
            journal.abandon();
        }
        for entry in self.entries.drain(..).flatten() {
            if let PoolEntryPhase::Waiting { waiter, .. } = entry.phase {
                self.discarded.extend(waiter);
            }
        }
        self.discarded
            .extend(mem::take(&mut self.parked).into_values().filter_map(|its| its.waiter));
        self.parked_deadlines.clear();
        self.discarded.extend(self.outbox.drain(..).map(|notice| notice.waiter));
        self.early_results.clear();
        self.owners = SlotOwners::default();
        self.agents.forget_requests();
        self.to_explain.clear();
        self.agents_with_room.clear();
        self.pace = MeanEndInterval::default();
        self.alarm = None;
        self.restart_provider();
    }

    /// Returns the handle of the request with this number; `None` if the request is not in the pool.
    fn find(&self, number: RequestNumber) -> Option<RequestHandle> {
        self.pool.find(RequestNumberText::of(number).as_str())
    }

    fn entry(&self, handle: RequestHandle) -> Option<&PoolEntry<W>> {
        self.entries.get(handle.index())?.as_ref()
    }

    fn put_entry(&mut self, handle: RequestHandle, entry: PoolEntry<W>) {
        if self.entries.len() <= handle.index() {
            self.entries.resize_with(handle.index() + 1, || None);
        }
        self.entries[handle.index()] = Some(entry);
    }

    fn take_entry(&mut self, handle: RequestHandle) -> Option<PoolEntry<W>> {
        self.entries.get_mut(handle.index())?.take()
    }

    /// Removes all requests that wait for a slot, and returns them in the order of arrival.
    fn take_waiting(&mut self) -> Vec<PoolEntry<W>> {
        let waits = |entry: &mut PoolEntry<W>| !entry.is_in_flight();
        let mut waiting: Vec<_> =
            self.entries.iter_mut().filter_map(|entry| entry.take_if(waits)).collect();
        waiting.sort_unstable_by_key(|entry| entry.request.number);
        waiting
    }

    /// Returns the number of requests that wait for budget.
    pub(crate) fn parked(&self) -> u64 {
        self.parked.len() as u64
    }

    /// Returns the numbers that decided a grant, as JSON. Returns `None` if the request was made without `explain`, or
    /// if the slot is no longer held.
    pub(crate) fn why(&self, number: RequestNumber) -> Option<&str> {
        match &self.entry(self.find(number)?)?.phase {
            PoolEntryPhase::InFlight { why, .. } => why.as_deref(),
            PoolEntryPhase::Waiting { .. } => None,
        }
    }

    /// Returns a copy of the pool, advanced to the current time, so that requests whose deadline has passed since the
    /// last event have expired in it.
    pub(crate) fn pool_now(&self) -> Pool {
        let mut pool = self.pool.clone();
        let now = self.now();
        if pool.next_change().is_some_and(|change| change <= now) {
            // This cannot fail, because time does not go back. The tick grants nothing to late requests.
            let _ = pool.apply(now, Event::Tick, &mut Vec::new());
        }
        pool
    }

    /// Returns, for each agent, the age in ticks of the oldest request that waits for a slot.
    pub(crate) fn oldest_ages(&self) -> HashMap<AgentIndex, u64> {
        let mut ages = HashMap::new();
        for entry in self.entries.iter().flatten() {
            if let PoolEntryPhase::Waiting { since, .. } = entry.phase {
                let age: &mut u64 = ages.entry(entry.request.agent).or_default();
                *age = (*age).max(self.pool.ticks().0 - since.0);
            }
        }
        ages
    }
}

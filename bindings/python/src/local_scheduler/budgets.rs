//! Requests that wait for budget, before they wait for a slot.

use fairgate_core::event::Submit;
use fairgate_core::units::Micros;

use super::{LocalRequest, LocalScheduler, SlotRefusal};
use crate::agents::AgentIndex;
use crate::budget::{LocalBudget, LocalBudgetTerms};
use crate::request_number::RequestNumber;

/// A request that waits for budget, with its submit event.
pub(super) struct BudgetWaiter<W> {
    pub(super) request: LocalRequest,
    pub(super) waiter: Option<W>,
    pub(super) submit: Box<Submit>,
}

impl<W> LocalScheduler<W> {
    /// Sets or removes an agent's budget. The amount spent is kept, and requests in the pool count as reserved.
    pub(crate) fn set_budget(&mut self, agent: &str, terms: Option<LocalBudgetTerms>) {
        let now = self.moment();
        let agent = self.agents.find_or_add(agent);
        let in_pool = self.entries.iter().flatten().map(|entry| &entry.request);
        let under_way = in_pool
            .filter(|request| request.agent == agent)
            .fold(0u64, |sum, request| sum.saturating_add(request.cost));
        let its = self.agents.get(agent);
        // An agent with a setting of its own does not get the default budget.
        its.has_own_budget_setting = true;
        let Some(terms) = terms else {
            let Some(mut budget) = its.budget.take() else { return };
            // Without a limit, all requests that wait for budget continue at once.
            budget.terms.limit = u64::MAX;
            (budget.spent, budget.reserved) = (0, 0);
            its.budget = Some(budget);
            self.admit_parked_of(agent);
            self.agents.get(agent).budget = None;
            return;
        };
        match &mut its.budget {
            Some(budget) => budget.change(terms, now),
            None => {
                let mut budget = LocalBudget::new(terms, now);
                budget.reserved = under_way;
                its.budget = Some(budget);
            }
        }
        self.admit_parked_of(agent);
    }

    /// Sets the budget of every agent that has no setting of its own. The budget applies to an agent from the agent's
    /// next request on.
    pub(crate) fn set_default_budget(&mut self, terms: Option<LocalBudgetTerms>) {
        self.default_budget = terms;
    }

    /// Gives the agent the default budget if it has no setting of its own; otherwise advances its budget to now.
    pub(super) fn prepare_budget(&mut self, agent: AgentIndex) {
        let its = self.agents.get(agent);
        if its.budget.is_none() && (its.has_own_budget_setting || self.default_budget.is_none()) {
            return;
        }
        let now = self.moment();
        let its = self.agents.get(agent);
        match &mut its.budget {
            Some(budget) => budget.roll(now),
            None => {
                its.budget = self.default_budget.clone().map(|terms| LocalBudget::new(terms, now))
            }
        }
    }

    fn admit_parked_of(&mut self, agent: AgentIndex) {
        self.agents_with_room.insert(agent);
        self.admit_parked_requests();
    }

    /// Advances all budgets to the current time, and submits the waiting requests for which there is budget now.
    pub(crate) fn roll_budgets(&mut self) {
        let now = self.moment();
        for (index, its) in self.agents.iter_mut().enumerate() {
            if let Some(budget) = &mut its.budget {
                budget.roll(now);
                if !budget.parked.is_empty() {
                    self.agents_with_room.insert(index);
                }
            }
        }
        self.admit_parked_requests();
    }

    /// Returns the microseconds until old usage no longer counts, which may free budget for a waiting request; `None`
    /// if this never happens.
    pub(super) fn next_budget_release_us(&self) -> Option<u64> {
        if self.parked.is_empty() {
            return None;
        }
        let now = self.moment();
        let waited_for = self.agents.iter().filter_map(|its| its.budget.as_ref());
        waited_for
            .filter(|budget| !budget.parked.is_empty())
            .filter_map(|budget| budget.next_release_us(now))
            .min()
    }

    /// Returns the reason why a request may not even wait for budget; `None` if it may wait.
    pub(super) fn refuse_to_park(&mut self, agent: AgentIndex, asked: u64) -> Option<SlotRefusal> {
        let LocalBudget { terms, spent, reserved, .. } = self.agents.get(agent).budget.as_ref()?;
        let (limit, spent, reserved) = (terms.limit, *spent, *reserved);
        if !terms.waits {
            return Some(SlotRefusal::OverBudget { limit, spent, reserved, asked });
        }
        let waiting = self.pool.waiting() + self.parked();
        let limit = self.config.max_queue.filter(|max| waiting >= *max)?;
        let retry_us = self.pace.interval_us();
        Some(SlotRefusal::QueueFull { reason: "queue_full", waiting, limit, retry_us })
    }

    /// Adds a request to the requests that wait for budget.
    pub(super) fn park(&mut self, parked: BudgetWaiter<W>) {
        let request = &parked.request;
        self.owners.add_wait(request.waiting_owner());
        let its = self.agents.get(request.agent);
        its.parked += 1;
        if let Some(budget) = &mut its.budget {
            budget.parked.push_back(request.number);
        }
        self.parked_deadlines.extend(request.deadline.map(|deadline| (deadline, request.number)));
        self.parked.insert(request.number, parked);
    }

    /// Removes a request from the requests that wait for budget. Returns `None` if it is not among them.
    pub(super) fn unpark(&mut self, number: RequestNumber) -> Option<BudgetWaiter<W>> {
        let parked = self.parked.remove(&number)?;
        self.leave_budget(&parked.request);
        Some(parked)
    }

    /// Updates the counts after a request was taken out of `parked`.
    pub(super) fn leave_budget(&mut self, request: &LocalRequest) {
        self.owners.remove_wait(request.waiting_owner());
        if let Some(deadline) = request.deadline {
            self.parked_deadlines.remove(&(deadline, request.number));
        }
        let its = self.agents.get(request.agent);
        its.parked -= 1;
        if let Some(budget) = &mut its.budget {
            budget.parked.retain(|other| *other != request.number);
            // The budget may suffice for the next waiting request.
            self.agents_with_room.insert(request.agent);
        }
    }

    /// Submits the requests that waited for budget and for which enough budget is left now.
    pub(super) fn admit_parked_requests(&mut self) {
        while let Some(agent) = self.agents_with_room.pop_first() {
            while let Some(number) = self.admit_parked(agent) {
                let Some(BudgetWaiter { request, waiter, mut submit }) = self.unpark(number) else {
                    continue;
                };
                let now = self.now();
                if request.is_late(now) {
                    self.unreserve(&request);
                    self.to_explain.remove(&request.id);
                    self.notify_expired(&request, waiter);
                    continue;
                }
                // The time spent waiting for budget counts towards the timeout.
                submit.timeout = request.deadline.map(|deadline| Micros(deadline.0 - now.0));
                // If the pool is full, the client gets a notice like any waiting client.
                let _ = self.submit(request, waiter, submit, false);
            }
        }
    }

    /// Ends the waits for budget whose deadline has passed.
    pub(super) fn expire_parked(&mut self) {
        let now = self.now();
        while let Some((_, number)) =
            self.parked_deadlines.first().copied().filter(|(deadline, _)| *deadline <= now)
        {
            let Some(BudgetWaiter { request, waiter, .. }) = self.unpark(number) else {
                self.parked_deadlines.pop_first();
                continue;
            };
            self.to_explain.remove(&request.id);
            self.notify_expired(&request, waiter);
        }
    }

    fn admit_parked(&mut self, agent: AgentIndex) -> Option<RequestNumber> {
        let parked = &self.parked;
        let cost_of = |number| parked.get(&number).map_or(0, |its| its.request.cost);
        self.agents.get(agent).budget.as_mut()?.admit(cost_of)
    }
}

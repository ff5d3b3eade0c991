//! The interface between Python and the local scheduler.
//!
//! The lock around the scheduler is held for one event only. It is never held while Python code runs, a future is
//! resolved or a Python object is dropped, because all of these may call back into this module.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{Event, PoolConfig};
use fairgate_core::policy::{FlowInside, Policy, PolicyNode};
use fairgate_core::units::{Micros, TaskWeight, Tokens, Weight};
use fairgate_dialect::quota::PerMinuteLimits;
use fairgate_dialect::rate_limit_headers::{self, EpochMicros};
use fairgate_journal::{parse_policy, write_fairness, write_request_location};
use fairgate_time::wall_clock;
use http::StatusCode;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList};

use crate::arguments::{attribute_text, shown};
use crate::budget::{LocalBudgetPeriod, LocalBudgetTerms};
use crate::deadlock;
use crate::interrupt::is_interrupt;
use crate::journal::LocalJournal;
use crate::local_scheduler::{
    BudgetAlert, FollowUp, LocalScheduler, ProviderRates, SlotAnswer, SlotRequest, WaitNotice,
};
use crate::owners::SlotOwner;
use crate::report;
use crate::request_number::{RequestNumber, RequestNumberText};
use crate::shared_scheduler::SharedScheduler;
use crate::usage::SlotUsage;
use crate::waiter::{PythonWaiter, outcome, refusal_tuple};

/// A request for a slot, with the values that Python code gave.
pub(crate) struct PySlotRequest<'a, 'py> {
    pub(crate) agent: &'a str,
    pub(crate) weight: f64,
    pub(crate) cost: Option<&'a Bound<'py, PyAny>>,
    pub(crate) priority: i64,
    pub(crate) attributes: Option<&'a Bound<'py, PyDict>>,
    pub(crate) owner: SlotOwner,
    /// Sum of the flags [`EXPLAIN`] and [`KEEPS`] that are set.
    pub(crate) flags: u8,
    /// Longest wait in seconds; `None` for no limit.
    pub(crate) timeout: Option<f64>,
}

/// Flag of `ask` for requests whose grant should include the numbers that decided it.
pub(crate) const EXPLAIN: u8 = 1;
/// Flag of `ask` for requests whose slot the calling task or thread itself will give back.
pub(crate) const KEEPS: u8 = 4;

/// A local scheduler as a Python object: one pool with its waiting clients.
#[pyclass(frozen, weakref, module = "fairgate._core")]
pub(crate) struct Gate {
    scheduler: SharedScheduler,
    /// Python callable that gets the number of seconds after which `tick` is due. Its method `alert` gets budget
    /// alerts.
    alarm: Py<PyAny>,
}

#[pymethods]
impl Gate {
    /// Creates a pool of `capacity` slots with a policy (JSON), in which at most `max_waiting` requests wait. The gate
    /// calls `alarm(seconds)`. The alarm must call `tick()` after that many seconds.
    #[new]
    fn new(
        py: Python<'_>,
        policy: &str,
        capacity: u64,
        max_waiting: u64,
        journal: Option<PathBuf>,
        alarm: Py<PyAny>,
    ) -> PyResult<Self> {
        let mut config = PoolConfig::new(capacity, policy_from(policy)?);
        config.max_queue = Some(max_waiting);
        let mut scheduler = LocalScheduler::new(config);
        if let Some(path) = journal {
            let clock = scheduler.journal_clock();
            scheduler.journal =
                Some(py.detach(|| LocalJournal::begin(&path, &scheduler.config, clock))?);
        }
        let scheduler = Arc::new(Mutex::new(scheduler));
        deadlock::register(&scheduler);
        Ok(Self { scheduler, alarm })
    }

    /// Requests a slot under a number that no other request has. Returns 0 if the slot is granted, None if the request
    /// waits, or a tuple with the reason if the request is refused. The caller of a waiting request then sets the waker
    /// with `wait`. `owner` is the number of the task or thread that waits, and `timeout` is the longest wait in
    /// seconds.
    #[pyo3(signature = (id, agent, weight, cost, priority, attributes, owner, flags, timeout=None))]
    #[expect(clippy::too_many_arguments, reason = "one call for each request, on the hot path")]
    fn ask(
        &self,
        py: Python<'_>,
        id: u64,
        agent: &str,
        weight: f64,
        cost: Option<&Bound<'_, PyAny>>,
        priority: i64,
        attributes: Option<&Bound<'_, PyDict>>,
        owner: u64,
        flags: u8,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let owner = SlotOwner(owner);
        let question =
            PySlotRequest { agent, weight, cost, priority, attributes, owner, flags, timeout };
        answered(py, &self.submit(py, id, &question)?)
    }

    /// Sets the waker of a waiting request. `future` is a future of `event_loop`, or a queue if `event_loop` is None.
    /// Returns the result if the wait has already ended, else None.
    #[pyo3(signature = (id, future, event_loop))]
    fn wait(
        &self,
        py: Python<'_>,
        id: u64,
        future: Py<PyAny>,
        event_loop: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let mut scheduler = self.scheduler()?;
        let result = scheduler.early_results.remove(&id);
        if result.is_none() {
            scheduler.set_waiter(id, PythonWaiter::here(future, event_loop));
        }
        self.finish(py, scheduler)?;
        result.map_or_else(|| Ok(py.None()), |result| outcome(py, &result))
    }

    /// Withdraws a request that still waits. Returns False, and changes nothing, if the request no longer waits.
    fn withdraw(&self, py: Python<'_>, id: u64) -> PyResult<bool> {
        self.change(py, |scheduler| scheduler.withdraw(id))
    }

    /// Ends a request because its client gave up. The request may wait or hold a slot.
    fn cancel(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.change(py, |scheduler| scheduler.cancel(id))
    }

    /// Ends a request that holds a slot. Without a usage, the request is charged its estimate.
    #[pyo3(signature = (id, tokens=None, input_tokens=0, output_tokens=0, model=None))]
    fn release(
        &self,
        py: Python<'_>,
        id: u64,
        tokens: Option<u64>,
        input_tokens: u64,
        output_tokens: u64,
        model: Option<String>,
    ) -> PyResult<()> {
        let used = SlotUsage { tokens, input_tokens, output_tokens, model };
        self.change(py, |scheduler| scheduler.release(id, None, &used))
    }

    /// Sets the task or thread that will give a slot back; 0 if anyone may give it back.
    fn set_owner(&self, id: u64, owner: u64) -> PyResult<()> {
        self.scheduler()?.set_owner(id, SlotOwner(owner));
        Ok(())
    }

    /// Sets the provider's limits per minute, and the number of seconds whose unused quota may be saved up.
    fn set_rates(
        &self,
        py: Python<'_>,
        requests_per_minute: Option<u64>,
        tokens_per_minute: Option<u64>,
        burst_seconds: u64,
    ) -> PyResult<()> {
        let stated = PerMinuteLimits { requests_per_minute, tokens_per_minute };
        self.change(py, |scheduler| scheduler.set_rates(ProviderRates { stated, burst_seconds }))
    }

    /// Does the work that is due now. Python code calls this after the time that it was given through `alarm`.
    fn tick(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, LocalScheduler::tick)
    }

    /// Moves the clock of this gate forward by `seconds`, for tests that must not wait.
    fn skip_time(&self, py: Python<'_>, seconds: f64) -> PyResult<()> {
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|error| PyValueError::new_err(format!("seconds to skip: {error}")))?;
        self.change(py, |scheduler| scheduler.skip_time(time))
    }

    /// Records the provider's answer to a request in flight. If the provider refused the request because of a limit or
    /// of overload, returns the number of seconds for which nothing is sent; after that, the request may be sent again.
    /// Otherwise returns None.
    fn answered(
        &self,
        py: Python<'_>,
        id: u64,
        status: u16,
        headers: Vec<(String, Vec<u8>)>,
        body: &[u8],
    ) -> PyResult<Option<f64>> {
        let now = EpochMicros(wall_clock::now().0);
        let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let mut told = rate_limit_headers::read_rate_limits(pairs, now);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        let pause = if status.is_client_error() || status.is_server_error() {
            let complaint = rate_limit_headers::classify_refusal(status, body, &mut told, now);
            self.change(py, |scheduler| scheduler.record_refusal(id, &told, &complaint))?
        } else {
            self.change(py, |scheduler| scheduler.record_answer(id, &told))?;
            None
        };
        Ok(pause.map(|pause| pause.as_secs_f64()))
    }

    /// Gives back the slot of a request in flight without a charge, and submits the request again, ahead of all other
    /// requests of its agent. The request waits for at most `timeout` seconds. Returns the same values as `ask`.
    #[pyo3(signature = (id, timeout=None))]
    fn again(&self, py: Python<'_>, id: u64, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        let timeout = timeout_from(timeout)?;
        let answer = self.change(py, |scheduler| scheduler.resubmit(id, timeout))?;
        answered(py, &answer)
    }

    fn set_capacity(&self, py: Python<'_>, slots: u64) -> PyResult<()> {
        self.change(py, |scheduler| scheduler.set_capacity(slots))
    }

    fn set_policy(&self, py: Python<'_>, policy: &str) -> PyResult<()> {
        let policy = policy_from(policy)?;
        self.change(py, |scheduler| scheduler.set_policy(policy))
    }

    fn hold(&self, py: Python<'_>, by: &str, flow: &str) -> PyResult<()> {
        self.operate(py, Event::Hold { by: attribute(by)?, flow: flow.into() })
    }

    fn resume(&self, py: Python<'_>, by: &str, flow: &str) -> PyResult<()> {
        self.operate(py, Event::Resume { by: attribute(by)?, flow: flow.into() })
    }

    fn set_weight(&self, py: Python<'_>, by: &str, flow: &str, weight: u64) -> PyResult<()> {
        let weight = Weight::new(weight)
            .map_err(|error| PyValueError::new_err(format!("weight must be {}", error.allowed)))?;
        let by = attribute(by)?;
        let scheduler = self.scheduler()?;
        if is_strict_only(scheduler.pool.policy().root(), by) {
            let by = by.name();
            return Err(PyValueError::new_err(format!(
                "{by} {flow:?} has no weight: the policy's bands node goes through its classes in their order. \
                 Limit those before it with set_cap(…, by={by:?}), or put another policy in place"
            )));
        }
        drop(scheduler);
        self.operate(py, Event::Weight { by, flow: flow.into(), weight })
    }

    fn set_cap(&self, py: Python<'_>, by: &str, flow: &str, slots: Option<u64>) -> PyResult<()> {
        self.operate(py, Event::Cap { by: attribute(by)?, flow: flow.into(), slots })
    }

    /// Sets or removes an agent's token budget, or the default budget if `agent` is None. `period` names a calendar
    /// period, and `seconds` is the length of a rolling window. With neither of the two, usage counts for ever.
    /// `alerts` are thousandths of the limit.
    #[pyo3(signature = (agent, tokens, waits, period, seconds, alerts))]
    #[expect(clippy::too_many_arguments, reason = "the fields of a budget")]
    fn set_budget(
        &self,
        py: Python<'_>,
        agent: Option<&str>,
        tokens: Option<u64>,
        waits: bool,
        period: Option<&str>,
        seconds: Option<f64>,
        mut alerts: Vec<u32>,
    ) -> PyResult<()> {
        let period = match (period, seconds) {
            (Some(name), _) => LocalBudgetPeriod::named(name).ok_or_else(|| {
                PyValueError::new_err(format!("{name:?} is no period of a calendar"))
            })?,
            (None, Some(seconds)) => {
                let length = Duration::try_from_secs_f64(seconds)
                    .map_err(|error| PyValueError::new_err(format!("a window of time: {error}")))?;
                LocalBudgetPeriod::Rolling(u64::try_from(length.as_micros()).unwrap_or(u64::MAX))
            }
            (None, None) => LocalBudgetPeriod::Forever,
        };
        alerts.sort_unstable();
        let terms = tokens.map(|limit| LocalBudgetTerms { limit, waits, period, alerts });
        self.change(py, |scheduler| match agent {
            Some(agent) => scheduler.set_budget(agent, terms),
            None => scheduler.set_default_budget(terms),
        })
    }

    /// Refuses all waiting requests and all later ones.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, LocalScheduler::close)?;
        self.flush_journal(py)
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.scheduler()?.is_closed())
    }

    /// Waits until all events so far are in the journal's file.
    fn flush_journal(&self, py: Python<'_>) -> PyResult<()> {
        let disk = self.scheduler()?.journal.as_ref().map(LocalJournal::disk);
        py.detach(|| disk.iter().for_each(|disk| disk.flush()));
        Ok(())
    }

    /// Ends the journal and closes its file. The scheduler continues without a journal.
    fn end_journal(&self, py: Python<'_>) -> PyResult<()> {
        let journal = self.scheduler()?.journal.take();
        py.detach(|| drop(journal));
        Ok(())
    }

    /// Returns the reason why the journal ended early; None if the journal has not ended early.
    fn journal_failure(&self) -> PyResult<Option<String>> {
        let disk = self.scheduler()?.journal.as_ref().map(LocalJournal::disk);
        Ok(disk.and_then(|disk| disk.failure()))
    }

    /// Removes all requests, for a child process after a fork.
    fn forget_requests(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, LocalScheduler::forget_requests)
    }

    /// Returns all counters of the scheduler as a dict.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self.change(py, |scheduler| {
            scheduler.roll_budgets();
            report::SchedulerReport::of(scheduler)
        })?;
        report.into_dict(py)
    }

    /// Returns the usage by agent and model, as tuples of (agent, model, requests, tokens, input tokens, output
    /// tokens).
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let scheduler = self.scheduler()?;
        let rows = scheduler.ledger.rows(&scheduler.agents);
        drop(scheduler);
        let row = |(agent, model, sum): (String, String, crate::usage::AgentModelUsage)| {
            (agent, model, sum.requests, sum.tokens, sum.input_tokens, sum.output_tokens)
        };
        PyList::new(py, rows.into_iter().map(row).collect::<Vec<_>>())
    }

    /// Returns as JSON the state of a request, the requests ahead of it, and the reason why it waits. Returns None if
    /// the request neither waits nor holds a slot.
    fn explain(&self, py: Python<'_>, id: u64) -> PyResult<Option<String>> {
        let pool = self.scheduler()?.pool_now();
        Ok(py.detach(|| {
            Some(write_request_location(
                &pool.request_location(RequestNumberText::of(id).as_str())?,
            ))
        }))
    }

    /// Returns the decision that granted a slot, with its reasons, as JSON. Returns None if the request was made
    /// without the flag for reasons, or if the slot is no longer held.
    fn why(&self, id: u64) -> PyResult<Option<String>> {
        Ok(self.scheduler()?.why(id).map(str::to_owned))
    }

    /// Returns the service that each flow got and the service that it was due, as JSON.
    fn fairness(&self) -> PyResult<String> {
        let fairness = self.scheduler()?.pool.fairness();
        Ok(write_fairness(&fairness))
    }

    /// Returns the current policy as JSON.
    fn policy(&self) -> PyResult<String> {
        Ok(fairgate_journal::format_policy(self.scheduler()?.pool.policy()))
    }
}

impl Gate {
    fn scheduler(&self) -> PyResult<MutexGuard<'_, LocalScheduler<PythonWaiter>>> {
        let broken = "an earlier call failed half-way: this scheduler cannot be used any more";
        self.scheduler.lock().map_err(|_| PyRuntimeError::new_err(broken))
    }

    fn operate(&self, py: Python<'_>, event: Event) -> PyResult<()> {
        self.change(py, |scheduler| scheduler.operate(event))
    }

    /// Requests a slot under a number that no other request has. Checks for a deadlock if the request has to wait.
    pub(crate) fn submit(
        &self,
        py: Python<'_>,
        number: RequestNumber,
        question: &PySlotRequest<'_, '_>,
    ) -> PyResult<SlotAnswer> {
        let &PySlotRequest { agent, weight, cost, priority, attributes, owner, flags, timeout } =
            question;
        let weight = task_weight(weight)?;
        let timeout = timeout_from(timeout)?;
        let given = attributes.map(texts_of).transpose()?;
        let attributes = given.as_ref().map(|given| {
            let mut texts = given.each_ref().map(Option::as_deref);
            texts[Attribute::Agent as usize] = Some(agent);
            texts
        });
        let cost = cost.map(|cost| tokens_from("cost", cost)).transpose()?;
        let ask = SlotRequest {
            agent,
            attributes,
            weight,
            // A weight of 1 means a thousand tokens, so thousandths of weight are tokens.
            cost: Tokens(cost.unwrap_or_else(|| u64::from(weight.thousandths()))),
            priority,
            owner,
            keeps: flags & KEEPS != 0,
            timeout,
            explain: flags & EXPLAIN != 0,
        };
        let mut scheduler = self.scheduler()?;
        let mut answer = scheduler.ask(number, &ask);
        if matches!(answer, SlotAnswer::Waits) {
            // No Python code runs in between, so the state is still the one that `ask` left.
            drop(scheduler);
            let is_certain = deadlock::is_deadlocked(&self.scheduler, owner);
            scheduler = self.scheduler()?;
            if is_certain {
                answer = SlotAnswer::Refused(scheduler.refuse_deadlock(number, owner));
            } else if timeout == Some(Micros(0)) {
                // The request was not granted a slot at once, so its wait is over before it begins.
                scheduler.let_time_pass();
            }
        }
        self.finish(py, scheduler)?;
        Ok(answer)
    }

    /// Applies a change to the locked scheduler, then unlocks it and delivers its notices.
    pub(crate) fn change<T>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut LocalScheduler<PythonWaiter>) -> T,
    ) -> PyResult<T> {
        let mut scheduler = self.scheduler()?;
        let result = change(&mut scheduler);
        self.finish(py, scheduler)?;
        Ok(result)
    }

    /// Unlocks the scheduler and does the work that the scheduler leaves to its caller, such as delivering notices. If
    /// a notice cannot be delivered because the client's event loop is closed, cancels the client's request.
    ///
    /// A Python interrupt ends this function early. The next call of it does the work that is left: it delivers notices
    /// and alerts, and sets the alarm.
    fn finish<'a>(
        &'a self,
        py: Python<'_>,
        mut scheduler: MutexGuard<'a, LocalScheduler<PythonWaiter>>,
    ) -> PyResult<()> {
        while let Some(follow_up) = scheduler.next_follow_up() {
            drop(scheduler);
            self.run(py, follow_up)?;
            scheduler = self.scheduler()?;
        }
        Ok(())
    }

    fn run(&self, py: Python<'_>, follow_up: FollowUp<PythonWaiter>) -> PyResult<()> {
        let FollowUp { notice, alarm, alerts, discarded } = follow_up;
        drop(discarded);
        let mut alerts = alerts.into_iter();
        let ended = self.run_in_order(py, notice, &mut alerts, alarm);
        if ended.is_err() {
            // An alert whose delivery has begun is not delivered again.
            self.scheduler()?.put_back(alerts, alarm.is_some());
        }
        ended
    }

    fn run_in_order(
        &self,
        py: Python<'_>,
        notice: Option<WaitNotice<PythonWaiter>>,
        alerts: &mut impl Iterator<Item = BudgetAlert>,
        alarm: Option<Duration>,
    ) -> PyResult<()> {
        if let Some(notice) = notice
            && let Err(error) = notice.waiter.wake(py, &notice.result)
        {
            if is_interrupt(py, &error) {
                self.scheduler()?.outbox.push_front(notice);
                return Err(error);
            }
            self.scheduler()?.cancel(notice.number);
        }
        for BudgetAlert { agent, part, spent, limit } in alerts {
            let part = f64::from(part) / 1000.0;
            self.alarm.call_method1(py, intern!(py, "alert"), (&*agent, part, spent, limit))?;
        }
        if let Some(alarm) = alarm {
            self.alarm.call1(py, (alarm.as_secs_f64(),))?;
        }
        Ok(())
    }
}

/// Converts an answer for Python: 0 if the slot was granted, None if the request waits, or the refusal as a tuple.
fn answered(py: Python<'_>, answer: &SlotAnswer) -> PyResult<Py<PyAny>> {
    match answer {
        SlotAnswer::Granted(_) => 0u64.into_py_any(py),
        SlotAnswer::Waits => Ok(py.None()),
        SlotAnswer::Refused(refusal) => refusal_tuple(py, refusal),
    }
}

fn policy_from(text: &str) -> PyResult<Policy> {
    parse_policy(text).map_err(|error| PyValueError::new_err(format!("policy: {error}")))
}

/// Returns true if flows named by this attribute have no weights, because `bands` nodes use the attribute and no
/// `share` or `drr` node does.
fn is_strict_only(root: &PolicyNode, by: Attribute) -> bool {
    let mut is_strict = false;
    let mut nodes = vec![root];
    while let Some(node) = nodes.pop() {
        if node.by() == by {
            match node {
                PolicyNode::Share(_) | PolicyNode::Drr(_) => return false,
                PolicyNode::Bands(_) => is_strict = true,
                PolicyNode::Load(_) => {}
            }
        }
        nodes.extend(node.insides().into_iter().filter_map(|inside| match inside {
            FlowInside::Node(node) => Some(&**node),
            FlowInside::Queue(_) => None,
        }));
    }
    is_strict
}

fn attribute(name: &str) -> PyResult<Attribute> {
    Attribute::from_name(name).ok_or_else(|| {
        let known = Attribute::ALL.map(Attribute::name).join(", ");
        PyValueError::new_err(format!("{name:?} is no attribute; there are {known}"))
    })
}

/// Returns the values of the given attributes. The value of an attribute is at the index that is the attribute's
/// number. All other entries are `None`.
fn texts_of(given: &Bound<'_, PyDict>) -> PyResult<[Option<PyBackedStr>; 7]> {
    let mut texts = [const { None }; 7];
    for (key, value) in given {
        let name = attribute_text("a name in attributes", &key)?;
        let value = attribute_text(&format!("attributes[{:?}]", &*name), &value)?;
        texts[attribute(&name)? as usize] = Some(value);
    }
    Ok(texts)
}

/// Reads a number of tokens from an integer, or from a value that Python accepts as an integer. Refuses booleans and
/// floats.
pub(crate) fn tokens_from(what: &str, given: &Bound<'_, PyAny>) -> PyResult<u64> {
    let wrong_kind = || {
        let error = |shown| {
            let wanted = "a whole number of tokens such as 100";
            PyTypeError::new_err(format!("{what} must be {wanted}, not {shown}"))
        };
        shown(given).map_or_else(|interrupt| interrupt, error)
    };
    if given.is_instance_of::<PyBool>() || given.is_instance_of::<PyFloat>() {
        return Err(wrong_kind());
    }
    given.extract::<u64>().map_err(|error| {
        if is_interrupt(given.py(), &error) {
            return error;
        }
        if error.is_instance_of::<PyTypeError>(given.py()) {
            return wrong_kind();
        }
        let error = |shown| {
            let wanted = "0 or more tokens, below 2^64";
            PyValueError::new_err(format!("{what} must be {wanted}, not {shown}"))
        };
        shown(given).map_or_else(|interrupt| interrupt, error)
    })
}

/// Converts a timeout in seconds to microseconds. A negative timeout counts as 0, and a century or more as no timeout.
fn timeout_from(seconds: Option<f64>) -> PyResult<Option<Micros>> {
    const FOR_EVER_SECONDS: f64 = 100.0 * 365.0 * 86_400.0;
    let Some(seconds) = seconds else { return Ok(None) };
    if seconds.is_nan() {
        return Err(PyValueError::new_err("timeout must be a number of seconds, not nan"));
    }
    if seconds >= FOR_EVER_SECONDS {
        return Ok(None);
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to a century")]
    let us = (seconds.max(0.0) * 1e6).round() as u64;
    Ok(Some(Micros(us)))
}

/// Converts a weight to thousandths. Fails if the weight has more than three decimals or is out of range.
fn task_weight(weight: f64) -> PyResult<TaskWeight> {
    let wrong = || {
        PyValueError::new_err(format!(
            "weight must be 0.001 to 1000000 with at most three decimals, not {weight}"
        ))
    };
    let thousandths = (weight * 1000.0).round();
    let in_range = (1.0..=1e9).contains(&thousandths);
    if !in_range || (thousandths / 1000.0 - weight).abs() > 1e-9 * weight {
        return Err(wrong());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    let thousandths = thousandths as u64;
    TaskWeight::from_thousandths(thousandths).map_err(|_| wrong())
}

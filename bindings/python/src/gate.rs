//! The desk as Python calls it.
//!
//! The lock around the desk is held for the time of one event, never while Python code runs, a future is resolved or
//! an object is dropped: all of those may call back into here.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fairgate_core::attribute::Attribute;
use fairgate_core::event::{Event, PoolConfig};
use fairgate_core::policy::Policy;
use fairgate_core::units::{TaskWeight, Tokens, Weight};
use fairgate_dialect::limits::{self, UnixMicros};
use fairgate_dialect::quota::Stated;
use fairgate_journal::{parse_policy, write_fairness, write_whereabouts};
use http::StatusCode;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyException, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList};

use crate::budget::{Period, Terms};
use crate::deadlock;
use crate::desk::{Alert, Answer, Ask, Decimal, Desk, FollowUp, Number, Rates};
use crate::journal::Journal;
use crate::owners::Owner;
use crate::report;
use crate::usage::Used;
use crate::wake::{Waiter, outcome, refusal_tuple};

/// What somebody asks for, as Python says it.
pub(crate) struct Question<'a, 'py> {
    pub(crate) agent: &'a str,
    pub(crate) weight: f64,
    pub(crate) cost: Option<&'a Bound<'py, PyAny>>,
    pub(crate) priority: i64,
    pub(crate) attributes: Option<&'a Bound<'py, PyDict>>,
    pub(crate) owner: Owner,
    /// [`EXPLAIN`], [`TIMED`] and [`KEEPS`].
    pub(crate) flags: u8,
}

/// A flag of `ask`: the grant should come with the numbers that decided it.
pub(crate) const EXPLAIN: u8 = 1;
/// It gives up by itself after a while.
pub(crate) const TIMED: u8 = 2;
/// The task or thread that asks is the one that will give the slot back.
pub(crate) const KEEPS: u8 = 4;

/// A desk that `deadlock` can look at, too. Whoever locks it holds the GIL, so that several can be looked at as of one
/// moment.
pub(crate) type SharedDesk = Arc<Mutex<Desk<Waiter>>>;

/// A pool with those who wait for it.
#[pyclass(frozen, weakref, module = "fairgate._core")]
pub(crate) struct Gate {
    desk: SharedDesk,
    /// Called with a number of seconds, after which `tick` is due.
    alarm: Py<PyAny>,
}

#[pymethods]
impl Gate {
    /// A pool of `capacity` slots under a policy (JSON), in which at most `max_waiting` requests wait. `alarm(seconds)` is
    /// called where `tick()` is to be called after so many seconds.
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
        let mut desk = Desk::new(config);
        if let Some(path) = journal {
            desk.journal = Some(py.detach(|| Journal::begin(&path, &desk.config))?);
        }
        let desk = Arc::new(Mutex::new(desk));
        deadlock::register(&desk);
        Ok(Self { desk, alarm })
    }

    /// Asks for a slot under a number that no other request has: 0 where it is granted, None where it waits, or why it
    /// is refused. Who waits then says with `wait` how it is woken. `owner` is the task or thread that waits.
    #[pyo3(signature = (id, agent, weight, cost, priority, attributes, owner, flags))]
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
    ) -> PyResult<Py<PyAny>> {
        let question =
            Question { agent, weight, cost, priority, attributes, owner: Owner(owner), flags };
        answered(py, &self.submit(py, id, &question)?)
    }

    /// Says how a request that waits is woken: through `future`, which belongs to `event_loop`, or is a queue where that
    /// is None. Where its wait has ended already: how.
    #[pyo3(signature = (id, future, event_loop))]
    fn wait(
        &self,
        py: Python<'_>,
        id: u64,
        future: Py<PyAny>,
        event_loop: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let mut desk = self.desk()?;
        let news = desk.early.remove(&id);
        if news.is_none() {
            desk.set_waiter(id, Waiter::here(future, event_loop));
        }
        self.finish(py, desk)?;
        news.map_or_else(|| Ok(py.None()), |news| outcome(py, &news))
    }

    /// Takes a request out that still waits; False where it does not.
    fn withdraw(&self, py: Python<'_>, id: u64) -> PyResult<bool> {
        self.change(py, |desk| desk.withdraw(id))
    }

    /// Ends a request, whether it waits or holds a slot.
    fn cancel(&self, py: Python<'_>, id: u64) -> PyResult<()> {
        self.change(py, |desk| desk.cancel(id))
    }

    /// Ends a request that holds a slot, with what it used where that is known.
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
        let used = Used { tokens, input_tokens, output_tokens, model };
        self.change(py, |desk| desk.release(id, None, &used))
    }

    /// Says which task or thread will give a slot back from now on; 0 where that may be anybody.
    fn set_owner(&self, id: u64, owner: u64) -> PyResult<()> {
        self.desk()?.set_owner(id, Owner(owner));
        Ok(())
    }

    /// States the provider's limits, per minute, and for how many seconds of them calls may be saved up.
    fn set_rates(
        &self,
        py: Python<'_>,
        requests_per_minute: Option<u64>,
        tokens_per_minute: Option<u64>,
        burst_seconds: u64,
    ) -> PyResult<()> {
        let stated = Stated { requests_per_minute, tokens_per_minute };
        self.change(py, |desk| desk.set_rates(Rates { stated, burst_seconds }))
    }

    /// Time has passed, as `alarm` was told that it should.
    fn tick(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, Desk::tick)
    }

    /// The provider has answered a request in flight. Where it refused it because of a limit, and the same may be sent again
    /// later: for how many seconds nothing is sent now.
    fn answered(
        &self,
        py: Python<'_>,
        id: u64,
        status: u16,
        headers: Vec<(String, Vec<u8>)>,
        body: &[u8],
    ) -> PyResult<Option<f64>> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = UnixMicros(i64::try_from(unix.as_micros()).unwrap_or(i64::MAX));
        let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
        let mut told = limits::told(pairs, now);
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        let pause = if status.is_client_error() || status.is_server_error() {
            let complaint = limits::refusal(status, body, &mut told, now);
            self.change(py, |desk| desk.met_limit(id, &told, &complaint))?
        } else {
            self.change(py, |desk| desk.answered(id, &told))?;
            None
        };
        Ok(pause.map(|pause| pause.as_secs_f64()))
    }

    /// Submits a request in flight again, before all others of its agent; its slot goes to the next, charged nothing. The
    /// same answers as to `ask`.
    fn again(&self, py: Python<'_>, id: u64) -> PyResult<Py<PyAny>> {
        let answer = self.change(py, |desk| desk.again(id))?;
        answered(py, &answer)
    }

    fn set_capacity(&self, py: Python<'_>, slots: u64) -> PyResult<()> {
        self.change(py, |desk| desk.set_capacity(slots))
    }

    fn set_policy(&self, py: Python<'_>, policy: &str) -> PyResult<()> {
        let policy = policy_from(policy)?;
        self.change(py, |desk| desk.set_policy(policy))
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
        self.operate(py, Event::Weight { by: attribute(by)?, flow: flow.into(), weight })
    }

    fn set_cap(&self, py: Python<'_>, by: &str, flow: &str, slots: Option<u64>) -> PyResult<()> {
        self.operate(py, Event::Cap { by: attribute(by)?, flow: flow.into(), slots })
    }

    /// Gives an agent a budget of tokens, or takes it away; with no agent, all for whom none was stated. `period` is
    /// empty, a calendar's, or the seconds of a rolling one; `alerts` are thousandths of the limit.
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
            (Some(name), _) => Period::named(name).ok_or_else(|| {
                PyValueError::new_err(format!("{name:?} is no period of a calendar"))
            })?,
            (None, Some(seconds)) => {
                let length = Duration::try_from_secs_f64(seconds)
                    .map_err(|error| PyValueError::new_err(format!("a window of time: {error}")))?;
                Period::Rolling(u64::try_from(length.as_micros()).unwrap_or(u64::MAX))
            }
            (None, None) => Period::Forever,
        };
        alerts.sort_unstable();
        let terms = tokens.map(|limit| Terms { limit, waits, period, alerts });
        self.change(py, |desk| match agent {
            Some(agent) => desk.set_budget(agent, terms),
            None => desk.set_default_budget(terms),
        })
    }

    /// Sends everybody away who waits or will ask.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, Desk::close)?;
        self.flush_journal(py)
    }

    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.desk()?.is_closed())
    }

    /// Waits until all events so far are in the journal's file.
    fn flush_journal(&self, py: Python<'_>) -> PyResult<()> {
        let disk = self.desk()?.journal.as_ref().map(Journal::disk);
        py.detach(|| disk.iter().for_each(|disk| disk.flush()));
        Ok(())
    }

    /// Ends the journal; the scheduler goes on without.
    fn end_journal(&self, py: Python<'_>) -> PyResult<()> {
        let journal = self.desk()?.journal.take();
        py.detach(|| drop(journal));
        Ok(())
    }

    /// Why the journal stopped early, if it did.
    fn journal_failure(&self) -> PyResult<Option<String>> {
        let disk = self.desk()?.journal.as_ref().map(Journal::disk);
        Ok(disk.and_then(|disk| disk.failure()))
    }

    /// Starts anew with nobody in it: for a child process.
    fn forget_requests(&self, py: Python<'_>) -> PyResult<()> {
        self.change(py, Desk::forget_requests)
    }

    /// Everything that is counted, as a dict.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let report = self.change(py, |desk| {
            desk.roll_budgets();
            report::Report::of(desk)
        })?;
        report.into_dict(py)
    }

    /// What was used: (agent, model, requests, tokens, input tokens, output tokens) by agent and model.
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let desk = self.desk()?;
        let rows = desk.ledger.rows(&desk.agents);
        drop(desk);
        let row = |(agent, model, sum): (String, String, crate::usage::Sum)| {
            (agent, model, sum.requests, sum.tokens, sum.input_tokens, sum.output_tokens)
        };
        PyList::new(py, rows.into_iter().map(row).collect::<Vec<_>>())
    }

    /// Where a request is, and what it waits for, as JSON; None where it neither waits nor holds a slot.
    fn explain(&self, py: Python<'_>, id: u64) -> PyResult<Option<String>> {
        let pool = self.desk()?.pool_now();
        Ok(py.detach(|| Some(write_whereabouts(&pool.whereabouts(Decimal::of(id).as_str())?))))
    }

    /// The decision that granted a slot which is held, with its reasons, as JSON, where they were asked for.
    fn why(&self, id: u64) -> PyResult<Option<String>> {
        Ok(self.desk()?.why(id).map(str::to_owned))
    }

    /// What every flow got beside what it was due, as JSON.
    fn fairness(&self) -> PyResult<String> {
        let fairness = self.desk()?.pool.fairness();
        Ok(write_fairness(&fairness))
    }

    /// The policy in force, as JSON.
    fn policy(&self) -> PyResult<String> {
        Ok(fairgate_journal::format_policy(self.desk()?.pool.policy()))
    }
}

impl Gate {
    fn desk(&self) -> PyResult<MutexGuard<'_, Desk<Waiter>>> {
        let broken = "an earlier call failed half-way: this scheduler cannot be used any more";
        self.desk.lock().map_err(|_| PyRuntimeError::new_err(broken))
    }

    fn operate(&self, py: Python<'_>, event: Event) -> PyResult<()> {
        self.change(py, |desk| desk.operate(event))
    }

    /// Asks for a slot under a number that no other request has.
    pub(crate) fn submit(
        &self,
        py: Python<'_>,
        number: Number,
        question: &Question<'_, '_>,
    ) -> PyResult<Answer> {
        let &Question { agent, weight, cost, priority, attributes, owner, flags } = question;
        let weight = task_weight(weight)?;
        let given = attributes.map(texts_of).transpose()?;
        let attributes = given.as_ref().map(|given| {
            let mut texts = given.each_ref().map(Option::as_deref);
            texts[Attribute::Agent as usize] = Some(agent);
            texts
        });
        let cost = cost.map(|cost| tokens_from("cost", cost)).transpose()?;
        let ask = Ask {
            agent,
            attributes,
            weight,
            // A weight of 1 stands for a thousand tokens: so many thousandths are so many tokens.
            cost: Tokens(cost.unwrap_or_else(|| u64::from(weight.thousandths()))),
            priority,
            owner,
            keeps: flags & KEEPS != 0,
            timed: flags & TIMED != 0,
            explain: flags & EXPLAIN != 0,
        };
        let mut desk = self.desk()?;
        let mut answer = desk.ask(number, &ask);
        if matches!(answer, Answer::Waits) {
            // No Python code runs in between, so this is still the state that the request met.
            drop(desk);
            let is_certain = deadlock::is_certain(&self.desk, owner);
            desk = self.desk()?;
            if is_certain {
                answer = Answer::Refused(desk.refuse_deadlock(number, owner));
            }
        }
        self.finish(py, desk)?;
        Ok(answer)
    }

    /// Changes the desk, then tells those for whom there is news.
    pub(crate) fn change<T>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut Desk<Waiter>) -> T,
    ) -> PyResult<T> {
        let mut desk = self.desk()?;
        let result = change(&mut desk);
        self.finish(py, desk)?;
        Ok(result)
    }

    /// Unlocks the desk and does what it leaves to do: tells those for whom there is news. Where somebody's loop is closed,
    /// what was theirs goes to the next.
    ///
    /// An interrupt ends this early; what is left in the outbox goes out with the next call.
    fn finish<'a>(
        &'a self,
        py: Python<'_>,
        mut desk: MutexGuard<'a, Desk<Waiter>>,
    ) -> PyResult<()> {
        while let Some(follow_up) = desk.next_follow_up() {
            drop(desk);
            self.run(py, follow_up)?;
            desk = self.desk()?;
        }
        Ok(())
    }

    fn run(&self, py: Python<'_>, follow_up: FollowUp<Waiter>) -> PyResult<()> {
        let FollowUp { notice, alarm, alerts, discarded } = follow_up;
        drop(discarded);
        if let Some(notice) = notice
            && let Err(error) = notice.waiter.wake(py, &notice.news)
        {
            if !error.is_instance_of::<PyException>(py) {
                self.desk()?.outbox.push_front(notice);
                return Err(error);
            }
            self.desk()?.cancel(notice.number);
        }
        for Alert { agent, part, spent, limit } in alerts {
            let part = f64::from(part) / 1000.0;
            self.alarm.call_method1(py, intern!(py, "alert"), (&*agent, part, spent, limit))?;
        }
        if let Some(alarm) = alarm {
            self.alarm.call1(py, (alarm.as_secs_f64(),))?;
        }
        Ok(())
    }
}

/// 0 where it was granted, None where it waits, or why it was refused.
fn answered(py: Python<'_>, answer: &Answer) -> PyResult<Py<PyAny>> {
    match answer {
        Answer::Granted(_) => 0u64.into_py_any(py),
        Answer::Waits => Ok(py.None()),
        Answer::Refused(refusal) => refusal_tuple(py, refusal),
    }
}

fn policy_from(text: &str) -> PyResult<Policy> {
    parse_policy(text).map_err(|error| PyValueError::new_err(format!("policy: {error}")))
}

fn attribute(name: &str) -> PyResult<Attribute> {
    Attribute::from_name(name).ok_or_else(|| {
        let known = Attribute::ALL.map(Attribute::name).join(", ");
        PyValueError::new_err(format!("{name:?} is no attribute; there are {known}"))
    })
}

/// Attributes by their numbers.
fn texts_of(given: &Bound<'_, PyDict>) -> PyResult<[Option<PyBackedStr>; 7]> {
    let mut texts = [const { None }; 7];
    for (key, value) in given {
        texts[attribute(key.extract()?)? as usize] = Some(value.extract()?);
    }
    Ok(texts)
}

/// A number of tokens: an integer, or what Python takes for one.
pub(crate) fn tokens_from(what: &str, given: &Bound<'_, PyAny>) -> PyResult<u64> {
    let wrong_kind = || {
        PyTypeError::new_err(format!(
            "{what} must be a whole number of tokens such as 100, not {}",
            given.repr().map_or_else(|_| String::new(), |text| text.to_string())
        ))
    };
    if given.is_instance_of::<PyBool>() || given.is_instance_of::<PyFloat>() {
        return Err(wrong_kind());
    }
    given.extract::<u64>().map_err(|error| {
        if error.is_instance_of::<PyTypeError>(given.py()) {
            return wrong_kind();
        }
        let shown = given.str().map_or_else(|_| String::new(), |text| text.to_string());
        PyValueError::new_err(format!("{what} must be 0 or more tokens, below 2^64, not {shown}"))
    })
}

/// A weight in exact thousandths.
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

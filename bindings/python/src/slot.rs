//! A slot, which is the right to use the shared resource once, from the grant until the slot is given back.
//!
//! If the pool has a free slot, only the slot object is created, and only one short coroutine of Python code runs.
//! Waiting and handling a provider's limit take long in any case, so the Python module `fairgate.slot` does both. That
//! module calls the methods here whose names begin with `_`.
//!
//! A slot is borrowed only while its own fields are read or written, and never while Python code runs, because that
//! code may use the same slot again, in this thread or another.

mod factory;
mod slot_functions;
mod slot_request;

use std::ffi::CString;
use std::mem;

use fairgate_core::RequestHandle;
use pyo3::exceptions::{PyRuntimeWarning, PyTypeError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

pub(crate) use self::factory::SlotFactory;
use self::slot_functions::SlotFunctions;
use crate::arguments::shown;
use crate::caller::{SlotCaller, task_here, task_or_thread_here};
use crate::gate::{Gate, KEEPS, tokens_from};
use crate::interrupt::{is_interrupt, raise_later};
use crate::owners::SlotOwner;
use crate::pending_error::run_without_pending_error;
use crate::request_number::RequestNumber;
use crate::usage::SlotUsage;

/// The phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    New,
    Waiting,
    Held,
    Over,
}

/// One request for the resource, made by :meth:`fairgate.Scheduler.slot`.
///
/// Use a slot once, as ``async with`` in a task or as ``with`` in a thread. When the block is left, in any way, the
/// slot is given to the next request. The value after ``as`` is this same object. Report the call's usage with
/// :meth:`settle`.
///
/// Calls inside the block through an adapter of the same scheduler use this slot instead of requesting another one, one
/// call at a time.
#[pyclass(module = "fairgate")]
pub(crate) struct Slot {
    /// A [`Gate`], or a Python object with the same methods; `None` after the slot has ended.
    #[pyo3(get, name = "_gate")]
    gate: Option<Py<PyAny>>,
    asks: SlotParams,
    #[pyo3(get, name = "_retry_seconds")]
    retry_seconds: f64,
    hooks: Option<Py<PyAny>>,
    state: SlotState,
    /// Number of the request; 0 before the slot was requested.
    #[pyo3(get, name = "_id")]
    number: RequestNumber,
    /// Handle of the request in the pool; `None` unless the slot was granted at once.
    handle: Option<RequestHandle>,
    /// Task or thread that will give the slot back; [`SlotOwner::NOBODY`] if anyone may give it back.
    owner: SlotOwner,
    /// Task that owns the slot. This reference keeps the task alive, so that no other task gets the same address.
    task: Option<Py<PyAny>>,
    used: SlotUsage,
    waited_us: u64,
    /// Time at which the call began, in seconds of `time.monotonic`. The time is stored when the provider first refuses
    /// the call. `None` before that.
    #[pyo3(get, set, name = "_asked_at")]
    asked_at: Option<f64>,
    /// True if leaving the block gives the slot back; false if the result of the call in the block, such as a
    /// stream, will do so.
    #[pyo3(get, set, name = "_kept")]
    kept: bool,
    /// True between entering and leaving the block. In this time, calls inside the block may use the slot.
    #[pyo3(get, name = "_covers")]
    covers: bool,
    /// True while a call inside the block uses the slot.
    #[pyo3(get, set, name = "_lent")]
    lent: bool,
    /// Number of times that calls inside the block have settled their usage. Code around a call reads this number
    /// before and after the call. If the number has risen, that code does not settle the usage in the call's result.
    #[pyo3(get, set, name = "_metered")]
    metered: u64,
    /// Slot of the block around this block; `None` if there is none. The reference stays after this block is
    /// left, because slots further out are found through it.
    #[pyo3(get, name = "_around")]
    around: Option<Py<PyAny>>,
}

/// Parameters of a request for a slot, as the program gave them.
struct SlotParams {
    agent: Py<PyString>,
    weight: f64,
    cost: Option<Py<PyAny>>,
    priority: i64,
    timeout: Option<f64>,
    attributes: Option<Py<PyDict>>,
    explain: bool,
}

impl Slot {
    fn new(
        gate: Option<Py<PyAny>>,
        asks: SlotParams,
        model: Option<String>,
        retry_seconds: f64,
        hooks: Option<Py<PyAny>>,
    ) -> Self {
        Self {
            gate,
            asks,
            retry_seconds,
            hooks,
            state: SlotState::New,
            number: 0,
            handle: None,
            owner: SlotOwner::NOBODY,
            task: None,
            used: SlotUsage { model, ..SlotUsage::default() },
            waited_us: 0,
            asked_at: None,
            kept: true,
            covers: false,
            lent: false,
            metered: 0,
            around: None,
        }
    }

    fn gate(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.gate.as_ref().map(|gate| gate.clone_ref(py))
    }

    fn hooks(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.hooks.as_ref().map(|hooks| hooks.clone_ref(py))
    }
}

#[pymethods]
impl Slot {
    /// Requests the slot. If the slot is granted at once, enters the block in this task and returns True. Returns False
    /// if the request waits. `__aenter__` itself is a coroutine function in Python, because a native awaitable would
    /// cost more.
    fn _enter(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let is_granted = slot_request::ask(slf, task_here(slf.py())?, KEEPS)?;
        if is_granted {
            Self::_cover(slf)?;
        }
        Ok(is_granted)
    }

    fn __aexit__(
        slf: &Bound<'_, Self>,
        _kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<Py<Left>> {
        static LEFT: PyOnceLock<Py<Left>> = PyOnceLock::new();
        slot_request::leave(slf, error)?;
        let py = slf.py();
        Ok(LEFT.get_or_try_init(py, || Py::new(py, Left))?.clone_ref(py))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        if !slot_request::ask(slf, task_or_thread_here(py)?, KEEPS)? {
            SlotFunctions::of(py)?.wait_in_thread.call1(py, (slf,))?;
        }
        Self::_cover(slf)?;
        Ok(slf.clone())
    }

    fn __exit__(
        slf: &Bound<'_, Self>,
        _kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        slot_request::leave(slf, error)
    }

    /// Requests the slot from a task. Returns True if the slot is granted, and False if the request waits. Anyone may
    /// give the slot back.
    fn _ask_in_task(slf: &Bound<'_, Self>) -> PyResult<bool> {
        slot_request::ask(slf, task_here(slf.py())?, 0)
    }

    /// Requests the slot like `_ask_in_task`, but from a thread.
    fn _ask_in_thread(slf: &Bound<'_, Self>) -> PyResult<bool> {
        slot_request::ask(slf, task_or_thread_here(slf.py())?, 0)
    }

    /// Reports the tokens that the call really used, so that the call is charged these tokens and not its estimate.
    ///
    /// ``tokens`` is the total, and may be left out if input and output are given. If ``settle`` is called several
    /// times, the numbers add up. A call that is never settled is charged its estimate. Settle 0 for a call that failed
    /// before it used any tokens.
    ///
    /// Raises TypeError or ValueError, and changes nothing, if a value is not a whole number of tokens. A call that has
    /// given its slot back has already been charged. Settling such a call warns with RuntimeWarning, and changes
    /// nothing.
    #[pyo3(signature = (tokens=None, *, input_tokens=None, output_tokens=None, model=None))]
    fn settle(
        slf: &Bound<'_, Self>,
        tokens: Option<&Bound<'_, PyAny>>,
        input_tokens: Option<&Bound<'_, PyAny>>,
        output_tokens: Option<&Bound<'_, PyAny>>,
        model: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let number = |what, given: Option<&Bound<'_, PyAny>>| {
            given.map(|given| tokens_from(what, given)).transpose()
        };
        let input = number("input_tokens", input_tokens)?.unwrap_or(0);
        let output = number("output_tokens", output_tokens)?.unwrap_or(0);
        let total = number("tokens", tokens)?.unwrap_or(input.saturating_add(output));
        let model = model.map(model_name).transpose()?;
        if slf.borrow().state == SlotState::Over {
            return warn_of_late_settlement(slf);
        }
        let used = &mut slf.borrow_mut().used;
        used.tokens = Some(used.tokens.unwrap_or(0).saturating_add(total));
        used.input_tokens = used.input_tokens.saturating_add(input);
        used.output_tokens = used.output_tokens.saturating_add(output);
        if model.is_some() {
            used.model = model;
        }
        Ok(())
    }

    /// Gives the slot back, so that the next request gets it. Does nothing if the slot was already given back.
    fn release(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.borrow();
        if this.state != SlotState::Held {
            return Ok(());
        }
        let Some(gate) = this.gate(py) else { return Ok(()) };
        let gate = gate.bind(py);
        let (number, handle, used) = (this.number, this.handle, this.used.clone());
        let hooks = this.hooks(py);
        drop(this);
        // The gate takes a slot back only once, however often it is called, so an interrupt anywhere in this function
        // loses nothing.
        if let Ok(gate) = gate.cast_exact::<Gate>() {
            gate.get().change(py, |scheduler| scheduler.release(number, handle, &used))?;
        } else {
            let SlotUsage { tokens, input_tokens, output_tokens, model } = used;
            let told = (number, tokens, input_tokens, output_tokens, model);
            gate.call_method1(intern!(py, "release"), told)?;
        }
        Self::_end(slf);
        match hooks {
            Some(hooks) => hooks.call_method1(py, intern!(py, "end"), (slf,)).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Waits for a slot again after the provider refused a call because of a limit, so that the same call can be made
    /// once more.
    ///
    ///     async with scheduler.slot("analyst") as slot:
    ///         while True:
    ///             try:
    ///                 return await call()
    ///             except RateLimitError as error:
    ///                 await slot.retry(error)
    ///
    /// While the call waits, its slot is given to other requests, and the refused call is charged nothing. No slot is
    /// granted before the provider's limit allows it. Then this call gets a slot before all other calls of its agent.
    /// Raises ``error`` again if it is not about a limit, or if the call's ``timeout`` or the scheduler's
    /// ``retry_seconds`` is over.
    fn retry<'py>(
        slf: &Bound<'py, Self>,
        error: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        SlotFunctions::of(slf.py())?.retry.bind(slf.py()).call1((slf, error))
    }

    /// Waits for a slot again like :meth:`retry`, but blocks the thread.
    fn retry_blocking(slf: &Bound<'_, Self>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        SlotFunctions::of(slf.py())?.retry_blocking.call1(slf.py(), (slf, error))?;
        Ok(())
    }

    /// Reports the headers of the provider's answer about its limits (``x-ratelimit-…``), for calls without an adapter.
    fn heard(slf: &Bound<'_, Self>, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        SlotFunctions::of(slf.py())?.heard.call1(slf.py(), (slf, headers))?;
        Ok(())
    }

    /// Declares that another task or thread than the one that requested the slot will give it back.
    ///
    /// A task that requests another slot while it holds the scheduler's last one is refused, because it would wait for
    /// itself. A slot that was detached does not count as held by the task.
    fn detach(slf: &Bound<'_, Self>) -> PyResult<()> {
        if slf.borrow().held() { slot_request::set_owner(slf, SlotCaller::NOBODY) } else { Ok(()) }
    }

    /// Id of the request in the journal, and for :meth:`fairgate.Scheduler.explain`; empty before the slot was
    /// requested.
    #[getter]
    fn id(&self) -> String {
        if self.number == 0 { String::new() } else { self.number.to_string() }
    }

    /// Name of the agent that the slot is for.
    #[getter]
    fn agent(&self, py: Python<'_>) -> Py<PyString> {
        self.asks.agent.clone_ref(py)
    }

    /// Name of the model that is called; None if the program gave none.
    #[getter]
    fn model(&self) -> Option<&str> {
        self.used.model.as_deref()
    }

    /// Weight of the call in its agent's depth, 1.0 unless the program set another.
    #[getter]
    fn weight(&self) -> f64 {
        self.asks.weight
    }

    /// Sum of the tokens settled so far; None if nothing was settled.
    #[getter]
    fn tokens(&self) -> Option<u64> {
        self.used.tokens
    }

    /// True from the grant until the slot is given back.
    #[getter]
    fn held(&self) -> bool {
        self.state == SlotState::Held
    }

    /// Time from the request to the grant, in seconds; 0 before the grant.
    #[getter]
    #[expect(clippy::cast_precision_loss, reason = "a wait of 2^53 microseconds is 285 years")]
    fn waited(&self) -> f64 {
        self.waited_us as f64 / 1e6
    }

    /// The decision that granted the slot, with the numbers that decided it and the request that would have been
    /// granted instead.
    ///
    /// None unless the slot was requested with ``explain=True`` and is still held.
    #[getter]
    fn why(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        SlotFunctions::of(slf.py())?.why.call1(slf.py(), (slf,))
    }

    // -- for the module `fairgate.slot`, and for adapters ---------------------------------------------------------

    /// Makes calls inside the block use this slot, in this task or thread and in the tasks that are started from it.
    fn _cover(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let rare = SlotFunctions::of(py)?;
        let mut around = rare.get_cover.bind(py).call0()?;
        // Leaving a block does not change the context, so slots whose block was left are skipped here.
        while let Ok(slot) = around.cast_exact::<Self>() {
            let slot = slot.borrow();
            if slot.covers {
                break;
            }
            let further_out = slot.around.as_ref().map(|around| around.bind(py).clone());
            drop(slot);
            around = further_out.unwrap_or_else(|| py.None().into_bound(py));
        }
        let around = (!around.is_none()).then(|| around.unbind());
        let mut this = slf.borrow_mut();
        this.covers = true;
        let before = mem::replace(&mut this.around, around);
        drop(this);
        drop(before);
        rare.set_cover.call1(py, (slf,))?;
        Ok(())
    }

    /// Marks the slot as ended, so that it neither waits nor is held.
    fn _end(slf: &Bound<'_, Self>) {
        let mut this = slf.borrow_mut();
        this.state = SlotState::Over;
        let gone = (this.task.take(), this.gate.take(), this.hooks.take());
        drop(this);
        drop(gone);
    }

    /// Marks the slot as waiting again.
    fn _wait_again(&mut self) {
        self.state = SlotState::Waiting;
    }

    /// Marks the slot as granted after a wait of `waited_us` microseconds.
    fn _granted(slf: &Bound<'_, Self>, waited_us: u64) -> PyResult<()> {
        let mut this = slf.borrow_mut();
        this.waited_us = this.waited_us.saturating_add(waited_us);
        this.state = SlotState::Held;
        drop(this);
        slot_request::call_hook(slf, "grant")
    }

    /// Makes the calling task or thread the owner that will give the slot back, because it reads the stream for which
    /// the slot is held.
    fn _read_here(slf: &Bound<'_, Self>) -> PyResult<()> {
        if !slf.borrow().held() {
            return Ok(());
        }
        let caller = task_or_thread_here(slf.py())?;
        if slf.borrow().owner == caller.owner {
            return Ok(());
        }
        slot_request::set_owner(slf, caller)
    }

    /// Makes the slot stay held when the block is left, because the result of the call in the block, such as
    /// a stream, will give the slot back.
    fn _keep_beyond_block(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.borrow_mut().kept = false;
        Self::detach(slf)
    }

    /// True if the slot was requested, and the request is neither granted nor refused yet.
    #[getter]
    fn _waits(&self) -> bool {
        self.state == SlotState::Waiting
    }

    #[getter]
    fn _timeout(&self) -> Option<f64> {
        self.asks.timeout
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.borrow();
        let (number, state) = (this.number, this.state);
        let agent = this.asks.agent.clone_ref(slf.py());
        drop(this);
        let agent = agent.bind(slf.py()).repr()?;
        let id = if number == 0 { "-".to_owned() } else { number.to_string() };
        let state = match state {
            SlotState::New => "new",
            SlotState::Waiting => "waiting",
            SlotState::Held => "held",
            SlotState::Over => "over",
        };
        let agent = agent.to_string_lossy();
        Ok(format!("<fairgate.Slot {id} of {agent}, {state}>"))
    }

    /// Gives the slot back because no code refers to it any more. Python's collector calls this for a slot in a
    /// reference cycle. An interrupt is raised later, because a destructor cannot raise one.
    fn _forget(slf: &Bound<'_, Self>) {
        let py = slf.py();
        let Err(error) = SlotFunctions::of(py).and_then(|it| it.forgotten.call1(py, (slf,))) else {
            return;
        };
        if is_interrupt(py, &error)
            && let Err(error) = Self::give_back_quietly(slf)
        {
            raise_later(py, error);
        }
        raise_later(py, error);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.gate)?;
        visit.call(&self.asks.cost)?;
        visit.call(&self.asks.attributes)?;
        visit.call(&self.hooks)?;
        visit.call(&self.task)?;
        visit.call(&self.around)
    }

    fn __clear__(&mut self) {
        // The fields that are needed to give the slot back are kept, because the slot is given back later.
        self.task = None;
        self.around = None;
    }
}

impl Drop for Slot {
    /// Moves a slot that still waits or is held into a copy, and passes the copy to the Python function `forgotten`,
    /// because no other code can give the slot back any more. For a slot in a reference cycle, Python's collector calls
    /// `__del__` first.
    fn drop(&mut self) {
        if matches!(self.state, SlotState::New | SlotState::Over) {
            return;
        }
        let state = mem::replace(&mut self.state, SlotState::Over);
        Python::try_attach(|py| {
            run_without_pending_error(py, || match Bound::new(py, self.moved_out(py, state)) {
                Ok(copy) => {
                    Self::_forget(&copy);
                    Self::_end(&copy);
                }
                Err(error) => raise_later(py, error),
            });
        });
    }
}

impl Slot {
    /// Gives back a slot that waits or is held, without a warning. The gate takes it back only once, so this may follow
    /// an attempt that was interrupted.
    fn give_back_quietly(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.borrow();
        let (state, gate, number) = (this.state, this.gate(slf.py()), this.number);
        drop(this);
        match (state, gate) {
            (SlotState::Held, _) => Self::release(slf),
            (SlotState::Waiting, Some(gate)) => {
                gate.call_method1(slf.py(), intern!(slf.py(), "cancel"), (number,))?;
                Self::_end(slf);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn moved_out(&mut self, py: Python<'_>, state: SlotState) -> Self {
        let asks = SlotParams {
            agent: self.asks.agent.clone_ref(py),
            cost: self.asks.cost.take(),
            attributes: self.asks.attributes.take(),
            ..self.asks
        };
        let mut copy =
            Self::new(self.gate.take(), asks, None, self.retry_seconds, self.hooks.take());
        copy.state = state;
        (copy.number, copy.handle) = (self.number, self.handle);
        (copy.used, copy.waited_us) = (mem::take(&mut self.used), self.waited_us);
        copy
    }
}

/// Warns that a settlement came after the end of the slot, when the call had already been charged. This is a warning
/// and not an exception, because an exception could make the program lose the call's result.
fn warn_of_late_settlement(slf: &Bound<'_, Slot>) -> PyResult<()> {
    let py = slf.py();
    let message = format!(
        "{} is over, and what it used is charged: these tokens are ignored. Call settle() in the slot's block, or before release()",
        slf.repr()?
    );
    let message = CString::new(message.replace('\0', " "))?;
    PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &message, 1)
}

fn model_name(given: &Bound<'_, PyAny>) -> PyResult<String> {
    given.extract().map_err(|_| match shown(given) {
        Ok(shown) => {
            PyTypeError::new_err(format!("model must be the name of a model, not {shown}"))
        }
        Err(interrupt) => interrupt,
    })
}

/// The awaitable that `__aexit__` returns. It is done at once, with the result None.
#[pyclass(frozen, module = "fairgate._core")]
pub(crate) struct Left;

#[pymethods]
impl Left {
    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self) -> Option<bool> {
        None
    }
}

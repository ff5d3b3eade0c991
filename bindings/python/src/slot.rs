//! A slot: the right to use the shared resource once, from the moment it is granted until it is given back.
//!
//! Where a slot is free, nothing is made for it but the slot, and no Python code runs but one short coroutine. To wait, and
//! to meet a provider's limit, takes long anyway: that is in Python, in the module `fairgate.slot`, which calls the
//! methods here whose names begin with `_`.
//!
//! A slot is borrowed only while its own fields are read or written, never while Python code runs: that may use the same
//! slot again, in this thread or another.

mod asking;
mod factory;
mod rare;

use std::mem;

use fairgate_core::Handle;
use pyo3::exceptions::PyTypeError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

pub(crate) use self::factory::SlotFactory;
use self::rare::Rare;
use crate::desk::Number;
use crate::gate::{Gate, KEEPS, tokens_from};
use crate::owners::Owner;
use crate::usage::Used;
use crate::who::{Asker, task_here, task_or_thread_here};

/// Where a request is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    New,
    Waiting,
    Held,
    Over,
}

/// One request for the resource, made by :meth:`fairgate.Scheduler.slot`.
///
/// Use it once, as ``async with`` in a task or as ``with`` in a thread. Leaving the block gives the slot to the next,
/// however it is left. It is the same object inside the block: tell it what the call used with :meth:`settle`.
///
/// Calls inside the block through an adapter of the same scheduler use this slot instead of asking for one more, one of
/// them at a time.
#[pyclass(module = "fairgate")]
pub(crate) struct Slot {
    /// A [`Gate`], or an object in Python that has its methods; nothing once it is over.
    #[pyo3(get, name = "_gate")]
    gate: Option<Py<PyAny>>,
    asks: Asks,
    #[pyo3(get, name = "_retry_seconds")]
    retry_seconds: f64,
    hooks: Option<Py<PyAny>>,
    state: State,
    /// 0 before it asked.
    #[pyo3(get, name = "_id")]
    number: Number,
    /// Under which it was granted, where that was at once.
    handle: Option<Handle>,
    /// Who will give it back; nobody where that may be anybody.
    owner: Owner,
    /// The task that this is. While it is referred to, no other task can have its address.
    task: Option<Py<PyAny>>,
    used: Used,
    waited_us: u64,
    /// Since when it is on its way, by the clock of `time.monotonic`: noted when its provider first refuses it.
    #[pyo3(get, set, name = "_asked_at")]
    asked_at: Option<f64>,
    /// Whether leaving the block gives it back, or somebody else will.
    #[pyo3(get, set, name = "_kept")]
    kept: bool,
    /// Whether its block is entered and not yet left: calls inside of it may use the slot.
    #[pyo3(get, name = "_covers")]
    covers: bool,
    /// Whether a call inside the block uses it just now.
    #[pyo3(get, set, name = "_lent")]
    lent: bool,
    /// How often such calls have settled what they used: then nobody need read it from the result.
    #[pyo3(get, set, name = "_metered")]
    metered: u64,
    /// What is held around the block. It stays when the block is left: what is further out is found through it.
    #[pyo3(get, name = "_around")]
    around: Option<Py<PyAny>>,
}

/// What a request asks for.
struct Asks {
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
        asks: Asks,
        model: Option<String>,
        retry_seconds: f64,
        hooks: Option<Py<PyAny>>,
    ) -> Self {
        Self {
            gate,
            asks,
            retry_seconds,
            hooks,
            state: State::New,
            number: 0,
            handle: None,
            owner: Owner::NOBODY,
            task: None,
            used: Used { model, ..Used::default() },
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
    /// Asks, and enters the block in this task where it is granted; False where it waits. `__aenter__` itself is a coroutine
    /// function in Python: no native awaitable is as cheap.
    fn _enter(slf: &Bound<'_, Self>) -> PyResult<bool> {
        let is_granted = asking::ask(slf, task_here(slf.py())?, KEEPS)?;
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
        asking::leave(slf, error)?;
        let py = slf.py();
        Ok(LEFT.get_or_try_init(py, || Py::new(py, Left))?.clone_ref(py))
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, Self>> {
        let py = slf.py();
        if !asking::ask(slf, task_or_thread_here(py)?, KEEPS)? {
            Rare::of(py)?.wait_in_thread.call1(py, (slf,))?;
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
        asking::leave(slf, error)
    }

    /// Asks: True where it is granted, False where it waits. Anybody may give it back.
    fn _ask_in_task(slf: &Bound<'_, Self>) -> PyResult<bool> {
        asking::ask(slf, task_here(slf.py())?, 0)
    }

    /// As `_ask_in_task`, in a thread.
    fn _ask_in_thread(slf: &Bound<'_, Self>) -> PyResult<bool> {
        asking::ask(slf, task_or_thread_here(slf.py())?, 0)
    }

    /// Says what the call really used, so that it is charged that and not its estimate.
    ///
    /// ``tokens`` is the total, and may be left out where input and output are given. Called several times, they add
    /// up. A call that is never settled is charged its estimate; one that failed before it used anything settles 0.
    ///
    /// What is no whole number of tokens is a TypeError or a ValueError here, and changes nothing.
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
        let used = &mut slf.borrow_mut().used;
        used.tokens = Some(used.tokens.unwrap_or(0).saturating_add(total));
        used.input_tokens = used.input_tokens.saturating_add(input);
        used.output_tokens = used.output_tokens.saturating_add(output);
        if model.is_some() {
            used.model = model;
        }
        Ok(())
    }

    /// Gives the slot back: it goes to the next. A second time it does nothing.
    fn release(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let this = slf.borrow();
        if this.state != State::Held {
            return Ok(());
        }
        let Some(gate) = this.gate(py) else { return Ok(()) };
        let gate = gate.bind(py);
        let (number, handle, used) = (this.number, this.handle, this.used.clone());
        let hooks = this.hooks(py);
        drop(this);
        // The gate takes it back once, however often it is told: so an interrupt anywhere in here loses nothing.
        if let Ok(gate) = gate.cast_exact::<Gate>() {
            gate.get().change(py, |desk| desk.release(number, handle, &used))?;
        } else {
            let Used { tokens, input_tokens, output_tokens, model } = used;
            let told = (number, tokens, input_tokens, output_tokens, model);
            gate.call_method1(intern!(py, "release"), told)?;
        }
        Self::_end(slf);
        match hooks {
            Some(hooks) => hooks.call_method1(py, intern!(py, "end"), (slf,)).map(|_| ()),
            None => Ok(()),
        }
    }

    /// After a call met its provider's limit: waits for its turn again, so that the same call can be made once more.
    ///
    ///     async with scheduler.slot("analyst") as slot:
    ///         while True:
    ///             try:
    ///                 return await call()
    ///             except RateLimitError as error:
    ///                 await slot.retry(error)
    ///
    /// The slot goes to others meanwhile, charged nothing; nobody is granted one before the provider's limit allows; then
    /// this call goes before all others of its agent. Raises ``error`` again where it says nothing of a limit, or where
    /// the call's time is over: its ``timeout``, or the scheduler's ``retry_seconds``.
    fn retry<'py>(
        slf: &Bound<'py, Self>,
        error: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Rare::of(slf.py())?.retry.bind(slf.py()).call1((slf, error))
    }

    /// As :meth:`retry`, in a thread.
    fn retry_blocking(slf: &Bound<'_, Self>, error: &Bound<'_, PyAny>) -> PyResult<()> {
        Rare::of(slf.py())?.retry_blocking.call1(slf.py(), (slf, error))?;
        Ok(())
    }

    /// Says what the provider's answer said of its limits (``x-ratelimit-…``), for calls without an adapter.
    fn heard(slf: &Bound<'_, Self>, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        Rare::of(slf.py())?.heard.call1(slf.py(), (slf, headers))?;
        Ok(())
    }

    /// Says that somebody else than the task or thread that asked will give the slot back.
    ///
    /// A task that asks for another slot while it holds the last one is refused, since it would wait for itself. A
    /// slot that was handed to somebody else does not count.
    fn detach(slf: &Bound<'_, Self>) -> PyResult<()> {
        if slf.borrow().held() { asking::give_to(slf, Asker::NOBODY) } else { Ok(()) }
    }

    /// Its id in the journal, and for :meth:`fairgate.Scheduler.explain`; empty before it asked.
    #[getter]
    fn id(&self) -> String {
        if self.number == 0 { String::new() } else { self.number.to_string() }
    }

    /// The agent that it is for.
    #[getter]
    fn agent(&self, py: Python<'_>) -> Py<PyString> {
        self.asks.agent.clone_ref(py)
    }

    /// The model that is called, as far as it was said.
    #[getter]
    fn model(&self) -> Option<&str> {
        self.used.model.as_deref()
    }

    /// How heavy the call is.
    #[getter]
    fn weight(&self) -> f64 {
        self.asks.weight
    }

    /// What was settled so far; None where nothing was.
    #[getter]
    fn tokens(&self) -> Option<u64> {
        self.used.tokens
    }

    /// Whether it is granted and not yet given back.
    #[getter]
    fn held(&self) -> bool {
        self.state == State::Held
    }

    /// How long it waited until it was granted, in seconds.
    #[getter]
    #[expect(clippy::cast_precision_loss, reason = "a wait of 2^53 microseconds is 285 years")]
    fn waited(&self) -> f64 {
        self.waited_us as f64 / 1e6
    }

    /// The decision that granted it, with the numbers that decided and who would have been next.
    ///
    /// Only where it was asked for with ``explain=True``, and while the slot is held.
    #[getter]
    fn why(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        Rare::of(slf.py())?.why.call1(slf.py(), (slf,))
    }

    // -- for the module `fairgate.slot`, and for adapters ---------------------------------------------------------

    /// Calls further in use this slot from now on, in this task or thread and in what it starts.
    fn _cover(slf: &Bound<'_, Self>) -> PyResult<()> {
        let py = slf.py();
        let rare = Rare::of(py)?;
        let mut around = rare.get_cover.bind(py).call0()?;
        // Leaving a block changes no context: what was left is passed by here.
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

    /// It neither waits nor holds any more.
    fn _end(slf: &Bound<'_, Self>) {
        let mut this = slf.borrow_mut();
        this.state = State::Over;
        let gone = (this.task.take(), this.gate.take(), this.hooks.take());
        drop(this);
        drop(gone);
    }

    /// It waits again.
    fn _wait_again(&mut self) {
        self.state = State::Waiting;
    }

    /// It is granted, after so many microseconds.
    fn _granted(slf: &Bound<'_, Self>, waited_us: u64) -> PyResult<()> {
        let mut this = slf.borrow_mut();
        this.waited_us = this.waited_us.saturating_add(waited_us);
        this.state = State::Held;
        drop(this);
        asking::tell(slf, "grant")
    }

    /// Whoever calls this is the one who will give it back: it reads the stream that the slot belongs to.
    fn _read_here(slf: &Bound<'_, Self>) -> PyResult<()> {
        if !slf.borrow().held() {
            return Ok(());
        }
        let asker = task_or_thread_here(slf.py())?;
        if slf.borrow().owner == asker.owner {
            return Ok(());
        }
        asking::give_to(slf, asker)
    }

    /// Leaving the block does not give it back: it goes with what the block returned.
    fn _keep_beyond_block(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.borrow_mut().kept = false;
        Self::detach(slf)
    }

    /// Whether it has asked, and is neither granted nor refused.
    #[getter]
    fn _waits(&self) -> bool {
        self.state == State::Waiting
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
            State::New => "new",
            State::Waiting => "waiting",
            State::Held => "held",
            State::Over => "over",
        };
        Ok(format!("<fairgate.Slot {id} of {agent}, {state}>"))
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
        // What it needs to be given back stays: that comes later.
        self.task = None;
        self.around = None;
    }
}

impl Drop for Slot {
    /// Nobody can give it back any more, or wait for it: a copy of it does, which Python code can still see. What is part of a
    /// circle is found by Python's collector first, and by `__del__`.
    fn drop(&mut self) {
        if matches!(self.state, State::New | State::Over) {
            return;
        }
        let state = mem::replace(&mut self.state, State::Over);
        Python::try_attach(|py| {
            let mut forgotten = || {
                let copy = Py::new(py, self.moved_out(py, state))?;
                Rare::of(py)?.forgotten.call1(py, (copy,))
            };
            if let Err(error) = forgotten() {
                error.write_unraisable(py, None);
            }
        });
    }
}

impl Slot {
    fn moved_out(&mut self, py: Python<'_>, state: State) -> Self {
        let asks = Asks {
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

fn model_name(given: &Bound<'_, PyAny>) -> PyResult<String> {
    given.extract().map_err(|_| {
        let shown = given.repr().map_or_else(|_| String::new(), |text| text.to_string());
        PyTypeError::new_err(format!("model must be the name of a model, not {shown}"))
    })
}

/// What `async with` awaits on its way out: it is done at once, and its result is None.
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

//! Requests a slot from its gate and handles the answer.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::intern;
use pyo3::prelude::*;

use super::slot_functions::SlotFunctions;
use super::{Slot, SlotState};
use crate::caller::SlotCaller;
use crate::gate::{EXPLAIN, Gate, KEEPS, PySlotRequest};
use crate::interrupt::error_to_raise;
use crate::local_scheduler::SlotAnswer;
use crate::owners::SlotOwner;
use crate::request_number::RequestNumber;
use crate::waiter::refusal_tuple;

/// The next request number. All schedulers take their numbers from here, so that no number is used twice in a process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// A gate's immediate answer to a request.
enum GateAnswer {
    Answer(SlotAnswer),
    /// The refusal of a gate that is written in Python.
    Refused(Py<PyAny>),
}

/// Requests the slot from its gate. Returns true if the slot is granted, false if the request waits, and an error if
/// the request is refused.
pub(super) fn ask(slf: &Bound<'_, Slot>, caller: SlotCaller, flags: u8) -> PyResult<bool> {
    let py = slf.py();
    // The functions are looked up early, because it may be too late to import them when the slot is dropped.
    SlotFunctions::of(py)?;
    let mut this = slf.borrow_mut();
    if this.state != SlotState::New {
        drop(this);
        return Err(refusal(slf, ("used_before",))?);
    }
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    this.state = SlotState::Waiting;
    this.number = number;
    if flags & KEEPS != 0 {
        (this.owner, this.task) = (caller.owner, caller.task);
    }
    let has_hooks = this.hooks.is_some();
    drop(this);
    if has_hooks {
        call_hook(slf, "start")?;
    }
    match submit_to_gate(slf, number, caller.owner, flags) {
        Ok(GateAnswer::Answer(SlotAnswer::Granted(handle))) => {
            let mut this = slf.borrow_mut();
            this.state = SlotState::Held;
            this.handle = Some(handle);
            drop(this);
            if has_hooks && let Err(error) = call_hook(slf, "grant") {
                return Err(cancel(slf, number, error));
            }
            Ok(true)
        }
        Ok(GateAnswer::Answer(SlotAnswer::Waits)) => Ok(false),
        Ok(GateAnswer::Answer(SlotAnswer::Refused(why))) => {
            Err(refusal(slf, refusal_tuple(py, &why)?)?)
        }
        Ok(GateAnswer::Refused(why)) => Err(refusal(slf, why)?),
        Err(error) => Err(cancel(slf, number, error)),
    }
}

/// Ends a request because of an error. The request may be waiting or just granted. Returns the error to raise.
fn cancel(slf: &Bound<'_, Slot>, number: RequestNumber, error: PyErr) -> PyErr {
    let py = slf.py();
    let gate = slf.borrow().gate(py);
    let cancelled = match gate {
        Some(gate) => gate.call_method1(py, intern!(py, "cancel"), (number,)).map(|_| ()),
        None => Ok(()),
    };
    match cancelled {
        Ok(()) => {
            Slot::_end(slf);
            error
        }
        // The slot is cancelled again when it is dropped.
        Err(interrupt) => error_to_raise(py, error, interrupt),
    }
}

/// Submits a slot's request to the slot's gate, which is native or written in Python.
fn submit_to_gate(
    slf: &Bound<'_, Slot>,
    number: RequestNumber,
    owner: SlotOwner,
    flags: u8,
) -> PyResult<GateAnswer> {
    let py = slf.py();
    let this = slf.borrow();
    let asks = &this.asks;
    let agent = asks.agent.clone_ref(py);
    let cost = asks.cost.as_ref().map(|cost| cost.clone_ref(py).into_bound(py));
    let attributes = asks.attributes.as_ref().map(|its| its.clone_ref(py).into_bound(py));
    let (weight, priority, timeout) = (asks.weight, asks.priority, asks.timeout);
    let flags = flags | if asks.explain { EXPLAIN } else { 0 };
    let gate = this.gate(py).unwrap_or_else(|| py.None()).into_bound(py);
    drop(this);
    if let Ok(gate) = gate.cast_exact::<Gate>() {
        let question = PySlotRequest {
            agent: agent.to_str(py)?,
            weight,
            cost: cost.as_ref(),
            priority,
            attributes: attributes.as_ref(),
            owner,
            flags,
            timeout,
        };
        return Ok(GateAnswer::Answer(gate.get().submit(py, number, &question)?));
    }
    let told = (number, agent, weight, cost, priority, attributes, owner.0, flags, timeout);
    let answer = gate.call_method1(intern!(py, "ask"), told)?;
    match answer.is_none() {
        true => Ok(GateAnswer::Answer(SlotAnswer::Waits)),
        false => Ok(GateAnswer::Refused(answer.unbind())),
    }
}

/// Builds the Python error for a refusal. The Python code that builds it also ends the slot.
fn refusal<'py>(slf: &Bound<'py, Slot>, why: impl IntoPyObject<'py>) -> PyResult<PyErr> {
    let refused = SlotFunctions::of(slf.py())?.refused.bind(slf.py());
    Ok(PyErr::from_value(refused.call1((slf, why))?))
}

/// Gives the slot back when its block is left, unless the object that the block returned keeps the slot.
pub(super) fn leave(slf: &Bound<'_, Slot>, error: &Bound<'_, PyAny>) -> PyResult<()> {
    slf.borrow_mut().covers = false;
    let noted = note_end(slf, error);
    let kept = slf.borrow().kept;
    let released = if kept { Slot::release(slf) } else { Ok(()) };
    match (noted, released) {
        (Err(noted), Err(released)) => Err(error_to_raise(slf.py(), noted, released)),
        (noted, released) => noted.and(released),
    }
}

/// Passes the end of a block to the Python code that knows the provider's limits.
fn note_end(slf: &Bound<'_, Slot>, error: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = slf.py();
    if !error.is_none() {
        SlotFunctions::of(py)?.ends_with.call1(py, (slf, error))?;
    } else if slf.borrow().asked_at.is_some() {
        SlotFunctions::of(py)?.taken_on.call1(py, (slf,))?;
    }
    Ok(())
}

/// Sets the task or thread that will give the slot back, in the slot and in its gate.
pub(super) fn set_owner(slf: &Bound<'_, Slot>, caller: SlotCaller) -> PyResult<()> {
    let py = slf.py();
    let SlotCaller { owner, task } = caller;
    let mut this = slf.borrow_mut();
    this.owner = owner;
    let before = mem::replace(&mut this.task, task);
    let (gate, number) = (this.gate(py), this.number);
    drop(this);
    drop(before);
    if let Some(gate) = gate {
        gate.call_method1(py, intern!(py, "set_owner"), (number, owner.0))?;
    }
    Ok(())
}

/// Calls the method `what` of the program's hooks, if the program has set hooks.
pub(super) fn call_hook(slf: &Bound<'_, Slot>, what: &str) -> PyResult<()> {
    let py = slf.py();
    let hooks = slf.borrow().hooks(py);
    if let Some(hooks) = hooks {
        hooks.call_method1(py, what, (slf,))?;
    }
    Ok(())
}

//! How a slot asks its gate, and what becomes of the answer.

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::intern;
use pyo3::prelude::*;

use super::rare::Rare;
use super::{Slot, State};
use crate::desk::{Answer, Number};
use crate::gate::{EXPLAIN, Gate, KEEPS, Question, TIMED};
use crate::owners::Owner;
use crate::wake::refusal_tuple;
use crate::who::Asker;

/// One sequence for all schedulers: a number is never used twice in a process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// What a gate says at once.
enum Said {
    Answer(Answer),
    /// Why a gate that is written in Python refuses it.
    Refused(Py<PyAny>),
}

/// Asks for the slot: whether it is granted, or waits. An error where it is refused.
pub(super) fn ask(slf: &Bound<'_, Slot>, asker: Asker, flags: u8) -> PyResult<bool> {
    let py = slf.py();
    // When the slot is dropped it may be too late to look for them.
    Rare::of(py)?;
    let mut this = slf.borrow_mut();
    if this.state != State::New {
        drop(this);
        return Err(refusal(slf, ("used_before",))?);
    }
    let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
    this.state = State::Waiting;
    this.number = number;
    if flags & KEEPS != 0 {
        (this.owner, this.task) = (asker.owner, asker.task);
    }
    let has_hooks = this.hooks.is_some();
    drop(this);
    if has_hooks {
        tell(slf, "start")?;
    }
    match put(slf, number, asker.owner, flags) {
        Ok(Said::Answer(Answer::Granted(handle))) => {
            let mut this = slf.borrow_mut();
            this.state = State::Held;
            this.handle = Some(handle);
            drop(this);
            if has_hooks {
                tell(slf, "grant")?;
            }
            Ok(true)
        }
        Ok(Said::Answer(Answer::Waits)) => Ok(false),
        Ok(Said::Answer(Answer::Refused(why))) => Err(refusal(slf, refusal_tuple(py, &why)?)?),
        Ok(Said::Refused(why)) => Err(refusal(slf, why)?),
        Err(error) => {
            // It may wait, or have been granted a moment ago: either way it is over now.
            let gate = slf.borrow().gate(py);
            Slot::_end(slf);
            if let Some(gate) = gate {
                gate.call_method1(py, intern!(py, "cancel"), (number,))?;
            }
            Err(error)
        }
    }
}

/// Hands the request to its gate.
fn put(slf: &Bound<'_, Slot>, number: Number, owner: Owner, flags: u8) -> PyResult<Said> {
    let py = slf.py();
    let this = slf.borrow();
    let asks = &this.asks;
    let agent = asks.agent.clone_ref(py);
    let cost = asks.cost.as_ref().map(|cost| cost.clone_ref(py).into_bound(py));
    let attributes = asks.attributes.as_ref().map(|its| its.clone_ref(py).into_bound(py));
    let (weight, priority) = (asks.weight, asks.priority);
    let explain = if asks.explain { EXPLAIN } else { 0 };
    let timed = if asks.timeout.is_some() { TIMED } else { 0 };
    let flags = flags | explain | timed;
    let gate = this.gate(py).unwrap_or_else(|| py.None()).into_bound(py);
    drop(this);
    if let Ok(gate) = gate.cast_exact::<Gate>() {
        let question = Question {
            agent: agent.to_str(py)?,
            weight,
            cost: cost.as_ref(),
            priority,
            attributes: attributes.as_ref(),
            owner,
            flags,
        };
        return Ok(Said::Answer(gate.get().submit(py, number, &question)?));
    }
    let told = (number, agent, weight, cost, priority, attributes, owner.0, flags);
    let answer = gate.call_method1(intern!(py, "ask"), told)?;
    match answer.is_none() {
        true => Ok(Said::Answer(Answer::Waits)),
        false => Ok(Said::Refused(answer.unbind())),
    }
}

/// The error for a refusal, after which the slot is over.
fn refusal<'py>(slf: &Bound<'py, Slot>, why: impl IntoPyObject<'py>) -> PyResult<PyErr> {
    let refused = Rare::of(slf.py())?.refused.bind(slf.py());
    Ok(PyErr::from_value(refused.call1((slf, why))?))
}

/// The block ends: the slot is given back, unless it goes with what the block returned.
pub(super) fn leave(slf: &Bound<'_, Slot>, error: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = slf.py();
    slf.borrow_mut().covers = false;
    if !error.is_none() {
        Rare::of(py)?.ends_with.call1(py, (slf, error))?;
    } else if slf.borrow().asked_at.is_some() {
        Rare::of(py)?.taken_on.call1(py, (slf,))?;
    }
    if slf.borrow().kept { Slot::release(slf) } else { Ok(()) }
}

/// Says who will give the slot back from now on.
pub(super) fn give_to(slf: &Bound<'_, Slot>, asker: Asker) -> PyResult<()> {
    let py = slf.py();
    let Asker { owner, task } = asker;
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

/// Tells the program, where it wants to know.
pub(super) fn tell(slf: &Bound<'_, Slot>, what: &str) -> PyResult<()> {
    let py = slf.py();
    let hooks = slf.borrow().hooks(py);
    if let Some(hooks) = hooks {
        hooks.call_method1(py, what, (slf,))?;
    }
    Ok(())
}

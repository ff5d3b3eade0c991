"""What a slot does while it waits, and after its provider has refused a call. The slot itself is in the native part.

Its functions take the slot that they are about first. The native part calls those that it cannot do without Python code.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import warnings
from asyncio import get_running_loop
from collections.abc import Iterable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from . import clock
from ._core import Gate, Slot
from .errors import FairgateError, Refusal, SlotTimeout, WouldDeadlock, refused
from .limits import TAKEN_ON, ProviderAnswer, answer_of, headers_of

# -- in a task ----------------------------------------------------------------------------------------------------


async def _aenter(slot: Slot) -> Slot:
    if not slot._enter():
        await _wait_in_task(slot)
        slot._cover()
    return slot


# In Python, because no native awaitable is as cheap as a coroutine that returns at once.
Slot.__aenter__ = _aenter  # type: ignore[method-assign, assignment]


async def acquire(slot: Slot) -> None:
    """Asks, and waits until it is granted or refused. Anybody may give it back."""
    if not slot._ask_in_task():
        await _wait_in_task(slot)


async def _wait_in_task(slot: Slot) -> None:
    try:
        outcome = await _outcome_in_task(slot, slot._timeout)
    except BaseException:
        # It may wait, or have been granted a moment ago: either way it is over now.
        _fail(slot)
        raise
    _end_wait(slot, outcome)


async def _outcome_in_task(slot: Slot, timeout: float | None) -> int | Refusal:
    loop = get_running_loop()
    future: asyncio.Future[int | Refusal] = loop.create_future()
    outcome = slot._gate.wait(slot._id, future, loop)
    if outcome is not None:
        return outcome
    timer = None
    limit_s = _wait_limit(slot, timeout)
    if limit_s is not None:
        timer = loop.call_later(limit_s, _time_out, slot, future)
    try:
        return await future
    finally:
        if timer is not None:
            timer.cancel()


def _time_out(slot: Slot, future: asyncio.Future[int | Refusal]) -> None:
    # Where it has just been granted, that stands.
    if slot._gate.withdraw(slot._id) and not future.done():
        future.set_result(("timeout",))


# -- in a thread --------------------------------------------------------------------------------------------------


def acquire_blocking(slot: Slot) -> None:
    """As :func:`acquire`, in a thread."""
    if not slot._ask_in_thread():
        wait_in_thread(slot)


def wait_in_thread(slot: Slot) -> None:
    """Waits until it is granted or refused."""
    try:
        outcome = _outcome_in_thread(slot, slot._timeout)
    except BaseException:
        _fail(slot)
        raise
    _end_wait(slot, outcome)


def _outcome_in_thread(slot: Slot, timeout: float | None) -> int | Refusal:
    if asyncio._get_running_loop() is not None:
        raise WouldDeadlock(
            f"a request of agent {slot.agent!r} must wait, and to wait here would stop the event loop that others "
            "need to give a slot back: in a coroutine use `async with`, and schedule functions that are `async def`"
        )
    queue: SimpleQueue[int | Refusal] = SimpleQueue()
    outcome = slot._gate.wait(slot._id, queue, None)
    if outcome is not None:
        return outcome
    try:
        return _get_interruptibly(queue, _wait_limit(slot, timeout))
    except Empty:
        # Where it has just been granted, that stands, and its outcome is on its way.
        return ("timeout",) if slot._gate.withdraw(slot._id) else queue.get()


#: Seconds after which a main thread that waits looks whether it was interrupted.
_INTERRUPT_CHECK_S = 0.5


def _get_interruptibly(queue: SimpleQueue[int | Refusal], seconds: float | None) -> int | Refusal:
    """Returns the outcome, or raises Empty after ``seconds``.

    A signal that arrives just before a thread begins to wait does not wake it: CPython notes it and runs its handler
    when the wait ends. Only the main thread runs handlers, so it alone wakes up from time to time.
    """
    if threading.current_thread() is not threading.main_thread():
        return queue.get(timeout=seconds)
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        left = _INTERRUPT_CHECK_S if end is None else min(_INTERRUPT_CHECK_S, max(end - time.monotonic(), 0.0))
        try:
            return queue.get(timeout=left)
        except Empty:
            if end is not None and time.monotonic() >= end:
                raise


# -- deadlines ----------------------------------------------------------------------------------------------------

#: How many seconds after its deadline a request gives up that its gateway has not answered. Usually it has.
_GATEWAY_GRACE_S = 0.25
#: For how many seconds threads and event loops can wait at most, by far: a longer timeout is for ever.
_SECONDS_MAX = 1e9


def _wait_limit(slot: Slot, timeout: float | None) -> float | None:
    """Returns after how many seconds the waiting code gives up by itself; None if the gate ends the wait.

    The native gate ends the wait at its deadline. A gateway does that, too, but may be out of reach.
    """
    if timeout is None or timeout > _SECONDS_MAX:
        return None
    if isinstance(slot._gate, Gate):
        return None if clock.is_running() else max(timeout, 0.0)
    return max(timeout, 0.0) + _GATEWAY_GRACE_S


# -- how a wait ends ----------------------------------------------------------------------------------------------


def _end_wait(slot: Slot, outcome: Any) -> None:
    """Its wait has ended: it is granted after so many microseconds, or refused."""
    if outcome.__class__ is not int:
        raise refusal(slot, outcome)
    try:
        slot._granted(outcome)
    except BaseException:
        # A hook was interrupted.
        if slot.held:
            _fail(slot)
        raise


def refusal(slot: Slot, outcome: Any) -> FairgateError:
    """The error for what a gate answered, after which the slot is over."""
    if outcome[0] == "used_before":
        return FairgateError(f"{slot!r} was used before: ask for a new one with scheduler.slot()")
    slot._end()
    if outcome == ("timeout",):
        return SlotTimeout(slot.agent, slot._timeout or 0.0)
    return refused(slot.agent, outcome)


def _fail(slot: Slot) -> None:
    # In this order, so that what is interrupted here is cancelled again when the slot is dropped.
    slot._gate.cancel(slot._id)
    slot._end()


def forgotten(slot: Slot) -> None:
    """Nobody refers to this slot any more, or to the one that it is a copy of."""
    if slot._waits:
        _fail(slot)
    elif slot.held:
        try:
            warnings.warn(f"{slot!r} was never given back; it is now", ResourceWarning, stacklevel=2, source=slot)
        finally:
            slot.release()


# For what is part of a circle: Python's collector calls it. The native part does where the last reference goes. A native
# method, which raises later what a signal's handler raises in here, and which a destructor cannot raise.
Slot.__del__ = Slot._forget  # type: ignore[attr-defined]


# -- a provider's limits ------------------------------------------------------------------------------------------


async def retry(slot: Slot, error: BaseException) -> None:
    """See :meth:`fairgate.Slot.retry`."""
    answer = answer_of(error)
    if answer is None or not await again(slot, answer):
        raise error


def retry_blocking(slot: Slot, error: BaseException) -> None:
    """As :func:`retry`, in a thread."""
    answer = answer_of(error)
    if answer is None or not again_blocking(slot, answer):
        raise error


def heard(slot: Slot, headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
    """See :meth:`fairgate.Slot.heard`."""
    answered(slot, ProviderAnswer(200, headers_of(headers)))


def answered(slot: Slot, answer: ProviderAnswer) -> float | None:
    """Tells the scheduler of a provider's answer: for how many seconds nothing is sent, where it met a limit."""
    if not slot.held:
        return None
    return slot._gate.answered(slot._id, answer.status, answer.headers, answer.body)


def taken_on(slot: Slot) -> None:
    """The provider took the call on, and said no more."""
    answered(slot, TAKEN_ON)


def ends_with(slot: Slot, error: BaseException) -> None:
    """The block ends with an error: one that says that the provider refused the call is heard, and charged nothing."""
    answer = answer_of(error) if slot.held else None
    if answer is not None and answered(slot, answer) is not None and slot.tokens is None:
        slot.settle(0)


async def again(slot: Slot, answer: ProviderAnswer) -> bool:
    """Submits the call again after an answer that refused it; False where that is in vain."""
    left = _seconds_left(slot, answer)
    if left is None:
        return False
    slot._wait_again()
    try:
        outcome = slot._gate.again(slot._id, left)
        if outcome is None:
            outcome = await _outcome_in_task(slot, left)
    except BaseException:
        _fail(slot)
        raise
    return _hear_again(slot, outcome)


def again_blocking(slot: Slot, answer: ProviderAnswer) -> bool:
    """As :func:`again`, in a thread."""
    left = _seconds_left(slot, answer)
    if left is None:
        return False
    slot._wait_again()
    try:
        outcome = slot._gate.again(slot._id, left)
        if outcome is None:
            outcome = _outcome_in_thread(slot, left)
    except BaseException:
        _fail(slot)
        raise
    return _hear_again(slot, outcome)


def _seconds_left(slot: Slot, answer: ProviderAnswer) -> float | None:
    """How long the call may wait for another turn; None where it would be in vain."""
    if not slot.held:
        return None
    pause = answered(slot, answer)
    now = time.monotonic()
    asked_at = slot._asked_at
    if asked_at is None:
        slot._asked_at = asked_at = now - slot.waited
    most = slot._retry_seconds if slot._timeout is None else min(slot._timeout, slot._retry_seconds)
    left = asked_at + most - now
    return None if pause is None or pause > left else left


def _hear_again(slot: Slot, outcome: Any) -> bool:
    if outcome.__class__ is not int and outcome[0] == "timeout":
        slot._end()
        return False
    _end_wait(slot, outcome)
    return True


# -- why ----------------------------------------------------------------------------------------------------------


def why(slot: Slot) -> dict[str, Any] | None:
    """See :attr:`fairgate.Slot.why`."""
    text = slot._gate.why(slot._id) if slot.held else None
    if text is None:
        return None
    decision: dict[str, Any] = json.loads(text)
    return decision

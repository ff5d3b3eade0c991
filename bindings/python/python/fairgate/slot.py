"""A slot: the right to use the shared resource once, from the moment it is granted until it is given back."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import warnings
from asyncio import current_task, get_running_loop
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .errors import FairgateError, Refusal, SlotTimeout, WouldDeadlock, refused

if TYPE_CHECKING:
    from ._core import Gate

# One sequence for all schedulers: a number is never used twice in a process.
_next_id = itertools.count(1).__next__

_NEW, _WAITING, _HELD, _OVER = range(4)


class Slot:
    """One request for the resource, made by :meth:`fairgate.Scheduler.slot`.

    Use it once, as ``async with`` in a task or as ``with`` in a thread. Leaving the block gives the slot to the next,
    however it is left. It is the same object inside the block: tell it what the call used with :meth:`settle`.
    """

    __slots__ = (
        "__weakref__",
        "_attributes",
        "_cost",
        "_explain",
        "_gate",
        "_id",
        "_input_tokens",
        "_model",
        "_output_tokens",
        "_owner",
        "_priority",
        "_state",
        "_timeout",
        "_tokens",
        "_waited_us",
        "_weight",
        "agent",
    )

    def __init__(
        self,
        gate: Gate,
        agent: str,
        weight: float,
        cost: int | None,
        priority: int,
        timeout: float | None,
        attributes: dict[str, str] | None,
        explain: bool,
        model: str | None,
    ) -> None:
        self._state = _NEW
        self._gate = gate
        #: The agent that it is for.
        self.agent = agent
        self._weight = weight
        self._cost = cost
        self._priority = priority
        self._timeout = timeout
        self._attributes = attributes
        self._explain = explain
        self._model = model
        self._id = 0
        self._owner: object = None
        self._tokens: int | None = None
        self._input_tokens = 0
        self._output_tokens = 0
        self._waited_us = 0

    # -- in a task ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Slot:
        if self._state != _NEW:
            raise self._used_before()
        loop = get_running_loop()
        future: asyncio.Future[int | Refusal] = loop.create_future()
        task = current_task(loop)
        # While the task is referred to, no other task can have its address.
        self._owner = task
        gate = self._gate
        ident = self._id = _next_id()
        self._state = _WAITING
        timer = None
        try:
            outcome = gate.ask(
                ident,
                self.agent,
                self._weight,
                self._cost,
                self._priority,
                self._attributes,
                0 if task is None else id(task),
                self._explain,
                future,
                loop,
            )
            if outcome is None:
                if self._timeout is not None:
                    timer = loop.call_later(self._timeout, self._time_out, future)
                outcome = await future
        except BaseException:
            # It may wait, or have been granted a moment ago: either way it is over now.
            self._state = _OVER
            self._owner = None
            gate.cancel(ident)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if outcome.__class__ is not int:
            raise self._refused(outcome)
        self._waited_us = outcome
        self._state = _HELD
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _time_out(self, future: asyncio.Future[int | Refusal]) -> None:
        # Where it has just been granted, that stands.
        if self._gate.withdraw(self._id) and not future.done():
            future.set_result(("timeout",))

    # -- in a thread -------------------------------------------------------------------------------------------

    def __enter__(self) -> Slot:
        if self._state != _NEW:
            raise self._used_before()
        loop = asyncio._get_running_loop()
        self._owner = owner = (loop and current_task(loop)) or threading.current_thread()
        queue: SimpleQueue[int | Refusal] = SimpleQueue()
        gate = self._gate
        ident = self._id = _next_id()
        self._state = _WAITING
        try:
            outcome = gate.ask(
                ident,
                self.agent,
                self._weight,
                self._cost,
                self._priority,
                self._attributes,
                id(owner),
                self._explain,
                queue,
                None,
            )
            if outcome is None:
                if loop is not None:
                    raise WouldDeadlock(
                        f"a request of agent {self.agent!r} must wait, and `with` would stop the event loop that "
                        "others need to give a slot back: use `async with` in a coroutine"
                    )
                outcome = self._wait(queue)
        except BaseException:
            self._state = _OVER
            self._owner = None
            gate.cancel(ident)
            raise
        if outcome.__class__ is not int:
            raise self._refused(outcome)
        self._waited_us = outcome
        self._state = _HELD
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _wait(self, queue: SimpleQueue[int | Refusal]) -> int | Refusal:
        timeout = self._timeout
        try:
            return queue.get(timeout=None if timeout is None else max(timeout, 0))
        except Empty:
            # Where it has just been granted, that stands, and the news is on its way.
            return ("timeout",) if self._gate.withdraw(self._id) else queue.get()

    # -- while it is held --------------------------------------------------------------------------------------

    def settle(
        self,
        tokens: int | None = None,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        model: str | None = None,
    ) -> None:
        """Says what the call really used, so that it is charged that and not its estimate.

        ``tokens`` is the total, and may be left out where input and output are given. Called several times, they add
        up. A call that is never settled is charged its estimate; one that failed before it used anything settles 0.
        """
        if tokens is None:
            tokens = input_tokens + output_tokens
        if tokens < 0 or input_tokens < 0 or output_tokens < 0:
            raise ValueError("tokens must be 0 or more")
        self._tokens = (self._tokens or 0) + tokens
        self._input_tokens += input_tokens
        self._output_tokens += output_tokens
        if model is not None:
            self._model = model

    def release(self) -> None:
        """Gives the slot back: it goes to the next. A second time it does nothing."""
        if self._state != _HELD:
            return
        self._state = _OVER
        self._owner = None
        if self._tokens is None and self._model is None:
            self._gate.release(self._id)
        else:
            self._gate.release(
                self._id, self._tokens, self._input_tokens, self._output_tokens, self._model
            )

    def detach(self) -> None:
        """Says that somebody else than the task or thread that asked will give the slot back.

        A task that asks for another slot while it holds the last one is refused, since it would wait for itself. A
        slot that was handed to somebody else does not count.
        """
        if self._state == _HELD:
            self._owner = None
            self._gate.disown(self._id)

    @property
    def id(self) -> str:
        """Its id in the journal, and for :meth:`fairgate.Scheduler.explain`; empty before it asked."""
        return str(self._id) if self._id else ""

    @property
    def held(self) -> bool:
        """Whether it is granted and not yet given back."""
        return self._state == _HELD

    @property
    def waited(self) -> float:
        """How long it waited until it was granted, in seconds."""
        return self._waited_us / 1e6

    @property
    def why(self) -> dict[str, Any] | None:
        """The decision that granted it, with the numbers that decided and who would have been next.

        Only where it was asked for with ``explain=True``, and while the slot is held.
        """
        text = self._gate.why(self._id)
        if text is None:
            return None
        decision: dict[str, Any] = json.loads(text)
        return decision

    # -- ends --------------------------------------------------------------------------------------------------

    def __del__(self) -> None:
        state = getattr(self, "_state", _OVER)
        if state == _HELD:
            warnings.warn(
                f"{self!r} was never given back; it is now", ResourceWarning, stacklevel=2, source=self
            )
            self.release()
        elif state == _WAITING:
            self._gate.cancel(self._id)

    def __repr__(self) -> str:
        state = ("new", "waiting", "held", "over")[self._state]
        return f"<fairgate.Slot {self.id or '-'} of {self.agent!r}, {state}>"

    def _refused(self, outcome: Any) -> FairgateError:
        self._state = _OVER
        self._owner = None
        if outcome[0] == "timeout":
            return SlotTimeout(self.agent, self._timeout or 0.0)
        return refused(self.agent, outcome)

    def _used_before(self) -> FairgateError:
        return FairgateError(f"{self!r} was used before: ask for a new one with scheduler.slot()")

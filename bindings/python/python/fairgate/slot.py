"""A slot: the right to use the shared resource once, from the moment it is granted until it is given back."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
import warnings
from asyncio import current_task, get_running_loop
from collections.abc import Iterable, Mapping
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._core import tokens as _tokens
from .context import Covers, covers
from .errors import FairgateError, Refusal, SlotTimeout, WouldDeadlock, refused
from .limits import TAKEN_ON, ProviderAnswer, answer_of, headers_of

if TYPE_CHECKING:
    from ._core import Gate
    from .hooks import Hooks

# One sequence for all schedulers: a number is never used twice in a process.
_next_id = itertools.count(1).__next__

_NEW, _WAITING, _HELD, _OVER = range(4)
_MOST_TOKENS = 2**64 - 1
# What the native part is told of a request.
_EXPLAIN, _TIMED, _KEEPS = 1, 2, 4


class Slot:
    """One request for the resource, made by :meth:`fairgate.Scheduler.slot`.

    Use it once, as ``async with`` in a task or as ``with`` in a thread. Leaving the block gives the slot to the next,
    however it is left. It is the same object inside the block: tell it what the call used with :meth:`settle`.

    Calls inside the block through an adapter of the same scheduler use this slot instead of asking for one more, one of
    them at a time.
    """

    # What most calls leave as it is stands here, so that making a slot is cheap.
    _state = _NEW
    _id = 0
    _owner: object = None
    _tokens: int | None = None
    _input_tokens = 0
    _output_tokens = 0
    _waited_us = 0
    # Since when it is on its way, by the clock of `time.monotonic`: noted when it is first refused.
    _asked_at: float | None = None
    # Whether leaving the block gives it back, or somebody else will.
    _kept = True
    # Whether a call inside the block uses it just now.
    _lent = False
    # How often such calls have settled what they used: then nobody need read it from the result.
    _metered = 0
    _around: Covers = None

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
        retry_seconds: float,
        hooks: Hooks | None,
    ) -> None:
        self._gate = gate
        #: The agent that it is for.
        self.agent = agent
        self._weight = weight
        self._cost = cost
        self._priority = priority
        self._timeout = timeout
        self._attributes = attributes
        self._flags = _EXPLAIN * explain | _TIMED * (timeout is not None)
        self._model = model
        self._retry_seconds = retry_seconds
        self._hooks = hooks

    # -- in a task ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Slot:
        # While the task is referred to, no other task can have its address.
        self._owner = task = _current_task()
        await self._ask_in_task(task, self._flags | _KEEPS)
        self._around = around = covers.get()
        covers.set((self, around))
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        covers.set(self._around)
        if exc is not None:
            self._ends_with(exc)
        elif self._asked_at is not None:
            # It had met a limit, and was taken on in the end.
            self._answered(TAKEN_ON)
        if self._kept:
            self.release()

    async def _acquire(self) -> None:
        """Asks, and waits until it is granted or refused. Anybody may give it back."""
        await self._ask_in_task(_current_task(), self._flags)

    async def _ask_in_task(self, owner: object, flags: int) -> None:
        if self._state != _NEW:
            raise self._used_before()
        gate = self._gate
        ident = self._id = _next_id()
        self._state = _WAITING
        if self._hooks is not None:
            self._hooks.start(self)
        try:
            outcome = gate.ask(
                ident,
                self.agent,
                self._weight,
                self._cost,
                self._priority,
                self._attributes,
                id(owner) if owner is not None else 0,
                flags,
            )
            if outcome is None:
                outcome = await self._wait_in_task(gate, ident, self._timeout)
        except BaseException:
            # It may wait, or have been granted a moment ago: either way it is over now.
            self._fail()
            raise
        if outcome.__class__ is not int:
            raise self._refused(outcome)
        self._waited_us = outcome
        self._state = _HELD
        if self._hooks is not None:
            self._hooks.grant(self)

    async def _wait_in_task(self, gate: Gate, ident: int, timeout: float | None) -> int | Refusal:
        loop = get_running_loop()
        future: asyncio.Future[int | Refusal] = loop.create_future()
        outcome = gate.wait(ident, future, loop)
        if outcome is not None:
            return outcome
        timer = None
        if timeout is not None:
            timer = loop.call_later(timeout, self._time_out, future)
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()

    def _time_out(self, future: asyncio.Future[int | Refusal]) -> None:
        # Where it has just been granted, that stands.
        if self._gate.withdraw(self._id) and not future.done():
            future.set_result(("timeout",))

    # -- in a thread -------------------------------------------------------------------------------------------

    def __enter__(self) -> Slot:
        self._owner = owner = _current_owner()
        self._ask_in_thread(owner, self._flags | _KEEPS)
        self._around = around = covers.get()
        covers.set((self, around))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        covers.set(self._around)
        if exc is not None:
            self._ends_with(exc)
        elif self._asked_at is not None:
            # It had met a limit, and was taken on in the end.
            self._answered(TAKEN_ON)
        if self._kept:
            self.release()

    def _acquire_blocking(self) -> None:
        """As :meth:`_acquire`, in a thread."""
        self._ask_in_thread(_current_owner(), self._flags)

    def _ask_in_thread(self, owner: object, flags: int) -> None:
        if self._state != _NEW:
            raise self._used_before()
        gate = self._gate
        ident = self._id = _next_id()
        self._state = _WAITING
        if self._hooks is not None:
            self._hooks.start(self)
        try:
            outcome = gate.ask(
                ident,
                self.agent,
                self._weight,
                self._cost,
                self._priority,
                self._attributes,
                id(owner) if owner is not None else 0,
                flags,
            )
            if outcome is None:
                outcome = self._wait_in_thread(gate, ident, self._timeout)
        except BaseException:
            self._fail()
            raise
        if outcome.__class__ is not int:
            raise self._refused(outcome)
        self._waited_us = outcome
        self._state = _HELD
        if self._hooks is not None:
            self._hooks.grant(self)

    def _wait_in_thread(self, gate: Gate, ident: int, timeout: float | None) -> int | Refusal:
        if asyncio._get_running_loop() is not None:
            raise WouldDeadlock(
                f"a request of agent {self.agent!r} must wait, and to wait here would stop the event loop that others "
                "need to give a slot back: in a coroutine use `async with`, and schedule functions that are `async def`"
            )
        queue: SimpleQueue[int | Refusal] = SimpleQueue()
        outcome = gate.wait(ident, queue, None)
        if outcome is not None:
            return outcome
        try:
            return queue.get(timeout=None if timeout is None else max(timeout, 0))
        except Empty:
            # Where it has just been granted, that stands, and the news is on its way.
            return ("timeout",) if gate.withdraw(ident) else queue.get()

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

        What is no whole number of tokens is a TypeError or a ValueError here, and changes nothing.
        """
        given = _tokens("input_tokens", input_tokens)
        made = _tokens("output_tokens", output_tokens)
        total = min(given + made, _MOST_TOKENS) if tokens is None else _tokens("tokens", tokens)
        if model is not None and not isinstance(model, str):
            raise TypeError(f"model must be the name of a model, not {model!r}")
        self._tokens = min((self._tokens or 0) + total, _MOST_TOKENS)
        self._input_tokens = min(self._input_tokens + given, _MOST_TOKENS)
        self._output_tokens = min(self._output_tokens + made, _MOST_TOKENS)
        if model is not None:
            self._model = model

    def release(self) -> None:
        """Gives the slot back: it goes to the next. A second time it does nothing."""
        if self._state != _HELD:
            return
        # The gate takes it back once, however often it is told: so an interrupt anywhere in here loses nothing.
        if self._tokens is None and self._model is None:
            self._gate.release(self._id)
        else:
            self._gate.release(
                self._id, self._tokens, self._input_tokens, self._output_tokens, self._model
            )
        self._state = _OVER
        self._owner = None
        if self._hooks is not None:
            self._hooks.end(self)

    # -- a provider's limits -----------------------------------------------------------------------------------

    async def retry(self, error: BaseException) -> None:
        """After a call met its provider's limit: waits for its turn again, so that the same call can be made once more.

            async with scheduler.slot("analyst") as slot:
                while True:
                    try:
                        return await call()
                    except RateLimitError as error:
                        await slot.retry(error)

        The slot goes to others meanwhile, charged nothing; nobody is granted one before the provider's limit allows; then
        this call goes before all others of its agent. Raises ``error`` again where it says nothing of a limit, or where
        the call's time is over: its ``timeout``, or the scheduler's ``retry_seconds``.
        """
        answer = answer_of(error)
        if answer is None or not await self._again(answer):
            raise error

    def retry_blocking(self, error: BaseException) -> None:
        """As :meth:`retry`, in a thread."""
        answer = answer_of(error)
        if answer is None or not self._again_blocking(answer):
            raise error

    def heard(self, headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
        """Says what the provider's answer said of its limits (``x-ratelimit-…``), for calls without an adapter."""
        self._answered(ProviderAnswer(200, headers_of(headers)))

    def _answered(self, answer: ProviderAnswer) -> float | None:
        """Tells the scheduler of a provider's answer: for how many seconds nothing is sent, where it met a limit."""
        return self._gate.answered(self._id, answer.status, answer.headers, answer.body)

    async def _again(self, answer: ProviderAnswer) -> bool:
        """Submits the call again after an answer that refused it; False where that is in vain."""
        left = self._seconds_left(answer)
        if left is None:
            return False
        self._state = _WAITING
        try:
            outcome = self._gate.again(self._id)
            if outcome is None:
                outcome = await self._wait_in_task(self._gate, self._id, left)
        except BaseException:
            self._fail()
            raise
        return self._granted_again(outcome)

    def _again_blocking(self, answer: ProviderAnswer) -> bool:
        left = self._seconds_left(answer)
        if left is None:
            return False
        self._state = _WAITING
        try:
            outcome = self._gate.again(self._id)
            if outcome is None:
                outcome = self._wait_in_thread(self._gate, self._id, left)
        except BaseException:
            self._fail()
            raise
        return self._granted_again(outcome)

    def _seconds_left(self, answer: ProviderAnswer) -> float | None:
        """How long the call may wait for another turn; None where it would be in vain."""
        if self._state != _HELD:
            return None
        pause = self._answered(answer)
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now - self._waited_us / 1e6
        most = self._retry_seconds if self._timeout is None else min(self._timeout, self._retry_seconds)
        left = self._asked_at + most - now
        return None if pause is None or pause > left else left

    def _granted_again(self, outcome: Any) -> bool:
        if outcome.__class__ is int:
            self._waited_us += outcome
            self._state = _HELD
            if self._hooks is not None:
                self._hooks.grant(self)
            return True
        if outcome[0] == "timeout":
            self._state = _OVER
            self._owner = None
            return False
        raise self._refused(outcome)

    def _fail(self) -> None:
        self._state = _OVER
        self._owner = None
        self._gate.cancel(self._id)

    def detach(self) -> None:
        """Says that somebody else than the task or thread that asked will give the slot back.

        A task that asks for another slot while it holds the last one is refused, since it would wait for itself. A
        slot that was handed to somebody else does not count.
        """
        if self._state == _HELD:
            self._owner = None
            self._gate.set_owner(self._id, 0)

    def _ends_with(self, error: BaseException) -> None:
        """The block ends with an error: one that says that the provider refused the call is heard, and charged nothing."""
        answer = answer_of(error) if self._state == _HELD else None
        if answer is not None and self._answered(answer) is not None and self._tokens is None:
            self._tokens = 0

    def _keep_beyond_block(self) -> None:
        """Leaving the block does not give it back: it goes with what the block returned."""
        self._kept = False
        self.detach()

    def _read_here(self) -> None:
        """Whoever calls this is the one who will give it back: it reads the stream that the slot belongs to."""
        owner = _current_owner()
        if owner is not self._owner and self._state == _HELD:
            self._owner = owner
            self._gate.set_owner(self._id, id(owner))

    @property
    def id(self) -> str:
        """Its id in the journal, and for :meth:`fairgate.Scheduler.explain`; empty before it asked."""
        return str(self._id) if self._id else ""

    @property
    def model(self) -> str | None:
        """The model that is called, as far as it was said."""
        return self._model

    @property
    def weight(self) -> float:
        """How heavy the call is."""
        return self._weight

    @property
    def tokens(self) -> int | None:
        """What was settled so far; None where nothing was."""
        return self._tokens

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


def _current_task() -> object:
    """The task that runs here."""
    try:
        return current_task()
    except RuntimeError:
        raise FairgateError(
            "`async with` a slot needs asyncio's event loop, and none runs here. Under trio, use "
            "`await trio.to_thread.run_sync(fn)` with a function that uses `with scheduler.slot(…)`"
        ) from None


def _current_owner() -> object:
    """The task that runs here, else the thread."""
    loop = asyncio._get_running_loop()
    return (loop and current_task(loop)) or threading.current_thread()

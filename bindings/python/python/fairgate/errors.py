"""What can go wrong when a program asks for a slot. All of it is a :class:`FairgateError`."""

from __future__ import annotations

from typing import Literal, Union

#: How the native part says that a request is refused: a kind, then its numbers.
Refusal = Union[
    "tuple[str]",
    "tuple[str, int, int]",
    "tuple[str, str, int, int, int | None]",
    "tuple[str, int, int, int, int]",
    "tuple[str, GatewayError | SlotTimeout]",
]
#: Which setting ended a wait; see :attr:`SlotTimeout.limit`.
WaitLimit = Literal["timeout", "deadline", "queue_timeout"]


class FairgateError(Exception):
    """Anything that fairgate refuses."""


class QueueFull(FairgateError):
    """Too many requests wait already, and this one's agent is the one that must make room.

    Either it was not let in (``reason`` is ``"queue_full"``), or it waited and was pushed out by a request of an
    agent that has fewer waiting (``"pushed_out"``).
    """

    def __init__(
        self, agent: str, reason: str, waiting: int, limit: int, retry_after: float | None
    ) -> None:
        what = "was pushed out by a quieter agent" if reason == "pushed_out" else "was not let in"
        when = "" if retry_after is None else f"; a place is freed every {retry_after:.3g} s or so"
        super().__init__(
            f"a request of agent {agent!r} {what}: {waiting} requests wait, max_waiting is {limit}{when}"
        )
        self.agent = agent
        #: ``"queue_full"`` or ``"pushed_out"``.
        self.reason = reason
        #: How many requests wait.
        self.waiting = waiting
        #: How many may wait.
        self.limit = limit
        #: After how many seconds to try again: how far ends of requests are apart lately; None where none ended yet.
        self.retry_after = retry_after


class SlotTimeout(FairgateError, TimeoutError):
    """A request was not granted a slot in the time that it may wait. It waits no more."""

    def __init__(
        self,
        agent: str,
        timeout: float | None,
        limit: WaitLimit = "timeout",
        message: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        whose = {
            "timeout": f" within {timeout or 0.0:g} s, its own timeout",
            "deadline": " before the deadline that the gateway sets for its key or class",
            "queue_timeout": " within the queue_timeout of the gateway's pool",
        }[limit]
        said = "" if message is None else f": {message}"
        super().__init__(f"a request of agent {agent!r} got no slot{whose}{said}")
        self.agent = agent
        #: The request's own timeout, in seconds; None where it had none.
        self.timeout = timeout
        #: Which setting ended the wait: ``"timeout"``, the request's own; over :func:`fairgate.connect` also
        #: ``"deadline"``, that of its key or class, and ``"queue_timeout"``, that of the pool.
        self.limit: WaitLimit = limit
        #: After how many seconds to try again, where a gateway says.
        self.retry_after = retry_after


class BudgetExceeded(FairgateError):
    """An agent's budget has too little left for what a request expects to use."""

    def __init__(self, agent: str, limit: int, spent: int, reserved: int, asked: int) -> None:
        super().__init__(
            f"agent {agent!r} asked for {asked} tokens, but of its budget of {limit} tokens "
            f"{spent} are spent and {reserved} reserved"
        )
        self.agent = agent
        #: The budget, in tokens.
        self.limit = limit
        #: What ended requests used, in tokens.
        self.spent = spent
        #: What requests under way expect to use, in tokens.
        self.reserved = reserved
        #: What this request expected to use, in tokens.
        self.asked = asked


class WouldDeadlock(FairgateError):
    """Waiting would never end: whoever could give a slot back would itself be waiting for one."""


class Closed(FairgateError):
    """The scheduler was closed before the request was granted a slot."""

    def __init__(self, agent: str) -> None:
        super().__init__(f"a request of agent {agent!r} got no slot: the scheduler is closed")
        self.agent = agent


class GatewayError(FairgateError):
    """What a gateway has refused, or that it could not be reached (``code`` is ``"unreachable"``)."""

    def __init__(self, code: str, message: str, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(f"{message} ({code})")
        #: The stable code of the refusal: see the table in docs/gateway.md.
        self.code = code
        self.message = message
        #: The HTTP status; 0 where there was no answer.
        self.status = status
        #: After how many seconds to try again, where the gateway says.
        self.retry_after = retry_after


def no_event_loop() -> FairgateError:
    """The error for `async with` where asyncio does not run."""
    return FairgateError(
        "`async with` a slot needs asyncio's event loop, and none runs here. Under trio, use "
        "`await trio.to_thread.run_sync(fn)` with a function that uses `with scheduler.slot(…)`"
    )


def refused(agent: str, refusal: Refusal) -> FairgateError:
    """The error for what the native part, or a gateway, answered."""
    if len(refusal) == 2:
        return refusal[1]
    if refusal[0] == "queue_full" and len(refusal) == 5 and isinstance(refusal[1], str):
        _, reason, waiting, limit, retry_us = refusal
        return QueueFull(agent, reason, waiting, limit, _seconds(retry_us))
    if refusal[0] == "over_budget" and len(refusal) == 5 and isinstance(refusal[1], int):
        _, limit, spent, reserved, asked = refusal
        return BudgetExceeded(agent, int(limit), int(spent), int(reserved), int(asked or 0))
    if refusal[0] == "deadlock" and len(refusal) == 3:
        _, held, in_flight = refusal
        return _deadlock(agent, held, in_flight)
    return Closed(agent)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6


def _deadlock(agent: str, held: int, in_flight: int) -> WouldDeadlock:
    if held == in_flight:
        who = "the task or thread that asks holds "
        which = "the only slot" if in_flight == 1 else f"all {in_flight} slots"
        return WouldDeadlock(
            f"a request of agent {agent!r} would wait for ever: {who}{which} itself. "
            "Give it back before asking again, or raise the capacity"
        )
    return WouldDeadlock(
        f"a request of agent {agent!r} would wait for ever: all {in_flight} slots are held by tasks or threads that "
        "wait for another one. Give slots back before asking again, or raise the capacity"
    )

"""Who is calling: the agent of a block of code, for adapters that cannot be told with each call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_agent: ContextVar[str | None] = ContextVar("fairgate_agent", default=None)
#: Whether an adapter further out holds a slot for this call already.
_scheduled: ContextVar[bool] = ContextVar("fairgate_scheduled", default=False)


@contextlib.contextmanager
def agent(name: str) -> Iterator[None]:
    """Calls in this block, and in tasks started in it, through any adapter are this agent's."""
    token = _agent.set(name)
    try:
        yield
    finally:
        _agent.reset(token)


def current_agent() -> str | None:
    """The agent of the innermost :func:`agent` block around this."""
    return _agent.get()


def is_scheduled() -> bool:
    """Whether an adapter further out holds a slot for this call already."""
    return _scheduled.get()


@contextlib.contextmanager
def scheduled_here() -> Iterator[None]:
    """In this block a slot is held: adapters further in need none of their own."""
    token = _scheduled.set(True)
    try:
        yield
    finally:
        _scheduled.reset(token)

"""Who is calling, and under which slot: for adapters that cannot be told with each call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from ._core import Gate, Slot

_agent: ContextVar[str | None] = ContextVar("fairgate_agent", default=None)


class Cover:
    """A slot that is held around some code. One call in there may use it at a time."""

    __slots__ = ("_around", "_lent", "slot")

    _covers = True

    def __init__(self, slot: Slot, around: Covers) -> None:
        self.slot = slot
        self._around = around
        self._lent = False


#: What is held around this code: the innermost, which knows what is around it. A slot whose block this is stands for
#: itself, and is passed by when its block was left: that does not change the context.
Covers = Union["Slot", Cover, None]
covers: ContextVar[Covers] = ContextVar("fairgate_covers", default=None)


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


class Lease:
    """The use of a slot by a call further in than the one that asked for it, until :meth:`end`."""

    __slots__ = ("_cover", "slot")

    def __init__(self, cover: Slot | Cover, slot: Slot) -> None:
        self._cover = cover
        self.slot = slot
        cover._lent = True

    def end(self) -> None:
        self._cover._lent = False


def lease(gate: Gate) -> Lease | None:
    """The use of a slot of this gate that is held around this code, where no other call uses it just now.

    One call takes one slot, however many layers are scheduled. A second call at the same time needs one of its own.
    """
    cover = covers.get()
    while cover is not None:
        if not cover._lent and cover._covers:
            slot = cover.slot if isinstance(cover, Cover) else cover
            if slot.held and slot._gate is gate:
                return Lease(cover, slot)
        cover = cover._around
    return None


@contextlib.contextmanager
def covered_by(slot: Slot) -> Iterator[None]:
    """In this block a call through an adapter of the same scheduler uses this slot."""
    around = covers.get()
    covers.set(Cover(slot, around))
    try:
        yield
    finally:
        covers.set(around)

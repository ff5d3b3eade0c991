"""Waiting for a state instead of for a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import fairgate

#: More turns of the loop, or of a thread, than anything here takes.
PATIENCE = 1_000_000


async def until(condition: Callable[[], bool]) -> None:
    """Lets other tasks run until the condition holds."""
    for _ in range(PATIENCE):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


def until_in_thread(condition: Callable[[], bool]) -> None:
    """Lets other threads run until the condition holds."""
    pause = threading.Event()
    for _ in range(PATIENCE):
        if condition():
            return
        pause.wait(0.0001)
    raise AssertionError("it never came to that")


def waiting(scheduler: fairgate.Scheduler, count: int) -> Callable[[], bool]:
    """Whether that many requests wait."""
    return lambda: scheduler.snapshot().waiting == count


def idle(scheduler: fairgate.Scheduler) -> bool:
    """Whether nobody waits and nobody holds a slot."""
    now = scheduler.snapshot()
    return (now.waiting, now.waiting_for_budget, now.in_flight) == (0, 0, 0)

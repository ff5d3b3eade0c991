"""Tells gates that time has passed: one thread for all schedulers that know their provider's limits.

It starts with the first alarm, sleeps until the next one, and costs nothing where no scheduler has any.
"""

from __future__ import annotations

import atexit
import heapq
import itertools
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from .budget import BudgetAlert

if TYPE_CHECKING:
    from ._core import Gate

_log = logging.getLogger("fairgate")


class Alarm:
    """What a gate calls: with the number of seconds after which it wants to be told the time, and with news of budgets."""

    def __init__(self, on_budget_alert: Callable[[BudgetAlert], object] | None = None) -> None:
        self._gate: weakref.ref[Gate] | None = None
        self._on_budget_alert = on_budget_alert

    def alert(self, agent: str, part: float, spent: int, limit: int) -> None:
        """A part of an agent's budget is spent. What the program's own function raises is logged."""
        if self._on_budget_alert is None:
            _log.warning("agent %r has spent %d of its budget of %d tokens", agent, spent, limit)
            return
        try:
            self._on_budget_alert(BudgetAlert(agent, part, spent, limit))
        except Exception:
            _log.exception("on_budget_alert failed")

    def belongs_to(self, gate: Gate) -> None:
        self._gate = weakref.ref(gate)

    def __call__(self, seconds: float) -> None:
        if self._gate is not None:
            _clock.wake(time.monotonic() + seconds, self._gate)


class _Clock:
    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._alarms: list[tuple[float, int, weakref.ref[Gate]]] = []
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._is_over = False

    def stop(self) -> None:
        """Waits until the thread is out of native code: the interpreter may not end while it is in there."""
        with self._lock:
            self._is_over = True
            self._lock.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def wake(self, due: float, gate: weakref.ref[Gate]) -> None:
        with self._lock:
            if self._is_over:
                return
            heapq.heappush(self._alarms, (due, next(self._numbers), gate))
            if self._thread is None:
                # A daemon: it never keeps a program from ending.
                self._thread = threading.Thread(target=self._run, name="fairgate-clock", daemon=True)
                self._thread.start()
            elif self._alarms[0][0] == due:
                self._lock.notify()

    def _run(self) -> None:
        while True:
            its = self._next()
            if its is None:
                return
            gate = its()
            if gate is not None:
                try:
                    gate.tick()
                except Exception:
                    _log.exception("a scheduler could not be told that time has passed")

    def _next(self) -> weakref.ref[Gate] | None:
        with self._lock:
            while True:
                if self._is_over:
                    return None
                now = time.monotonic()
                if self._alarms and self._alarms[0][0] <= now:
                    return heapq.heappop(self._alarms)[2]
                self._lock.wait(self._alarms[0][0] - now if self._alarms else None)


_clock = _Clock()


def _in_child() -> None:
    # The thread does not run here, and may have held the lock.
    global _clock
    _clock = _Clock()


def _at_exit() -> None:
    _clock.stop()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

"""Tells gates that time has passed: one thread for all schedulers that have deadlines, or know their provider's limits.

It starts with the first alarm, sleeps until the next one, and costs nothing where no scheduler has any.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from .budget import BudgetAlert

if TYPE_CHECKING:
    from ._core import Gate

_log = logging.getLogger("fairgate")
#: Longer than any system's longest wait is an error.
_SLEEP_SECONDS_MAX = 1_000_000.0


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
        #: What gates ask for: when to be told the time next. None ends the thread. A slot that is collected may set an
        #: alarm in the middle of anything: of all queues and locks, this is the one that allows for that.
        self._asked: SimpleQueue[tuple[weakref.ref[Gate], float] | None] = SimpleQueue()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        #: Whether the program ends: no alarm is kept any more.
        self.is_over = False

    def stop(self) -> None:
        """Waits until the thread is out of native code: the interpreter may not end while it is in there."""
        self.is_over = True
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join()

    def wake(self, due: float, gate: weakref.ref[Gate]) -> None:
        if self.is_over:
            return
        self._asked.put((gate, due))
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._start()

    def is_running(self) -> bool:
        return self._thread is not None and not self.is_over

    def _start(self) -> None:
        # A daemon: it never keeps a program from ending.
        self._thread = threading.Thread(target=self._run, name="fairgate-clock", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # The program ends, or has too many threads: who waits notices that no clock runs, and the next alarm tries again.
            self._thread = None

    def _run(self) -> None:
        # One for each gate, which sets another one when it is told the time: so it does not matter how many calls with how
        # many deadlines come and go.
        alarms: dict[weakref.ref[Gate], float] = {}
        while True:
            first = min(alarms, key=alarms.__getitem__, default=None)
            wait = None if first is None else min(alarms[first] - time.monotonic(), _SLEEP_SECONDS_MAX)
            if first is not None and wait is not None and wait <= 0:
                del alarms[first]
                _tick(first)
                continue
            try:
                asked = self._asked.get(timeout=wait)
            except Empty:
                continue
            if asked is None:
                return
            # Gates that are gone need no alarm.
            alarms = {gate: due for gate, due in alarms.items() if gate() is not None}
            _note(alarms, *asked)


def _note(alarms: dict[weakref.ref[Gate], float], its: weakref.ref[Gate], due: float) -> None:
    # A reference to what is gone cannot be a key: hold on to the gate until it is one.
    gate = its()
    if gate is not None:
        # Two threads may set alarms of one gate at once, and the later one arrive last.
        alarms[its] = min(due, alarms.get(its, due))


def _tick(its: weakref.ref[Gate]) -> None:
    gate = its()
    if gate is not None:
        try:
            gate.tick()
        except Exception:
            _log.exception("a scheduler could not be told that time has passed")


_clock = _Clock()


def is_running() -> bool:
    """Whether gates are told the time. Where not, as at the end of the program, who waits must watch its own deadline."""
    return _clock.is_running()


def _in_child() -> None:
    # The thread does not run here, and may have held the lock.
    global _clock
    _clock = _Clock()


def _at_exit() -> None:
    _clock.stop()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

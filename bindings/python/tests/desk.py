"""The native gate, driven one event at a time, without tasks or threads."""

from __future__ import annotations

import itertools
from queue import Empty, SimpleQueue
from typing import Any

from fairgate._core import Gate
from fairgate.policy import policy_text


class Desk:
    """Asks and releases, and notes down who is granted a slot, and whose deadline passes, in order."""

    def __init__(self, capacity: int = 1, max_waiting: int = 1_000_000, **policy: Any) -> None:
        self.gate = Gate(policy_text(policy.pop("policy", "load"), **policy), capacity, max_waiting, None, print)
        self.granted: list[int] = []
        #: Whose deadline has passed.
        self.expired: list[int] = []
        self.news: SimpleQueue[Any] = SimpleQueue()
        self._ids = itertools.count(1)
        self._queues: dict[int, SimpleQueue[Any]] = {}

    def ask(self, agent: str, weight: float = 1.0, *, owner: int = 0, **more: Any) -> int:
        """Asks for a slot; the request's number."""
        id, queue = next(self._ids), SimpleQueue[Any]()
        outcome = self.gate.ask(
            id,
            agent,
            weight,
            more.get("cost"),
            more.get("priority", 0),
            more.get("attributes"),
            owner,
            4,
            more.get("timeout"),
        )
        if outcome is None:
            outcome = self.gate.wait(id, queue, None)
        if outcome == 0:
            self.granted.append(id)
        elif outcome is None:
            self._queues[id] = queue
        else:
            raise AssertionError(f"refused: {outcome}")
        self._look()
        return id

    def release(self, id: int) -> None:
        self.gate.release(id)
        self._look()

    def cancel(self, id: int) -> None:
        self._queues.pop(id, None)
        self.gate.cancel(id)
        self._look()

    def skip_time(self, seconds: float) -> None:
        """Moves the gate's clock forward."""
        self.gate.skip_time(seconds)
        self._look()

    def _look(self) -> None:
        # One event grants at most as many as there are slots; with one slot the order is the order of events.
        over = []
        for id, queue in self._queues.items():
            try:
                news = queue.get_nowait()
            except Empty:
                continue
            assert isinstance(news, int) or news == ("timeout",), news
            over.append(id)
            (self.granted if isinstance(news, int) else self.expired).append(id)
        for id in over:
            del self._queues[id]

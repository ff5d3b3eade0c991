"""What a program wants to be told of each call."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._core import Slot

_log = logging.getLogger("fairgate")
_grants = logging.getLogger("fairgate.grants")

Hook = Callable[["Slot"], object]


class Hooks:
    """Called when a call asks, is granted its slot, and has given it back. What a hook raises is logged."""

    def __init__(self, name: str, start: Hook | None, grant: Hook | None, end: Hook | None, logs: bool) -> None:
        self._name = name
        self._start = start
        self._grant = grant
        self._end = end
        self._logs = logs

    @classmethod
    def of(
        cls, name: str, start: Hook | None, grant: Hook | None, end: Hook | None, logs: bool
    ) -> Hooks | None:
        """None where nobody wants to know anything, so that nothing is called."""
        wanted = start is not None or grant is not None or end is not None or logs
        return cls(name, start, grant, end, logs) if wanted else None

    def start(self, slot: Slot) -> None:
        if self._start is not None:
            _call(self._start, slot)

    def grant(self, slot: Slot) -> None:
        if self._logs:
            _grants.info("%s", _Line(self._name, slot))
        if self._grant is not None:
            _call(self._grant, slot)

    def end(self, slot: Slot) -> None:
        if self._end is not None:
            _call(self._end, slot)


class _Line:
    """A line of the log, made into text only where somebody writes it."""

    def __init__(self, name: str, slot: Slot) -> None:
        self._fields: dict[str, Any] = {
            "event": "grant",
            "scheduler": name,
            "id": slot.id,
            "agent": slot.agent,
            "model": slot.model,
            "weight": slot.weight,
            "waited_seconds": slot.waited,
        }

    def __str__(self) -> str:
        return json.dumps(self._fields, ensure_ascii=False)


def _call(hook: Hook, slot: Slot) -> None:
    try:
        hook(slot)
    except Exception:
        _log.exception("a hook of a scheduler failed")

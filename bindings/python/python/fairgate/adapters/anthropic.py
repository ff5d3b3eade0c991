"""Anthropic's package: every call of a client, sync or async, streamed or not, runs in a slot.

    client = fairgate.adapters.anthropic.attach(anthropic.Anthropic(), scheduler, agent="analyst")
    client.messages.create(...)          # as ever

Scheduled are messages, whichever method creates them; the rest (counting tokens, batches, models, …) goes through as
it is. See :func:`fairgate.adapters.http.attach` for what that means.
"""

from __future__ import annotations

from typing import TypeVar

from ..scheduler import Scheduler
from ..weighing import Weighing
from . import http

_Client = TypeVar("_Client")

#: How the paths of scheduled calls end.
PATHS = ("/messages",)


def attach(
    client: _Client,
    scheduler: Scheduler,
    *,
    agent: str = "default",
    weighing: Weighing = Weighing(),
    timeout: float | None = None,
) -> _Client:
    """Schedules every call through an ``Anthropic`` or ``AsyncAnthropic``, and returns the same client."""
    return http.attach(client, scheduler, paths=PATHS, agent=agent, weighing=weighing, timeout=timeout)

"""OpenAI's package: every call of a client, sync or async, streamed or not, runs in a slot.

    client = fairgate.adapters.openai.attach(openai.OpenAI(), scheduler, agent="analyst")
    client.chat.completions.create(...)          # as ever

Scheduled are chat completions, completions, responses and embeddings, whichever method calls them; the rest (models,
files, …) goes through as it is. See :func:`fairgate.adapters.http.attach` for what that means.
"""

from __future__ import annotations

from typing import TypeVar

from ..scheduler import Scheduler
from ..weighing import Weighing
from . import http

_Client = TypeVar("_Client")

#: How the paths of scheduled calls end.
PATHS = ("/chat/completions", "/completions", "/responses", "/embeddings")


def attach(
    client: _Client,
    scheduler: Scheduler,
    *,
    agent: str = "default",
    weighing: Weighing = Weighing(),
    timeout: float | None = None,
) -> _Client:
    """Schedules every call through an ``openai.OpenAI`` or ``openai.AsyncOpenAI``, and returns the same client."""
    return http.attach(client, scheduler, paths=PATHS, agent=agent, weighing=weighing, timeout=timeout)

"""The HTTP client underneath OpenAI's and Anthropic's packages, scheduled.

Both packages send their calls through an HTTP client of httpx or httpx2, whose transports :mod:`fairgate.transport`
schedules. Where a package lets you give it a client, that module alone will do.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from ..scheduler import Scheduler
from ..transport import is_scheduled, scheduled
from ..weighing import Weighing

_Client = TypeVar("_Client")


def attach(
    client: _Client,
    scheduler: Scheduler,
    *,
    paths: tuple[str, ...],
    agent: str,
    weighing: Weighing,
    timeout: float | None,
) -> _Client:
    """Lets every call of a client whose path ends so wait for its turn, as :func:`fairgate.transport.scheduled` says.

    The client is changed and returned; copies that it makes (``with_options``) are scheduled too, and so is any other
    client that shares its ``http_client``.
    """
    http = getattr(client, "_client", None)
    if http is None or not _is_http_client(http):
        raise TypeError(f"{type(client).__name__} has no HTTP client of httpx or httpx2 underneath")
    if is_scheduled(http._transport):
        raise ValueError(
            "this client, or another one with the same http_client, is scheduled already; "
            "`with fairgate.agent(…)` tells callers apart"
        )

    def wrapped(transport: Any) -> Any:
        return scheduled(transport, scheduler, agent=agent, weighing=weighing, timeout=timeout, paths=paths)

    http._mounts = {k: t if t is None else wrapped(t) for k, t in http._mounts.items()}
    http._transport = wrapped(http._transport)
    return client


def _is_http_client(http: object) -> bool:
    modules = [sys.modules[name] for name in ("httpx2", "httpx") if name in sys.modules]
    return any(isinstance(http, (module.Client, module.AsyncClient)) for module in modules)

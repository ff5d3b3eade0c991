"""One scheduler for the whole program, for those who need no more."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar, overload

from .scheduler import CallOptions, Scheduler, living
from .serving import MetricsServer
from ._core import Slot
from .wrapping import scheduled as decorate

P = ParamSpec("P")
R = TypeVar("R")
_default: Scheduler | None = None
_lock = threading.Lock()


def configure(capacity: int = 3, **options: Any) -> Scheduler:
    """Makes the program's scheduler, with the options of :class:`fairgate.Scheduler`, and returns it.

    Where there was one before, those who wait for it or hold of it are not disturbed; whoever asks from now on asks
    the new one.
    """
    global _default
    scheduler = Scheduler(capacity, **options)
    with _lock:
        _default = scheduler
    return scheduler


def get_scheduler() -> Scheduler:
    """The program's scheduler: what :func:`configure` made, else one with the defaults."""
    global _default
    with _lock:
        if _default is None:
            _default = Scheduler()
        return _default


def enable_prometheus(port: int = 9464, *, host: str = "127.0.0.1") -> MetricsServer:
    """Serves the metrics of all schedulers of the program at ``http://host:port/metrics``, until ``close()``."""
    return MetricsServer(port, host, living)


@overload
async def run(
    call: CallOptions, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
) -> R: ...
@overload
async def run(call: CallOptions, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
async def run(call: CallOptions, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Calls ``fn(*args, **kwargs)`` in a slot of the program's scheduler; see :meth:`fairgate.Scheduler.run`."""
    return await get_scheduler().run(call, fn, *args, **kwargs)


@overload
async def wrap(
    fn: Callable[..., Awaitable[R]], /, *args: Any, agent_id: str, weight: float = ..., **kwargs: Any
) -> R: ...
@overload
async def wrap(fn: Callable[..., R], /, *args: Any, agent_id: str, weight: float = ..., **kwargs: Any) -> R: ...
async def wrap(
    fn: Callable[..., Any], /, *args: Any, agent_id: str, weight: float = 1.0, **kwargs: Any
) -> Any:
    """Calls ``fn(*args, **kwargs)`` in a slot of the program's scheduler; see :meth:`fairgate.Scheduler.wrap`."""
    return await get_scheduler().wrap(fn, *args, agent_id=agent_id, weight=weight, **kwargs)


def scheduled(
    *, agent_id: str, weight: float = 1.0, **options: Any
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator: every call runs in a slot of the scheduler that the program has then.

    See :meth:`fairgate.Scheduler.scheduled` for the options.
    """

    def new_slot() -> Slot:
        return get_scheduler().slot(agent_id, weight=weight, **options)

    return decorate(new_slot)


def _in_child() -> None:
    # A thread of the parent may have held it.
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

"""Whether everything that the package needs is there and works."""

from __future__ import annotations

import asyncio
import importlib.metadata
import platform
import sys
from collections.abc import Iterator

from ._core import __version__
from .errors import FairgateError
from .scheduler import Scheduler

#: Packages that there are adapters for, and the oldest that they were tested with.
PACKAGES = {"openai": "1.0", "anthropic": "0.30", "langchain-core": "0.3", "httpx": "0.25", "httpx2": "0.1", "boto3": "1.34"}


def doctor() -> int:
    """Prints what it finds; the number of things that are wrong."""
    wrong = 0
    print(f"fairgate {__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    for name, check in (("grants a slot in a task", _in_task), ("grants a slot in a thread", _in_thread), ("keeps a rate", _rate)):
        try:
            check()
            print(f"  ok     {name}")
        except (FairgateError, RuntimeError, AssertionError, TimeoutError) as error:
            wrong += 1
            print(f"  WRONG  {name}: {error!r}")
    for name, oldest, found in _packages():
        if found is None:
            print(f"  -      {name} is not installed: its adapter is not needed, either")
        elif _numbers(found) < _numbers(oldest):
            wrong += 1
            print(f"  WRONG  {name} {found}: the adapter needs {oldest} or newer")
        else:
            print(f"  ok     {name} {found}")
    if "trio" in sys.modules:
        print("  note   trio: slots wait in asyncio or in threads; see the page on threads")
    print("all is well" if wrong == 0 else f"{wrong} wrong")
    return wrong


def _packages() -> Iterator[tuple[str, str, str | None]]:
    for name, oldest in PACKAGES.items():
        try:
            yield name, oldest, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            yield name, oldest, None


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2] if part.isdigit()]


def _in_task() -> None:
    async def use() -> None:
        scheduler = Scheduler(capacity=1, name="doctor")
        async with scheduler.slot("doctor", timeout=5.0):
            assert scheduler.snapshot().in_flight == 1

    asyncio.run(use())


def _in_thread() -> None:
    scheduler = Scheduler(capacity=1, name="doctor")
    with scheduler.slot("doctor", timeout=5.0):
        assert scheduler.snapshot().in_flight == 1


def _rate() -> None:
    scheduler = Scheduler(capacity=100, rates={"requests": "100/s"}, burst_seconds=1, name="doctor")
    for _ in range(110):
        # The last ones must wait for the clock.
        with scheduler.slot("doctor", timeout=5.0):
            pass


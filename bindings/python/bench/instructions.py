"""The instructions of a slot that nobody else wants, beside those of an asyncio.Semaphore: `cargo xtask bench python`.

Callgrind, a part of valgrind, counts them, so the result is the same on a machine that is busy with other work. Each
measurement runs a program with few rounds and the same program with many; the difference is what the rounds cost, without
Python's start.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from contextlib import AbstractAsyncContextManager
from collections.abc import Callable
from typing import Any

#: What an uncontended slot may cost beside a Semaphore's, in instructions.
BAR = 3.5
#: Rounds of the short and of the long program. By the first number, Python has specialized its bytecode.
FEW, MANY = 2_000, 7_000


async def take(rounds: int, slot: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
    """Takes a slot and gives it back."""
    for _ in range(rounds):
        async with slot():
            pass


def run(what: str, rounds: int) -> None:
    """What callgrind watches. Both programs import the same modules."""
    import fairgate

    scheduler, semaphore = fairgate.Scheduler(capacity=8), asyncio.Semaphore(8)
    slots: dict[str, Callable[[], AbstractAsyncContextManager[Any]]] = {
        "slot": lambda: scheduler.slot("agent"),
        "semaphore": lambda: semaphore,
    }
    asyncio.run(take(rounds, slots[what]))


def instructions(what: str, rounds: int) -> int:
    """The instructions of a whole program."""
    program = [sys.executable, __file__, what, str(rounds)]
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *program]
    # Python's hashes are random otherwise, and with them the number of instructions.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found = re.search(r"Collected : (\d+)", ended.stderr)
    if found is None:
        raise RuntimeError(f"callgrind has not said what it counted: {ended.stderr[-500:]}")
    return int(found[1])


def report() -> int:
    """Prints the table; 1 if the bar is missed."""
    each = {
        what: (instructions(what, MANY) - instructions(what, FEW)) / (MANY - FEW) for what in ("slot", "semaphore")
    }
    ratio = each["slot"] / each["semaphore"]
    print(
        f"A slot that nobody else wants: {each['slot']:,.0f} instructions; asyncio.Semaphore {each['semaphore']:,.0f}.\n"
        f"Beside a Semaphore's that is {ratio:.2f}× (≤ {BAR:g}×): {'ok' if ratio <= BAR else 'MISSED'}."
    )
    return int(ratio > BAR)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        run(sys.argv[1], int(sys.argv[2]))
    else:
        sys.exit(report())

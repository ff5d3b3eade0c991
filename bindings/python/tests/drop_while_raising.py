"""Drops slots, streams and schedulers while an exception is on its way: `python drop_while_raising.py CASE ROUNDS`.

A program of its own, because Python ends with a segmentation fault where a destructor gets this wrong.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import fairgate


class Unusual(Exception):
    """An exception whose constructor takes more than its message."""

    def __init__(self, code: int, *, detail: str) -> None:
        super().__init__(code, detail)


def fails() -> Any:
    raise Unusual(7, detail="no")


async def work(slot: fairgate.Slot) -> None:
    slot.release()


def numbers() -> Iterator[int]:
    yield from range(3)


def waiting_slot(scheduler: fairgate.Scheduler) -> fairgate.Slot:
    """A slot whose request waits, and that nobody awaits."""
    slot = scheduler.slot("waits")
    assert not slot._ask_in_thread()
    return slot


async def in_a_list(scheduler: fairgate.Scheduler) -> None:
    [await scheduler.acquire("a"), {}["no"]]


async def in_arguments(scheduler: fairgate.Scheduler) -> None:
    await asyncio.gather(work(await scheduler.acquire("a")), work(await scheduler.acquire("b", timeout=0.0)))


async def in_a_thread_call(scheduler: fairgate.Scheduler) -> None:
    [scheduler.acquire_blocking("a"), fails()]


async def still_waiting(scheduler: fairgate.Scheduler) -> None:
    [scheduler.acquire_blocking("a"), waiting_slot(scheduler), fails()]


async def in_a_stream(scheduler: fairgate.Scheduler) -> None:
    [next(await scheduler.wrap(numbers, agent_id="a")), await scheduler.wrap(numbers, agent_id="b"), fails()]


async def in_its_block(scheduler: fairgate.Scheduler) -> None:
    slot = scheduler.slot("a")
    async with slot:
        [await scheduler.acquire("b"), fails()]


async def in_a_cycle(scheduler: fairgate.Scheduler) -> None:
    cycle: list[Any] = [scheduler.acquire_blocking("a")]
    cycle.append(cycle)
    [cycle.pop(0), cycle.clear(), fails()]


async def with_its_scheduler(_: fairgate.Scheduler) -> None:
    [fairgate.Scheduler(1).acquire_blocking("a"), fails()]


async def with_a_journal(_: fairgate.Scheduler) -> None:
    with tempfile.NamedTemporaryFile() as file:
        [fairgate.Scheduler(1, journal=file.name).acquire_blocking("a"), fails()]


#: Each with the number of slots that it needs, and with the exception that must arrive.
CASES: dict[str, tuple[Callable[[fairgate.Scheduler], Awaitable[None]], int, type[Exception], tuple[Any, ...]]] = {
    "in_a_list": (in_a_list, 1, KeyError, ("no",)),
    "in_arguments": (in_arguments, 1, fairgate.SlotTimeout, ()),
    "in_a_thread_call": (in_a_thread_call, 1, Unusual, (7, "no")),
    "still_waiting": (still_waiting, 1, Unusual, (7, "no")),
    "in_a_stream": (in_a_stream, 2, Unusual, (7, "no")),
    "in_its_block": (in_its_block, 2, Unusual, (7, "no")),
    "in_a_cycle": (in_a_cycle, 1, Unusual, (7, "no")),
    "with_its_scheduler": (with_its_scheduler, 1, Unusual, (7, "no")),
    "with_a_journal": (with_a_journal, 1, Unusual, (7, "no")),
}


async def one_round(name: str, scheduler: fairgate.Scheduler) -> None:
    case, _, kind, values = CASES[name]
    try:
        await case(scheduler)
    except kind as error:
        assert not values or error.args == values, error.args
        assert error.__context__ is None, error.__context__
        frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        assert frames[:2] == ["one_round", case.__name__], frames
    else:
        raise AssertionError("the exception was lost")
    now = scheduler.snapshot()
    assert (now.in_flight, now.waiting) == (0, 0), now


async def main(name: str, rounds: int) -> None:
    scheduler = fairgate.Scheduler(CASES[name][1])
    for _ in range(rounds):
        await one_round(name, scheduler)


if __name__ == "__main__":
    # Once as a warning that is ignored, once as one that is an error, which a destructor cannot raise.
    for action in ("ignore", "error"):
        with warnings.catch_warnings():
            warnings.simplefilter(action, ResourceWarning)  # type: ignore[arg-type]
            warnings.simplefilter("ignore", RuntimeWarning)
            sys.unraisablehook = lambda _: None
            asyncio.run(main(sys.argv[1], int(sys.argv[2]) // 2))
    print("done")

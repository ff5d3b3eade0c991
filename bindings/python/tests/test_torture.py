"""Everything at once: whatever happens, every scheduler is empty at full capacity in the end."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import threading
import warnings
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import drop_while_raising
import httpx
import pytest
from waiting import idle

import fairgate


def check(scheduler: fairgate.Scheduler, capacity: int) -> None:
    """Nobody is in there, and all slots can be had at once."""
    assert idle(scheduler), scheduler
    slots = [scheduler.acquire_blocking("check", timeout=5.0) for _ in range(capacity)]
    for slot in slots:
        slot.release()
    assert idle(scheduler)


async def chunks(count: int) -> AsyncIterator[int]:
    for number in range(count):
        await asyncio.sleep(0)
        yield number


class Storm:
    """Calls of all kinds that end in all ways, decided by a seed."""

    def __init__(self, seed: int, schedulers: list[fairgate.Scheduler]) -> None:
        self.chance = random.Random(seed)
        self.schedulers = schedulers

    async def refused_once(self, state: list[int]) -> str:
        await asyncio.sleep(0)
        if state:
            state.pop()
            error: Any = RuntimeError("429")
            error.response = httpx.Response(429, headers={"retry-after-ms": "1"})
            raise error
        return "ran"

    async def call(self) -> None:
        chance = self.chance
        scheduler = chance.choice(self.schedulers)
        agent = f"agent-{chance.randrange(20)}"
        timeout = chance.choice([None, None, 0.0, 0.002, 1.0])
        kind = chance.randrange(7)
        if kind == 0:
            async with scheduler.slot(agent, timeout=timeout) as slot:
                await asyncio.sleep(0)
                slot.settle(chance.choice([5, 15.6, -1, True, 2**64]))
        elif kind == 1:
            async with scheduler.slot(agent, timeout=timeout):
                raise LookupError
        elif kind == 2:
            stream = await scheduler.wrap(chunks, 3, agent_id=agent)
            async for _ in stream:
                if chance.random() < 0.3:
                    await stream.aclose()
                    break
        elif kind == 3:
            await scheduler.run(fairgate.CallOptions(agent, timeout=timeout), self.refused_once, [1])
        elif kind == 4:
            slot = await scheduler.acquire(agent, timeout=timeout)
            if chance.random() < 0.5:
                scheduler.release(slot, chance.choice([1, 1.5]))  # type: ignore[arg-type]
            # Else it is forgotten, and given back when it is collected.
        elif kind == 5:
            other = chance.choice(self.schedulers)
            async with scheduler.slot(agent, timeout=1.0), other.slot(agent, timeout=0.01):
                await asyncio.sleep(0)
        else:
            await scheduler.wrap(asyncio.to_thread, self.in_thread, scheduler, agent, agent_id=agent)

    def in_thread(self, scheduler: fairgate.Scheduler, agent: str) -> None:
        with scheduler.slot(agent, timeout=0.01):
            pass

    async def run(self, count: int) -> None:
        tasks: list[asyncio.Task[None]] = []
        for _ in range(count):
            tasks.append(asyncio.create_task(self.call()))
            if self.chance.random() < 0.2:
                self.chance.choice(tasks).cancel()
            if self.chance.random() < 0.3:
                await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_two_loops_full_of_everything_leave_nothing(seed: int) -> None:
    schedulers = [
        fairgate.Scheduler(4, max_waiting=2_000, auto_tune=True, budgets={"agent-1": 20_000}),
        fairgate.Scheduler(2, max_waiting=50, policy="share"),
    ]
    failures: list[BaseException] = []

    def loop(number: int) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                asyncio.run(Storm(seed * 10 + number, schedulers).run(600))
                gc.collect()
        except BaseException as error:
            failures.append(error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        threads = [threading.Thread(target=loop, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(90)
        gc.collect()
    assert not failures and not any(thread.is_alive() for thread in threads)
    check(schedulers[0], 4)
    check(schedulers[1], 2)


def test_ten_thousand_tasks_half_of_them_cancelled() -> None:
    scheduler = fairgate.Scheduler(8)
    ran = 0

    async def call(number: int) -> None:
        nonlocal ran
        async with scheduler.slot(f"agent-{number % 100}"):
            await asyncio.sleep(0)
            ran += 1

    async def main() -> None:
        tasks = [asyncio.create_task(call(number)) for number in range(10_000)]
        await asyncio.sleep(0)
        for task in tasks[1::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert 5_000 <= ran <= 5_100
    check(scheduler, 8)


@pytest.mark.parametrize("case", drop_while_raising.CASES)
def test_what_is_dropped_while_an_exception_is_on_its_way_keeps_that_exception(case: str) -> None:
    # Each journal starts a thread and a file, which is what its rounds take.
    rounds = "1000" if case == "with_a_journal" else "10000"
    program = [sys.executable, "-X", "faulthandler", str(Path(drop_while_raising.__file__)), case, rounds]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout) == (0, "done\n"), ended.stderr[-2000:]

"""Grants per second beside loco-agent, an uncontended slot beside asyncio.Semaphore and aiolimiter, and the memory of a waiting
request: `cargo xtask bench python`.

Every measurement is a process of its own. With one slot, which is held, N agents each ask once; when all of them
wait, the slot is given back, and from there on each agent asks again as soon as it has been granted. Counted are the
grants from the first one on. Both schedulers do the same, through the call that their documents show first.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

#: Agents, the least ratio that is promised, grants to count of ours and of loco-agent's (whose every grant makes the
#: next one slower: few of them show it at its best).
CASES = [(10, 3, 20_000, 500), (100, 10, 20_000, 500), (1_000, 100, 20_000, 200), (10_000, 1_000, 20_000, 40)]
REPETITIONS = 3
WAITING = 20_000
#: Slots taken and given back by one task alone: rounds in each measurement, and slots in a round. The machines share their
#: processors with others, so that many rounds are needed until one is undisturbed.
UNCONTENDED_ROUNDS = 50
UNCONTENDED = 10_000
#: What an uncontended slot may cost beside a Semaphore's, and how much grants per second may differ from 100 to 10 000 agents.
SEMAPHORES_BAR = 3.0
FLAT_BAR = 2.0

Slot = Callable[[str], AbstractAsyncContextManager[Any]]


async def measure(agents: int, grants: int, slot: Slot, waiting: Callable[[], int]) -> float:
    """Grants per second."""
    count = 0
    over = asyncio.get_running_loop().create_future()

    async def agent(name: str) -> None:
        nonlocal count
        while True:
            async with slot(name):
                count += 1
                if count == grants and not over.done():
                    over.set_result(time.perf_counter())
                    # Nobody else is granted anything while the clock is read.
                    await asyncio.Event().wait()

    async with slot("warm-up"):
        tasks = [asyncio.create_task(agent(f"agent-{i}")) for i in range(agents)]
        while waiting() < agents:
            await asyncio.sleep(0)
        start = time.perf_counter()
    elapsed: float = await over - start
    assert tasks
    return grants / elapsed


def of_fairgate(agents: int, grants: int) -> Awaitable[float]:
    import fairgate

    scheduler = fairgate.Scheduler(capacity=1, max_waiting=agents + 1)
    return measure(agents, grants, scheduler.slot, lambda: scheduler.snapshot().waiting)


def of_loco(agents: int, grants: int) -> Awaitable[float]:
    import contextlib

    import loco

    names = ["warm-up", *(f"agent-{i}" for i in range(agents))]
    scheduler = loco.AsyncLOCOScheduler(
        [loco.Agent(agent_id=name) for name in names],
        loco.SharedResource("model", capacity=1),
        max_waiters=agents + 1,
    )
    asked = 0

    @contextlib.asynccontextmanager
    async def slot(name: str) -> Any:
        nonlocal asked
        await scheduler.submit_task(name, loco.Task())
        asked += 1
        async with scheduler.acquire(name):
            yield

    # Whoever has submitted its task goes on to wait without a turn of the loop in between.
    return measure(agents, grants, slot, lambda: asked - 1)


async def uncontended(slot: Callable[[], AbstractAsyncContextManager[Any]]) -> float:
    """Nanoseconds of this process for one slot that nobody else wants: the least of all rounds."""
    best = float("inf")
    for _ in range(UNCONTENDED_ROUNDS):
        start = time.process_time_ns()
        for _ in range(UNCONTENDED):
            async with slot():
                pass
        best = min(best, (time.process_time_ns() - start) / UNCONTENDED)
    return best


async def of_slot() -> float:
    import fairgate

    scheduler = fairgate.Scheduler(capacity=8)
    return await uncontended(lambda: scheduler.slot("agent"))


async def of_semaphore() -> float:
    semaphore = asyncio.Semaphore(8)
    return await uncontended(lambda: semaphore)


async def of_limiter() -> float:
    import aiolimiter

    limiter = aiolimiter.AsyncLimiter(1e12, 1)
    return await uncontended(lambda: limiter)


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def memory(make: Callable[[int], Awaitable[Any]]) -> float:
    """Bytes that each of many waiting tasks takes, its task included."""
    gc.collect()
    before = resident_bytes()
    tasks = [asyncio.ensure_future(make(i)) for i in range(WAITING)]
    for _ in range(3):
        await asyncio.sleep(0)
    gc.collect()
    assert not any(task.done() for task in tasks)
    return (resident_bytes() - before) / WAITING


async def of_tasks() -> float:
    async def wait(_: int) -> None:
        await asyncio.get_running_loop().create_future()

    return await memory(wait)


async def of_requests() -> float:
    import fairgate

    scheduler = fairgate.Scheduler(capacity=1, max_waiting=WAITING)

    async def wait(number: int) -> None:
        async with scheduler.slot(f"agent-{number % 100}"):
            pass

    slot = await scheduler.acquire("warm-up")
    bytes_each = await memory(wait)
    assert scheduler.snapshot().waiting == WAITING
    slot.release()
    return bytes_each


def child(what: str, *numbers: int) -> float:
    """Measures in a process of its own."""
    command = [sys.executable, __file__, "--measure", json.dumps([what, *numbers])]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if run.returncode != 0:
        raise SystemExit(f"{what} {numbers} failed:\n{run.stderr}")
    return float(run.stdout)


def measure_here(spec: str) -> None:
    what, *numbers = json.loads(spec)
    kinds: dict[str, Callable[..., Awaitable[float]]] = {
        "fairgate": of_fairgate,
        "loco": of_loco,
        "tasks": of_tasks,
        "requests": of_requests,
        "slot": of_slot,
        "semaphore": of_semaphore,
        "limiter": of_limiter,
    }

    async def main() -> None:
        print(await kinds[what](*numbers), flush=True)
        # Those who still wait are of no interest, and loco-agent cannot be asked to send them away.
        os._exit(0)

    asyncio.run(main())


def _verdict(what: str, ratio: float, bar: float) -> bool:
    is_missed = ratio > bar
    print(f"{what} {ratio:.1f}× (≤ {bar:g}×): {'MISSED' if is_missed else 'ok'}.")
    return is_missed


def report() -> int:
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, ", end="")
    print(f"medians of {REPETITIONS} interleaved processes; one slot, all agents waiting\n")
    print("| agents | fairgate, grants/s | loco-agent 0.4.0, grants/s | ratio | bar | ok? |")
    print("| ---: | ---: | ---: | ---: | ---: | --- |")
    missed = 0
    rates: dict[int, float] = {}
    for agents, bar, ours, theirs in CASES:
        pairs = [(child("fairgate", agents, ours), child("loco", agents, theirs)) for _ in range(REPETITIONS)]
        fast, slow = (statistics.median(each) for each in zip(*pairs))
        # A ratio of pairs that ran side by side: what else the machine does weighs on both.
        ratio = statistics.median(mine / other for mine, other in pairs)
        rates[agents] = fast
        missed += ratio < bar
        verdict = "ok" if ratio >= bar else "MISSED"
        print(f"| {agents} | {fast:,.0f} | {slow:,.0f} | {ratio:,.0f}× | ≥ {bar:,}× | {verdict} |", flush=True)
    many = [rate for agents, rate in rates.items() if agents >= 100]
    missed += _verdict("\nGrants per second from 100 to 10 000 agents differ by", max(many) / min(many), FLAT_BAR)
    slot, semaphore, limiter = (
        statistics.median(child(what) for _ in range(REPETITIONS)) for what in ("slot", "semaphore", "limiter")
    )
    print(f"A slot that nobody else wants: {slot:,.0f} ns; asyncio.Semaphore {semaphore:,.0f} ns, aiolimiter {limiter:,.0f} ns.")
    missed += _verdict("Beside a Semaphore's that is", slot / semaphore, SEMAPHORES_BAR)
    tasks, requests = child("tasks"), child("requests")
    print(f"\nMemory of one of {WAITING:,} that wait, resident: asyncio's own task on a future {tasks:,.0f} B; ", end="")
    print(f"a task that waits for a slot {requests:,.0f} B, so {requests - tasks:,.0f} B for the request.")
    return missed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure_here(arguments.measure)
    else:
        sys.exit(report())

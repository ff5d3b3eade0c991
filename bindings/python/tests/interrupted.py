"""Presses Ctrl-C once, while the native part calls Python code: `python interrupted.py PHASE`.

A program of its own, which prints what became of that one press. The press is a signal that the program sends itself in
the code that is called, so that it arrives there each time.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import fairgate
from fairgate._core import Gate

POLICY = '{"load":{"by":"agent"}}'
#: How many times was pressed.
presses = 0


def press(*_: Any, number: int = signal.SIGINT) -> None:
    """Presses, the first time that it is called."""
    global presses
    presses += 1
    if presses == 1:
        os.kill(os.getpid(), number)
        # Python calls the handler within the next steps, all of them in here.
        for _step in range(1000):
            pass


class Pressing:
    """A value that presses when it is read or printed."""

    def __index__(self) -> int:
        press()
        return 1

    def __float__(self) -> float:
        press()
        return 1.0

    def __repr__(self) -> str:
        press()
        return "pressing"


class Printed:
    """A value that can only be printed, which presses."""

    def __repr__(self) -> str:
        press()
        return "printed"


def dropped_while_held(scheduler: fairgate.Scheduler) -> None:
    scheduler.acquire_blocking("a")


def dropped_in_a_circle(scheduler: fairgate.Scheduler) -> None:
    circle: list[Any] = [scheduler.acquire_blocking("a")]
    circle.append(circle)
    del circle
    gc.collect()


def dropped_while_raising(scheduler: fairgate.Scheduler) -> None:
    try:
        [scheduler.acquire_blocking("a"), {}["no"]]
    except KeyError:
        pass


def dropped_in_a_task(scheduler: fairgate.Scheduler) -> None:
    async def main() -> None:
        await scheduler.acquire("a")
        await asyncio.sleep(60)

    asyncio.run(main())


def reading_a_weight(scheduler: fairgate.Scheduler) -> None:
    ignoring(lambda: scheduler.slot("a", weight=Pressing()))  # type: ignore[arg-type]


def reading_a_timeout(scheduler: fairgate.Scheduler) -> None:
    ignoring(lambda: scheduler.slot("a", timeout=Pressing()))  # type: ignore[arg-type]


def reading_a_priority(scheduler: fairgate.Scheduler) -> None:
    ignoring(lambda: scheduler.slot("a", priority=Pressing()))  # type: ignore[arg-type]


def reading_a_cost(scheduler: fairgate.Scheduler) -> None:
    ignoring(lambda: scheduler.acquire_blocking("a", cost=Pressing()).release())


def reading_tokens(scheduler: fairgate.Scheduler) -> None:
    with scheduler.slot("a") as slot:
        ignoring(lambda: slot.settle(Pressing()))  # type: ignore[arg-type]


def printing_an_argument(scheduler: fairgate.Scheduler) -> None:
    ignoring(lambda: scheduler.slot(Printed()))  # type: ignore[arg-type]


def printing_tokens(scheduler: fairgate.Scheduler) -> None:
    with scheduler.slot("a") as slot:
        ignoring(lambda: slot.settle(Printed()))  # type: ignore[arg-type]


def printing_a_model(scheduler: fairgate.Scheduler) -> None:
    with scheduler.slot("a") as slot:
        ignoring(lambda: slot.settle(1, model=Printed()))  # type: ignore[arg-type]


def in_a_hook_of_a_start(_: fairgate.Scheduler) -> None:
    in_a_hook(fairgate.Scheduler(1, on_start=press))


def in_a_hook_of_a_grant(_: fairgate.Scheduler) -> None:
    in_a_hook(fairgate.Scheduler(1, on_grant=press))


def in_a_hook_of_an_end(_: fairgate.Scheduler) -> None:
    in_a_hook(fairgate.Scheduler(1, on_end=press))


def in_a_hook(scheduler: fairgate.Scheduler) -> None:
    try:
        with scheduler.slot("a"):
            pass
    except KeyboardInterrupt:
        # The slot is free at once, although the exception still refers to its block.
        assert scheduler.snapshot().in_flight == 0, scheduler
        raise


def in_an_alert(_: fairgate.Scheduler) -> None:
    budgets = {"a": fairgate.Budget(100, alert_at=(0.5,))}
    scheduler = fairgate.Scheduler(1, budgets=budgets, on_budget_alert=press)
    with scheduler.slot("a", cost=10) as slot:
        slot.settle(60)


def in_an_alarm(_: fairgate.Scheduler) -> None:
    """The alarm that was interrupted is set by the next call."""
    alarms: list[float] = []

    def alarm(seconds: float) -> None:
        press()
        alarms.append(seconds)

    gate = Gate(POLICY, 1, 10, None, alarm)
    assert gate.ask(1, "a", 1.0, None, 0, None, 0, 0) == 0
    try:
        gate.ask(2, "a", 1.0, None, 0, None, 0, 0, 60.0)
    except KeyboardInterrupt:
        assert alarms == []
        gate.tick()
        assert len(alarms) == 1, alarms
        raise


def asking_the_event_loop(scheduler: fairgate.Scheduler) -> None:
    """An event loop of a package of its own, which the native part asks for the thread that it runs in."""

    class Loop(asyncio.SelectorEventLoop):
        def __getattribute__(self, name: str) -> Any:
            if name == "_thread_id" and asks:
                press()
            return super().__getattribute__(name)

    asks = False
    # Without `asyncio.run`, which has a handler of its own.
    loop = Loop()

    async def main() -> None:
        nonlocal asks
        async with scheduler.slot("a"):
            pass
        asks = True
        async with scheduler.slot("a"):
            pass
        asks = False
        if presses == 0:
            # From Python 3.12 on, loops are not asked.
            press()

    loop.run_until_complete(main())


def ended_by_another_signal(scheduler: fairgate.Scheduler) -> None:
    def end(*_: Any) -> None:
        raise SystemExit(7)

    signal.signal(signal.SIGTERM, end)
    warnings.showwarning = lambda *_args, **_options: press(number=signal.SIGTERM)
    scheduler.acquire_blocking("a")


def pressed_by_a_thread(scheduler: fairgate.Scheduler) -> None:
    """At any time while slots are dropped, one after another."""
    warnings.showwarning = lambda *_args, **_options: None
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        scheduler.acquire_blocking("a")


def ignoring(call: Callable[[], object]) -> None:
    """Calls with an argument that may be wrong."""
    try:
        call()
    except (TypeError, ValueError):
        pass


PHASES: dict[str, Callable[[fairgate.Scheduler], None]] = {
    phase.__name__: phase
    for phase in (
        dropped_while_held,
        dropped_in_a_circle,
        dropped_while_raising,
        dropped_in_a_task,
        reading_a_weight,
        reading_a_timeout,
        reading_a_priority,
        reading_a_cost,
        reading_tokens,
        printing_an_argument,
        printing_tokens,
        printing_a_model,
        in_a_hook_of_a_start,
        in_a_hook_of_a_grant,
        in_a_hook_of_an_end,
        in_an_alert,
        in_an_alarm,
        asking_the_event_loop,
        pressed_by_a_thread,
        ended_by_another_signal,
    )
}


def main(name: str) -> None:
    # What a slot that was never given back warns with is Python code of the program's own, called by the destructor.
    warnings.simplefilter("always", ResourceWarning)
    warnings.showwarning = press
    scheduler = fairgate.Scheduler(1)
    handler = signal.getsignal(signal.SIGINT)
    try:
        PHASES[name](scheduler)
        # Anything that Python code does: the press must have arrived by now.
        for _ in range(1000):
            pass
        print("lost")
    except KeyboardInterrupt:
        print("interrupted")
    now = scheduler.snapshot()
    assert (now.in_flight, now.waiting) == (0, 0), now
    assert signal.getsignal(signal.SIGINT) is handler
    with scheduler.slot("c", timeout=10.0):
        print("and on")


if __name__ == "__main__":
    main(sys.argv[1])

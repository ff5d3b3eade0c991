"""Threads, and several event loops at once."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from waiting import idle, until, until_in_thread, waiting

import fairgate


class Thread(threading.Thread):
    """A thread whose result, or error, can be asked for."""

    def __init__(self, run: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._body = run
        self.outcome: object = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self._body()
        except BaseException as error:
            self.outcome = error

    def result(self) -> object:
        self.join(60)
        assert not self.is_alive(), "it never ended"
        return self.outcome


def in_slot(scheduler: fairgate.Scheduler, agent: str, **options: object) -> Callable[[], str]:
    def body() -> str:
        with scheduler.slot(agent, **options):  # type: ignore[arg-type]
            return "ran"

    return body


def test_a_thread_waits_for_a_slot_and_gets_it() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    with scheduler.slot("a"):
        thread = Thread(in_slot(scheduler, "b"))
        until_in_thread(waiting(scheduler, 1))
        assert thread.is_alive()
    assert thread.result() == "ran"
    assert idle(scheduler)


def test_a_thread_that_raises_gives_its_slot_to_the_next() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    with pytest.raises(LookupError), scheduler.slot("a"):
        thread = Thread(in_slot(scheduler, "b"))
        until_in_thread(waiting(scheduler, 1))
        raise LookupError
    assert thread.result() == "ran"


def test_a_threads_timeout() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    with scheduler.slot("a"):
        outcome = Thread(in_slot(scheduler, "b", timeout=0.001)).result()
        assert isinstance(outcome, fairgate.SlotTimeout)
        assert isinstance(Thread(in_slot(scheduler, "b", timeout=-1)).result(), fairgate.SlotTimeout)
        assert scheduler.snapshot().waiting == 0
    assert idle(scheduler)


def test_timeouts_that_race_grants_lose_or_win_but_never_leak() -> None:
    scheduler = fairgate.Scheduler(capacity=1, max_waiting=1000)
    outcomes = []

    def body() -> None:
        for i in range(200):
            try:
                with scheduler.slot("a", timeout=0.00001 * (i % 7)):
                    outcomes.append("ran")
            except fairgate.SlotTimeout:
                outcomes.append("timed out")

    for thread in [Thread(body) for _ in range(8)]:
        assert thread.result() is None
    assert len(outcomes) == 1600
    assert idle(scheduler)


def test_the_interpreter_is_free_while_a_thread_waits() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    with scheduler.slot("a"):
        threads = [Thread(in_slot(scheduler, f"b{i}")) for i in range(20)]
        until_in_thread(waiting(scheduler, 20))
        # Were the waiting threads to hold the interpreter, or to ask again and again, this would cost their time.
        before = time.process_time()
        threading.Event().wait(0.2)
        assert time.process_time() - before < 0.1
    assert [thread.result() for thread in threads] == ["ran"] * 20


def test_asking_while_the_thread_holds_the_last_slot_is_an_error() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    with scheduler.slot("a"):
        with pytest.raises(fairgate.WouldDeadlock, match="holds the only slot itself"):
            scheduler.acquire_blocking("b")
        assert scheduler.snapshot().waiting == 0
    slot = scheduler.acquire_blocking("a")
    scheduler.release(slot, tokens=7)
    assert scheduler.costs()[0].tokens > 0
    assert idle(scheduler)


def test_close_wakes_threads() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    with scheduler.slot("a"):
        threads = [Thread(in_slot(scheduler, "b")) for _ in range(5)]
        until_in_thread(waiting(scheduler, 5))
        scheduler.close()
        assert all(isinstance(thread.result(), fairgate.Closed) for thread in threads)
    assert idle(scheduler)


def test_no_more_threads_run_than_there_are_slots() -> None:
    scheduler = fairgate.Scheduler(capacity=3, max_waiting=1000)
    lock, running, most = threading.Lock(), 0, 0

    def body(agent: str) -> Callable[[], None]:
        def run() -> None:
            nonlocal running, most
            for _ in range(100):
                with scheduler.slot(agent):
                    with lock:
                        running += 1
                        most = max(most, running)
                    with lock:
                        running -= 1

        return run

    for thread in [Thread(body(f"a{i}")) for i in range(12)]:
        assert thread.result() is None
    assert 1 <= most <= 3
    assert scheduler.snapshot().ticks == 1200
    assert idle(scheduler)


def test_loops_and_threads_share_one_scheduler() -> None:
    scheduler = fairgate.Scheduler(capacity=2, max_waiting=10_000, auto_tune=True)
    lock, running, most = threading.Lock(), 0, 0

    def enter(by: int) -> None:
        nonlocal running, most
        with lock:
            running += by
            most = max(most, running)

    def loop() -> int:
        async def agent(name: str) -> None:
            for i in range(40):
                async with scheduler.slot(name):
                    enter(1)
                    if i % 3:
                        await asyncio.sleep(0)
                    enter(-1)

        async def main() -> int:
            await asyncio.gather(*(agent(f"a{i}") for i in range(10)))
            return 1

        return asyncio.run(main())

    def thread() -> int:
        for i in range(200):
            with scheduler.slot(f"t{i % 3}"):
                enter(1)
                enter(-1)
        return 1

    threads = [Thread(body) for body in (loop, loop, loop, thread, thread)]
    assert [t.result() for t in threads] == [1] * 5
    assert most <= 2
    assert scheduler.snapshot().ticks == 3 * 400 + 2 * 200
    assert idle(scheduler)


def test_a_waiter_whose_loop_is_closed_is_passed_over() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    slot = scheduler.acquire_blocking("a")
    loop = asyncio.new_event_loop()
    task = loop.create_task(scheduler.wrap(lambda: "never", agent_id="gone"))
    loop.run_until_complete(until(waiting(scheduler, 1)))
    loop.close()
    # On this thread, and on another one: neither can reach the task any more.
    next_ = Thread(in_slot(scheduler, "next"))
    until_in_thread(waiting(scheduler, 2))
    slot.release()
    assert next_.result() == "ran"
    assert idle(scheduler)
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_waiter_whose_loop_was_closed_by_another_thread_is_passed_over() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    slot = scheduler.acquire_blocking("a")
    tasks = []

    def abandon() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(scheduler.wrap(lambda: "never", agent_id="gone"))
        tasks.append(task)
        loop.run_until_complete(until(waiting(scheduler, 1)))
        loop.close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]

    assert Thread(abandon).result() is None
    next_ = Thread(in_slot(scheduler, "next"))
    until_in_thread(waiting(scheduler, 2))
    slot.release()
    assert next_.result() == "ran"
    assert idle(scheduler)


async def test_a_grant_from_another_thread_wakes_the_loop() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    slot = scheduler.acquire_blocking("a")
    slot.detach()
    task = asyncio.create_task(scheduler.wrap(lambda: "ran", agent_id="b"))
    await until(waiting(scheduler, 1))
    Thread(slot.release).result()
    # Nothing else happens on this loop: only the wake-up from the other thread can end the wait.
    assert await task == "ran"


async def test_a_cancel_that_races_a_grant_from_another_thread_leaks_nothing() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    for _ in range(300):
        slot = scheduler.acquire_blocking("a")
        slot.detach()
        task = asyncio.create_task(scheduler.wrap(lambda: "ran", agent_id="b"))
        await until(waiting(scheduler, 1))
        thread = Thread(slot.release)
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        assert outcome == "ran" or isinstance(outcome, asyncio.CancelledError)
        thread.result()
        await until(lambda: idle(scheduler))

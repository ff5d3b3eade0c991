"""A timeout is a deadline: queues order by it, and the core ends the wait when it has passed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import json
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from desk import Desk
from test_threads import Thread, in_slot
from waiting import idle, until, until_in_thread, waiting

import fairgate
from fairgate._core import Gate
from fairgate.clock import _Clock

EDF = '{"share":{"by":"agent","queue":"edf"}}'


# -- who goes first -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["load", "share"])
def test_the_earliest_deadline_goes_first_and_none_last(policy: str) -> None:
    desk = Desk(policy=policy, queue="edf")
    held = desk.ask("a")
    never, late, soon, later, same = (
        desk.ask("a", timeout=timeout) for timeout in (None, 3000.0, 1000.0, 2000.0, 2000.0)
    )
    while held:
        desk.release(held)
        held = desk.granted[-1] if len(desk.granted) < 6 else 0
    assert desk.granted[1:] == [soon, later, same, late, never]


def test_a_higher_priority_goes_before_an_earlier_deadline() -> None:
    desk = Desk(policy="share", queue="edf")
    held = desk.ask("a")
    soon, important = desk.ask("a", timeout=10.0), desk.ask("a", priority=1)
    desk.release(held)
    desk.release(important)
    assert desk.granted == [held, important, soon]


def test_without_edf_a_deadline_changes_no_order() -> None:
    desk = Desk(policy="share")
    held = desk.ask("a")
    first, second = desk.ask("a"), desk.ask("a", timeout=10.0)
    desk.release(held)
    desk.release(first)
    assert desk.granted == [held, first, second]


async def test_tasks_are_granted_in_the_order_of_their_deadlines() -> None:
    scheduler = fairgate.Scheduler(capacity=1, policy="share", queue="edf")
    order: list[float | None] = []

    async def call(timeout: float | None) -> None:
        async with scheduler.slot("a", timeout=timeout):
            order.append(timeout)

    async with scheduler.slot("a"):
        tasks = [asyncio.create_task(call(timeout)) for timeout in (None, 90.0, 30.0, 60.0)]
        await until(waiting(scheduler, 4))
    await asyncio.gather(*tasks)
    assert order == [30.0, 60.0, 90.0, None]
    assert idle(scheduler)


# -- when it passes -------------------------------------------------------------------------------------------------


def test_a_wait_ends_at_its_deadline_and_not_before() -> None:
    desk = Desk()
    held = desk.ask("a")
    late, soon, never = (desk.ask("a", timeout=timeout) for timeout in (20_000.0, 10_000.0, None))
    desk.skip_time(9_000)
    assert desk.expired == []
    desk.skip_time(1_000)
    assert desk.expired == [soon]
    desk.skip_time(10_000)
    assert desk.expired == [soon, late]
    desk.skip_time(1_000_000)
    desk.release(held)
    assert desk.granted == [held, never]
    assert desk.gate.report()["waiting"] == 0


def test_whose_deadlines_pass_together_are_told_in_the_order_in_which_they_came() -> None:
    gate = Gate(EDF, 1, 100, None, print)
    assert gate.ask(1, "a", 1.0, None, 0, None, 0, 0) == 0
    told: list[tuple[int, Any]] = []

    class Queue:
        def __init__(self, id: int) -> None:
            self.id = id

        def put(self, news: Any) -> None:
            told.append((self.id, news))

    for id in range(2, 8):
        assert gate.ask(id, "a", 1.0, None, 0, None, 0, 0, 1000.0 - id) is None
        assert gate.wait(id, Queue(id), None) is None  # type: ignore[arg-type]
    gate.skip_time(1000)
    assert told == [(id, ("timeout",)) for id in range(2, 8)]


def test_a_gate_asks_to_be_told_the_time_at_its_next_deadline_only() -> None:
    alarms: list[float] = []
    gate = Gate(EDF, 1, 100, None, alarms.append)
    ids = itertools.count(1)

    def ask(timeout: float | None) -> None:
        gate.ask(next(ids), "a", 1.0, None, 0, None, 0, 0, timeout)

    ask(5000.0)
    assert alarms == [], "who is granted at once waits for nothing"
    ask(None)
    assert alarms == []
    ask(5000.0)
    assert len(alarms) == 1 and 4900 < alarms[-1] <= 5000
    ask(9000.0)
    assert len(alarms) == 1, "it is looked at again then"
    ask(1000.0)
    assert len(alarms) == 2 and 900 < alarms[-1] <= 1000
    gate.skip_time(1000)
    assert len(alarms) == 3 and 3900 < alarms[-1] <= 4000


def test_a_grant_comes_before_a_deadline_that_is_told_too_late() -> None:
    desk = Desk()
    held = desk.ask("a")
    waits = desk.ask("a", timeout=1000.0)
    desk.release(held)
    desk.skip_time(5000)
    assert desk.granted == [held, waits] and desk.expired == []
    assert desk.gate.report()["in_flight"] == 1


def test_an_event_after_the_deadline_grants_nobody_who_is_late() -> None:
    """The release comes when the deadline has passed, before anybody has said that it has."""
    desk = Desk()
    held = desk.ask("a")
    late = desk.ask("a", timeout=0.000_001)
    other = desk.ask("a")
    time.sleep(0.001)
    desk.release(held)
    assert (desk.granted, desk.expired) == ([held, other], [late])


def test_no_time_at_all_is_a_question_whether_a_slot_is_free() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    with scheduler.slot("a", timeout=0) as slot:
        assert slot.held
        for timeout in (0, 0.0, -3.0):
            outcome = Thread(in_slot(scheduler, "b", timeout=timeout)).result()
            assert isinstance(outcome, fairgate.SlotTimeout)
    assert scheduler.snapshot().agents["b"].withdrawals == 3
    assert idle(scheduler)


async def test_no_time_at_all_needs_no_turn_of_the_loop() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    held = await scheduler.acquire("a")
    entering = scheduler.slot("b", timeout=0).__aenter__()
    with pytest.raises(fairgate.SlotTimeout):
        entering.send(None)
    held.release()
    assert idle(scheduler)


async def test_a_task_hears_of_its_deadline() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("a"):
        late = asyncio.create_task(scheduler.acquire("b", timeout=1000.0))
        other = asyncio.create_task(scheduler.run(fairgate.CallOptions("c", timeout=5000.0), lambda: "ran"))
        await until(waiting(scheduler, 2))
        scheduler._gate.skip_time(1000)
        with pytest.raises(fairgate.SlotTimeout, match="agent 'b' got no slot within 1000 s, its own timeout") as error:
            await late
        assert isinstance(error.value, TimeoutError)
        assert (error.value.limit, error.value.timeout, error.value.retry_after) == ("timeout", 1000.0, None)
        assert not other.done() and waiting(scheduler, 1)()
    assert await other == "ran"
    its = scheduler.snapshot().agents["b"]
    assert (its.withdrawals, its.grants, its.refusals) == (1, 0, {})
    assert idle(scheduler)


def test_a_thread_hears_of_its_deadline() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    with scheduler.slot("a"):
        late = Thread(in_slot(scheduler, "b", timeout=1000.0))
        other = Thread(in_slot(scheduler, "c", timeout=5000.0))
        until_in_thread(waiting(scheduler, 2))
        scheduler._gate.skip_time(1000)
        assert isinstance(late.result(), fairgate.SlotTimeout)
        assert other.is_alive()
    assert other.result() == "ran"
    assert idle(scheduler)


async def test_a_deadline_ends_no_call_that_has_its_slot() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("a", timeout=10.0) as slot:
        scheduler._gate.skip_time(1000)
        await asyncio.sleep(0)
        assert slot.held and scheduler.snapshot().in_flight == 1


@pytest.mark.parametrize("timeout", [0.001, 0.05])
async def test_the_clock_ends_waits_in_tasks_in_time(timeout: float) -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("a"):
        began = time.monotonic()
        outcomes = await asyncio.gather(
            *(asyncio.create_task(scheduler.acquire("b", timeout=timeout * n)) for n in (3, 1, 2)), return_exceptions=True
        )
        took = time.monotonic() - began
    assert [type(outcome) for outcome in outcomes] == [fairgate.SlotTimeout] * 3
    assert 3 * timeout <= took < 3 * timeout + 5
    assert idle(scheduler)


def test_the_clock_ends_waits_in_threads_in_time() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    with scheduler.slot("a"):
        began = time.monotonic()
        threads = [Thread(in_slot(scheduler, "b", timeout=0.01 * n)) for n in range(10, 0, -1)]
        assert {type(thread.result()) for thread in threads} == {fairgate.SlotTimeout}
        assert 0.1 <= time.monotonic() - began < 5
    assert idle(scheduler)


def test_a_blocked_event_loop_keeps_nobody_in_the_queue() -> None:
    """The wait ends in the scheduler although its task cannot run: the slot goes to somebody else."""
    scheduler = fairgate.Scheduler(capacity=1)
    held = scheduler.acquire_blocking("a")

    async def blocked() -> None:
        late = asyncio.create_task(scheduler.acquire("b", timeout=0.01))
        await until(waiting(scheduler, 1))
        until_in_thread(waiting(scheduler, 0))
        with pytest.raises(fairgate.SlotTimeout):
            await late

    asyncio.run(blocked())
    held.release()
    assert idle(scheduler)


# -- budgets --------------------------------------------------------------------------------------------------------


async def test_a_deadline_ends_a_wait_for_budget() -> None:
    scheduler = fairgate.Scheduler(capacity=1, budgets={"a": fairgate.Budget(10, "wait")})
    late = asyncio.create_task(scheduler.acquire("a", cost=100, timeout=1000.0))
    patient = asyncio.create_task(scheduler.acquire("a", cost=100, timeout=3000.0))
    await until(lambda: scheduler.snapshot().waiting_for_budget == 2)
    scheduler._gate.skip_time(1000)
    with pytest.raises(fairgate.SlotTimeout):
        await late
    now = scheduler.snapshot()
    assert now.waiting_for_budget == 1 and now.agents["a"].withdrawals == 1
    scheduler.set_budget("a", 1000)
    (await patient).release()
    assert idle(scheduler)


async def test_time_that_was_waited_for_budget_counts(tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    scheduler = fairgate.Scheduler(capacity=1, budgets={"a": fairgate.Budget(10, "wait")}, journal=journal)
    held = await scheduler.acquire("other")
    late = asyncio.create_task(scheduler.acquire("a", cost=100, timeout=1000.0))
    await until(lambda: scheduler.snapshot().waiting_for_budget == 1)
    scheduler._gate.skip_time(600)
    scheduler.set_budget("a", 1000)
    await until(waiting(scheduler, 1))
    scheduler._gate.skip_time(400)
    with pytest.raises(fairgate.SlotTimeout):
        await late
    held.release()
    scheduler.close()
    assert idle(scheduler)
    budget = scheduler.snapshot().agents["a"].budget
    assert budget is not None and (budget.reserved, budget.spent) == (0, 0)
    submits = [json.loads(line) for line in journal.read_text().splitlines() if '"agent":"a"' in line]
    assert [300_000_000 < submit["timeout_us"] <= 400_000_000 for submit in submits] == [True]


def test_budget_that_comes_after_the_deadline_is_for_others() -> None:
    """The budget comes when the deadline has passed, before anybody has said that it has."""
    gate = Gate(EDF, 1, 100, None, lambda _: None)
    gate.set_budget("a", 10, True, None, None, [])
    late: SimpleQueue[Any] = SimpleQueue()
    patient: SimpleQueue[Any] = SimpleQueue()
    for id, queue, timeout in ((1, late, 0.000_001), (2, patient, None)):
        assert gate.ask(id, "a", 1.0, 100, 0, None, 0, 0, timeout) is None
        assert gate.wait(id, queue, None) is None
    time.sleep(0.001)
    gate.set_budget("a", 100, True, None, None, [])
    assert late.get_nowait() == ("timeout",)
    assert isinstance(patient.get_nowait(), int)
    gate.release(2)
    its = gate.report()["agents"][0]
    assert (its["waiting_for_budget"], its["in_flight"], its["withdrawals"]) == (0, 0, 1)
    assert its["budget"]["reserved"] == 0


# -- retries --------------------------------------------------------------------------------------------------------


class Limited(Exception):
    status_code = 429
    headers = {"retry-after": "60"}


async def test_a_deadline_counts_through_retries() -> None:
    scheduler = fairgate.Scheduler(capacity=1, retry_seconds=1000)

    async def call() -> None:
        async with scheduler.slot("a", timeout=500.0) as slot:
            await slot.retry(Limited())

    task = asyncio.create_task(call())
    await until(waiting(scheduler, 1))
    # The provider's pause is over after a minute; from then on the hold is why it waits.
    scheduler.hold("a")
    scheduler._gate.skip_time(300)
    assert waiting(scheduler, 1)()
    scheduler._gate.skip_time(200)
    with pytest.raises(Limited):
        await task
    assert idle(scheduler)


def test_a_retry_in_a_thread_ends_at_its_deadline() -> None:
    scheduler = fairgate.Scheduler(capacity=1)

    def call() -> None:
        with scheduler.slot("a", timeout=500.0) as slot:
            slot.retry_blocking(Limited())

    thread = Thread(call)
    until_in_thread(waiting(scheduler, 1))
    scheduler.hold("a")
    scheduler._gate.skip_time(500)
    assert isinstance(thread.result(), Limited)
    assert idle(scheduler)


# -- nothing is left behind -----------------------------------------------------------------------------------------


async def test_cancelled_waits_with_deadlines_leave_nothing() -> None:
    scheduler = fairgate.Scheduler(capacity=1, policy="share", queue="edf")
    async with scheduler.slot("a"):
        tasks = [asyncio.create_task(scheduler.acquire("b", timeout=1000.0 + n)) for n in range(200)]
        await until(waiting(scheduler, 200))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert scheduler.snapshot().waiting == 0
        gone = [weakref.ref(task) for task in tasks]
        del tasks, task
        await asyncio.sleep(0)  # the loop lets go of them
        gc.collect()
        assert [ref() for ref in gone] == [None] * 200
        scheduler._gate.skip_time(5000)
    assert scheduler.snapshot().agents["b"].withdrawals == 200
    assert idle(scheduler)


def test_waits_that_come_and_go_set_few_alarms() -> None:
    alarms: list[float] = []
    gate = Gate(EDF, 1, 100, None, alarms.append)
    gate.ask(1, "a", 1.0, None, 0, None, 0, 0)
    for id in range(2, 2000):
        gate.ask(id, "a", 1.0, None, 0, None, 0, 0, 1000.0)
        gate.wait(id, SimpleQueue(), None)
        gate.cancel(id)
    assert len(alarms) == 1


def test_the_clock_keeps_one_alarm_for_each_gate() -> None:
    """An alarm in the far future, and many that are sooner: each that passes sets the far one again."""

    class Gate:
        def __init__(self) -> None:
            self.ticks: SimpleQueue[float] = SimpleQueue()

        def tick(self) -> None:
            self.ticks.put(time.monotonic())

    clock, gate = _Clock(), Gate()
    ref: Any = weakref.ref(gate)
    for _ in range(100):
        now = time.monotonic()
        clock.wake(now + 3600, ref)
        clock.wake(now, ref)
        gate.ticks.get(timeout=10)
    far = time.monotonic() + 0.05
    for _ in range(100):
        clock.wake(far, ref)
    assert gate.ticks.get(timeout=10) >= far
    clock.stop()
    assert gate.ticks.empty(), "a hundred alarms of one gate at one time are one"
    assert not clock.is_running()


def test_a_later_alarm_that_arrives_last_takes_no_earlier_one_away() -> None:
    class Gate:
        def __init__(self) -> None:
            self.told = threading.Event()

        def tick(self) -> None:
            self.told.set()

    clock, gate = _Clock(), Gate()
    ref: Any = weakref.ref(gate)
    now = time.monotonic()
    clock.wake(now + 0.05, ref)
    clock.wake(now + 3600, ref)
    assert gate.told.wait(10)
    clock.stop()


def test_deadlines_hold_where_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    scheduler = fairgate.Scheduler(capacity=1)
    held = scheduler.acquire_blocking("a")
    monkeypatch.setattr(fairgate.clock, "_clock", _Clock())
    with monkeypatch.context() as here:
        here.setattr(threading.Thread, "start", too_many)
        with pytest.raises(fairgate.SlotTimeout):
            scheduler.acquire_blocking("b", timeout=0.01)
    held.release()
    assert idle(scheduler)


def test_deadlines_hold_when_the_program_ends() -> None:
    """Handlers that were registered before the package's own run after its clock has stopped."""
    program = """
import atexit

def last():
    import asyncio
    try:
        with scheduler.slot("thread", timeout=0.01):
            pass
    except fairgate.SlotTimeout as error:
        print(error)
    async def task():
        async with scheduler.slot("task", timeout=0.01):
            pass
    try:
        asyncio.run(task())
    except fairgate.SlotTimeout as error:
        print(error)
    held.release()

atexit.register(last)
import fairgate
scheduler = fairgate.Scheduler(capacity=1)
held = scheduler.acquire_blocking("a")
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    assert [line.split()[4] for line in run.stdout.splitlines()] == ["'thread'", "'task'"]


# -- what may be said -----------------------------------------------------------------------------------------------


def test_for_ever_is_for_ever_in_a_thread() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    with scheduler.slot("a"):
        thread = Thread(in_slot(scheduler, "b", timeout=float("inf")))
        until_in_thread(waiting(scheduler, 1))
    assert thread.result() == "ran"


async def test_what_is_no_time_is_refused_and_for_ever_is_for_ever(tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    scheduler = fairgate.Scheduler(capacity=1, journal=journal)
    with pytest.raises(ValueError, match="timeout must be a number of seconds, not nan"):
        await scheduler.acquire("a", timeout=float("nan"))
    held = await scheduler.acquire("a", timeout=1.5)
    waits = asyncio.create_task(scheduler.acquire("a", timeout=float("inf")))
    await until(waiting(scheduler, 1))
    scheduler._gate.skip_time(3600 * 24 * 365)
    held.release()
    (await waits).release()
    scheduler.close()
    submits = [json.loads(line) for line in journal.read_text().splitlines()[1:] if '"submit"' in line]
    assert [submit.get("timeout_us") for submit in submits] == [1_500_000, None]


async def test_a_journal_with_deadlines_replays_to_the_line(fairgate_binary: str, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    scheduler = fairgate.Scheduler(capacity=1, policy="share", queue="edf", journal=journal)
    order: list[str] = []

    async def call(timeout: float | None) -> None:
        with contextlib.suppress(fairgate.SlotTimeout):
            async with scheduler.slot("a", timeout=timeout) as slot:
                order.append(slot.id)

    async with scheduler.slot("a") as first:
        order.append(first.id)
        tasks = [asyncio.create_task(call(timeout)) for timeout in (None, 9000.0, 100.0, 8000.0)]
        await until(waiting(scheduler, 4))
        scheduler._gate.skip_time(1000)
    await asyncio.gather(*tasks)
    scheduler.close()
    run = subprocess.run([fairgate_binary, "replay", str(journal)], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    decisions = [json.loads(line) for line in run.stdout.splitlines()]
    assert [line["id"] for line in decisions if line["decision"] == "grant"] == order and len(order) == 4
    assert sum(line["decision"] == "expire" for line in decisions) == 1
    header = json.loads(journal.read_text().splitlines()[0])
    assert header["machine"] == 3 and header["clock"]["at"] == 0

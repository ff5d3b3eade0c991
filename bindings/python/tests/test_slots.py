"""Slots in tasks: every way in which holding or waiting can end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import idle, until, waiting

import fairgate


async def holder(scheduler: fairgate.Scheduler, agent: str, until_: asyncio.Event) -> None:
    async with scheduler.slot(agent):
        await until_.wait()


async def test_a_slot_is_granted_held_and_given_back() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    slot = scheduler.slot("a")
    assert not slot.held and slot.id == ""
    async with slot as same:
        assert same is slot and slot.held
        assert scheduler.snapshot().in_flight == 1
    assert not slot.held
    assert idle(scheduler)
    assert scheduler.snapshot().agents["a"].grants == 1


async def test_waiters_of_one_agent_are_first_come_first_served() -> None:
    scheduler = fairgate.Scheduler(capacity=2, auto_tune=True)
    order: list[int] = []

    async def call(number: int) -> None:
        async with scheduler.slot("a"):
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(call(n) for n in range(50)))
    assert order == list(range(50))


async def test_a_higher_priority_goes_first_within_its_agent() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    order: list[int] = []

    async def call(priority: int) -> None:
        async with scheduler.slot("a", priority=priority):
            order.append(priority)

    async with scheduler.slot("a"):
        tasks = [asyncio.create_task(call(p)) for p in (0, -1, 5)]
        await until(waiting(scheduler, 3))
    await asyncio.gather(*tasks)
    assert order == [5, 0, -1]


async def test_a_holder_that_raises_gives_its_slot_to_the_next() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    reached = asyncio.Event()

    async def fails() -> None:
        async with scheduler.slot("a"):
            await reached.wait()
            raise LookupError("the model said no")

    failing = asyncio.create_task(fails())
    await until(lambda: scheduler.snapshot().in_flight == 1)
    next_ = asyncio.create_task(scheduler.wrap(lambda: "ran", agent_id="b"))
    await until(waiting(scheduler, 1))
    reached.set()
    with pytest.raises(LookupError):
        await failing
    assert await next_ == "ran"
    assert idle(scheduler)


async def test_a_cancelled_holder_gives_its_slot_to_the_next() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    holding = asyncio.create_task(holder(scheduler, "a", asyncio.Event()))
    await until(lambda: scheduler.snapshot().in_flight == 1)
    next_ = asyncio.create_task(scheduler.wrap(lambda: "ran", agent_id="b"))
    await until(waiting(scheduler, 1))
    holding.cancel()
    assert await next_ == "ran"
    assert idle(scheduler)


async def test_a_cancelled_waiter_leaves_the_queue() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("a"):
        waiter = asyncio.create_task(scheduler.wrap(lambda: "never", agent_id="b"))
        await until(waiting(scheduler, 1))
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert scheduler.snapshot().waiting == 0
    assert scheduler.snapshot().agents["b"].withdrawals == 1
    assert idle(scheduler)


async def test_a_cancel_that_races_the_grant_leaks_nothing() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    first = await scheduler.acquire("a")
    waiter = asyncio.create_task(scheduler.wrap(lambda: "never", agent_id="b"))
    after = asyncio.create_task(scheduler.wrap(lambda: "ran", agent_id="c"))
    await until(waiting(scheduler, 2))
    # In one go: the waiter is granted the slot, and cancelled before it has run a step with it.
    first.release()
    assert scheduler.snapshot().in_flight == 1
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert await after == "ran"
    assert idle(scheduler)


async def test_a_grant_that_races_the_cancel_leaks_nothing() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    first = await scheduler.acquire("a")
    waiter = asyncio.create_task(scheduler.wrap(lambda: "never", agent_id="b"))
    after = asyncio.create_task(scheduler.wrap(lambda: "ran", agent_id="c"))
    await until(waiting(scheduler, 2))
    waiter.cancel()
    first.release()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert await after == "ran"
    assert idle(scheduler)


async def test_wait_for_around_a_slot_leaks_nothing() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    done = asyncio.Event()
    holding = asyncio.create_task(holder(scheduler, "a", done))
    await until(lambda: scheduler.snapshot().in_flight == 1)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(scheduler.acquire("b"), timeout=0.001)
    assert scheduler.snapshot().waiting == 0
    done.set()
    await holding
    assert idle(scheduler)


async def test_a_timeout_ends_the_wait_and_wakes_nobody_else() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    done = asyncio.Event()
    holding = asyncio.create_task(holder(scheduler, "a", done))
    await until(lambda: scheduler.snapshot().in_flight == 1)
    other = asyncio.create_task(scheduler.wrap(lambda: "ran", agent_id="c"))
    await until(waiting(scheduler, 1))
    with pytest.raises(fairgate.SlotTimeout, match="agent 'b' got no slot within 0.001 s") as error:
        async with scheduler.slot("b", timeout=0.001):
            raise AssertionError("it has no slot")
    assert isinstance(error.value, TimeoutError)
    assert not other.done()
    assert scheduler.snapshot().waiting == 1
    done.set()
    await holding
    assert await other == "ran"
    assert idle(scheduler)


async def test_a_timeout_that_races_the_grant_loses() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    first = await scheduler.acquire("a")
    slot = scheduler.slot("b", timeout=60)
    entering = asyncio.ensure_future(slot.__aenter__())
    await until(waiting(scheduler, 1))
    first.release()
    # The timer fires after the grant, before the task has run: the grant stands.
    fairgate.slot._time_out(slot, asyncio.get_running_loop().create_future())
    await entering
    assert slot.held
    slot.release()
    assert idle(scheduler)


async def test_a_timed_out_holder_gives_its_slot_to_the_next() -> None:
    scheduler = fairgate.Scheduler(capacity=1)

    async def slow() -> None:
        async with scheduler.slot("a"):
            await asyncio.Event().wait()

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(slow(), timeout=0.001)
    assert await scheduler.wrap(lambda: "ran", agent_id="b") == "ran"


async def test_close_wakes_every_waiter_with_an_error_and_runs_nobody() -> None:
    scheduler = fairgate.Scheduler(capacity=1, budgets={"poor": fairgate.Budget(0, "wait")})
    ran: list[str] = []
    async with scheduler.slot("a") as slot:
        tasks = [
            asyncio.create_task(scheduler.wrap(ran.append, agent, agent_id=agent))
            for agent in ("b", "c", "poor")
        ]
        await until(lambda: scheduler.snapshot().waiting + scheduler.snapshot().waiting_for_budget == 3)
        scheduler.close()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(o) for o in outcomes] == [fairgate.Closed] * 3
        assert slot.held, "who holds a slot keeps it"
        with pytest.raises(fairgate.Closed, match="agent 'd' got no slot: the scheduler is closed"):
            await scheduler.acquire("d")
    assert ran == []
    assert idle(scheduler)
    with pytest.raises(fairgate.Closed):
        await scheduler.acquire("d")
    scheduler.close()


async def test_a_scheduler_closes_with_its_block() -> None:
    async with fairgate.Scheduler() as scheduler:
        assert not scheduler.closed
    assert scheduler.closed
    with fairgate.Scheduler() as scheduler:
        pass
    assert scheduler.closed


async def test_unknown_agents_simply_exist() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    for agent in ("", "näme", "a" * 1000, "line\nbreak"):
        async with scheduler.slot(agent):
            assert scheduler.snapshot().agents[agent].in_flight == 1
    assert idle(scheduler)


async def test_a_full_queue_refuses_the_loud_and_says_when_to_come_back() -> None:
    scheduler = fairgate.Scheduler(capacity=1, max_waiting=2)
    for _ in range(3):
        async with scheduler.slot("loud"):
            pass
    async with scheduler.slot("loud"):
        loud = [asyncio.create_task(scheduler.wrap(lambda: "ran", agent_id="loud")) for _ in range(2)]
        await until(waiting(scheduler, 2))
        with pytest.raises(fairgate.QueueFull) as refused:
            await scheduler.acquire("loud")
        assert (refused.value.reason, refused.value.waiting, refused.value.limit) == ("queue_full", 2, 2)
        assert refused.value.retry_after is not None and refused.value.retry_after >= 0
        # A quieter agent is let in, and the loud one's last request makes room.
        quiet = asyncio.create_task(scheduler.wrap(lambda: "ran", agent_id="quiet"))
        with pytest.raises(fairgate.QueueFull, match="pushed out by a quieter agent") as pushed:
            await loud[1]
        assert pushed.value.reason == "pushed_out"
    assert await loud[0] == await quiet == "ran"
    assert idle(scheduler)
    assert scheduler.snapshot().agents["loud"].refusals == {"queue_full": 1, "pushed_out": 1}


async def test_nobody_may_wait_where_max_waiting_is_zero() -> None:
    scheduler = fairgate.Scheduler(capacity=1, max_waiting=0)
    async with scheduler.slot("a"):
        with pytest.raises(fairgate.QueueFull, match="0 requests wait, max_waiting is 0$") as refused:
            await scheduler.acquire("b")
        assert refused.value.retry_after is None


# -- asking while holding ------------------------------------------------------------------------------------------


async def test_asking_while_holding_the_last_slot_is_an_error() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("a"):
        with pytest.raises(fairgate.WouldDeadlock, match="holds the only slot itself"):
            async with scheduler.slot("b"):
                raise AssertionError("it has no slot")
        assert scheduler.snapshot().waiting == 0
    assert idle(scheduler)


async def test_asking_while_holding_all_slots_is_an_error() -> None:
    scheduler = fairgate.Scheduler(capacity=2)
    async with scheduler.slot("a"), scheduler.slot("a"):
        with pytest.raises(fairgate.WouldDeadlock, match="holds all 2 slots itself"):
            await scheduler.acquire("a")
    assert idle(scheduler)


async def test_asking_while_another_holds_a_slot_too_is_not() -> None:
    scheduler = fairgate.Scheduler(capacity=2)
    done = asyncio.Event()
    other = asyncio.create_task(holder(scheduler, "other", done))
    await until(lambda: scheduler.snapshot().in_flight == 1)
    async with scheduler.slot("a"):
        asyncio.get_running_loop().call_soon(done.set)
        async with scheduler.slot("a"):
            assert scheduler.snapshot().in_flight == 2
    await other


async def test_two_tasks_that_wait_for_each_other_are_noticed() -> None:
    scheduler = fairgate.Scheduler(capacity=2)
    both = asyncio.Barrier(2) if hasattr(asyncio, "Barrier") else None
    if both is None:
        pytest.skip("asyncio.Barrier is new in Python 3.11")

    async def greedy() -> str:
        async with scheduler.slot("a"):
            await both.wait()
            try:
                async with scheduler.slot("a"):
                    return "both"
            except fairgate.WouldDeadlock as error:
                assert "wait for another one" in str(error)
                return "refused"

    # The second to ask is refused and gives its slot back, with which the first goes on.
    assert sorted(await asyncio.gather(greedy(), greedy())) == ["both", "refused"]
    assert idle(scheduler)


async def test_asking_while_holding_is_no_error_where_slots_are_free() -> None:
    scheduler = fairgate.Scheduler(capacity=2)
    scheduler.hold("b")
    async with scheduler.slot("a"):
        asyncio.get_running_loop().call_soon(scheduler.resume, "b")
        async with scheduler.slot("b"):
            assert scheduler.snapshot().in_flight == 2
    assert idle(scheduler)


async def test_a_slot_that_was_handed_on_does_not_count() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    slot = scheduler.slot("a")
    await slot.__aenter__()
    with pytest.raises(fairgate.WouldDeadlock):
        await scheduler.acquire("a")
    slot.detach()
    asyncio.get_running_loop().call_soon(slot.release)
    async with scheduler.slot("a"):
        pass
    assert idle(scheduler)


async def test_a_child_task_may_wait_for_its_parents_slot() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("parent"):
        child = asyncio.create_task(scheduler.wrap(lambda: "ran", agent_id="child"))
        await until(waiting(scheduler, 1))
    assert await child == "ran"


# -- forgotten slots ------------------------------------------------------------------------------------------------


async def test_a_forgotten_slot_is_given_back_with_a_warning() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    slot = await scheduler.acquire("a")
    with pytest.warns(ResourceWarning, match="was never given back"):
        del slot
        gc.collect()
    assert idle(scheduler)


def test_a_task_that_is_dropped_with_its_loop_gives_its_slot_back() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    loop = asyncio.new_event_loop()
    task = loop.create_task(holder(scheduler, "a", asyncio.Event()))
    loop.run_until_complete(until(lambda: scheduler.snapshot().in_flight == 1))
    loop.close()
    gone = weakref.ref(task)
    # Python's own remark that a pending task was destroyed goes to its logger.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()
    assert gone() is None
    assert idle(scheduler)


async def test_a_slot_is_used_once() -> None:
    scheduler = fairgate.Scheduler()
    slot = scheduler.slot("a")
    async with slot:
        with pytest.raises(fairgate.FairgateError, match="used before"):
            await slot.__aenter__()
    with pytest.raises(fairgate.FairgateError, match="used before"), slot:
        pass
    slot.release()
    assert idle(scheduler)


async def test_a_plain_with_in_a_coroutine_never_stops_the_loop() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    with scheduler.slot("a"):
        pass
    other = asyncio.create_task(holder(scheduler, "other", asyncio.Event()))
    await until(lambda: scheduler.snapshot().in_flight == 1)
    with pytest.raises(fairgate.WouldDeadlock, match="in a coroutine use `async with`"):
        with scheduler.slot("a"):
            pass
    other.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await other
    assert idle(scheduler)


# -- any mixture ----------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), capacity=st.integers(1, 4))
def test_whatever_happens_nothing_is_lost(seed: int, capacity: int) -> None:
    """Calls that end in all ways at random moments: never too many at once, and in the end nobody."""
    chance = random.Random(seed)
    scheduler = fairgate.Scheduler(capacity, max_waiting=12, auto_tune=True, budgets={"b": 30_000})
    running = 0

    async def call(agent: str) -> None:
        nonlocal running
        timeout = chance.choice([None, None, 0.0, 0.001])
        async with scheduler.slot(agent, weight=chance.choice([0.5, 1.0, 3.0]), timeout=timeout) as slot:
            running += 1
            assert running <= capacity
            try:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
                if chance.random() < 0.2:
                    raise LookupError
                slot.settle(tokens=chance.randrange(2000))
            finally:
                running -= 1

    async def storm() -> None:
        tasks = []
        for _ in range(60):
            tasks.append(asyncio.create_task(call(chance.choice("abc"))))
            if chance.random() < 0.3:
                chance.choice(tasks).cancel()
            if chance.random() < 0.5:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(storm())
    assert running == 0 and idle(scheduler)
    budget = scheduler.snapshot().agents["b"].budget if "b" in scheduler.snapshot().agents else None
    assert budget is None or (budget.reserved == 0 and budget.spent <= 30_000 + 2000 * capacity)

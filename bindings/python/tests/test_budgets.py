"""Budgets: reserved, settled, never passed by what was expected."""

from __future__ import annotations

import asyncio
import threading

import pytest
from waiting import idle, until

import fairgate
from fairgate import Budget


def budget(scheduler: fairgate.Scheduler, agent: str = "a") -> tuple[int, int]:
    its = scheduler.snapshot().agents[agent].budget
    assert its is not None
    return its.spent, its.reserved


def parked(scheduler: fairgate.Scheduler, count: int) -> bool:
    return scheduler.snapshot().waiting_for_budget == count


async def test_an_estimate_is_reserved_and_then_settled() -> None:
    scheduler = fairgate.Scheduler(budgets={"a": 100})
    async with scheduler.slot("a", cost=60) as slot:
        assert budget(scheduler) == (0, 60)
        with pytest.raises(fairgate.BudgetExceeded) as refused:
            await scheduler.acquire("a", cost=50)
        error = refused.value
        assert (error.limit, error.spent, error.reserved, error.asked) == (100, 0, 60, 50)
        slot.settle(tokens=10)
        slot.settle(input_tokens=5, output_tokens=5)
    assert budget(scheduler) == (20, 0)
    assert scheduler.snapshot().agents["a"].refusals == {"over_budget": 1}


async def test_what_was_used_beyond_the_estimate_is_charged() -> None:
    scheduler = fairgate.Scheduler(budgets={"a": 100})
    async with scheduler.slot("a", cost=100) as slot:
        slot.settle(tokens=130)
    its = scheduler.snapshot().agents["a"].budget
    assert its is not None and (its.spent, its.left) == (130, -30)
    with pytest.raises(fairgate.BudgetExceeded):
        await scheduler.acquire("a", cost=1)


async def test_without_an_estimate_a_thousand_tokens_for_each_weight() -> None:
    scheduler = fairgate.Scheduler(budgets={"a": 10_000})
    async with scheduler.slot("a", weight=2.5):
        assert budget(scheduler) == (0, 2500)
    assert budget(scheduler) == (2500, 0)


async def test_who_leaves_before_running_spends_nothing() -> None:
    scheduler = fairgate.Scheduler(capacity=1, max_waiting=1, budgets={"a": 100})
    async with scheduler.slot("b"):
        waiter = asyncio.create_task(scheduler.acquire("a", cost=40))
        await until(lambda: scheduler.snapshot().waiting == 1)
        assert budget(scheduler) == (0, 40)
        with pytest.raises(fairgate.QueueFull):
            await scheduler.acquire("a", cost=30)
        assert budget(scheduler) == (0, 40)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
    assert budget(scheduler) == (0, 0)


async def test_who_is_cancelled_as_it_is_granted_spends_nothing() -> None:
    scheduler = fairgate.Scheduler(capacity=1, budgets={"a": 100})
    first = await scheduler.acquire("b", cost=7)
    waiter = asyncio.create_task(scheduler.acquire("a", cost=40))
    await until(lambda: scheduler.snapshot().waiting == 1)
    first.release()
    assert scheduler.snapshot().agents["a"].in_flight == 1
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    assert budget(scheduler) == (0, 0)
    assert [cost.agent for cost in scheduler.costs()] == ["b"]
    assert idle(scheduler)


async def test_a_request_may_wait_for_budget_first_come_first_served() -> None:
    scheduler = fairgate.Scheduler(capacity=3, budgets={"a": Budget(100, "wait")})
    order: list[int] = []

    async def call(cost: int, used: int) -> None:
        async with scheduler.slot("a", cost=cost) as slot:
            order.append(cost)
            slot.settle(tokens=used)
            await asyncio.sleep(0)

    first = await scheduler.acquire("a", cost=90)
    tasks = [asyncio.create_task(call(*each)) for each in ((60, 10), (5, 5), (20, 20))]
    await until(lambda: parked(scheduler, 3))
    assert scheduler.snapshot().in_flight == 1, "the second would fit, but does not overtake"
    first.settle(tokens=30)
    first.release()
    await asyncio.gather(*tasks)
    assert order == [60, 5, 20]
    assert budget(scheduler) == (65, 0)
    assert idle(scheduler)


async def test_a_larger_budget_lets_those_who_wait_go_on() -> None:
    scheduler = fairgate.Scheduler(budgets={"a": Budget(0, "wait")})
    task = asyncio.create_task(scheduler.run(fairgate.CallOptions("a", cost=10), lambda: "ran"))
    await until(lambda: parked(scheduler, 1))
    scheduler.set_budget("a", Budget(9, "wait"))
    assert parked(scheduler, 1)
    scheduler.set_budget("a", Budget(10, "wait"))
    assert await task == "ran"
    unlimited = asyncio.create_task(scheduler.run(fairgate.CallOptions("a", cost=10), lambda: "ran"))
    await until(lambda: parked(scheduler, 1))
    scheduler.set_budget("a", None)
    assert await unlimited == "ran"
    assert scheduler.snapshot().agents["a"].budget is None
    assert idle(scheduler)


async def test_waiting_for_budget_ends_by_timeout_cancel_and_bound() -> None:
    scheduler = fairgate.Scheduler(max_waiting=1, budgets={"a": Budget(0, "wait")})
    with pytest.raises(fairgate.SlotTimeout):
        await scheduler.acquire("a", timeout=0.001)
    task = asyncio.create_task(scheduler.acquire("a"))
    await until(lambda: parked(scheduler, 1))
    with pytest.raises(fairgate.QueueFull):
        await scheduler.acquire("a")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert idle(scheduler)


async def test_waiting_for_ones_own_budget_is_noticed() -> None:
    scheduler = fairgate.Scheduler(capacity=1, budgets={"a": Budget(10, "wait")})
    async with scheduler.slot("a", cost=10):
        with pytest.raises(fairgate.WouldDeadlock):
            await scheduler.acquire("a", cost=10)
    assert idle(scheduler)


async def test_a_budget_given_while_requests_run_counts_them() -> None:
    scheduler = fairgate.Scheduler()
    async with scheduler.slot("a", cost=60):
        scheduler.set_budget("a", 100)
        assert budget(scheduler) == (0, 60)
        with pytest.raises(fairgate.BudgetExceeded):
            await scheduler.acquire("a", cost=41)
    assert budget(scheduler) == (60, 0)


def test_budgets_hold_among_threads() -> None:
    scheduler = fairgate.Scheduler(capacity=8, budgets={"a": 100})
    ran = []

    def body() -> None:
        for _ in range(50):
            try:
                with scheduler.slot("a", cost=3) as slot:
                    slot.settle(tokens=3)
                    ran.append(3)
            except fairgate.BudgetExceeded:
                pass

    threads = [threading.Thread(target=body) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(ran) == 99
    assert budget(scheduler) == (99, 0)


def test_a_bad_budget_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="0 tokens or more"):
        fairgate.Scheduler(budgets={"a": -1})
    with pytest.raises(ValueError, match='"reject" or "wait", not \'alert\''):
        Budget(1, "alert")  # type: ignore[arg-type]

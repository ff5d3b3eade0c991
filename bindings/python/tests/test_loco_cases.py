"""What is known of LOCO's load function, with its numbers, and its holes, which are not here."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from desk import Desk
from waiting import idle, until, waiting

import fairgate


def loads(alpha: float, depths_and_ages: dict[str, tuple[float, int]]) -> dict[str, int]:
    """The load in millionths of agents that have so much weight waiting, the oldest for so many ticks."""
    desk = Desk(alpha=alpha)
    holder = desk.ask("worker")
    ids: dict[str, int] = {}
    oldest = max(age for _, age in depths_and_ages.values())
    for tick in range(oldest + 1):
        for agent, (depth, age) in depths_and_ages.items():
            if age == oldest - tick:
                desk.gate.hold("agent", agent)
                ids[agent] = desk.ask(agent, depth)
        if tick < oldest:
            after = desk.ask("worker")
            desk.release(holder)
            holder = after
    for agent in depths_and_ages:
        desk.gate.resume("agent", agent)
    return {agent: load_millionths(desk, id) for agent, id in ids.items()}


def load_millionths(desk: Desk, id: int) -> int:
    text = desk.gate.explain(id)
    assert text is not None
    load: int = json.loads(text)["levels"][0]["standing"]["load_millionths"]
    return load


def test_balanced_the_longer_wait_beats_the_deeper_queue() -> None:
    assert loads(0.25, {"deep": (4, 10), "old": (2, 20)}) == {"deep": 625_000, "old": 875_000}


def test_latency_first_only_age_counts() -> None:
    by_age = loads(0.0, {"young": (9, 2), "old": (1, 20)})
    assert by_age == {"young": 100_000, "old": 1_000_000}


def test_throughput_alone_only_depth_counts() -> None:
    by_depth = loads(1.0, {"deep": (9, 1), "old": (1, 100)})
    assert by_depth["deep"] == 1_000_000 > by_depth["old"]


EIGHT = {
    0.0: "011222333344444555555666666677777777",
    0.25: "767567456734567234567123456701234567",
    0.5: "767567456734567234567123456701234567",
}


@pytest.mark.parametrize("alpha", EIGHT)
async def test_eight_agents_with_one_to_eight_tasks(alpha: float) -> None:
    scheduler = fairgate.Scheduler(capacity=1, alpha=alpha)
    order: list[str] = []

    async def call(agent: str) -> None:
        async with scheduler.slot(agent):
            order.append(agent)

    async with scheduler.slot("first"):
        tasks = [asyncio.create_task(call(str(i))) for i in range(8) for _ in range(i + 1)]
        await until(waiting(scheduler, 36))
    await asyncio.gather(*tasks)
    assert "".join(order) == EIGHT[alpha]


def test_a_low_capacity_and_a_bad_weight_are_value_errors() -> None:
    with pytest.raises(ValueError, match="capacity must be 1 slot or more, not 0"):
        fairgate.Scheduler(capacity=0)
    scheduler = fairgate.Scheduler()
    for weight in (0.0, -1.0, 0.0001, 1_000_001.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="weight must be 0.001 to 1000000"):
            scheduler.acquire_blocking("agent", weight=weight)
    assert idle(scheduler)


def ticks_until_granted(arrivals: int, **policy: Any) -> int | None:
    """After how many ticks a quiet agent's one request is granted while a loud one adds so many a tick."""
    desk = Desk(**policy)
    holder = desk.ask("loud")
    for _ in range(arrivals):
        desk.ask("loud")
    quiet = desk.ask("quiet")
    for tick in range(300):
        desk.release(holder)
        holder = desk.granted[-1]
        if holder == quiet:
            return tick + 1
        for _ in range(arrivals):
            desk.ask("loud")
    return None


#: One slot ends one request a tick: four arrivals overload it by three.
STARVING: list[dict[str, Any]] = [{"alpha": 0.25}, {"alpha": 0.6}, {"alpha": 1.0}, {"auto_tune": True}]


@pytest.mark.parametrize("policy", STARVING, ids=str)
def test_max_wait_ticks_ends_starvation(policy: dict[str, Any]) -> None:
    assert ticks_until_granted(4, **policy) is None, "without a bound it starves"
    waited = ticks_until_granted(4, **policy, max_wait_ticks=20)
    assert waited is not None
    # The bound, those who were late before it (the loud agent's first ones), and its own turn.
    assert 20 <= waited <= 20 + 4 + 1


async def test_a_waiting_call_counts_in_its_agents_depth() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("holder"):
        tasks = [
            asyncio.create_task(scheduler.wrap(lambda: None, agent_id="a", weight=weight))
            for weight in (1.0, 2.5)
        ]
        await until(waiting(scheduler, 2))
        assert scheduler.snapshot().agents["a"].depth == 3.5
    await asyncio.gather(*tasks)
    assert scheduler.snapshot().agents["a"].depth == 0


async def test_budgets_hold_under_concurrency() -> None:
    scheduler = fairgate.Scheduler(capacity=3, budgets={"a": 5})
    outcomes = await asyncio.gather(
        *(scheduler.run(fairgate.CallOptions("a", cost=5), asyncio.sleep, 0) for _ in range(3)),
        return_exceptions=True,
    )
    refusals = [o for o in outcomes if isinstance(o, fairgate.BudgetExceeded)]
    assert len(refusals) == 2
    budget = scheduler.snapshot().agents["a"].budget
    assert budget is not None
    assert (budget.spent, budget.reserved) == (5, 0)


async def test_tenants_and_several_resources_go_on_under_contention() -> None:
    tree = {"share": {"by": "tenant", "inside": {"load": {"by": "agent"}}}}
    model = fairgate.Scheduler(capacity=2, max_waiting=1000, policy=tree)
    tool = fairgate.Scheduler(capacity=1, max_waiting=1000)
    done = 0

    async def call(number: int) -> None:
        nonlocal done
        tenant = {"tenant": f"t{number % 3}"}
        async with model.slot(f"a{number % 7}", attributes=tenant):
            await asyncio.sleep(0)
            async with tool.slot(f"a{number % 7}"):
                await asyncio.sleep(0)
                done += 1

    await asyncio.gather(*(call(number) for number in range(200)))
    assert done == 200
    assert idle(model) and idle(tool)

"""wrap, scheduled, configure, policies and projects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import idle, until, waiting

import fairgate


async def test_configure_makes_the_programs_scheduler() -> None:
    scheduler = fairgate.configure(capacity=1, optimize_for="latency", auto_tune=True, max_waiting=5)
    assert fairgate.get_scheduler() is scheduler
    assert scheduler.policy["load"]["auto_tune"] is True

    async def add(a: int, *, b: int) -> int:
        assert scheduler.snapshot().agents["analyst"].in_flight == 1
        return a + b

    assert await fairgate.wrap(add, 1, b=2, agent_id="analyst", weight=2.0) == 3
    assert await fairgate.wrap(lambda: add(3, b=4), agent_id="analyst") == 7
    assert await fairgate.wrap(asyncio.to_thread, sum, [1, 2], agent_id="other") == 3
    other = fairgate.configure()
    assert await fairgate.wrap(lambda: fairgate.get_scheduler(), agent_id="a") is other
    assert idle(scheduler)


async def test_every_kind_of_function_can_be_scheduled() -> None:
    scheduler = fairgate.configure(capacity=1)

    def running() -> int:
        return scheduler.snapshot().in_flight

    @fairgate.scheduled(agent_id="a", weight=2.0)
    async def coroutine(x: int) -> int:
        """Its text."""
        return x + running()

    @fairgate.scheduled(agent_id="a")
    def function(x: int) -> int:
        return x + running()

    @fairgate.scheduled(agent_id="a")
    def generator() -> Iterator[int]:
        yield running()
        yield running()

    @fairgate.scheduled(agent_id="a")
    async def async_generator() -> AsyncIterator[int]:
        yield running()
        yield running()

    assert coroutine.__doc__ == "Its text."
    assert await coroutine(1) == 2
    assert function(2) == 3
    assert list(generator()) == [1, 1]
    assert [item async for item in async_generator()] == [1, 1]
    stopped = generator()
    assert next(stopped) == 1 and running() == 1
    stopped.close()  # type: ignore[attr-defined]
    assert idle(scheduler)
    items = async_generator()
    assert await items.__anext__() == 1
    await items.aclose()  # type: ignore[attr-defined]
    assert idle(scheduler)
    assert scheduler.snapshot().agents["a"].grants == 6


async def test_what_an_answer_says_it_used_is_settled() -> None:
    scheduler = fairgate.Scheduler()
    openai_answer = {"model": "m", "usage": {"prompt_tokens": 7, "completion_tokens": 5}}
    anthropic_answer = SimpleNamespace(
        model="n",
        usage=SimpleNamespace(
            input_tokens=1, output_tokens=2, cache_read_input_tokens=30, cache_creation_input_tokens=None
        ),
    )
    await scheduler.wrap(lambda: openai_answer, agent_id="a")
    await scheduler.wrap(lambda: anthropic_answer, agent_id="a")
    await scheduler.run(fairgate.CallOptions("a", cost=9), lambda: {"usage": {"prompt_tokens": True}})
    rows = [(c.model, c.input_tokens, c.output_tokens, c.tokens) for c in scheduler.costs()]
    assert rows == [("", 0, 0, 9), ("m", 7, 5, 12), ("n", 31, 2, 33)]


@pytest.mark.parametrize(
    ("options", "tree"),
    [
        ({}, {"load": {"by": "agent", "alpha": 0.25}}),
        ({"optimize_for": "latency"}, {"load": {"by": "agent", "alpha": 0.0}}),
        ({"alpha": 0.125, "max_wait_ticks": 9}, {"load": {"by": "agent", "alpha": 0.125, "max_wait_ticks": 9}}),
        ({"policy": "share", "weights": {"a": 5}}, {"share": {"by": "agent", "weights": {"a": 5}}}),
        ({"policy": {"share": {"by": "tenant"}}}, {"share": {"by": "tenant"}}),
        (
            {"policy": "drr", "weights": {"a": 5}},
            {"drr": {"by": "agent", "classes": [{"name": "a", "quantum": 5}]}},
        ),
        ({"policy": '{"share":{"by":"tenant"}}'}, {"share": {"by": "tenant"}}),
    ],
    ids=str,
)
def test_policies_by_name_and_by_tree(options: dict[str, Any], tree: dict[str, Any]) -> None:
    policy = fairgate.Scheduler(**options).policy
    ((kind, node),) = tree.items()
    assert {name: policy[kind].get(name, 0.25) for name in node} == node


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimize_for": "speed"}, "optimize_for"),
        ({"optimize_for": "latency", "alpha": 0.1}, "exclude each other"),
        ({"alpha": 1.5}, "alpha"),
        ({"policy": "fair"}, 'policy must be "load", "share", "drr", "bands" or a JSON tree, not \'fair\''),
        ({"policy": "share", "alpha": 0.1}, 'alpha: only for policy="load"'),
        ({"policy": "drr"}, "tokens per round"),
        ({"weights": {"a": 1}}, "the load policy has none"),
        ({"policy": {"share": {}}, "weights": {"a": 1}}, "a policy tree states its own"),
        ({"policy": {"share": {"by": "agent", "weights": {"a": 0}}}}, r"share\.weights\.a"),
        (
            {"policy": {"drr": {"by": "agent", "classes": [{"name": "a", "quantum": 1}], "settle": True}}},
            r'"drr\.settle": was removed: .* Where usage must follow weights, use \{"share":.*leave settle out',
        ),
        (
            {"policy": {"share": {"by": "agent", "classes": [{"name": "a", "weight": 1}], "weights": {}}}},
            r"share\.weights.*give each class its weight and cap",
        ),
        ({"policy": {"share": {"by": "agent", "queue": {"max_wait_us": -1}}}}, r"share\.queue\.max_wait_us"),
        ({"max_waiting": -1}, "max_waiting must be 0 requests or more"),
    ],
    ids=str,
)
def test_what_makes_no_policy_is_a_value_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fairgate.Scheduler(**options)


async def test_share_and_drr_decide_by_their_weights() -> None:
    async def order(scheduler: fairgate.Scheduler) -> str:
        ran: list[str] = []

        async def call(agent: str) -> None:
            async with scheduler.slot(agent, cost=100):
                ran.append(agent)

        async with scheduler.slot("z", cost=1):
            tasks = [asyncio.create_task(call(agent)) for agent in "aaaaaabbbbbb"]
            await until(waiting(scheduler, 12))
        await asyncio.gather(*tasks)
        return "".join(ran)

    share = fairgate.Scheduler(1, policy="share", weights={"a": 300, "b": 100})
    assert (await order(share))[:8].count("a") == 6
    drr = fairgate.Scheduler(1, policy="drr", weights={"b": 100, "a": 200})
    assert await order(drr) == "aabaabaabbbb"


async def test_classes_have_their_own_weights_caps_and_queues() -> None:
    classes = [
        {"name": "chat", "weight": 3, "queue": "wspt"},
        {"name": "batch", "weight": 1, "cap": 1},
    ]
    scheduler = fairgate.Scheduler(2, policy={"share": {"by": "class", "classes": classes, "default": "batch"}})
    ran: list[tuple[str, int]] = []

    async def call(name: str, cost: int) -> None:
        async with scheduler.slot("a", cost=cost, attributes={"class": name}):
            ran.append((name, cost))

    async with scheduler.slot("a", cost=50), scheduler.slot("a", cost=1, attributes={"class": "chat"}):
        tasks = [asyncio.create_task(call(*each)) for each in (("chat", 30), ("chat", 20), ("else", 5))]
        await until(waiting(scheduler, 3))
        (node,) = scheduler.fairness()
        assert [(flow["flow"], flow["waiting"]) for flow in node["flows"]] == [("batch", 1), ("chat", 2)]
    await asyncio.gather(*tasks)
    # The first slot that is free goes to chat's smallest, for batch is at its cap; the second to chat by its score.
    assert ran == [("chat", 20), ("chat", 30), ("else", 5)]


async def test_who_has_waited_long_enough_goes_first_in_its_queue() -> None:
    queue = {"order": "wspt", "max_wait_us": 20_000}
    scheduler = fairgate.Scheduler(1, policy={"share": {"by": "agent", "queue": queue}})
    ran: list[int] = []

    async def use(slot: fairgate.Slot, cost: int) -> None:
        async with slot:
            ran.append(cost)

    large = scheduler.slot("a", cost=900, priority=-1)
    async with scheduler.slot("a"):
        tasks = [asyncio.create_task(use(large, 900))]
        await until(waiting(scheduler, 1))
        tasks.append(asyncio.create_task(use(scheduler.slot("a", cost=100), 100)))
        await until(waiting(scheduler, 2))
        await asyncio.sleep(0.025)
        # Nothing has happened since; an explanation knows what time it is all the same.
        where = scheduler.explain(large)
        assert where is not None and (where["ahead_in_queue"], where["grants_ahead"]) == (1, 0)
        with pytest.raises(fairgate.SlotTimeout):
            await asyncio.create_task(scheduler.acquire("a", cost=1, timeout=0.0))
    await asyncio.gather(*tasks)
    assert ran == [900, 100]


async def test_capacity_holds_and_caps_change_while_it_runs() -> None:
    scheduler = fairgate.Scheduler(1, policy="share")
    scheduler.set_capacity(0)
    task = asyncio.create_task(scheduler.acquire("a"))
    await until(waiting(scheduler, 1))
    scheduler.hold("a")
    scheduler.set_capacity(2)
    assert scheduler.snapshot().waiting == 1
    scheduler.set_cap("a", 0)
    scheduler.resume("a")
    assert scheduler.snapshot().waiting == 1
    scheduler.set_cap("a", None)
    (await task).release()
    with pytest.raises(ValueError, match="is no attribute; there are class, tenant"):
        scheduler.hold("a", by="colour")
    with pytest.raises(ValueError, match="0 slots or more"):
        scheduler.set_capacity(-1)
    with pytest.raises(ValueError, match="weight must be 1 or more, not 0"):
        scheduler.set_weight("a", 0)


SNAPSHOT = {
    "mode": "strict",
    "projects": [{"id": "p", "credit_weight": 2.5}, {"id": "q"}],
    "tasks": [
        {"id": "t1", "project_id": "q", "status": "READY"},
        {"id": "t2", "project_id": "p", "status": "READY"},
    ],
    "agents": [{"id": "x", "state": "IDLE"}],
}


def test_projects_and_agents() -> None:
    expected = [{"agent_id": "x", "task_id": "t2", "project_id": "p"}]
    assert fairgate.schedule(SNAPSHOT) == expected
    assert fairgate.schedule(json.dumps(SNAPSHOT)) == expected
    explained = fairgate.schedule(SNAPSHOT, explain=True)
    assert explained["assignments"] == expected
    assert {task["task_id"] for task in explained["tasks"]} == {"t1", "t2"}
    with pytest.raises(ValueError, match=r"tasks\[0\]\.project_id"):
        fairgate.schedule({**SNAPSHOT, "projects": []})

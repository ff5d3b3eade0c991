"""Snapshots, explanations, costs and metrics."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client.parser import text_string_to_metric_families
from waiting import until, waiting

import fairgate


async def test_a_snapshot_says_who_waits_and_who_runs() -> None:
    scheduler = fairgate.Scheduler(capacity=1, optimize_for="throughput", max_waiting=7)
    async with scheduler.slot("a"):
        task = asyncio.create_task(scheduler.wrap(lambda: None, agent_id="b", weight=1.5))
        await until(waiting(scheduler, 1))
        now = scheduler.snapshot()
        assert (now.capacity, now.in_flight, now.waiting, now.max_waiting, now.ticks) == (1, 1, 1, 7, 0)
        assert now.alpha == 0.5
        assert list(now.agents) == ["a", "b"]
        assert (now.agents["b"].waiting, now.agents["b"].depth) == (1, 1.5)
        assert now.agents["b"].oldest_age_ticks == 0
        assert now.agents["a"].oldest_age_ticks is None
        assert "1 of 1 slots held, 1 requests wait" in repr(scheduler)
    await task
    after = scheduler.snapshot()
    assert (after.ticks, after.agents["b"].grants, sum(after.agents["b"].waits.values())) == (2, 1, 1)
    assert after.agents["b"].waited > 0


async def test_a_waiting_request_is_explained() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    slot = scheduler.slot("b", cost=70)
    assert scheduler.explain(slot) is None
    async with scheduler.slot("a") as first:
        ahead = asyncio.create_task(scheduler.wrap(lambda: None, agent_id="c"))
        await until(waiting(scheduler, 1))
        entering = asyncio.ensure_future(slot.__aenter__())
        await until(waiting(scheduler, 2))
        where = scheduler.explain(slot)
        assert where is not None
        assert (where["state"], where["cost"], where["grants_ahead"]) == ("waiting", 70, 1)
        assert where["levels"][0]["standing"]["kind"] == "load"
        assert scheduler.explain(slot.id) == where
        scheduler.hold("b")
        held = scheduler.explain(slot)
        assert held is not None and held["levels"][0]["readiness"] == "held"
        assert "grants_ahead" not in held
        scheduler.resume("b")
        in_flight = scheduler.explain(first)
        assert in_flight is not None and in_flight["state"] == "in_flight"
    await entering
    slot.release()
    await ahead
    assert scheduler.explain(slot) is None


async def test_a_grant_says_why() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("a"):
        slot = scheduler.slot("b", weight=4.0, explain=True)
        entering = asyncio.ensure_future(slot.__aenter__())
        await until(waiting(scheduler, 1))
        other = asyncio.create_task(scheduler.wrap(lambda: None, agent_id="c"))
        await until(waiting(scheduler, 2))
    await entering
    assert slot.why is not None
    level = slot.why["why"]["levels"][0]
    assert (level["flow"], level["rule"]) == ("b", "largest_load")
    assert level["runner_up"]["flow"] == "c"
    slot.release()
    assert slot.why is None
    await other


async def test_fairness_is_shown_under_share() -> None:
    scheduler = fairgate.Scheduler(capacity=1, policy="share", weights={"a": 300})
    async with scheduler.slot("a"):
        task = asyncio.create_task(scheduler.wrap(lambda: None, agent_id="b"))
        await until(waiting(scheduler, 1))
        (node,) = scheduler.fairness()
        assert (node["kind"], node["by"], node["path"]) == ("share", "agent", [])
        a, b = node["flows"]
        # Nobody else was ready when the slot was granted: all of it was due to the one that was.
        assert a == {
            "flow": "a",
            "weight": 300,
            "waiting": 0,
            "in_flight": 1,
            "got_tokens": 1000,
            "due_tokens": 1000,
            "difference_tokens": 0,
            "bound_tokens": a["bound_tokens"],
            "within_bound": True,
        }
        assert (b["flow"], b["got_tokens"], b["waiting"], b["lag_tokens_per_weight"]) == ("b", 0, 1, "0.000")
    await task


async def test_what_an_agent_got_stands_beside_what_it_was_due() -> None:
    scheduler = fairgate.Scheduler(capacity=1, policy="share", weights={"a": 300, "b": 100}, name="mine")
    seen: list[dict[str, fairgate.ServiceSnapshot | None]] = []
    samples: list[dict[tuple[str, ...], float]] = []

    async def call(agent: str) -> None:
        async with scheduler.slot(agent, cost=100) as slot:
            slot.settle(tokens=40 if agent == "a" else 130)
            seen.append({name: its.service for name, its in scheduler.snapshot().agents.items()})
            samples.append(metrics(scheduler))

    async with scheduler.slot("a", cost=1):
        tasks = [asyncio.create_task(call(agent)) for agent in "ab" * 20]
        await until(waiting(scheduler, 40))
    await asyncio.gather(*tasks)
    for services, sample in zip(seen, samples):
        for agent, service in services.items():
            assert service is not None
            assert service.difference == service.got - service.due
            assert service.within_bound, (agent, service)
            assert sample["fairgate_got_tokens", agent] == service.got
            assert sample["fairgate_due_tokens", agent] == service.due
            assert sample["fairgate_difference_bound_tokens", agent] == service.bound
    after = scheduler.snapshot().agents
    assert after["a"].service is not None and after["b"].service is not None
    assert (after["a"].service.got, after["b"].service.got) == (1 + 20 * 40, 20 * 130)
    # What the last request used beyond its cost, 30 tokens, is divided at the next grant, which never comes.
    got = after["a"].service.got + after["b"].service.got
    assert got - 30 - (after["a"].service.due + after["b"].service.due) in range(-2, 3)


async def test_the_load_function_promises_no_shares() -> None:
    scheduler = fairgate.Scheduler(capacity=1, name="mine")
    async with scheduler.slot("a", cost=7):
        (node,) = scheduler.fairness()
        assert (node["kind"], node["flows"][0]["got_tokens"]) == ("load", 7)
        assert "due_tokens" not in node["flows"][0]
        assert scheduler.snapshot().agents["a"].service is None
        assert ("fairgate_got_tokens", "a") not in metrics(scheduler)


async def test_costs_by_agent_and_model() -> None:
    prices = {"large": fairgate.Price(input=3.0, output=15.0)}
    scheduler = fairgate.Scheduler(prices=prices)
    for model in ("large", "large", "small"):
        async with scheduler.slot("a", model=model) as slot:
            slot.settle(input_tokens=1000, output_tokens=200)
    async with scheduler.slot("b", cost=50):
        pass
    rows = [(c.agent, c.model, c.requests, c.tokens, c.usd) for c in scheduler.costs()]
    assert rows == [
        ("a", "large", 2, 2400, pytest.approx(0.012)),
        ("a", "small", 1, 1200, None),
        ("b", "", 1, 50, None),
    ]
    with pytest.raises(ValueError, match="USD per million tokens"):
        fairgate.Price(-1, 0)


async def test_settling_adds_up_and_refuses_nonsense() -> None:
    scheduler = fairgate.Scheduler()
    async with scheduler.slot("a") as slot:
        slot.settle(5)
        slot.settle(tokens=6, model="m")
        with pytest.raises(ValueError, match="0 or more"):
            slot.settle(-1)
    (cost,) = scheduler.costs()
    assert (cost.model, cost.tokens) == ("m", 11)


async def test_metrics_are_read_by_prometheus() -> None:
    nasty = 'quote " backslash \\ newline \n'
    scheduler = fairgate.Scheduler(capacity=1, name="mine", budgets={nasty: 7000})
    async with scheduler.slot(nasty, model="m") as slot:
        task = asyncio.create_task(scheduler.wrap(lambda: None, agent_id="b"))
        await until(waiting(scheduler, 1))
        slot.settle(tokens=42)
        with pytest.raises(fairgate.BudgetExceeded):
            await scheduler.acquire(nasty, cost=10_000)
        during = metrics(scheduler)
        assert during["fairgate_in_flight_requests", nasty] == 1
        assert during["fairgate_waiting_requests", "b"] == 1
    await task
    after = metrics(scheduler)
    assert after["fairgate_tokens_total", nasty, "m"] == 42
    assert after["fairgate_refusals_total", nasty, "over_budget"] == 1
    assert after["fairgate_budget_tokens", nasty, "spent"] == 42
    assert after["fairgate_wait_seconds_count", "b"] == after["fairgate_wait_seconds_bucket", "b", "+Inf"] == 1
    assert after["fairgate_ticks_total",] == 2
    assert after["fairgate_alpha_ratio",] == 0.25


def metrics(scheduler: fairgate.Scheduler) -> dict[tuple[str, ...], float]:
    found = {}
    for family in text_string_to_metric_families(scheduler.prometheus()):
        assert family.documentation and family.type != "unknown"
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("scheduler") == "mine"
            key = (sample.name, *labels.values())
            found[key] = sample.value
    return found

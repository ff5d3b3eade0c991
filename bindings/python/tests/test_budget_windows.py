"""Budgets over time, alerts, defaults, hooks and the log."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import httpx2
import openai
import pytest
from waiting import idle, until

import fairgate
import fairgate.adapters.openai
from fairgate import Budget


async def spend(scheduler: fairgate.Scheduler, agent: str, tokens: int) -> None:
    async with scheduler.slot(agent, cost=tokens) as slot:
        slot.settle(tokens)


async def test_a_rolling_budget_comes_back_piece_by_piece() -> None:
    scheduler = fairgate.Scheduler(budgets={"a": Budget(100, per=0.4)})
    await spend(scheduler, "a", 60)
    await asyncio.sleep(0.2)
    await spend(scheduler, "a", 40)
    with pytest.raises(fairgate.BudgetExceeded):
        await spend(scheduler, "a", 1)
    await asyncio.sleep(0.25)
    await spend(scheduler, "a", 60)
    with pytest.raises(fairgate.BudgetExceeded):
        await spend(scheduler, "a", 40)
    await asyncio.sleep(0.5)
    budget = scheduler.snapshot().agents["a"].budget
    assert budget is not None and (budget.spent, budget.reserved) == (0, 0)


async def test_who_waits_for_a_rolling_budget_goes_on_by_time_alone() -> None:
    scheduler = fairgate.Scheduler(budgets={"a": Budget(100, "wait", per=0.3)})
    await spend(scheduler, "a", 100)
    start = time.monotonic()
    await asyncio.wait_for(asyncio.gather(*(spend(scheduler, "a", 50) for _ in range(3))), 5)
    assert 0.5 < time.monotonic() - start < 2 and idle(scheduler)


async def test_a_calendars_budget_begins_anew_with_its_period() -> None:
    scheduler = fairgate.Scheduler()
    for per in ("minute", "hour", "day", "week", "month"):
        scheduler.set_budget(per, Budget(100, per=per))  # type: ignore[arg-type]
        await spend(scheduler, per, 100)
    left = 60 - time.time() % 60
    refused = []
    for per in ("minute", "hour", "day", "week", "month"):
        try:
            await spend(scheduler, per, 100)
        except fairgate.BudgetExceeded:
            refused.append(per)
    # Unless a minute has just ended.
    assert refused == ["minute", "hour", "day", "week", "month"] or left < 2


def test_bad_periods_and_alerts_are_value_errors() -> None:
    for per in ("year", 0, -1, True):
        with pytest.raises(ValueError, match="per must be"):
            Budget(1, per=per)  # type: ignore[arg-type]
    for part in (0, -0.5, 11):
        with pytest.raises(ValueError, match="alert_at must be parts"):
            Budget(1, alert_at=[part])


async def test_alerts_come_once_in_a_period(caplog: pytest.LogCaptureFixture) -> None:
    alerts: list[fairgate.BudgetAlert] = []
    scheduler = fairgate.Scheduler(
        budgets={"a": Budget(1000, alert_at=(0.8, 0.5, 1.0))}, on_budget_alert=alerts.append
    )
    for _ in range(10):
        await spend(scheduler, "a", 100)
    assert [(alert.agent, alert.part, alert.spent, alert.limit) for alert in alerts] == [
        ("a", 0.5, 500, 1000), ("a", 0.8, 800, 1000), ("a", 1.0, 1000, 1000),
    ]  # fmt: skip
    silent = fairgate.Scheduler(budgets={"a": Budget(100, alert_at=(0.5,))})
    with caplog.at_level(logging.WARNING, logger="fairgate"):
        await spend(silent, "a", 60)
    assert "agent 'a' has spent 60 of its budget of 100 tokens" in caplog.text

    def fails(_: object) -> None:
        raise LookupError("mine")

    failing = fairgate.Scheduler(budgets={"a": Budget(100, alert_at=(0.5,))}, on_budget_alert=fails)
    await spend(failing, "a", 60)
    assert "on_budget_alert failed" in caplog.text and idle(failing)


async def test_every_agent_without_a_budget_has_the_default_one() -> None:
    scheduler = fairgate.Scheduler(budgets={"rich": 1000}, default_budget=Budget(100))
    scheduler.set_budget("free", None)
    await spend(scheduler, "rich", 900)
    await spend(scheduler, "free", 5000)
    for agent in ("x", "y"):
        await spend(scheduler, agent, 100)
        with pytest.raises(fairgate.BudgetExceeded):
            await spend(scheduler, agent, 1)


async def test_hooks_see_each_call_start_granted_and_end(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[str, str, bool, Any]] = []

    def hook(name: str) -> Any:
        return lambda slot: seen.append((name, slot.agent, slot.held, slot.tokens))

    scheduler = fairgate.Scheduler(
        1, on_start=hook("start"), on_grant=hook("grant"), on_end=hook("end"), log_grants=True, name="models"
    )
    with caplog.at_level(logging.INFO, logger="fairgate.grants"):
        async with scheduler.slot("a", model="gpt-5", weight=2.0) as slot:
            slot.settle(7)
    assert seen == [("start", "a", False, None), ("grant", "a", True, None), ("end", "a", False, 7)]
    (line,) = [json.loads(record.getMessage()) for record in caplog.records]
    assert line.pop("waited_seconds") < 1 and line.pop("id") == slot.id
    assert line == {"event": "grant", "scheduler": "models", "agent": "a", "model": "gpt-5", "weight": 2.0}

    def fails(_: object) -> None:
        raise LookupError("mine")

    failing = fairgate.Scheduler(1, on_start=fails, on_grant=fails, on_end=fails)
    async with failing.slot("a"):
        pass
    assert idle(failing) and caplog.text.count("a hook of a scheduler failed") == 3


async def test_a_cancelled_stream_is_charged_what_is_known_to_be_billed() -> None:
    reached = asyncio.Event()

    class Stream(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            for _ in range(3):
                yield b'data: {"choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
            reached.set()
            await asyncio.Event().wait()

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Stream())

    scheduler = fairgate.Scheduler(capacity=1)
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    async with openai.AsyncOpenAI(base_url="http://test", api_key="none", http_client=http) as client:
        fairgate.adapters.openai.attach(client, scheduler)

        async def read() -> None:
            messages: Any = [{"role": "user", "content": "x" * 40}]
            async for _ in await client.chat.completions.create(model="m", messages=messages, stream=True):
                pass

        task = asyncio.create_task(read())
        await until(reached.is_set)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await until(lambda: idle(scheduler))
    (cost,) = scheduler.costs()
    assert (cost.input_tokens, cost.output_tokens) == (10, 3)

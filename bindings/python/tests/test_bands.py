"""Strict priority between agents or classes."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from desk import Desk
from waiting import idle, until, waiting

import fairgate


def test_whoever_is_listed_first_goes_first() -> None:
    desk = Desk(policy="bands", bands=["chat", "eval", "batch"])
    held = desk.ask("batch")
    asked = {name: desk.ask(name) for name in ("batch", "unknown", "eval", "chat")}
    for _ in range(4):
        desk.release(held)
        held = desk.granted[-1]
    # Whom nobody lists goes with the last, in the order of that queue.
    assert desk.granted[1:] == [asked[name] for name in ("chat", "eval", "batch", "unknown")]


def test_a_lower_band_waits_for_as_long_as_a_higher_one_has_work() -> None:
    desk = Desk(policy="bands", bands=["chat", "batch"])
    held = desk.ask("chat")
    low = desk.ask("batch")
    for _ in range(50):
        next_ = desk.ask("chat")
        desk.release(held)
        assert desk.granted[-1] == next_
        held = next_
    desk.release(held)
    assert desk.granted[-1] == low


def test_a_cap_leaves_the_rest_to_those_below() -> None:
    desk = Desk(capacity=3, policy="bands", bands=["chat", "batch"], caps={"chat": 2})
    chat = [desk.ask("chat") for _ in range(5)]
    batch = [desk.ask("batch") for _ in range(3)]
    assert desk.granted == [*chat[:2], batch[0]]
    desk.release(batch[0])
    assert desk.granted[3:] == [batch[1]], "chat is at its cap"
    desk.release(chat[0])
    assert desk.granted[4:] == [chat[2]]


def test_a_cap_can_change_while_it_runs() -> None:
    desk = Desk(policy="bands", bands=["chat", "batch"])
    held, chat, batch = desk.ask("chat"), desk.ask("chat"), desk.ask("batch")
    desk.gate.set_cap("agent", "chat", 0)
    desk.release(held)
    assert desk.granted[-1] == batch
    desk.gate.set_cap("agent", "chat", None)
    desk.release(batch)
    assert desk.granted[-1] == chat


TREE = {
    "bands": {
        "by": "class",
        "classes": [
            {"name": "chat", "cap": 2, "queue": "edf"},
            {"name": "batch", "inside": {"share": {"by": "agent", "weights": {"a": 300}}}},
        ],
        "default": "batch",
    }
}


async def test_a_tree_of_bands_with_deadlines_and_shares_inside() -> None:
    scheduler = fairgate.Scheduler(capacity=1, policy=TREE)
    order: list[Any] = []

    async def call(agent: str, klass: str, timeout: float | None = None) -> None:
        slot = scheduler.slot(agent, attributes={"class": klass}, timeout=timeout, explain=True)
        async with slot:
            assert slot.why is not None
            order.append((klass, timeout, slot.why["why"]["levels"][0]["rule"]))

    async with scheduler.slot("a", attributes={"class": "batch"}):
        calls = [call("a", "batch"), call("b", "chat"), call("b", "chat", 90.0), call("a", "chat", 30.0)]
        tasks = [asyncio.create_task(each) for each in calls]
        await until(waiting(scheduler, 4))
    await asyncio.gather(*tasks)
    rule = "first_band"
    assert order == [("chat", 30.0, rule), ("chat", 90.0, rule), ("chat", None, rule), ("batch", None, rule)]
    assert idle(scheduler)


async def test_views_say_who_goes_before_whom_and_promise_nothing() -> None:
    scheduler = fairgate.Scheduler(capacity=1, policy="bands", bands=["chat", "eval", "batch"], caps={"chat": 1})
    async with scheduler.slot("chat", cost=70):
        slot = scheduler.slot("batch", cost=5)
        task = asyncio.create_task(slot.__aenter__())
        await until(waiting(scheduler, 1))
        (node,) = scheduler.fairness()
        assert (node["kind"], node["by"], node["path"]) == ("bands", "agent", [])
        flows = {flow["flow"]: flow for flow in node["flows"]}
        assert (flows["chat"]["got_tokens"], flows["chat"]["goes_before"]) == (70, ["eval", "batch"])
        assert flows["batch"]["goes_before"] == []
        for flow in flows.values():
            assert not {"weight", "due_tokens", "bound_tokens", "difference_tokens", "within_bound"} & set(flow)
        where = scheduler.explain(slot)
        assert where is not None
        standing = where["levels"][0]["standing"]
        assert standing == {"kind": "bands", "comes_after": ["chat", "eval"], "goes_before": [], "got_tokens": 0}
        assert {agent.service for agent in scheduler.snapshot().agents.values()} == {None}
        assert "fairgate_due_tokens{" not in scheduler.prometheus()
    await task
    slot.release()


async def test_nodes_inside_of_bands_keep_their_due() -> None:
    scheduler = fairgate.Scheduler(capacity=1, policy=TREE)
    async with scheduler.slot("a", cost=70, attributes={"class": "batch"}):
        outer, inner = scheduler.fairness()
        assert (outer["kind"], inner["kind"], inner["path"]) == ("bands", "share", ["batch"])
        (flow,) = inner["flows"]
        assert (flow["flow"], flow["got_tokens"], flow["weight"]) == ("a", 70, 300) and "due_tokens" in flow


def test_a_weight_in_bands_is_an_error_that_says_what_to_do() -> None:
    scheduler = fairgate.Scheduler(policy="bands", bands=["chat", "batch"])
    with pytest.raises(ValueError, match=r"agent \"chat\" has no weight.*set_cap"):
        scheduler.set_weight("chat", 300)
    tree = fairgate.Scheduler(policy=TREE)
    with pytest.raises(ValueError, match=r"class \"chat\" has no weight"):
        tree.set_weight("chat", 300, by="class")
    tree.set_weight("a", 300)  # a flow of the share node inside


def test_a_policy_of_bands_can_be_put_in_place_later() -> None:
    scheduler = fairgate.Scheduler()
    scheduler.set_policy("bands", bands=["chat", "batch"], caps={"chat": 2}, queue="edf")
    assert scheduler.policy == {
        "bands": {
            "by": "agent",
            "classes": [{"name": "chat", "cap": 2}, {"name": "batch"}],
            "default": "batch",
            "queue": "edf",
        }
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "bands"}, 'policy="bands" needs bands=[agent, …]'),
        ({"policy": "bands", "bands": "chat"}, 'policy="bands" needs bands=[agent, …]'),
        ({"policy": "bands", "bands": ["chat"], "weights": {"chat": 1}}, "weights: strict priority has none"),
        ({"policy": "bands", "bands": ["chat"], "caps": {"cat": 1}}, "caps: 'cat' is none of bands"),
        ({"policy": "bands", "bands": ["chat", "chat"]}, "chat"),
        ({"policy": "bands", "bands": ["chat"], "alpha": 0.1}, 'alpha: only for policy="load"'),
        ({"policy": "share", "bands": ["chat"]}, 'bands: only for policy="bands"'),
        ({"policy": "load", "caps": {"chat": 1}}, 'caps: only for policy="share" or "bands"'),
        ({"policy": "share", "queue": "lifo"}, "lifo"),
        ({"policy": TREE, "queue": "edf"}, "queue: a policy tree states its own"),
        ({"policy": "lanes"}, '"load", "share", "drr", "bands" or a JSON tree'),
    ],
)
def test_what_does_not_go_together_is_said(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        fairgate.Scheduler(**options)


def test_caps_of_share_are_kept() -> None:
    desk = Desk(capacity=2, policy="share", caps={"a": 1})
    first, _, other = desk.ask("a"), desk.ask("a"), desk.ask("b")
    assert desk.granted == [first, other]

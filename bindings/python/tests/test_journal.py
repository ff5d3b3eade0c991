"""The journal of a Python program replays to the line, by the command `fairgate`."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest
from waiting import until, waiting

import fairgate


def replay(binary: str, journal: Path) -> list[dict[str, Any]]:
    run = subprocess.run([binary, "replay", str(journal)], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stderr) == (0, "")
    return [json.loads(line) for line in run.stdout.splitlines()]


POLICIES: list[dict[str, Any]] = [
    {},
    {"alpha": 0.4, "auto_tune": True, "max_wait_ticks": 5},
    {"policy": "share", "weights": {"a": 300}},
    {"rates": {"requests": "400/s", "tokens": "40M/min"}, "burst_seconds": 1},
    {"policy": "drr", "weights": {"a": 2000, "b": 500}},
    {"policy": {"share": {"by": "tenant", "inside": {"load": {"by": "agent"}}}}},
    {
        "policy": {
            "share": {
                "by": "agent",
                "classes": [
                    {"name": "a", "weight": 3, "queue": {"order": "wspt", "max_wait_us": 300}},
                    {"name": "b", "weight": 1, "cap": 1},
                ],
            }
        }
    },
]


@pytest.mark.parametrize("policy", POLICIES, ids=str)
async def test_what_a_program_lived_through_is_what_a_replay_decides(
    policy: dict[str, Any], tmp_path: Path, fairgate_binary: str
) -> None:
    chance = random.Random(4)
    journal = tmp_path / "journal.jsonl"
    scheduler = fairgate.Scheduler(2, max_waiting=10, journal=journal, **policy)
    lived: list[tuple[str, str]] = []
    left: set[str] = set()

    async def call(agent: str) -> None:
        slot = scheduler.slot(
            agent,
            weight=chance.choice([1.0, 2.5]),
            priority=chance.randrange(2),
            timeout=chance.choice([None, None, 0.0]),
            attributes={"tenant": chance.choice("xy")},
        )
        try:
            async with slot:
                lived.append(("grant", slot.id))
                for _ in range(chance.randrange(3)):
                    await asyncio.sleep(0)
                if chance.random() < 0.5:
                    slot.settle(tokens=chance.randrange(3000))
        except fairgate.QueueFull as refused:
            lived.append((refused.reason, slot.id))
        except fairgate.SlotTimeout:
            pass
        except asyncio.CancelledError:
            left.add(slot.id)
            raise

    tasks = []
    for _ in range(300):
        tasks.append(asyncio.create_task(call(chance.choice("aaabc"))))
        if chance.random() < 0.1:
            chance.choice(tasks).cancel()
        if chance.random() < 0.6:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    scheduler.hold("a")
    scheduler.resume("a")
    scheduler.set_capacity(1)
    scheduler.set_policy("share")
    scheduler.set_weight("a", 7)
    scheduler.set_cap("a", 1)
    async with scheduler.slot("a"):
        waiters = [asyncio.create_task(scheduler.wrap(lambda: None, agent_id="b")) for _ in range(3)]
        await until(waiting(scheduler, 3))
        scheduler.close()
        await asyncio.gather(*waiters, return_exceptions=True)
    scheduler.flush_journal()

    decided = replay(fairgate_binary, journal)
    # A request that is cancelled just as it is granted or refused never hears of it; all others do.
    grants = [d["id"] for d in decided if d["decision"] == "grant"]
    assert set(grants) >= {id for what, id in lived if what == "grant"}
    assert len(grants) == sum(a.grants for a in scheduler.snapshot().agents.values())
    refused = {d["id"]: d["reason"] for d in decided if d["decision"] == "reject"}
    heard = {id: what for what, id in lived if what != "grant"}
    assert refused.items() >= heard.items()
    assert refused.keys() - heard.keys() <= left


async def test_the_order_of_grants_and_the_waits_are_replayed_exactly(
    tmp_path: Path, fairgate_binary: str
) -> None:
    journal = tmp_path / "journal.jsonl"
    scheduler = fairgate.Scheduler(1, journal=journal)
    slots: list[fairgate.Slot] = []

    async def call(agent: str) -> None:
        async with scheduler.slot(agent) as slot:
            slots.append(slot)

    await asyncio.gather(*(call(str(i % 5)) for i in range(40)))
    scheduler.close()
    decided = replay(fairgate_binary, journal)
    assert [(d["id"], d["waited_us"]) for d in decided] == [
        (slot.id, round(slot.waited * 1e6)) for slot in slots
    ]


def test_the_native_gate_and_a_replay_decide_the_same(tmp_path: Path, fairgate_binary: str) -> None:
    journal = tmp_path / "journal.jsonl"
    with fairgate.Scheduler(1, journal=journal, policy="share") as scheduler:
        for tokens in (10, 0, 2**63):
            with scheduler.slot("a", cost=5, explain=True) as slot:
                slot.settle(tokens=tokens)
                why = slot.why
                assert why is not None and why["why"]["levels"][0]["rule"] == "lowest_score"
                assert why["id"] == slot.id
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    assert lines[0]["pool"]["capacity"] == 1
    assert [line["event"] for line in lines[1:]] == ["submit", "release"] * 3 + ["capacity"]
    assert [line.get("tokens") for line in lines if line.get("event") == "release"] == [10, 0, 2**63]
    assert len(replay(fairgate_binary, journal)) == 3


async def test_a_provider_and_calls_that_met_its_limit_are_replayed(tmp_path: Path, fairgate_binary: str) -> None:
    import httpx

    journal = tmp_path / "journal.jsonl"
    scheduler = fairgate.Scheduler(2, journal=journal, rates={"requests": "200/s"}, burst_seconds=1)
    left = [3]

    async def call() -> None:
        await asyncio.sleep(0)
        if left[0]:
            left[0] -= 1
            error: Any = RuntimeError("refused")
            error.response = httpx.Response(429, headers={"retry-after-ms": "20"})
            raise error

    await asyncio.gather(*(scheduler.wrap(call, agent_id=agent) for agent in "abcabc"))
    scheduler.close()
    grants = [decision for decision in replay(fairgate_binary, journal) if decision["decision"] == "grant"]
    assert len(grants) == 6 + 3 and {grant["worker"] for grant in grants} == {"provider"}
    assert scheduler.snapshot().ticks == 9


def test_a_journal_that_cannot_be_begun_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fairgate.Scheduler(journal=tmp_path / "missing" / "journal.jsonl")


def test_a_full_disk_ends_the_journal_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = fairgate.Scheduler(1, journal="/dev/full", name="mine")
    for _ in range(10):
        with scheduler.slot("a"):
            pass
    scheduler.flush_journal()
    assert "the journal of scheduler 'mine' ends early: No space left on device" in caplog.text
    with scheduler.slot("a"):
        pass
    assert scheduler.snapshot().ticks == 11

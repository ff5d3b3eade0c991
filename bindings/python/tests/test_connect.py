"""Slots as leases of a running gateway: several processes, one capacity."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from conftest import Model
from langchain_openai import ChatOpenAI

import fairgate
from fairgate import GatewayError
from fairgate.adapters.langchain import schedule
from fairgate.adapters.openai import attach
from fairgate.gateway import Gateway

CONFIG = """
listen: 127.0.0.1:{port}
data_dir: {data}
journal: {{folder: {data}/journal}}
pools:
  - name: provider
    capacity: {capacity}
    queue_timeout: 2m
    leases: {{ttl: {ttl}{rates}}}
    policy: {policy}
"""

BY_AGENT = "{share: {by: tenant, inside: {share: {by: agent}}}}"
BY_LOAD = "{share: {by: tenant, inside: {load: {by: agent}}}}"


class House:
    """A gateway as a process, with one tenant and its key."""

    def __init__(self, process: subprocess.Popen[str], url: str, data: Path, key: str | None) -> None:
        self.process = process
        self.url = url
        self._token = (data / "admin-token").read_text().strip()
        if key is None:
            self.post("groups", {"name": "all"})
            key = self.tenant("acme")
        self.key = key

    def tenant(self, name: str, **limits: Any) -> str:
        self.post("tenants", {"name": name, "group": "all", **limits})
        return str(self.post("keys", {"tenant": name, "name": name, "may_lease": True})["secret"])

    def post(self, path: str, body: object) -> Any:
        return self._ask(path, json.dumps(body).encode())

    def get(self, path: str) -> Any:
        return self._ask(path, None)

    def _ask(self, path: str, body: bytes | None) -> Any:
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1/{path}", body, headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.get("attempts?limit=1000")["items"]
        return rows


@contextlib.contextmanager
def serving(
    binary: str,
    data: Path,
    capacity: int,
    rates: str = "",
    *,
    ttl: str = "2s",
    again: House | None = None,
    policy: str = BY_AGENT,
) -> Iterator[House]:
    """A gateway; with ``again`` in the place of one that has ended, at its address and with its data."""
    data.mkdir(exist_ok=True)
    config = data / "fairgate.yaml"
    port = 0 if again is None else again.url.rpartition(":")[2]
    config.write_text(
        CONFIG.format(data=data, capacity=capacity, ttl=ttl, rates=rates, port=port, policy=policy)
    )
    with (data / "serve.log").open("w") as log:
        command = [binary, "serve", "--config", str(config)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        assert process.stdout is not None
        url = None
        for line in process.stdout:
            found = re.search(r"listens on (http://\S+)", line)
            if found:
                url = found.group(1)
                break
        assert url, (data / "serve.log").read_text()
        yield House(process, url, data, None if again is None else again.key)
    finally:
        process.terminate()
        process.wait(20)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def house(fairgate_binary: str, tmp_path: Path) -> Iterator[House]:
    with serving(fairgate_binary, tmp_path / "data", capacity=2) as house:
        yield house


async def test_a_slot_is_a_lease(house: House) -> None:
    scheduler = fairgate.connect(house.url, house.key)
    async with scheduler.slot("planner", cost=500, model="gpt-5") as slot:
        assert slot.held
        slot.settle(input_tokens=30, output_tokens=12)
    with pytest.raises(fairgate.FairgateError, match="the gateway's"):
        scheduler.set_capacity(9)
    scheduler.close()
    with pytest.raises(fairgate.Closed):
        await scheduler.acquire("planner")
    (row,) = house.rows()
    assert (row["agent"], row["model"], row["pool"]) == ("planner", "gpt-5", "provider")
    assert (row["charged_tokens"], row["input_tokens"], row["output_tokens"]) == (42, 30, 12)


def test_threads_wait_for_each_other_and_a_timeout_ends_the_wait(house: House) -> None:
    scheduler = fairgate.connect(house.url, house.key)
    first, second = (scheduler.acquire_blocking("a") for _ in range(2))
    began = time.monotonic()
    with pytest.raises(fairgate.SlotTimeout) as late:
        scheduler.acquire_blocking("a", timeout=0.3)
    assert 0.25 < time.monotonic() - began < 5
    assert late.value.limit == "timeout"
    first.release()
    with scheduler.slot("b") as slot:
        assert slot.held
    second.release()
    scheduler.close()
    codes = sorted(str(row.get("code")) for row in house.rows())
    # The gateway's word comes first, unless this machine was so slow that the program gave up before it.
    assert codes[:3] == ["None"] * 3 and codes[3:] in (["deadline_passed"], ["lease_cancelled"])


async def test_many_tasks_of_one_process_share_its_leases(house: House) -> None:
    scheduler = fairgate.connect(house.url, house.key)
    held, most = 0, 0

    async def call(number: int) -> None:
        nonlocal held, most
        async with scheduler.slot(f"agent-{number % 5}") as slot:
            held += 1
            most = max(most, held)
            await asyncio.sleep(0.005)
            held -= 1
            slot.settle(tokens=7)

    await asyncio.gather(*(call(number) for number in range(60)))
    scheduler.close()
    assert most == 2
    rows = house.rows()
    assert len(rows) == 60 and {row["output_tokens"] for row in rows} == {7}
    # More where a settlement came late: the time in the slot is the least that is charged.
    assert all(row["charged_tokens"] >= 7 for row in rows)


async def test_a_429_gives_the_slot_back_and_the_call_goes_on_after_the_reset(house: House) -> None:
    class Limited(Exception):
        status_code = 429
        headers = {"retry-after-ms": "600"}

    scheduler = fairgate.connect(house.url, house.key)
    tries = []
    async with scheduler.slot("a") as slot:
        while True:
            tries.append(time.monotonic())
            try:
                if len(tries) < 2:
                    raise Limited
                break
            except Limited as error:
                await slot.retry(error)
        slot.settle(tokens=5)
    scheduler.close()
    assert tries[1] - tries[0] >= 0.59
    rows = sorted(house.rows(), key=lambda row: row["attempt"])
    assert [(row["output_tokens"], row.get("code")) for row in rows] == [(0, "provider_limited"), (5, None)]
    # The refused call pays for its time in the slot, and for nothing else.
    assert 0 < rows[0]["charged_tokens"] < 100 and rows[1]["charged_tokens"] >= 5


async def test_budgets_count_and_refusals_have_their_code(house: House) -> None:
    key = house.tenant("small", limits={"tokens_per_day": 1000})
    scheduler = fairgate.connect(house.url, key)
    async with scheduler.slot("a", cost=900) as slot:
        slot.settle(tokens=1000)
    # What was used is settled in the background, and by the time that a connection is closed.
    scheduler.close()
    scheduler = fairgate.connect(house.url, key)
    with pytest.raises(fairgate.GatewayError) as refused:
        async with scheduler.slot("a", cost=100):
            pass
    assert refused.value.code == "budget_exhausted" and refused.value.status == 429
    scheduler.close()
    stranger = fairgate.connect(house.url, "fg-nobody")
    with pytest.raises(fairgate.GatewayError) as refused:
        await stranger.acquire("a")
    assert refused.value.code == "invalid_api_key" and "fg-nobody" not in str(refused.value)
    stranger.close()


async def test_no_gateway_is_said_within_seconds(unused_port: int = 9) -> None:
    scheduler = fairgate.connect(f"http://127.0.0.1:{unused_port}", "fg-key")
    began = time.monotonic()
    with pytest.raises(fairgate.GatewayError, match="cannot be reached"):
        await scheduler.acquire("a")
    assert time.monotonic() - began < 15
    scheduler.close()


def test_what_cannot_be_an_address_or_a_key_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="must be like"):
        fairgate.connect("gateway:8080", "fg-key")
    with pytest.raises(ValueError, match="must be a key"):
        fairgate.connect("http://gateway:8080", "")


async def test_a_call_that_goes_on_without_its_gateway_is_logged(
    fairgate_binary: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(fairgate_binary, tmp_path / "data", capacity=1) as house:
        scheduler = fairgate.connect(house.url, house.key)
        slot = await scheduler.acquire("a")
        house.process.send_signal(signal.SIGKILL)
        house.process.wait(20)
        with caplog.at_level(logging.WARNING, logger="fairgate"):
            slot.release()
            scheduler.close()
    assert "was not settled" in caplog.text


async def test_adapters_work_over_leases(house: House, model: Model) -> None:
    scheduler = fairgate.connect(house.url, house.key)
    options: dict[str, Any] = {"base_url": f"{model.url}/v1", "api_key": "none"}
    client = attach(openai.AsyncOpenAI(**options), scheduler, agent="attached", timeout=60.0)
    http = httpx2.AsyncClient()
    plain = ChatOpenAI(model="gpt-4o-mini", http_async_client=http, stream_usage=True, **options)
    chat = schedule(plain, scheduler, agent="chain")

    async def attached() -> None:
        await client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": "hello"}])

    async def streamed() -> None:
        assert [chunk async for chunk in chat.astream("hello")]

    calls = [*(attached() for _ in range(4)), *(chat.ainvoke("hello") for _ in range(4)), streamed()]
    await asyncio.wait_for(asyncio.gather(*calls), 90)
    # Where a layer further out holds a slot, a call takes no other one.
    async with scheduler.slot("outer", model="gpt-4o-mini"):
        await attached()
    await client.close()
    await http.aclose()
    await asyncio.to_thread(scheduler.close)
    rows = await asyncio.to_thread(house.rows)
    assert {row["outcome"] for row in rows} == {"completed"} and {row["model"] for row in rows} == {"gpt-4o-mini"}
    by_agent = {agent: [row for row in rows if row["agent"] == agent] for agent in ("attached", "chain", "outer")}
    assert {agent: len(its) for agent, its in by_agent.items()} == {"attached": 4, "chain": 5, "outer": 1}
    assert {row["output_tokens"] for row in rows} == {Model.OUTPUT_TOKENS}


async def test_calls_that_wait_go_on_after_a_restart_of_the_gateway(
    fairgate_binary: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ran: list[int] = []
    data = tmp_path / "data"

    async def in_task(number: int) -> None:
        async with scheduler.slot("tasks", cost=10) as slot:
            ran.append(number)
            slot.settle(10)

    def in_thread(number: int) -> None:
        with scheduler.slot("threads", cost=10) as slot:
            ran.append(number)
            slot.settle(10)

    with serving(fairgate_binary, data, capacity=1) as first:
        scheduler = fairgate.connect(first.url, first.key)
        held = await scheduler.acquire("holder", cost=10)
        waiting = [asyncio.create_task(in_task(number)) for number in range(4)]
        waiting += [asyncio.create_task(asyncio.to_thread(in_thread, number)) for number in (4, 5)]
        deadline = time.monotonic() + 20
        while (await asyncio.to_thread(first.get, "pools/provider"))["queued"] < 6:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        first.process.kill()
        first.process.wait(20)
    assert not ran
    with serving(fairgate_binary, data, capacity=1, again=first) as second:
        with caplog.at_level(logging.WARNING, logger="fairgate"):
            await asyncio.wait_for(asyncio.gather(*waiting), 60)
            held.release()
            await asyncio.to_thread(scheduler.close)
        assert sorted(ran) == [0, 1, 2, 3, 4, 5]
        assert second.get("pools/provider")["in_flight"] == 0
        rows = [row for row in second.rows() if row["outcome"] == "completed"]
    assert sorted(row["agent"] for row in rows) == ["tasks"] * 4 + ["threads"] * 2
    assert "the gateway was restarted" in caplog.text, "whoever held a slot is told that it is lost"


WAITING = """
import sys, threading, fairgate

scheduler = fairgate.connect(sys.argv[1], sys.argv[2])
for _ in range(8):
    threading.Thread(target=scheduler.acquire_blocking, args=("waits",)).start()
"""


def wait_queued(house: House, count: int) -> None:
    deadline = time.monotonic() + 30
    while house.get("pools/provider")["queued"] != count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_a_killed_program_waits_for_ends_with_its_connection(fairgate_binary: str, tmp_path: Path) -> None:
    with serving(fairgate_binary, tmp_path / "data", capacity=4, ttl="60s") as house:
        scheduler = fairgate.connect(house.url, house.key)
        held = [scheduler.acquire_blocking("holder") for _ in range(4)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", WAITING, house.url, house.key]
        with subprocess.Popen(command, env=environment) as victim:
            wait_queued(house, 8)
            victim.kill()
        began = time.monotonic()
        # Four slots become free, and are granted to requests of a program that is dead.
        for slot in held:
            slot.release()
        for slot in [scheduler.acquire_blocking("next") for _ in range(4)]:
            slot.release()
        waited = time.monotonic() - began
        scheduler.close()
        rows = [row for row in house.rows() if row["agent"] == "waits"]
    assert waited < 15, f"{waited:.1f} s of a ttl of 60 s"
    assert [row["code"] for row in rows] == ["lease_cancelled"] * 8


def test_what_waits_is_submitted_again_after_the_gateway_took_the_program_for_dead(
    fairgate_binary: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(fairgate_binary, tmp_path / "data", capacity=2, ttl="30s") as house:
        _lose_the_connection(house, monkeypatch)


def _lose_the_connection(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = fairgate.connect(house.url, house.key)
    held = [scheduler.acquire_blocking("holder") for _ in range(2)]
    away = threading.Event()
    ask = Gateway._once

    def once(self: Gateway, method: str, path: str, body: object) -> dict[str, Any]:
        if away.is_set() and path.startswith("/v1/leases?"):
            self.disconnect()
            raise GatewayError("unreachable", "the network is away")
        return ask(self, method, path, body)

    monkeypatch.setattr(Gateway, "_once", once)
    granted: list[fairgate.Slot] = []
    waits = threading.Thread(target=lambda: granted.append(scheduler.acquire_blocking("waits")))
    waits.start()
    wait_queued(house, 1)
    away.set()
    wait_queued(house, 0)
    away.clear()
    wait_queued(house, 1)
    held[0].release()
    waits.join(30)
    assert granted and granted[0].held
    for slot in (*granted, held[1]):
        slot.release()
    scheduler.close()
    codes = sorted(str(row.get("code")) for row in house.rows() if row["agent"] == "waits")
    assert codes == ["None", "lease_cancelled"]


WORKER = """
import asyncio, sys, fairgate

async def main(url, key, name, calls):
    scheduler = fairgate.connect(url, key)

    async def call(number):
        async with scheduler.slot(f"{name}-{number % 3}", cost=100) as slot:
            print("held", flush=True)
            await asyncio.sleep(0.05)
            slot.settle(tokens=100)

    await asyncio.gather(*(call(number) for number in range(calls)))
    scheduler.close()

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


def test_eight_processes_one_killed_never_exceed_capacity_or_rate(
    fairgate_binary: str, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    # 20 requests a second, and 20 that were saved up.
    rates = ", requests_per_minute: 1200, burst_seconds: 1"
    capacity, processes, calls = 3, 8, 12
    with serving(fairgate_binary, data, capacity, rates) as house:
        script = tmp_path / "worker.py"
        script.write_text(textwrap.dedent(WORKER))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        workers = [
            subprocess.Popen(
                [sys.executable, str(script), house.url, house.key, f"w{number}", str(calls)],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for number in range(processes)
        ]
        victim = workers[0]
        assert victim.stdout is not None
        assert victim.stdout.readline() == "held\n"
        # It holds a slot, and others wait.
        live = house.get("pools/provider")
        assert live["capacity"] == capacity and live["in_flight"] > 0
        victim.send_signal(signal.SIGKILL)
        for worker in workers:
            worker.communicate(timeout=90)
        assert [worker.returncode for worker in workers[1:]] == [0] * (processes - 1)
        deadline = time.monotonic() + 20
        while house.get("pools/provider")["in_flight"] and time.monotonic() < deadline:
            time.sleep(0.1)
        assert house.get("pools/provider")["in_flight"] == 0
        rows = house.rows()
    assert all(row["last"] for row in rows)
    completed = [row for row in rows if row["outcome"] == "completed"]
    assert len(completed) >= (processes - 1) * calls
    lost = [row for row in rows if row.get("code") == "lease_lost"]
    assert any(row["charged_tokens"] > 0 for row in lost)
    assert len(rows) == len({row["request"] for row in rows})
    (journal,) = (data / "journal" / "provider").iterdir()
    _check_capacity_and_rate(_decided(fairgate_binary, journal), capacity, per_second=20, burst=20)


def _decided(binary: str, journal: Path) -> list[dict[str, Any]]:
    """The ends of a journal and the grants that the core makes of it, in order of time; at one time ends first.

    A client that is killed just as its request is granted ends it with a cancel.
    """
    events = [json.loads(line) for line in journal.read_text().splitlines()]
    replayed = subprocess.run([binary, "replay", str(journal)], capture_output=True, text=True, check=True)
    decisions = [json.loads(line) for line in replayed.stdout.splitlines()]
    ended = [event for event in events if event.get("event") in ("release", "cancel")]
    granted = [decision for decision in decisions if decision.get("decision") == "grant"]
    return sorted(ended + granted, key=lambda line: (line["at"], "decision" in line))


def _check_capacity_and_rate(
    events: list[dict[str, Any]], capacity: int, per_second: int, burst: int
) -> None:
    """Counts who was in flight, and how many were granted in every span of time."""
    grants: list[int] = []
    in_flight: set[str] = set()
    # A request that is granted and ends in the same microsecond: its release is sorted before its grant.
    ended_at: dict[str, int] = {}
    for event in events:
        if event.get("decision") == "grant":
            grants.append(event["at"])
            if ended_at.get(event["id"]) == event["at"]:
                continue
            in_flight.add(event["id"])
            assert len(in_flight) <= capacity, event
        elif event["id"] in in_flight:
            in_flight.remove(event["id"])
        else:
            ended_at[event["id"]] = event["at"]
    assert len(grants) > 50
    for number, at in enumerate(grants):
        for first in range(number):
            seconds = (at - grants[first]) / 1e6
            assert number - first + 1 <= burst + per_second * seconds + 1, (first, number, seconds)


async def _order(scheduler: fairgate.Scheduler, queued: Callable[[int], Awaitable[None]]) -> list[str]:
    """One program: while a call holds the only slot, others of several weights ask. Gives the order of their grants."""
    order: list[str] = []

    async def call(agent: str, weight: float) -> None:
        async with scheduler.slot(agent, weight=weight) as slot:
            order.append(agent)
            slot.settle(tokens=1)

    blocker = await scheduler.acquire("blocker")
    calls = []
    for agent, weight in [("light", 1.0), ("deep", 2.0), ("heavy", 5.0), ("deep", 2.0), ("middle", 2.5)]:
        calls.append(asyncio.create_task(call(agent, weight)))
        await queued(len(calls))
    blocker.release()
    await asyncio.gather(*calls)
    scheduler.close()
    return order


async def test_one_program_has_the_same_order_in_process_and_over_leases(
    fairgate_binary: str, tmp_path: Path
) -> None:
    async def in_process(_: int) -> None:
        await asyncio.sleep(0)

    expected = ["heavy", "deep", "middle", "deep", "light"]
    assert await _order(fairgate.Scheduler(capacity=1), in_process) == expected
    with serving(fairgate_binary, tmp_path / "data", capacity=1, policy=BY_LOAD) as house:
        rights = {"tenant": "acme", "name": "weighty", "may_lease": True, "weight_max": 5}
        key = str(house.post("keys", rights)["secret"])

        async def over_leases(count: int) -> None:
            while len(house.get("requests?state=waiting")["items"]) < count:
                await asyncio.sleep(0.01)

        assert await _order(fairgate.connect(house.url, key), over_leases) == expected


async def test_a_weight_beyond_the_keys_right_fails_and_says_what_is_allowed(
    fairgate_binary: str, tmp_path: Path
) -> None:
    with serving(fairgate_binary, tmp_path / "data", capacity=1, policy=BY_LOAD) as house:
        scheduler = fairgate.connect(house.url, house.key)
        with pytest.raises(GatewayError, match=r"weight of 5, and this key may state weights up to 1:") as refused:
            await scheduler.acquire("a", weight=5.0)
        assert refused.value.code == "weight_not_allowed"
        # The weight of its model needs no right.
        async with scheduler.slot("a", weight=5.0, model="claude-opus"):
            pass
        with pytest.raises(ValueError, match="at most three decimals"):
            await scheduler.acquire("a", weight=0.0)
        scheduler.close()

"""Deadlines of leases, against a stub of the gateway's lease API: what is sent, and what each refusal becomes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from waiting import until, until_in_thread

import fairgate


class Stub:
    """Leases as a gateway has them, as far as these tests go. ``submitted`` answers a submission: its status and error."""

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[dict[str, Any]] = []
        self.cancelled: list[str] = []
        self.limited: list[str] = []
        #: How this process of the gateway begins its ids.
        self.process = "p1"
        self.submitted: Callable[[dict[str, Any]], tuple[int, str, str] | None] = lambda body: None
        self._leases: dict[str, dict[str, Any]] = {}
        self._latest = 0
        self._changed = threading.Condition()

    def change(self, lease: str, **fields: Any) -> None:
        """Changes a lease, and tells its client."""
        with self._changed:
            self._latest += 1
            self._leases[lease].update(fields, change=self._latest)
            self._changed.notify_all()

    def grant(self, number: int, attempt: int = 1) -> None:
        self.change(f"{self.process}-{number}", state="granted", attempt=attempt, waited_ms=1)

    def refuse(self, number: int, status: int, code: str, message: str, retry_after_ms: int | None = None) -> None:
        error = {"status": status, "code": code, "message": message, "retry_after_ms": retry_after_ms}
        self.change(f"{self.process}-{number}", state="refused", error=error)

    def submit(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.bodies.append(body)
        refused = self.submitted(body)
        if refused is not None:
            status, code, message = refused
            return status, {"error": {"code": code, "message": message}}
        ident = f"{self.process}-{len(self.bodies)}"
        with self._changed:
            self._leases[ident] = {"id": ident, "own_id": body["id"], "state": "queued", "change": 0}
            return 200, self._leases[ident]

    def news(self, after: int) -> dict[str, Any]:
        with self._changed:
            self._changed.wait_for(lambda: self._latest > after, timeout=0.02)
            changed = [lease for lease in self._leases.values() if lease["change"] > after]
            return {"leases": [dict(lease) for lease in changed], "latest": self._latest}

    def handler(stub) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                if self.path == "/v1/leases":
                    self._answer(*stub.submit(body))
                    return
                ident = self.path.split("/")[3]
                if self.path.endswith("/limited"):
                    stub.change(ident, state="queued")
                    stub.limited.append(ident)
                self._answer(200, {"id": ident, "state": "queued"})

            def do_GET(self) -> None:
                after = int(self.path.split("after=")[1].split("&")[0])
                self._answer(200, stub.news(after))

            def do_DELETE(self) -> None:
                stub.cancelled.append(self.path.split("/")[3])
                self._answer(200, {})

            def _answer(self, status: int, answer: object) -> None:
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("x-fairgate-request-id", f"{stub.process}-news")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


@pytest.fixture
def stub() -> Iterator[Stub]:
    stub = Stub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), stub.handler())
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield stub
    server.shutdown()
    server.server_close()
    thread.join()


@contextlib.contextmanager
def connected(stub: Stub) -> Iterator[fairgate.Connection]:
    scheduler = fairgate.connect(stub.url, "fg-key")
    try:
        yield scheduler
    finally:
        scheduler.close()


async def test_a_timeout_is_sent_as_the_deadline_of_the_lease(stub: Stub) -> None:
    with connected(stub) as scheduler:
        with_one = asyncio.create_task(scheduler.acquire("a", timeout=30.0))
        await until(lambda: len(stub.bodies) == 1)
        without = asyncio.create_task(scheduler.acquire("a"))
        for_ever = asyncio.create_task(scheduler.acquire("a", timeout=float("inf")))
        await until(lambda: len(stub.bodies) == 3)
        assert 20_000 < stub.bodies[0]["deadline_ms"] <= 30_000
        assert isinstance(stub.bodies[0]["deadline_ms"], int)
        assert "deadline_ms" not in stub.bodies[1] and "deadline_ms" not in stub.bodies[2]
        for number in (1, 2, 3):
            stub.grant(number)
        for slot in await asyncio.gather(with_one, without, for_ever):
            slot.release()


async def test_no_time_at_all_asks_for_a_slot_that_is_free_now(stub: Stub) -> None:
    with connected(stub) as scheduler:
        asked = asyncio.create_task(scheduler.acquire("a", timeout=0))
        await until(lambda: len(stub.bodies) == 1)
        assert stub.bodies[0]["deadline_ms"] == 1
        stub.grant(1)
        (await asked).release()
        with pytest.raises(ValueError, match="timeout must be a number of seconds, not nan"):
            await scheduler.acquire("a", timeout=float("nan"))


def test_for_ever_is_for_ever_in_a_thread(stub: Stub) -> None:
    with connected(stub) as scheduler:
        granting = threading.Thread(target=lambda: (until_in_thread(lambda: len(stub.bodies) == 1), stub.grant(1)))
        granting.start()
        scheduler.acquire_blocking("a", timeout=float("inf")).release()
        granting.join()


PASSED = (504, "deadline_passed", "It waited 5000 ms.")


async def test_the_gateways_word_that_a_deadline_passed_is_a_timeout(stub: Stub) -> None:
    with connected(stub) as scheduler:
        asked = asyncio.create_task(scheduler.acquire("a", timeout=3600.0))
        await until(lambda: len(stub.bodies) == 1)
        stub.refuse(1, *PASSED)
        with pytest.raises(fairgate.SlotTimeout, match="agent 'a' got no slot within 3600 s, its own timeout") as error:
            await asked
        assert isinstance(error.value, TimeoutError)
        assert (error.value.limit, error.value.timeout) == ("timeout", 3600.0)
        assert "It waited 5000 ms." in str(error.value)
    assert len(stub.bodies) == 1 and stub.cancelled == []


def test_the_same_in_a_thread_and_as_the_answer_to_the_submission(stub: Stub) -> None:
    stub.submitted = lambda body: PASSED
    with connected(stub) as scheduler:
        began = time.monotonic()
        with pytest.raises(fairgate.SlotTimeout) as error, scheduler.slot("a", timeout=3600.0):
            pass
        assert error.value.limit == "timeout"
        assert time.monotonic() - began < 20
    assert len(stub.bodies) == 1, "what has passed is not tried again"


async def test_a_deadline_of_the_key_or_class_is_said_to_be_theirs(stub: Stub) -> None:
    stub.submitted = lambda body: PASSED
    with connected(stub) as scheduler:
        with pytest.raises(fairgate.SlotTimeout, match="the deadline that the gateway sets for its key or class") as error:
            await scheduler.acquire("a")
        assert (error.value.limit, error.value.timeout) == ("deadline", None)


@pytest.mark.parametrize("timeout", [None, 3600.0])
async def test_the_pools_own_limit_is_said_to_be_the_pools(stub: Stub, timeout: float | None) -> None:
    with connected(stub) as scheduler:
        asked = asyncio.create_task(scheduler.acquire("a", timeout=timeout))
        await until(lambda: len(stub.bodies) == 1)
        stub.refuse(1, 503, "queue_timeout", "It waited for two minutes.", 1500)
        with pytest.raises(fairgate.SlotTimeout, match="queue_timeout of the gateway's pool: It waited") as error:
            await asked
        assert (error.value.limit, error.value.timeout, error.value.retry_after) == ("queue_timeout", timeout, 1.5)


async def test_a_deadline_that_the_key_may_not_ask_for_is_the_gateways_error(stub: Stub) -> None:
    stub.submitted = lambda body: (403, "deadline_not_allowed", "This key may ask for 10 s or more, not 1 s.")
    with connected(stub) as scheduler:
        with pytest.raises(fairgate.GatewayError, match="10 s or more") as error:
            await scheduler.acquire("a", timeout=1.0)
        assert (error.value.code, error.value.status) == ("deadline_not_allowed", 403)


async def test_a_gateway_that_knows_no_deadlines_is_said_to_be_too_old(stub: Stub) -> None:
    def old(body: dict[str, Any]) -> tuple[int, str, str] | None:
        if "deadline_ms" not in body:
            return None
        problem = "unknown field `deadline_ms`, expected one of `pool`, `id` at line 1 column 20"
        return 400, "invalid_lease", f"The body cannot be read: {problem}."

    stub.submitted = old
    with connected(stub) as scheduler:
        with pytest.raises(fairgate.GatewayError, match="too old.*timeout=.*Update the gateway") as error:
            await scheduler.acquire("a", timeout=5.0)
        assert error.value.code == "deadline_unsupported" and stub.url in str(error.value)
        asked = asyncio.create_task(scheduler.acquire("a"))
        await until(lambda: len(stub.bodies) == 2)
        stub.grant(2)
        (await asked).release()


def test_a_gateway_that_says_nothing_keeps_nobody_waiting(stub: Stub) -> None:
    with connected(stub) as scheduler:
        began = time.monotonic()
        with pytest.raises(fairgate.SlotTimeout) as error:
            scheduler.acquire_blocking("a", timeout=0.1)
        assert 0.1 <= time.monotonic() - began < 10
        assert error.value.limit == "timeout"
        until_in_thread(lambda: stub.cancelled == ["p1-1"])


async def test_the_same_in_a_task(stub: Stub) -> None:
    with connected(stub) as scheduler:
        with pytest.raises(fairgate.SlotTimeout):
            async with scheduler.slot("a", timeout=0.1):
                pass
        await until(lambda: stub.cancelled == ["p1-1"])


async def test_after_a_restart_only_the_time_that_is_left_is_asked_for(stub: Stub) -> None:
    with connected(stub) as scheduler:
        asked = asyncio.create_task(scheduler.acquire("a", timeout=3600.0))
        await until(lambda: len(stub.bodies) == 1)
        await asyncio.sleep(0.05)
        stub.process = "p2"
        await until(lambda: len(stub.bodies) == 2)
        first, second = (body["deadline_ms"] for body in stub.bodies)
        assert second <= first - 50
        stub.grant(2)
        (await asked).release()


async def test_a_retry_that_comes_too_late_fails_with_what_the_provider_said(stub: Stub) -> None:
    class Limited(Exception):
        status_code = 429

    with connected(stub) as scheduler:
        slot = scheduler.slot("a", timeout=3600.0)
        entering = asyncio.create_task(slot.__aenter__())
        await until(lambda: len(stub.bodies) == 1)
        stub.grant(1)
        await entering
        again = asyncio.create_task(slot.retry(Limited()))
        await until(lambda: stub.limited == ["p1-1"])
        stub.refuse(1, *PASSED)
        with pytest.raises(Limited):
            await again
        assert not slot.held
    assert len(stub.bodies) == 1


async def test_cancelled_waits_with_deadlines_leave_nothing(stub: Stub) -> None:
    with connected(stub) as scheduler:
        tasks = [asyncio.create_task(scheduler.acquire("a", timeout=3600.0)) for _ in range(20)]
        await until(lambda: len(stub.bodies) == 20)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: len(stub.cancelled) == 20)
        gate: Any = scheduler._gate
        assert gate._calls == {} and gate._by_id == {}

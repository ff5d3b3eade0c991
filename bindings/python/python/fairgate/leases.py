"""Slots as leases of a gateway: what :class:`fairgate.connect.Connection` asks instead of a pool of its own.

It has the methods of the native gate that a :class:`fairgate.Slot` calls. None of them waits for the network: a few
threads talk to the gateway, and one long poll hears of all leases of this process at once, which also keeps them alive.
"""

from __future__ import annotations

import atexit
import json
import logging
import math
import os
import threading
import time
import weakref
from asyncio import AbstractEventLoop, Future
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from .errors import FairgateError, GatewayError, Refusal, SlotTimeout, WaitLimit
from .gateway import Gateway

_log = logging.getLogger("fairgate")

#: How many threads submit and settle.
_WORKERS = 4
#: How long the gateway is asked to hold a question for news, in milliseconds; it holds it for half of a lease's life at most.
_NEWS_WAIT_MS = 5000
#: How long to wait before the gateway is asked for news again after it could not be reached, in seconds. The first time
#: is short: the gateway ends what waits a second after the connection has closed, unless the program asks again.
_FIRST_RETRY_SECONDS = 0.1
_RETRY_SECONDS = 0.5
#: For how long to try before whoever waits is told that the gateway is gone, in seconds.
_GONE_AFTER = 15.0
#: For how long the end of the program waits until what was used is settled, in seconds.
_FLUSH_SECONDS = 5.0

_WAITING, _HELD, _OVER = range(3)
Outcome = Any


class _Call:
    """One request, from the question until it is settled."""

    __slots__ = (
        "answer",
        "attempt",
        "body",
        "deadline",
        "id",
        "lease",
        "news",
        "number",
        "refused_with",
        "state",
        "submissions",
        "timeout",
        "waiter",
    )

    def __init__(self, number: int, own_id: str, body: dict[str, Any], timeout: float | None) -> None:
        self.number = number
        self.id = own_id
        self.body = body
        #: For how many seconds it may wait, and until when by the clock of ``time.monotonic``.
        self.timeout = timeout
        self.deadline = None if timeout is None else time.monotonic() + timeout
        #: The gateway's id of it, once it has one.
        self.lease: str | None = None
        self.state = _WAITING
        #: How often it was submitted.
        self.submissions = 1
        #: The attempt that was granted last.
        self.attempt = 0
        self.waiter: tuple[Any, AbstractEventLoop | None] | None = None
        #: How its wait ended, before anybody said how to be woken.
        self.news: Outcome = None
        #: What the provider answered last: (status, headers, body).
        self.answer: dict[str, Any] | None = None
        #: Which attempt met a limit, while the gateway is told.
        self.refused_with = 0


class LeaseGate:
    """The leases of this process."""

    def __init__(self, gateway: Gateway, pool: str | None) -> None:
        self._gateway = gateway
        self._pool = pool
        self._closed = False
        self._begin()
        _living.add(self)

    def _begin(self) -> None:
        self._lock = threading.Condition()
        self._calls: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}
        self._client = f"py-{os.getpid()}-{os.urandom(6).hex()}"
        self._requests_to_send: deque[Callable[[], None]] = deque()
        self._busy = 0
        self._threads: list[threading.Thread] = []

    # -- what a slot calls -------------------------------------------------------------------------------------

    def ask(
        self,
        id: int,
        agent: str,
        weight: float,
        cost: int | None,
        priority: int,
        attributes: dict[str, str] | None,
        owner: int,
        flags: int,
        timeout: float | None = None,
    ) -> int | Refusal | None:
        """Submits a request. It always waits: the gateway answers on another thread."""
        if timeout is not None and math.isnan(timeout):
            raise ValueError("timeout must be a number of seconds, not nan")
        body = _submission(agent, weight, cost, priority, attributes)
        if self._pool is not None:
            body["pool"] = self._pool
        with self._lock:
            if self._closed:
                return ("closed",)
            own_id = f"{self._client}-{id}"
            call = _Call(id, own_id, {**body, "id": own_id, "client": self._client}, timeout)
            self._calls[id] = self._by_id[own_id] = call
            self._start()
            self._send_soon(lambda: self._submit(call))
        return None

    def wait(
        self, id: int, future: Future[Any] | SimpleQueue[Any], event_loop: AbstractEventLoop | None
    ) -> Outcome:
        with self._lock:
            call = self._calls.get(id)
            if call is None:
                return ("closed",)
            if call.news is not None:
                news, call.news = call.news, None
                if call.state == _OVER:
                    self._calls.pop(id, None)
                return news
            call.waiter = (future, event_loop)
            return None

    def withdraw(self, id: int) -> bool:
        """Takes a request out that still waits; False where it does not."""
        with self._lock:
            call = self._calls.get(id)
            if call is None or call.state != _WAITING:
                return False
            self._end(call)
            self._send_soon(lambda: self._cancel(call))
            return True

    def cancel(self, id: int) -> None:
        """Ends a request, whether it waits or holds a slot."""
        with self._lock:
            call = self._calls.pop(id, None)
            if call is not None and call.state != _OVER:
                self._end(call)
                self._send_soon(lambda: self._cancel(call))

    def release(
        self,
        id: int,
        tokens: int | None = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
        model: str | None = None,
    ) -> None:
        """Ends a request that holds a slot, with what it used where that is known."""
        with self._lock:
            call = self._calls.get(id)
            if call is None or call.state != _HELD:
                return
            report: dict[str, Any] = dict(call.answer or {})
            if tokens is not None:
                report["tokens"] = tokens
                if input_tokens or output_tokens:
                    report["input_tokens"] = input_tokens
                    report["output_tokens"] = output_tokens
            self._end(call)
            self._send_soon(lambda: self._settle(call, report))

    def answered(self, id: int, status: int, headers: list[tuple[str, bytes]], body: bytes) -> float | None:
        """Keeps what a provider answered; 0 where it may have met a limit, which the gateway decides."""
        with self._lock:
            call = self._calls.get(id)
            if call is None:
                return None
            call.answer = {
                "status": status,
                "headers": {name: value.decode("latin-1") for name, value in headers if _is_told(name)},
                "body": body[:8192].decode("utf-8", "replace"),
            }
        return 0.0 if status in (429, 503, 529) else None

    def again(self, id: int, timeout: float | None = None) -> int | Refusal | None:
        """Submits a call again that its provider has not taken on. Its deadline at the gateway stays what it was."""
        with self._lock:
            call = self._calls.get(id)
            if call is None or call.state != _HELD:
                return ("closed",)
            call.state = _WAITING
            call.refused_with = call.attempt
            call.news = None
            call.waiter = None
            self._send_soon(lambda: self._limited(call))
        return None

    def set_owner(self, id: int, owner: int) -> None:
        """Who will give a slot back is known to the in-process scheduler only, for its deadlocks."""

    def why(self, id: int) -> str | None:
        return None

    def explain(self, id: int) -> str | None:
        """How a request that waits stands at the gateway, as JSON."""
        with self._lock:
            call = self._calls.get(id)
        if call is None or call.lease is None:
            return None
        return json.dumps(self._gateway.ask("GET", f"/v1/leases/{call.lease}"))

    # -- ends --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Sends everybody away who waits, and waits a moment until what was used is settled."""
        with self._lock:
            self._closed = True
            waiting = [call for call in self._calls.values() if call.state == _WAITING]
            for call in waiting:
                self._deliver(call, ("closed",))
                self._end(call)
                self._send_soon(lambda call=call: self._cancel(call))  # type: ignore[misc]
            self._lock.notify_all()
        self.flush()

    @property
    def closed(self) -> bool:
        return self._closed

    def flush_journal(self) -> None:
        """The journal is the gateway's."""

    def journal_failure(self) -> str | None:
        return None

    def forget_requests(self) -> None:
        """Starts anew in a child process: the leases are the parent's."""
        self._gateway = self._gateway.anew()
        self._begin()

    def flush(self) -> None:
        """Waits a moment until what was used is settled."""
        until = time.monotonic() + _FLUSH_SECONDS
        with self._lock:
            while (self._requests_to_send or self._busy) and time.monotonic() < until:
                self._lock.wait(0.1)
            if self._requests_to_send or self._busy:
                _log.warning("what some calls used could not be settled with the gateway at %s", self._gateway.url)

    # -- threads -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        if self._threads:
            return
        work = [self._work] * _WORKERS + [self._listen]
        self._threads = [threading.Thread(target=run, name="fairgate-leases", daemon=True) for run in work]
        for thread in self._threads:
            thread.start()

    def _send_soon(self, request: Callable[[], None]) -> None:
        """Has a worker thread send a request to the gateway. Needs the lock."""
        self._requests_to_send.append(request)
        self._lock.notify_all()

    def _is_done(self) -> bool:
        """Whether it was closed and nothing is left to do. Needs the lock."""
        return self._closed and not self._calls and not self._requests_to_send and not self._busy

    def _work(self) -> None:
        while True:
            with self._lock:
                while not self._requests_to_send:
                    if self._is_done():
                        self._gateway.disconnect()
                        return
                    self._lock.wait()
                request = self._requests_to_send.popleft()
                self._busy += 1
            try:
                request()
            except Exception:
                _log.exception("a lease of the gateway at %s", self._gateway.url)
            finally:
                with self._lock:
                    self._busy -= 1
                    self._lock.notify_all()

    def _listen(self) -> None:
        """Hears of all leases of this process, for ever. To ask keeps them alive."""
        after = 0
        failing_since: float | None = None
        while True:
            with self._lock:
                while not self._calls:
                    if self._is_done():
                        self._gateway.disconnect()
                        return
                    self._lock.wait()
            # If this program is killed, what waits ends with the connection. A gateway that does not know that ignores it.
            query = f"client={self._client}&after={after}&wait_ms={_NEWS_WAIT_MS}&ends_with_connection=true"
            try:
                news = self._gateway.ask("GET", f"/v1/leases?{query}", tries=1)
            except GatewayError as error:
                now = time.monotonic()
                pause = _RETRY_SECONDS if failing_since else _FIRST_RETRY_SECONDS
                failing_since = failing_since or now
                if now - failing_since > _GONE_AFTER or error.status in (401, 403):
                    self._lose_all(error)
                    failing_since = None
                time.sleep(pause)
                continue
            failing_since = None
            after = news["latest"]
            with self._lock:
                for lease in news["leases"]:
                    call = self._by_id.get(lease.get("own_id", ""))
                    if call is not None:
                        self._hear(call, lease)
                self._miss(self._gateway.process)

    # -- what the gateway says: all of these need the lock -----------------------------------------------------

    def _hear(self, call: _Call, lease: dict[str, Any]) -> None:
        if lease.get("own_id", call.id) != call.id:
            return  # It was submitted again since.
        call.lease = lease["id"]
        state = lease["state"]
        if state == "granted":
            if call.state == _WAITING and lease["attempt"] > call.refused_with:
                call.attempt = lease["attempt"]
                call.state = _HELD
                self._deliver(call, int(lease["waited_ms"] * 1000))
            elif call.state == _OVER:
                self._send_soon(lambda: self._cancel(call))
        elif state == "refused":
            said = lease["error"]
            retry_ms = said["retry_after_ms"]
            seconds = None if retry_ms is None else retry_ms / 1000
            self._refuse(call, GatewayError(said["code"], said["message"], said["status"], seconds))
        elif state == "cancelled" and call.state == _WAITING:
            # The gateway lost the connection for more than a second, and took this program for dead.
            self._submit_again(call)
        elif state == "lost":
            self._lose(call, f"it was not renewed in time, and {lease['charged']} tokens were charged for it")

    def _refuse(self, call: _Call, error: GatewayError) -> None:
        if call.state == _WAITING:
            self._deliver(call, _refusal(call, error))
        self._end(call)

    def _lose(self, call: _Call, why: str) -> None:
        if call.state == _WAITING:
            self._deliver(call, ("gateway", GatewayError("lease_lost", f"the lease is lost: {why}", 409)))
        elif call.state == _HELD:
            _log.warning("the lease %s of agent %r is lost: %s", call.lease, call.body["agent"], why)
        self._end(call)

    def _miss(self, process: str | None) -> None:
        """Leases of a gateway that was restarted are gone. Who waits is submitted again."""
        for call in list(self._calls.values()):
            if call.lease is None or process is None or call.lease.startswith(process):
                continue
            if call.state == _WAITING:
                self._submit_again(call)
            else:
                self._lose(call, "the gateway was restarted")

    def _submit_again(self, call: _Call) -> None:
        """Submits a call that waits under another id, because the gateway remembers the lease that has ended."""
        self._by_id.pop(call.id, None)
        call.submissions += 1
        call.id = f"{self._client}-{call.number}-{call.submissions}"
        call.body["id"] = call.id
        self._by_id[call.id] = call
        call.lease = None
        call.refused_with = 0
        self._send_soon(lambda: self._submit(call))

    def _lose_all(self, error: GatewayError) -> None:
        with self._lock:
            for call in list(self._calls.values()):
                if call.state == _WAITING:
                    self._refuse(call, error)
                    continue
                self._lose(call, f"the gateway has not answered for {_GONE_AFTER:g} s: {error.message}")

    def _deliver(self, call: _Call, outcome: Outcome) -> None:
        waiter, call.waiter = call.waiter, None
        if waiter is None:
            call.news = outcome
            return
        target, loop = waiter
        if loop is None:
            target.put(outcome)
            return
        try:
            loop.call_soon_threadsafe(_resolve, target, outcome)
        except RuntimeError:
            # Its loop is closed: nobody will use the slot.
            self._end(call)
            self._send_soon(lambda: self._cancel(call))

    def _end(self, call: _Call) -> None:
        """Nothing more is heard of it. What waits to be read can still be read."""
        was, call.state = call.state, _OVER
        if call.news is None or was != _WAITING:
            self._calls.pop(call.number, None)
        self._by_id.pop(call.id, None)
        self._lock.notify_all()

    # -- errands, on a thread of their own ---------------------------------------------------------------------

    def _submit(self, call: _Call) -> None:
        with self._lock:
            if call.state != _WAITING:
                return
        body = call.body
        if call.deadline is not None and math.isfinite(call.deadline):
            # From now on: to get here took time, after a restart of the gateway even long.
            left = call.deadline - time.monotonic()
            body = {**body, "deadline_ms": max(1, math.ceil(left * 1000))}
        try:
            lease = self._gateway.ask("POST", "/v1/leases", body)
        except GatewayError as error:
            with self._lock:
                self._refuse(call, self._explained(error))
            return
        with self._lock:
            if call.state == _OVER and call.lease is None:
                call.lease = lease["id"]
                self._send_soon(lambda: self._cancel(call))
            elif call.state != _OVER:
                self._hear(call, lease)

    def _explained(self, error: GatewayError) -> GatewayError:
        """The error of a submission; of a gateway that does not know deadlines, one that says so."""
        if error.status != 400 or "unknown field `deadline_ms`" not in error.message:
            return error
        return GatewayError(
            "deadline_unsupported",
            f"the gateway at {self._gateway.url} is too old to know the deadline of a request, which timeout= is. Update the "
            "gateway, or ask without timeout and bound the wait yourself, as with asyncio.wait_for",
            error.status,
        )

    def _limited(self, call: _Call) -> None:
        try:
            lease = self._gateway.ask("POST", f"/v1/leases/{call.lease}/limited", call.answer)
        except GatewayError as error:
            if error.code == "not_a_limit":
                self._settle(call, {"tokens": 0})
            with self._lock:
                # The call fails with what its provider said.
                if call.state == _WAITING:
                    self._deliver(call, ("timeout",))
                self._end(call)
            return
        with self._lock:
            call.answer = None
            self._hear(call, lease)

    def _settle(self, call: _Call, report: dict[str, Any]) -> None:
        try:
            self._gateway.ask("POST", f"/v1/leases/{call.lease}/settle", report)
        except GatewayError as error:
            _log.warning("what a call of agent %r used was not settled: %s", call.body["agent"], error)

    def _cancel(self, call: _Call) -> None:
        if call.lease is None:
            # It is being submitted: whoever does that cancels it.
            return
        try:
            self._gateway.ask("DELETE", f"/v1/leases/{call.lease}")
        except GatewayError as error:
            _log.info("a lease was not cancelled, and ends by itself: %s", error)


def _submission(
    agent: str, weight: float, cost: int | None, priority: int, attributes: dict[str, str] | None
) -> dict[str, Any]:
    thousandths = round(weight * 1000) if math.isfinite(weight) else 0
    if not 1 <= thousandths <= 1_000_000_000 or abs(thousandths / 1000 - weight) > 1e-9 * weight:
        raise ValueError(f"weight must be 0.001 to 1000000 with at most three decimals, not {weight}")
    body: dict[str, Any] = {"agent": agent, "priority": priority, "weight": thousandths / 1000}
    # As in the scheduler of one process: a weight of 1 stands for a thousand tokens.
    body["cost"] = thousandths if cost is None else cost
    for name, value in (attributes or {}).items():
        if name not in ("class", "session", "model"):
            raise FairgateError(
                f"the attribute {name!r} of a lease is not the program's to choose: the gateway knows it by the key; "
                "class and session may be given"
            )
        body[name] = value
    return body


def _refusal(call: _Call, error: GatewayError) -> Refusal:
    """How a call that the gateway refused is told: as a timeout where it has waited for as long as it may."""
    limit: WaitLimit
    if error.code == "deadline_passed":
        # A request's own deadline is asked first, then its key's, then its class's.
        limit = "deadline" if call.timeout is None else "timeout"
    elif error.code == "queue_timeout":
        limit = "queue_timeout"
    else:
        return ("gateway", error)
    late = SlotTimeout(call.body["agent"], call.timeout, limit, error.message, error.retry_after)
    return ("timeout", late)


def _is_told(name: str) -> bool:
    """Whether a header may say something about limits."""
    name = name.lower()
    return "ratelimit" in name or name.startswith("retry-after") or name == "date"


_living: weakref.WeakSet[LeaseGate] = weakref.WeakSet()


def _in_child() -> None:
    for gate in list(_living):
        gate.forget_requests()


def _at_exit() -> None:
    # What was used is settled before the program ends.
    for gate in list(_living):
        gate.flush()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)


def _resolve(future: Future[Any], outcome: Outcome) -> None:
    if not future.done():
        future.set_result(outcome)

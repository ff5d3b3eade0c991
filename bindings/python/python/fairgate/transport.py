"""Transports of httpx and httpx2, scheduled: for every package that sends its calls through one.

    transport = fairgate.transport.scheduled(httpx.AsyncHTTPTransport(), scheduler, agent="analyst")
    client = SomePackage(http_client=httpx.AsyncClient(transport=transport))

The transport stands where the client hands a request to the network: there it asks for a slot, and gives it back when the answer's last byte has been read or the
answer is closed. So it sees every way of calling (helpers, raw answers, streams, retries), and changes none.

A call that meets the provider's limit (429, or 503 and 529 where they say so) is sent again in its turn: until then it holds
no slot, and nobody is granted one before the provider allows. The package above sees the answer that came in the end. Other
errors it retries itself: each attempt asks anew, and no slot is held while it waits.
"""

from __future__ import annotations

import functools
import importlib
import json
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, Union

from .adapters.reading import UsageReader
from .calls import Call
from .errors import BudgetExceeded, Closed, FairgateError, QueueFull, WouldDeadlock
from .limits import STATUSES, ProviderAnswer, headers_of
from .scheduler import Scheduler
from .weighing import Estimate, Weighing

_Transport = TypeVar("_Transport")


#: How the paths of scheduled calls end: OpenAI's and those of the many who speak as it does, Anthropic's, Google's, Amazon's,
#: Cohere's, Ollama's. Everything else (models, files, counting tokens, …) goes through as it is.
PATHS = (
    "/chat/completions",
    "/completions",
    "/responses",
    "/embeddings",
    "/messages",
    ":generateContent",
    ":streamGenerateContent",
    ":embedContent",
    ":rawPredict",
    ":streamRawPredict",
    "/converse",
    "/converse-stream",
    "/invoke",
    "/invoke-with-response-stream",
    "/v1/chat",
    "/v2/chat",
    "/api/chat",
    "/api/generate",
)


# Google and Amazon name the model in the path.
_MODEL_IN_PATH = re.compile(r"/models?/([^/]+?)(?::[a-zA-Z]+|/(?:converse|invoke)[a-z-]*)$")


def scheduled(
    transport: _Transport,
    scheduler: Scheduler,
    *,
    agent: str = "default",
    weighing: Weighing = Weighing(),
    timeout: float | None = None,
    paths: tuple[str, ...] = PATHS,
) -> _Transport:
    """A transport that lets every call whose path ends with one of ``paths`` wait for its turn, then hands it to ``transport``.

    For sync and async transports alike, of httpx or httpx2. A call is of the agent of the innermost ``with fairgate.agent(…)``
    block, else of ``agent``. Its weight and cost come from ``weighing``; what the answer says it used settles. It waits for its
    slot for at most ``timeout`` seconds, where that is given.

    A refusal looks to the program like the provider's own, so that code which handles those keeps working: 429 for a
    full queue (with the time after which to retry), a timeout or an exhausted budget, 409 for a certain deadlock, 503 for
    a closed scheduler. The error of fairgate is in the ``extensions`` of the error's response, under ``"fairgate"``.
    """
    module, kinds = _kind_of(transport)
    kind = _transports(module)[kinds]
    made: _Transport = kind(transport, scheduler, paths, agent, weighing, timeout)
    return made


def is_scheduled(transport: object) -> bool:
    """Whether a transport came from :func:`scheduled`."""
    return isinstance(transport, _ScheduledTransport)


#: Whether a transport is for sync clients, and whether it is for async ones. ``MockTransport`` is for both.
_Kinds = tuple[bool, bool]


def _kind_of(transport: object) -> tuple[str, _Kinds]:
    for name in ("httpx2", "httpx"):
        module = sys.modules.get(name)
        if module is None:
            continue
        kinds = isinstance(transport, module.BaseTransport), isinstance(transport, module.AsyncBaseTransport)
        if any(kinds):
            return name, kinds
    raise TypeError(f"{type(transport).__name__} is no transport of httpx or httpx2")


class _Answer:
    """An answer as its bytes pass: it ends its call, with what it says that the call used.

    An answer that is neither read to its end nor closed keeps its slot until it is collected, which warns.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self._reader: UsageReader | None = None

    def begins(self, response: Any) -> None:
        self.call.answered(ProviderAnswer(response.status_code, headers_of(response.headers)))
        if response.is_success:
            headers = response.headers
            self._reader = UsageReader(
                headers.get("content-type", ""), headers.get("content-encoding", "").lower()
            )

    def is_read(self, response: Any) -> bool:
        """Whether the transport underneath has read the answer already: then it is over."""
        if not response.is_closed:
            return False
        if self._reader is not None:
            # What it read is decoded.
            self._reader = UsageReader(response.headers.get("content-type", ""), "")
            self._reader.feed(response.content)
        self.end()
        return True

    def feed(self, data: bytes) -> None:
        if self._reader is not None:
            self._reader.feed(data)

    def end(self) -> None:
        """Settles and gives the slot back; a second time it does nothing."""
        try:
            self._settle()
        finally:
            self.call.end()

    def _settle(self) -> None:
        call, reader = self.call, self._reader
        if call.is_over:
            return
        if reader is None:
            call.used_nothing()
            return
        reader.end()
        usage = reader.usage
        if usage is not None:
            call.used(usage.input_tokens, usage.output_tokens, usage.model or call.estimate.model)
        elif reader.streams:
            # A stream that does not say, or was left before it could: its prompt is billed, and about one token an event.
            call.used(call.estimate.prompt_tokens, reader.text_events, call.estimate.model)


@dataclass(frozen=True)
class _Start:
    """Wait for the slot."""

    call: Call


@dataclass(frozen=True)
class _Send:
    """Hand the request to the transport underneath: its response."""

    request: Any


@dataclass(frozen=True)
class _ReadWhole:
    """Read a response to its end, and close it: its body."""

    response: Any


@dataclass(frozen=True)
class _WaitAgain:
    """Wait for another turn after a refusal: whether there is one."""

    call: Call
    refusal: ProviderAnswer


_Step = Union[_Start, _Send, _ReadWhole, _WaitAgain]
#: An exchange of a request for a response, as steps.
_Exchange = Generator[_Step, Any, Any]


def _carry_out(exchange: _Exchange, do: Callable[[_Step], Any]) -> Any:
    step = next(exchange)
    while True:
        try:
            try:
                result = do(step)
            except BaseException as error:
                step = exchange.throw(error)
            else:
                step = exchange.send(result)
        except StopIteration as end:
            return end.value


async def _carry_out_async(exchange: _Exchange, do: Callable[[_Step], Awaitable[Any]]) -> Any:
    step = next(exchange)
    while True:
        try:
            try:
                result = await do(step)
            except BaseException as error:
                step = exchange.throw(error)
            else:
                step = exchange.send(result)
        except StopIteration as end:
            return end.value


class _ScheduledTransport:
    """What the transports have in common."""

    _paths: tuple[str, ...]
    _scheduler: Scheduler
    _agent: str
    _weighing: Weighing
    _timeout: float | None
    _module: Any

    def _estimate(self, request: Any) -> Estimate | None:
        """What the request is expected to be; None where it is not for a slot."""
        if request.method != "POST" or not request.url.path.endswith(self._paths):
            return None
        try:
            body = json.loads(request.content)
        except (ValueError, self._module.RequestNotRead):
            body = None
        # What we can read: brotli and zstd are not in Python's library.
        request.headers["accept-encoding"] = "gzip, deflate"
        body = body if isinstance(body, dict) else {}
        named = _MODEL_IN_PATH.search(request.url.path)
        if named is not None and "model" not in body:
            body = {**body, "model": named[1]}
        return self._weighing.of_body(body)

    def _exchange(self, request: Any, stream: type[Any]) -> _Exchange:
        """What becomes of a request, for threads and tasks alike: yields what takes time, and is sent its result.

        ``stream`` wraps the answer's bytes.
        """
        estimate = self._estimate(request)
        if estimate is None:
            return (yield _Send(request))
        call = Call(self._scheduler, estimate, agent=self._agent, timeout=self._timeout)
        answer = _Answer(call)
        try:
            yield _Start(call)
            response = yield _Send(request)
            while response.status_code in STATUSES:
                body = yield _ReadWhole(response)
                refusal = ProviderAnswer(response.status_code, headers_of(response.headers), body)
                if not (self._is_repeatable(request) and (yield _WaitAgain(call, refusal))):
                    answer.end()
                    return self._given_up(request, response, body)
                response = yield _Send(request)
            answer.begins(response)
            if not answer.is_read(response):
                response.stream = stream(response.stream, answer)
        except FairgateError as error:
            answer.end()
            return self._refusal(request, error)
        except BaseException:
            answer.end()
            raise
        return response

    def _is_repeatable(self, request: Any) -> bool:
        """Whether the request's body is there to be sent again."""
        try:
            request.content
        except self._module.RequestNotRead:
            return False
        return True

    def _given_up(self, request: Any, response: Any, body: bytes) -> Any:
        """The provider's own refusal, after the scheduler has done all that waiting can do.

        The package above need not try again. Of an error that is not about a limit the scheduler says nothing.
        """
        headers = [
            (name, value)
            for name, value in response.headers.multi_items()
            if name not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        if response.status_code == 429 and "x-should-retry" not in response.headers:
            headers.append(("x-should-retry", "false"))
        return self._module.Response(
            response.status_code, headers=headers, content=body, request=request, extensions=response.extensions
        )

    def _refusal(self, request: Any, error: FairgateError) -> Any:
        status, code, retry = 429, "slot_timeout", False
        headers = {"content-type": "application/json"}
        if isinstance(error, QueueFull):
            code, retry = error.reason, True
            if error.retry_after is not None:
                headers["retry-after-ms"] = str(max(1, round(error.retry_after * 1000)))
        elif isinstance(error, BudgetExceeded):
            code = "over_budget"
        elif isinstance(error, WouldDeadlock):
            status, code = 409, "deadlock"
        elif isinstance(error, Closed):
            status, code = 503, "closed"
        headers["x-should-retry"] = "true" if retry else "false"
        body = {"type": "error", "error": {"type": "fairgate", "code": code, "message": str(error)}}
        response = self._module.Response(
            status, headers=headers, content=json.dumps(body).encode(), request=request
        )
        response.extensions["fairgate"] = error
        return response


@functools.lru_cache(maxsize=None)
def _transports(module_name: str) -> dict[_Kinds, type[Any]]:
    """The scheduled transports for httpx or httpx2, whichever a program uses: sync, async, and both."""
    module = importlib.import_module(module_name)

    class SyncStream(module.SyncByteStream):  # type: ignore[name-defined, misc]
        def __init__(self, inner: Any, answer: _Answer) -> None:
            self._inner = inner
            self._answer = answer

        def __iter__(self) -> Iterator[bytes]:
            try:
                self._answer.call.read_here()
                for data in self._inner:
                    self._answer.feed(data)
                    yield data
                    self._answer.call.read_here()
            finally:
                self._answer.end()

        def close(self) -> None:
            try:
                self._inner.close()
            finally:
                self._answer.end()

    class AsyncStream(module.AsyncByteStream):  # type: ignore[name-defined, misc]
        def __init__(self, inner: Any, answer: _Answer) -> None:
            self._inner = inner
            self._answer = answer

        async def __aiter__(self) -> AsyncIterator[bytes]:
            try:
                self._answer.call.read_here()
                async for data in self._inner:
                    self._answer.feed(data)
                    yield data
                    self._answer.call.read_here()
            finally:
                self._answer.end()

        async def aclose(self) -> None:
            try:
                await self._inner.aclose()
            finally:
                self._answer.end()

    class Transport(_ScheduledTransport):
        _module = module

        def __init__(
            self,
            inner: Any,
            scheduler: Scheduler,
            paths: tuple[str, ...],
            agent: str,
            weighing: Weighing,
            timeout: float | None,
        ) -> None:
            self._inner = inner
            self._scheduler = scheduler
            self._paths = paths
            self._agent = agent
            self._weighing = weighing
            self._timeout = timeout

    class SyncTransport(Transport, module.BaseTransport):  # type: ignore[name-defined, misc]
        def handle_request(self, request: Any) -> Any:
            return _carry_out(self._exchange(request, SyncStream), self._do)

        def _do(self, step: _Step) -> Any:
            match step:
                case _Start(call):
                    return call.start_blocking()
                case _Send(request):
                    return self._inner.handle_request(request)
                case _ReadWhole(response):
                    body = response.read()
                    response.close()
                    return body
                case _WaitAgain(call, refusal):
                    return call.again_blocking(refusal)

        def close(self) -> None:
            self._inner.close()

    class AsyncTransport(Transport, module.AsyncBaseTransport):  # type: ignore[name-defined, misc]
        async def handle_async_request(self, request: Any) -> Any:
            return await _carry_out_async(self._exchange(request, AsyncStream), self._do_async)

        async def _do_async(self, step: _Step) -> Any:
            match step:
                case _Start(call):
                    return await call.start()
                case _Send(request):
                    return await self._inner.handle_async_request(request)
                case _ReadWhole(response):
                    body = await response.aread()
                    await response.aclose()
                    return body
                case _WaitAgain(call, refusal):
                    return await call.again(refusal)

        async def aclose(self) -> None:
            await self._inner.aclose()

    class BothTransport(SyncTransport, AsyncTransport):
        """For sync and async clients."""

    return {(True, False): SyncTransport, (False, True): AsyncTransport, (True, True): BothTransport}

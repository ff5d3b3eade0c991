"""A provider's limits: kept, corrected by what it says, and met without a failure."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from conftest import Model, running_model
from waiting import idle, until, waiting

import fairgate
import fairgate.adapters.anthropic
import fairgate.adapters.langchain
import fairgate.adapters.openai
import fairgate.transport
from fairgate.rates import per_minute

PROMPT: list[Any] = [{"role": "user", "content": "What is the time in Lisbon today"}]
Call = Callable[[], Awaitable[Any]]


@pytest.fixture
def limited() -> Iterator[Model]:
    """A provider of 20 requests a second with a burst of 20."""
    with running_model("--requests-per-minute=1200", "--burst-seconds=1") as model:
        yield model


def refusals(provider: Model) -> int:
    counts = provider.stats()["account"]
    return int(counts["refused_by_requests"] + counts["refused_by_tokens"])


def through_attach(scheduler: fairgate.Scheduler, client: openai.AsyncOpenAI) -> Call:
    attached = fairgate.adapters.openai.attach(client, scheduler, agent="a")
    return lambda: attached.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)


def through_slot(scheduler: fairgate.Scheduler, client: openai.AsyncOpenAI) -> Call:
    async def call() -> Any:
        async with scheduler.slot("a") as slot:
            while True:
                try:
                    return await client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)
                except openai.RateLimitError as error:
                    await slot.retry(error)

    return call


def through_wrap(scheduler: fairgate.Scheduler, client: openai.AsyncOpenAI) -> Call:
    create = client.chat.completions.create
    return lambda: scheduler.wrap(create, agent_id="a", model="gpt-4o-mini", messages=PROMPT)


def through_decorator(scheduler: fairgate.Scheduler, client: openai.AsyncOpenAI) -> Call:
    @scheduler.scheduled(agent_id="a")
    async def call() -> Any:
        return await client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)

    return call


def through_langchain(scheduler: fairgate.Scheduler, client: openai.AsyncOpenAI) -> Call:
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model="gpt-4o-mini", base_url=str(client.base_url), api_key="none", max_retries=6)  # type: ignore[arg-type]
    chat.root_async_client = client.with_options(max_retries=6)
    chat.async_client = chat.root_async_client.chat.completions
    model = fairgate.adapters.langchain.schedule(chat, scheduler, agent="a")
    return lambda: model.ainvoke("What is the time in Lisbon today")


def through_all_layers(scheduler: fairgate.Scheduler, client: openai.AsyncOpenAI) -> Call:
    fairgate.adapters.openai.attach(client, scheduler, agent="a")
    call = through_langchain(scheduler, client)
    return lambda: scheduler.wrap(call, agent_id="a")


@pytest.mark.parametrize(
    "way", [through_attach, through_slot, through_wrap, through_decorator, through_langchain, through_all_layers]
)
@pytest.mark.parametrize("stated", [True, False], ids=["stated", "not-stated"])
async def test_160_calls_at_once_meet_a_limit_of_20_a_second(
    way: Callable[[fairgate.Scheduler, openai.AsyncOpenAI], Call], stated: bool, limited: Model
) -> None:
    rates = {"requests": "20/s"} if stated else None
    scheduler = fairgate.Scheduler(capacity=8, max_waiting=1000, rates=rates, burst_seconds=1)
    async with openai.AsyncOpenAI(base_url=f"{limited.url}/v1", api_key="none", max_retries=0) as client:
        call = way(scheduler, client)
        start = time.monotonic()
        outcomes = await asyncio.gather(*(call() for _ in range(160)), return_exceptions=True)
        took = time.monotonic() - start
    failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    counts = limited.stats()["account"]
    print(f"{way.__name__}: {len(failed)} failed, {counts}, {took:.1f} s")
    assert not failed and idle(scheduler)
    refused = refusals(limited)
    if stated:
        assert refused <= 5, counts
        # 20 at once, then 20 a second.
        assert 6.5 < took < 9.5
    now = scheduler.snapshot().provider
    assert now is None or now.limits_met == refused


class PerSecond:
    """A provider of 20 requests a second that states its limit as OpenAI does: 20, and how soon all of them are back."""

    def __init__(self) -> None:
        self.level, self.at = 20.0, time.monotonic()
        self.refused = 0

    async def __call__(self, _: httpx.Request) -> httpx.Response:
        now = time.monotonic()
        self.level, self.at = min(20.0, self.level + (now - self.at) * 20), now
        is_taken = self.level >= 1
        self.level -= is_taken
        self.refused += not is_taken
        headers = {
            "x-ratelimit-limit-requests": "20",
            "x-ratelimit-remaining-requests": str(int(self.level)),
            "x-ratelimit-reset-requests": f"{round((20 - self.level) * 50)}ms",
        }
        if not is_taken:
            return httpx.Response(429, headers={**headers, "retry-after-ms": "50"}, json={"error": {"message": "slow down"}})
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        answer = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [], "usage": usage}
        return httpx.Response(200, headers=headers, json=answer)


async def test_a_limit_per_second_is_read_from_its_number_and_its_reset() -> None:
    provider = PerSecond()
    scheduler = fairgate.Scheduler(capacity=8, max_waiting=1000)
    http = httpx.AsyncClient(transport=fairgate.transport.scheduled(httpx.MockTransport(provider), scheduler, agent="a"))
    async with http:
        start = time.monotonic()
        calls = (http.post("http://provider/v1/chat/completions", json={"model": "m"}) for _ in range(100))
        answers = await asyncio.wait_for(asyncio.gather(*calls), 60)
        took = time.monotonic() - start
    now = scheduler.snapshot().provider
    print(f"{provider.refused} refused, {took:.1f} s, {now}")
    assert [answer.status_code for answer in answers] == [200] * 100
    # 20 at once, then 20 a second: 4 s. Read as 20 a minute, it was 240 s.
    assert 3.5 < took < 20
    assert now is not None and now.requests_per_minute == 1200
    assert provider.refused <= 20


async def test_rates_that_are_stated_win_over_what_headers_claim() -> None:
    claims = {"x-ratelimit-limit-requests": "20", "x-ratelimit-remaining-requests": "19", "x-ratelimit-reset-requests": "3s"}
    scheduler = fairgate.Scheduler(capacity=8, max_waiting=1000, rates={"requests": "100/s"}, burst_seconds=1)

    async def call() -> None:
        async with scheduler.slot("a", cost=1) as slot:
            slot.settle(1)
            slot.heard({**claims, "x-ratelimit-limit-tokens": "5000"})

    await asyncio.wait_for(asyncio.gather(*(call() for _ in range(150))), 30)
    now = scheduler.snapshot().provider
    assert now is not None and now.requests_per_minute == 6000
    assert now.tokens_per_minute == 5000, "what is not stated is the provider's to state"


async def test_two_agents_share_a_token_rate_by_their_weights() -> None:
    scheduler = fairgate.Scheduler(
        capacity=50, max_waiting=5000, policy="share", weights={"a": 300, "b": 100}, rates={"tokens": "60k/min"}, burst_seconds=1
    )
    used = {"a": 0, "b": 0}

    async def agent(name: str, tokens: int) -> None:
        while True:
            async with scheduler.slot(name, cost=10) as slot:
                await asyncio.sleep(0.001)
                slot.settle(tokens=tokens)
                used[name] += tokens

    tasks = [asyncio.create_task(agent(name, tokens)) for name, tokens in (("a", 10), ("b", 5)) for _ in range(20)]
    await asyncio.sleep(4)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    total = used["a"] + used["b"]
    assert abs(used["a"] / total - 0.75) < 0.02, used
    # A thousand a second, and a thousand at once.
    assert 4_000 < total < 5_700, used
    assert idle(scheduler)


class Refusing:
    """Stands for a call: refused with that answer so many times."""

    def __init__(self, times: int, *, status: int = 429, body: bytes = b"", **headers: str) -> None:
        self.left = times
        self.calls: list[float] = []
        self._response = httpx.Response(
            status, headers={name.replace("_", "-"): value for name, value in headers.items()}, content=body
        )

    async def __call__(self, *_: Any) -> str:
        self.calls.append(time.monotonic())
        if self.left:
            self.left -= 1
            error: Any = RuntimeError("refused")
            error.response = self._response
            raise error
        return "ran"


async def test_nobody_is_granted_before_the_reset_and_the_refused_goes_first() -> None:
    scheduler = fairgate.Scheduler(capacity=2)
    order: list[str] = []

    def call(name: str, fn: Any, agent: str = "a") -> asyncio.Task[Any]:
        async def run() -> None:
            await scheduler.run(fairgate.CallOptions(agent, priority=5 if name == "urgent" else 0), fn)
            order.append(name)

        return asyncio.create_task(run())

    refused = Refusing(1, retry_after_ms="300")
    holder = await scheduler.acquire("z")
    first = call("refused", refused)
    await until(lambda: len(refused.calls) == 1)
    await until(waiting(scheduler, 1))
    others = [call("urgent", Refusing(0)), call("other agent's", Refusing(0), "b")]
    holder.release()
    await asyncio.gather(first, *others)
    assert order.index("refused") < order.index("urgent")
    assert refused.calls[1] - refused.calls[0] >= 0.29
    costs = {cost.agent: cost.requests for cost in scheduler.costs()}
    assert costs == {"a": 2, "b": 1, "z": 1}, "the attempt that was refused is nobody's"
    now = scheduler.snapshot().provider
    assert now is not None and (now.limits_met, now.paused) == (1, 0.0)


async def test_a_refused_call_has_a_deadline() -> None:
    for options, header in (
        ({"timeout": 0.2}, {"retry_after": "5"}),
        ({"timeout": 0.2}, {"retry_after_ms": "50"}),
    ):
        scheduler = fairgate.Scheduler(capacity=1)
        refusing = Refusing(1000, **header)
        start = time.monotonic()
        with pytest.raises(RuntimeError, match="refused"):
            await scheduler.run(fairgate.CallOptions("a", **options), refusing)  # type: ignore[arg-type]
        assert time.monotonic() - start < 1.5 and idle(scheduler)
    impatient = fairgate.Scheduler(capacity=1, retry_seconds=0)
    refusing = Refusing(1, retry_after_ms="1")
    with pytest.raises(RuntimeError):
        await impatient.run(fairgate.CallOptions("a"), refusing)
    assert len(refusing.calls) == 1 and idle(impatient)


@pytest.mark.parametrize(
    ("status", "body", "is_limit"),
    [
        (429, b'{"error":{"code":"rate_limit_exceeded"}}', True),
        (529, b'{"type":"error","error":{"type":"overloaded_error"}}', True),
        (429, b'{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}', False),
        (503, b"", True),
        (500, b"", False),
    ],
)
async def test_only_limits_are_retried(status: int, body: bytes, is_limit: bool) -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    refusing = Refusing(1, status=status, body=body, retry_after_ms="10")
    if is_limit:
        assert await scheduler.wrap(refusing, agent_id="a") == "ran"
    else:
        with pytest.raises(RuntimeError, match="refused"):
            await scheduler.wrap(refusing, agent_id="a")
    assert len(refusing.calls) == 1 + is_limit and idle(scheduler)


async def test_a_block_that_ends_with_a_refusal_lets_the_others_wait() -> None:
    scheduler = fairgate.Scheduler(capacity=2)
    with pytest.raises(RuntimeError):
        async with scheduler.slot("a"):
            await Refusing(1, retry_after_ms="200")()
    start = time.monotonic()
    async with scheduler.slot("b"):
        assert time.monotonic() - start > 0.15
    assert scheduler.costs()[0].tokens == 0


async def test_a_retry_that_is_cancelled_or_closed_leaves_nothing() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    task = asyncio.create_task(scheduler.wrap(Refusing(1, retry_after="30"), agent_id="a"))
    await until(waiting(scheduler, 1))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert idle(scheduler)
    task = asyncio.create_task(scheduler.wrap(lambda: "never", agent_id="a"))
    await until(waiting(scheduler, 1))
    scheduler.close()
    with pytest.raises(fairgate.Closed):
        await task


def test_threads_wait_for_the_limit_too(limited: Model) -> None:
    scheduler = fairgate.Scheduler(capacity=4, rates={"requests": "20/s"}, burst_seconds=1)
    with openai.OpenAI(base_url=f"{limited.url}/v1", api_key="none", max_retries=0) as client:
        fairgate.adapters.openai.attach(client, scheduler, agent="a")
        failures: list[BaseException] = []

        def body() -> None:
            try:
                for _ in range(10):
                    client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=body) for _ in range(4)]
        start = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert not failures and idle(scheduler)
    assert time.monotonic() - start > 0.9
    assert refusals(limited) <= 5


async def test_the_headers_of_answers_become_rates() -> None:
    with running_model("--tokens-per-minute=60000", "--requests-per-minute=600") as provider:
        scheduler = fairgate.Scheduler(capacity=1, rates={"requests": "1000/min"})
        async with anthropic.AsyncAnthropic(base_url=provider.url, api_key="none", max_retries=0) as client:
            fairgate.adapters.anthropic.attach(client, scheduler)
            await client.messages.create(model="claude-haiku", max_tokens=5, messages=PROMPT)
        now = scheduler.snapshot().provider
        assert now is not None and (now.tokens_per_minute or 0) <= 60_000
        assert now.requests_per_minute == 1000, "the program states it"
    # Without an adapter the program says what it heard.
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("a") as slot:
        slot.heard({"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0"})
    now = scheduler.snapshot().provider
    assert now is not None and now.requests_per_minute == 60


async def test_the_package_does_not_retry_what_the_scheduler_gave_up(limited: Model) -> None:
    calls = 0

    def answer(request: httpx2.Request) -> httpx2.Response:
        nonlocal calls
        calls += 1
        return httpx2.Response(429, headers={"retry-after": "9"}, json={"error": {"code": "rate_limit_exceeded"}})

    scheduler = fairgate.Scheduler(capacity=1)
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    async with openai.AsyncOpenAI(base_url="http://test", api_key="none", http_client=http, max_retries=5) as client:
        fairgate.adapters.openai.attach(client, scheduler, timeout=0.5)
        with pytest.raises(openai.RateLimitError) as error:
            await client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)
    assert calls == 1 and error.value.code == "rate_limit_exceeded"
    assert idle(scheduler)


def test_rates_as_people_write_them() -> None:
    assert per_minute({"requests": "500/min", "tokens": "200k/min"}) == (500, 200_000)
    assert per_minute({"requests": "20/s"}) == (1200, None)
    assert per_minute({"requests": 90, "tokens": "1.5M/hour"}) == (90, 25_000)
    assert per_minute({"tokens": "30_000 / minute"}) == (None, 30_000)
    assert per_minute(None) == (None, None)
    for bad in ("500", "500/day", "-5/min", "0/min", "1/hour", 0, -1, 1.5, True, "k/min"):
        with pytest.raises(ValueError, match=r"rates\['requests'\] must be"):
            fairgate.Scheduler(rates={"requests": bad})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="there are requests and tokens, not 'request'"):
        fairgate.Scheduler(rates={"request": 5})
    with pytest.raises(ValueError, match="burst_seconds must be 1 to 60"):
        fairgate.Scheduler(rates={"requests": 5}, burst_seconds=0)


def test_errors_of_other_packages_are_read() -> None:
    from fairgate.limits import answer_of

    def error(**attributes: Any) -> BaseException:
        failure = RuntimeError()
        failure.__dict__.update(attributes)
        return failure

    throttled = {"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPHeaders": {"retry-after": "3"}}}
    for found in (
        error(response=throttled),
        error(status=429, headers={"retry-after": "3"}),
        error(code=429, response=SimpleNamespace(headers={"retry-after": "3"})),
        error(status_code=429, response=httpx.Response(429, headers={"retry-after": "3"})),
    ):
        answer = answer_of(found)
        assert answer is not None and (answer.status, answer.headers) == (429, [("retry-after", b"3")])
    for other in (ValueError(), error(code=404), error(response={"Error": {"Code": "ValidationException"}}), error(code=True)):
        assert answer_of(other) is None

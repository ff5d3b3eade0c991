"""OpenAI's and Anthropic's packages, as they are on PyPI, against the simulated model."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import threading
import warnings
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
from conftest import Model, running_model
from waiting import idle, until, until_in_thread, waiting

import fairgate
import fairgate.adapters.anthropic
import fairgate.adapters.openai
from fairgate.adapters.reading import UsageReader

#: 32 characters: 8 tokens, by the adapter's estimate and by the simulated model's count.
PROMPT: list[Any] = [{"role": "user", "content": "What is the time in Lisbon today"}]
OUT = Model.OUTPUT_TOKENS


def used(scheduler: fairgate.Scheduler) -> list[tuple[str, str, int, int, int]]:
    return [
        (c.agent, c.model, c.requests, c.input_tokens, c.output_tokens) for c in scheduler.costs()
    ]


@pytest.fixture
def scheduler() -> fairgate.Scheduler:
    return fairgate.Scheduler(capacity=1)


@pytest.fixture
def sync_openai(model: Model, scheduler: fairgate.Scheduler) -> Any:
    with openai.OpenAI(base_url=f"{model.url}/v1", api_key="none", max_retries=1) as client:
        yield fairgate.adapters.openai.attach(client, scheduler, agent="analyst")


@pytest.fixture
async def async_openai(model: Model, scheduler: fairgate.Scheduler) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{model.url}/v1", api_key="none", max_retries=1) as client:
        yield fairgate.adapters.openai.attach(client, scheduler, agent="analyst")


@pytest.fixture
def sync_anthropic(model: Model, scheduler: fairgate.Scheduler) -> Any:
    with anthropic.Anthropic(base_url=model.url, api_key="none", max_retries=0) as client:
        yield fairgate.adapters.anthropic.attach(client, scheduler, agent="writer")


@pytest.fixture
async def async_anthropic(model: Model, scheduler: fairgate.Scheduler) -> Any:
    async with anthropic.AsyncAnthropic(base_url=model.url, api_key="none", max_retries=0) as client:
        yield fairgate.adapters.anthropic.attach(client, scheduler, agent="writer")


# -- OpenAI ---------------------------------------------------------------------------------------------------------


def test_openai_calls_settle_what_they_used(sync_openai: Any, scheduler: fairgate.Scheduler) -> None:
    client = sync_openai
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)
    assert answer.usage.completion_tokens == OUT
    client.responses.create(model="gpt-4o-mini", input="What is the time in Lisbon today")
    client.chat.completions.with_raw_response.create(model="gpt-4o-mini", messages=PROMPT).parse()
    client.with_options(max_retries=0).chat.completions.create(model="gpt-4o-mini", messages=PROMPT)
    assert used(scheduler) == [("analyst", "gpt-4o-mini", 4, 4 * 8, 4 * OUT)]
    client.embeddings.create(model="text-embedding", input="What is the time in Lisbon today")
    assert used(scheduler)[1] == ("analyst", "text-embedding", 1, 8, 0)
    grants = scheduler.snapshot().agents["analyst"].grants
    client.models.list()
    assert scheduler.snapshot().agents["analyst"].grants == grants == 5, "what is no call waits for nothing"
    assert idle(scheduler)


def test_openai_streams_hold_their_slot_to_the_end(sync_openai: Any, scheduler: fairgate.Scheduler) -> None:
    options = {"model": "gpt-4o-mini", "messages": PROMPT, "stream": True}
    stream = sync_openai.chat.completions.create(**options, stream_options={"include_usage": True})
    seen = 0
    for chunk in stream:
        seen += bool(chunk.choices and chunk.choices[0].delta.content)
        if not chunk.usage:
            assert scheduler.snapshot().in_flight == 1
    assert seen == OUT and idle(scheduler)
    assert used(scheduler) == [("analyst", "gpt-4o-mini", 1, 8, OUT)]
    # Without usage in the stream, the events with text are counted.
    assert sum(1 for _ in sync_openai.chat.completions.create(**options)) > OUT
    assert used(scheduler) == [("analyst", "gpt-4o-mini", 2, 16, 2 * OUT)]
    with sync_openai.responses.stream(model="gpt-4o-mini", input="What is the time in Lisbon today") as events:
        for _ in events:
            pass
    assert used(scheduler) == [("analyst", "gpt-4o-mini", 3, 24, 3 * OUT)]


def test_an_openai_stream_that_is_left_gives_its_slot_back(scheduler: fairgate.Scheduler) -> None:
    options: dict[str, Any] = {"model": "gpt-4o-mini", "messages": PROMPT, "stream": True}
    # Slow, so that the first event never comes together with the last.
    with running_model(decode_us=50_000) as slow, openai.OpenAI(base_url=f"{slow.url}/v1", api_key="none") as client:
        fairgate.adapters.openai.attach(client, scheduler, agent="analyst")
        with client.chat.completions.create(**options) as stream:
            next(iter(stream))
            assert scheduler.snapshot().in_flight == 1
        assert idle(scheduler)
        stream = client.chat.completions.create(**options)
        next(iter(stream))
        # Python collects the SDK's generator first, which closes the answer, or the slot first, which warns.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            del stream
            gc.collect()
        assert idle(scheduler)


async def test_async_openai_calls_and_streams(async_openai: Any, scheduler: fairgate.Scheduler) -> None:
    client = async_openai
    answers = await asyncio.gather(
        *(client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT) for _ in range(8))
    )
    assert len(answers) == 8
    assert used(scheduler) == [("analyst", "gpt-4o-mini", 8, 64, 8 * OUT)]
    stream = await client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT, stream=True)
    async for _ in stream:
        pass
    assert used(scheduler) == [("analyst", "gpt-4o-mini", 9, 72, 9 * OUT)]
    stream = await client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT, stream=True)
    await anext(aiter(stream))
    assert scheduler.snapshot().in_flight == 1
    await stream.close()
    assert idle(scheduler)


async def test_a_cancelled_async_call_gives_its_slot_to_the_next(
    async_openai: Any, scheduler: fairgate.Scheduler
) -> None:
    never = [{"role": "user", "content": "[sim:fault=hang] hello"}]
    hanging = asyncio.create_task(async_openai.chat.completions.create(model="gpt-4o-mini", messages=never))
    await until(lambda: scheduler.snapshot().in_flight == 1)
    next_ = asyncio.create_task(async_openai.chat.completions.create(model="gpt-4o-mini", messages=PROMPT))
    await until(waiting(scheduler, 1))
    hanging.cancel()
    assert (await next_).usage is not None
    assert idle(scheduler)


def test_each_attempt_asks_anew_and_a_failed_one_uses_nothing(
    sync_openai: Any, scheduler: fairgate.Scheduler
) -> None:
    broken = [{"role": "user", "content": "[sim:fault=status=503] hello"}]
    with pytest.raises(openai.InternalServerError):
        sync_openai.chat.completions.create(model="gpt-4o-mini", messages=broken)
    assert scheduler.snapshot().agents["analyst"].grants == 2, "one retry"
    (cost,) = scheduler.costs()
    assert (cost.requests, cost.tokens) == (2, 0)
    reset = [{"role": "user", "content": "[sim:fault=reset-before] hello"}]
    with pytest.raises(openai.APIConnectionError):
        sync_openai.chat.completions.create(model="gpt-4o-mini", messages=reset)
    assert idle(scheduler)


def test_a_stream_that_breaks_gives_its_slot_back(sync_openai: Any, scheduler: fairgate.Scheduler) -> None:
    reset = [{"role": "user", "content": "[sim:fault=reset-mid] hello"}]
    with pytest.raises(Exception):
        for _ in sync_openai.chat.completions.create(model="gpt-4o-mini", messages=reset, stream=True):
            pass
    assert idle(scheduler)


def test_a_refusal_looks_like_the_providers_own(model: Model) -> None:
    scheduler = fairgate.Scheduler(capacity=1, max_waiting=0, budgets={"poor": 0})
    with openai.OpenAI(base_url=f"{model.url}/v1", api_key="none", max_retries=0) as client:
        fairgate.adapters.openai.attach(client, scheduler)

        def call() -> None:
            client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)

        with fairgate.agent("poor"), pytest.raises(openai.RateLimitError) as poor:
            call()
        assert isinstance(poor.value.response.extensions["fairgate"], fairgate.BudgetExceeded)
        assert poor.value.response.headers["x-should-retry"] == "false"
        assert "agent 'poor' asked for" in str(poor.value)
        slot = scheduler.acquire_blocking("other")
        slot.detach()
        with pytest.raises(openai.RateLimitError) as full:
            call()
        assert full.value.response.extensions["fairgate"].reason == "queue_full"
        slot.release()
        scheduler.close()
        with pytest.raises(openai.InternalServerError) as closed:
            call()
        assert isinstance(closed.value.response.extensions["fairgate"], fairgate.Closed)


def test_a_call_while_its_own_stream_holds_the_last_slot_is_an_error(
    sync_openai: Any, scheduler: fairgate.Scheduler
) -> None:
    with sync_openai.chat.completions.create(model="gpt-4o-mini", messages=PROMPT, stream=True) as stream:
        next(iter(stream))
        with pytest.raises(openai.ConflictError) as error:
            sync_openai.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)
        assert isinstance(error.value.response.extensions["fairgate"], fairgate.WouldDeadlock)
    assert idle(scheduler)


def test_calls_from_threads_take_turns(sync_openai: Any, scheduler: fairgate.Scheduler) -> None:
    def body(agent: str) -> None:
        with fairgate.agent(agent):
            for _ in range(3):
                sync_openai.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)

    threads = [threading.Thread(target=body, args=(f"a{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert used(scheduler) == [(f"a{i}", "gpt-4o-mini", 3, 24, 3 * OUT) for i in range(4)]
    assert idle(scheduler)


def test_any_http_client_of_httpx_or_httpx2_will_do(model: Model) -> None:
    for module in (httpx, httpx2):
        scheduler = fairgate.Scheduler(capacity=1)
        with module.Client(mounts={"all://": module.HTTPTransport()}) as http:
            client = openai.OpenAI(base_url=f"{model.url}/v1", api_key="none", http_client=http)
            assert fairgate.adapters.openai.attach(client, scheduler) is client
            client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)
            assert used(scheduler) == [("default", "gpt-4o-mini", 1, 8, OUT)]
            with pytest.raises(ValueError, match="scheduled already"):
                fairgate.adapters.openai.attach(client, scheduler)
    with pytest.raises(TypeError, match="object has no HTTP client"):
        fairgate.adapters.openai.attach(object(), fairgate.Scheduler())


# -- Anthropic ------------------------------------------------------------------------------------------------------


def test_anthropic_calls_and_streams(sync_anthropic: Any, scheduler: fairgate.Scheduler) -> None:
    options = {"model": "claude-haiku", "max_tokens": 100, "messages": PROMPT}
    answer = sync_anthropic.messages.create(**options)
    assert answer.usage.output_tokens == OUT
    assert used(scheduler) == [("writer", "claude-haiku", 1, 8, OUT)]
    for _ in sync_anthropic.messages.create(**options, stream=True):
        pass
    with sync_anthropic.messages.stream(**options) as stream:
        assert scheduler.snapshot().in_flight == 1
        assert stream.get_final_message().usage.output_tokens == OUT
    assert used(scheduler) == [("writer", "claude-haiku", 3, 24, 3 * OUT)]
    with sync_anthropic.messages.stream(**options) as stream:
        next(iter(stream))
    assert idle(scheduler)
    grants = scheduler.snapshot().agents["writer"].grants
    sync_anthropic.messages.count_tokens(model="claude-haiku", messages=PROMPT)
    assert scheduler.snapshot().agents["writer"].grants == grants


async def test_async_anthropic_calls_and_streams(
    async_anthropic: Any, scheduler: fairgate.Scheduler
) -> None:
    options = {"model": "claude-haiku", "max_tokens": 100, "messages": PROMPT}
    await asyncio.gather(*(async_anthropic.messages.create(**options) for _ in range(4)))
    async with async_anthropic.messages.stream(**options) as stream:
        await stream.get_final_message()
    assert used(scheduler) == [("writer", "claude-haiku", 5, 40, 5 * OUT)]
    with pytest.raises(anthropic.RateLimitError) as error:
        scheduler.set_budget("writer", 0)
        await async_anthropic.messages.create(**options)
    assert "fairgate" in str(error.value.body)
    assert idle(scheduler)


# -- weights and usage ----------------------------------------------------------------------------------------------


def test_weights_come_from_model_and_prompt() -> None:
    weighing = fairgate.Weighing()
    expected = {
        "claude-opus-4": 5.0,
        "claude-sonnet-4": 2.0,
        "claude-haiku": 1.0,
        "gpt-4o": 3.0,
        "gpt-4o-mini": 1.0,
        "something-else": 2.0,
    }
    assert {name: weighing.of_model(name) for name in expected} == expected
    long = weighing.of_body({"model": "gpt-4o", "messages": [{"role": "", "content": "x" * 10_000}]})
    assert (long.prompt_tokens, long.weight, long.cost) == (2500, 7.5, 3000)
    limited = weighing.of_body({"model": "claude-opus", "max_tokens": 7, "system": "four"})
    assert (limited.prompt_tokens, limited.weight, limited.cost) == (1, 5.0, 8)
    mine = fairgate.Weighing(models=[("gpt-4o", 9.0)], other=0.5, output_tokens=1)
    assert (mine.of_model("gpt-4o-mini"), mine.of_model(None)) == (9.0, 0.5)


def test_calls_weigh_what_the_table_says(sync_openai: Any, scheduler: fairgate.Scheduler) -> None:
    long = [{"role": "user", "content": "x" * 8000}]
    slot = scheduler.acquire_blocking("other")
    slot.detach()
    thread = threading.Thread(
        target=lambda: sync_openai.chat.completions.create(model="gpt-4o", messages=long)
    )
    thread.start()
    until_in_thread(waiting(scheduler, 1))
    assert scheduler.snapshot().agents["analyst"].depth == 6.0
    slot.release()
    thread.join(60)


def test_usage_is_read_from_compressed_and_broken_answers() -> None:
    answer = json.dumps({"model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}).encode()
    for encoding, data in (("", answer), ("gzip", gzip.compress(answer))):
        reader = UsageReader("application/json", encoding)
        for i in range(len(data)):
            reader.feed(data[i : i + 1])
        reader.end()
        assert reader.usage == fairgate.Usage(3, 4, "m")
    for encoding, data in (("br", answer), ("gzip", b"not gzip"), ("", b"{"), ("", b"[]"), ("", b"")):
        reader = UsageReader("application/json", encoding)
        reader.feed(data)
        reader.end()
        assert reader.usage is None

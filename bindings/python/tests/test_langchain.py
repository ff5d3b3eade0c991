"""LangChain's packages, as they are on PyPI, against the simulated model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import httpx2
import openai
import pytest
from conftest import Model
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from waiting import idle, until, waiting

import fairgate
import fairgate.adapters.langchain
import fairgate.adapters.openai

OUT = Model.OUTPUT_TOKENS


def used(scheduler: fairgate.Scheduler) -> list[tuple[str, str, int, int]]:
    return [(c.agent, c.model, c.requests, c.output_tokens) for c in scheduler.costs()]


@pytest.fixture
def scheduler() -> fairgate.Scheduler:
    return fairgate.Scheduler(capacity=1)


@pytest.fixture
async def chat(model: Model) -> AsyncIterator[ChatOpenAI]:
    # HTTP clients of its own: LangChain shares one among all models, and each test has its own event loop.
    with httpx2.Client() as sync_http:
        async with httpx2.AsyncClient() as async_http:
            yield ChatOpenAI(
                model="gpt-4o-mini",
                base_url=f"{model.url}/v1",
                api_key="none",  # type: ignore[arg-type]
                max_retries=0,
                http_client=sync_http,
                http_async_client=async_http,
            )


@pytest.fixture
def scheduled(chat: ChatOpenAI, scheduler: fairgate.Scheduler) -> ChatOpenAI:
    return fairgate.adapters.langchain.schedule(chat, scheduler, agent="analyst")


def test_calls_through_a_chain_settle_what_they_used(
    chat: ChatOpenAI, scheduled: ChatOpenAI, scheduler: fairgate.Scheduler
) -> None:
    assert isinstance(scheduled, ChatOpenAI) and type(scheduled).__name__ == "ChatOpenAI"
    chain = ChatPromptTemplate.from_messages([("user", "What is the time in {city}?")]) | scheduled
    answer = chain.invoke({"city": "Lisbon"})
    assert answer.usage_metadata is not None and answer.usage_metadata["output_tokens"] == OUT
    chain.batch([{"city": "Porto"}, {"city": "Faro"}])
    assert used(scheduler) == [("analyst", "gpt-4o-mini", 3, 3 * OUT)]
    chat.invoke("The original is as it was.")
    assert scheduler.snapshot().agents["analyst"].grants == 3
    assert idle(scheduler)


async def test_async_calls_take_turns(scheduled: ChatOpenAI, scheduler: fairgate.Scheduler) -> None:
    with fairgate.agent("writer"):
        await asyncio.gather(*(scheduled.ainvoke("hello") for _ in range(5)))
    assert used(scheduler) == [("writer", "gpt-4o-mini", 5, 5 * OUT)]
    assert idle(scheduler)


async def test_streams_hold_their_slot_to_the_end(
    scheduled: ChatOpenAI, scheduler: fairgate.Scheduler
) -> None:
    for _ in scheduled.stream("hello"):
        pass
    async for chunk in scheduled.astream("hello"):
        if chunk.content:
            assert scheduler.snapshot().in_flight == 1
    assert used(scheduler) == [("analyst", "gpt-4o-mini", 2, 2 * OUT)]
    stream = scheduled.astream("hello")
    await anext(aiter(stream))
    await stream.aclose()  # type: ignore[attr-defined]
    assert idle(scheduler)
    sync_stream = scheduled.stream("hello")
    next(sync_stream)
    sync_stream.close()  # type: ignore[attr-defined]
    assert idle(scheduler)


async def test_a_call_that_fails_or_is_cancelled_gives_its_slot_back(
    scheduled: ChatOpenAI, scheduler: fairgate.Scheduler
) -> None:
    with pytest.raises(openai.InternalServerError):
        scheduled.invoke("[sim:fault=status=500] hello")
    hanging = asyncio.create_task(scheduled.ainvoke("[sim:fault=hang] hello"))
    await until(lambda: scheduler.snapshot().in_flight == 1)
    next_ = asyncio.create_task(scheduled.ainvoke("hello"))
    await until(waiting(scheduler, 1))
    hanging.cancel()
    assert (await next_).content
    assert idle(scheduler)


def test_refusals_are_fairgates_own(scheduled: ChatOpenAI, scheduler: fairgate.Scheduler) -> None:
    scheduler.set_budget("analyst", 0)
    with pytest.raises(fairgate.BudgetExceeded):
        scheduled.invoke("hello")
    slot = scheduler.acquire_blocking("other")
    scheduler.set_budget("analyst", None)
    hasty = fairgate.adapters.langchain.schedule(scheduled, scheduler, timeout=0.01)
    with pytest.raises(fairgate.SlotTimeout):
        hasty.invoke("hello")
    slot.release()


def test_a_client_that_is_scheduled_underneath_is_not_scheduled_twice(
    chat: ChatOpenAI, scheduler: fairgate.Scheduler
) -> None:
    fairgate.adapters.openai.attach(chat.root_client, scheduler, agent="inner")
    outer = fairgate.adapters.langchain.schedule(chat, scheduler, agent="outer")
    outer.invoke("hello")
    for _ in outer.stream("hello", stream_usage=True):
        pass
    assert used(scheduler) == [("outer", "gpt-4o-mini", 2, 2 * OUT)]
    chat.invoke("hello")
    assert used(scheduler)[0][:3] == ("inner", "gpt-4o-mini", 1)


async def test_models_that_only_know_threads_are_scheduled_too(scheduler: fairgate.Scheduler) -> None:
    model = fairgate.adapters.langchain.schedule(FakeListChatModel(responses=["one two"]), scheduler)
    assert model.invoke("hello").content == "one two"
    assert (await model.ainvoke("hello")).content == "one two"
    assert "".join([str(chunk.content) for chunk in model.stream("hello")]) == "one two"
    assert "".join([str(chunk.content) async for chunk in model.astream("hello")]) == "one two"
    assert scheduler.snapshot().agents["default"].grants == 4
    threads = [threading.Thread(target=model.invoke, args=("hello",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert scheduler.snapshot().agents["default"].grants == 8
    assert idle(scheduler)


async def test_a_slot_is_not_held_while_a_refused_call_waits(model: Model) -> None:
    refusals = 1

    def answer(request: httpx2.Request) -> httpx2.Response:
        nonlocal refusals
        if b"refuse" in request.content and refusals:
            refusals -= 1
            return httpx2.Response(429, headers={"retry-after-ms": "300"}, json={"error": {"code": "rate_limit_exceeded"}})
        body = {
            "id": "x", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "yes"}}],
        }  # fmt: skip
        return httpx2.Response(200, json=body)

    scheduler = fairgate.Scheduler(capacity=1)
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as http:
        chat = ChatOpenAI(model="m", base_url="http://test", api_key="none", http_async_client=http, max_retries=9)  # type: ignore[arg-type]
        scheduled = fairgate.adapters.langchain.schedule(chat, scheduler)
        task = asyncio.create_task(scheduled.ainvoke("refuse me"))
        await until(waiting(scheduler, 1))
        assert scheduler.snapshot().in_flight == 0, "the package's own back-off would hold the slot"
        assert (await task).content == "yes"
        assert chat.root_async_client.max_retries == 9, "the original is as it was"


def test_what_is_no_chat_model_is_refused_with_what_to_do(chat: ChatOpenAI, scheduler: fairgate.Scheduler) -> None:
    from langchain_core.language_models import FakeListLLM
    from langchain_core.runnables import ConfigurableField

    configurable = chat.configurable_fields(model_name=ConfigurableField(id="model"))
    for wrong, message in (
        (FakeListLLM(responses=["x"]), "plain text model.* schedule a chat model"),
        (chat.bind(stop=["x"]), "schedule the model first, then bind"),
        (configurable, "schedule each model that it may choose"),
        (object(), "takes a chat model of LangChain, not object"),
    ):
        with pytest.raises(TypeError, match=message):
            fairgate.adapters.langchain.schedule(wrong, scheduler)  # type: ignore[type-var]


async def test_a_gather_of_500_with_the_defaults_runs(scheduler: fairgate.Scheduler) -> None:
    default = fairgate.Scheduler()
    model = fairgate.adapters.langchain.schedule(FakeListChatModel(responses=["one"]), default)
    answers = await asyncio.gather(*(model.ainvoke("hello") for _ in range(500)))
    assert len(answers) == 500 and idle(default)

"""A slot is held as long as its call runs and not longer: bad values, streams, layers, owners."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import gc
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from conftest import Model
from waiting import idle, until, until_in_thread, waiting

import fairgate
import fairgate.adapters.langchain
import fairgate.adapters.openai

PROMPT: list[Any] = [{"role": "user", "content": "What is the time in Lisbon today"}]


# -- release cannot fail, settle can ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [15.6, 100.0, float("nan"), float("inf"), True, "5", None.__class__, 2**64, 10**20, -1], ids=repr
)
async def test_what_is_no_number_of_tokens_is_refused_where_it_is_given(bad: Any) -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("a", cost=7) as slot:
        for name in ("tokens", "input_tokens", "output_tokens"):
            with pytest.raises((TypeError, ValueError), match=f"{name} must be"):
                slot.settle(**{name: bad})
        slot.settle(5)
    slot = await scheduler.acquire("a")
    with pytest.raises((TypeError, ValueError), match="tokens must be"):
        scheduler.release(slot, tokens=bad)
    assert idle(scheduler), "the slot is free whatever was said"
    with pytest.raises((TypeError, ValueError), match="cost must be"):
        await scheduler.acquire("a", cost=bad)
    assert idle(scheduler) and scheduler.costs()[0].tokens == 5 + 1000


async def test_a_settlement_that_comes_too_late_is_not_silent() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("a", cost=7) as slot:
        pass
    with pytest.warns(RuntimeWarning, match=r"Slot \d+ of 'a', over> is over, .* Call settle\(\) in the slot's block") as caught:
        slot.settle(5)
    assert caught[0].filename == __file__, "the warning names the line that settles"
    assert slot.tokens is None and scheduler.costs()[0].tokens == 7
    with pytest.raises(TypeError, match="tokens must be"):
        slot.settle(1.5)  # type: ignore[arg-type]
    slot = await scheduler.acquire("a", cost=7)
    scheduler.release(slot, tokens=3)
    with pytest.warns(RuntimeWarning, match="these tokens are ignored"):
        scheduler.release(slot, tokens=4)
    scheduler.release(slot)
    assert scheduler.costs()[0].tokens == 7 + 3


async def test_a_model_that_is_no_name_and_sums_beyond_all_bounds() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    async with scheduler.slot("a") as slot:
        with pytest.raises(TypeError, match="model must be the name of a model, not 5"):
            slot.settle(1, model=5)  # type: ignore[arg-type]
        for _ in range(3):
            slot.settle(2**63, input_tokens=2**63, output_tokens=2**63)
    assert idle(scheduler)


@pytest.mark.parametrize("tokens", [10**20, 2**64, 1_000_000_001])
async def test_an_upstream_that_reports_nonsense_is_not_believed(
    tokens: int, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    answer = {"usage": {"prompt_tokens": 3, "completion_tokens": tokens}}
    with caplog.at_level(logging.WARNING, logger="fairgate"):
        await scheduler.run(fairgate.CallOptions("a", cost=9), lambda: answer)
    assert str(tokens) in caplog.text and "not believed" in caplog.text
    assert idle(scheduler) and scheduler.costs()[0].tokens == 9


# -- options apart from arguments ------------------------------------------------------------------------------------


async def test_the_functions_own_arguments_are_its_own() -> None:
    scheduler = fairgate.configure(capacity=1)

    async def create(prompt: str, **own: Any) -> dict[str, Any]:
        return {"prompt": prompt, **own}

    own = {"model": "m", "timeout": 3, "cost": 4, "priority": 5}
    expected = {"prompt": "p", **own}
    assert await scheduler.wrap(create, "p", agent_id="a", **own) == expected
    assert await fairgate.wrap(create, "p", agent_id="a", weight=2.0, **own) == expected
    call = fairgate.CallOptions("a", weight=2.0, cost=5, priority=1, timeout=1.0, model="gpt-5")
    more = {"agent_id": "x", "weight": 1.0}
    assert await scheduler.run(call, create, "p", **own, **more) == {**expected, **more}
    assert await fairgate.run(call, create, prompt="p", **own) == expected
    assert scheduler.costs()[1].model == "gpt-5" and idle(scheduler)


# -- whatever comes back ---------------------------------------------------------------------------------------------


class Chunks:
    """A stream as OpenAI's package has them: async iterator, closed by an async `close`."""

    def __init__(self) -> None:
        self.left = 3
        self.closed = False
        self.response = "its own"

    def __aiter__(self) -> Chunks:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(0)
        if self.left == 0:
            raise StopAsyncIteration
        self.left -= 1
        # As some servers do, with every chunk: what was used so far.
        return SimpleNamespace(usage=SimpleNamespace(prompt_tokens=7, completion_tokens=3 - self.left))

    async def close(self) -> None:
        self.closed = True


async def create_stream() -> Chunks:
    return Chunks()


async def items() -> AsyncIterator[int]:
    for i in range(3):
        await asyncio.sleep(0)
        yield i


async def test_a_stream_that_comes_back_holds_its_slot_to_its_end() -> None:
    scheduler = fairgate.Scheduler(capacity=1)

    def running() -> int:
        return scheduler.snapshot().in_flight

    stream = await scheduler.wrap(create_stream, agent_id="a")
    assert running() == 1 and stream.response == "its own"
    assert [running() async for _ in stream] == [1, 1, 1]
    assert idle(scheduler)
    assert [(c.input_tokens, c.output_tokens) for c in scheduler.costs()] == [(7, 3)]
    async with await scheduler.wrap(create_stream, agent_id="a") as stream:
        await anext(stream)
    assert stream.closed and idle(scheduler)
    generator = await scheduler.wrap(items, agent_id="a")
    assert running() == 1
    assert [item async for item in generator] == [0, 1, 2] and idle(scheduler)
    generator = await scheduler.wrap(items, agent_id="a")
    await generator.aclose()
    assert idle(scheduler)
    sync = await scheduler.wrap(lambda: (running() for _ in range(2)), agent_id="a")
    assert list(sync) == [1, 1] and idle(scheduler)
    reading = asyncio.create_task(anext(await scheduler.wrap(Never, agent_id="a")))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    assert idle(scheduler)


class Never(Chunks):
    async def __anext__(self) -> Any:
        await asyncio.Event().wait()


class AsyncCallable:
    async def __call__(self, x: int) -> int:
        await asyncio.sleep(0)
        return x


def plain_decorator(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


async def test_calls_that_only_look_plain_are_scheduled() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    most = 0

    async def seen(x: int) -> int:
        nonlocal most
        most = max(most, scheduler.snapshot().in_flight)
        await asyncio.sleep(0)
        assert scheduler.snapshot().in_flight == 1
        return x

    scheduled = scheduler.scheduled(agent_id="a")
    assert await scheduled(AsyncCallable())(3) == 3
    assert await scheduled(functools.partial(seen, 4))() == 4
    under = scheduled(plain_decorator(seen))
    assert await asyncio.gather(*(under(i) for i in range(5))) == [0, 1, 2, 3, 4]
    lazy = scheduled(lambda x: seen(x))
    # Before the first call it cannot be known that what it returns is awaited.
    async with scheduler.slot("b"):
        async def other() -> None:
            with pytest.raises(fairgate.WouldDeadlock, match="schedule functions that are `async def`"):
                lazy(6)

        await asyncio.create_task(other())
    assert await lazy(5) == 5 and idle(scheduler)
    # The first call of the last one took a slot to find out what it returns. Further calls do not.
    assert most == 1 and scheduler.snapshot().agents["a"].grants == 9
    async with scheduler.slot("b"):
        waits = asyncio.create_task(lazy(6))
        await until(waiting(scheduler, 1))
    assert await waits == 6 and idle(scheduler)
    assert most == 1 and scheduler.snapshot().agents["a"].grants == 10


async def work() -> str:
    await asyncio.sleep(0)
    return "ran"


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
async def test_a_coroutine_that_never_runs_holds_no_slot() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    lazy = scheduler.scheduled(agent_id="a", cost=50)(lambda: work())
    for _ in range(3):
        never = lazy()
        assert idle(scheduler), "the slot is taken when the coroutine first runs"
        never.close()
        del never
        dropped = lazy()
        del dropped
        assert idle(scheduler)
        cancelled = asyncio.create_task(lazy())
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        gc.collect()
        assert idle(scheduler)
        assert await lazy() == "ran" and idle(scheduler)
    assert scheduler.costs()[0].tokens == 3 * 50, "what never ran is charged nothing"


def test_a_coroutine_made_outside_of_a_loop_takes_its_slot_in_the_loop() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    in_flight: list[int] = []

    async def seen() -> None:
        in_flight.append(scheduler.snapshot().in_flight)

    for function in (lambda: seen(), plain_decorator(seen)):
        first, second = (scheduler.scheduled(agent_id="a")(function)() for _ in range(2))
        assert idle(scheduler)
        asyncio.run(first)
        asyncio.run(second)
    assert in_flight == [1] * 4 and idle(scheduler)


async def test_a_coroutine_whose_slot_is_refused_is_closed() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    lazy = scheduler.scheduled(agent_id="a", timeout=0.0)(lambda: work())
    assert await lazy() == "ran"
    held = await scheduler.acquire("b")
    refused = lazy()
    with pytest.raises(fairgate.SlotTimeout):
        await refused
    held.release()
    gc.collect()  # A warning that it was never awaited would be an error here.
    assert idle(scheduler)


async def test_a_coroutine_that_met_a_limit_is_made_again() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    made = 0

    def call() -> Any:
        nonlocal made
        made += 1
        return answer(made)

    async def answer(number: int) -> int:
        if number == 1:
            error: Any = RuntimeError("429")
            error.response = httpx.Response(429, headers={"retry-after-ms": "1"})
            raise error
        return number

    assert await scheduler.scheduled(agent_id="a")(call)() == 2 and made == 2 and idle(scheduler)


async def test_a_function_that_sometimes_returns_a_value_is_called_in_a_slot_again() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    seen: list[int] = []

    def call(value: Any) -> Any:
        seen.append(scheduler.snapshot().in_flight)
        return value

    mixed = scheduler.scheduled(agent_id="a")(call)
    assert await mixed(work()) == "ran"
    assert (mixed(1), mixed(2), mixed(3)) == (1, 2, 3)
    assert await mixed(work()) == "ran"
    assert seen == [1, 0, 1, 1, 1] and idle(scheduler)


async def test_a_future_holds_its_slot_until_it_is_done_whoever_awaits_it() -> None:
    scheduler = fairgate.Scheduler(capacity=2)
    futures: list[asyncio.Future[Any]] = []

    @scheduler.scheduled(agent_id="a")
    def start() -> Any:
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    used = SimpleNamespace(usage=SimpleNamespace(prompt_tokens=2, completion_tokens=3), model="m")
    awaited, kept = asyncio.create_task(start()), start()
    await asyncio.sleep(0)
    assert scheduler.snapshot().in_flight == 2
    for future in futures:
        future.set_result(used)
    assert await awaited is used
    await until(lambda: idle(scheduler))
    assert await kept is used, "it can be awaited late"
    assert scheduler.costs()[0].tokens == 2 * 5
    failing, cancelled = start(), start()
    futures[-2].set_exception(LookupError())
    futures[-1].cancel()
    await until(lambda: idle(scheduler))
    with pytest.raises(LookupError):
        await failing
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_a_stream_that_is_never_read_gives_its_slot_back_when_it_is_dropped() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    scheduled = scheduler.scheduled(agent_id="a")
    for make in (lambda: iter([1, 2]), lambda: Never()):
        with pytest.warns(ResourceWarning, match="was never given back"):
            stream = scheduled(make)()
            assert scheduler.snapshot().in_flight == 1
            del stream
            assert idle(scheduler)
        with pytest.warns(ResourceWarning, match="was never given back"):
            stream = await scheduler.wrap(make, agent_id="a")
            assert scheduler.snapshot().in_flight == 1
            del stream
            assert idle(scheduler)


def test_plain_functions_hold_their_slot_for_what_they_return() -> None:
    scheduler = fairgate.Scheduler(capacity=1)

    def running() -> int:
        return scheduler.snapshot().in_flight

    @scheduler.scheduled(agent_id="a")
    def stream() -> Iterator[int]:
        return iter([1, 2])

    chunks = stream()
    assert running() == 1 and list(chunks) == [1, 2] and running() == 0
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        gate = threading.Event()

        @scheduler.scheduled(agent_id="a")
        def submit() -> concurrent.futures.Future[bool]:
            return pool.submit(gate.wait, 10)

        future = submit()
        assert running() == 1
        gate.set()
        assert future.result(10) is True
        until_in_thread(lambda: running() == 0)


async def test_a_context_manager_is_refused_with_what_to_use(model: Model) -> None:
    scheduler = fairgate.Scheduler(capacity=1)

    @contextlib.asynccontextmanager
    async def session() -> AsyncIterator[int]:
        yield 1

    with pytest.raises(TypeError, match=r"session returned a context manager .* Use `async with scheduler.slot\("):
        await scheduler.wrap(session, agent_id="a")
    with openai.OpenAI(base_url=f"{model.url}/v1", api_key="none") as client:
        with pytest.raises(TypeError, match="ResponseStreamManager"):
            await scheduler.wrap(client.responses.stream, agent_id="a", model="gpt-4o", input="hello")
    assert idle(scheduler)


# -- one call, one slot ----------------------------------------------------------------------------------------------


async def test_one_call_takes_one_slot_however_many_layers_are_scheduled(model: Model) -> None:
    from langchain_openai import ChatOpenAI

    scheduler = fairgate.Scheduler(capacity=1)
    chat: Any = ChatOpenAI(model="gpt-4o-mini", base_url=f"{model.url}/v1", api_key="none")  # type: ignore[arg-type]
    client = fairgate.adapters.openai.attach(chat.root_async_client, scheduler, agent="client")
    chat = fairgate.adapters.langchain.schedule(chat, scheduler, agent="chain")

    @scheduler.scheduled(agent_id="agent")
    async def agent() -> None:
        await chat.ainvoke("hello")
        await client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)
        async for _ in chat.astream("hello"):
            assert scheduler.snapshot().in_flight == 1

    await asyncio.wait_for(agent(), 10)
    (cost,) = scheduler.costs()
    assert (cost.agent, cost.requests, cost.output_tokens) == ("agent", 1, 3 * Model.OUTPUT_TOKENS)
    async with scheduler.slot("block"):
        await client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)
    assert set(scheduler.snapshot().agents) == {"agent", "block"} and idle(scheduler)
    await client.close()


async def test_two_calls_at_once_inside_a_slot_take_two(model: Model) -> None:
    scheduler = fairgate.Scheduler(capacity=3)
    async with openai.AsyncOpenAI(base_url=f"{model.url}/v1", api_key="none") as client:
        fairgate.adapters.openai.attach(client, scheduler, agent="inner")
        async with scheduler.slot("outer"):
            slow = [{"role": "user", "content": "[sim:tokens=200] hello"}]
            calls = [client.chat.completions.create(model="gpt-4o-mini", messages=slow) for _ in range(3)]  # type: ignore[call-overload]
            tasks = [asyncio.create_task(each) for each in calls]
            await until(lambda: scheduler.snapshot().in_flight == 3)
            await asyncio.gather(*tasks)
    assert scheduler.snapshot().agents["inner"].grants == 2 and idle(scheduler)


async def test_what_is_kept_beyond_its_block_covers_nothing_after_it() -> None:
    scheduler = fairgate.Scheduler(capacity=3)

    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def opened() -> AsyncIterator[int]:
        return numbers()

    async with scheduler.slot("outer") as outer:
        stream = await scheduler.wrap(opened, agent_id="a")
        assert scheduler.snapshot().in_flight == 2
        # The stream's slot is the stream's: a call in between is inside of the outer block only.
        lease = fairgate.context.lease(scheduler._gate)
        assert lease is not None and lease.slot is outer
        assert fairgate.context.lease(scheduler._gate) is None
        lease.end()
        assert [each async for each in stream] == [1, 2]
    assert fairgate.context.lease(scheduler._gate) is None
    assert idle(scheduler)


async def test_a_slot_is_usable_while_its_values_are_read() -> None:
    scheduler = fairgate.Scheduler(capacity=1)

    class Tokens:
        def __index__(self) -> int:
            assert slot.held
            slot.settle(1)
            return 4

    async with scheduler.slot("a") as slot:
        slot.settle(Tokens())  # type: ignore[arg-type]
        assert slot.tokens == 5
    assert idle(scheduler)


async def test_another_schedulers_slot_does_not_cover(model: Model) -> None:
    tools, models = fairgate.Scheduler(capacity=1), fairgate.Scheduler(capacity=1)
    async with openai.AsyncOpenAI(base_url=f"{model.url}/v1", api_key="none") as client:
        fairgate.adapters.openai.attach(client, models, agent="a")
        async with tools.slot("a"):
            await client.chat.completions.create(model="gpt-4o-mini", messages=PROMPT)
    assert models.snapshot().ticks == 1


# -- owners and deadlocks --------------------------------------------------------------------------------------------


async def test_a_stream_belongs_to_whoever_reads_it() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    stream = await scheduler.wrap(create_stream, agent_id="a")

    async def read() -> int:
        return len([chunk async for chunk in stream])

    # The one who made the stream asks while another task reads it to its end: no deadlock.
    reader = asyncio.create_task(read())
    async with scheduler.slot("a"):
        assert await reader == 3
    stream = await scheduler.wrap(create_stream, agent_id="a")
    await anext(stream)
    with pytest.raises(fairgate.WouldDeadlock):
        await scheduler.acquire("a")
    await stream.aclose()
    assert idle(scheduler)


async def test_acquire_in_one_task_and_release_in_another_is_no_deadlock() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    slot = await scheduler.acquire("a")
    releasing = asyncio.create_task(asyncio.to_thread(slot.release))
    async with scheduler.slot("a"):
        await releasing
    assert idle(scheduler)


async def test_a_circle_over_two_schedulers_is_found() -> None:
    one, two = fairgate.Scheduler(capacity=1), fairgate.Scheduler(capacity=2)
    everybody_holds = asyncio.Event()

    async def use(first: fairgate.Scheduler, second: fairgate.Scheduler) -> str:
        async with first.slot("a"):
            if one.snapshot().in_flight == 1 and two.snapshot().in_flight == 2:
                everybody_holds.set()
            await everybody_holds.wait()
            try:
                async with second.slot("a"):
                    return "ran"
            except fairgate.WouldDeadlock:
                return "refused"

    outcomes = await asyncio.wait_for(asyncio.gather(use(one, two), use(two, one), use(two, one)), 10)
    assert outcomes.count("refused") == 1 and outcomes.count("ran") == 2
    assert idle(one) and idle(two)


async def test_a_circle_that_somebody_may_leave_is_none() -> None:
    one, two = fairgate.Scheduler(capacity=1), fairgate.Scheduler(capacity=2)
    free = await two.acquire("somebody")

    async def use(first: fairgate.Scheduler, second: fairgate.Scheduler, **options: Any) -> str:
        async with first.slot("a"):
            await asyncio.sleep(0)
            try:
                async with second.slot("a", **options):
                    return "ran"
            except fairgate.SlotTimeout:
                return "timed out"

    tasks = [asyncio.create_task(use(one, two)), asyncio.create_task(use(two, one))]
    await until(lambda: waiting(one, 1)() and waiting(two, 1)())
    free.release()
    assert await asyncio.gather(*tasks) == ["ran", "ran"]
    # A holder whose own wait has a timeout will give its slot back.
    taken = await two.acquire("somebody")
    taken._read_here()
    tasks = [asyncio.create_task(use(two, one, timeout=0.2)), asyncio.create_task(use(one, two))]
    await until(lambda: waiting(one, 1)() and waiting(two, 1)())
    assert await asyncio.gather(*tasks) == ["timed out", "ran"]
    taken.release()
    assert idle(one) and idle(two)

"""Functions that run in a slot, and what they return: held until it has come to its end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, ParamSpec, TypeVar, cast

from ._core import Slot
from .slot import acquire, acquire_blocking, taken_on
from .streams import HeldAsyncStream, HeldStream, settle

P = ParamSpec("P")
R = TypeVar("R")


async def run(
    slot: Slot, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Calls a function in a slot, awaits what must be awaited, and settles what the result says it used.

    A stream or iterator that comes back holds the slot until it has been read to its end or closed. A call that met its
    provider's limit is made again in its turn.
    """
    async with slot:
        while True:
            try:
                result = fn(*args, **kwargs)
                while inspect.isawaitable(result):
                    result = await result
            except Exception as error:
                await slot.retry(error)
            else:
                return _finish(slot, fn, result)


def run_blocking(
    slot: Slot, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """As :func:`run`, in a thread. An awaitable that comes back holds the slot until it has been awaited."""
    with slot:
        while True:
            try:
                result = fn(*args, **kwargs)
            except Exception as error:
                slot.retry_blocking(error)
                continue
            if inspect.isawaitable(result):
                slot._keep_beyond_block()
                return _awaited(slot, fn, result)
            return _finish(slot, fn, result)


def scheduled(new_slot: Callable[[], Slot]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator by which every call runs in a new slot."""

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        function: Callable[..., Any] = fn
        # A callable object may have an async `__call__`.
        call = function if inspect.isroutine(fn) else getattr(fn, "__call__", fn)
        wrapper: Callable[..., Any]
        if inspect.isasyncgenfunction(fn) or inspect.isasyncgenfunction(call):

            async def async_generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                slot = new_slot()
                await acquire(slot)
                async with contextlib.aclosing(HeldAsyncStream(slot, function(*args, **kwargs))) as items:
                    async for item in items:
                        yield item

            wrapper = async_generator
        elif inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call):

            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                return await run(new_slot(), function, args, kwargs)

            wrapper = coroutine
        elif inspect.isgeneratorfunction(fn) or inspect.isgeneratorfunction(call):

            def generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
                slot = new_slot()
                acquire_blocking(slot)
                with contextlib.closing(HeldStream(slot, function(*args, **kwargs))) as items:
                    yield from items

            wrapper = generator
        else:
            # An async function under a plain decorator: what it returns in an event loop is awaited there.
            is_async_inside = inspect.iscoroutinefunction(inspect.unwrap(fn))

            def plain(*args: Any, **kwargs: Any) -> Any:
                if is_async_inside and asyncio._get_running_loop() is not None:
                    return run(new_slot(), function, args, kwargs)
                return run_blocking(new_slot(), function, args, kwargs)

            wrapper = plain
        return cast("Callable[P, R]", functools.update_wrapper(wrapper, fn))

    return decorate


def _finish(slot: Slot, fn: Callable[..., Any], result: Any) -> Any:
    """What a call gives in place of its result: the result, or a stream that holds the slot until its end."""
    taken_on(slot)
    if hasattr(result, "__anext__"):
        slot._keep_beyond_block()
        return HeldAsyncStream(slot, result)
    if hasattr(result, "__next__"):
        slot._keep_beyond_block()
        return HeldStream(slot, result)
    if isinstance(result, concurrent.futures.Future):
        slot._keep_beyond_block()
        result.add_done_callback(lambda _: slot.release())
        return result
    if _works_in_its_block(result):
        name = getattr(fn, "__qualname__", repr(fn))
        raise TypeError(
            f"{name} returned a context manager ({type(result).__name__}), which does its work inside its block, after "
            "the slot was given back. Use `async with scheduler.slot(agent):` (in a thread `with`) around that block instead"
        )
    settle(slot, result)
    return result


async def _awaited(slot: Slot, fn: Callable[..., Any], awaitable: Awaitable[Any]) -> Any:
    slot._kept = True
    slot._read_here()
    try:
        result = await awaitable
        return _finish(slot, fn, result)
    finally:
        if slot._kept:
            slot.release()


def _works_in_its_block(result: object) -> bool:
    """Whether a result is a context manager that starts its work when its block is entered.

    Such are functions with ``@contextmanager`` or ``@asynccontextmanager``, and the helpers for streams of OpenAI's and
    Anthropic's packages. Other objects that can be used in a block, such as files and clients, are results like any.
    """
    if isinstance(result, (contextlib._GeneratorContextManager, contextlib._AsyncGeneratorContextManager)):
        return True
    return type(result).__name__.endswith("StreamManager") and (
        hasattr(result, "__aenter__") or hasattr(result, "__enter__")
    )

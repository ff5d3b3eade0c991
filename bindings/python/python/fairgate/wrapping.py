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
from .context import covers
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


class PlainFunction:
    """A scheduled function that is not ``async def``. Only its result says whether it works at the call or later.

    A function that returns a value, a stream or a future works at the call, and so it is called in a slot. A function
    that returns a coroutine has done nothing yet: its slot is taken when the coroutine first runs, so that a coroutine
    that never runs holds none. The first such call still takes a slot, which is given back at once, uncharged; later calls
    take none. If the function returns a value after all, all further calls are made in a slot again.
    """

    def __init__(self, new_slot: Callable[[], Slot], fn: Callable[..., Any]) -> None:
        self._new_slot = new_slot
        self._fn = fn
        # An async function under a plain decorator. What it returns in an event loop is awaited there.
        self._is_async_inside = inspect.iscoroutinefunction(inspect.unwrap(fn))
        self._returned_coroutine = False
        self._returned_value = False

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Calls the function, in a slot unless it is known to return a coroutine."""
        if self._is_async_inside and asyncio._get_running_loop() is not None:
            return run(self._new_slot(), self._fn, args, kwargs)
        if not self._returned_coroutine or self._returned_value:
            return self._call_in_slot(args, kwargs)
        result = self._fn(*args, **kwargs)
        if _runs_later(result):
            return self._run_later(result, args, kwargs)
        self._returned_value = True
        return result

    def _call_in_slot(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        slot = self._new_slot()
        with slot:
            while True:
                try:
                    result = self._fn(*args, **kwargs)
                except Exception as error:
                    slot.retry_blocking(error)
                    continue
                if _runs_later(result):
                    self._returned_coroutine = True
                    slot.settle(0)
                    return self._run_later(result, args, kwargs)
                self._returned_value = True
                if asyncio.isfuture(result):
                    return _hold_until_done(slot, self._fn, result)
                return _finish(slot, self._fn, result)

    async def _run_later(self, coroutine: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Takes a slot and awaits the coroutine in it. After a provider's limit the function is called again."""
        first = [coroutine]

        @functools.wraps(self._fn)
        def call() -> Any:
            return first.pop() if first else self._fn(*args, **kwargs)

        try:
            return await run(self._new_slot(), call, (), {})
        finally:
            # No slot was granted: the coroutine will never run, and Python need not warn of that.
            if first and inspect.iscoroutine(coroutine):
                coroutine.close()


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
            plain_function = PlainFunction(new_slot, function)

            def plain(*args: Any, **kwargs: Any) -> Any:
                return plain_function.call(args, kwargs)

            wrapper = plain
        return cast("Callable[P, R]", functools.update_wrapper(wrapper, fn))

    return decorate


def _finish(slot: Slot, fn: Callable[..., Any], result: Any) -> Any:
    """What a call gives in place of its result: the result, or a stream that holds the slot until its end."""
    taken_on(slot)
    if hasattr(result, "__anext__"):
        _keep(slot)
        return HeldAsyncStream(slot, result)
    if hasattr(result, "__next__"):
        _keep(slot)
        return HeldStream(slot, result)
    if isinstance(result, concurrent.futures.Future):
        _keep(slot)
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


def _keep(slot: Slot) -> None:
    """Keeps the slot beyond its block, for what the block returned.

    The context lets go of the slot. It may live as long as the program, and a stream that is never read would hold its
    slot as long.
    """
    slot._keep_beyond_block()
    if covers.get() is slot:
        covers.set(slot._around)


def _runs_later(result: object) -> bool:
    """Whether a result is a coroutine, or another awaitable that does nothing before it is awaited.

    A future is not: its work has begun.
    """
    return inspect.isawaitable(result) and not asyncio.isfuture(result)


def _hold_until_done(slot: Slot, fn: Callable[..., Any], future: asyncio.Future[Any]) -> Awaitable[Any]:
    """Holds the slot until the future is done, also if nobody awaits what this returns."""
    _keep(slot)

    def end(future: asyncio.Future[Any]) -> None:
        if slot._kept:
            return  # Somebody awaits it, and ends the slot.
        try:
            if not future.cancelled() and future.exception() is None:
                settle(slot, future.result())
        finally:
            slot.release()

    future.add_done_callback(end)
    return _awaited(slot, fn, future)


async def _awaited(slot: Slot, fn: Callable[..., Any], future: asyncio.Future[Any]) -> Any:
    if not slot.held:
        return await future
    slot._kept = True
    slot._read_here()
    try:
        result = await future
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

"""Functions that run in a slot."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from .slot import Slot
from .usage import usage_of

_F = TypeVar("_F", bound=Callable[..., Any])


async def run(
    slot: Slot, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Calls a function in a slot, awaits what must be awaited, and settles what the result says it used."""
    async with slot:
        result = fn(*args, **kwargs)
        if inspect.isawaitable(result):
            result = await result
        _settle(slot, result)
        return result


def scheduled(new_slot: Callable[[], Slot]) -> Callable[[_F], _F]:
    """A decorator by which every call runs in a new slot."""

    def decorate(fn: _F) -> _F:
        wrapper: Callable[..., Any]
        if inspect.isasyncgenfunction(fn):

            @functools.wraps(fn)
            async def async_generator(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                async with new_slot() as slot:
                    inner = fn(*args, **kwargs)
                    try:
                        async for item in inner:
                            _settle(slot, item)
                            yield item
                    finally:
                        await inner.aclose()

            wrapper = async_generator
        elif inspect.iscoroutinefunction(fn):

            @functools.wraps(fn)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                return await run(new_slot(), fn, args, kwargs)

            wrapper = coroutine
        elif inspect.isgeneratorfunction(fn):

            @functools.wraps(fn)
            def generator(*args: Any, **kwargs: Any) -> Iterator[Any]:
                with new_slot() as slot:
                    for item in fn(*args, **kwargs):
                        _settle(slot, item)
                        yield item

            wrapper = generator
        else:

            @functools.wraps(fn)
            def function(*args: Any, **kwargs: Any) -> Any:
                with new_slot() as slot:
                    result = fn(*args, **kwargs)
                    _settle(slot, result)
                    return result

            wrapper = function
        return cast(_F, wrapper)

    return decorate


def _settle(slot: Slot, result: object) -> None:
    usage = usage_of(result)
    if usage is not None:
        slot.settle(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, model=usage.model)

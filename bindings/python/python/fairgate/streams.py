"""Streams and iterators that hold a slot until they have been read to their end, or closed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import TracebackType
from typing import Any

from .context import covered_by
from ._core import Slot
from .usage import Usage, usage_of


def settle(slot: Slot, result: object) -> None:
    """Settles what a result says it used, where it says so and no call inside has settled it."""
    usage = None if slot._metered or not slot.held else usage_of(result)
    if usage is not None:
        slot.settle(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, model=usage.model)


class _Held:
    """What both kinds have in common. Everything else is the inner stream's own."""

    def __init__(self, slot: Slot, inner: Any) -> None:
        self._slot = slot
        self._inner = inner
        self._usage: Usage | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _see(self, item: object) -> None:
        usage = usage_of(item)
        if usage is None:
            return
        # Streams state what was used so far, some with every item: the most counts.
        before = self._usage or Usage(0, 0)
        self._usage = Usage(
            max(before.input_tokens, usage.input_tokens),
            max(before.output_tokens, usage.output_tokens),
            usage.model or before.model,
        )

    def _end(self) -> None:
        """Settles and gives the slot back; a second time it does nothing."""
        if not self._slot.held:
            return
        usage, self._usage = self._usage, None
        if usage is not None and not self._slot._metered:
            self._slot.settle(
                input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, model=usage.model
            )
        self._slot.release()


class HeldStream(_Held):
    """An iterator that holds a slot. The slot belongs to the task or thread that reads."""

    def __iter__(self) -> HeldStream:
        return self

    def __next__(self) -> Any:
        return self._step(self._inner.__next__)

    def send(self, value: Any) -> Any:
        """As a generator's."""
        return self._step(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        """As a generator's."""
        return self._step(self._inner.throw, *error)

    def _step(self, step: Callable[..., Any], *args: Any) -> Any:
        self._slot._read_here()
        try:
            with covered_by(self._slot):
                item = step(*args)
        except BaseException:
            self._end()
            raise
        self._see(item)
        return item

    def close(self) -> None:
        """Ends the stream and gives its slot back."""
        try:
            close = getattr(self._inner, "close", None)
            if close is not None:
                close()
        finally:
            self._end()

    def __enter__(self) -> HeldStream:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class HeldAsyncStream(_Held):
    """An async iterator that holds a slot. The slot belongs to the task that reads."""

    def __aiter__(self) -> HeldAsyncStream:
        return self

    async def __anext__(self) -> Any:
        return await self._step(self._inner.__anext__)

    async def asend(self, value: Any) -> Any:
        """As an async generator's."""
        return await self._step(self._inner.asend, value)

    async def athrow(self, *error: Any) -> Any:
        """As an async generator's."""
        return await self._step(self._inner.athrow, *error)

    async def _step(self, step: Callable[..., Any], *args: Any) -> Any:
        self._slot._read_here()
        try:
            with covered_by(self._slot):
                item = await step(*args)
        except BaseException:
            self._end()
            raise
        self._see(item)
        return item

    async def aclose(self) -> None:
        """Ends the stream and gives its slot back."""
        try:
            close = getattr(self._inner, "aclose", None) or getattr(self._inner, "close", None)
            closing = close() if close is not None else None
            if inspect.isawaitable(closing):
                await closing
        finally:
            self._end()

    async def close(self) -> None:
        """The same, by the name that OpenAI's and Anthropic's streams have for it."""
        await self.aclose()

    async def __aenter__(self) -> HeldAsyncStream:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

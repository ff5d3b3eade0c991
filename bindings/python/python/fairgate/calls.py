"""One call that an adapter sends: its slot, and what it used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from ._core import Slot
from .context import Lease, covered_by, current_agent, lease
from .limits import ProviderAnswer
from .slot import acquire, acquire_blocking, again, again_blocking, answered
from .weighing import Estimate

if TYPE_CHECKING:
    from .scheduler import Scheduler

_C = TypeVar("_C", bound="Call")


class Call:
    """A call of the innermost ``with fairgate.agent(…)`` block's agent, else of ``agent``.

    Where a layer further out holds a slot of the same scheduler for it, it uses that one; else it asks for its own. Use it
    as ``async with`` in a task or as ``with`` in a thread, or end it with :meth:`end` where its answer is read later.
    """

    def __init__(
        self, scheduler: Scheduler, estimate: Estimate, *, agent: str, timeout: float | None
    ) -> None:
        self.estimate = estimate
        self._lease: Lease | None = lease(scheduler._gate)
        #: Whether :meth:`end` was called.
        self.is_over = False
        if self._lease is not None:
            self.slot: Slot = self._lease.slot
        else:
            self.slot = scheduler.slot(
                current_agent() or agent,
                weight=estimate.weight,
                cost=estimate.cost,
                model=estimate.model,
                timeout=timeout,
            )
        self._metered = self.slot._metered

    async def start(self) -> None:
        """Waits for the slot, in a task."""
        if self._lease is None:
            await acquire(self.slot)

    def start_blocking(self) -> None:
        """Waits for the slot, in a thread."""
        if self._lease is None:
            acquire_blocking(self.slot)

    def answered(self, answer: ProviderAnswer) -> None:
        """Tells the scheduler what an answer said of the provider's limits."""
        answered(self.slot, answer)

    async def again(self, answer: ProviderAnswer) -> bool:
        """After an answer that refused the call: waits for another turn. False where that is in vain."""
        return await again(self.slot, answer)

    def again_blocking(self, answer: ProviderAnswer) -> bool:
        """As :meth:`again`, in a thread."""
        return again_blocking(self.slot, answer)

    def read_here(self) -> None:
        """Whoever calls this will end the call: until then, others need not wait for it in vain."""
        if self._lease is None:
            self.slot._read_here()

    @contextmanager
    def working(self) -> Iterator[None]:
        """In this block layers further in use this call's slot."""
        self.read_here()
        with covered_by(self.slot):
            yield

    def used(self, input_tokens: int, output_tokens: int, model: str | None = None) -> None:
        """Settles what the call used, or a part of it, unless a layer further in has.

        Does nothing if the slot was given back by itself, because its answer was dropped.
        """
        slot = self.slot
        if slot.held and slot._metered == self._metered:
            slot.settle(input_tokens=input_tokens, output_tokens=output_tokens, model=model)
            # A layer further out need not read it from the result.
            slot._metered += 1
            self._metered = slot._metered

    def used_nothing(self) -> None:
        """The call was refused, or never answered."""
        if self._lease is None and self.slot.held:
            self.slot.settle(0)

    def end(self) -> None:
        """Gives the slot back, or back to the layer that holds it. A second time it does nothing."""
        if self.is_over:
            return
        self.is_over = True
        if self._lease is None:
            self.slot.release()
        else:
            self._lease.end()

    async def __aenter__(self: _C) -> _C:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def __enter__(self: _C) -> _C:
        self.start_blocking()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

"""LangChain: every call of a chat model, however it is reached, runs in a slot.

    model = fairgate.adapters.langchain.schedule(ChatOpenAI(...), scheduler, agent="analyst")
    chain = prompt | model          # as ever

The model that is returned is one of the same class, with the four methods overridden through which LangChain calls
every chat model. So it binds tools, streams, batches and is traced as before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, TypeVar

from langchain_core.language_models.chat_models import BaseChatModel

from ..context import current_agent, is_scheduled, scheduled_here
from ..scheduler import Scheduler
from ..slot import Slot
from ..weighing import Estimate, Weighing

_Model = TypeVar("_Model", bound=BaseChatModel)


def schedule(
    model: _Model, scheduler: Scheduler, *, agent: str = "default", weighing: Weighing = Weighing()
) -> _Model:
    """A copy of a chat model whose calls wait for their turn.

    A call is of the agent of the innermost ``with fairgate.agent(…)`` block, else of ``agent``. Its weight and cost
    come from ``weighing``; the usage that LangChain reads from the answer settles. Refusals are fairgate's own errors.
    """
    copy = model.model_copy()
    kind = type(model)
    # Pydantic guards the attributes of its models, the class included.
    object.__setattr__(copy, "__class__", _scheduled(kind, _Desk(scheduler, agent, weighing)))
    return copy


class _Desk:
    """Makes slots for a model's calls and settles them."""

    def __init__(self, scheduler: Scheduler, agent: str, weighing: Weighing) -> None:
        self._scheduler = scheduler
        self._agent = agent
        self._weighing = weighing

    def estimate(self, model: BaseChatModel, messages: Any) -> Estimate:
        characters = sum(len(str(message.content)) for message in messages)
        limit = getattr(model, "max_tokens", None)
        return self._weighing.of_call(
            _model_name(model), characters, limit if isinstance(limit, int) else None
        )

    def slot(self, estimate: Estimate) -> Slot:
        return self._scheduler.slot(
            current_agent() or self._agent,
            weight=estimate.weight,
            cost=estimate.cost,
            model=estimate.model,
        )


def _model_name(model: BaseChatModel) -> str | None:
    for attribute in ("model_name", "model", "model_id"):
        name = getattr(model, attribute, None)
        if isinstance(name, str) and name:
            return name
    return None


def _settle(slot: Slot, message: Any) -> bool:
    usage = getattr(message, "usage_metadata", None)
    if usage:
        slot.settle(input_tokens=usage["input_tokens"], output_tokens=usage["output_tokens"])
    return bool(usage)


class _Streamed:
    """What a stream has used, so far as it says; where it never does, about one token for each chunk with content."""

    def __init__(self, slot: Slot, estimate: Estimate) -> None:
        self._slot = slot
        self._estimate = estimate
        self._chunks = 0
        self._said = False

    def see(self, message: Any) -> None:
        self._chunks += bool(message.content)
        self._said |= _settle(self._slot, message)

    def end(self) -> None:
        if not self._said and self._chunks:
            self._slot.settle(
                input_tokens=self._estimate.prompt_tokens, output_tokens=self._chunks
            )


def _scheduled(kind: type[BaseChatModel], desk: _Desk) -> type[BaseChatModel]:
    class Scheduled(kind):  # type: ignore[misc, valid-type]
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if is_scheduled():
                return super()._generate(messages, *args, **kwargs)
            with desk.slot(desk.estimate(self, messages)) as slot, scheduled_here():
                result = super()._generate(messages, *args, **kwargs)
                for generation in result.generations:
                    _settle(slot, generation.message)
                return result

        async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if is_scheduled():
                return await super()._agenerate(messages, *args, **kwargs)
            async with desk.slot(desk.estimate(self, messages)) as slot:
                with scheduled_here():
                    result = await super()._agenerate(messages, *args, **kwargs)
                for generation in result.generations:
                    _settle(slot, generation.message)
                return result

        if kind._stream is not BaseChatModel._stream:

            def _stream(self, messages: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
                inner = super()._stream(messages, *args, **kwargs)
                if is_scheduled():
                    yield from inner
                    return
                estimate = desk.estimate(self, messages)
                with desk.slot(estimate) as slot:
                    streamed = _Streamed(slot, estimate)
                    try:
                        while True:
                            # Only while the model works: between two chunks the program's own code runs.
                            with scheduled_here():
                                chunk = next(inner, None)
                            if chunk is None:
                                return
                            streamed.see(chunk.message)
                            yield chunk
                    finally:
                        streamed.end()
                        inner.close()

        # Also where the model streams in threads alone: the task that asks is the one that waits and holds.
        if kind._stream is not BaseChatModel._stream or kind._astream is not BaseChatModel._astream:

            async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                inner = super()._astream(messages, *args, **kwargs)
                if is_scheduled():
                    async for chunk in inner:
                        yield chunk
                    return
                estimate = desk.estimate(self, messages)
                async with desk.slot(estimate) as slot:
                    streamed = _Streamed(slot, estimate)
                    try:
                        while True:
                            with scheduled_here():
                                chunk = await anext(inner, None)
                            if chunk is None:
                                return
                            streamed.see(chunk.message)
                            yield chunk
                    finally:
                        streamed.end()
                        await inner.aclose()

    Scheduled.__name__ = kind.__name__
    Scheduled.__qualname__ = kind.__qualname__
    Scheduled.__module__ = kind.__module__
    return Scheduled

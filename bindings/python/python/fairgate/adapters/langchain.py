"""LangChain: every call of a chat model, however it is reached, runs in a slot.

    model = fairgate.adapters.langchain.schedule(ChatOpenAI(...), scheduler, agent="analyst")
    chain = prompt | model          # as ever

The model that is returned is one of the same class, with the four methods overridden through which LangChain calls
every chat model. So it binds tools, streams, batches and is traced as before.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, TypeVar

from langchain_core.language_models.chat_models import BaseChatModel

from ..calls import Call
from ..prompts import Prompt
from ..scheduler import Scheduler
from ..weighing import Weighing

_Model = TypeVar("_Model", bound=BaseChatModel)


def schedule(
    model: _Model,
    scheduler: Scheduler,
    *,
    agent: str = "default",
    weighing: Weighing = Weighing(),
    timeout: float | None = None,
) -> _Model:
    """A copy of a chat model whose calls wait for their turn.

    A call is of the agent of the innermost ``with fairgate.agent(…)`` block, else of ``agent``. Its weight and cost
    come from ``weighing``; the usage that LangChain reads from the answer settles. It waits for its slot for at most
    ``timeout`` seconds, where that is given. Refusals are fairgate's own errors.
    """
    copy = model.model_copy()
    kind = type(model)
    # Pydantic guards the attributes of its models, the class included.
    object.__setattr__(copy, "__class__", _scheduled(kind, _Desk(scheduler, agent, weighing, timeout)))
    return copy


class _Desk:
    """Makes calls of a model's calls."""

    def __init__(
        self, scheduler: Scheduler, agent: str, weighing: Weighing, timeout: float | None
    ) -> None:
        self._scheduler = scheduler
        self._agent = agent
        self._weighing = weighing
        self._timeout = timeout

    def call(self, model: BaseChatModel, messages: Any) -> _ModelCall:
        prompt = prompt_of(messages)
        limit = getattr(model, "max_tokens", None)
        estimate = self._weighing.of_call(
            _model_name(model),
            prompt.characters,
            limit if isinstance(limit, int) else None,
            file_tokens=prompt.file_tokens,
        )
        return _ModelCall(self._scheduler, estimate, agent=self._agent, timeout=self._timeout)


def prompt_of(messages: Iterable[Any]) -> Prompt:
    """What LangChain's messages are made of."""
    prompt = Prompt()
    for message in messages:
        prompt.add(message.content)
    return prompt


def _model_name(model: BaseChatModel) -> str | None:
    for attribute in ("model_name", "model", "model_id"):
        name = getattr(model, attribute, None)
        if isinstance(name, str) and name:
            return name
    return None


class _ModelCall(Call):
    """A call, and what LangChain reads from its answer."""

    _chunks = 0
    _says = False

    def generated(self, result: Any) -> Any:
        """Settles a whole answer, and returns it."""
        for generation in result.generations:
            self._note(generation.message)
        return result

    def see(self, message: Any) -> None:
        """Notes a chunk of a stream."""
        self._chunks += bool(message.content)
        self._note(message)

    def end(self) -> None:
        if not self.is_over and not self._says and self._chunks:
            # A stream that never says what it used: about one token for each chunk with content.
            self.used(self.estimate.prompt_tokens, self._chunks)
        super().end()

    def _note(self, message: Any) -> None:
        usage = getattr(message, "usage_metadata", None)
        if usage:
            self._says = True
            self.used(usage["input_tokens"], usage["output_tokens"])


def _scheduled(kind: type[BaseChatModel], desk: _Desk) -> type[BaseChatModel]:
    class Scheduled(kind):  # type: ignore[misc, valid-type]
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            with desk.call(self, messages) as call:
                with call.working():
                    result = super()._generate(messages, *args, **kwargs)
                return call.generated(result)

        async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            async with desk.call(self, messages) as call:
                with call.working():
                    result = await super()._agenerate(messages, *args, **kwargs)
                return call.generated(result)

        if kind._stream is not BaseChatModel._stream:

            def _stream(self, messages: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
                inner = super()._stream(messages, *args, **kwargs)
                with desk.call(self, messages) as call, contextlib.closing(inner):
                    while True:
                        # Only while the model works: between two chunks the program's own code runs.
                        with call.working():
                            chunk = next(inner, None)
                        if chunk is None:
                            return
                        call.see(chunk.message)
                        yield chunk

        # Also where the model streams in threads alone: the task that asks is the one that waits and holds.
        if kind._stream is not BaseChatModel._stream or kind._astream is not BaseChatModel._astream:

            async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                inner = super()._astream(messages, *args, **kwargs)
                async with desk.call(self, messages) as call, contextlib.aclosing(inner):
                    while True:
                        with call.working():
                            chunk = await anext(inner, None)
                        if chunk is None:
                            return
                        call.see(chunk.message)
                        yield chunk

    Scheduled.__name__ = kind.__name__
    Scheduled.__qualname__ = kind.__qualname__
    Scheduled.__module__ = kind.__module__
    return Scheduled

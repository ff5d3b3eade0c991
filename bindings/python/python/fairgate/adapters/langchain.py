"""LangChain: every call of a chat model, however it is reached, runs in a slot.

    model = fairgate.adapters.langchain.schedule(ChatOpenAI(...), scheduler, agent="analyst")
    chain = prompt | model          # as ever

The model that is returned is one of the same class, with the four methods overridden through which LangChain calls
every chat model. So it binds tools, streams, batches and is traced as before.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator
from typing import Any, TypeVar

from langchain_core.language_models import BaseLLM
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.runnables import RunnableSerializable
from langchain_core.runnables.base import RunnableBindingBase

from ..calls import Call
from ..limits import TAKEN_ON
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
    if not isinstance(model, BaseChatModel):
        raise TypeError(_why_not(model))
    copy = model.model_copy()
    kind = type(model)
    leave_retries_to_the_scheduler(copy)
    # Pydantic guards the attributes of its models, the class included.
    object.__setattr__(copy, "__class__", _scheduled(kind, _ScheduledModel(scheduler, agent, weighing, timeout)))
    return copy


def _why_not(model: object) -> str:
    """What to do with something that is no chat model."""
    name = type(model).__name__
    if isinstance(model, BaseLLM):
        return (
            f"{name} is a plain text model, of which one call may be many: schedule a chat model, or the client underneath "
            "with fairgate.adapters.openai.attach"
        )
    if isinstance(model, RunnableBindingBase):
        return f"{name} is a model that something was bound to: schedule the model first, then bind to what schedule() returns"
    if isinstance(model, RunnableSerializable) or "Configurable" in name:
        return (
            f"{name} chooses its model when it is called: schedule each model that it may choose, or attach the client "
            "underneath with fairgate.adapters.openai.attach"
        )
    return f"schedule() takes a chat model of LangChain, not {name}"


def leave_retries_to_the_scheduler(model: BaseChatModel) -> None:
    """Turns off the retries of the clients of OpenAI's and Anthropic's packages under a model.

    They would hold the call's slot while they wait. What met a limit is sent again by the scheduler, in its turn; other
    errors reach the program, which may use ``with_retry()`` around the model.
    """
    for name in ("root_client", "root_async_client", "_client", "_async_client"):
        client = getattr(model, name, None)
        if client is not None and hasattr(client, "with_options") and hasattr(client, "max_retries"):
            # Also where LangChain keeps it as a cached property, which pydantic would not let be set.
            model.__dict__[name] = client.with_options(max_retries=0)
    for name, root in (("client", "root_client"), ("async_client", "root_async_client")):
        resource: Any = model.__dict__.get(name)
        client = model.__dict__.get(root)
        if client is not None and hasattr(resource, "_client"):
            model.__dict__[name] = type(resource)(client)


class _ScheduledModel:
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
        self.answered(TAKEN_ON)
        for generation in result.generations:
            self._note(generation.message)
        return result

    #: Whether a stream has given anything: then it cannot be begun again.
    has_begun = False

    def read(self, inner: Iterator[Any]) -> Iterator[Any]:
        """The chunks of a stream, noted as they pass."""
        while True:
            # Only while the model works: between two chunks the program's own code runs.
            with self.working():
                chunk = next(inner, None)
            if chunk is None:
                return
            self._see(chunk.message)
            yield chunk

    async def aread(self, inner: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """As :meth:`read`, in a task."""
        while True:
            with self.working():
                chunk = await anext(inner, None)
            if chunk is None:
                return
            self._see(chunk.message)
            yield chunk

    def _see(self, message: Any) -> None:
        if not self.has_begun:
            self.answered(TAKEN_ON)
        self.has_begun = True
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


def _scheduled(kind: type[BaseChatModel], scheduled: _ScheduledModel) -> type[BaseChatModel]:
    class Scheduled(kind):  # type: ignore[misc, valid-type]
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            with scheduled.call(self, messages) as call:
                while True:
                    try:
                        with call.working():
                            result = super()._generate(messages, *args, **kwargs)
                        return call.generated(result)
                    except Exception as error:
                        call.slot.retry_blocking(error)

        async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            async with scheduled.call(self, messages) as call:
                while True:
                    try:
                        with call.working():
                            result = await super()._agenerate(messages, *args, **kwargs)
                        return call.generated(result)
                    except Exception as error:
                        await call.slot.retry(error)

        if kind._stream is not BaseChatModel._stream:

            def _stream(self, messages: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
                with scheduled.call(self, messages) as call:
                    while True:
                        try:
                            with contextlib.closing(super()._stream(messages, *args, **kwargs)) as inner:
                                yield from call.read(inner)
                            return
                        except Exception as error:
                            if call.has_begun:
                                raise
                            call.slot.retry_blocking(error)

        # Also where the model streams in threads alone: the task that asks is the one that waits and holds.
        if kind._stream is not BaseChatModel._stream or kind._astream is not BaseChatModel._astream:

            async def _astream(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
                async with scheduled.call(self, messages) as call:
                    while True:
                        try:
                            inner = super()._astream(messages, *args, **kwargs)
                            async with contextlib.aclosing(inner), contextlib.aclosing(call.aread(inner)) as chunks:
                                async for chunk in chunks:
                                    yield chunk
                            return
                        except Exception as error:
                            if call.has_begun:
                                raise
                            await call.slot.retry(error)

    Scheduled.__name__ = kind.__name__
    Scheduled.__qualname__ = kind.__qualname__
    Scheduled.__module__ = kind.__module__
    return Scheduled

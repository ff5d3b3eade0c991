"""Amazon's package: every call of a client for Bedrock, streamed or not, runs in a slot.

    client = fairgate.adapters.boto3.attach(boto3.client("bedrock-runtime", config=config), scheduler, agent="analyst")
    client.converse(modelId="…", messages=[…])          # as ever

The adapter listens to the events of botocore that are there for this. botocore waits to retry inside of a call: give the
client ``Config(retries={"total_max_attempts": 1})`` so that it holds no slot meanwhile, and call it with
``scheduler.wrap(client.converse, agent_id="analyst", …)``, which makes calls that were throttled again in their turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ..calls import Call
from ..limits import ProviderAnswer, answer_of_botocore, headers_of
from ..prompts import Prompt
from ..scheduler import Scheduler
from ..streams import HeldStream
from ..usage import Usage
from ..weighing import Weighing

_Client = TypeVar("_Client")

#: The operations that call a model.
OPERATIONS = ("Converse", "ConverseStream", "InvokeModel", "InvokeModelWithResponseStream")
_KEY = "fairgate"


def attach(
    client: _Client,
    scheduler: Scheduler,
    *,
    agent: str = "default",
    weighing: Weighing = Weighing(),
    timeout: float | None = None,
) -> _Client:
    """Schedules every call of a model through a ``bedrock-runtime`` client of boto3, and returns the same client.

    Refusals are fairgate's own errors.
    """
    meta: Any = getattr(client, "meta", None)
    if meta is None or not hasattr(meta, "events"):
        raise TypeError(f"{type(client).__name__} is no client of boto3")
    listener = _Listener(scheduler, agent, weighing, timeout)
    service = meta.service_model.service_id.hyphenize()
    for operation in OPERATIONS:
        meta.events.register(f"provide-client-params.{service}.{operation}", listener.asks)
        meta.events.register(f"before-call.{service}.{operation}", listener.starts)
        meta.events.register(f"after-call.{service}.{operation}", listener.ends)
        meta.events.register(f"after-call-error.{service}.{operation}", listener.fails)
    return client


class _Listener:
    def __init__(self, scheduler: Scheduler, agent: str, weighing: Weighing, timeout: float | None) -> None:
        self._scheduler = scheduler
        self._agent = agent
        self._weighing = weighing
        self._timeout = timeout

    def asks(self, params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        """The call's parameters are known: what it will come to."""
        prompt = Prompt()
        for name in ("messages", "system", "toolConfig", "body"):
            prompt.add(params.get(name))
        limit = (params.get("inferenceConfig") or {}).get("maxTokens")
        context[_KEY] = self._weighing.of_call(
            params.get("modelId"), prompt.characters, limit, file_tokens=prompt.file_tokens
        )

    def starts(self, context: dict[str, Any], **_: Any) -> None:
        estimate = context.pop(_KEY, None) or self._weighing.of_call(None, 0)
        call = Call(self._scheduler, estimate, agent=self._agent, timeout=self._timeout)
        call.start_blocking()
        context[_KEY] = call

    def ends(self, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        call = context.pop(_KEY, None)
        if not isinstance(call, Call):
            return
        refusal = answer_of_botocore(parsed)
        if "Error" in parsed:
            if refusal is not None:
                call.answered(refusal)
            call.used_nothing()
            call.end()
            return
        call.answered(ProviderAnswer(200, headers_of(parsed.get("ResponseMetadata", {}).get("HTTPHeaders"))))
        stream = parsed.get("stream")
        if stream is not None:
            parsed["stream"] = _EventStream(call, stream)
            return
        usage = parsed.get("usage")
        if isinstance(usage, Mapping):
            call.used(usage.get("inputTokens", 0), usage.get("outputTokens", 0), call.estimate.model)
        call.end()

    def fails(self, context: dict[str, Any], **_: Any) -> None:
        call = context.pop(_KEY, None)
        if isinstance(call, Call):
            call.used_nothing()
            call.end()


class _EventStream(HeldStream):
    """The events of a streamed answer: the last one says what the call used."""

    def __init__(self, call: Call, stream: Any) -> None:
        super().__init__(call.slot, iter(stream))
        self._call = call
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _see(self, item: object) -> None:
        usage = ((item.get("metadata") or {}).get("usage")) if isinstance(item, Mapping) else None
        if isinstance(usage, Mapping):
            self._usage = Usage(usage.get("inputTokens", 0), usage.get("outputTokens", 0), self._call.estimate.model)

    def _end(self) -> None:
        if self._usage is not None and not self._call.is_over:
            self._call.used(self._usage.input_tokens, self._usage.output_tokens, self._usage.model)
        self._usage = None
        self._call.end()

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            self._end()

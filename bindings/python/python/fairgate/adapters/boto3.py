"""Amazon's package: every call of a client for Bedrock, streamed or not, runs in a slot.

    client = fairgate.adapters.boto3.attach(boto3.client("bedrock-runtime", config=config), scheduler, agent="analyst")
    client.converse(modelId="…", messages=[…])          # as ever

The adapter listens to the events of botocore that are there for this. A call that was throttled is sent again in its turn,
and holds no slot meanwhile. After other errors botocore waits inside of the call, with its slot, before it tries again: give
the client ``Config(retries={"total_max_attempts": 1})`` where that must not be.
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
    exceptions: Any = getattr(client, "exceptions")
    listener = _Listener(scheduler, exceptions, agent, weighing, timeout)
    service = meta.service_model.service_id.hyphenize()
    for operation in OPERATIONS:
        meta.events.register(f"provide-client-params.{service}.{operation}", listener.asks)
        meta.events.register(f"before-call.{service}.{operation}", listener.starts)
        # First, so that its answer counts before those of botocore's own retries.
        meta.events.register_first(f"needs-retry.{service}.{operation}", listener.is_sent_again)
        meta.events.register(f"after-call.{service}.{operation}", listener.ends)
        meta.events.register(f"after-call-error.{service}.{operation}", listener.fails)
    return client


class _Listener:
    def __init__(
        self, scheduler: Scheduler, exceptions: Any, agent: str, weighing: Weighing, timeout: float | None
    ) -> None:
        self._scheduler = scheduler
        self._exceptions = exceptions
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

    def is_sent_again(self, response: Any, operation: Any, request_dict: dict[str, Any], **_: Any) -> int | None:
        """After each attempt: 0 for another one at once, when a call that was throttled has its next turn.

        None leaves it to botocore, as after errors that are not about a limit. A call that the scheduler has given up fails
        here: botocore would try it again, without a turn.
        """
        call = request_dict["context"].get(_KEY)
        refusal = None if response is None else answer_of_botocore(response[1])
        if refusal is None or not isinstance(call, Call):
            return None
        if call.again_blocking(refusal):
            return 0
        if refusal.status != 429:
            return None
        parsed = response[1]
        raise self._exceptions.from_code(parsed.get("Error", {}).get("Code"))(parsed, operation.name)

    def ends(self, parsed: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
        call = context.pop(_KEY, None)
        if not isinstance(call, Call):
            return
        if "Error" in parsed:
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

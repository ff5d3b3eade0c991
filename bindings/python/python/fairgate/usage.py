"""What a model says that a call used, wherever it says it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger("fairgate")

#: More than any call uses. What an answer states beyond is not believed, as in the gateway.
TOKENS_MAX = 1_000_000_000


@dataclass(frozen=True)
class Usage:
    """The tokens of one call."""

    input_tokens: int
    output_tokens: int
    #: The model that answered, where it says so.
    model: str | None = None


def usage_of(answer: object) -> Usage | None:
    """The usage in an answer of OpenAI's, Anthropic's, Google's or Amazon's packages, or in the JSON object behind one.

    Read are ``usage.prompt_tokens`` and ``completion_tokens`` (OpenAI's chat), ``usage.input_tokens`` and
    ``output_tokens`` (OpenAI's responses; Anthropic, where tokens read from and written to the cache are input too),
    ``usageMetadata`` with ``promptTokenCount`` and ``candidatesTokenCount`` (Google), and ``usage.inputTokens`` and
    ``outputTokens`` (Amazon).
    None where an answer has no usage, or states more than a thousand million tokens: that is logged, and the estimate
    stands.
    """
    usage = _first(answer, "usage", "usageMetadata", "usage_metadata")
    if usage is None:
        return None
    given = _count(usage, "input_tokens", "prompt_tokens", "inputTokens", "promptTokenCount", "prompt_token_count")
    made = _count(
        usage, "output_tokens", "completion_tokens", "outputTokens", "candidatesTokenCount", "candidates_token_count"
    )
    # Google counts thoughts beside the answer.
    thoughts = _count(usage, "thoughtsTokenCount", "thoughts_token_count")
    made = made if thoughts is None else (made or 0) + thoughts
    if given is None and made is None:
        return None
    cached = sum(
        _count(usage, name) or 0 for name in ("cache_creation_input_tokens", "cache_read_input_tokens")
    )
    if (given or 0) + cached > TOKENS_MAX or (made or 0) > TOKENS_MAX:
        _log.warning(
            "an answer says that it used %s input and %s output tokens; that is not believed, and its estimate stands",
            (given or 0) + cached,
            made or 0,
        )
        return None
    model = _first(answer, "model", "modelVersion", "model_version")
    return Usage((given or 0) + cached, made or 0, model if isinstance(model, str) else None)


def _field(value: object, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)


def _first(value: object, *names: str) -> Any:
    """The first field of these that is there."""
    return next((field for name in names if (field := _field(value, name)) is not None), None)


def _count(usage: object, *names: str) -> int | None:
    for name in names:
        count = _field(usage, name)
        if isinstance(count, int) and not isinstance(count, bool) and count >= 0:
            return count
    return None

"""How heavy a call is, before it is made: from the model's name and the length of its prompt.

One table for all adapters. A model's weight is that of the first entry whose word is in its name; the call's weight is
that, times its prompt in thousands of tokens where it is longer than one thousand. Tokens are taken as four characters
each: what counts is how calls compare, and what a call really used is settled when it ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Words in a model's name, and its weight. The first that fits counts, so the small variants come first.
MODEL_WEIGHTS: tuple[tuple[str, float], ...] = (
    ("mini", 1.0),
    ("nano", 1.0),
    ("flash", 1.0),
    ("haiku", 1.0),
    ("embedding", 1.0),
    ("sonnet", 2.0),
    ("gpt-4o", 3.0),
    ("gemini-pro", 3.0),
    ("opus", 5.0),
    ("o1", 5.0),
)
#: The weight of a model that the table does not name.
OTHER_WEIGHT = 2.0

_CHARACTERS_PER_TOKEN = 4
_PROMPT_FIELDS = ("system", "messages", "prompt", "input", "instructions", "tools")
_OUTPUT_LIMITS = ("max_completion_tokens", "max_output_tokens", "max_tokens")


@dataclass(frozen=True)
class Estimate:
    """What a call is expected to be."""

    model: str | None
    prompt_tokens: int
    #: For the load function.
    weight: float
    #: In tokens: prompt and expected output.
    cost: int


@dataclass(frozen=True)
class Weighing:
    """How calls are weighed; give an adapter your own to change the table.

    :param models: words in a model's name and its weight; the first that fits counts.
    :param other: the weight of a model that none fits.
    :param output_tokens: how many tokens an answer is expected to have, where the call has no lower limit of its own.
    """

    models: Iterable[tuple[str, float]] = MODEL_WEIGHTS
    other: float = OTHER_WEIGHT
    output_tokens: int = 500

    def of_model(self, model: str | None) -> float:
        """The weight of a short call to this model."""
        name = (model or "").lower()
        return next((weight for word, weight in self.models if word in name), self.other)

    def of_call(self, model: str | None, characters: int, output_limit: int | None = None) -> Estimate:
        """The estimate for a prompt of so many characters."""
        prompt = math.ceil(characters / _CHARACTERS_PER_TOKEN)
        output = self.output_tokens if output_limit is None else min(output_limit, self.output_tokens)
        weight = self.of_model(model) * max(1.0, prompt / 1000)
        return Estimate(model, prompt, min(max(round(weight, 3), 0.001), 1e6), max(1, prompt + output))

    def of_body(self, body: Mapping[str, Any]) -> Estimate:
        """The estimate for the JSON body of a call to OpenAI's or Anthropic's API."""
        model = body.get("model")
        limits = [body[name] for name in _OUTPUT_LIMITS if isinstance(body.get(name), int)]
        characters = sum(_characters(body.get(name)) for name in _PROMPT_FIELDS)
        limit = min(limits) if limits else None
        return self.of_call(model if isinstance(model, str) else None, characters, limit)


def _characters(value: object) -> int:
    """The length of all text in a JSON value; keys, roles and types do not count."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(_characters(each) for key, each in value.items() if key not in ("role", "type"))
    if isinstance(value, list):
        return sum(_characters(each) for each in value)
    return 0

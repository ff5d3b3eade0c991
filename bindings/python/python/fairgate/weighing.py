"""How heavy a call is, before it is made: from the model's name and the length of its prompt.

One table for all adapters, in :mod:`fairgate.models`. The call's weight is its model's, times its prompt in thousands of
tokens where it is longer than one thousand. Text is taken as four characters a token: what counts is how calls compare, and
what a call really used is settled when it ends. Images, sounds and documents have rules of their own
(:mod:`fairgate.prompts`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .models import MODEL_WEIGHTS, OTHER_WEIGHT, weight_of
from .prompts import Prompt

_CHARACTERS_PER_TOKEN = 4
_PROMPT_FIELDS = ("system", "messages", "prompt", "input", "instructions", "tools", "contents", "systemInstruction", "inputText")
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

    :param models: families of models, as words in their names, and their weight; the longest that fits counts.
    :param other: the weight of a model that none fits.
    :param output_tokens: how many tokens an answer is expected to have, where the call has no lower limit of its own.
    """

    models: Iterable[tuple[str, float]] = MODEL_WEIGHTS
    other: float = OTHER_WEIGHT
    output_tokens: int = 500

    def of_model(self, model: str | None) -> float:
        """The weight of a short call to this model."""
        return weight_of(model, self.models, self.other)

    def of_call(
        self, model: str | None, characters: int, output_limit: int | None = None, *, file_tokens: int = 0
    ) -> Estimate:
        """The estimate for a prompt of so many characters, with files of so many tokens."""
        prompt = math.ceil(characters / _CHARACTERS_PER_TOKEN) + file_tokens
        output = self.output_tokens if output_limit is None else min(output_limit, self.output_tokens)
        weight = self.of_model(model) * max(1.0, prompt / 1000)
        return Estimate(model, prompt, min(max(round(weight, 3), 0.001), 1e6), max(1, prompt + output))

    def of_body(self, body: Mapping[str, Any]) -> Estimate:
        """The estimate for the JSON body of a call to OpenAI's, Anthropic's, Google's or Amazon's API."""
        model = body.get("model")
        limits = [body[name] for name in _OUTPUT_LIMITS if type(body.get(name)) is int and body[name] >= 0]
        prompt = Prompt()
        for name in _PROMPT_FIELDS:
            prompt.add(body.get(name))
        return self.of_call(
            model if isinstance(model, str) else None,
            prompt.characters,
            min(limits) if limits else None,
            file_tokens=prompt.file_tokens,
        )

"""How heavy models are: weights by model family, from the one table that the gateway has too.

A name is looked up by its longest match: of all entries whose words stand in the name as whole words, the one with the
most characters counts. Words are what stands between ``-``, ``_``, ``.``, ``/``, ``:``, ``@`` and blanks, so the ``mini`` of
``gemini`` is none, and prefixes and suffixes of providers (``us.anthropic.claude-…-v1:0``, ``models/gemini-…``, dates) do
not matter.

The tiers are those of the load function's page: 1 for small models, 2 to 3 for the middle, 5 for the largest. Reasoning
models that answer with many tokens stand one tier higher than models of their price that do not.
"""

from __future__ import annotations

from collections.abc import Iterable

from ._core import MODEL_WEIGHTS, OTHER_WEIGHT, model_weight
from ._core import model_name_words as words

__all__ = ["MODEL_WEIGHTS", "OTHER_WEIGHT", "weight_of", "words"]


def weight_of(model: str | None, table: Iterable[tuple[str, float]], other: float) -> float:
    """The weight of the longest entry of the table that stands in a model's name, else ``other``."""
    if table is MODEL_WEIGHTS and other == OTHER_WEIGHT:
        return model_weight(model or "")
    return model_weight(model or "", list(table), other)

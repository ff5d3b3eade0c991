"""How heavy models are: the one table of weights, by model family.

A name is looked up by its longest match: of all entries whose words stand in the name as whole words, the one with the
most characters counts. Words are what stands between ``-``, ``_``, ``.``, ``/``, ``:``, ``@`` and blanks, so the ``mini`` of
``gemini`` is none, and prefixes and suffixes of providers (``us.anthropic.claude-…-v1:0``, ``models/gemini-…``, dates) do
not matter.

The tiers are those of the load function's page: 1 for small models, 2 to 3 for the middle, 5 for the largest. Reasoning
models that answer with many tokens stand one tier higher than models of their price that do not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SMALL, MIDDLE, UPPER, LARGE = 1.0, 2.0, 3.0, 5.0

#: Families of models, as words that stand in their names in this order without others between, and their weight.
MODEL_WEIGHTS: tuple[tuple[str, float], ...] = (
    # Anthropic
    ("claude-haiku", SMALL),
    ("claude-sonnet", MIDDLE),
    ("claude-opus", LARGE),
    ("haiku", SMALL),
    ("claude-instant", SMALL),
    ("sonnet", MIDDLE),
    ("claude", MIDDLE),
    ("opus", LARGE),
    ("claude-2", UPPER),
    # OpenAI
    ("gpt-3.5", SMALL),
    ("gpt-4", UPPER),
    ("gpt-4-turbo", UPPER),
    ("gpt-4-32k", LARGE),
    ("gpt-4.1", UPPER),
    ("gpt-4.1-mini", SMALL),
    ("gpt-4.1-nano", SMALL),
    ("gpt-4.5", LARGE),
    ("gpt-4o", UPPER),
    ("gpt-4o-mini", SMALL),
    ("chatgpt-4o", UPPER),
    ("gpt-5", UPPER),
    ("gpt-5-mini", SMALL),
    ("gpt-5-nano", SMALL),
    ("gpt-5-pro", LARGE),
    ("gpt-5-codex", UPPER),
    ("gpt-5-codex-mini", SMALL),
    ("gpt-oss-20b", SMALL),
    ("gpt-oss-120b", MIDDLE),
    ("codex-mini", SMALL),
    ("computer-use-preview", UPPER),
    ("o1", LARGE),
    ("o1-mini", MIDDLE),
    ("o1-pro", LARGE),
    ("o3", LARGE),
    ("o3-mini", MIDDLE),
    ("o3-pro", LARGE),
    ("o4-mini", MIDDLE),
    ("davinci", LARGE),
    ("babbage", SMALL),
    ("whisper", SMALL),
    ("tts", SMALL),
    ("moderation", SMALL),
    # Google
    ("gemini", MIDDLE),
    ("gemini-flash", SMALL),
    ("gemini-pro", UPPER),
    ("gemini-ultra", LARGE),
    ("flash", SMALL),
    ("flash-lite", SMALL),
    ("gemma", SMALL),
    ("palm", MIDDLE),
    ("bison", MIDDLE),
    # Amazon
    ("nova-micro", SMALL),
    ("nova-lite", SMALL),
    ("nova-pro", MIDDLE),
    ("nova-premier", LARGE),
    ("titan-text-lite", SMALL),
    ("titan", MIDDLE),
    # Meta, Mistral, DeepSeek, Alibaba, xAI, Cohere, Moonshot, Zhipu
    ("llama", MIDDLE),
    ("llama-1b", SMALL),
    ("llama-3b", SMALL),
    ("llama-8b", SMALL),
    ("llama-70b", MIDDLE),
    ("llama-405b", LARGE),
    ("llama-scout", MIDDLE),
    ("llama-maverick", UPPER),
    ("mistral-large", UPPER),
    ("mistral-medium", MIDDLE),
    ("mistral-small", SMALL),
    ("ministral", SMALL),
    ("codestral", MIDDLE),
    ("magistral", MIDDLE),
    ("mixtral", MIDDLE),
    ("deepseek-chat", MIDDLE),
    ("deepseek-reasoner", UPPER),
    ("deepseek-r1", UPPER),
    ("deepseek", MIDDLE),
    ("qwen-turbo", SMALL),
    ("qwen-plus", MIDDLE),
    ("qwen-max", UPPER),
    ("qwen-7b", SMALL),
    ("qwen-8b", SMALL),
    ("qwen-14b", SMALL),
    ("qwen-235b", UPPER),
    ("qwen", MIDDLE),
    ("grok", UPPER),
    ("grok-3-mini", SMALL),
    ("command-r", MIDDLE),
    ("command-a", UPPER),
    ("command-light", SMALL),
    ("kimi", MIDDLE),
    ("glm", MIDDLE),
    # Sizes that many families have
    ("mini", SMALL),
    ("nano", SMALL),
    ("lite", SMALL),
    ("tiny", SMALL),
    ("small", SMALL),
    ("embedding", SMALL),
    ("embed", SMALL),
    ("rerank", SMALL),
)
#: The weight of a model that the table does not name.
OTHER_WEIGHT = MIDDLE

_SEPARATORS = re.compile(r"[-_/:@\s]+|\.(?!\d)|(?<!\d)\.")


def words(name: str) -> list[str]:
    """The words of a model's name, in lower case. A point between digits does not separate: ``gpt-4.1`` has two words."""
    return [word for word in _SEPARATORS.split(name.lower()) if word]


def weight_of(model: str | None, table: Iterable[tuple[str, float]], other: float) -> float:
    """The weight of the longest entry of the table that stands in a model's name, else ``other``."""
    name = words(model or "")
    best, weight = -1, other
    for entry, its in table:
        if len(entry) > best and _stands_in(words(entry), name):
            best, weight = len(entry), its
    return weight


def _stands_in(entry: list[str], name: list[str]) -> bool:
    """Whether the words stand in a name in this order. Version numbers may stand between: ``gemini-2.5-flash``."""
    if not entry:
        return False
    return any(_fits_from(entry, name, start) for start in range(len(name)))


def _fits_from(entry: list[str], name: list[str], start: int) -> bool:
    at = start
    for i, word in enumerate(entry):
        while i and at < len(name) and not _is(word, name[at]) and _is_version(name[at]):
            at += 1
        if at >= len(name) or not _is(word, name[at]):
            return False
        at += 1
    return True


def _is(word: str, in_name: str) -> bool:
    """Whether a word of the table is one of a name, where that may add to a version: ``5`` is ``5.1``, ``qwen`` ``qwen2.5``."""
    rest = in_name.removeprefix(word)
    if rest == in_name:
        return False
    if word.isdigit():
        return not rest or rest[0] == "."
    return not rest or (not word[-1].isdigit() and not rest.strip("0123456789."))


def _is_version(word: str) -> bool:
    return word[0].isdigit() or word in ("preview", "exp", "latest", "v1", "v2", "v3")

"""Weights of real models, and prompts that are more than text."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import fairgate
from fairgate.models import MODEL_WEIGHTS, words

WEIGHING = fairgate.Weighing()

#: Names as providers write them, and the tier that the load function's page gives their kind.
NAMES = {
    # The page's own rows.
    "claude-haiku": 1.0, "gpt-4o-mini": 1.0, "gemini-flash": 1.0,
    "claude-sonnet": 2.0, "gpt-4o": 3.0, "gemini-pro": 3.0,
    "claude-opus": 5.0, "o1": 5.0,
    # Anthropic, directly and through Amazon and Google.
    "claude-3-haiku-20240307": 1.0, "claude-3-5-haiku-latest": 1.0, "claude-haiku-4-5-20251001": 1.0,
    "claude-3-5-sonnet-20241022": 2.0, "claude-3-7-sonnet-latest": 2.0, "claude-sonnet-4-5": 2.0,
    "claude-sonnet-4@20250514": 2.0, "claude-3-opus-20240229": 5.0, "claude-opus-4-1-20250805": 5.0,
    "us.anthropic.claude-opus-4-1-20250805-v1:0": 5.0, "anthropic.claude-3-haiku-20240307-v1:0": 1.0,
    "anthropic/claude-3.5-sonnet": 2.0,
    # OpenAI.
    "gpt-3.5-turbo-0125": 1.0, "gpt-4": 3.0, "gpt-4-turbo-2024-04-09": 3.0, "gpt-4-0613": 3.0,
    "gpt-4.1": 3.0, "gpt-4.1-mini": 1.0, "gpt-4.1-nano-2025-04-14": 1.0, "gpt-4o-2024-08-06": 3.0,
    "gpt-4o-mini-2024-07-18": 1.0, "chatgpt-4o-latest": 3.0, "gpt-4.5-preview": 5.0,
    "gpt-5": 3.0, "gpt-5-2025-08-07": 3.0, "gpt-5-chat-latest": 3.0, "gpt-5-mini": 1.0, "gpt-5-nano": 1.0,
    "gpt-5-pro": 5.0, "gpt-5.1": 3.0, "gpt-5.1-codex-mini": 1.0, "gpt-5.2-pro": 5.0, "gpt-5-codex": 3.0,
    "o1-2024-12-17": 5.0, "o1-mini": 2.0, "o1-pro": 5.0, "o3": 5.0, "o3-2025-04-16": 5.0, "o3-mini": 2.0,
    "o3-pro": 5.0, "o4-mini": 2.0, "openai/o3": 5.0, "gpt-oss-120b": 2.0, "openai/gpt-oss-20b": 1.0,
    "text-embedding-3-small": 1.0, "text-embedding-ada-002": 1.0, "ft:gpt-4o-mini-2024-07-18:acme::abc": 1.0,
    # Google.
    "gemini-1.5-pro-002": 3.0, "gemini-1.5-flash-8b": 1.0, "gemini-2.0-flash": 1.0, "gemini-2.0-flash-lite": 1.0,
    "gemini-2.5-pro": 3.0, "models/gemini-2.5-pro": 3.0, "gemini-2.5-flash-preview-05-20": 1.0,
    "gemini-3-pro-preview": 3.0, "google/gemini-2.5-flash": 1.0, "gemini-2.5-computer-use-preview-10-2025": 3.0,
    "gemma-3-27b-it": 1.0, "gemma2-9b-it": 1.0,
    # Others.
    "meta-llama/Llama-3.1-405B-Instruct": 5.0, "llama-3.3-70b-versatile": 2.0, "llama3-8b-8192": 1.0,
    "meta.llama3-1-70b-instruct-v1:0": 2.0, "mistral-large-2411": 3.0, "mistral-small-latest": 1.0,
    "ministral-8b-latest": 1.0, "deepseek-chat": 2.0, "deepseek-reasoner": 3.0, "deepseek-ai/DeepSeek-R1": 3.0,
    "qwen2.5-72b-instruct": 2.0, "Qwen/Qwen2.5-7B-Instruct": 1.0, "grok-4": 3.0, "grok-3-mini": 1.0,
    "amazon.nova-lite-v1:0": 1.0, "us.amazon.nova-pro-v1:0": 2.0, "command-r-plus-08-2024": 2.0,
    # What nobody has heard of.
    "": 2.0, "my-own-model": 2.0, "geminimum": 2.0, "administrator": 2.0, "solo1": 2.0,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_real_models_have_their_familys_weight(name: str) -> None:
    assert WEIGHING.of_model(name) == NAMES[name]
    assert WEIGHING.of_model(name.upper()) == NAMES[name]


def test_the_longest_entry_counts_wherever_it_stands_in_the_table() -> None:
    for table in (MODEL_WEIGHTS, tuple(reversed(MODEL_WEIGHTS))):
        assert fairgate.Weighing(models=table).of_model("gemini-2.5-pro") == 3.0
        assert fairgate.Weighing(models=table).of_model("gpt-4o-mini") == 1.0
    mine = fairgate.Weighing(models=[("my", 9.0), ("my-model", 4.0)], other=1.5)
    assert [mine.of_model(name) for name in ("my-model-large", "my-7", "mine")] == [4.0, 9.0, 1.5]
    assert words("us.anthropic.claude-3.5_x@2:0") == ["us", "anthropic", "claude", "3.5", "x", "2", "0"]


def test_no_entry_stands_twice() -> None:
    entries = [entry for entry, _ in MODEL_WEIGHTS]
    assert len(entries) == len(set(entries))


PICTURE = base64.b64encode(b"p" * 300_000).decode()


@pytest.mark.parametrize(
    ("part", "tokens"),
    [
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}, 1024),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}", "detail": "low"}}, 85),
        ({"type": "image_url", "image_url": {"url": "https://example.org/picture.png"}}, 1024),
        ({"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}", "detail": "low"}, 85),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}, 1024),
        ({"type": "image", "source": {"type": "url", "url": "https://example.org/picture.png"}}, 1024),
        ({"inline_data": {"mime_type": "image/png", "data": PICTURE}}, 1024),
        # 300 000 bytes are 187.5 tenths of a second of sound.
        ({"type": "input_audio", "input_audio": {"data": PICTURE, "format": "wav"}}, 187),
        ({"inlineData": {"mimeType": "audio/mp3", "data": PICTURE}}, 187),
        ({"type": "file", "file": {"file_data": f"data:application/pdf;base64,{PICTURE}"}}, 7500),
        ({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": PICTURE}}, 7500),
        ({"type": "input_file", "file_id": "file-123"}, 1024),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x" * 4000}}, 1000 + 3),
        ({"type": "text", "text": "x" * 4000}, 1000),
    ],
    ids=lambda value: str(value)[:60],
)
def test_files_count_by_rules_of_their_own(part: dict[str, Any], tokens: int) -> None:
    body = {"model": "gpt-4o", "messages": [{"role": "user", "content": [part]}]}
    assert WEIGHING.of_body(body).prompt_tokens == tokens
    both = {"model": "gpt-4o", "messages": [{"role": "user", "content": [part, {"type": "text", "text": "1234"}]}]}
    assert WEIGHING.of_body(both).prompt_tokens == tokens + 1


def test_a_picture_in_a_langchain_message_is_no_text() -> None:
    from fairgate.adapters.langchain import prompt_of
    from langchain_core.messages import HumanMessage

    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}}
    block = {"type": "image", "source_type": "base64", "mime_type": "image/png", "data": PICTURE}
    for part in (picture, block):
        prompt = prompt_of([HumanMessage(content=[{"type": "text", "text": "12345678"}, part])])
        assert (prompt.characters, prompt.file_tokens) == (8, 1024)

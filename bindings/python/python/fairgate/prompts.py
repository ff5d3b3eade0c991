"""What a prompt is made of: text, and images, sounds and documents, which count by rules of their own.

Providers take pictures by their size, sounds by their length and documents by their pages, whatever their base64 looks
like. Where the real numbers cannot be had without decoding, these stand for them:

- an image: 85 tokens where it asks for low detail, else 1 024;
- a sound: ten tokens a second, taken as 16 000 bytes a second;
- a document: a token for every 40 bytes of it, at least 1 024;
- any of these by address or id: 1 024.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LOW_DETAIL_TOKENS = 85
FILE_TOKENS = 1024
_AUDIO_BYTES_PER_TOKEN = 1600
_DOCUMENT_BYTES_PER_TOKEN = 40

# Keys whose values the model does not read as text.
_NOT_TEXT = frozenset(
    ("role", "type", "id", "tool_call_id", "tool_use_id", "cache_control", "signature", "encrypted_content", "detail", "format")
)
# Keys under which a file stands, in the dialects of OpenAI, Anthropic, Google and Amazon.
_FILES = frozenset(
    ("image_url", "input_audio", "file", "file_data", "file_url", "file_id", "inline_data", "inlineData", "fileData", "bytes")
)


class Prompt:
    """Counts a prompt's text and files as it is given them."""

    def __init__(self) -> None:
        self.characters = 0
        self.file_tokens = 0

    def add(self, value: object) -> None:
        """Adds a JSON value, such as a list of messages."""
        if isinstance(value, str):
            if value.startswith("data:") and ";base64," in value[:200]:
                self._add_file(value, value[5:].split(";", 1)[0])
            else:
                self.characters += len(value)
        elif isinstance(value, Mapping):
            self._add_object(value)
        elif isinstance(value, (list, tuple)):
            for each in value:
                self.add(each)
        elif isinstance(value, (bytes, bytearray)):
            self.file_tokens += FILE_TOKENS

    def _add_object(self, value: Mapping[Any, Any]) -> None:
        if value.get("source_type") in ("base64", "url", "id"):
            # LangChain's own blocks.
            self._add_file(value.get("data"), str(value.get("mime_type") or ""))
            return
        for key, each in value.items():
            if key in _NOT_TEXT:
                continue
            if key == "source" and _is_file(each):
                self._add_source(each)
            elif key in _FILES and each is not None:
                self._add_part(value, each)
            else:
                self.add(each)

    def _add_source(self, source: Mapping[str, Any]) -> None:
        self._add_file(source.get("data"), str(source.get("media_type") or "image/"))

    def _add_part(self, part: Mapping[Any, Any], its: object) -> None:
        """A part of a message that is a file: ``its`` is the value that says which."""
        if isinstance(its, Mapping):
            detail = its.get("detail")
            kind = its.get("mime_type") or its.get("mimeType") or _kind_of(its.get("format")) or ""
            data = its.get("data") or its.get("file_data") or its.get("url")
        else:
            detail, kind, data = part.get("detail"), "", its
        if detail == "low":
            self.file_tokens += LOW_DETAIL_TOKENS
        else:
            self._add_file(data, str(kind))

    def _add_file(self, data: object, kind: str) -> None:
        if isinstance(data, str) and data.startswith("data:"):
            kind, _, data = data[5:].partition(";base64,")
        size = len(data) * 3 // 4 if isinstance(data, str) and not data.startswith(("http:", "https:", "gs:")) else 0
        if kind.startswith("audio/"):
            self.file_tokens += max(1, size // _AUDIO_BYTES_PER_TOKEN) if size else FILE_TOKENS
        elif kind.startswith("application/") or kind.startswith("text/"):
            self.file_tokens += max(FILE_TOKENS, size // _DOCUMENT_BYTES_PER_TOKEN)
        else:
            self.file_tokens += FILE_TOKENS


def _is_file(source: object) -> bool:
    return isinstance(source, Mapping) and (
        source.get("type") in ("base64", "url", "file") or "bytes" in source
    )


def _kind_of(format: object) -> str | None:
    return f"audio/{format}" if format in ("wav", "mp3", "flac", "opus", "pcm16", "ogg") else None

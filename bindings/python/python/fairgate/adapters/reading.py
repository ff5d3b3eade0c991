"""Reading what a call used from its answer as the bytes pass, changing none of them."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from ..usage import Usage, usage_of

#: An answer that is one JSON object, or one line of a stream, longer than this is not read: its estimate stands.
LONGEST_BYTES = 16 << 20

# An event of a stream that brings some text, in any of the three dialects.
_SOME_TEXT = re.compile(rb'"(?:content|text|arguments|partial_json|delta|reasoning_content)":\s*"[^"]')


class UsageReader:
    """Fed with an answer's bytes, it knows what the answer says that it used."""

    def __init__(self, content_type: str, content_encoding: str) -> None:
        #: Whether the answer is a stream of events.
        self.streams = content_type.startswith("text/event-stream")
        self._readable = content_encoding in ("", "identity", "gzip", "deflate")
        self._inflate = zlib.decompressobj(47) if content_encoding in ("gzip", "deflate") else None
        self._rest = b""
        self._model: str | None = None
        self._input: int | None = None
        self._output: int | None = None
        #: How many events with text a stream has had: about one for each token.
        self.text_events = 0

    def feed(self, data: bytes) -> None:
        """Takes the next bytes."""
        if not self._readable:
            return
        try:
            self._rest += self._inflate.decompress(data) if self._inflate else data
        except zlib.error:
            self._readable = False
            return
        if self.streams:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                self._line(line)
        if len(self._rest) > LONGEST_BYTES:
            self._readable, self._rest = False, b""

    def end(self) -> None:
        """There are no more bytes."""
        if self.streams:
            self._line(self._rest)
        elif self._readable:
            self._note(self._rest)
        self._rest = b""

    @property
    def usage(self) -> Usage | None:
        """What it said; None where it said nothing."""
        if self._input is None and self._output is None:
            return None
        return Usage(self._input or 0, self._output or 0, self._model)

    def _line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        self.text_events += _SOME_TEXT.search(data) is not None
        if b'"usage"' in data or b'"usageMetadata"' in data:
            self._note(data)

    def _note(self, text: bytes) -> None:
        try:
            value = json.loads(text)
        except ValueError:
            return
        for answer in _answers(value):
            usage = usage_of(answer)
            if usage is None:
                continue
            # Anthropic's stream states the input first and the output, growing, with later events.
            self._input = max(self._input or 0, usage.input_tokens)
            self._output = max(self._output or 0, usage.output_tokens)
            self._model = usage.model or self._model


def _answers(value: Any) -> Iterator[Mapping[str, Any]]:
    """Where usage may stand: in the object itself, or in the message or response that an event is about."""
    if isinstance(value, Mapping):
        yield value
        for name in ("message", "response"):
            if isinstance(value.get(name), Mapping):
                yield value[name]

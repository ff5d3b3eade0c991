"""A provider on loopback: the simulated model, behind a stand-in that speaks as OpenAI, Google and Amazon do."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Tokens of every answer.
OUTPUT_TOKENS = 12
#: Headers of the simulated model that go on to the caller: what it says of its limits.
_LIMIT_HEADERS = ("retry-after", "x-ratelimit-", "anthropic-ratelimit-", "x-should-retry")


@dataclass
class Provider:
    """Where it is, and what it has seen."""

    url: str = ""
    calls: int = 0
    refused: int = 0
    at_once: int = 0
    most_at_once: int = 0
    #: How many further calls are refused, whatever the simulated model's limits say.
    refusals_left: int = 0
    #: Tokens of the prompts that it answered.
    prompt_tokens: int = 0
    #: What was asked for that no stand-in understands.
    not_understood: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


@dataclass
class Answer:
    """What the simulated model said."""

    status: int
    headers: dict[str, str]
    body: bytes


@contextlib.contextmanager
def running_provider(*options: str, refusals: int = 0) -> Iterator[Provider]:
    """A provider with these options of the simulated model, which refuses the first calls, as many as it is told."""
    with _simulated_model(options) as model:
        provider = Provider(refusals_left=refusals)
        handler = type("Handler", (_Handler,), {"provider": provider, "model": model})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        provider.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield provider
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@contextlib.contextmanager
def _simulated_model(options: tuple[str, ...]) -> Iterator[str]:
    command = [
        os.environ["FAIRGATE_SIM_BINARY"],
        "--models=gpt-4o-mini",
        "--slots=64",
        "--prefill-base-ms=20",
        "--prefill-us-per-token=0",
        "--decode-us-per-token=200",
        f"--output-tokens={OUTPUT_TOKENS}",
        *options,
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().removeprefix("listening on ").strip()
    finally:
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


class _Handler(BaseHTTPRequestHandler):
    """Asks the simulated model, and counts how many ask at once."""

    provider: Provider
    model: str

    def do_POST(self) -> None:
        asked = self._body()
        seen = self.provider
        with seen.lock:
            seen.calls += 1
            seen.at_once += 1
            seen.most_at_once = max(seen.most_at_once, seen.at_once)
        try:
            answer = self._answer(asked)
        finally:
            # Before the answer goes out: the next call may come as soon as it is read.
            with seen.lock:
                seen.at_once -= 1
        with seen.lock:
            seen.refused += answer.status == 429
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def do_GET(self) -> None:
        self.provider.not_understood.append(f"GET {self.path}")
        self.send_error(404)

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, asked: bytes) -> Answer:
        path = self.path.partition("?")[0]
        if path.endswith(":generateContent"):
            return self._translated(google, google_refusal)
        if path.endswith("/converse"):
            return self._translated(amazon, amazon_refusal)
        if not path.startswith("/v1/"):
            self.provider.not_understood.append(f"POST {path}")
        return self._noted(self._ask(path, asked))

    def _translated(self, translate: Any, refuse: Any) -> Answer:
        """An answer to a chat in another dialect."""
        body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "What is fair?"}]}
        answer = self._noted(self._ask("/v1/chat/completions", json.dumps(body).encode()))
        if answer.status == 429:
            return refuse(answer)  # type: ignore[no-any-return]
        said = json.dumps(translate(json.loads(answer.body))).encode()
        return Answer(200, {"content-type": "application/json"}, said)

    def _ask(self, path: str, body: bytes) -> Answer:
        with self.provider.lock:
            is_refused = self.provider.refusals_left > 0
            self.provider.refusals_left -= is_refused
        if is_refused:
            said = {"error": {"message": "Rate limit reached", "type": "requests", "code": "rate_limit_exceeded"}}
            headers = {"content-type": "application/json", "retry-after": "1"}
            return Answer(429, headers, json.dumps(said).encode())
        request = urllib.request.Request(f"{self.model}{path}", body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return _answer_of(response.status, response)
        except urllib.error.HTTPError as error:
            with error:
                return _answer_of(error.code, error)

    def _noted(self, answer: Answer) -> Answer:
        if answer.status == 200 and answer.headers["content-type"] == "application/json":
            usage = json.loads(answer.body)["usage"]
            with self.provider.lock:
                # OpenAI's responses have a name of their own for it.
                self.provider.prompt_tokens += usage.get("prompt_tokens", usage.get("input_tokens"))
        return answer

    def log_message(self, format: str, *args: object) -> None:
        pass


def _answer_of(status: int, response: Any) -> Answer:
    headers = {
        name: value
        for name, value in response.headers.items()
        if name.lower() == "content-type" or name.lower().startswith(_LIMIT_HEADERS)
    }
    return Answer(status, headers, response.read())


def google(chat: dict[str, Any]) -> dict[str, Any]:
    """An answer of Gemini's."""
    text = chat["choices"][0]["message"]["content"]
    usage = chat["usage"]
    return {
        "candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": usage["prompt_tokens"],
            "candidatesTokenCount": usage["completion_tokens"],
            "totalTokenCount": usage["total_tokens"],
        },
        "modelVersion": "gemini-2.5-flash",
    }


def google_refusal(refused: Answer) -> Answer:
    """Google says in the body when to come back, and nothing in headers."""
    retry = {
        "@type": "type.googleapis.com/google.rpc.RetryInfo",
        "retryDelay": f"{refused.headers['retry-after']}s",
    }
    error = {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded", "details": [retry]}
    return Answer(429, {"content-type": "application/json"}, json.dumps({"error": error}).encode())


def amazon(chat: dict[str, Any]) -> dict[str, Any]:
    """An answer to Converse."""
    usage = chat["usage"]
    return {
        "output": {"message": {"role": "assistant", "content": [{"text": chat["choices"][0]["message"]["content"]}]}},
        "stopReason": "end_turn",
        "usage": {
            "inputTokens": usage["prompt_tokens"],
            "outputTokens": usage["completion_tokens"],
            "totalTokens": usage["total_tokens"],
        },
        "metrics": {"latencyMs": 1},
    }


def amazon_refusal(_: Answer) -> Answer:
    """Amazon says no more than that it is too much."""
    headers = {"content-type": "application/json", "x-amzn-errortype": "ThrottlingException"}
    return Answer(429, headers, json.dumps({"message": "Too many requests"}).encode())

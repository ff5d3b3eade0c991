"""Runs a recipe of docs/python/frameworks.md as it is printed: `cargo xtask test frameworks`.

The recipe finds the simulated model through the environment, as it would find its provider. It must leave a `scheduler`
that has granted what the recipe called and that has nothing under way, and the model must never have seen more calls at
once than the scheduler's capacity.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[3] / "docs" / "python" / "frameworks.md"
#: Tokens of every answer.
OUTPUT_TOKENS = 12
#: How many calls each recipe makes.
CALLS = 6


def recipe(name: str) -> str:
    """The program below the mark of that name."""
    found = re.search(rf"^<!-- recipe: {re.escape(name)} -->\n+```py\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    if found is None:
        raise SystemExit(f"{PAGE.name} has no recipe for {name}")
    return found[1]


@contextlib.contextmanager
def simulated_model() -> Iterator[str]:
    command = [
        os.environ["FAIRGATE_SIM_BINARY"],
        "--steering",
        "--models=gpt-4o-mini",
        "--slots=64",
        "--prefill-base-ms=20",
        "--prefill-us-per-token=0",
        "--decode-us-per-token=200",
        f"--output-tokens={OUTPUT_TOKENS}",
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        yield process.stdout.readline().removeprefix("listening on ").strip()
    finally:
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


class Interpreter(BaseHTTPRequestHandler):
    """Speaks as OpenAI, Google and Amazon do, asks the simulated model, and counts how many ask at once."""

    model = ""
    lock = threading.Lock()
    calls = at_once = most_at_once = 0

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["content-length"]))
        with Interpreter.lock:
            Interpreter.calls += 1
            Interpreter.at_once += 1
            Interpreter.most_at_once = max(Interpreter.most_at_once, Interpreter.at_once)
        try:
            kind, answer = self._answer(asked)
        finally:
            # Before the answer goes out: the next call may come as soon as it is read.
            with Interpreter.lock:
                Interpreter.at_once -= 1
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _answer(self, asked: bytes) -> tuple[str, bytes]:
        if ":generateContent" in self.path:
            return "application/json", json.dumps(google(self._chat())).encode()
        if self.path.endswith("/converse"):
            return "application/json", json.dumps(amazon(self._chat())).encode()
        return self._ask(self.path, asked)

    def _chat(self) -> dict[str, Any]:
        body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "What is fair?"}]}
        answer: dict[str, Any] = json.loads(self._ask("/v1/chat/completions", json.dumps(body).encode())[1])
        return answer

    def _ask(self, path: str, body: bytes) -> tuple[str, bytes]:
        request = urllib.request.Request(f"{Interpreter.model}{path}", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.headers["content-type"], answer.read()

    def log_message(self, format: str, *args: object) -> None:
        pass


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


def environment(url: str) -> dict[str, str]:
    """Where each package looks for its provider and its key."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GOOGLE_API_KEY": "none",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url,
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        # Nothing is sent anywhere else.
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_DISABLE_TRACKING": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "OTEL_SDK_DISABLED": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


def versions(name: str) -> str:
    """The packages that the recipe's list names, as they are installed."""
    lines = (Path(__file__).parent / f"{name}.txt").read_text().splitlines()
    packages = [re.split(r"[\[=]", line)[0] for line in lines if line and not line.startswith("#")]
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)


def main(name: str) -> None:
    program = recipe(name)
    with simulated_model() as model:
        Interpreter.model = model
        server = ThreadingHTTPServer(("127.0.0.1", 0), Interpreter)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        os.environ.update(environment(f"http://127.0.0.1:{server.server_address[1]}"))
        print(f"{name}: {versions(name)}", flush=True)
        names: dict[str, Any] = {"__name__": "__main__"}
        start = time.monotonic()
        exec(compile(program, f"{PAGE.name}, recipe {name}", "exec"), names)
        took = time.monotonic() - start
        gc.collect()
        check(names["scheduler"])
        most = Interpreter.most_at_once
        print(f"{name}: {Interpreter.calls} calls in {took:.1f} s, at most {most} at once; settled:", flush=True)
        for cost in names["scheduler"].costs():
            print(f"  {cost.agent}: {cost.requests} calls of {cost.model}, {cost.output_tokens} tokens of output")
        server.shutdown()


def check(scheduler: Any) -> None:
    now = scheduler.snapshot()
    assert (now.in_flight, now.waiting) == (0, 0), now
    grants = {agent: its.grants for agent, its in now.agents.items() if its.grants}
    assert sum(grants.values()) == Interpreter.calls == CALLS, (grants, Interpreter.calls)
    assert set(grants) == {"ada", "bob"}, grants
    assert Interpreter.most_at_once <= now.capacity, Interpreter.most_at_once
    assert {cost.output_tokens for cost in scheduler.costs()} == {CALLS // 2 * OUTPUT_TOKENS}, scheduler.costs()


if __name__ == "__main__":
    main(sys.argv[1])

"""A provider's quota, shared by two tenants whose SDKs do not retry: nobody sees a 429.

The provider lets through ten times as much as one of 1 200 requests and 400 000 tokens a minute, and saves up a tenth as
long: what takes it a minute takes this one six seconds.
"""

import asyncio
import json
import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import anthropic
import openai
import pytest

from conftest import found

TOKENS_PER_MINUTE = 4_000_000
# 900 tokens of input at four bytes each, 100 of output.
PROMPT = "some " * 720
REQUESTS = {"large": 300, "small": 100}


@contextmanager
def running(command, log, pattern):
    """A program that prints where it listens."""
    with log.open("w") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        url = None
        for line in process.stdout:
            url = found(pattern, line)
            if url:
                break
        assert url, log.read_text()
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["openai", "anthropic"])
def hosted(request, tmp_path):
    """A gateway before a provider that states its limits like this one, and the keys of two tenants of weight 3 and 1."""
    binary = Path(os.environ["FAIRGATE_BIN"])
    sim = [
        binary.with_name("fairgate-sim"),
        *["--slots", "1000", "--prefill-base-ms", "1", "--prefill-us-per-token", "0"],
        *["--decode-us-per-token", "0", "--output-tokens", "100", "--steering"],
        *["--requests-per-minute", "12000", "--tokens-per-minute", str(TOKENS_PER_MINUTE)],
        *["--burst-seconds", "6", "--limit-headers", request.param],
    ]
    with running(sim, tmp_path / "sim.log", r"listening on (http://\S+)") as provider:
        config = tmp_path / "fairgate.yaml"
        config.write_text(
            f"listen: 127.0.0.1:0\n"
            f"upstreams:\n"
            f"  - {{name: provider, url: '{provider}', dialects: [openai, anthropic], account: main, burst_seconds: 1}}\n"
            f"pools:\n"
            f"  - {{name: hosted, models: [sim], workers: [provider], capacity: 500, queue_timeout: 2m}}\n"
        )
        serve = [binary, "serve", "-c", config]
        with running(serve, tmp_path / "serve.log", r"listens on (http://\S+)") as url:
            keys = {}
            for name, weight in [("large", "300"), ("small", "100")]:
                admin = lambda *words: subprocess.run(
                    [binary, *words, "--url", url, "--token-file", tmp_path / "fairgate-data/admin-token", "--json"],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                admin("group", "add", name, "--weight", weight)
                admin("tenant", "add", name, "--group", name)
                keys[name] = json.loads(admin("key", "create", name).stdout)["secret"]
            yield request.param, provider, url, keys


def test_no_client_sees_a_429(hosted):
    dialect, provider, url, keys = hosted

    async def ask(client):
        if dialect == "openai":
            answer = await client.chat.completions.create(
                model="sim", max_tokens=100, messages=[{"role": "user", "content": PROMPT}]
            )
            return answer.usage.total_tokens
        answer = await client.messages.create(
            model="sim", max_tokens=100, messages=[{"role": "user", "content": PROMPT}]
        )
        return answer.usage.input_tokens + answer.usage.output_tokens

    async def all_at_once():
        clients, done, began = {}, {name: [] for name in keys}, time.monotonic()
        for name, key in keys.items():
            if dialect == "openai":
                clients[name] = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=120)
            else:
                clients[name] = anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0, timeout=120)

        async def one(name):
            tokens = await ask(clients[name])
            done[name].append((time.monotonic() - began, tokens))

        await asyncio.gather(*(one(name) for name, count in REQUESTS.items() for _ in range(count)))
        for client in clients.values():
            await client.close()
        return done

    done = asyncio.run(all_at_once())
    assert {name: len(answers) for name, answers in done.items()} == REQUESTS
    with urlopen(f"{provider}/sim/stats") as answer:
        account = json.load(answer)["account"]
    refused = account["refused_by_requests"] + account["refused_by_tokens"]
    assert refused * 100 <= account["accepted"] + refused, account
    # From when a quarter is done: until then the SDKs themselves take their time.
    answers = sorted(answer for answers in done.values() for answer in answers)
    begin, end = answers[len(answers) // 4][0], answers[-1][0]
    tokens = sum(tokens for at, tokens in answers if at > begin)
    assert tokens >= 0.95 * TOKENS_PER_MINUTE / 60 * (end - begin), f"{tokens} tokens in {end - begin:.2f} s"
    # While both wait, in the order in which answers came.
    until = 0.95 * min(max(at for at, _ in answers) for answers in done.values())
    large, small = (sum(at <= until for at, _ in done[name]) for name in ("large", "small"))
    assert abs(large / (large + small) - 0.75) <= 0.03 * 0.75, (large, small)

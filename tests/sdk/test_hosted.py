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
LISTENING = r"listening on (http://\S+)"
BOTH = "dialects: [openai, anthropic]"


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


def sim(*options):
    """The command of a simulated model that takes no time."""
    binary = Path(os.environ["FAIRGATE_BIN"]).with_name("fairgate-sim")
    at_once = ["--prefill-base-ms", "1", "--prefill-us-per-token", "0", "--decode-us-per-token", "0"]
    return [binary, *at_once, "--output-tokens", "100", "--steering", *options]


class House:
    """A gateway with two tenants, of weight 3 and 1."""

    def __init__(self, url, folder):
        self.url, self.folder, self.keys = url, folder, {}
        for name, weight in [("large", "300"), ("small", "100")]:
            self.admin("group", "add", name, "--weight", weight)
            self.admin("tenant", "add", name, "--group", name)
            self.keys[name] = self.admin("key", "create", name, "--all-classes")["secret"]

    def admin(self, *words):
        token = self.folder / "fairgate-data/admin-token"
        command = [os.environ["FAIRGATE_BIN"], *words, "--url", self.url, "--token-file", token, "--json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    def openai(self, tenant):
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key=self.keys[tenant], max_retries=0, timeout=120)

    def anthropic(self, tenant):
        return anthropic.AsyncAnthropic(base_url=self.url, api_key=self.keys[tenant], max_retries=0, timeout=120)


@contextmanager
def gateway(folder, upstreams, pools):
    """A gateway before these."""
    config = folder / "fairgate.yaml"
    lists = "upstreams:\n" + "".join(f"  - {it}\n" for it in upstreams)
    lists += "pools:\n" + "".join(f"  - {it}\n" for it in pools)
    config.write_text(f"listen: 127.0.0.1:0\n{lists}")
    serve = [os.environ["FAIRGATE_BIN"], "serve", "-c", config]
    with running(serve, folder / "serve.log", r"listens on (http://\S+)") as url:
        yield House(url, folder)


def account(provider):
    """What a provider has counted, and how many it has refused."""
    with urlopen(f"{provider}/sim/stats") as answer:
        counts = json.load(answer)["account"]
    return counts, counts["refused_by_requests"] + counts["refused_by_tokens"]


@pytest.fixture(params=["openai", "anthropic"])
def hosted(request, tmp_path):
    """A gateway before a provider that states its limits like this one."""
    limits = ["--requests-per-minute", "12000", "--tokens-per-minute", str(TOKENS_PER_MINUTE), "--burst-seconds", "6"]
    command = sim("--slots", "1000", *limits, "--limit-headers", request.param)
    with running(command, tmp_path / "sim.log", LISTENING) as provider:
        upstreams = [f"{{name: provider, url: '{provider}', {BOTH}, account: main, burst_seconds: 1}}"]
        pools = ["{name: hosted, models: [sim], workers: [provider], capacity: 500, queue_timeout: 2m}"]
        with gateway(tmp_path, upstreams, pools) as house:
            yield request.param, provider, house


async def ask(client, model):
    """Asks with whichever SDK it is; gives the tokens that it used."""
    prompt = [{"role": "user", "content": PROMPT}]
    if isinstance(client, openai.AsyncOpenAI):
        answer = await client.chat.completions.create(model=model, max_tokens=100, messages=prompt)
        return answer.usage.total_tokens
    answer = await client.messages.create(model=model, max_tokens=100, messages=prompt)
    return answer.usage.input_tokens + answer.usage.output_tokens


def ask_with_both(house, models, count):
    """So many requests at once for each of the models with each SDK. Any refusal is an exception."""

    async def all_at_once():
        clients = [house.openai("large"), house.anthropic("small")]
        wanted = (ask(client, model) for client in clients for model in models for _ in range(count))
        used = await asyncio.gather(*wanted)
        for client in clients:
            await client.close()
        return used

    used = asyncio.run(all_at_once())
    assert len(used) == 2 * len(models) * count and all(used)


def test_no_client_sees_a_429(hosted):
    dialect, provider, house = hosted

    async def all_at_once():
        done, began = {name: [] for name in house.keys}, time.monotonic()
        clients = {name: getattr(house, dialect)(name) for name in house.keys}

        async def one(name):
            tokens = await ask(clients[name], "sim")
            done[name].append((time.monotonic() - began, tokens))

        await asyncio.gather(*(one(name) for name, count in REQUESTS.items() for _ in range(count)))
        for client in clients.values():
            await client.close()
        return done

    done = asyncio.run(all_at_once())
    assert {name: len(answers) for name, answers in done.items()} == REQUESTS
    counts, refused = account(provider)
    assert refused * 100 <= counts["accepted"] + refused, counts
    # From when a quarter is done: until then the SDKs themselves take their time.
    answers = sorted(answer for answers in done.values() for answer in answers)
    begin, end = answers[len(answers) // 4][0], answers[-1][0]
    tokens = sum(tokens for at, tokens in answers if at > begin)
    assert tokens >= 0.95 * TOKENS_PER_MINUTE / 60 * (end - begin), f"{tokens} tokens in {end - begin:.2f} s"
    # While both wait, in the order in which answers came.
    until = 0.95 * min(max(at for at, _ in answers) for answers in done.values())
    large, small = (sum(at <= until for at, _ in done[name]) for name in ("large", "small"))
    assert abs(large / (large + small) - 0.75) <= 0.03 * 0.75, (large, small)


def test_a_provider_that_states_nothing_is_learned_unseen(tmp_path):
    # 60 a minute, doubled every 5 s: after 15 s it is more than these 240, of which nothing is saved up.
    limits = ["--requests-per-minute", "240", "--burst-seconds", "1", "--limit-headers", "none"]
    with running(sim("--slots", "100", *limits), tmp_path / "sim.log", LISTENING) as provider:
        upstreams = [f"{{name: provider, url: '{provider}', {BOTH}, account: main}}"]
        pools = ["{name: hosted, models: [sim], workers: [provider], capacity: 100, queue_timeout: 2m}"]
        with gateway(tmp_path, upstreams, pools) as house:
            ask_with_both(house, ["sim"], 30)
            [worker] = house.admin("pool", "list")[0]["workers"]
        counts, refused = account(provider)
    assert counts["accepted"] == 60 and refused > 0, counts
    assert worker["quota"]["requests_from"] == "learned"
    assert 120 <= worker["quota"]["requests_per_minute"] <= 240


def test_own_workers_go_first_and_the_provider_takes_the_rest(tmp_path):
    limits = ["--requests-per-minute", "12000", "--burst-seconds", "6", "--limit-headers", "openai"]
    # 100 tokens take 0.2 s.
    slow = ["--slots", "2", "--decode-us-per-token", "2000"]
    own = Path(os.environ["FAIRGATE_BIN"]).with_name("fairgate-sim"), "--output-tokens", "100", *slow
    with (
        running(own, tmp_path / "east.log", LISTENING) as east,
        running(own, tmp_path / "west.log", LISTENING) as west,
        running(sim("--slots", "100", *limits), tmp_path / "sim.log", LISTENING) as provider,
    ):
        upstreams = [
            f"{{name: east, url: '{east}', {BOTH}, slots: 2}}",
            f"{{name: west, url: '{west}', {BOTH}, slots: 2}}",
            f"{{name: provider, url: '{provider}', {BOTH}, account: main, burst_seconds: 1, slots: 20, tier: 1}}",
        ]
        pools = ["{name: mixed, models: [sim], workers: [east, west, provider]}"]
        with gateway(tmp_path, upstreams, pools) as house:
            # Two at a time fit the own workers.
            ask_with_both(house, ["sim"], 1)
            assert account(provider)[0]["accepted"] == 0
            ask_with_both(house, ["sim"], 40)
            tiers = {row["name"]: row["requests"] for row in house.admin("usage", "--by", "tier")["rows"]}
        counts, refused = account(provider)
    assert tiers["0"] >= 4 and tiers["1"] == counts["accepted"] > 0 and refused == 0, (tiers, counts)
    assert tiers["0"] + tiers["1"] == 82


def test_two_pools_share_one_account(tmp_path):
    limits = ["--requests-per-minute", "1200", "--burst-seconds", "6", "--limit-headers", "openai"]
    command = sim("--slots", "100", "--models", "first,second", *limits)
    with running(command, tmp_path / "sim.log", LISTENING) as provider:
        upstreams = [f"{{name: for-{it}, url: '{provider}', {BOTH}, account: main, burst_seconds: 1}}" for it in ("first", "second")]
        pools = [f"{{name: {it}, models: [{it}], workers: [for-{it}], capacity: 100}}" for it in ("first", "second")]
        with gateway(tmp_path, upstreams, pools) as house:
            ask_with_both(house, ["first", "second"], 40)
        counts, refused = account(provider)
    assert counts["accepted"] == 160 and refused <= 2, counts

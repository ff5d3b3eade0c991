"""The command line, metrics over HTTP, transports and hooks for other packages."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import httpx2
import openai
import pytest
from conftest import Model
from prometheus_client.parser import text_string_to_metric_families
from waiting import idle, until, waiting

import fairgate
import fairgate.adapters.openai
import fairgate.transport
from fairgate.top import rows_of, table


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)


def test_the_package_says_its_version() -> None:
    assert fairgate.__version__.count(".") == 2


def test_the_doctor_finds_everything_well() -> None:
    run = python("-W", "error", "-m", "fairgate", "doctor")
    assert (run.returncode, run.stderr) == (0, ""), run.stdout
    assert f"fairgate {fairgate.__version__}" in run.stdout and "all is well" in run.stdout
    for line in ("ok     grants a slot in a task", "ok     keeps a rate", "ok     openai"):
        assert line in run.stdout


async def test_metrics_of_all_schedulers_are_served_and_shown() -> None:
    first, second = fairgate.Scheduler(1, name="first"), fairgate.Scheduler(1, name="second")
    server = fairgate.enable_prometheus(0)
    try:
        url = f"http://127.0.0.1:{server.port}"
        async with first.slot("ada") as slot:
            slot.settle(5, model="m")
            other = asyncio.create_task(first.acquire("bob"))
            await until(waiting(first, 1))
            async with second.slot("ada"):
                text = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{url}/metrics").read().decode())
        families = {family.name: family for family in text_string_to_metric_families(text)}
        waits = {(s.labels["scheduler"], s.labels["agent"]): s.value for s in families["fairgate_waiting_requests"].samples}
        assert waits["first", "bob"] == 1 and waits["second", "ada"] == 0
        (await other).release()
        shown = await asyncio.to_thread(python, "-m", "fairgate", "top", url, "--count=2", "--interval=0.1")
        assert shown.returncode == 0 and "first        ada" in shown.stdout, shown.stderr
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            await asyncio.to_thread(urllib.request.urlopen, f"{url}/else")
        refused.value.close()
    finally:
        server.close()
    gone = await asyncio.to_thread(python, "-m", "fairgate", "top", url, "--count=1")
    assert gone.returncode == 1 and "must call fairgate.enable_prometheus() first" in gone.stderr
    rows = rows_of(text)
    assert rows[0].agent == "bob" and rows[0].waiting == 1
    assert "ada" in table(rows, {}, 1.0)


def test_many_agents_make_few_labels() -> None:
    scheduler = fairgate.Scheduler(1)
    for number in range(3000):
        with scheduler.slot(f"agent-{number}", model=f"model-{number}") as slot:
            slot.settle(1)
    for _ in range(5):
        with scheduler.slot("often"):
            pass
    text = scheduler.prometheus(max_agents=20)
    assert len(text) < 100_000
    families = {family.name: family for family in text_string_to_metric_families(text)}
    grants = {s.labels["agent"]: s.value for s in families["fairgate_grants"].samples}
    assert len(grants) == 21 and grants["often"] == 5 and sum(grants.values()) == 3005
    tokens = sum(s.value for s in families["fairgate_tokens"].samples)
    assert tokens == sum(cost.tokens for cost in scheduler.costs())
    assert len(scheduler.prometheus()) < 2_000_000


@pytest.mark.parametrize("module", [httpx, httpx2], ids=lambda module: module.__name__)
async def test_a_transport_schedules_any_client(module: Any, model: Model) -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hello"}]}
    url = f"{model.url}/v1/chat/completions"
    sync = fairgate.transport.scheduled(module.HTTPTransport(), scheduler, agent="sync")
    with module.Client(transport=sync) as client:
        assert client.post(url, json=body).json()["usage"]["completion_tokens"] == Model.OUTPUT_TOKENS
        client.get(f"{model.url}/v1/models")
    transport = fairgate.transport.scheduled(module.AsyncHTTPTransport(), scheduler, agent="async", timeout=5.0)
    async with module.AsyncClient(transport=transport) as client:
        await asyncio.gather(*(client.post(url, json=body) for _ in range(3)))
    assert [(c.agent, c.requests, c.output_tokens) for c in scheduler.costs()] == [
        ("async", 3, 3 * Model.OUTPUT_TOKENS), ("sync", 1, Model.OUTPUT_TOKENS),
    ]  # fmt: skip
    assert idle(scheduler)
    with pytest.raises(TypeError, match="object is no transport of httpx or httpx2"):
        fairgate.transport.scheduled(object(), scheduler)


async def test_a_package_that_takes_a_client_needs_no_private_name(model: Model) -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    transport = fairgate.transport.scheduled(httpx2.AsyncHTTPTransport(), scheduler, agent="a")
    http = httpx2.AsyncClient(transport=transport)
    async with openai.AsyncOpenAI(base_url=f"{model.url}/v1", api_key="none", http_client=http) as client:
        await client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": "hello"}])
    assert scheduler.costs()[0].requests == 1


@pytest.mark.parametrize("module", [httpx, httpx2])
async def test_a_mock_transport_serves_sync_and_async_clients(module: Any) -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    usage = {"prompt_tokens": 3, "completion_tokens": 4}

    def answer(request: Any) -> Any:
        assert scheduler.snapshot().in_flight == 1
        return module.Response(200, json={"model": "m", "usage": usage})

    transport = fairgate.transport.scheduled(module.MockTransport(answer), scheduler, agent="a")
    url = "http://provider/v1/chat/completions"
    with module.Client(transport=transport) as client:
        assert client.post(url, json={"model": "m"}).json()["usage"] == usage
        with client.stream("POST", url, json={"model": "m"}) as response:
            assert b"usage" in response.read()
    async with module.AsyncClient(transport=transport) as client:
        assert (await client.post(url, json={"model": "m"})).json()["usage"] == usage
    assert idle(scheduler) and scheduler.costs()[0].tokens == 3 * 7


def test_a_sync_client_on_a_mock_transport_can_be_attached_to() -> None:
    scheduler = fairgate.Scheduler(capacity=1)
    usage = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}

    def answer(request: Any) -> Any:
        assert scheduler.snapshot().in_flight == 1
        return httpx2.Response(200, json={"id": "1", "model": "m", "choices": [], "usage": usage})

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        plain = openai.OpenAI(api_key="none", base_url="http://provider/v1", http_client=http)
        client = fairgate.adapters.openai.attach(plain, scheduler, agent="a")
        answered = client.chat.completions.create(model="m", messages=[])
    assert answered.usage is not None and answered.usage.total_tokens == 7
    assert idle(scheduler) and scheduler.costs()[0].tokens == 7


async def test_googles_package_is_scheduled_by_a_transport() -> None:
    genai = pytest.importorskip("google.genai")
    paths: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        paths.append(request.url.path)
        body = {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "yes"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 7, "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "totalTokenCount": 12},
            "modelVersion": "gemini-2.5-pro",
        }  # fmt: skip
        return httpx2.Response(200, json=body)

    grants: list[fairgate.Slot] = []
    scheduler = fairgate.Scheduler(capacity=1, on_grant=grants.append)
    transport = fairgate.transport.scheduled(httpx2.MockTransport(answer), scheduler, agent="analyst")
    async with httpx2.AsyncClient(transport=transport) as http:
        options = genai.types.HttpOptions(httpx_async_client=http)
        client = genai.Client(api_key="none", http_options=options)
        response = await client.aio.models.generate_content(model="gemini-2.5-pro", contents="hello")
    assert response.text == "yes" and paths[0].endswith("models/gemini-2.5-pro:generateContent")
    (cost,) = scheduler.costs()
    assert (cost.agent, cost.model, cost.input_tokens, cost.output_tokens) == ("analyst", "gemini-2.5-pro", 7, 5)
    assert grants[0].weight == 3.0 and idle(scheduler)


class Bedrock(BaseHTTPRequestHandler):
    """What Amazon's service answers to Converse."""

    refusals = 0
    retry_after = "0"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, body = 200, {
            "output": {"message": {"role": "assistant", "content": [{"text": "yes"}]}},
            "stopReason": "end_turn",
            "usage": {"inputTokens": 7, "outputTokens": 3, "totalTokens": 10},
            "metrics": {"latencyMs": 1},
        }  # fmt: skip
        if Bedrock.refusals:
            Bedrock.refusals -= 1
            status, body = 429, {"message": "Too many requests, please wait before trying again."}
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        if status == 429:
            self.send_header("x-amzn-errortype", "ThrottlingException")
            self.send_header("retry-after", Bedrock.retry_after)
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def bedrock() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Bedrock)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_boto3_calls_take_slots_and_throttled_ones_come_back(bedrock: str) -> None:
    boto3 = pytest.importorskip("boto3")
    from botocore.config import Config

    import fairgate.adapters.boto3

    scheduler = fairgate.Scheduler(capacity=1)
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    config = Config(retries={"total_max_attempts": 1})
    client = boto3.client("bedrock-runtime", endpoint_url=bedrock, config=config, **keys)
    fairgate.adapters.boto3.attach(client, scheduler, agent="analyst")
    call: dict[str, Any] = {
        "modelId": "anthropic.claude-3-haiku-20240307-v1:0",
        "messages": [{"role": "user", "content": [{"text": "hello"}]}],
    }
    assert client.converse(**call)["usage"]["outputTokens"] == 3
    (cost,) = scheduler.costs()
    assert (cost.agent, cost.model, cost.input_tokens, cost.output_tokens) == ("analyst", call["modelId"], 7, 3)
    # In a slot of the call's own, and in that of a layer further out.
    Bedrock.refusals = 2
    assert client.converse(**call)["usage"]["outputTokens"] == 3 and Bedrock.refusals == 0
    Bedrock.refusals = 1
    answer = await scheduler.wrap(asyncio.to_thread, client.converse, agent_id="wrapped", **call)
    assert answer["usage"]["outputTokens"] == 3 and Bedrock.refusals == 0
    costs = [(c.agent, c.requests, c.output_tokens) for c in scheduler.costs()]
    assert costs == [("analyst", 2, 6), ("wrapped", 1, 3)], "attempts that were refused are nobody's"
    now = scheduler.snapshot().provider
    assert now is not None and now.limits_met == 3, "each refusal is told once"
    assert idle(scheduler)
    client.close()


@pytest.mark.parametrize("attempts", [1, 5])
def test_boto3_calls_that_were_throttled_have_a_deadline(
    bedrock: str, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    boto3 = pytest.importorskip("boto3")
    from botocore.config import Config

    import fairgate.adapters.boto3

    scheduler = fairgate.Scheduler(capacity=1, retry_seconds=2)
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    config = Config(retries={"total_max_attempts": attempts})
    client = boto3.client("bedrock-runtime", endpoint_url=bedrock, config=config, **keys)
    fairgate.adapters.boto3.attach(client, scheduler)
    monkeypatch.setattr(Bedrock, "refusals", 1000)
    monkeypatch.setattr(Bedrock, "retry_after", "5")
    with pytest.raises(client.exceptions.ThrottlingException):
        client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "hello"}]}])
    assert Bedrock.refusals == 999, "what the scheduler has given up botocore does not try again"
    (cost,) = scheduler.costs()
    assert (cost.requests, cost.tokens) == (1, 0) and idle(scheduler)
    client.close()


def test_trio_is_told_what_to_use() -> None:
    trio = pytest.importorskip("trio")
    scheduler = fairgate.Scheduler(capacity=1)

    def in_thread() -> str:
        with scheduler.slot("a"):
            return "ran"

    async def main() -> None:
        with pytest.raises(fairgate.FairgateError, match="trio.to_thread.run_sync"):
            async with scheduler.slot("a"):
                pass
        with pytest.raises(fairgate.FairgateError, match="needs asyncio's event loop"):
            await scheduler.acquire("a")
        assert await trio.to_thread.run_sync(in_thread) == "ran"

    trio.run(main)
    assert idle(scheduler)

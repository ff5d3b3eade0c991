"""`fairgate mcp` with the official MCP client, over standard input and output and over streamable HTTP."""

import asyncio
import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from contextlib import asynccontextmanager, contextmanager

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client

TOOLS = {"claim", "progress", "ask", "complete", "fail", "add_tasks", "why", "my_share"}


class Fleet:
    """The admin API of a gateway, and one project of its own with one agent."""

    def __init__(self, gateway):
        self.gateway = gateway
        tenants = self.call("GET", "/tenants")
        tenant = (tenants.get("items") or tenants.get("tenants") or tenants)[0]["name"]
        self.call("POST", "/projects", {"id": "poems", "tenant": tenant, "concurrency": 4})
        self.token = self.call("POST", "/agents", {"id": "ada"})["token"]

    def call(self, method, path, body=None):
        request = urllib.request.Request(
            f"{self.gateway.url}/api/v1{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "authorization": f"Bearer {self.gateway.admin_token}",
                "content-type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def add(self, task, **fields):
        task = {"id": task, "project": "poems", "prompt": f"do {task}", **fields}
        self.call("POST", "/tasks", {"tasks": [task]})

    def task(self, task):
        return self.call("GET", f"/tasks/{task}")

    def until(self, task, state):
        deadline = time.monotonic() + 20
        while (now := self.task(task)["state"]) != state:
            assert time.monotonic() < deadline, f"{task} is {now} and not {state}"
            time.sleep(0.05)

    def args(self, *more):
        return ["mcp", "--url", self.gateway.url, "--name", "ada", *more]

    def env(self):
        return {"FAIRGATE_AGENT_TOKEN": self.token, "PATH": os.environ["PATH"]}

    @asynccontextmanager
    async def stdio(self, mode):
        server = StdioServerParameters(
            command=self.gateway.binary, args=self.args(), env=self.env()
        )
        async with Client(server, mode=mode) as client:
            yield client

    @contextmanager
    def serving(self, *more):
        """`fairgate mcp --http`: its address."""
        process = subprocess.Popen(
            [self.gateway.binary, *self.args("--http", "127.0.0.1:0", *more)],
            env=self.env(),
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            said = process.stderr.readline()
            found = re.search(r"listens on (http://\S+)", said)
            assert found, said
            yield found.group(1)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
            process.wait()

    @asynccontextmanager
    async def http(self, mode):
        headers = {"authorization": f"Bearer {self.token}"}
        with self.serving() as url:
            async with create_mcp_http_client(headers=headers) as http:
                transport = streamable_http_client(url, http_client=http)
                async with Client(transport, mode=mode) as client:
                    yield client


@pytest.fixture
def fleet(own_gateway):
    return Fleet(own_gateway)


async def call(client, tool, **arguments):
    """A call that goes well: its text and its data."""
    result = await client.call_tool(tool, arguments)
    text = "".join(block.text for block in result.content)
    assert not result.is_error, text
    return text, result.structured_content


async def refused(client, tool, **arguments):
    """A call that is refused: why."""
    result = await client.call_tool(tool, arguments)
    text = "".join(block.text for block in result.content)
    assert result.is_error, text
    return text


async def work(fleet, client):
    """A task from its claim to its end, and all that an agent can do meanwhile."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == TOOLS
    assert all(tool.description and tool.input_schema for tool in tools.values())

    assert "call claim first" in await refused(client, "complete", result="nothing")
    _, none = await call(client, "claim", wait_s=0)
    assert none == {"claimed": False}

    fleet.add("first", title="a poem", prompt="write a poem\nabout tides")
    text, claim = await call(client, "claim")
    assert "write a poem\nabout tides" in text
    assert (claim["task"], claim["project"], claim["epoch"]) == ("first", "poems", 1)
    with open(claim["key_file"]) as file:
        key = file.read()
    assert key.startswith("fgt-")
    assert key not in text + json.dumps(claim)
    # The first sign of life is given without being asked for.
    await asyncio.to_thread(fleet.until, "first", "IN_PROGRESS")

    again, same = await call(client, "claim", wait_s=0)
    assert (again, same) == (text, claim)
    await call(client, "progress", text="looking for rhymes")
    assert fleet.task("first")["progress"] == "looking for rhymes"
    assert (await call(client, "why"))[1]["state"] == "IN_PROGRESS"
    assert (await call(client, "my_share"))[1]["running"] == 1

    more = [{"id": "second", "prompt": "a second", "needs": ["first"]}, {"prompt": "a third"}]
    _, tried = await call(client, "add_tasks", tasks=more, dry_run=True)
    assert tried["dry_run"] and len(tried["added"]) == 2
    _, added = await call(client, "add_tasks", tasks=more)
    assert [task["state"] for task in added["added"]] == ["DEFINED", "READY"]
    # The tenants share all names that have no project in them, so an agent's have one.
    assert [task["id"] for task in added["added"]] == ["poems:second", "poems-2"]
    later = [{"id": "later", "prompt": "with {{results.second}}", "needs": ["second", "first"]}]
    _, last = await call(client, "add_tasks", tasks=later)
    assert [task["id"] for task in last["added"]] == ["poems:later"]
    assert fleet.task("poems:later")["prompt"] == "with {{results.poems:second}}"
    assert (await call(client, "why", task="second"))[1]["state"] == "DEFINED"
    wrong = await refused(client, "add_tasks", tasks=[{"prompt": "x", "needs": ["no-such"]}])
    assert "no-such" in wrong
    assert "tasks[0]" in await refused(client, "add_tasks", tasks=[{"title": "no prompt"}])
    foreign = [{"prompt": "x"}, {"prompt": "x", "project": "somebody-elses"}]
    assert "tasks[1].project" in await refused(client, "add_tasks", tasks=foreign)

    _, done = await call(client, "complete", result="a poem about tides")
    assert done["state"] == "COMPLETED"
    assert (await call(client, "complete", result="again"))[1] == done
    assert fleet.task("first")["result"] == "a poem about tides"
    assert not os.path.exists(claim["key_file"])
    assert fleet.task("poems:second")["state"] == "READY"
    assert "call claim first" in await refused(client, "progress", text="still at it")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_stdio(fleet, mode):
    async def run():
        async with fleet.stdio(mode) as client:
            await work(fleet, client)

    asyncio.run(run())


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_http(fleet, mode):
    async def run():
        async with fleet.http(mode) as client:
            await work(fleet, client)

    asyncio.run(run())


def test_a_question_comes_back_with_its_answer(fleet):
    async def run():
        fleet.add("colours")
        async with fleet.stdio("auto") as client:
            await call(client, "claim")
            _, waits = await call(client, "ask", question="red or blue?")
            assert waits["state"] == "WAITING_INPUT"
            answer = {"action": "answer", "text": "blue"}
            fleet.call("POST", "/tasks/colours/actions", answer)
            text, claim = await call(client, "claim")
            assert (claim["question"], claim["answer"]) == ("red or blue?", "blue")
            assert claim["epoch"] == 2
            assert "blue" in text
            _, failed = await call(client, "fail", reason="no blue left", retry_after_s=3600)
            assert failed["state"] == "PAUSED"
            assert failed["retries"] == 0

    asyncio.run(run())


def test_a_client_that_leaves_gives_its_task_back(fleet):
    async def run():
        fleet.add("left")
        async with fleet.stdio("auto") as client:
            await call(client, "claim")

    asyncio.run(run())
    fleet.until("left", "READY")
    assert fleet.task("left")["retries"] == 0


def test_an_http_client_that_does_not_come_back_gives_its_task_back(fleet):
    async def run(url):
        headers = {"authorization": f"Bearer {fleet.token}"}
        async with create_mcp_http_client(headers=headers) as http:
            async with Client(streamable_http_client(url, http_client=http)) as client:
                await call(client, "claim")

    fleet.add("left")
    with fleet.serving("--idle", "1") as url:
        asyncio.run(run(url))
        fleet.until("left", "READY")


def test_a_cancelled_task_is_told(fleet):
    async def run():
        fleet.add("cancelled")
        async with fleet.stdio("auto") as client:
            await call(client, "claim")
            action = {"action": "cancel", "reason": "not needed"}
            fleet.call("POST", "/tasks/cancelled/actions", action)
            why = await refused(client, "progress", text="still at it")
            assert "no longer yours" in why and "Stop working on it" in why

    asyncio.run(run())


def test_http_wants_the_agents_token(fleet):
    with fleet.serving() as url:
        for token in [None, "Bearer wrong", f"Basic {fleet.token}"]:
            headers = {"content-type": "application/json"}
            if token:
                headers["authorization"] = token
            request = urllib.request.Request(url, data=b"{}", headers=headers)
            with pytest.raises(urllib.error.HTTPError) as refusal:
                urllib.request.urlopen(request, timeout=10)
            assert refusal.value.code == 401

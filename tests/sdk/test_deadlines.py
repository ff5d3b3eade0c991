"""Deadlines with the official SDKs: what has passed is not tried again, and a short one needs a right where the earliest goes first."""

import json
import os
import subprocess
from pathlib import Path
from urllib.request import Request, urlopen

import anthropic
import openai
import pytest

from test_hosted import BOTH, LISTENING, gateway, running, sim

SAY = [{"role": "user", "content": "Say something about queues."}]
CLASSES = "[{name: chat, weight: 1, queue: edf, deadline: 5s}, {name: batch, weight: 1}]"


@pytest.fixture
def held(tmp_path):
    """A gateway that serves `chat` by deadlines, and nothing of `batch`."""
    with running(sim("--slots", "8"), tmp_path / "sim.log", LISTENING) as model:
        upstreams = [f"{{name: model, url: '{model}', {BOTH}, slots: 8}}"]
        policy = f"{{share: {{by: class, classes: {CLASSES}}}}}"
        pools = [f"{{name: sim, models: [sim], workers: [model], policy: {policy}}}"]
        with gateway(tmp_path, upstreams, pools) as house:
            house.admin("pool", "hold", "sim", "class", "batch")
            yield house


def codes(house):
    """The codes of all rows in the ledger."""
    token = (house.folder / "fairgate-data/admin-token").read_text().strip()
    request = Request(f"{house.url}/api/v1/attempts", headers={"authorization": f"Bearer {token}"})
    with urlopen(request) as answer:
        return [row["code"] for row in json.load(answer)["items"]]


def wants(name, deadline):
    return {"x-fairgate-class": name, "x-fairgate-deadline": deadline}


def test_openai(held):
    with openai.OpenAI(base_url=f"{held.url}/v1", api_key=held.keys["large"], max_retries=3) as client:

        def ask(name, deadline):
            return client.chat.completions.create(
                model="sim", messages=SAY, max_tokens=5, extra_headers=wants(name, deadline)
            )

        with pytest.raises(openai.InternalServerError) as passed:
            ask("batch", "0.2")
        assert (passed.value.status_code, passed.value.code) == (504, "deadline_passed")
        assert passed.value.response.headers["x-should-retry"] == "false"
        with pytest.raises(openai.PermissionDeniedError) as refused:
            ask("chat", "750ms")
        assert refused.value.code == "deadline_not_allowed"
        assert "5000 ms" in str(refused.value) and "750 ms" in str(refused.value)
        with pytest.raises(openai.BadRequestError) as wrong:
            ask("chat", "soon")
        assert wrong.value.code == "invalid_deadline"
        assert ask("chat", "6").choices[0].message.content
    assert codes(held) == [None, "invalid_deadline", "deadline_not_allowed", "deadline_passed"], "each is sent once"


def test_anthropic(held):
    with anthropic.Anthropic(base_url=held.url, api_key=held.keys["large"], max_retries=3) as client:

        def ask(name, deadline):
            return client.messages.create(
                model="sim", messages=SAY, max_tokens=5, extra_headers=wants(name, deadline)
            )

        with pytest.raises(anthropic.APIStatusError) as passed:
            ask("batch", "200ms")
        assert passed.value.status_code == 504
        assert passed.value.body["error"]["type"] == "timeout_error"
        assert passed.value.body["error"]["code"] == "deadline_passed"
        with pytest.raises(anthropic.PermissionDeniedError) as refused:
            ask("chat", "4.999")
        assert refused.value.body["error"]["code"] == "deadline_not_allowed"
        assert ask("chat", "5").content
    assert codes(held) == [None, "deadline_not_allowed", "deadline_passed"], "each is sent once"


def test_npm_openai(held):
    modules = os.environ.get("FAIRGATE_NODE_MODULES")
    assert modules, "FAIRGATE_NODE_MODULES names no folder; run these tests with `cargo xtask test`"
    test = Path(modules).parent / "deadlines.test.mjs"
    test.write_text((Path(__file__).parent / "deadlines.test.mjs").read_text())
    env = {**os.environ, "FAIRGATE_URL": held.url, "FAIRGATE_KEY": held.keys["large"]}
    done = subprocess.run(["node", "--test", str(test)], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert codes(held) == [None, "deadline_not_allowed", "deadline_passed"], "each is sent once"

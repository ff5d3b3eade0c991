"""schemathesis reads the OpenAPI document and tries to find an answer that the document does not promise."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Cases that follow the rules that the document cannot state.
RULES = {"SCHEMATHESIS_HOOKS": "rule_hooks", "PYTHONPATH": str(HERE)}


def schemathesis(gateway, token, folder, *more, **env):
    """Runs it with a token; what it printed."""
    program = Path(sys.executable).parent / "schemathesis"
    done = subprocess.run(
        [
            str(program),
            "run",
            f"{gateway.url}/api/v1/openapi.json",
            "--header",
            f"Authorization: Bearer {token}",
            "--checks",
            "all",
            "--seed",
            "7",
            "--workers",
            "1",
            "--request-timeout",
            "20",
            *more,
        ],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


def test_schemathesis_finds_nothing(own_gateway, tmp_path):
    schemathesis(
        own_gateway,
        own_gateway.admin_token,
        tmp_path,
        "--max-examples",
        "100",
        # Streams never end. Leases need a tenant's key and a pool that leases. The gateway's own tests call them all.
        "--exclude-path-regex",
        "^/api/v1/(fairshare/live/stream|events)$|^/v1/leases",
        # The admin token opens nothing there.
        "--exclude-tag",
        "agents",
        **RULES,
    )


def test_schemathesis_finds_nothing_as_a_tenant(own_gateway, tmp_path):
    printed = schemathesis(
        own_gateway,
        own_gateway.key,
        tmp_path,
        "--max-examples",
        "20",
        "--include-path-regex",
        "^/api/v1/(me|requests|session|projects|tasks|workspaces)(/|$)",
        "--phases",
        "examples,coverage,fuzzing",
        **RULES,
    )
    assert re.search(r"Operations:\s+2[0-9] selected", printed), printed[-3000:]


@pytest.mark.parametrize("kind", ["admin", "tenant"])
def test_streams_refuse_what_is_wrong(own_gateway, tmp_path, kind):
    """What is right would never end."""
    token = own_gateway.admin_token if kind == "admin" else own_gateway.key
    schemathesis(
        own_gateway,
        token,
        tmp_path,
        "--include-path-regex",
        "^/api/v1/(fairshare/live/stream|events)$",
        "--mode",
        "negative",
        "--max-examples",
        "20",
        "--phases",
        "coverage,fuzzing",
    )


def test_schemathesis_finds_nothing_as_an_agent(own_gateway, tmp_path):
    def call(method, path, body=None):
        request = urllib.request.Request(
            f"{own_gateway.url}/api/v1/{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "authorization": f"Bearer {own_gateway.admin_token}",
                "content-type": "application/json",
            },
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    call("POST", "projects", {"id": "web", "tenant": "demo"})
    token = call("POST", "agents", {"id": "ada"})["token"]
    (tmp_path / "schemathesis.toml").write_text('[parameters]\n"path.id" = "ada"\n')
    printed = schemathesis(
        own_gateway,
        token,
        tmp_path,
        "--max-examples",
        "60",
        "--include-tag",
        "agents",
        # These routes have no links to each other, which its other phase follows.
        "--phases",
        "examples,coverage,fuzzing",
        SCHEMATHESIS_HOOKS="agent_hooks",
        PYTHONPATH=str(HERE),
        FLEET_URL=own_gateway.url,
        FLEET_AGENT="ada",
        FLEET_AGENT_TOKEN=token,
        FLEET_ADMIN_TOKEN=own_gateway.admin_token,
    )
    # Every route was reached, and did what it is for: the tasks have come to every end that an agent can give them.
    assert re.search(r"Operations:\s+11 selected", printed), printed[-3000:]
    tasks = call("GET", "projects/web")["tasks"]
    assert {"COMPLETED", "PAUSED", "WAITING_INPUT"} <= tasks.keys(), tasks

"""The compose file: up, a flood, shares hold, Prometheus has the numbers, down and up again, and nothing is lost.

The images of PostgreSQL and Prometheus are made from Debian's packages. That each query of each dashboard gives a series
is shown in quick/test_dashboard_queries.py.
"""

import json
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
from pathlib import Path

import pytest

from conftest import PACKAGING, ROOT, variable
from full.conftest import chat, curl, debian_root, free_port, run, until

FLOOD_SECONDS = 15
WEIGHTS = {"chat": 300, "batch": 100}


@pytest.fixture(scope="module")
def images(containers, work, tools, base, image, sim_image, tmp_path_factory):
    """The images that the compose file names, by their variables."""
    folder = tmp_path_factory.mktemp("images")
    tar = debian_root(work, "postgres", ["postgresql", "coreutils", "dash"], "--variant=minbase")
    containers.podman("import", "--quiet", tar, "localhost/debian-postgres:test")
    shutil.copy(Path(__file__).parent / "postgres-start.sh", folder)
    (folder / "Postgres").write_text(
        "FROM localhost/debian-postgres:test\nCOPY postgres-start.sh /start\nCOPY --chown=postgres:postgres empty/ /var/lib/postgresql/data/\n"
        "USER postgres\nVOLUME /var/lib/postgresql/data\nENTRYPOINT [\"/bin/sh\", \"/start\"]\n")
    (folder / "empty").mkdir()
    shutil.copy(tools / "prometheus/usr/bin/prometheus", folder)
    (folder / "Prometheus").write_text(
        f"FROM {base}\nCOPY prometheus /usr/bin/prometheus\nCOPY --chown=65532:65532 empty/ /prometheus/\nUSER 65532:65532\n"
        "VOLUME /prometheus\nENTRYPOINT [\"/usr/bin/prometheus\"]\n")
    containers.build("localhost/postgres:test", folder, folder / "Postgres")
    containers.build("localhost/prometheus:test", folder, folder / "Prometheus")
    return {
        "FAIRGATE_IMAGE": image, "FAIRGATE_SIM_IMAGE": sim_image,
        "POSTGRES_IMAGE": "localhost/postgres:test", "PROMETHEUS_IMAGE": "localhost/prometheus:test",
    }


class Stack:
    """The compose file in a folder of its own, on free ports of the host."""

    def __init__(self, containers, images, folder):
        self.containers, self.folder = containers, folder
        self.name = f"fairgate-test-{free_port()}"
        shutil.copytree(PACKAGING / "compose", folder / "compose")
        shutil.copytree(PACKAGING / "prometheus", folder / "prometheus")
        self.compose = folder / "compose"
        run(self.compose / "make-secrets.sh")
        self.ports = {port: free_port() for port in (8080, 8081, 8000, 5432, 9090)}
        self.url, self.admin, self.prometheus = (f"http://127.0.0.1:{self.ports[port]}" for port in (8080, 8081, 9090))
        for file in ["compose.yaml", "fairgate.yaml", "prometheus.yml", "secrets/store-url"]:
            self.rewrite(self.compose / file)
        override = (Path(__file__).parent / "compose.host.yaml").read_text()
        self.override = folder / "host.yaml"
        self.override.write_text(override.replace(
            "  postgres: *host", f"  postgres: {{ <<: *host, environment: {{ POSTGRES_PORT: '{self.ports[5432]}', "
                                 "POSTGRES_LISTEN: 127.0.0.1 } }"))
        self.environment = containers.environment | images

    def rewrite(self, file):
        """Puts this stack's ports into a file."""
        text = file.read_text()
        for port, own in self.ports.items():
            text = re.sub(rf"(?<=:){port}\b", str(own), text)
        if file.name == "store-url":
            text = text.replace("@postgres/", f"@postgres:{self.ports[5432]}/")
        # On the host's network, only this machine may connect.
        file.write_text(text.replace("0.0.0.0:", "127.0.0.1:"))

    def __call__(self, *words, check=True):
        command = [variable("FAIRGATE_COMPOSE"), "--project-name", self.name, "--file", self.compose / "compose.yaml",
                   "--file", self.override, *words]
        return run(*command, check=check, env=self.environment, cwd=self.compose).stdout

    def up(self):
        self("up", "--detach")
        try:
            until("the gateway is ready", lambda: curl(f"{self.url}/readyz")[0] == 200, 60)
            until("Prometheus is ready", lambda: curl(f"{self.prometheus}/-/ready")[0] == 200, 60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self('logs', check=False)}\n{self.containers.podman('ps', '--all')}") from None

    def fairgate(self, *words):
        container = next(name for name in self.containers.podman("ps", "--format", "{{.Names}}").split()
                         if name.startswith(self.name) and "fairgate" in name.removeprefix(self.name))
        return self.containers.podman("exec", "--env", f"FAIRGATE_URL={self.admin}", container, "/usr/bin/fairgate", *words)

    def query(self, text):
        status, answer = curl(f"{self.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': text})}")
        assert status == 200, f"{text}: {answer}"
        return json.loads(answer)["data"]["result"]


@pytest.fixture(scope="module")
def stack(containers, images, tmp_path_factory):
    stack = Stack(containers, images, tmp_path_factory.mktemp("stack"))
    yield stack
    stack("down", "--volumes", check=False)


def flood(stack, keys):
    """Asks for every tenant with many connections for a while. Returns how many got which status."""
    counts, end, lock = {}, time.monotonic() + FLOOD_SECONDS, threading.Lock()

    def ask(tenant, number):
        while time.monotonic() < end:
            status, _ = chat(stack.url, keys[tenant], f"{tenant} {number}")
            with lock:
                counts[tenant, status] = counts.get((tenant, status), 0) + 1

    threads = [threading.Thread(target=ask, args=(tenant, number)) for tenant in keys for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts


def test_a_flood_is_shared_and_nothing_is_lost(stack):
    stack.up()
    tenants = json.loads(stack.fairgate("tenant", "list", "--json"))
    assert {tenant["name"]: tenant["weight"] for tenant in tenants if tenant["declared"]} == WEIGHTS
    keys = {tenant: (stack.compose / f"secrets/{tenant}-key").read_text() for tenant in WEIGHTS}
    counts = flood(stack, keys)
    assert {status for _, status in counts} == {200}, counts
    status, live = curl(f"{stack.admin}/metrics", (stack.compose / "secrets/admin-token").read_text())
    assert status == 200
    got = dict(re.findall(r'fairgate_tenant_got_tokens\{pool="sim",tenant="(\w+)"\} (\d+)', live))
    ratio = int(got["chat"]) / int(got["batch"])
    assert 2.2 < ratio < 3.8, f"weights of 300 and 100, and {got}"

    requests = sum(counts.values())
    counted = "sum(fairgate_requests_total{outcome=\"completed\"})"
    until("Prometheus has them", lambda: (found := stack.query(counted)) and int(found[0]["value"][1]) >= requests, 30)
    assert len(stack.query("fairgate_tenant_got_tokens")) == 2

    stack("down")
    assert curl(f"{stack.url}/readyz")[0] == 0
    stack.up()
    rows = json.loads(stack.fairgate("usage", "--by", "tenant", "--since", "1h", "--json"))["rows"]
    assert sum(row["requests"] for row in rows) == requests
    assert chat(stack.url, keys["chat"])[0] == 200, "keys are kept"
    assert stack.query(counted), "Prometheus has kept its numbers, too"


"""Starts servers that others wrote, and `fairgate serve` in front of them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

HERE = Path(__file__).parent
SLOTS = 4
TENANTS = ("first", "second")


@dataclass(frozen=True)
class House:
    """A gateway in front of one backend."""

    url: str
    backend: str
    keys: dict
    binary: str
    environment: dict

    def fairgate(self, *words):
        run = [self.binary, *words, "--json"]
        return json.loads(subprocess.run(run, env=self.environment, check=True, capture_output=True).stdout)


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    """llama.cpp behind the gateway."""
    folder = tmp_path_factory.mktemp("llama")
    port = free_port()
    words = [HERE / "llama_server.py", folder / "tiny.gguf", port, SLOTS]
    with started(words, folder / "llama.log", f"http://127.0.0.1:{port}") as url:
        with gateway(folder, url) as house:
            yield house


@pytest.fixture(scope="session")
def uvicorn(tmp_path_factory):
    """An application on uvicorn behind the gateway; it closes connections that are idle for a second."""
    folder = tmp_path_factory.mktemp("uvicorn")
    port = free_port()
    words = ["-m", "uvicorn", "chat_app:app", "--app-dir", HERE, "--port", port, "--timeout-keep-alive", 1]
    with started(words, folder / "uvicorn.log", f"http://127.0.0.1:{port}") as url:
        with gateway(folder, url) as house:
            yield house


@contextmanager
def started(words, log, url):
    with log.open("w") as output:
        process = subprocess.Popen([sys.executable, *map(str, words)], stdout=output, stderr=output)
    try:
        until(lambda: process.poll() is not None or answers(f"{url}/v1/models"))
        assert process.poll() is None, log.read_text()
        yield url
    finally:
        process.kill()
        process.wait()


@contextmanager
def gateway(folder, backend):
    binary = os.environ.get("FAIRGATE_BIN")
    if not binary:
        pytest.fail("FAIRGATE_BIN names no binary; run these tests with `cargo xtask test`")
    data = folder / "data"
    config = folder / "fairgate.yaml"
    config.write_text(
        f"listen: 127.0.0.1:0\ndata_dir: {data}\n"
        f"upstreams:\n  - name: backend\n    url: {backend}\n    dialects: [openai]\n    slots: {SLOTS}\n"
        "pools:\n  - name: tiny\n    models: [tiny]\n    workers: [backend]\n"
    )
    log = folder / "fairgate.log"
    with log.open("w") as errors:
        run = [binary, "serve", "--config", config]
        process = subprocess.Popen(run, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        url = None
        for line in process.stdout:
            found = re.search(r"listens on (http://\S+)", line)
            if found:
                url = found.group(1)
                break
        assert url, log.read_text()
        token = {"FAIRGATE_URL": url, "FAIRGATE_ADMIN_TOKEN_FILE": str(data / "admin-token")}
        house = House(url, backend, {}, binary, {**os.environ, **token})
        house.fairgate("group", "add", "all")
        for tenant in TENANTS:
            house.fairgate("tenant", "add", tenant, "--group", "all")
            house.keys[tenant] = house.fairgate("key", "create", tenant)["secret"]
        yield house
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def answers(url):
    try:
        return httpx.get(url, timeout=5).is_success
    except httpx.TransportError:
        return False


def until(happens, seconds=60):
    """Waits until something happens, and gives what it gave."""
    end = time.monotonic() + seconds
    while True:
        if found := happens():
            return found
        assert time.monotonic() < end, "it has not happened"
        time.sleep(0.02)

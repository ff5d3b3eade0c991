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
    journal: Path
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
    with started(llama_words(folder, port, SLOTS), folder / "llama.log", f"http://127.0.0.1:{port}") as url:
        with gateway(folder, single(url), url) as house:
            yield house


@pytest.fixture(scope="session")
def uvicorn(tmp_path_factory):
    """An application on uvicorn behind the gateway; it closes connections that are idle for a second."""
    folder = tmp_path_factory.mktemp("uvicorn")
    port = free_port()
    words = ["-m", "uvicorn", "chat_app:app", "--app-dir", HERE, "--port", port, "--timeout-keep-alive", 1]
    with started(words, folder / "uvicorn.log", f"http://127.0.0.1:{port}") as url:
        with gateway(folder, single(url), url) as house:
            yield house


def llama_words(folder, port, slots):
    return [HERE / "llama_server.py", folder / "tiny.gguf", port, slots]


def single(backend):
    """The configuration of one backend in one pool."""
    return (
        f"upstreams:\n  - name: backend\n    url: {backend}\n    dialects: [openai]\n    slots: {SLOTS}\n"
        "pools:\n  - name: tiny\n    models: [tiny]\n    workers: [backend]\n"
    )


class Server:
    """A server that can be killed and started again at the same address."""

    def __init__(self, words, log, url):
        self.words, self.log, self.url = words, log, url
        self.start()

    def start(self):
        with self.log.open("a") as output:
            run = [sys.executable, *map(str, self.words)]
            self.process = subprocess.Popen(run, stdout=output, stderr=output)

    def ready(self):
        until(lambda: self.process.poll() is not None or answers(f"{self.url}/v1/models"))
        assert self.process.poll() is None, self.log.read_text()

    def kill(self):
        self.process.kill()
        self.process.wait()


@contextmanager
def started(words, log, url):
    server = Server(words, log, url)
    try:
        server.ready()
        yield url
    finally:
        server.kill()


@contextmanager
def gateway(folder, backends, backend):
    """A gateway in front of the upstreams and pools of `backends`; `backend` is where one of them listens."""
    binary = os.environ.get("FAIRGATE_BIN")
    if not binary:
        pytest.fail("FAIRGATE_BIN names no binary; run these tests with `cargo xtask test`")
    data = folder / "data"
    config = folder / "fairgate.yaml"
    config.write_text(f"listen: 127.0.0.1:0\ndata_dir: {data}\njournal: {{folder: {folder / 'journal'}}}\n{backends}")
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
        house = House(url, backend, {}, folder / "journal", binary, {**os.environ, **token})
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

"""Starts `fairgate serve` as a user would, without a configuration, and hands out what it prints."""

import os
import re
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Gateway:
    url: str
    key: str
    admin_token: str
    binary: str
    data_dir: Path


@pytest.fixture(scope="session")
def gateway(tmp_path_factory):
    """One gateway for all tests that only use it."""
    with serving(tmp_path_factory.mktemp("data")) as gateway:
        yield gateway


@pytest.fixture
def own_gateway(tmp_path):
    """A gateway for a test that may change everything about it."""
    with serving(tmp_path / "data") as gateway:
        yield gateway


@contextmanager
def serving(data):
    binary = os.environ.get("FAIRGATE_BIN")
    if not binary:
        pytest.fail("FAIRGATE_BIN names no binary; run these tests with `cargo xtask test`")
    data.mkdir(exist_ok=True)
    with (data / "serve.log").open("w") as log:
        process = subprocess.Popen(
            [binary, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(data)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        url, key = None, None
        printed = []
        for line in process.stdout:
            printed.append(line)
            url = url or found(r"listens on (http://\S+)", line)
            key = key or found(r"\bkey\s+(fg-\S+)", line)
            if line.startswith("  curl "):
                break
        assert url and key, f"serve printed: {printed}"
        token = (data / "admin-token").read_text().strip()
        yield Gateway(url, key, token, binary, data)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, (data / "serve.log").read_text()
    finally:
        process.kill()
        process.wait()


def found(pattern, line):
    match = re.search(pattern, line)
    return match and match.group(1)

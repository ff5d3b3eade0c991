"""What all tests share."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("fairgate", deadline=None, print_blob=True)
settings.load_profile("fairgate")


def pytest_collection_finish() -> None:
    """What is imported by now stays, and need not be looked through after each test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _what_is_forgotten_is_noticed() -> Iterator[None]:
    """A slot that nobody gave back warns when it is collected, and warnings are errors: collect in the same test."""
    yield
    gc.collect()


def built(name: str, variable: str) -> str:
    """A program of the workspace: `cargo xtask test` says where it is, or it is where cargo puts it."""
    root = Path(__file__).parents[3]
    target = root / os.environ.get("CARGO_TARGET_DIR", "target")
    named = os.environ.get(variable)
    places = [Path(named)] if named else [target / "debug" / name, target / "release" / name]
    found = next((str(place.resolve()) for place in places if place.is_file()), shutil.which(name))
    assert found, f"the program `{name}` is not built: run `cargo build -p {name}`"
    return found


@pytest.fixture(scope="session")
def fairgate_binary() -> str:
    """The command `fairgate`."""
    return built("fairgate", "FAIRGATE_BINARY")


class Model:
    """The simulated model, running as a process of its own."""

    #: Tokens of every answer.
    OUTPUT_TOKENS = 12

    def __init__(self, url: str) -> None:
        self.url = url

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/sim/stats", timeout=10) as answer:
            stats: dict[str, Any] = json.load(answer)
            return stats


@contextlib.contextmanager
def running_model(*options: str, decode_us: int = 200) -> Iterator[Model]:
    """The gateway's simulated model, on a port of its own. It takes this many microseconds for a token."""
    command = [
        built("fairgate-sim", "FAIRGATE_SIM_BINARY"),
        "--steering",
        "--models=gpt-4o-mini,claude-haiku,gpt-4o,text-embedding",
        "--slots=64",
        "--prefill-base-ms=1",
        "--prefill-us-per-token=0",
        f"--decode-us-per-token={decode_us}",
        f"--output-tokens={Model.OUTPUT_TOKENS}",
        *options,
    ]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        yield Model(line.removeprefix("listening on ").strip())
    finally:
        # It ends when its standard input does.
        process.stdin.close()
        process.wait(timeout=30)
        process.stdout.close()


@pytest.fixture(scope="session")
def model() -> Iterator[Model]:
    """A simulated model without limits, until the tests are over."""
    with running_model() as model:
        yield model

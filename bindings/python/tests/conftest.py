"""What all tests share."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fairgate", deadline=None, print_blob=True)
settings.load_profile("fairgate")


@pytest.fixture(autouse=True)
def _what_is_forgotten_is_noticed() -> Iterator[None]:
    """A slot that nobody gave back warns when it is collected, and warnings are errors: collect in the same test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def fairgate_binary() -> str:
    """The command `fairgate`: `cargo xtask test` says where it is, or it is where cargo puts it."""
    root = Path(__file__).parents[3]
    target = Path(os.environ.get("CARGO_TARGET_DIR", root / "target"))
    places = [target / "debug" / "fairgate", target / "release" / "fairgate"]
    named = os.environ.get("FAIRGATE_BINARY")
    for place in [Path(named)] if named else places:
        if place.is_file():
            return str(place.resolve())
    found = shutil.which("fairgate")
    assert found, "the command `fairgate` is not built: run `cargo build -p fairgate`"
    return found

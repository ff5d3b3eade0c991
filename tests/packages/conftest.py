"""Where the programs and tools are that the tests of packages use. `cargo xtask` sets the variables."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
sys.path.insert(0, str(Path(__file__).parent))


def variable(name):
    value = os.environ.get(name)
    if not value:
        pytest.exit(f"{name} is not set: run these tests with `cargo xtask test packages`", returncode=4)
    return value


def run(*words, check=True, **options):
    """Runs a command and returns it with its output; fails with that output."""
    words = [str(word) for word in words]
    done = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)
    assert not check or done.returncode == 0, f"{' '.join(words)}: status {done.returncode}\n{done.stdout}"
    return done


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def packaging():
    return PACKAGING


@pytest.fixture(scope="session")
def programs():
    """The folder of the built programs."""
    return Path(variable("FAIRGATE_PROGRAMS"))


@pytest.fixture(scope="session")
def fairgate(programs):
    return programs / "fairgate"


@pytest.fixture(scope="session")
def tools():
    return Path(variable("FAIRGATE_TOOLS"))


@pytest.fixture(scope="session")
def promtool(tools):
    return tools / "prometheus/usr/bin/promtool"


@pytest.fixture(scope="session")
def helm():
    return Path(variable("FAIRGATE_HELM"))

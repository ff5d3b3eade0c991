"""The package as others get it: a wheel, or the source, in an environment that has nothing else."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]


def quickstart() -> tuple[str, str]:
    """The first program of the quickstart, and what it prints."""
    page = (ROOT / "docs" / "python" / "quickstart.md").read_text()
    found = re.search(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", page, re.M | re.S)
    assert found is not None
    return found[1], found[2]


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """The Python of a new environment."""
    venv.create(tmp_path / "venv", with_pip=True)
    return tmp_path / "venv" / "bin" / "python"


def install(python: Path, *what: str, env: dict[str, str] | None = None) -> None:
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what]
    run = subprocess.run(pip, capture_output=True, text=True, timeout=550, env=env)
    assert run.returncode == 0, run.stderr


def run_quickstart(python: Path, folder: Path) -> None:
    program, printed = quickstart()
    (folder / "quickstart.py").write_text(program)
    run = subprocess.run(
        [str(python), "quickstart.py"], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, printed, "")


def test_the_wheel_installs_without_rust_and_the_quickstart_runs(fresh: Path, tmp_path: Path) -> None:
    wheels = os.environ.get("FAIRGATE_WHEELS")
    if wheels is None:
        pytest.skip("`cargo xtask test` builds the wheel and says where")
    without_rust = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    assert not any((Path(folder) / "cargo").exists() for folder in without_rust["PATH"].split(":"))
    install(fresh, "--no-index", "--find-links", wheels, "fairgate", env=without_rust)
    run_quickstart(fresh, tmp_path)
    typed = subprocess.run(
        [str(fresh), "-c", "import fairgate, pathlib; print(*pathlib.Path(fairgate.__file__).parent.glob('*py*.typed'))"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert typed.stdout.strip().endswith("py.typed")


def test_the_wheel_has_the_licences_of_what_it_contains() -> None:
    wheels = os.environ.get("FAIRGATE_WHEELS")
    if wheels is None:
        pytest.skip("`cargo xtask test` builds the wheel and says where")
    for wheel in Path(wheels).glob("fairgate-*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            names = [Path(name) for name in archive.namelist() if "/licenses/" in name]
        assert {name.name for name in names} == {"LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY-LICENCES.txt"}, wheel.name


@pytest.mark.timeout(600)
def test_the_source_installs_and_the_quickstart_runs(fresh: Path, tmp_path: Path) -> None:
    install(fresh, str(ROOT / "bindings" / "python"))
    run_quickstart(fresh, tmp_path)


TYPED = """
import fairgate

scheduler = fairgate.Scheduler(capacity=2, policy="share", weights={"a": 1}, budgets={"a": fairgate.Budget(5)})


async def call() -> float:
    async with scheduler.slot("a", weight=2.0) as slot:
        slot.settle(tokens=5)
        return slot.waited


@scheduler.scheduled(agent_id="a")
async def kept(x: int) -> str:
    return str(x)


async def uses() -> str:
    return await kept(3)


async def create(prompt: str, *, model: str, timeout: float = 1.0) -> int:
    return len(prompt)


async def through() -> int:
    call = fairgate.CallOptions("a", timeout=5.0)
    reveal_type(kept)
    reveal_type(await scheduler.run(call, create, "hello", model="m", timeout=3.0))
    await scheduler.run(call, create, "hello", modle="m")
    reveal_type(await scheduler.wrap(create, "hello", agent_id="a", model="m", timeout=3.0))
    reveal_type(await fairgate.wrap(len, "hello", agent_id="a"))
    return await fairgate.run(call, len, "hello")


reveal_type(scheduler.snapshot().agents["a"].depth)
scheduler.slot(5)
"""


@pytest.fixture
def typed(tmp_path: Path) -> Path:
    """A program with two mistakes in it, both in the types."""
    program = tmp_path / "typed.py"
    program.write_text(TYPED)
    return program


def test_mypy_sees_complete_types(typed: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", str(typed)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=typed.parent,
    )
    assert 'Revealed type is "float"' in run.stdout
    assert 'Revealed type is "def (x: int) -> ' in run.stdout, "the signature is seen through the decorator"
    assert run.stdout.count('Revealed type is "int"') == 3, run.stdout
    errors = [line for line in run.stdout.splitlines() if ": error:" in line]
    assert 'Unexpected keyword argument "modle"' in run.stdout, run.stdout
    assert len(errors) == 2 and 'expected "str"' in errors[-1], run.stdout


def pyright(folder: Path, *options: str) -> dict[str, Any]:
    """What pyright says of a folder."""
    program = os.environ.get("FAIRGATE_PYRIGHT")
    if program is None:
        pytest.skip("`cargo xtask test` installs pyright and says where")
    command = ["node", program, "--outputjson", "--pythonpath", sys.executable, *options, str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
    said: dict[str, Any] = json.loads(run.stdout)
    return said


def errors_of(said: dict[str, Any]) -> list[str]:
    return [
        f"{Path(each['file']).name}:{each['range']['start']['line'] + 1}: {each['message']}"
        for each in said["generalDiagnostics"]
        if each["severity"] == "error"
    ]


def test_pyright_sees_complete_types(typed: Path) -> None:
    (typed.parent / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')
    said = pyright(typed.parent)
    revealed = [each["message"] for each in said["generalDiagnostics"] if each["severity"] == "information"]
    assert 'Type of "kept" is "(x: int) -> CoroutineType[Any, Any, str]"' in revealed, revealed
    assert sum(' is "int"' in each for each in revealed) == 3, revealed
    assert 'Type of "scheduler.snapshot().agents["a"].depth" is "float"' in revealed, revealed
    errors = errors_of(said)
    lines = {int(each.split(":")[1]) for each in errors}
    assert len(lines) == 2 and any('No parameter named "modle"' in each for each in errors), errors
    assert '"Literal[5]" cannot be assigned' in errors[-1], errors


def test_pyright_finds_nothing_in_the_programs_of_the_documents(tmp_path: Path) -> None:
    pages = sorted((ROOT / "docs" / "python").glob("*.md"))
    for page in pages:
        blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
        # They are run as one program each, in test_docs.py.
        (tmp_path / f"{page.stem.replace('-', '_')}.py").write_text("\n".join(blocks))
    # What a page's own lines have made is there, though its type says that it may not be; and each block has its own main.
    habits = ("reportOptionalMemberAccess", "reportOptionalSubscript", "reportRedeclaration")
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({habit: False for habit in habits}))
    said = pyright(tmp_path)
    assert said["summary"]["filesAnalyzed"] == len(pages)
    assert not errors_of(said)

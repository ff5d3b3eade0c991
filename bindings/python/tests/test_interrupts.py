"""One press of Ctrl-C ends a program, also while the native part calls Python code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import interrupted
import pytest


def run(phase: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-X", "faulthandler", str(Path(interrupted.__file__)), phase]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("phase", [phase for phase in interrupted.PHASES if phase != "ended_by_another_signal"])
def test_one_press_is_enough(phase: str) -> None:
    ended = run(phase)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "interrupted\nand on\n", "")


def test_an_exit_of_another_signal_keeps_its_status() -> None:
    ended = run("ended_by_another_signal")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "", "")

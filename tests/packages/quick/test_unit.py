"""The unit of systemd, and the configuration that the Debian package installs."""

import re

import pytest

from conftest import run

EXPOSURE_MAX = 2.0


@pytest.fixture
def unit(packaging, tmp_path, fairgate):
    """The unit with the built program in the place of the installed one."""
    text = (packaging / "fairgate.service").read_text()
    assert "ExecStart=/usr/bin/fairgate " in text
    copy = tmp_path / "fairgate.service"
    copy.write_text(text.replace("/usr/bin/fairgate ", f"{fairgate.resolve()} "))
    return copy


def test_systemd_finds_nothing_wrong(unit):
    done = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit)
    # Without systemd as the first process it may say that it cannot look at the machine; that is not about the unit.
    about_unit = [line for line in done.stdout.splitlines() if "fairgate" in line]
    assert about_unit == []


def test_the_unit_is_hardened(unit):
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", unit)
    exposure = re.search(r"Overall exposure level for fairgate\.service: ([0-9.]+)", done.stdout)
    assert exposure and float(exposure[1]) <= EXPOSURE_MAX, done.stdout


def test_the_time_to_stop_is_longer_than_the_drain(unit, root):
    stop = int(re.search(r"^TimeoutStopSec=(\d+)s$", unit.read_text(), re.MULTILINE)[1])
    drain = int(re.search(r"`drain_grace`.*`(\d+)s`", (root / "docs/configuration.md").read_text())[1])
    assert stop > drain


def test_the_installed_configuration_is_valid(packaging, fairgate):
    done = run(fairgate, "check", packaging / "etc/fairgate.yaml")
    assert "pool         default" in done.stdout

"""The Debian package: installed, run, upgraded, removed and purged in a Debian root of its own."""

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tarfile

import pytest

from conftest import PACKAGING, ROOT
from full.conftest import DATE, chat, curl, debian_root, free_port, run, until

PACKAGES = ["adduser", "ca-certificates", "init-system-helpers", "libgcc-s1", "dash", "coreutils", "man-db"]


def build(tools, stage, out, version):
    """Makes a package of this version from the staged files."""
    text = (stage / "changelog").read_text()
    (stage / "changelog").write_text(re.sub(r"^fairgate \([^)]*\)", f"fairgate ({version})", text))
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "1763424000"}
    run(tools / "bin/cargo-deb", "--no-build", "--no-strip", "--package", "fairgate", "--deb-version", version,
        "--output", f"{out}/", cwd=ROOT, env=environment)
    return next(out.glob(f"fairgate_{version}_*.deb"))


@pytest.fixture(scope="module")
def debs(tools, stage, tmp_path_factory):
    folder = tmp_path_factory.mktemp("debs")
    return [build(tools, stage, folder, version) for version in ("0.0.9", "0.1.0")]


@pytest.fixture(scope="module")
def machine(work, debs, tmp_path_factory):
    """A Debian root without the package."""
    tar = debian_root(work, "debian", PACKAGES, "--variant=minbase")
    folder = tmp_path_factory.mktemp("machine")
    run("tar", "--extract", "--file", tar, "--directory", folder, "--exclude=./dev/*")
    # The root was made without man pages; the package is installed with them.
    for options in (folder / "etc/dpkg/dpkg.cfg.d").glob("*mmdebstrap"):
        options.unlink()
    for deb in debs:
        shutil.copy(deb, folder)
    return folder


def inside(machine, *words, check=True):
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    return run("chroot", machine, *words, check=check, env=environment).stdout


def test_two_packages_of_the_same_files_are_equal(tools, stage, debs, tmp_path):
    again = build(tools, stage, tmp_path, "0.1.0")
    assert again.read_bytes() == debs[1].read_bytes()


def test_lintian_has_no_error(debs):
    # The program is linked against glibc as every Rust program is; what lintian says of it is not about the package.
    done = run("lintian", "--allow-root", "--tag-display-limit", "0", "--fail-on", "error", debs[1], check=False)
    errors = [line for line in done.stdout.splitlines() if line.startswith("E:")]
    assert errors == [], done.stdout


def test_it_has_what_it_should(debs):
    listed = run("dpkg-deb", "--contents", debs[1]).stdout
    for path in ["./usr/bin/fairgate", "./etc/fairgate/fairgate.yaml", "fairgate.service", "man1/fairgate-key-create.1.gz",
                 "bash-completion/completions/fairgate", "vendor-completions/_fairgate", "vendor_completions.d/fairgate.fish",
                 "doc/fairgate/copyright", "doc/fairgate/THIRD-PARTY-LICENCES.txt", "examples/rules.yml"]:
        assert path in listed, path
    assert "/etc/fairgate/fairgate.yaml" in run("dpkg-deb", "--info", debs[1], "conffiles").stdout


#: The steps of the schema at commit 6dedc6a, and the rows that it had written.
EARLY_SCHEMA = [ROOT / f"crates/fairgate-store/src/migrations/{step}.sqlite.sql" for step in range(1, 7)]
EARLY_ROWS = ROOT / "crates/fairgate/tests/cli/serve/early_version.sql"


def write_early_data(data):
    """Makes the data folder that a gateway of commit 6dedc6a left."""
    data.mkdir(parents=True)
    (data / "admin-token").write_text("the-admin-token-that-an-early-version-made")
    database = sqlite3.connect(data / "fairgate.db")
    for step in EARLY_SCHEMA:
        database.executescript(step.read_text())
    database.executescript(EARLY_ROWS.read_text().replace("HASH", "00" * 32))
    database.close()


class Machine:
    """The package in a Debian root, with a configuration of its own."""

    def __init__(self, folder):
        self.folder, self.port = folder, free_port()
        self.own = f"listen: 127.0.0.1:{self.port}\ndata_dir: /var/lib/fairgate\n" \
            "upstreams: [{ name: a, url: \"http://127.0.0.1:9\", slots: 1 }]\npools: [{ name: a, models: [a], workers: [a] }]\n"
        (folder / "etc/fairgate/fairgate.yaml").write_text(self.own)
        (folder / "dev").mkdir(exist_ok=True)

    def serve(self):
        words = ["chroot", self.folder, "/usr/bin/fairgate", "serve", "--config", "/etc/fairgate/fairgate.yaml"]
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        ready = f"http://127.0.0.1:{self.port}/readyz"
        until("it is ready", lambda: curl(ready)[0] == 200 or process.poll() is not None)
        assert process.poll() is None
        return process

    def admin(self, *words):
        url, token = f"http://127.0.0.1:{self.port}", "/var/lib/fairgate/admin-token"
        return inside(self.folder, "fairgate", *words, "--url", url, "--token-file", token)


def stop(process):
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0


def test_its_life_from_installation_to_purge(machine, debs):
    older, newer = (f"/{deb.name}" for deb in debs)
    said = inside(machine, "dpkg", "--install", older)
    assert "edit /etc/fairgate/fairgate.yaml" in said
    inside(machine, "fairgate", "check", "/etc/fairgate/fairgate.yaml")
    assert "fairgate-serve" in inside(machine, "man", "-w", "fairgate-serve")
    data = machine / "var/lib/fairgate"
    data.mkdir(parents=True)
    package = Machine(machine)

    process = package.serve()
    package.admin("group", "add", "people")
    stop(process)

    inside(machine, "dpkg", "--install", newer)
    assert (machine / "etc/fairgate/fairgate.yaml").read_text() == package.own, "an upgrade keeps the configuration"
    process = package.serve()
    assert "people" in package.admin("group", "list")
    stop(process)

    inside(machine, "dpkg", "--remove", "fairgate")
    assert not (machine / "usr/bin/fairgate").exists()
    assert (data / "fairgate.db").exists() and (machine / "etc/fairgate/fairgate.yaml").exists()
    said = inside(machine, "dpkg", "--purge", "fairgate")
    assert "the data in /var/lib/fairgate is kept; to remove it: rm -r /var/lib/fairgate" in said
    assert (data / "fairgate.db").exists() and not (machine / "etc/fairgate/fairgate.yaml").exists()


def test_an_upgrade_takes_over_the_data_of_an_early_version(machine, debs):
    older, newer = (f"/{deb.name}" for deb in debs)
    inside(machine, "dpkg", "--install", older)
    package = Machine(machine)
    data = machine / "var/lib/fairgate"
    shutil.rmtree(data, ignore_errors=True)
    write_early_data(data)
    inside(machine, "dpkg", "--install", newer)
    process = package.serve()
    assert "chat" in package.admin("tenant", "list")
    assert "web" in package.admin("project", "list")
    log = package.admin("log", "--limit", "10", "--json")
    assert '"ended"' in log and '"in-flight"' in log, log
    stop(process)
    inside(machine, "dpkg", "--purge", "fairgate")
    shutil.rmtree(data)

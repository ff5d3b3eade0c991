"""The container image: what is in it, and how it lives and dies."""

import json
import re
import subprocess
import tarfile
import time

import pytest

from conftest import ROOT
from full.conftest import chat, curl, free_port, run, until

MEGABYTES_MAX = 60


@pytest.fixture(scope="module")
def contents(containers, image, tmp_path_factory):
    """The members of the image's file system."""
    tar = tmp_path_factory.mktemp("image") / "root.tar"
    name = containers.podman("create", image)
    containers.podman("export", "--output", tar, name)
    containers.remove(name)
    with tarfile.open(tar) as archive:
        return list(archive)


def test_it_is_small(contents, programs):
    size = sum(member.size for member in contents) / 1e6
    if programs.name != "dist":
        pytest.skip(f"{size:.0f} MB with programs of another profile, which are larger")
    assert size <= MEGABYTES_MAX, f"{size} MB"


def test_it_has_no_shell_and_no_setuid_file(contents, containers, image):
    names = {member.name.rsplit("/", 1)[-1] for member in contents}
    assert "fairgate" in names and not names & {"sh", "bash", "dash", "busybox"}
    assert [member.name for member in contents if member.mode & 0o6000] == []
    assert {"LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENCES.txt"} <= names
    facts = json.loads(containers.podman("inspect", image))[0]
    assert facts["Config"]["User"] == "65532:65532"
    assert facts["Healthcheck"]["Test"] == ["CMD", "/usr/bin/fairgate", "health"]


def test_the_image_of_the_simulated_model_has_its_licences(containers, sim_image, tmp_path):
    name = containers.podman("create", sim_image)
    containers.podman("export", "--output", tmp_path / "root.tar", name)
    containers.remove(name)
    with tarfile.open(tmp_path / "root.tar") as archive:
        names = {member.name.rsplit("/", 1)[-1] for member in archive}
    assert {"LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENCES.txt"} <= names


class Running:
    """A gateway in a container: with a read-only root, without capabilities, and with this volume."""

    def __init__(self, containers, image, volume, port, *options):
        self.containers, self.port, self.volume = containers, port, volume
        self.name = f"fairgate-test-{port}"
        self.url = f"http://127.0.0.1:{port}"
        containers.podman(
            "run", "--detach", "--name", self.name, "--network=host", "--read-only", "--read-only-tmpfs=false",
            "--cap-drop=all", "--security-opt=no-new-privileges", "--volume", f"{volume}:/data", *options,
            "--env", f"FAIRGATE_URL={self.url}", image, "serve", "--listen", f"127.0.0.1:{port}", "--data-dir", "/data")

    def health(self):
        done = run("podman", "exec", self.name, "/usr/bin/fairgate", "health", check=False, env=self.containers.environment)
        return done.returncode == 0

    def ready(self):
        until(f"it is ready: {self.log()}", lambda: curl(f"{self.url}/readyz")[0] == 200)
        return self

    def log(self):
        return self.containers.podman("logs", self.name, check=False)

    def pid(self):
        return int(self.containers.podman("inspect", "--format", "{{.State.Pid}}", self.name))

    def fairgate(self, *words):
        return self.containers.podman("exec", self.name, "/usr/bin/fairgate", *words)


@pytest.fixture
def volume(containers):
    name = f"fairgate-test-{free_port()}"
    containers.podman("volume", "create", name)
    yield name
    containers.podman("volume", "rm", "--force", name, check=False)


def test_it_serves_and_outlives_a_kill_and_stops_in_order(containers, image, volume):
    first = Running(containers, image, volume, free_port())
    try:
        first.ready()
        assert first.health()
        status = open(f"/proc/{first.pid()}/status").read()
        assert re.search(r"^Uid:\s+65532\s+65532\s+65532\s+65532$", status, re.MULTILINE), status
        assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE), status
        key = re.search(r"key\s+(fg-\S+)", first.log())[1]
        answers = [chat(first.url, key, f"Say {number}") for number in range(5)]
        assert [status for status, _ in answers] == [200] * 5, answers
        containers.podman("kill", "--signal", "KILL", first.name)
        until("it is gone", lambda: curl(f"{first.url}/healthz")[0] == 0)
    finally:
        containers.remove(first.name)
    second = Running(containers, image, volume, free_port())
    try:
        second.ready()
        assert chat(second.url, key)[0] == 200, "the key is still known"
        usage = json.loads(second.fairgate("usage", "--by", "tenant", "--since", "1h", "--json"))
        assert usage["rows"][0]["requests"] == 6, usage
        slow = subprocess.Popen(
            ["curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", f"{second.url}/v1/chat/completions",
             "--header", f"Authorization: Bearer {key}", "--header", "Content-Type: application/json", "--data",
             json.dumps({"model": "sim", "max_tokens": 150, "messages": [{"role": "user", "content": "A long story"}]})],
            stdout=subprocess.PIPE, text=True)
        in_flight = "fairgate_pool_in_flight_requests{pool=\"sim\"} 1"
        until("it is in flight", lambda: in_flight in curl(f"{second.url}/metrics")[1] or slow.poll() is not None)
        start = time.monotonic()
        containers.podman("stop", "--time", "35", second.name)
        assert time.monotonic() - start < 30
        assert slow.communicate()[0] == "200", "what is in flight may finish"
        assert containers.podman("inspect", "--format", "{{.State.ExitCode}}", second.name) == "0"
    finally:
        containers.remove(second.name)


def test_a_folder_of_another_user_is_refused_with_advice(containers, image, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)
    name = f"fairgate-test-{free_port()}"
    try:
        said = containers.podman(
            "run", "--name", name, "--network=host", "--read-only", "--cap-drop=all", "--volume", f"{folder}:/data",
            image, "serve", "--listen", "127.0.0.1:0", "--data-dir", "/data", check=False)
        assert containers.podman("inspect", "--format", "{{.State.ExitCode}}", name) == "1"
        # podman may say something of its own about health checks.
        said = [line for line in said.splitlines() if not line.startswith("time=")]
        assert len(said) == 1 and "`chown -R 65532 /data`" in said[0], said
    finally:
        containers.remove(name)

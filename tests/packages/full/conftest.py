"""Images and a podman of the tests' own: their storage is below target/packages, apart from the user's."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from conftest import PACKAGING, ROOT, run, variable  # noqa: E402

DATE = "2026-11-18"
# Without the ulimits, runc fails at setrlimit where the limits of the machine are lower than podman's.
LIMITS = ["nofile=1024:1024", "nproc=1024:1024"]


def until(what, attempt, seconds=30):
    """Tries until the result is true, and returns it."""
    end = time.monotonic() + seconds
    while True:
        result = attempt()
        if result:
            return result
        assert time.monotonic() < end, what
        time.sleep(0.1)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def curl(url, token=None, body=None, method=None, seconds=20):
    """Returns the status and the text of an answer; status 0 if there is none."""
    words = ["curl", "--silent", "--max-time", seconds, "--write-out", "\n%{http_code}", url]
    if token:
        words += ["--header", f"Authorization: Bearer {token}"]
    if body is not None:
        words += ["--header", "Content-Type: application/json", "--data", json.dumps(body)]
    if method:
        words += ["--request", method]
    text, _, status = run(*words, check=False).stdout.rpartition("\n")
    return int(status), text


def chat(url, key, prompt="Hello"):
    body = {"model": "sim", "messages": [{"role": "user", "content": prompt}]}
    return curl(f"{url}/v1/chat/completions", key, body)


@pytest.fixture(scope="session")
def work():
    folder = Path(variable("FAIRGATE_WORK"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def stage(work, programs):
    """What all packages have, collected from the built programs."""
    folder = work / "stage"
    run(PACKAGING / "stage.sh", programs, folder, DATE)
    return folder


def debian_root(work, name, packages, *options):
    """A tar of a Debian root with these packages, made once."""
    tar = work / f"{name}.tar"
    if not tar.exists():
        made = tar.with_suffix(".new.tar")
        run("mmdebstrap", *options, f"--include={','.join(packages)}", "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/man/*", "bookworm", made)
        made.rename(tar)
    return tar


class Containers:
    """podman and buildah with a storage of their own and limits that hold on small machines."""

    def __init__(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        storage = folder / "storage.conf"
        storage.write_text(
            f'[storage]\ndriver = "{DRIVER}"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/storage"\n')
        config = folder / "containers.conf"
        limits = ", ".join(f'"{limit}"' for limit in LIMITS)
        config.write_text(
            f'[containers]\ndefault_ulimits = [{limits}]\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n')
        self.environment = {
            **os.environ, "CONTAINERS_STORAGE_CONF": str(storage), "CONTAINERS_CONF": str(config),
        }

    def podman(self, *words, check=True):
        return run("podman", *words, check=check, env=self.environment).stdout.strip()

    def buildah(self, *words):
        return run("buildah", *words, env=self.environment).stdout.strip()

    def build(self, image, context, containerfile, *options):
        self.buildah("bud", "--isolation", "chroot", "--format", "docker", "--layers=false", "--pull-never", *options,
                     "--tag", image, "-f", containerfile, context)
        return image

    def remove(self, name):
        self.podman("rm", "--force", "--time", "0", name, check=False)


DRIVER = os.environ.get("FAIRGATE_STORAGE_DRIVER", "overlay")


@pytest.fixture(scope="session")
def containers(work):
    return Containers(work / "containers")


@pytest.fixture(scope="session")
def base(work, containers):
    """The base of the images: glibc and libgcc alone."""
    tar = debian_root(work, "base", ["libc6", "libgcc-s1"], "--variant=extract")
    containers.podman("import", "--quiet", tar, "localhost/base:test")
    return "localhost/base:test"


@pytest.fixture(scope="session")
def image(stage, containers, base):
    return containers.build("localhost/fairgate:test", stage / "image", PACKAGING / "Containerfile",
                            "--target", "fairgate", "--build-arg", f"BASE={base}")


@pytest.fixture(scope="session")
def sim_image(stage, containers, base):
    return containers.build("localhost/fairgate-sim:test", stage / "image", PACKAGING / "Containerfile",
                            "--target", "sim", "--build-arg", f"BASE={base}")

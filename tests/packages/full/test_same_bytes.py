"""What `cargo xtask dist` packs is the same twice: the archive of the programs, and both images."""

import os

import pytest

from conftest import PACKAGING, ROOT, run
from full.conftest import DATE

VERSION, EPOCH = "0.1.0+0123456789ab", "1763424000"


@pytest.fixture(scope="module")
def stages(programs, tmp_path_factory):
    """The same programs, collected twice: files have other times and are in another folder."""
    folders = [tmp_path_factory.mktemp("stage") / "stage" for _ in range(2)]
    for folder in folders:
        run(PACKAGING / "stage.sh", programs, folder, DATE)
    for file in folders[1].rglob("*"):
        os.utime(file, (1, 1))
    return folders


def packed(script, stages, tmp_path, environment):
    """Packs both stages, and returns the files of each by their names."""
    found = []
    for number, stage in enumerate(stages):
        out = tmp_path / f"out-{number}"
        out.mkdir()
        run(PACKAGING / script, stage, out, VERSION, EPOCH, cwd=ROOT, env=environment)
        found.append({file.name: file.read_bytes() for file in out.iterdir()})
    return found


def test_two_archives_are_equal(stages, tmp_path):
    first, second = packed("archive.sh", stages, tmp_path, dict(os.environ))
    assert list(first) == [f"fairgate-{VERSION}-{os.uname().machine}-linux-gnu.tar.gz"]
    assert first == second


def test_two_builds_of_the_images_are_equal(stages, containers, base, tmp_path):
    more = {"FAIRGATE_IMAGE_BASE": base, "FAIRGATE_BUILD_OPTIONS": "--pull-never", "SOURCE_DATE_EPOCH": EPOCH}
    first, second = packed("images.sh", stages, tmp_path, containers.environment | more)
    assert sorted(first) == [f"fairgate-{VERSION}-image.tar", f"fairgate-sim-{VERSION}-image.tar"]
    # Not compared as a whole by assert: the difference of two images is no message.
    assert [name for name in first if first[name] != second[name]] == []

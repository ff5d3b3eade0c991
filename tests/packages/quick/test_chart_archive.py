"""The packed chart: the same files give the same bytes, wherever, when and by whom they are packed."""

import os
import shutil
import tarfile

from conftest import run

EPOCH = "1763424000"


def packed(packaging, chart, out, umask):
    out.mkdir()
    run(packaging / "chart.sh", chart, out, "1.2.3+0123456789ab", EPOCH, umask=umask)
    return out / "fairgate-chart-1.2.3+0123456789ab.tgz"


def test_two_archives_of_one_chart_are_equal(packaging, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(packaging / "chart/fairgate", copy, copy_function=shutil.copyfile)
    for file in copy.rglob("*"):
        os.utime(file, (1, 1))
    first = packed(packaging, packaging / "chart/fairgate", tmp_path / "first", 0o022)
    second = packed(packaging, copy, tmp_path / "second", 0o077)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        text = archive.extractfile("fairgate/Chart.yaml").read().decode()
    assert 'version: 1.2.3+0123456789ab\n' in text and 'appVersion: "1.2.3-0123456789ab"' in text

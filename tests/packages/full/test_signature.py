"""The checksums of what is published are signed by minisign, and a changed file of checksums is found."""

import os

from conftest import ROOT, run


def test_checksums_are_signed(tmp_path):
    secret, public = tmp_path / "test.key", tmp_path / "test.pub"
    run("minisign", "-G", "-W", "-s", secret, "-p", public)
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(f"{'0' * 64}  fairgate.tar.gz\n")
    sign = ["cargo", "xtask", "dist", "--sign", tmp_path]
    environment = {name: value for name, value in os.environ.items() if name != "FAIRGATE_SIGNING_KEY_FILE"}

    refused = run(*sign, check=False, cwd=ROOT, env=environment)
    assert refused.returncode != 0 and "FAIRGATE_SIGNING_KEY_FILE" in refused.stdout

    run(*sign, cwd=ROOT, env=environment | {"FAIRGATE_SIGNING_KEY_FILE": str(secret)})
    run("minisign", "-V", "-p", public, "-m", sums)
    sums.write_text(f"{'1' * 64}  fairgate.tar.gz\n")
    assert run("minisign", "-V", "-p", public, "-m", sums, check=False).returncode != 0

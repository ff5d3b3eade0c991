"""Runs the npm SDK's own tests against the same gateway."""

import os
import subprocess
from pathlib import Path


def test_npm_openai(gateway):
    here = Path(__file__).parent
    modules = os.environ.get("FAIRGATE_NODE_MODULES")
    assert modules, "FAIRGATE_NODE_MODULES names no folder; run these tests with `cargo xtask test`"
    test = Path(modules).parent / "openai.test.mjs"
    test.write_text((here / "openai.test.mjs").read_text())
    env = {**os.environ, "FAIRGATE_URL": gateway.url, "FAIRGATE_KEY": gateway.key}
    done = subprocess.run(
        ["node", "--test", str(test)], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr

"""schemathesis reads the OpenAPI document and tries to find an answer that the document does not promise."""

import subprocess
import sys
from pathlib import Path


def test_schemathesis_finds_nothing(gateway, tmp_path):
    program = Path(sys.executable).parent / "schemathesis"
    done = subprocess.run(
        [
            str(program),
            "run",
            f"{gateway.url}/api/v1/openapi.json",
            "--header",
            f"Authorization: Bearer {gateway.admin_token}",
            "--checks",
            "all",
            "--max-examples",
            "40",
            "--seed",
            "7",
            "--workers",
            "1",
            "--request-timeout",
            "20",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]

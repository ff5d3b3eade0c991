"""The JSON Schema of the configuration: what is in the documents is valid, and slips in names and values are not."""

import copy
import re
import sys

import pytest
import yaml
from jsonschema import Draft7Validator

from conftest import PACKAGING, ROOT

sys.path.insert(0, str(PACKAGING / "site"))

from config_schema import rows_of, schema, typed  # noqa: E402

OPTIONS = (ROOT / "crates/fairgate/tests/cli/surface/configuration.txt").read_text().splitlines()
DOCUMENT = (ROOT / "docs/configuration.md").read_text()
FILES = ["examples/fairgate.yaml", "packaging/etc/fairgate.yaml", "packaging/compose/fairgate.yaml"]
GOOD = {
    "listen": "127.0.0.1:8080",
    "drain_grace": "30s",
    "upstreams": [{"name": "a", "url": "http://127.0.0.1:9", "slots": "auto", "credential": {"env": "KEY"}}],
    "pools": [{"name": "p", "models": ["m", {"name": "n"}], "workers": ["a"], "capacity": 4}],
}


@pytest.fixture(scope="module")
def validator():
    made = schema(OPTIONS, DOCUMENT)
    Draft7Validator.check_schema(made)
    return Draft7Validator(made)


def test_every_option_has_its_values_in_a_table():
    values = dict(rows_of(DOCUMENT))
    names = [line.partition(" = ")[0] for line in OPTIONS]
    assert [name for name in names if name not in values and not name.endswith((".env", ".file"))] == []
    untyped = {cell for cell in values.values() if typed(cell) == {}}
    # Sections, secrets, and what only the program can check.
    assert len(untyped) < 20, untyped


def test_the_files_and_the_documents_are_valid(validator):
    for file in FILES:
        assert problems(validator, yaml.safe_load((ROOT / file).read_text())) == [], file
    checked = 0
    for page in [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]:
        for block in re.findall(r"```yaml config\n(.*?)```", page.read_text(), re.DOTALL):
            assert problems(validator, yaml.safe_load(block)) == [], (page.name, block)
            checked += 1
    assert checked > 8
    assert problems(validator, GOOD) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["lisetn"], "127.0.0.1:1"),
        (["listen"], 8080),
        (["listen"], "localhost"),
        (["drain_grace"], 30),
        (["drain_grace"], "30 seconds"),
        (["on_store_failure"], "ignore"),
        (["admin"], {"pages": "maybe"}),
        (["limits"], {"body_size_max": "64 megabytes"}),
        (["limits"], {"connections_max": 0}),
        (["upstreams", 0, "slots"], "many"),
        (["upstreams", 0, "slots"], 0),
        (["upstreams", 0, "tier"], 101),
        (["upstreams", 0, "dialects"], ["gemini"]),
        (["upstreams", 0, "credential"], "sk-123"),
        (["pools", 0, "capacity"], "4"),
        (["pools", 0, "queue_timeout"], 5),
        (["pools", 0, "workers"], "a"),
        (["fleet"], {"share": "agent"}),
    ],
)
def test_slips_are_refused(validator, path, value):
    slip = copy.deepcopy(GOOD)
    node = slip
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = value
    assert problems(validator, slip) != []


def problems(validator, configuration):
    return [error.message for error in validator.iter_errors(configuration)]

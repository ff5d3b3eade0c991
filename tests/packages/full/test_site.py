"""The site: every page is in it, no link leads nowhere, and search knows the pages."""

import json
import sys

import pytest

from conftest import PACKAGING, ROOT
from full.conftest import run


@pytest.fixture(scope="module")
def site(tools, fairgate, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    # It fails by itself if a link leads nowhere.
    run(sys.executable, PACKAGING / "site/make_site.py", "--fairgate", fairgate, "--mdbook", tools / "bin/mdbook", folder)
    return folder


def test_each_page_is_in_the_navigation(site):
    summary = (site / "src/SUMMARY.md").read_text()
    pages = {path.relative_to(site / "src").as_posix() for path in (site / "src").rglob("*.md")} - {"SUMMARY.md"}
    assert {page for page in pages if f"({page})" not in summary} == set()


def test_search_finds_pages_that_are_made_from_the_program(site):
    index = next((site / "book").glob("searchindex*")).read_text()
    for text in ["fairgate key create", "fairgate_wait_seconds", "budget_exhausted", "queue_timeout"]:
        assert text in index, text


def test_the_schema_knows_the_example_and_refuses_a_slip(site):
    jsonschema = pytest.importorskip("jsonschema")
    import yaml

    schema = json.loads((site / "book/fairgate.schema.json").read_text())
    for file in ["examples/fairgate.yaml", "packaging/etc/fairgate.yaml", "packaging/compose/fairgate.yaml"]:
        jsonschema.validate(yaml.safe_load((ROOT / file).read_text()), schema)
    slip = yaml.safe_load((PACKAGING / "etc/fairgate.yaml").read_text()) | {"lisetn": "127.0.0.1:1"}
    with pytest.raises(jsonschema.ValidationError, match="lisetn"):
        jsonschema.validate(slip, schema)

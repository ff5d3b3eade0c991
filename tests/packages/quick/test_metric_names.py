"""Each metric that an alert, a dashboard or a page names exists, as docs/metrics.md lists them."""

import metric_names
from conftest import PACKAGING, ROOT

FILES = [path for path in PACKAGING.rglob("*") if path.suffix in (".yml", ".yaml", ".json", ".md", ".tpl", ".txt")]
# The Python package has metrics of its own, which its tests know.
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.yaml")]
# Names of other things: the first fields of journals, crates, and a table.
NOT_METRICS = {"fairgate_journal", "fairgate_snapshot", "fairgate_core", "fairgate_gateway", "fairgate_attempts"}


def test_each_metric_that_is_named_exists():
    series = metric_names.series(ROOT)
    families = set(metric_names.listed(ROOT))
    assert len(families) > 60
    wrong = {}
    for path in [*FILES, *PAGES]:
        is_query = path.is_relative_to(PACKAGING) and path.suffix in (".yml", ".json")
        known = series if is_query else series | families
        missing = metric_names.used(path.read_text()) - known - NOT_METRICS
        if missing:
            wrong[path.relative_to(ROOT).as_posix()] = sorted(missing)
    assert not wrong


def test_a_name_is_found_in_a_query_and_not_in_a_pattern():
    used = metric_names.used
    assert used('sum(rate(fairgate_requests_total{pool="a"}[5m])) / fairgate_connections') == {
        "fairgate_requests_total", "fairgate_connections",
    }
    assert used("`fairgate_fleet_webhook_*` and `fairgate_sim.py`") == set()

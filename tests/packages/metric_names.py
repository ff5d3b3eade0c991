"""The metrics that there are, as docs/metrics.md lists them, and the names that a text uses."""

import re

SUFFIXES = {"counter": ["_total"], "info": ["_info"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}
ROW = re.compile(r"^\| `(fairgate_[a-z0-9_]+)` \| (\w+) \|", re.MULTILINE)


def listed(root):
    """Names of families with their types."""
    return dict(ROW.findall((root / "docs/metrics.md").read_text()))


def series(root):
    """Names as queries write them."""
    families = listed(root).items()
    return {name + suffix for name, kind in families for suffix in SUFFIXES[kind]}


def used(text):
    """Names of metrics in a query, a rule or a page. `fairgate_tenant_*` and the like stand for several."""
    return set(re.findall(r"\bfairgate_[a-z0-9_]*[a-z0-9](?![a-z0-9_]*\*)(?![a-z0-9_]*\.)", text))

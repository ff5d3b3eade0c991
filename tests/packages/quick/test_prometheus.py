"""Alerts and dashboards: promtool knows their language, and alerts fire when they should."""

import json
import re

import pytest
import yaml

from conftest import PACKAGING, run

BOARDS = sorted((PACKAGING / "grafana").glob("*.json"))
VARIABLES = {"$__rate_interval": "5m", "$pool": "a", "$tenant": "a", "$project": "a"}


def queries(board):
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    return [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]


def filled(query):
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    assert "$" not in query, query
    return query


def test_rules_are_valid_and_fire_when_they_should(promtool, packaging):
    run(promtool, "check", "rules", "--lint=all", "--lint-fatal", packaging / "prometheus/rules.yml")
    run(promtool, "test", "rules", "rules_test.yml", cwd=packaging / "prometheus")


def test_each_alert_is_tested_and_says_what_to_do(packaging):
    rules = yaml.safe_load((packaging / "prometheus/rules.yml").read_text())
    alerts = [rule for group in rules["groups"] for rule in group["rules"]]
    tested = {test["name"] for test in yaml.safe_load((packaging / "prometheus/rules_test.yml").read_text())["tests"]}
    assert {alert["alert"] for alert in alerts} == tested
    for alert in alerts:
        assert alert["labels"]["severity"] in ("warning", "critical"), alert
        assert set(alert["annotations"]) == {"summary", "action"}, alert


def test_configurations_of_prometheus_are_valid(promtool, packaging, tmp_path):
    text = (packaging / "compose/prometheus.yml").read_text()
    token = tmp_path / "token"
    token.write_text("t")
    text = text.replace("/etc/prometheus/rules.yml", str(packaging / "prometheus/rules.yml"))
    config = tmp_path / "prometheus.yml"
    config.write_text(text.replace("/run/secrets/admin-token", str(token)))
    run(promtool, "check", "config", config)


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_queries_of_dashboards_are_queries(promtool, tmp_path, path):
    rules = [{"record": "q:q", "expr": filled(query)} for _, query in queries(json.loads(path.read_text()))]
    assert len(rules) > 5
    file = tmp_path / "queries.yml"
    groups = [{"name": f"g{number}", "rules": [rule]} for number, rule in enumerate(rules)]
    file.write_text(yaml.safe_dump({"groups": groups}))
    run(promtool, "check", "rules", file)


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.stem)
def test_dashboards_are_whole(path):
    board = json.loads(path.read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    assert board["uid"] == f"fairgate-{path.stem}"
    cells = set()
    for panel in board["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not own & cells, panel["title"]
        cells |= own
    declared = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps([panel.get("targets") for panel in board["panels"]])))
    assert used <= declared

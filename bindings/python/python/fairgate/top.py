"""A running program's agents, in the terminal: what ``fairgate.enable_prometheus()`` serves, as a table."""

from __future__ import annotations

import re
import sys
import time
import urllib.error
import urllib.request
from collections import defaultdict
from dataclasses import dataclass

_SAMPLE = re.compile(r"^(\w+)\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ROWS_MAX = 40


@dataclass(frozen=True)
class Row:
    """One agent of one scheduler."""

    scheduler: str
    agent: str
    waiting: int
    in_flight: int
    grants: int
    tokens: int


def top(url: str, interval: float, count: int | None) -> int:
    """Shows the table again and again."""
    if not url.rstrip("/").endswith("/metrics"):
        url = url.rstrip("/") + "/metrics"
    before: dict[tuple[str, str], Row] = {}
    looks = 0
    while count is None or looks < count:
        if looks:
            time.sleep(interval)
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                text = answer.read().decode()
        except (urllib.error.URLError, OSError) as error:
            print(f"cannot read {url}: {error}. The program must call fairgate.enable_prometheus() first", file=sys.stderr)
            return 1
        rows = rows_of(text)
        clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() and looks else ""
        print(clear + table(rows, before, interval), flush=True)
        before = {(row.scheduler, row.agent): row for row in rows}
        looks += 1
    return 0


def rows_of(text: str) -> list[Row]:
    """The agents in a text of metrics, those with the most waiting first."""
    values: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in text.splitlines():
        found = _SAMPLE.match(line)
        labels = dict(_LABEL.findall(found[2])) if found else {}
        if found and "agent" in labels:
            values[labels["scheduler"], labels["agent"]][found[1]] += float(found[3])
    rows = [
        Row(
            scheduler,
            agent,
            int(its["fairgate_waiting_requests"] + its["fairgate_waiting_for_budget_requests"]),
            int(its["fairgate_in_flight_requests"]),
            int(its["fairgate_grants_total"]),
            int(its["fairgate_tokens_total"]),
        )
        for (scheduler, agent), its in values.items()
    ]
    return sorted(rows, key=lambda row: (-row.waiting, -row.in_flight, -row.grants, row.scheduler, row.agent))


def table(rows: list[Row], before: dict[tuple[str, str], Row], seconds: float) -> str:
    """The rows as text; what happened since the last look as rates."""
    lines = [f"{'scheduler':12} {'agent':24} {'waiting':>8} {'in flight':>9} {'grants':>9} {'/s':>7} {'tokens':>12} {'/s':>9}"]
    for row in rows[:_ROWS_MAX]:
        last = before.get((row.scheduler, row.agent), row)
        grants, tokens = (row.grants - last.grants) / seconds, (row.tokens - last.tokens) / seconds
        lines.append(
            f"{row.scheduler[:12]:12} {row.agent[:24]:24} {row.waiting:>8} {row.in_flight:>9} {row.grants:>9} {grants:>7.1f} "
            f"{row.tokens:>12} {tokens:>9.0f}"
        )
    if len(rows) > _ROWS_MAX:
        lines.append(f"and {len(rows) - _ROWS_MAX} more")
    return "\n".join(lines)

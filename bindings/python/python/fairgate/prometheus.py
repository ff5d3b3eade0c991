"""A snapshot as Prometheus reads it: the text exposition format, version 0.0.4."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Union

from .cost import Cost
from .snapshot import AgentSnapshot, Snapshot

Labels = tuple[tuple[str, str], ...]
Sample = tuple[str, Labels, Union[int, float]]


#: How agents and models are called that have no label of their own.
OTHER = "other"


def exposition(snapshot: Snapshot, costs: Iterable[Cost], name: str, max_agents: int) -> str:
    """All metrics of a scheduler, each labelled with its name; of agents, those with the most grants and the rest as one."""
    snapshot, costs = bounded(snapshot, costs, max_agents)
    lines: list[str] = []
    for metric, kind, text, samples in _metrics(snapshot, costs):
        lines.append(f"# HELP {metric} {text}")
        lines.append(f"# TYPE {metric} {kind}")
        for suffix, labels, value in samples:
            lines.append(f"{metric}{suffix}{_labels((('scheduler', name), *labels))} {_number(value)}")
    return "\n".join(lines) + "\n"


def bounded(snapshot: Snapshot, costs: Iterable[Cost], most: int) -> tuple[Snapshot, list[Cost]]:
    """The same with at most so many agents, and so many pairs of agent and model: the rest is summed up."""
    by_grants = sorted(snapshot.agents.values(), key=lambda agent: (-agent.grants, agent.name))
    kept, rest = by_grants[:most], by_grants[most:]
    agents = {agent.name: agent for agent in sorted(kept, key=lambda agent: agent.name)}
    if rest:
        agents[OTHER] = _sum(rest, agents.pop(OTHER, None))
    sums: dict[tuple[str, str], int] = {}
    for cost in sorted(costs, key=lambda cost: -cost.tokens):
        agent = cost.agent if cost.agent in agents else OTHER
        key = (agent, cost.model)
        if key not in sums and len(sums) >= 4 * most:
            key = (OTHER, OTHER)
        sums[key] = sums.get(key, 0) + cost.tokens
    pairs = [Cost(agent, model, 0, tokens, 0, 0, None) for (agent, model), tokens in sorted(sums.items())]
    return replace(snapshot, agents=agents), pairs


def _sum(agents: list[AgentSnapshot], own: AgentSnapshot | None) -> AgentSnapshot:
    parts = agents if own is None else [*agents, own]
    refusals: Counter[str] = Counter()
    waits: Counter[float] = Counter()
    for each in parts:
        refusals.update(each.refusals)
        waits.update(each.waits)
    return AgentSnapshot(
        name=OTHER,
        waiting=sum(each.waiting for each in parts),
        waiting_for_budget=sum(each.waiting_for_budget for each in parts),
        in_flight=sum(each.in_flight for each in parts),
        depth=sum(each.depth for each in parts),
        oldest_age_ticks=None,
        grants=sum(each.grants for each in parts),
        withdrawals=sum(each.withdrawals for each in parts),
        refusals=dict(sorted(refusals.items())),
        waited=sum(each.waited for each in parts),
        waits=dict(sorted(waits.items())),
    )


def _metrics(
    snapshot: Snapshot, costs: Iterable[Cost]
) -> Iterator[tuple[str, str, str, list[Sample]]]:
    agents = list(snapshot.agents.values())

    def each(attribute: str) -> list[Sample]:
        return [("", (("agent", a.name),), getattr(a, attribute)) for a in agents]

    yield "fairgate_capacity_slots", "gauge", "Requests that may hold a slot at once.", [
        ("", (), snapshot.capacity)
    ]
    yield "fairgate_in_flight_requests", "gauge", "Requests that hold a slot.", each("in_flight")
    yield "fairgate_waiting_requests", "gauge", "Requests that wait for a slot.", each("waiting")
    yield (
        "fairgate_waiting_for_budget_requests",
        "gauge",
        "Requests that wait until their agent's budget allows for them.",
        each("waiting_for_budget"),
    )
    yield "fairgate_depth_weight", "gauge", "Summed weights of what waits for a slot.", each("depth")
    yield "fairgate_ticks_total", "counter", "Granted requests that have ended.", [
        ("", (), snapshot.ticks)
    ]
    if snapshot.alpha is not None:
        yield "fairgate_alpha_ratio", "gauge", "The load function's trade-off now.", [
            ("", (), snapshot.alpha)
        ]
    if snapshot.provider is not None:
        limits = (("requests", snapshot.provider.requests_per_minute), ("tokens", snapshot.provider.tokens_per_minute))
        yield "fairgate_provider_limit_per_minute", "gauge", "The provider's limits, as far as they are known.", [
            ("", (("counted", counted),), limit) for counted, limit in limits if limit is not None
        ]
        yield "fairgate_provider_paused_seconds", "gauge", "For how long nothing is granted, at the provider's request.", [
            ("", (), snapshot.provider.paused)
        ]
        yield "fairgate_provider_limits_met_total", "counter", "Calls that the provider refused because of a limit.", [
            ("", (), snapshot.provider.limits_met)
        ]
    yield "fairgate_grants_total", "counter", "Requests that were granted a slot.", each("grants")
    yield (
        "fairgate_withdrawals_total",
        "counter",
        "Requests that were cancelled or timed out before they ran.",
        each("withdrawals"),
    )
    yield "fairgate_refusals_total", "counter", "Requests that were refused, by reason.", [
        ("", (("agent", a.name), ("reason", reason)), count)
        for a in agents
        for reason, count in a.refusals.items()
    ]
    yield (
        "fairgate_wait_seconds",
        "histogram",
        "How long granted requests waited for their slot.",
        [sample for a in agents for sample in _histogram(a)],
    )
    yield (
        "fairgate_tokens_total",
        "counter",
        "Tokens that ended requests were charged, by agent and model.",
        [("", (("agent", c.agent), ("model", c.model)), c.tokens) for c in costs],
    )
    services = [(a.name, a.service) for a in agents if a.service is not None]
    for metric, text, attribute in (
        ("fairgate_got_tokens", "What an agent was served, under a policy that divides tokens.", "got"),
        ("fairgate_due_tokens", "What that agent's weight made it due.", "due"),
        ("fairgate_difference_bound_tokens", "The most that got should differ from due.", "bound"),
    ):
        yield metric, "gauge", text, [
            ("", (("agent", agent),), getattr(service, attribute)) for agent, service in services
        ]
    budgets = [(a.name, a.budget) for a in agents if a.budget is not None]
    yield "fairgate_budget_tokens", "gauge", "An agent's budget, and what became of it.", [
        ("", (("agent", agent), ("part", part)), getattr(budget, part))
        for agent, budget in budgets
        for part in ("limit", "spent", "reserved")
    ]


def _histogram(agent: AgentSnapshot) -> Iterator[Sample]:
    label = ("agent", agent.name)
    total = 0
    for end, count in agent.waits.items():
        total += count
        yield "_bucket", (label, ("le", "+Inf" if end == float("inf") else f"{end:g}")), total
    yield "_sum", (label,), agent.waited
    yield "_count", (label,), agent.grants


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: int | float) -> str:
    return str(value) if isinstance(value, int) else repr(value)

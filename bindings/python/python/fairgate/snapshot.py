"""A scheduler at one moment, as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class BudgetSnapshot:
    """An agent's budget. All in tokens."""

    limit: int
    #: What ended requests used.
    spent: int
    #: What requests that wait for a slot or hold one expect to use.
    reserved: int

    @property
    def left(self) -> int:
        """What is neither spent nor reserved; below 0 where requests used more than they expected."""
        return self.limit - self.spent - self.reserved


@dataclass(frozen=True)
class ServiceSnapshot:
    """What an agent got beside what its weight made it due. All in tokens.

    Counted while it has calls waiting or running, and kept from then on where the policy names its weight; an agent
    that no policy names starts again at 0 when it comes back.
    """

    #: What it was served: estimates when calls are granted, corrected to what they really used when they end.
    got: int
    #: Its part, by weight, of everything that was served while it could have gone.
    due: int
    #: The most that ``got`` should differ from ``due``. ``share`` keeps to it; under ``drr`` an agent that is further
    #: off shows that quanta are not shares.
    bound: int

    @property
    def difference(self) -> int:
        """``got - due``: above 0 it is ahead of its share, below 0 behind."""
        return self.got - self.due

    @property
    def within_bound(self) -> bool:
        """Whether it is as near to its share as it should be."""
        return abs(self.difference) <= self.bound


@dataclass(frozen=True)
class ProviderSnapshot:
    """What is known of the provider's limits: the lower of what the program and the provider state."""

    #: None where there is no such limit, as far as is known.
    requests_per_minute: int | None
    tokens_per_minute: int | None
    #: For how many seconds nothing is granted now, because the provider asked for that.
    paused: float
    #: How often it refused a call because of a limit.
    limits_met: int


@dataclass(frozen=True)
class AgentSnapshot:
    """One agent that has ever asked for a slot."""

    name: str
    #: Requests that wait for a slot.
    waiting: int
    #: Requests that wait until the budget allows for them.
    waiting_for_budget: int
    #: Requests that hold a slot.
    in_flight: int
    #: The summed weights of what waits for a slot: Q of the load function.
    depth: float
    #: Ticks since the oldest request that waits for a slot came: D of the load function; None where none waits.
    oldest_age_ticks: int | None
    #: How often it was granted a slot.
    grants: int
    #: How often a request left by itself before it ran: cancelled or timed out.
    withdrawals: int
    #: How often it was refused, by code.
    refusals: dict[str, int]
    #: How long granted requests waited together, in seconds.
    waited: float
    #: How many granted requests waited how long: counts by upper end in seconds, the last one without end.
    waits: dict[float, int]
    budget: BudgetSnapshot | None = None
    #: Under a policy that divides tokens among agents (``share``, ``drr``); None under ``load`` and ``bands``, which
    #: promise no shares: what they served is in :meth:`fairgate.Scheduler.fairness`.
    service: ServiceSnapshot | None = None


@dataclass(frozen=True)
class Snapshot:
    """A scheduler at one moment. Taking one changes nothing."""

    capacity: int
    #: Requests that hold a slot.
    in_flight: int
    #: Requests that wait for a slot.
    waiting: int
    #: Requests that wait until a budget allows for them.
    waiting_for_budget: int
    #: How many may wait.
    max_waiting: int
    #: How many granted requests have ended.
    ticks: int
    #: The load function's trade-off now; None under a policy whose root is not ``load``.
    alpha: float | None
    closed: bool
    #: None where nothing is known of the provider's limits.
    provider: ProviderSnapshot | None = None
    #: By name.
    agents: dict[str, AgentSnapshot] = field(default_factory=dict)


def snapshot_of(report: dict[str, Any]) -> Snapshot:
    """What the native part counted, in Python's units: seconds, weights, plain numbers."""
    ends = [end / 1e6 for end in report["wait_buckets_us"]] + [float("inf")]
    alpha = report["alpha_millionths"]
    return Snapshot(
        capacity=report["capacity"],
        in_flight=report["in_flight"],
        waiting=report["waiting"],
        waiting_for_budget=report["waiting_for_budget"],
        max_waiting=report["max_waiting"],
        ticks=report["ticks"],
        alpha=None if alpha is None else alpha / 1e6,
        closed=report["closed"],
        provider=_provider(report["provider"]),
        agents={agent["name"]: _agent(agent, ends) for agent in report["agents"]},
    )


def _provider(its: dict[str, Any] | None) -> ProviderSnapshot | None:
    if its is None:
        return None
    return ProviderSnapshot(
        its["requests_per_minute"], its["tokens_per_minute"], its["paused_us"] / 1e6, its["limits_met"]
    )


def _agent(agent: dict[str, Any], ends: list[float]) -> AgentSnapshot:
    budget, service = agent["budget"], agent["service"]
    return AgentSnapshot(
        name=agent["name"],
        waiting=agent["waiting"],
        waiting_for_budget=agent["waiting_for_budget"],
        in_flight=agent["in_flight"],
        depth=agent["depth_thousandths"] / 1000,
        oldest_age_ticks=agent["oldest_age_ticks"],
        grants=agent["grants"],
        withdrawals=agent["withdrawals"],
        refusals=agent["refusals"],
        waited=agent["waited_us"] / 1e6,
        waits=dict(zip(ends, agent["waits"])),
        budget=None if budget is None else BudgetSnapshot(**budget),
        service=None if service is None else ServiceSnapshot(**service),
    )

"""Policies by name: from what :class:`fairgate.Scheduler` is told to the JSON tree that the core reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union

from .fields import mapping

OptimizeFor = Literal["latency", "balanced", "throughput"]
PolicyName = Literal["load", "share", "drr", "bands"]
#: A policy by name, as a JSON tree, or as the text of one.
Policy = Union[PolicyName, Mapping[str, Any], str]
#: The order of the calls of one agent: first come, first served; smallest first; earliest deadline first.
QueueOrder = Literal["fcfs", "wspt", "edf"]
#: The same, or a mapping with ``order`` and ``max_wait_us``.
Queue = Union[QueueOrder, Mapping[str, Any]]

#: Which options a policy that is named takes.
_OPTIONS: dict[str, tuple[str, ...]] = {
    "load": ("optimize_for", "alpha", "auto_tune", "max_wait_ticks", "queue"),
    "share": ("weights", "caps", "queue"),
    "drr": ("weights", "queue"),
    "bands": ("bands", "caps", "queue"),
}
#: What a queue may be.
_QUEUE = 'the name of an order such as "edf", or a dict'
#: Why some options are refused, where that needs words.
_REASONS = {
    ("load", "weights"): "the load policy has none; weigh single requests with slot(…, weight=…)",
    ("bands", "weights"): "strict priority has none; bands=[…] states the order, caps={…} leaves slots for those below",
}


def policy_text(
    policy: Policy,
    *,
    optimize_for: OptimizeFor | None = None,
    alpha: float | None = None,
    auto_tune: bool = False,
    max_wait_ticks: int | None = None,
    weights: Mapping[str, int] | None = None,
    bands: Sequence[str] | None = None,
    caps: Mapping[str, int] | None = None,
    queue: Queue | None = None,
) -> str:
    """The policy's JSON text. What does not go with the policy is a ValueError."""
    options: dict[str, Any] = {
        "optimize_for": optimize_for,
        "alpha": alpha,
        "auto_tune": auto_tune or None,
        "max_wait_ticks": max_wait_ticks,
        "weights": dict(mapping("weights", weights, "a dict of agents and weights")) or None,
        "bands": bands,
        "caps": dict(mapping("caps", caps, "a dict of agents and slots")) or None,
        "queue": queue if queue is None or isinstance(queue, str) else dict(mapping("queue", queue, _QUEUE)),
    }
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(policy, str) and policy in _OPTIONS:
        _check_options(policy, given)
        return _json(given, {policy: {"by": "agent", **_fields(policy, given)}})
    if given:
        raise ValueError(f"{', '.join(given)}: a policy tree states its own")
    if isinstance(policy, str):
        if not policy.lstrip().startswith("{"):
            raise ValueError(f'policy must be "load", "share", "drr", "bands" or a JSON tree, not {policy!r}')
        return policy
    return _json({"policy": policy}, policy)


def _json(options: Mapping[str, Any], tree: object) -> str:
    """The tree as JSON. An option that cannot be written is named in the error."""
    for name, value in options.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} must be made of numbers, strings, lists and dicts, not {value!r}: {error}") from None
    return json.dumps(tree)


def _check_options(policy: str, given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in _OPTIONS[policy]:
            fitting = " or ".join(f'"{kind}"' for kind, options in _OPTIONS.items() if name in options)
            raise ValueError(f"{name}: " + _REASONS.get((policy, name), f"only for policy={fitting}"))


def _fields(policy: str, given: dict[str, Any]) -> dict[str, Any]:
    """The fields of a node by agent."""
    if policy == "drr":
        weights = given.pop("weights", None)
        if not weights:
            raise ValueError(
                'policy="drr" needs weights={agent: tokens per round, …}; the first also takes all other agents'
            )
        return {"classes": [{"name": name, "quantum": quantum} for name, quantum in weights.items()], **given}
    if policy == "bands":
        names, caps = given.pop("bands", None), given.pop("caps", {})
        if not names or isinstance(names, str):
            raise ValueError(
                'policy="bands" needs bands=[agent, …], the first before all others; the last also takes all other agents'
            )
        unknown = [name for name in caps if name not in names]
        if unknown:
            raise ValueError(f"caps: {unknown[0]!r} is none of bands")
        classes = [{"name": name, **({"cap": caps[name]} if name in caps else {})} for name in names]
        return {"classes": classes, "default": names[-1], **given}
    return given

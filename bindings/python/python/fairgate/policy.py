"""Policies by name: from what :class:`fairgate.Scheduler` is told to the JSON tree that the core reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, Union

OptimizeFor = Literal["latency", "balanced", "throughput"]
PolicyName = Literal["load", "share", "drr"]
#: A policy by name, as a JSON tree, or as the text of one.
Policy = Union[PolicyName, Mapping[str, Any], str]


def policy_text(
    policy: Policy,
    *,
    optimize_for: OptimizeFor | None = None,
    alpha: float | None = None,
    auto_tune: bool = False,
    max_wait_ticks: int | None = None,
    weights: Mapping[str, int] | None = None,
) -> str:
    """The policy's JSON text. What does not go with the policy is a ValueError."""
    load_options = {
        "optimize_for": optimize_for,
        "alpha": alpha,
        "auto_tune": auto_tune or None,
        "max_wait_ticks": max_wait_ticks,
    }
    given = {name: value for name, value in load_options.items() if value is not None}
    if policy == "load":
        if weights:
            raise ValueError(
                "weights: the load policy has none; weigh single requests with slot(…, weight=…)"
            )
        return json.dumps({"load": {"by": "agent", **given}})
    if given:
        raise ValueError(f"{', '.join(given)}: only for policy=\"load\"")
    if policy == "share":
        return json.dumps({"share": {"by": "agent", "weights": dict(weights or {})}})
    if policy == "drr":
        if not weights:
            raise ValueError(
                'policy="drr" needs weights={agent: tokens per round, …}; the first also takes all other agents'
            )
        classes = [{"name": name, "quantum": quantum} for name, quantum in weights.items()]
        return json.dumps({"drr": {"by": "agent", "classes": classes}})
    if weights:
        raise ValueError("weights: a policy tree states its own")
    if isinstance(policy, str):
        if not policy.lstrip().startswith("{"):
            raise ValueError(f'policy must be "load", "share", "drr" or a JSON tree, not {policy!r}')
        return policy
    return json.dumps(policy)

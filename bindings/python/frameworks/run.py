"""Runs a recipe of docs/python/frameworks.md as it is printed: `cargo xtask test frameworks`.

The recipe finds its provider through the environment, as it would in production. It runs twice: with a provider without
limits, and with one that allows less than the recipe asks for at once. Both times it must leave a `scheduler` that has
granted each of the recipe's calls once and has nothing under way, with what was used settled; the provider must never
have seen more calls at once than the scheduler's capacity; and nothing may have gone anywhere but to the provider.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import loopback
from provider import OUTPUT_TOKENS, Provider, running_provider

PAGE = Path(__file__).parents[3] / "docs" / "python" / "frameworks.md"
#: How many calls each recipe makes, half of them for each of its agents.
CALLS = 6
AGENTS = {"ada", "bob"}
#: A request every two seconds, none saved up. The first call is refused in any case: packages that are slow to start may keep
#: to the limit by themselves.
LIMITS = ("--requests-per-minute=30", "--burst-seconds=2")


def recipe(name: str) -> str:
    """The program below the mark of that name."""
    found = re.search(rf"^<!-- recipe: {re.escape(name)} -->\n+```py\n(.*?)^```$", PAGE.read_text(), re.M | re.S)
    if found is None:
        raise SystemExit(f"{PAGE.name} has no recipe for {name}")
    return found[1]


def environment(url: str) -> dict[str, str]:
    """Where each package looks for its provider and its key."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
        "OPENAI_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GOOGLE_API_KEY": "none",
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url,
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_DEFAULT_REGION": "us-east-1",
        # Nothing is sent anywhere else.
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_DISABLE_TRACKING": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "OTEL_SDK_DISABLED": "true",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
    }


def versions(name: str) -> str:
    """The packages that the recipe's list names, as they are installed."""
    lines = (Path(__file__).parent / f"{name}.txt").read_text().splitlines()
    packages = [re.split(r"[\[=]", line)[0] for line in lines if line and not line.startswith("#")]
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)


def main(name: str) -> None:
    program = compile(recipe(name), f"{PAGE.name}, recipe {name}", "exec")
    print(f"{name}: {versions(name)}", flush=True)
    loopback.allow_nothing_else()
    for kind, options in (("no limit", ()), ("limited", LIMITS)):
        with running_provider(*options, refusals=1 if options else 0) as provider:
            os.environ.update(environment(provider.url))
            names: dict[str, Any] = {"__name__": "__main__"}
            start = time.monotonic()
            exec(program, names)
            took = time.monotonic() - start
        gc.collect()
        print(f"{name}, {kind}: {took:.1f} s, {provider}", flush=True)
        check(names["scheduler"], provider)
        assert bool(options) == bool(provider.refused), "a limit is there to be met"


def check(scheduler: Any, provider: Provider) -> None:
    now = scheduler.snapshot()
    assert (now.in_flight, now.waiting) == (0, 0), now
    assert provider.most_at_once <= now.capacity, provider
    assert not provider.not_understood, provider
    assert not loopback.attempts, loopback.attempts
    # Each call was sent once, and again by the scheduler where it was refused. A retry of the package's own would be a call more.
    assert provider.calls == CALLS + provider.refused, provider
    assert sum(agent.grants for agent in now.agents.values()) == provider.calls, (now, provider)
    assert provider.refused == (now.provider.limits_met if now.provider else 0), now
    costs = {cost.agent: cost for cost in scheduler.costs()}
    assert set(costs) == AGENTS and len(costs) == len(scheduler.costs()), scheduler.costs()
    for cost in costs.values():
        assert (cost.requests, cost.output_tokens) == (CALLS // 2, CALLS // 2 * OUTPUT_TOKENS), cost
    assert sum(cost.input_tokens for cost in costs.values()) == provider.prompt_tokens > 0, (costs, provider)


if __name__ == "__main__":
    main(sys.argv[1])

"""The package decides as a plain reading of the specification does."""

from __future__ import annotations

from typing import Any

from desk import Desk
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import LoadNode

AGENTS = st.sampled_from("abcde")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), AGENTS, st.integers(1, 5000)),
        st.tuples(st.just("ask"), AGENTS, st.just(1000)),
        st.tuples(st.just("release"), st.integers(0, 3)),
        st.tuples(st.just("cancel"), st.integers(0, 10)),
        st.tuples(st.just("hold"), AGENTS),
        st.tuples(st.just("resume"), AGENTS),
    ),
    max_size=120,
)
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "alpha": st.integers(0, 1_000_000).map(lambda millionths: millionths / 1_000_000),
        "auto_tune": st.booleans(),
        "max_wait_ticks": st.integers(0, 12),
    },
)


@settings(max_examples=400)
@given(capacity=st.integers(1, 3), policy=POLICIES, steps=STEPS)
def test_grants_are_those_of_the_specification(
    capacity: int, policy: dict[str, Any], steps: list[Any]
) -> None:
    desk = Desk(capacity, **policy)
    plain = LoadNode(
        capacity,
        alpha=round(policy.get("alpha", 0.25) * 1_000_000),
        auto_tune=policy.get("auto_tune", False),
        max_wait_ticks=policy.get("max_wait_ticks"),
    )
    for step in steps:
        take(step, desk, plain)
        report = desk.gate.report()
        assert sorted(desk.granted) == sorted(plain.granted)
        assert report["waiting"] == len(plain.waiting)
        assert report["ticks"] == plain.ticks
        assert report["alpha_millionths"] == plain.alpha
        agents = {a["name"]: a for a in report["agents"]}
        for name in {r.agent for r in plain.waiting}:
            assert agents[name]["depth_thousandths"] == plain.depth(name)
            assert agents[name]["oldest_age_ticks"] == plain.age(name)
    while plain.in_flight:
        id = plain.in_flight[0]
        desk.release(id)
        plain.release(id)
        if capacity == 1:
            assert desk.granted == plain.granted
    assert sorted(desk.granted) == sorted(plain.granted)


def take(step: Any, desk: Desk, plain: LoadNode) -> None:
    match step:
        case ("ask", agent, thousandths):
            id = desk.ask(agent, thousandths / 1000)
            plain.submit(id, agent, thousandths)
        case ("release", n) if plain.in_flight:
            id = plain.in_flight[n % len(plain.in_flight)]
            desk.release(id)
            plain.release(id)
        case ("cancel", n) if plain.waiting:
            id = plain.waiting[n % len(plain.waiting)].id
            desk.cancel(id)
            plain.cancel(id)
        case ("hold", agent):
            desk.gate.hold("agent", agent)
            plain.hold(agent)
        case ("resume", agent):
            desk.gate.resume("agent", agent)
            desk._look()
            plain.resume(agent)
        case _:
            pass

"""A value that is wrong is refused with an error that names its field."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fairgate

#: Values of which no field takes all.
WRONG: list[Any] = [
    "x",
    -1,
    1.5,
    None,
    [],
    {},
    {"a": "x"},
    {"a": -1},
    {"a": 1.5},
    {"a": None},
    {1: 2},
    {"requests": "x"},
    {"requests": object()},
    ["a", 1],
    object(),
    True,
    float("nan"),
    2**70,
]


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path: Path) -> Iterator[None]:
    """Journals are written here."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield
    os.chdir(before)


def names(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def unnamed(name: str, use: Callable[..., object]) -> list[str]:
    """The errors that do not name the field, of all wrong values."""
    found = []
    for value in WRONG:
        try:
            use(**{name: value})
        except (TypeError, ValueError) as error:
            if name not in str(error):
                found.append(f"{value!r}: {error}")
    return found


@pytest.mark.parametrize("name", names(fairgate.Scheduler.__init__))
def test_options_of_a_scheduler(name: str) -> None:
    assert unnamed(name, fairgate.Scheduler) == []


@pytest.mark.parametrize("name", ["agent", "weight", "cost", "priority", "timeout", "model", "attributes", "explain"])
def test_options_of_a_slot(name: str) -> None:
    scheduler = fairgate.Scheduler()

    def acquire(**options: Any) -> None:
        scheduler.acquire_blocking(**{"agent": "a", **options}).release()

    # Attributes that are known by another name than that of the option are named as they are.
    errors = [error for error in unnamed(name, acquire) if "is no attribute; there are" not in error]
    assert errors == []
    with pytest.raises(TypeError, match=r"attributes\[\"class\"\] must be a string, not 5"):
        acquire(attributes={"class": 5})


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("set_rates", "rates"),
        ("set_weight", "agent"),
        ("set_weight", "weight"),
        ("set_cap", "agent"),
        ("set_cap", "slots"),
        ("hold", "agent"),
        ("resume", "agent"),
        ("set_budget", "agent"),
        ("set_budget", "budget"),
        ("set_policy", "policy"),
        ("explain", "slot"),
    ],
)
def test_changes_of_a_scheduler(method: str, name: str) -> None:
    fitting = {"agent": "a", "weight": 1, "slots": 1, "budget": 1}
    change = getattr(fairgate.Scheduler(policy="share"), method)
    others = {other: fitting[other] for other in names(change) if other in fitting}
    assert unnamed(name, lambda **options: change(**{**others, **options})) == []


@pytest.mark.parametrize("kind", [fairgate.Budget, fairgate.Price])
def test_budgets_and_prices(kind: Callable[..., Any]) -> None:
    fitting = {"tokens": 5} if kind is fairgate.Budget else {"input": 1, "output": 1}
    for name in names(kind):
        assert unnamed(name, lambda **options: kind(**{**fitting, **options})) == []


def test_an_error_says_what_the_value_must_be() -> None:
    with pytest.raises(TypeError, match="capacity must be 1 slot or more, as a whole number, not '4'"):
        fairgate.Scheduler(capacity="4")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"budgets\['a'\] must be 0 tokens or more, as a whole number, not 'x'"):
        fairgate.Scheduler(budgets={"a": "x"})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="timeout must be a number of seconds or None, not '5'"):
        fairgate.Scheduler().slot("a", timeout="5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="priority must be between"):
        fairgate.Scheduler().slot("a", priority=2**63)

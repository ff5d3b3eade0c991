"""How the native gate wakes: without its lock, once, and again where it was interrupted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairgate._core import Gate

POLICY = '{"load":{"by":"agent"}}'


class Future:
    """A future whose every call is seen."""

    def __init__(self, on_result: Callable[[], object]) -> None:
        self.results: list[object] = []
        self._on_result = on_result

    def done(self) -> bool:
        return bool(self.results)

    def set_result(self, result: object) -> None:
        self._on_result()
        self.results.append(result)


def ask(gate: Gate, id: int, future: Any) -> object:
    outcome = gate.ask(id, "a", 1.0, None, 0, None, 0, 0)
    return gate.wait(id, future, object()) if outcome is None else outcome  # type: ignore[arg-type]


def test_whoever_is_woken_may_call_back() -> None:
    gate = Gate(POLICY, 1, 10, None, print)
    seen: list[Any] = []

    def on_result() -> None:
        # The gate's lock is free here, and what is seen is the state after the whole event.
        seen.append(gate.report()["in_flight"])
        gate.release(2)

    second, third = Future(on_result), Future(lambda: seen.append("third"))
    assert ask(gate, 1, None) == 0
    assert ask(gate, 2, second) is None
    assert ask(gate, 3, third) is None
    gate.release(1)
    assert seen == [1, "third"]
    assert len(second.results) == len(third.results) == 1


def test_an_interrupt_while_waking_loses_nobody() -> None:
    gate = Gate(POLICY, 1, 10, None, print)
    interrupts = [KeyboardInterrupt()]

    def on_result() -> None:
        if interrupts:
            raise interrupts.pop()

    future = Future(on_result)
    assert ask(gate, 1, None) == 0
    assert ask(gate, 2, future) is None
    with pytest.raises(KeyboardInterrupt):
        gate.release(1)
    assert future.results == [] and gate.report()["in_flight"] == 1
    # Whatever is called next delivers what is left.
    gate.release(99)
    assert len(future.results) == 1


def test_who_cannot_be_woken_is_passed_over() -> None:
    gate = Gate(POLICY, 1, 10, None, print)

    def on_result() -> None:
        raise RuntimeError("Event loop is closed")

    heard = Future(lambda: None)
    assert ask(gate, 1, None) == 0
    assert ask(gate, 2, Future(on_result)) is None
    assert ask(gate, 3, heard) is None
    gate.release(1)
    assert len(heard.results) == 1
    assert gate.report()["in_flight"] == 1


def test_late_and_unknown_ends_are_no_error() -> None:
    gate = Gate(POLICY, 1, 10, None, print)
    assert ask(gate, 1, None) == 0
    for _ in range(2):
        gate.release(1)
        gate.cancel(1)
        assert not gate.withdraw(1)
        gate.set_owner(1, 5)
    assert gate.report()["in_flight"] == 0
    assert gate.report()["ticks"] == 1

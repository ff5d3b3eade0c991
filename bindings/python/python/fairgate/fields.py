"""Checks of what a program gives, with errors that name the field."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from numbers import Real
from typing import Any

#: The largest number that the native part can keep.
_WHOLE_MAX = 2**64 - 1


def whole(name: str, given: object, unit: str, at_least: int = 0) -> int:
    """Returns a whole number of ``unit``. Booleans and floats are refused."""
    wanted = " ".join(f"{name} must be {at_least} {unit} or more".split())
    try:
        if isinstance(given, (bool, float)):
            raise TypeError
        number = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"{wanted}, as a whole number, not {given!r}") from None
    if number < at_least:
        raise ValueError(f"{wanted}, not {given!r}")
    if number > _WHOLE_MAX:
        raise ValueError(f"{wanted}, below 2^64, not {given!r}")
    return number


def number(name: str, given: object, wanted: str) -> float:
    """Returns a number. ``wanted`` says in the error what it must be."""
    if isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError(f"{name} must be {wanted}, not {given!r}")
    return float(given)


def mapping(name: str, given: object, wanted: str) -> Mapping[Any, Any]:
    """Returns a mapping, which is empty for None."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{name} must be {wanted}, not {given!r}")
    return given


def text(name: str, given: object) -> str:
    """Returns a string."""
    if not isinstance(given, str):
        raise TypeError(f"{name} must be a string, not {given!r}")
    return given

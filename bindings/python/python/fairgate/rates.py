"""A provider's limits as people write them: ``{"requests": "500/min", "tokens": "200k/min"}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Union

from .fields import mapping

#: Requests or tokens per minute, as a number, or with their time as a text such as ``"20/s"`` or ``"1.5M/hour"``.
Rate = Union[int, str]

_RATE = re.compile(r"\s*(\d+(?:[._]\d+)*)\s*([kKmM]?)\s*/\s*(s|sec|second|m|min|minute|h|hour)\s*")
_TIMES = {"": 1, "k": 1_000, "m": 1_000_000}
_PER_MINUTE = {"s": Decimal(60), "m": Decimal(1), "h": Decimal(1) / 60}
_COUNTED = ("requests", "tokens")


def per_minute(rates: Mapping[str, Rate] | None) -> tuple[int | None, int | None]:
    """Requests and tokens per minute; what is not stated is None."""
    rates = mapping("rates", rates, 'a dict such as {"requests": "500/min"}')
    unknown = set(rates) - set(_COUNTED)
    if unknown:
        raise ValueError(f"rates: there are requests and tokens, not {', '.join(sorted(map(repr, unknown)))}")
    requests, tokens = (None if rates.get(name) is None else _rate(name, rates[name]) for name in _COUNTED)
    return requests, tokens


def _rate(name: str, given: Rate) -> int:
    if isinstance(given, int) and not isinstance(given, bool):
        rate = Decimal(given)
    else:
        found = _RATE.fullmatch(given) if isinstance(given, str) else None
        if found is None:
            raise ValueError(
                f'rates[{name!r}] must be a number per minute, or a text such as "500/min", "20/s" or "200k/min", not {given!r}'
            )
        number, times, time = found.groups()
        rate = Decimal(number.replace("_", "")) * _TIMES[times.lower()] * _PER_MINUTE[time[0]]
    if not 1 <= rate < 2**63:
        raise ValueError(f"rates[{name!r}] must be 1 or more a minute, not {given!r}")
    return int(rate)

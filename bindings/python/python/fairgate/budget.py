"""What an agent may spend, and when somebody is told that it is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Union

from .fields import number, whole

Calendar = Literal["minute", "hour", "day", "week", "month"]
_CALENDAR = ("minute", "hour", "day", "week", "month")


@dataclass(frozen=True)
class Budget:
    """How many tokens an agent may use, and what becomes of a request for which too few are left."""

    tokens: int
    #: ``"reject"``: the request fails with :class:`fairgate.BudgetExceeded`. ``"wait"``: it waits until requests that
    #: used less than they expected, a new period, or a larger budget, leave enough for it.
    when_exhausted: Literal["reject", "wait"] = "reject"
    #: For which time: a period of the calendar in UTC (weeks begin on Monday), or a number of seconds that rolls: what was
    #: used longer ago does not count. For ever where None.
    per: Union[Calendar, float, None] = None
    #: Parts of the tokens, such as ``(0.8, 1.0)``: when so much is spent, the scheduler's ``on_budget_alert`` is called, or a
    #: warning is logged. Each once in a period.
    alert_at: Sequence[float] = ()

    def __post_init__(self) -> None:
        whole("tokens", self.tokens, "tokens")
        if self.when_exhausted not in ("reject", "wait"):
            raise ValueError(
                f'when_exhausted must be "reject" or "wait", not {self.when_exhausted!r}'
            )
        if isinstance(self.per, str) or isinstance(self.per, bool):
            if self.per not in _CALENDAR:
                raise ValueError(f"per must be one of {', '.join(_CALENDAR)} or a number of seconds, not {self.per!r}")
        elif self.per is not None and not 0 < number("per", self.per, "a period or a number of seconds") < 1e10:
            raise ValueError(f"per must be more than 0 seconds, not {self.per!r}")
        if isinstance(self.alert_at, str) or not isinstance(self.alert_at, Sequence):
            raise TypeError(f"alert_at must be a sequence such as (0.8, 1.0), not {self.alert_at!r}")
        for part in self.alert_at:
            if not 0 < number("alert_at", part, "parts of the budget such as 0.8") <= 10:
                raise ValueError(f"alert_at must be parts of the budget such as 0.8, not {part!r}")


@dataclass(frozen=True)
class BudgetAlert:
    """A part of a budget is spent."""

    agent: str
    #: Of ``alert_at``.
    part: float
    #: In tokens, in the period.
    spent: int
    limit: int

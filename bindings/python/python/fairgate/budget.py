"""What an agent may spend, and when somebody is told that it is spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Union

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
        if self.tokens < 0:
            raise ValueError("a budget must be 0 tokens or more")
        if self.when_exhausted not in ("reject", "wait"):
            raise ValueError(
                f'when_exhausted must be "reject" or "wait", not {self.when_exhausted!r}'
            )
        if isinstance(self.per, str) or isinstance(self.per, bool):
            if self.per not in _CALENDAR:
                raise ValueError(f"per must be one of {', '.join(_CALENDAR)} or a number of seconds, not {self.per!r}")
        elif self.per is not None and not 0 < self.per < 1e10:
            raise ValueError(f"per must be more than 0 seconds, not {self.per!r}")
        for part in self.alert_at:
            if not 0 < part <= 10:
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

"""Fair scheduling inside a Python program: several agents, one model, one rate limit, one GPU.

    import fairgate

    scheduler = fairgate.Scheduler(capacity=2)

    async def ask(agent, question):
        async with scheduler.slot(agent, weight=2.0) as slot:
            answer = await model(question)
            slot.settle(tokens=answer.tokens)
            return answer

Who goes next is decided by the core of Fairgate: exactly, by integers, and replayable to the line.
"""

from ._core import Slot, __version__
from .budget import Budget, BudgetAlert
from .connect import Connection, connect
from .context import agent
from .convenience import configure, enable_prometheus, get_scheduler, run, scheduled, wrap
from .cost import Cost, Price
from .errors import BudgetExceeded, Closed, FairgateError, GatewayError, QueueFull, SlotTimeout, WouldDeadlock
from .projects import schedule
from .scheduler import CallOptions, Scheduler
from .snapshot import AgentSnapshot, BudgetSnapshot, ProviderSnapshot, ServiceSnapshot, Snapshot
from .usage import Usage, usage_of
from .weighing import Estimate, Weighing

__all__ = [
    "AgentSnapshot",
    "Budget",
    "BudgetAlert",
    "BudgetExceeded",
    "BudgetSnapshot",
    "CallOptions",
    "Closed",
    "Connection",
    "Cost",
    "Estimate",
    "FairgateError",
    "GatewayError",
    "Price",
    "ProviderSnapshot",
    "QueueFull",
    "Scheduler",
    "ServiceSnapshot",
    "Slot",
    "SlotTimeout",
    "Snapshot",
    "Usage",
    "Weighing",
    "WouldDeadlock",
    "__version__",
    "agent",
    "configure",
    "connect",
    "enable_prometheus",
    "get_scheduler",
    "run",
    "schedule",
    "scheduled",
    "usage_of",
    "wrap",
]

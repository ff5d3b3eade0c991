"""The scheduler: who of many agents may use a shared resource next."""

from __future__ import annotations

import atexit
import json
import logging
import os
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, overload

from ._core import Gate, Slot, SlotFactory
from .budget import Budget, BudgetAlert
from .clock import Alarm
from .cost import Cost, Price, costs_of
from .fields import mapping, number, text, whole
from .hooks import Hooks
from .policy import OptimizeFor, Policy, Queue, policy_text
from .prometheus import exposition
from .rates import Rate, per_minute
from .slot import acquire, acquire_blocking
from .snapshot import Snapshot, snapshot_of
from .wrapping import run, scheduled

_log = logging.getLogger("fairgate")
P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class CallOptions:
    """How a call is scheduled, apart from the arguments of what is called: see :meth:`Scheduler.slot`."""

    agent: str
    weight: float = 1.0
    cost: int | None = None
    priority: int = 0
    timeout: float | None = None
    model: str | None = None
    attributes: dict[str, str] | None = None

    def slot(self, scheduler: Scheduler) -> Slot:
        """A slot of a scheduler for such a call."""
        return scheduler.slot(
            self.agent,
            weight=self.weight,
            cost=self.cost,
            priority=self.priority,
            timeout=self.timeout,
            model=self.model,
            attributes=self.attributes,
        )


class Scheduler(SlotFactory):
    """Shares ``capacity`` slots of one resource among agents.

    Agents need not be announced: each is a name that a request gives. Tasks of any number of event loops and any
    number of threads may use one scheduler at once.

    :param capacity: how many requests may hold a slot at once, 1 or more.
    :param optimize_for: the load policy's trade-off by name: ``"latency"`` (alpha 0), ``"balanced"`` (0.25, the
        default) or ``"throughput"`` (0.5).
    :param alpha: the same as a number, 0 to 1 with at most six decimals; not with ``optimize_for``.
    :param auto_tune: whether alpha follows the load.
    :param max_waiting: how many requests may wait, 10 000 unless you say otherwise (about 2 kB each); one more, and the agent
        with the most waiting loses one (:class:`fairgate.QueueFull`).
    :param max_wait_ticks: after how many ended requests a waiting one goes before all others: the bound against
        starvation.
    :param policy: ``"load"``, ``"share"``, ``"drr"``, ``"bands"``, or a policy tree as a dict or JSON text.
    :param weights: with ``policy="share"`` how large each agent's share is (100 where not named); with
        ``policy="drr"`` how many tokens of estimates each agent is granted in a round (the first also takes all agents
        not named).
    :param bands: with ``policy="bands"`` the agents in their order: whoever is earlier goes first, always. The last also
        takes all agents not named.
    :param caps: with ``policy="bands"`` or ``"share"`` how many slots an agent may hold at once. In ``bands`` the cap of a
        higher one is what leaves slots for those below.
    :param queue: the order of the waiting calls of one agent: ``"fcfs"``, first come, first served (the default);
        ``"wspt"``, the smallest ``cost`` first; ``"edf"``, the earliest deadline first, as ``slot(timeout=…)`` states
        it. Or a dict with ``order`` and ``max_wait_us``.
    :param rates: the provider's limits, such as ``{"requests": "500/min", "tokens": "200k/min"}``: no more is granted. What the
        provider's answers state counts where it is lower. Without rates, what the answers state.
    :param burst_seconds: for how many seconds of these rates calls may be saved up, 1 to 60.
    :param retry_seconds: for how long after it asked a call that met the provider's limit is submitted again, where its own
        timeout is not shorter.
    :param budgets: tokens per agent, as a number (reject when exhausted) or a :class:`Budget`.
    :param default_budget: the budget of every agent that ``budgets`` does not name, each its own.
    :param on_budget_alert: called when a part of a budget is spent that its ``alert_at`` names; a warning is logged where None.
    :param on_start: called with the slot when a call asks. What it raises is logged and changes nothing, as with the other two.
    :param on_grant: called with the slot when it is granted, also after a provider's limit was met.
    :param on_end: called with the slot when it is given back.
    :param log_grants: log a line for each grant, as JSON, at level INFO of the logger ``fairgate.grants``.
    :param prices: by model, for :meth:`costs`.
    :param journal: a file in which everything that happens is recorded for ``fairgate replay``; it is emptied first.
    :param name: how metrics call it.
    """

    def __init__(
        self,
        capacity: int = 3,
        *,
        optimize_for: OptimizeFor | None = None,
        alpha: float | None = None,
        auto_tune: bool = False,
        max_waiting: int = 10_000,
        max_wait_ticks: int | None = None,
        policy: Policy = "load",
        weights: Mapping[str, int] | None = None,
        bands: Sequence[str] | None = None,
        caps: Mapping[str, int] | None = None,
        queue: Queue | None = None,
        rates: Mapping[str, Rate] | None = None,
        burst_seconds: int = 10,
        retry_seconds: float = 300.0,
        budgets: Mapping[str, int | Budget] | None = None,
        default_budget: int | Budget | None = None,
        on_budget_alert: Callable[[BudgetAlert], object] | None = None,
        on_start: Callable[[Slot], object] | None = None,
        on_grant: Callable[[Slot], object] | None = None,
        on_end: Callable[[Slot], object] | None = None,
        log_grants: bool = False,
        prices: Mapping[str, Price] | None = None,
        journal: str | os.PathLike[str] | None = None,
        name: str = "default",
    ) -> None:
        capacity = whole("capacity", capacity, "slot", at_least=1)
        max_waiting = whole("max_waiting", max_waiting, "requests")
        tree = policy_text(
            policy,
            optimize_for=optimize_for,
            alpha=alpha,
            auto_tune=auto_tune,
            max_wait_ticks=max_wait_ticks,
            weights=weights,
            bands=bands,
            caps=caps,
            queue=queue,
        )
        self.name = name
        self._prices = dict(mapping("prices", prices, "a dict of models and prices"))
        if not number("retry_seconds", retry_seconds, "a number of seconds") >= 0:
            raise ValueError(f"retry_seconds must be 0 or more, not {retry_seconds}")
        alarm = Alarm(on_budget_alert)
        if not isinstance(journal, (str, os.PathLike, type(None))):
            raise TypeError(f"journal must be the path of a file, not {journal!r}")
        file = None if journal is None else os.fspath(journal)
        gate = Gate(tree, capacity, max_waiting, file, alarm)
        alarm.belongs_to(gate)
        self._serve(gate, retry_seconds, Hooks.of(name, on_start, on_grant, on_end, log_grants))
        self.set_rates(rates, burst_seconds=burst_seconds)
        for agent, budget in mapping("budgets", budgets, "a dict of agents and budgets").items():
            name_of_budget = f"budgets[{text('an agent in budgets', agent)!r}]"
            self._set_budget(agent, budget, name_of_budget)
        if default_budget is not None:
            self._set_budget(None, default_budget, "default_budget")
        _living.add(self)

    # -- slots -------------------------------------------------------------------------------------------------

    async def acquire(self, agent: str, **options: Any) -> Slot:
        """A granted slot, to be given back with :meth:`release` by whatever task or thread. Options as for :meth:`slot`.

        Prefer ``async with scheduler.slot(…)``, which cannot forget, and which notices where somebody would wait for itself.
        """
        slot = self.slot(agent, **options)
        await acquire(slot)
        return slot

    def acquire_blocking(self, agent: str, **options: Any) -> Slot:
        """As :meth:`acquire`, in a thread."""
        slot = self.slot(agent, **options)
        acquire_blocking(slot)
        return slot

    def release(self, slot: Slot, tokens: int | None = None) -> None:
        """Gives a slot back, with what the call used where that is known. A second time it does nothing, and warns of tokens."""
        try:
            if tokens is not None:
                slot.settle(tokens)
        finally:
            slot.release()

    @overload
    async def run(
        self, call: CallOptions, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def run(
        self, call: CallOptions, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    async def run(self, call: CallOptions, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls ``fn(*args, **kwargs)`` in a slot, awaits what it returns where it must be awaited, and gives that.

            await scheduler.run(fairgate.CallOptions("analyst", timeout=30), client.create, model="gpt-5")

        How the call is scheduled is in ``call``; all other arguments are the function's own. Where the result says what it
        used (``result.usage`` of OpenAI's and Anthropic's packages), that is settled. A stream, generator or iterator holds
        its slot until it has been read to its end or closed. A function that blocks stops the event loop as always:
        ``run(call, asyncio.to_thread, fn, …)`` runs it in a thread.
        """
        return await run(call.slot(self), fn, args, kwargs)

    @overload
    async def wrap(
        self, fn: Callable[..., Awaitable[R]], /, *args: Any, agent_id: str, weight: float = ..., **kwargs: Any
    ) -> R: ...
    @overload
    async def wrap(
        self, fn: Callable[..., R], /, *args: Any, agent_id: str, weight: float = ..., **kwargs: Any
    ) -> R: ...
    async def wrap(
        self, fn: Callable[..., Any], /, *args: Any, agent_id: str, weight: float = 1.0, **kwargs: Any
    ) -> Any:
        """As :meth:`run`, with ``agent_id`` and ``weight`` among the arguments; all others are the function's own.

        The call that loco-agent's users know. Prefer :meth:`run`: it takes all options, and type checkers see the
        function's signature through it.
        """
        return await run(self.slot(agent_id, weight=weight), fn, args, kwargs)

    def scheduled(
        self,
        *,
        agent_id: str,
        weight: float = 1.0,
        cost: int | None = None,
        priority: int = 0,
        timeout: float | None = None,
        model: str | None = None,
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """A decorator: every call of the function runs in a slot.

        For coroutine functions, plain functions (which wait in their thread), and generators of both kinds, which hold
        their slot until they are exhausted or closed. A future or stream that a plain function returns holds its slot until
        it is done. A coroutine takes its slot when it first runs.
        """

        def new_slot() -> Slot:
            return self.slot(
                agent_id, weight=weight, cost=cost, priority=priority, timeout=timeout, model=model
            )

        return scheduled(new_slot)

    # -- what is going on --------------------------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """What waits and runs now and what has happened, by agent."""
        return snapshot_of(self._gate.report())

    def explain(self, slot: Slot | str) -> dict[str, Any] | None:
        """Where a request is and what it waits for: its flow's numbers, what is ahead, and its place.

        None where it neither waits nor holds a slot. The fields are those of ``fairgate``'s explanations, with units in
        their names. Costs a copy of everything that waits.
        """
        ident = slot.id if isinstance(slot, Slot) else text("slot", slot)
        if ident and not (ident.isascii() and ident.isdigit() and int(ident) < 2**64):
            raise ValueError(f"slot must be a slot or its id, not {slot!r}")
        explained = self._gate.explain(int(ident or 0))
        if explained is None:
            return None
        where: dict[str, Any] = json.loads(explained)
        return where

    def fairness(self) -> list[dict[str, Any]]:
        """What every flow of the policy's tree got beside what it was due, in tokens, from the root down.

        Each flow has ``got_tokens``, ``due_tokens``, their ``difference_tokens``, the ``bound_tokens`` within which a
        ``share`` node keeps that, and whether it is ``within_bound``. Flows of a ``load`` or ``bands`` node, which promise
        no shares, have ``got_tokens`` alone; those of a ``bands`` node also ``goes_before``, the flows that wait while this
        one can go. Where something waits, ``lag_tokens_per_weight`` is how far a flow is behind its
        node's own clock. Where it has a cap, ``cap_use`` is how full that was while something waited, 1.0 being always.
        """
        nodes: list[dict[str, Any]] = json.loads(self._gate.fairness())
        return nodes

    def costs(self) -> list[Cost]:
        """What ended requests used, by agent and model."""
        return costs_of(self._gate.usage(), self._prices)

    def prometheus(self, *, max_agents: int = 500) -> str:
        """All metrics in Prometheus' text format.

        The ``max_agents`` agents with the most grants have labels of their own; the others are summed up as ``other``.
        """
        return exposition(self.snapshot(), self.costs(), self.name, max_agents)

    @property
    def policy(self) -> dict[str, Any]:
        """The policy tree in force."""
        tree: dict[str, Any] = json.loads(self._gate.policy())
        return tree

    # -- changes while it runs ---------------------------------------------------------------------------------

    def set_capacity(self, slots: int) -> None:
        """Changes how many may hold a slot at once. With 0 nobody is granted one; nobody loses one either."""
        self._gate.set_capacity(whole("capacity", slots, "slots"))

    def set_rates(self, rates: Mapping[str, Rate] | None, *, burst_seconds: int = 10) -> None:
        """Changes the provider's limits, as for the constructor. None leaves what the provider states."""
        requests, tokens = per_minute(rates)
        wrong = f"burst_seconds must be 1 to 60, not {burst_seconds!r}"
        if not isinstance(burst_seconds, int) or isinstance(burst_seconds, bool):
            raise TypeError(wrong)
        if not 1 <= burst_seconds <= 60:
            raise ValueError(wrong)
        self._gate.set_rates(requests, tokens, burst_seconds)

    def set_policy(self, policy: Policy, **options: Any) -> None:
        """Puts another policy in place, with options as for the constructor. What waits goes on waiting under it."""
        self._gate.set_policy(policy_text(policy, **options))

    def set_weight(self, agent: str, weight: int, *, by: str = "agent") -> None:
        """Changes an agent's share under ``share``, or its tokens per round under ``drr``.

        Under ``bands``, whose order is strict, it is a ValueError.
        """
        self._gate.set_weight(text("by", by), text("agent", agent), whole("weight", weight, "", at_least=1))

    def set_cap(self, agent: str, slots: int | None, *, by: str = "agent") -> None:
        """Limits how many slots an agent may hold at once under ``share`` or ``bands``; None ends the limit."""
        cap = None if slots is None else whole("slots", slots, "slots")
        self._gate.set_cap(text("by", by), text("agent", agent), cap)

    def hold(self, agent: str, *, by: str = "agent") -> None:
        """Grants an agent nothing until :meth:`resume`. What it has waiting keeps its place."""
        self._gate.hold(text("by", by), text("agent", agent))

    def resume(self, agent: str, *, by: str = "agent") -> None:
        """Ends a :meth:`hold`."""
        self._gate.resume(text("by", by), text("agent", agent))

    def set_budget(self, agent: str, budget: int | Budget | None) -> None:
        """Gives an agent a budget, or another one (what it has spent stays spent), or none any more."""
        self._set_budget(text("agent", agent), budget, "budget")

    def _set_budget(self, agent: str | None, budget: int | Budget | None, name: str) -> None:
        if budget is None:
            self._gate.set_budget(agent, None, False, None, None, [])
            return
        its = budget if isinstance(budget, Budget) else Budget(whole(name, budget, "tokens"))
        calendar = its.per if isinstance(its.per, str) else None
        seconds = None if isinstance(its.per, str) or its.per is None else float(its.per)
        alerts = [round(part * 1000) for part in its.alert_at]
        self._gate.set_budget(agent, its.tokens, its.when_exhausted == "wait", calendar, seconds, alerts)

    # -- ends --------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wakes everybody who waits with :class:`fairgate.Closed`, and refuses whoever asks from now on.

        Who holds a slot keeps it until it is given back. The journal has everything up to here on disk.
        """
        self._gate.close()
        self._warn_of_journal()

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._gate.closed

    def flush_journal(self) -> None:
        """Waits until the journal's file has everything that has happened so far."""
        self._gate.flush_journal()
        self._warn_of_journal()

    def _warn_of_journal(self) -> None:
        failure = self._gate.journal_failure()
        if failure is not None:
            _log.warning("the journal of scheduler %r ends early: %s", self.name, failure)

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Scheduler:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        now = self.snapshot()
        return (
            f"<fairgate.Scheduler {self.name!r}: {now.in_flight} of {now.capacity} slots held, "
            f"{now.waiting} requests wait>"
        )


_living: weakref.WeakSet[Scheduler] = weakref.WeakSet()


def living() -> list[Scheduler]:
    """All schedulers of the program, by name."""
    return sorted(_living, key=lambda scheduler: scheduler.name)


def _in_child() -> None:
    # Those who wait and hold are the parent's. The journal is too: its thread does not run here.
    for scheduler in list(_living):
        scheduler._gate.forget_requests()


def _at_exit() -> None:
    for scheduler in list(_living):
        scheduler._gate.end_journal()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
atexit.register(_at_exit)

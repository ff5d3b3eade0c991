"""Slots of a running gateway: several programs share one capacity, one rate, one tree and its budgets."""

from __future__ import annotations

from typing import Any, NoReturn

from ._core import Slot
from .errors import FairgateError
from .gateway import Gateway
from .leases import LeaseGate
from .scheduler import Scheduler


class Connection(Scheduler):
    """A scheduler whose slots are leases of a gateway's pool, made by :func:`connect`.

    Slots, ``run``, ``wrap``, ``scheduled`` and all adapters work as with a :class:`fairgate.Scheduler`. Capacity, policy,
    weights, budgets and views are the gateway's: they are for all programs that share the pool, and its operator
    changes them there.
    """

    def __init__(self, gateway: Gateway, pool: str | None, name: str, retry_seconds: float) -> None:
        self.name = name
        self._url = gateway.url
        self._prices = {}
        self._serve(LeaseGate(gateway, pool), retry_seconds, None)

    def slot(self, agent: str, *, model: str | None = None, **options: Any) -> Slot:
        """A slot for one call of ``agent``, with the options of :meth:`fairgate.Scheduler.slot`.

        ``model`` is for the gateway's ledger, its prices, and the key's list of models. Of ``attributes`` a program
        chooses ``class`` and ``session``: the others follow from its key.
        """
        if model is not None:
            options["attributes"] = {**(options.get("attributes") or {}), "model": model}
        return super().slot(agent, model=model, **options)

    def _elsewhere(self, *_: Any, **__: Any) -> NoReturn:
        raise FairgateError(
            f"this is the gateway's at {self._url}, for all programs that share the pool: see it with `fairgate` commands "
            "or GET /api/v1, change it there"
        )

    snapshot = _elsewhere
    fairness = _elsewhere
    costs = _elsewhere
    prometheus = _elsewhere
    set_capacity = _elsewhere
    set_policy = _elsewhere
    set_weight = _elsewhere
    set_cap = _elsewhere
    set_budget = _elsewhere
    set_rates = _elsewhere
    hold = _elsewhere
    resume = _elsewhere

    @property
    def policy(self) -> dict[str, Any]:
        """The gateway's own."""
        self._elsewhere()

    def __repr__(self) -> str:
        return f"<fairgate.Connection {self.name!r} to {self._url}>"


def connect(
    url: str,
    key: str,
    *,
    pool: str | None = None,
    name: str = "gateway",
    retry_seconds: float = 300.0,
) -> Connection:
    """A scheduler whose slots are leases of a running gateway.

        scheduler = fairgate.connect("http://127.0.0.1:8080", key=os.environ["FAIRGATE_KEY"])

        async with scheduler.slot("planner", cost=2000) as slot:
            ...

    So many programs as there are share the pool's capacity and rates, its policy tree, budgets, ledger and live view.

    :param url: where the gateway is.
    :param key: a key of a tenant.
    :param pool: the pool, declared with ``leases: true``; the only one where None.
    :param name: how logs call it.
    :param retry_seconds: for how long after it asked a call that met the provider's limit is submitted again, where its
        own timeout is not shorter.

    Nothing is sent before the first slot. A gateway that cannot be reached fails that slot with
    :class:`fairgate.GatewayError` after a few seconds. A program that dies loses its slots after the pool's ``ttl``.
    """
    return Connection(Gateway(url, key), pool, name, retry_seconds)

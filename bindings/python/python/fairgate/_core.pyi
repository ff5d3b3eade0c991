"""The native part: one pool and everything that must change together with it."""

from asyncio import AbstractEventLoop, Future
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from os import PathLike
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, final

from .context import Cover
from .errors import Refusal
from .hooks import Hooks
from .leases import LeaseGate

__version__: str
MODEL_WEIGHTS: Final[tuple[tuple[str, float], ...]]
OTHER_WEIGHT: Final[float]

@final
class Gate:
    def __new__(
        cls,
        policy: str,
        capacity: int,
        max_waiting: int,
        journal: str | PathLike[str] | None,
        alarm: Callable[[float], None],
    ) -> Gate: ...
    def ask(
        self,
        id: int,
        agent: str,
        weight: float,
        cost: int | None,
        priority: int,
        attributes: dict[str, str] | None,
        owner: int,
        flags: int,
        timeout: float | None = None,
    ) -> int | Refusal | None: ...
    def wait(
        self,
        id: int,
        future: Future[int | Refusal] | SimpleQueue[int | Refusal],
        event_loop: AbstractEventLoop | None,
    ) -> int | Refusal | None: ...
    def withdraw(self, id: int) -> bool: ...
    def cancel(self, id: int) -> None: ...
    def release(
        self,
        id: int,
        tokens: int | None = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
        model: str | None = None,
    ) -> None: ...
    def set_owner(self, id: int, owner: int) -> None: ...
    def set_rates(
        self, requests_per_minute: int | None, tokens_per_minute: int | None, burst_seconds: int
    ) -> None: ...
    def tick(self) -> None: ...
    def skip_time(self, seconds: float) -> None: ...
    def answered(
        self, id: int, status: int, headers: list[tuple[str, bytes]], body: bytes
    ) -> float | None: ...
    def again(self, id: int, timeout: float | None = None) -> int | Refusal | None: ...
    def set_capacity(self, slots: int) -> None: ...
    def set_policy(self, policy: str) -> None: ...
    def hold(self, by: str, flow: str) -> None: ...
    def resume(self, by: str, flow: str) -> None: ...
    def set_weight(self, by: str, flow: str, weight: int) -> None: ...
    def set_cap(self, by: str, flow: str, slots: int | None) -> None: ...
    def set_budget(
        self,
        agent: str | None,
        tokens: int | None,
        waits: bool,
        period: str | None,
        seconds: float | None,
        alerts: list[int],
    ) -> None: ...
    def close(self) -> None: ...
    @property
    def closed(self) -> bool: ...
    def flush_journal(self) -> None: ...
    def end_journal(self) -> None: ...
    def journal_failure(self) -> str | None: ...
    def forget_requests(self) -> None: ...
    def report(self) -> dict[str, Any]: ...
    def usage(self) -> list[tuple[str, str, int, int, int, int]]: ...
    def explain(self, id: int) -> str | None: ...
    def why(self, id: int) -> str | None: ...
    def fairness(self) -> str: ...
    def policy(self) -> str: ...

@final
class Slot:
    """One request for the resource, made by :meth:`fairgate.Scheduler.slot`.

    Use it once, as ``async with`` in a task or as ``with`` in a thread. Leaving the block gives the slot to the next,
    however it is left. It is the same object inside the block: tell it what the call used with :meth:`settle`.
    """

    @property
    def id(self) -> str:
        """Its id in the journal, and for :meth:`fairgate.Scheduler.explain`; empty before it asked."""

    @property
    def agent(self) -> str:
        """The agent that it is for."""

    @property
    def model(self) -> str | None:
        """The model that is called, as far as it was said."""

    @property
    def weight(self) -> float:
        """How heavy the call is."""

    @property
    def tokens(self) -> int | None:
        """What was settled so far; None where nothing was."""

    @property
    def held(self) -> bool:
        """Whether it is granted and not yet given back."""

    @property
    def waited(self) -> float:
        """How long it waited until it was granted, in seconds."""

    @property
    def why(self) -> dict[str, Any] | None:
        """The decision that granted it, with the numbers that decided and who would have been next."""

    def settle(
        self,
        tokens: int | None = None,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        model: str | None = None,
    ) -> None:
        """Says what the call really used, so that it is charged that and not its estimate.

        ``tokens`` is the total, and may be left out where input and output are given. Called several times, they add
        up. A call that is never settled is charged its estimate; one that failed before it used anything settles 0.
        """

    def release(self) -> None:
        """Gives the slot back: it goes to the next. A second time it does nothing."""

    def retry(self, error: BaseException) -> Coroutine[Any, Any, None]:
        """After a call met its provider's limit: waits for its turn again, so that the same call can be made once more."""

    def retry_blocking(self, error: BaseException) -> None:
        """As :meth:`retry`, in a thread."""

    def heard(self, headers: Mapping[str, str] | Iterable[tuple[str, str]]) -> None:
        """Says what the provider's answer said of its limits (``x-ratelimit-…``), for calls without an adapter."""

    def detach(self) -> None:
        """Says that somebody else than the task or thread that asked will give the slot back."""

    def __aenter__(self) -> Coroutine[Any, Any, Slot]: ...
    def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> Awaitable[None]: ...
    def __enter__(self) -> Slot: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    # For the package itself.
    _gate: Final[Gate]
    _id: Final[int]
    _waits: Final[bool]
    _timeout: Final[float | None]
    _retry_seconds: Final[float]
    _around: Final[Slot | Cover | None]
    _asked_at: float | None
    _covers: Final[bool]
    _kept: bool
    _lent: bool
    _metered: int
    def _enter(self) -> bool: ...
    def _ask_in_task(self) -> bool: ...
    def _ask_in_thread(self) -> bool: ...
    def _cover(self) -> None: ...
    def _granted(self, waited_us: int) -> None: ...
    def _wait_again(self) -> None: ...
    def _end(self) -> None: ...
    def _forget(self) -> None: ...
    def _read_here(self) -> None: ...
    def _keep_beyond_block(self) -> None: ...

class SlotFactory:
    """What the schedulers make slots with."""

    @property
    def _gate(self) -> Gate: ...
    def _serve(self, gate: Gate | LeaseGate, retry_seconds: float, hooks: Hooks | None) -> None: ...
    def slot(
        self,
        agent: str,
        *,
        weight: float = 1.0,
        cost: int | None = None,
        priority: int = 0,
        timeout: float | None = None,
        model: str | None = None,
        attributes: dict[str, str] | None = None,
        explain: bool = False,
    ) -> Slot:
        """A slot for one call of ``agent``: ``async with`` it in a task, ``with`` it in a thread.

        :param weight: how heavy the call is, 0.001 to 1 000 000 with at most three decimals: what it adds to its
            agent's depth in the load function while it waits.
        :param cost: how many tokens the call is expected to use: what ``share`` and ``drr`` charge and what a budget
            reserves, until it is settled (``drr`` goes by the estimate for good). Where not given, a thousand tokens for
            each 1.0 of weight.
        :param priority: higher goes first among the waiting calls of the same agent; equals go in the order of its queue.
        :param timeout: for how many seconds to wait before :class:`fairgate.SlotTimeout`; for ever where None. It is the
            deadline by which an ``"edf"`` queue orders. It counts through retries after a provider's limit, and ends no
            call that has its slot.
        :param model: the model that is called, for :meth:`costs`.
        :param attributes: by which a policy tree may share beside the agent: class, tenant, group, key, project,
            session.
        :param explain: keep the numbers that decided the grant in :attr:`Slot.why`.
        """

def tokens(what: str, given: int) -> int: ...
def resolve(future: Future[Any], news: object) -> None: ...
def schedule(snapshot: str, explain: bool) -> str: ...
def format_policy(policy: str) -> str: ...
def model_name_words(name: str) -> list[str]: ...
def model_weight(model: str, table: list[tuple[str, float]] | None = None, other: float = 2.0) -> float: ...

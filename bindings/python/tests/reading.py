"""SPEC.md's load node, read plainly: lists, sums over everything, no cleverness.

It shares nothing with the package: the same rules, written down a second time to compare with.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Request:
    id: int
    agent: str
    weight: int
    tick: int


@dataclass
class LoadNode:
    """One pool whose policy is a load node by agent, with first-come queues inside."""

    capacity: int
    alpha: int = 250_000
    auto_tune: bool = False
    max_wait_ticks: int | None = None
    waiting: list[Request] = field(default_factory=list)
    in_flight: list[int] = field(default_factory=list)
    held: set[str] = field(default_factory=set)
    ticks: int = 0
    totals: list[int] = field(default_factory=list)
    seen: bool = False
    granted: list[int] = field(default_factory=list)

    def submit(self, id: int, agent: str, weight: int) -> None:
        self.waiting.append(Request(id, agent, weight, self.ticks))
        self.seen = True
        self.grant()

    def release(self, id: int) -> None:
        if id in self.in_flight:
            self.in_flight.remove(id)
            self.tick()
            self.grant()

    def cancel(self, id: int) -> None:
        if id in self.in_flight:
            self.release(id)
        else:
            self.waiting = [r for r in self.waiting if r.id != id]
            self.grant()

    def hold(self, agent: str) -> None:
        self.held.add(agent)

    def resume(self, agent: str) -> None:
        self.held.discard(agent)
        self.grant()

    def of(self, agent: str) -> list[Request]:
        return [r for r in self.waiting if r.agent == agent]

    def depth(self, agent: str) -> int:
        return sum(r.weight for r in self.of(agent))

    def age(self, agent: str) -> int:
        return self.ticks - min(r.tick for r in self.of(agent))

    def grant(self) -> None:
        while len(self.in_flight) < self.capacity:
            ready = {r.agent for r in self.waiting} - self.held
            if not ready:
                return
            first = self.pick(ready)
            self.waiting.remove(first)
            self.in_flight.append(first.id)
            self.granted.append(first.id)

    def pick(self, ready: set[str]) -> Request:
        if self.max_wait_ticks is not None:
            late = [a for a in ready if self.age(a) >= self.max_wait_ticks]
            if late:
                return min((self.of(a)[0] for a in late), key=lambda r: (-self.age(r.agent), r.id))
        deepest = max(self.depth(a) for a in ready) or 1
        oldest = max(self.age(a) for a in ready) or 1

        def load(agent: str) -> int:
            old_part = (1_000_000 - self.alpha) * deepest * self.age(agent)
            return self.alpha * oldest * self.depth(agent) + old_part

        return min((self.of(a)[0] for a in ready), key=lambda r: (-load(r.agent), r.id))

    def tick(self) -> None:
        self.ticks += 1
        if not self.auto_tune or not self.seen:
            return
        agents = {r.agent for r in self.waiting}
        self.totals = [*self.totals, sum(self.depth(a) for a in agents)][-10:]
        ages = [self.age(a) for a in agents]
        n, total, squares = len(ages), sum(ages), sum(a * a for a in ages)
        if n >= 2 and 4 * (n * squares - total * total) > total * total:
            self.alpha = max(0, self.alpha - 10_000)
            return
        k = len(self.totals)
        older, newer = self.totals[: k // 2], self.totals[k // 2 :]
        if k >= 2 and sum(older) > 0 and self.alpha < 500_000:
            # newer mean > 1.2 × older mean, in integers
            if 10 * sum(newer) * len(older) > 12 * sum(older) * len(newer):
                self.alpha = min(500_000, self.alpha + 10_000)

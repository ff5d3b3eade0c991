"""What agents used, by model, and what that costs where prices are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .fields import number

_WANTED = "0 or more USD per million tokens"


@dataclass(frozen=True)
class Price:
    """What a model costs, in USD per million tokens."""

    input: float
    output: float

    def __post_init__(self) -> None:
        for name, price in (("input", self.input), ("output", self.output)):
            if not number(name, price, _WANTED) >= 0:
                raise ValueError(f"{name} must be {_WANTED}, not {price!r}")


@dataclass(frozen=True)
class Cost:
    """What the ended requests of one agent to one model used."""

    agent: str
    #: The model as the call named it; empty where it named none.
    model: str
    requests: int
    #: What they were charged: what they really used, or their estimate where they did not say.
    tokens: int
    #: Of those, input and output, as far as they were told apart.
    input_tokens: int
    output_tokens: int
    #: In USD; None where the model has no price.
    usd: float | None


def costs_of(
    rows: list[tuple[str, str, int, int, int, int]], prices: Mapping[str, Price]
) -> list[Cost]:
    """What the native part has summed up, priced."""
    return [
        Cost(agent, model, requests, tokens, given, made, _usd(prices.get(model), given, made))
        for agent, model, requests, tokens, given, made in rows
    ]


def _usd(price: Price | None, input_tokens: int, output_tokens: int) -> float | None:
    if price is None:
        return None
    return (price.input * input_tokens + price.output * output_tokens) / 1e6

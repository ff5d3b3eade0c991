"""Plots as SVG text, of what a scheduler did. Needs nothing but Python; the same data give the same bytes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 40, 44
# Colours that people who see few colours can tell apart, on a light and on a dark page.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9", "#7f7f7f")
_STYLE = (
    "text{font:13px sans-serif;fill:#222}.s{font-size:12px;fill:#555}.t{font-weight:bold}"
    "@media(prefers-color-scheme:dark){text{fill:#eee}.s{fill:#bbb}.p{fill:#1b1b1b}}"
)


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]], *, title: str, x: str, y: str
) -> str:
    """One line for each name, through its points; ``x`` and ``y`` name the axes, with their units."""
    points = [point for each in series.values() for point in each] or [(0.0, 0.0)]
    x_most, y_most = _round_up(max(p[0] for p in points)), _round_up(max(p[1] for p in points))

    def place(point: tuple[float, float]) -> str:
        across = _LEFT + point[0] / x_most * (_WIDTH - _LEFT - _RIGHT)
        up = _HEIGHT - _BOTTOM - point[1] / y_most * (_HEIGHT - _TOP - _BOTTOM)
        return f"{across:.1f},{up:.1f}"

    drawn = [
        f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(map(place, each))}"/>'
        for colour, each in zip(_colours(len(series)), series.values())
    ]
    return _document(
        _HEIGHT, title, [*_axes(x, y, x_most, y_most), *drawn, *_legend(series, _TOP - 6)]
    )


def grants(order: Sequence[str], *, title: str, x: str = "grants") -> str:
    """A row for each agent and a mark for each of its grants, in the order in which they were made."""
    names = sorted(set(order))
    row = 26
    height = _TOP + row * len(names) + _BOTTOM
    step = (_WIDTH - _LEFT - _RIGHT) / max(1, len(order))
    drawn = []
    for number, (colour, name) in enumerate(zip(_colours(len(names)), names)):
        top = _TOP + number * row
        drawn.append(f'<text x="{_LEFT - 8}" y="{top + 17}" text-anchor="end">{escape(name)}</text>')
        for place, agent in enumerate(order):
            if agent == name:
                across = _LEFT + place * step
                drawn.append(
                    f'<rect x="{across:.1f}" y="{top + 4}" width="{max(1.0, step - 1):.1f}" height="{row - 8}" '
                    f'fill="{colour}"/>'
                )
    bottom = _TOP + row * len(names)
    drawn.append(
        f'<text class="s" x="{_LEFT}" y="{bottom + 22}">{len(order)} {escape(x)}, from left to right</text>'
    )
    return _document(height, title, drawn)


def _colours(count: int) -> list[str]:
    return [_COLOURS[i % len(_COLOURS)] for i in range(count)]


def _axes(x: str, y: str, x_most: float, y_most: float) -> Iterable[str]:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    for part in range(5):
        up = bottom - part / 4 * (bottom - _TOP)
        across = _LEFT + part / 4 * (right - _LEFT)
        yield f'<line x1="{_LEFT}" y1="{up:.1f}" x2="{right}" y2="{up:.1f}" stroke="#8888" stroke-width="0.5"/>'
        yield f'<text class="s" x="{_LEFT - 8}" y="{up + 4:.1f}" text-anchor="end">{y_most * part / 4:g}</text>'
        yield f'<text class="s" x="{across:.1f}" y="{bottom + 17}" text-anchor="middle">{x_most * part / 4:g}</text>'
    yield f'<text class="s" x="{right}" y="{bottom + 35}" text-anchor="end">{escape(x)}</text>'
    yield f'<text class="s" x="{_LEFT}" y="{bottom + 35}">up: {escape(y)}</text>'


def _legend(names: Iterable[str], base: int) -> Iterable[str]:
    names = list(names)
    across = float(_WIDTH - _RIGHT)
    for colour, name in reversed(list(zip(_colours(len(names)), names))):
        across -= 7.5 * len(name) + 24
        yield f'<rect x="{across:.1f}" y="{base - 9}" width="10" height="10" fill="{colour}"/>'
        yield f'<text class="s" x="{across + 14:.1f}" y="{base}">{escape(name)}</text>'


def _document(height: int, title: str, drawn: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">'
    )
    page = f'<rect class="p" width="{_WIDTH}" height="{height}" fill="#fff"/>'
    name = f'<text class="t" x="{_LEFT}" y="18">{escape(title)}</text>'
    return "\n".join([head, f"<style>{_STYLE}</style>", page, name, *drawn, "</svg>"]) + "\n"


def _round_up(most: float) -> float:
    """The next number that four even steps lead to: 4, 8, 12, 20, 40, …"""
    step = 1.0
    while True:
        for nice in (4.0, 8.0, 12.0, 20.0):
            if most <= nice * step:
                return nice * step
        step *= 10

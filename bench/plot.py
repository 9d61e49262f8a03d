"""A plot as a few lines of SVG: panels side by side, axes from zero, points and the line through them."""

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

_WIDTH, _HEIGHT = 380, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 16, 34, 44
_COLOURS: Final = ("#1f5fa8", "#b5541c", "#3c7a3a")
_TICKS: Final = 5


class Line(NamedTuple):
    """Points by what they are."""

    name: str
    points: Sequence[tuple[float, float]]


class Panel(NamedTuple):
    """One plot: a title, what the axes show, and lines."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]


def svg(panels: Sequence[Panel]) -> str:
    """Draw panels side by side."""
    width = _WIDTH * len(panels)
    drawn = [f'<g transform="translate({_WIDTH * place},0)">{_panel(panel)}</g>' for place, panel in enumerate(panels)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {_HEIGHT}" width="{width}" height="{_HEIGHT}" '
        'font-family="sans-serif" font-size="11">'
    )
    return "\n".join([head, f'<rect width="{width}" height="{_HEIGHT}" fill="#fff"/>', *drawn, "</svg>", ""])


def _panel(panel: Panel) -> str:
    x_step, x_most = _scale(x for line in panel.lines for x, _ in line.points)
    y_step, y_most = _scale(y for line in panel.lines for _, y in line.points)

    def place(x: float, y: float) -> tuple[float, float]:
        across = _LEFT + x / x_most * (_WIDTH - _LEFT - _RIGHT)
        return round(across, 1), round(_HEIGHT - _BOTTOM - y / y_most * (_HEIGHT - _TOP - _BOTTOM), 1)

    left, bottom = place(0, 0)
    right, top = place(x_most, y_most)
    parts = [f'<text x="{left}" y="16" font-weight="bold">{panel.title}</text>']
    for number in range(round(y_most / y_step) + 1):
        _, y = place(0, number * y_step)
        parts.append(f'<path d="M{left} {y}H{right}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{number * y_step:g}</text>')
    for number in range(round(x_most / x_step) + 1):
        x, _ = place(number * x_step, 0)
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{number * x_step:g}</text>')
    parts.append(f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="#333"/>')
    parts.append(f'<text x="{(left + right) / 2}" y="{_HEIGHT - 10}" text-anchor="middle">{panel.x}</text>')
    parts.append(f'<text x="{left}" y="{top - 6}">{panel.y}</text>')
    for number, line in enumerate(panel.lines):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [place(*point) for point in line.points]
        way = "L".join(f"{x} {y}" for x, y in places)
        parts.append(f'<path d="M{way}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(f'<text x="{right}" y="{14 + 13 * number}" text-anchor="end" fill="{colour}">{line.name}</text>')
    return "".join(parts)


def _scale(values: Iterable[float]) -> tuple[float, float]:
    """A round step, and the end of an axis from zero on which all values are."""
    most = max(values)
    rough = most / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough)
    return step, step * math.ceil(most / step)

"""Round numbers for axes."""

import math
from typing import Final

_STEPS_MS: Final = tuple(
    1000.0 * seconds for seconds in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400)
)
"""Steps that are round for who reads a clock."""


def ticks(most: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to at least a number.

    >>> ticks(940), ticks(0.7), ticks(3), ticks(0)
    ([0, 200, 400, 600, 800, 1000], [0, 0.2, 0.4, 0.6, 0.8], [0, 1, 2, 3], [0, 1])
    """
    if not most > 0 or not math.isfinite(most):
        return [0, 1]
    raw = most / about
    power = 10.0 ** math.floor(math.log10(raw))
    return _up_to(most, next(power * times for times in (1, 2, 5, 10) if power * times >= raw * 0.999))


def time_ticks(most_ms: float, about: int = 5) -> list[float]:
    """The same for milliseconds: round for who reads a clock.

    >>> time_ticks(940), time_ticks(100_000)
    ([0, 200, 400, 600, 800, 1000], [0, 30000, 60000, 90000, 120000])
    """
    if not 1000 * about < most_ms < _STEPS_MS[-1] * about:
        return ticks(most_ms, about)
    return _up_to(most_ms, next(step for step in _STEPS_MS if step >= most_ms / about))


def _up_to(most: float, step: float) -> list[float]:
    numbers = [float(f"{step * place:.12g}") for place in range(math.ceil(most / step - 1e-9) + 1)]
    return [int(number) if number == int(number) else number for number in numbers]

r"""Words for numbers, times and names, as a person reads them.

Names come from a network: what is not printable, or would turn the direction of the text around it, is shown as an escape.

>>> clean("no such\norder\u202e")
'no such\\norder\\u202e'
"""

import contextlib
import math
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

NOT_KNOWN: Final = "not known"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST: Final = 400


def clean(text: str, most: int = _LONGEST) -> str:
    """A text of at most so many letters in which nothing is invisible."""
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def short(text: str | None, most: int = 22) -> str:
    """A name that fits into a picture: its middle is left out if need be.

    >>> short("3b023cc7-416e-43fc-8033-f60ce2b91e5b", 12), short(None), short("")
    ('3b023cc…1e5b', 'not known', 'empty')
    """
    if text is None:
        return NOT_KNOWN
    shown = clean(text)
    if len(shown) <= most:
        return shown or "empty"
    end = (most - 1) * 2 // 5
    return f"{shown[: most - 1 - end]}…{shown[len(shown) - end :]}"


def count(number: int, one: str = "", many: str = "") -> str:
    """A number, and what it counts.

    >>> count(1234), count(1, "message"), count(2, "reply", "replies")
    ('1,234', '1 message', '2 replies')
    """
    unit = one if number == 1 else many or f"{one}s"
    return f"{number:,} {unit}" if one else f"{number:,}"


def share(part: int, whole: int) -> str:
    """A share in percent; never 0 or 100 if it is neither.

    >>> share(1, 3), share(1, 10_000), share(9_999, 10_000), share(0, 5), share(0, 0)
    ('33 %', '< 0.1 %', '> 99.9 %', '0 %', '')
    """
    if not whole:
        return ""
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.1f} %" if 0 < percent < 10 or 90 < percent < 100 else f"{percent:.0f} %"


def duration(ms: float | None) -> str:
    """A time that something took, with three digits.

    >>> [duration(ms) for ms in (0, 0.0123, 7.11, 137.9, 1234, 60_000, 99_400, 5_400_264, 200_000_000, -3, None)]
    ['0 ms', '0.0123 ms', '7.11 ms', '138 ms', '1.23 s', '1 min', '1 min 39 s', '1 h 30 min', '2 d 8 h', '-3 ms', '-']
    """
    if ms is None or not math.isfinite(ms):
        return "-"
    if ms < 0:
        return f"-{duration(-ms)}"
    if ms < 1000:
        digits = f"{ms:.3g}" if ms < 999.5 else "1000"
        return f"{float(digits):.6f}".rstrip("0").rstrip(".") + " ms" if "e" in digits else f"{digits} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.3g} s"
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    place = next(place for place, (_, size) in enumerate(units) if seconds >= size)
    (big, size), (small, part) = units[place], units[place + 1]
    whole, rest = divmod(round(seconds / part), size // part)
    return f"{whole} {big}" + (f" {rest} {small}" if rest else "")


def moment(at: datetime | int | None, *, digits: int = 3) -> str:
    """A point in time, UTC; a number is in microseconds since 1970.

    >>> moment(1_794_765_998_413_687), moment(None), moment(1 << 62)
    ('2026-11-15 18:06:38.413', 'not known', 'after the year 9999')
    """
    if at is None:
        return NOT_KNOWN
    if isinstance(at, int):
        number, at = at, None
        with contextlib.suppress(OverflowError):
            at = _EPOCH + timedelta(microseconds=number)
        if at is None:
            return "after the year 9999" if number > 0 else "before the year 1"
    text = f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"
    return text[: len(text) - 6 + digits] if digits else text[:-7]


def whole(unit: Literal["hour", "minute"], since: datetime | None, until: datetime | None) -> str:
    """What is to be said of numbers that are kept by the hour or minute, if some time was asked for.

    >>> whole("hour", datetime(2026, 11, 15, 9, 20, tzinfo=UTC), datetime(2026, 11, 15, 10, 1, tzinfo=UTC))
    'These numbers are of whole hours: from 2026-11-15 09:00 until before 2026-11-15 11:00 UTC.'
    >>> whole("minute", datetime(2026, 11, 15, 9, 20, tzinfo=UTC), None), whole("minute", None, None)
    ('These numbers are of whole minutes: from 2026-11-15 09:20 on, UTC.', '')
    """
    step = timedelta(hours=1) if unit == "hour" else timedelta(minutes=1)
    us = step // timedelta(microseconds=1)
    first = moment((since - _EPOCH) // step * us, digits=0).removesuffix(":00") if since else ""
    last = moment(-((_EPOCH - until) // step) * us, digits=0).removesuffix(":00") if until else ""
    if not first and not last:
        return ""
    when = f"from {first} until before {last} UTC" if first and last else f"from {first} on, UTC" if first else ""
    return f"These numbers are of whole {unit}s: {when or f'until before {last} UTC'}."


def size(number: int) -> str:
    """Bytes.

    >>> size(999), size(12_345), size(5_000_000_000)
    ('999 B', '12.3 kB', '5 GB')
    """
    value, unit = float(number), "B"
    for greater in ("kB", "MB", "GB", "TB", "PB"):
        if value < 1000:
            break
        value, unit = value / 1000, greater
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"

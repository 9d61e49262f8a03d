"""Ids of flows: which of them name one. This file knows no table."""

from typing import Final

NO_FLOWS: Final = ("", "00000000-0000-0000-0000-000000000000")
"""Correlation keys that start no flow: service messages and broadcasts have them, and none can be looked at."""


def flow_of(key: str | None) -> str | None:
    """The flow that a correlation key names; None if it names none.

    >>> flow_of("3b023cc7"), flow_of(""), flow_of("00000000-0000-0000-0000-000000000000"), flow_of(None)
    ('3b023cc7', None, None, None)
    """
    return None if key in NO_FLOWS else key

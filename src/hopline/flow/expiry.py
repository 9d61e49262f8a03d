"""Expiry: what is left of a message's time to live.

Theory. The wire carries a duration, no clock. So nobody can tell from the bytes when a message was born; but each node
knows how long a message stayed inside it, and sends on what is left. 0 on the wire means "never expires", so what is left of
a limited life must never come out as 0: a message whose time is up has a negative TTL.

Time comes in as an argument, in nanoseconds of any one clock. This file reads none.
"""

from typing import Final

NS_PER_TICK: Final = 100
EXPIRED: Final = -1
"""The TTL of a message whose time is up."""


def is_expired(ttl_ticks: int) -> bool:
    """Whether a TTL says that the time is up.

    >>> is_expired(0), is_expired(1), is_expired(-1)
    (False, False, True)
    """
    return ttl_ticks < 0


def remaining_ttl(ttl_ticks: int, elapsed_ns: int) -> int:
    """What is left after `elapsed_ns` inside a node; 0 stays 0, and a life that has run out is negative.

    A tick that has begun counts as used: a node never gives a message more time than it had. A clock that went backwards
    (negative `elapsed_ns`) gives no time back.

    >>> remaining_ttl(100, 5_000), remaining_ttl(100, 10_000), remaining_ttl(0, 10_000)
    (50, -1, 0)
    """
    if ttl_ticks <= 0:
        return ttl_ticks
    left = ttl_ticks + min(-elapsed_ns // NS_PER_TICK, 0)
    return left if left > 0 else EXPIRED

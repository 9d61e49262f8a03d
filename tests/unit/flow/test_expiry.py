"""Expiry: decisions "TTL": the node subtracts the time inside it; 0 is endless, negative is over."""

import pytest

from hopline.flow import is_expired, remaining_ttl


@pytest.mark.parametrize(
    ("ttl", "elapsed_ns", "left"),
    [
        (0, 10**18, 0),
        (-5, 100, -5),
        (100, 0, 100),
        (100, 1, 99),
        (100, 100, 99),
        (100, 9_900, 1),
        (100, 9_901, -1),
        (100, 10_000, -1),
        (100, 10**18, -1),
        (100, -1_000, 100),
    ],
    ids=[
        "endless stays endless",
        "over stays over",
        "no time",
        "a tick begun is a tick used",
        "one tick",
        "last tick",
        "never 0",
        "exactly over",
        "long over",
        "a clock that went back gives nothing",
    ],
)
def test_remaining_ttl(ttl, elapsed_ns, left):
    assert remaining_ttl(ttl, elapsed_ns) == left
    assert is_expired(left) is (left < 0)

"""The replay window: decisions "MAC schemes": a replay window refuses repeats."""

import random

from hopline.security import FullSignature, ReplayWindow


def signature(signed_ns: int, nonce: int = 0) -> FullSignature:
    return FullSignature(signed_ns, nonce.to_bytes(16, "little"), b"")


def test_once_and_not_again():
    window = ReplayWindow(window_ns=10)
    assert window.admit(signature(100), 100)
    assert not window.admit(signature(100), 100)
    assert window.admit(signature(100, nonce=1), 100)
    assert window.admit(signature(101), 100)


def test_only_while_fresh_on_both_sides():
    window = ReplayWindow(window_ns=10)
    assert window.admit(signature(90), 100)
    assert not window.admit(signature(89), 100)
    assert window.admit(signature(110), 100)
    assert not window.admit(signature(111), 100)


def test_what_is_too_old_is_forgotten():
    window = ReplayWindow(window_ns=10)
    for now in range(1000):
        assert window.admit(signature(now), now)
    assert len(window) == 11


def test_a_full_window_stays_bounded_and_never_accepts_twice():
    window = ReplayWindow(window_ns=10**6, limit=100)
    rng = random.Random(1)
    admitted = set()
    for _ in range(5000):
        entry = signature(rng.randrange(500), rng.randrange(20))
        if window.admit(entry, 500):
            assert entry not in admitted
            admitted.add(entry)
        assert len(window) <= 100
    assert len(admitted) > 100, "the limit was reached, or this test shows nothing"
    assert not any(window.admit(entry, 500) for entry in admitted)


def test_a_full_window_refuses_what_is_as_old_as_the_one_that_gave_way():
    window = ReplayWindow(window_ns=100, limit=1)
    assert window.admit(signature(50), 100)
    assert not window.admit(signature(50, nonce=1), 100)
    assert window.admit(signature(51), 100)
    assert window.admit(signature(60), 100)
    assert not window.admit(signature(51, nonce=1), 100)


def test_a_clock_that_is_set_back_brings_nothing_back():
    window = ReplayWindow(window_ns=10)
    assert window.admit(signature(100), 100)
    assert window.admit(signature(120), 120)
    assert not window.admit(signature(100), 105)

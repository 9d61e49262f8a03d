"""Who may say what: decisions "domain check", "key rotation"."""

import pytest

from hopline.errors import SecurityError
from hopline.security import ROUTING_CONTROL, Domain, Domains

ORDERS = Domain(
    "orders", keys=(b"k1",), identities=frozenset({b"ORDER.PLACE", b"ORDER.LOG"}), unsigned=frozenset({b"ORDER.LOG"})
)
PUBLIC = Domain("public", is_unsigned=True, identities=frozenset({b"NEWS"}))


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({}, "no key"),
        ({"keys": (b"k", b"")}, "empty key"),
        ({"keys": (b"k",), "scheme": "rot13"}, "rot13"),
        ({"keys": (b"k",), "scheme": "kino", "algorithm": "crc"}, "crc"),
        ({"keys": (b"k",), "scheme": "full", "algorithm": "md5"}, "sha256"),
    ],
)
def test_a_domain_that_could_not_work_is_refused_at_once(settings, word):
    with pytest.raises(SecurityError, match=word) as caught:
        Domain("d", **settings)
    assert caught.value.code == "SECURITY_BAD_DOMAIN"


def test_a_domain_does_not_show_its_keys():
    assert "k1" not in repr(ORDERS)


def test_which_identities_need_a_signature():
    assert ORDERS.needs_signature(b"ORDER.PLACE")
    assert not ORDERS.needs_signature(b"ORDER.LOG")
    assert not PUBLIC.needs_signature(b"NEWS")


def test_lookup():
    domains = Domains([ORDERS, PUBLIC])
    assert list(domains) == [ORDERS, PUBLIC]
    assert len(domains) == 2
    assert domains.named("orders") is ORDERS
    assert domains.named("none") is None
    assert domains.of(b"NEWS") is PUBLIC
    with pytest.raises(SecurityError) as caught:
        domains.of(b"NOBODY")
    assert caught.value.code == "SECURITY_UNKNOWN_IDENTITY"


@pytest.mark.parametrize(
    ("name", "identity", "allowed"),
    [
        ("orders", b"ORDER.PLACE", True),
        ("public", b"ORDER.PLACE", False),
        ("orders", b"NOBODY", False),
        ("none", b"ORDER.PLACE", False),
        ("orders", b"KINO.REGEXTROUTE", True),
        ("public", b"KINO.PING", True),
        ("none", b"KINO.PING", False),
        ("orders", b"KINO.EXCEPTION", False),
    ],
)
def test_an_identity_speaks_only_for_its_own_domain(name, identity, allowed):
    assert Domains([ORDERS, PUBLIC]).may_say(name, identity) is allowed


def test_an_identity_belongs_to_a_domain_or_to_none():
    domains = Domains([ORDERS, PUBLIC])
    assert [domains.has(identity) for identity in (b"ORDER.PLACE", b"NEWS", b"KINO.EXCEPTION")] == [True, True, False]


def test_routing_control_is_exactly_what_the_reference_signs_per_domain():
    assert len(ROUTING_CONTROL) == 7
    assert b"KINO.UNREGUNREACHABLENODE" not in ROUTING_CONTROL


@pytest.mark.parametrize(
    "domains",
    [
        [ORDERS, Domain("orders", keys=(b"k",))],
        [ORDERS, Domain("other", keys=(b"k",), identities=frozenset({b"ORDER.PLACE"}))],
    ],
    ids=["same name", "same identity"],
)
def test_nothing_belongs_to_two(domains):
    with pytest.raises(SecurityError) as caught:
        Domains(domains)
    assert caught.value.code == "SECURITY_BAD_DOMAIN"

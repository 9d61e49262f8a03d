"""Signing, judging, and the key file."""

import msgspec
import pytest

from hopline.errors import InputError, SecurityError
from hopline.security import Domain, Keyring, Verdict, read_keys
from hopline.wire import Decoded, Message, decode, encode

NONCE = bytes(16)
MESSAGE = Message(identity=b"HELLO", version=1, body=b"hi", domain="dom")


def seen(message: Message, *layout: str) -> Decoded:
    return decode(encode(message, *layout))


def keyring(*keys: bytes, **settings: object) -> Keyring:
    return Keyring([Domain("dom", keys=keys, **settings)])


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ({"scheme": "kino"}, 16),
        ({"scheme": "kino", "algorithm": "sha256"}, 32),
        ({"scheme": "full"}, 57),
        ({"scheme": "full", "algorithm": "sha256"}, 57),
    ],
)
def test_what_is_signed_is_valid_and_what_was_changed_is_not(settings, size):
    ring = keyring(b"key", **settings)
    signed = ring.sign(MESSAGE, now_ns=5, nonce=NONCE)
    assert len(signed.signature) == size
    assert ring.verify(seen(signed)) is Verdict.VALID
    assert ring.verify(seen(msgspec.structs.replace(signed, body=b"ho"))) is Verdict.INVALID
    assert keyring(b"other", **settings).verify(seen(signed)) is Verdict.INVALID


def test_full_survives_what_hops_do():
    ring = keyring(b"key")
    signed = ring.sign(MESSAGE, now_ns=5, nonce=NONCE)
    travelled = msgspec.structs.replace(signed, hops=3, ttl_ticks=9, socket_identity=b"N2")
    assert ring.verify(seen(travelled, "v5")) is Verdict.VALID


def test_the_first_key_signs_and_every_key_is_accepted():
    old, new = keyring(b"old", scheme="kino"), keyring(b"new", b"old", scheme="kino")
    assert new.verify(seen(old.sign(MESSAGE))) is Verdict.VALID
    assert old.verify(seen(new.sign(MESSAGE))) is Verdict.INVALID


def test_text_versions_are_covered_as_they_are_on_the_wire():
    ring = keyring(b"key", scheme="kino")
    signed = ring.sign(MESSAGE, text_version=True)
    assert ring.verify(seen(signed, "v4", "text-version")) is Verdict.VALID
    assert ring.verify(seen(signed, "v4")) is Verdict.INVALID
    assert ring.verify(seen(signed, "v5")) is Verdict.INVALID


@pytest.mark.parametrize(
    ("signature", "domain", "options", "verdict"),
    [
        (b"", "dom", {}, Verdict.UNSIGNED),
        (b"", "none", {}, Verdict.UNSIGNED),
        (b"s" * 16, "none", {}, Verdict.UNKNOWN_DOMAIN),
        (b"s" * 16, "open", {}, Verdict.UNKNOWN_DOMAIN),
        (b"s" * 16, "dom", {}, Verdict.INVALID),
        (b"s" * 20, "dom", {}, Verdict.INVALID),
        (b"s" * 16, "dom", {"algorithm": "sha256"}, Verdict.INVALID),
        (b"s" * 16, "dom", {"scheme": "full"}, Verdict.INVALID),
    ],
    ids=["unsigned", "unsigned first", "unknown", "no key", "wrong", "odd size", "other algorithm", "not full"],
)
def test_verdicts(signature, domain, options, verdict):
    ring = Keyring([Domain("dom", keys=(b"key",), scheme="kino"), Domain("open", is_unsigned=True)])
    message = msgspec.structs.replace(MESSAGE, signature=signature, domain=domain)
    assert ring.verify(seen(message), **options) is verdict


def test_options_overrule_the_domain():
    signed = keyring(b"key", scheme="kino", algorithm="sha256").sign(MESSAGE)
    assert keyring(b"key").verify(seen(signed)) is Verdict.INVALID
    assert keyring(b"key").verify(seen(signed), scheme="kino") is Verdict.VALID
    assert keyring(b"key").verify(seen(signed), scheme="kino", algorithm="md5") is Verdict.INVALID


def test_signing_needs_a_domain_with_a_key_and_a_nonce():
    with pytest.raises(SecurityError) as caught:
        keyring(b"key").sign(msgspec.structs.replace(MESSAGE, domain="none"))
    assert caught.value.code == "SECURITY_UNKNOWN_DOMAIN"
    with pytest.raises(SecurityError):
        Keyring([Domain("dom", is_unsigned=True)]).sign(MESSAGE)
    with pytest.raises(ValueError, match="nonce"):
        keyring(b"key").sign(MESSAGE)


def test_a_key_file():
    domains = read_keys(
        """
        [domains.orders]
        keys = ["6b6579", "6F6C64"]
        scheme = "kino"
        algorithm = "md5"
        identities = ["ORDER.PLACE", "ЗАКАЗ"]
        unsigned = ["ORDER.LOG"]
        [domains."a = b"]
        unsigned = true
        [domains.new]
        keys = ["00"]
        unsigned = false
        """
    )
    assert domains == [
        Domain(
            "orders",
            (b"key", b"old"),
            "kino",
            "md5",
            frozenset({b"ORDER.PLACE", "ЗАКАЗ".encode()}),
            frozenset({b"ORDER.LOG"}),
        ),
        Domain("a = b", is_unsigned=True),
        Domain("new", (b"\0",), "full"),
    ]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("not toml", "not TOML"),
        ("domains = " + "[" * 100_000, "not TOML"),
        ("keys = 1", "no table"),
        ("[domains]\norders = 1", "not a table"),
        ("[domains.d]\n5ecre7 = '00'", "1 unknown settings"),
        ("[domains.d]\nkeys = '00'", "list of texts"),
        ("[domains.d]\nkeys = [1]", "list of texts"),
        ("[domains.d]\nkeys = ['00']\nunsigned = 7", "list of texts"),
        ("[domains.d]\nkeys = ['5ecret']", "not hexadecimal"),
    ],
)
def test_a_bad_key_file_says_what_is_wrong_and_shows_no_key(text, word):
    with pytest.raises(InputError, match=word) as caught:
        read_keys(text)
    assert caught.value.code == "INPUT_BAD_KEY"
    assert "5ecre" not in str(caught.value)

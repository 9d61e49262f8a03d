"""Signatures in bulk: the verdicts of the keyring for every layout, and no key that shows."""

import contextlib
import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.errors import EncodeError, SecurityError
from hopline.security import Domain, Keyring, Verdict
from hopline.security.columnar import Judge, schemes
from hopline.wire import Extra, Message, MessageType, decode, encode
from hopline.wire.columnar import decode_batch
from tests.strategies import LAYOUTS, messages_with_extras

CAPTURES = Path(__file__).resolve().parents[4] / "shared" / "captures"
NONCE = bytes(range(16))
DOMAINS = (
    Domain("full", keys=(b"first", b"second")),
    Domain("kino", keys=(b"key",), scheme="kino"),
    Domain("sized", keys=(b"key", b"older"), scheme="kino"),
    Domain("sha", keys=(b"k" * 100,), scheme="kino", algorithm="sha256"),
    Domain("open", is_unsigned=True),
)
OLDER = (Domain("full", keys=(b"second",)), Domain("sized", keys=(b"older",), scheme="kino", algorithm="sha256"))
NAMES = ("full", "kino", "sized", "sha", "open", "nobody's", "")


def judged(frames: list[list[bytes]], domains=DOMAINS) -> list[str]:
    lists = pa.array(frames, pa.list_(pa.binary()))
    judge = Judge(domains)
    return judge.verdicts(decode_batch(lists, columns=list(judge.columns)).messages, lists).to_pylist()


def by_row(frames: list[list[bytes]], domains=DOMAINS) -> list[str]:
    keyring = Keyring(domains)
    return [keyring.verify(decode(each)).value for each in frames]


@st.composite
def signed_frames(draw: st.DrawFn) -> list[bytes]:
    """A message of any layout, signed well, with an older key, with another one's, for another version, or not at all."""
    format, variant = draw(st.sampled_from(LAYOUTS))
    message, extra = draw(messages_with_extras(format, variant))
    has_place = format in {"v5", "v6"} or (variant in {"", "text-version", "trailer-16", "trailer-17"} and format == "v4")
    if has_place:
        message = msgspec.structs.replace(message, domain=draw(st.sampled_from(NAMES)), signature=b"")
        ring = Keyring(draw(st.sampled_from([DOMAINS, OLDER, tuple(Domain(name, keys=(b"bad",)) for name in NAMES)])))
        if draw(st.booleans()):
            with contextlib.suppress(EncodeError, SecurityError):  # no number, or no key: it stays unsigned
                message = ring.sign(message, now_ns=5, nonce=NONCE, text_version=draw(st.booleans()))
        elif draw(st.booleans()):
            message = msgspec.structs.replace(message, signature=draw(st.sampled_from([b"x", bytes(16), b"\1" + bytes(56)])))
    return encode(message, format, variant, extra)


@pytest.mark.slow
@given(st.lists(signed_frames(), max_size=6))
def test_the_keyring_and_the_judge_always_agree(frames):
    assert judged(frames) == by_row(frames)


MESSAGE = Message(
    identity=b"HELLO",
    version=1,
    partition=b"P",
    body=b"hi",
    correlation_id=b"c1",
    callback_points=(MessageType(b"EHHLO", 1), MessageType(b"KINO.RCPTCONFIRM", 1), MessageType(b"A", 2, b"P")),
    callback_key=7,
    callback_receiver_identity=b"\0H1",
    callback_receiver_node_identity=b"N1",
    receiver_node_identity=b"N2",
)


def signed(domain: str, *, text_version: bool = False, domains=DOMAINS, message: Message = MESSAGE) -> Message:
    named = msgspec.structs.replace(message, domain=domain)
    return Keyring(domains).sign(named, now_ns=5, nonce=NONCE, text_version=text_version)


@pytest.mark.parametrize("domain", ["full", "kino", "sized", "sha"])
def test_what_is_signed_is_valid_and_what_was_changed_is_not(domain):
    good = signed(domain)
    changed = msgspec.structs.replace(good, body=b"ho")
    other = msgspec.structs.replace(good, correlation_id=b"c2")
    frames = [encode(each, format) for each in (good, changed, other) for format in ("v5", "v6")]
    uncovered = Verdict.INVALID if domain == "full" else Verdict.VALID
    assert judged(frames) == [Verdict.VALID] * 2 + [Verdict.INVALID] * 2 + [uncovered] * 2 == by_row(frames)


def test_any_key_of_a_domain_is_accepted():
    frames = [encode(signed(name, domains=OLDER)) for name in ("full", "sized")]
    assert judged(frames) == ["valid", "valid"]


def test_text_versions_are_covered_as_they_are_on_the_wire():
    old = msgspec.structs.replace(MESSAGE, callback_key=0, callback_receiver_node_identity=b"")
    frames = [
        encode(signed("kino", text_version=is_text, message=old), "v4", variant)
        for is_text in (True, False)
        for variant in ("text-version", "")
    ]
    assert judged(frames) == ["valid", "invalid", "invalid", "valid"] == by_row(frames)


def test_a_version_that_is_no_number_is_covered_as_it_is():
    odd = msgspec.structs.replace(MESSAGE, version=b"1.1", callback_key=0, callback_receiver_node_identity=b"")
    frames = [encode(signed("kino", text_version=True, message=odd), "v4", "text-version")]
    assert judged(frames) == ["valid"]


def test_where_the_batch_leaves_the_version_open_the_keyring_decides():
    keyed = signed("kino", text_version=True, message=msgspec.structs.replace(MESSAGE, callback_receiver_node_identity=b""))
    frames = [encode(keyed, "v4", "trailer-16", Extra(text_version=True)), encode(keyed, "v4", "trailer-16")]
    assert judged(frames) == ["valid", "invalid"] == by_row(frames)


def test_unsigned_unknown_and_unreadable_signatures():
    frames = [
        encode(MESSAGE),
        encode(msgspec.structs.replace(MESSAGE, domain="nobody's", signature=b"x")),
        encode(msgspec.structs.replace(MESSAGE, domain="open", signature=b"x")),
        encode(msgspec.structs.replace(MESSAGE, domain="full", signature=bytes(16))),
        encode(msgspec.structs.replace(MESSAGE, domain="kino", signature=b"x")),
    ]
    assert judged(frames) == ["unsigned", "unknown-domain", "unknown-domain", "invalid", "invalid"] == by_row(frames)


def test_nothing_to_judge():
    assert judged([]) == []


def test_rejects_between_messages_do_no_harm():
    frames = [[b"junk"], encode(signed("kino"), "v6")]
    assert judged(frames) == ["valid"]


def test_the_scheme_is_that_of_the_domain_or_what_the_signature_looks_like():
    shapes = [
        ("kino", b"x"),
        ("full", b"x"),
        ("?", bytes(16)),
        ("?", bytes(32)),
        ("?", b"\1" + bytes(56)),
        ("?", b"x"),
        ("full", b""),
    ]
    frames = [encode(Message(domain=domain, signature=signature)) for domain, signature in shapes]
    batch = decode_batch(pa.array(frames)).messages
    assert schemes(batch, DOMAINS).to_pylist() == ["kino", "full", "kino", "kino", "full", "", ""]


def test_no_key_is_shown():
    judge = Judge([Domain("dom", keys=(b"secret",))])
    assert "secret" not in f"{judge!r} {vars(judge)!r}"
    assert "dom" in repr(judge)


@pytest.mark.skipif(not CAPTURES.exists(), reason="the captures are not here")
def test_what_reference_nodes_signed_is_valid():
    domains = [Domain(name * 30, keys=(name.encode() * 16,), scheme="kino") for name in "AB"]
    lines = [json.loads(line) for path in CAPTURES.glob("*_hmac_*.jsonl") for line in path.read_text().splitlines()]
    frames = [[bytes.fromhex(frame) for frame in line["frames"]] for line in lines]
    verdicts = judged(frames, domains)
    assert verdicts == by_row(frames, domains)
    assert set(verdicts) == {"valid", "unsigned"}

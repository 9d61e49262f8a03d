"""MAC schemes: protocol.md 4 for `kino`, the docstring of mac.py and docs/security.md for `full`."""

import hashlib
import hmac

import msgspec
import pytest

from hopline.errors import EncodeError
from hopline.identity import RECEIPT
from hopline.security import FullSignature, Mac, full_input, kino_input, read_full, write_full
from hopline.wire import Distribution, Message, MessageType, RoutingEntry

SAMPLE = Message(
    identity=b"HELLO",
    version=1,
    body=b"\x0a\2hi",
    callback_receiver_identity=b"\0H1",
    domain="dom",
    correlation_id=b"C1",
)


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
@pytest.mark.parametrize("key", [b"", b"key", b"k" * 64, b"k" * 65, b"k" * 1000])
@pytest.mark.parametrize("data", [b"", b"data", b"d" * 1000])
def test_prepared_states_give_the_codes_of_the_standard_library(algorithm, key, data):
    mac = Mac(key, algorithm)
    expected = hmac.digest(key, data, algorithm)
    assert [mac.digest(data), mac.digest(data)] == [expected, expected], "a state must not be used up"
    assert mac.accepts(data, expected)
    assert not mac.accepts(data, expected[:-1])
    assert not mac.accepts(data + b"x", expected)


def test_a_mac_does_not_show_its_key():
    assert repr(Mac(b"secret", "md5")) == "Mac(md5)"


@pytest.mark.parametrize(
    ("text_version", "version", "code"),
    [
        # The worked examples of protocol.md 1.5 and 1.4, key `key`.
        (False, b"\1\0", "68e9953fb9fa0caf08cad22f21c203fe"),
        (True, b"1.0", "067af160431fce17813e1ff753f0f486"),
    ],
    ids=["v5", "v4 with text versions"],
)
def test_kino_covers_five_fields_without_lengths(text_version, version, code):
    data = kino_input(SAMPLE, text_version=text_version)
    assert data == b"HELLO" + version + b"\x0a\2hi" + b"\0H1"
    assert Mac(b"key", "md5").digest(data).hex() == code


def test_kino_needs_a_version_that_the_wire_can_hold():
    with pytest.raises(EncodeError):
        kino_input(Message(version=b"odd"))


CHANGES = {
    "identity": b"HELLP",
    "version": 2,
    "partition": b"P",
    "body": b"ho",
    "correlation_id": b"C2",
    "receiver_identity": b"\1a",
    "receiver_node_identity": b"n1",
    "distribution": Distribution.BROADCAST,
    "trace_options": 1,
    "callback_points": (MessageType(b"X", 1),),
    "callback_key": 7,
    "callback_receiver_identity": b"\0H2",
    "callback_receiver_node_identity": b"n2",
    "domain": "dom2",
}
HOP_CHANGES = {
    "socket_identity": b"N2",
    "hops": 2,
    "routing": (RoutingEntry("tcp://a:1", b"a"),),
    "ttl_ticks": 5,
    "signature": b"s",
    "callback_points": (RECEIPT,),
}


@pytest.mark.parametrize("field", CHANGES)
def test_full_covers_what_no_hop_changes(field):
    changed = msgspec.structs.replace(SAMPLE, **{field: CHANGES[field]})
    assert full_input(changed, 1, b"n" * 16) != full_input(SAMPLE, 1, b"n" * 16)


@pytest.mark.parametrize("field", HOP_CHANGES)
def test_full_leaves_out_what_hops_change(field):
    changed = msgspec.structs.replace(SAMPLE, **{field: HOP_CHANGES[field]})
    assert full_input(changed, 1, b"n" * 16) == full_input(SAMPLE, 1, b"n" * 16)


def test_full_covers_time_and_nonce():
    inputs = {full_input(SAMPLE, 1, b"n" * 16), full_input(SAMPLE, 2, b"n" * 16), full_input(SAMPLE, 1, b"m" * 16)}
    assert len(inputs) == 3


def test_full_layout_byte_by_byte():
    """The worked example of docs/security.md, put together by hand."""
    nonce = bytes(range(16))
    signed_ns = 1_700_000_000_000_000_000
    header = b"\1" + signed_ns.to_bytes(8, "little") + nonce
    number = lambda value, size: value.to_bytes(size, "little")  # noqa: E731
    part = lambda raw: number(len(raw), 4) + raw  # noqa: E731
    covered = b"".join(
        (
            b"hopline full 1\0",
            header,
            part(b"dom"),
            part(b""),
            *(part(raw) for raw in (b"HELLO", b"\1\0", b"", b"C1", b"", b"\0H1", b"")),
            b"\0",
            number(0, 8),
            number(0, 8),
            number(0, 4),
            b"\x0a\2hi",
        )
    )
    assert full_input(SAMPLE, signed_ns, nonce) == covered
    tag = hmac.new(b"key", covered, hashlib.sha256).digest()
    field = write_full(FullSignature(signed_ns, nonce, tag))
    assert field == header + tag
    assert len(field) == 57
    assert read_full(field) == FullSignature(signed_ns, nonce, tag)


@pytest.mark.parametrize("raw", [b"", b"\1" * 56, b"\1" * 58, b"\2" * 57])
def test_other_signatures_are_not_full(raw):
    assert read_full(raw) is None

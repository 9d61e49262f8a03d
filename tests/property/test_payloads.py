"""The rules of service bodies for all of them, not for some: both directions, any damage, unknown fields, bounded memory."""

import tracemalloc
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from hopline.errors import PayloadError
from hopline.payload import SERVICE_IDENTITIES, ServicePayload, read_service, service
from hopline.payload.bson import find_document, read_texts, write_document
from hopline.payload.proto import Int32, Int64, ProtoMessage, TimeSpan, Uint64, Version, write_field, write_varint
from hopline.payload.service import ExceptionMessage, OldServicePayload, RouteType
from hopline.wire import FormatName
from tests.strategies import blobs, i32s, i64s, texts, u16s

ERAS: tuple[FormatName, ...] = ("v3", "v4", "v5", "v6")

generous = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

# Lengths of time: whole units, the edges of one, and anything else.
spans = st.one_of(
    i64s,
    st.builds(
        lambda unit, count, off: unit * count + off,
        st.sampled_from([1, 10_000, 10_000_000, 600_000_000, 36_000_000_000, 864_000_000_000]),
        st.integers(-100, 100),
        st.sampled_from([0, 0, 1, -1]),
    ),
)

# What each annotation may hold; written from the table in the docstring of proto.py.
VALUES: tuple[tuple[Any, st.SearchStrategy[Any]], ...] = (
    (str, texts),
    (bytes, blobs),
    (bool, st.booleans()),
    (RouteType, st.sampled_from(RouteType)),
    (Int32, i32s),
    (Int64, i64s),
    (Uint64, st.one_of(st.sampled_from([0, 1, 2**64 - 1]), st.integers(0, 2**64 - 1))),
    (Version, st.one_of(u16s, st.binary(max_size=5))),
    (TimeSpan, spans),
)


def values_of(hint: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 - whatever may stand in an annotation
    if get_origin(hint) is tuple:
        return st.lists(values_of(get_args(hint)[0]), max_size=3).map(tuple)
    if isinstance(hint, UnionType):
        return st.none() | values_of(get_args(hint)[0])
    for known, values in VALUES:
        if hint == known:
            return values
    return messages(hint)


def messages(cls: type[ProtoMessage]) -> st.SearchStrategy[Any]:
    hints = get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{name: values_of(hints[name]) for name in cls.__struct_fields__})


CLASSES = [
    found
    for found in vars(service).values()
    if isinstance(found, type) and issubclass(found, ServicePayload) and hasattr(found, "identity")
]
each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
payloads = st.sampled_from(CLASSES).flatmap(messages)


def era_of(cls: type[ServicePayload]) -> FormatName:
    return "v4" if issubclass(cls, OldServicePayload) else "v6"


@each_class
@settings(generous, max_examples=50)
@given(data=st.data())
def test_a_payload_comes_back_as_it_was(cls: type[ServicePayload], data: st.DataObject) -> None:
    payload = data.draw(messages(cls))
    back = read_service(cls.identity, payload.write(), era=era_of(cls))
    assert back == payload
    assert type(back) is cls


# --- damage -----------------------------------------------------------------------------------------------------------

NUMBERS = tuple(
    [write_varint(value) for value in (0, 1, 2, 127, 128, 0xFFFF, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, -1)]
    + [value.to_bytes(4, "little", signed=True) for value in (0, 1, 4, 5, -1, 2**31 - 1, -(2**31))]
    + [bytes([number << 3 | wire_type]) for number in range(5) for wire_type in range(8)]
)
"""Numbers that mean something in a body: varints, sizes, tags."""


@st.composite
def mutations(draw: st.DrawFn, body: bytes) -> bytes:
    for _ in range(draw(st.integers(1, 4))):
        where = draw(st.integers(0, len(body)))
        match draw(st.integers(0, 4)):
            case 0:
                body = body[:where]
            case 1:
                body = body[:where] + draw(st.binary(max_size=6)) + body[where:]
            case 2:
                number = draw(st.sampled_from(NUMBERS))
                body = body[:where] + number + body[where + len(number) :]
            case 3:
                body = body[:where] + body[where + draw(st.integers(1, 4)) :]
            case _:
                flipped = bytearray(body + b"\0")
                flipped[where] ^= 1 << draw(st.integers(0, 7))
                body = bytes(flipped)
    return body


def check(identity: bytes, body: bytes, era: FormatName) -> str:
    """All that must hold for any body whatever: it is refused, or what was read can be written and read again."""
    error = None
    try:
        payload = read_service(identity, body, era=era)
    except PayloadError as caught:
        error = caught
    if error is not None:
        assert error.code == "PAYLOAD_BROKEN"
        assert len(str(error)) < 300
        return "refused"
    written = payload.write()
    assert read_service(identity, written, era=era) == payload
    if not isinstance(payload, ExceptionMessage):
        assert len(written) <= len(body), "nothing is read that was not there"
    return "read"


@settings(generous, max_examples=600)
@given(data=st.data(), era=st.sampled_from(ERAS))
def test_a_damaged_body_is_refused_or_read(data: st.DataObject, era: FormatName) -> None:
    payload = data.draw(payloads)
    event(check(payload.identity, data.draw(mutations(payload.write())), era))


@settings(generous, max_examples=600)
@given(
    identity=st.sampled_from(sorted(SERVICE_IDENTITIES)),
    body=st.one_of(st.binary(max_size=100), st.lists(st.sampled_from(NUMBERS), max_size=20).map(b"".join)),
    era=st.sampled_from(ERAS),
)
def test_any_bytes_are_refused_or_read(identity: bytes, body: bytes, era: FormatName) -> None:
    event(check(identity, body, era))


@generous
@given(identity=st.binary(max_size=20), body=st.binary(max_size=20), era=st.sampled_from(ERAS))
def test_any_identity_is_refused_or_read(identity: bytes, body: bytes, era: FormatName) -> None:
    event(check(identity, body, era))


# --- what is new to us ------------------------------------------------------------------------------------------------

unknown_fields = st.one_of(
    st.builds(write_field, st.integers(100, 2**29 - 1), st.one_of(blobs, i64s)),
    st.builds(
        lambda number, size: write_varint(number << 3 | {8: 1, 4: 5}[size]) + bytes(size),
        st.integers(100, 2**29 - 1),
        st.sampled_from([4, 8]),
    ),
)


@generous
@given(data=st.data(), before=unknown_fields, after=unknown_fields)
def test_unknown_fields_change_nothing(data: st.DataObject, before: bytes, after: bytes) -> None:
    payload = data.draw(payloads.filter(lambda payload: not isinstance(payload, ExceptionMessage)))
    body = before + payload.write() + after
    assert read_service(payload.identity, body, era=era_of(type(payload))) == payload


ascii_keys = st.text("abcXYZ", min_size=1, max_size=4)
bson_values = st.recursive(
    st.one_of(st.none(), texts, blobs, i32s), lambda inner: st.dictionaries(ascii_keys, inner, max_size=3), max_leaves=8
)


@generous
@given(document=st.dictionaries(ascii_keys, bson_values, max_size=5), padding=st.binary(max_size=20))
def test_documents_are_read_by_key(document: dict[str, Any], padding: bytes) -> None:
    body = write_document(document) + padding
    last = {key.lower(): value for key, value in document.items() if value is None or isinstance(value, str)}
    assert read_texts(body, {key.lower() for key in document}) == last
    for key in {key.lower() for key in document}:
        nested = [value for name, value in document.items() if name.lower() == key and isinstance(value, dict)]
        assert find_document(body, key) == (write_document(nested[-1]) if nested else None)


@pytest.mark.parametrize("era", ERAS)
def test_a_promise_of_bytes_costs_no_memory(era: FormatName) -> None:
    # Sizes of gigabytes, as a varint and as an int32.
    bodies = [
        *(
            write_varint(number << 3 | 2) + write_varint(size) + b"x"
            for number in range(1, 5)
            for size in (2**31 - 1, 2**63)
        ),
        b"\xff\xff\xff\x7f\x02Message\0\xff\xff\xff\x7f",
        b"\x20\0\0\0\x02Message\0\xff\xff\xff\x7f" + bytes(15),
    ]
    tracemalloc.start()
    try:
        for identity in SERVICE_IDENTITIES:
            assert {check(identity, body, era) for body in bodies} == {"refused"}, identity
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()

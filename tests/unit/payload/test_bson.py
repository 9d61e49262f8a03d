"""BSON: protocol.md 2.6 and 3.9 for what is in a body, the docstring of bson.py for what is stepped over."""

import pytest

from hopline.errors import EncodeError, PayloadError
from hopline.payload.bson import find_document, read_texts, write_document


def i32(value):
    return value.to_bytes(4, "little", signed=True)


def document(*elements):
    body = b"".join(elements)
    return i32(len(body) + 5) + body + b"\0"


def element(kind, value=b"", key=b"other"):
    return bytes([kind]) + key + b"\0" + value


def text(value, key=b"Message"):
    return element(2, i32(len(value) + 1) + value + b"\0", key)


def refused(data):
    with pytest.raises(PayloadError) as caught:
        read_texts(data, ["Message"])
    assert caught.value.code == "PAYLOAD_BROKEN"
    return str(caught.value)


def test_values_both_ways():
    values = {"text": "\u0442\0x", "none": None, "document": {"n": -1, "inner": {}}, "binary": b"\0\xff", "empty": ""}
    inner = document(element(16, i32(-1), b"n"), element(3, document(), b"inner"))
    written = document(
        text(b"\xd1\x82\0x", b"text"),
        element(10, b"", b"none"),
        element(3, inner, b"document"),
        element(5, i32(2) + b"\0" + b"\0\xff", b"binary"),
        text(b"", b"empty"),
    )
    assert write_document(values) == written
    assert read_texts(written, values) == {"text": "\u0442\0x", "none": None, "empty": ""}
    assert {key: find_document(written, key) for key in values if key != "document"} == dict.fromkeys(
        values.keys() - {"document"}
    )
    assert find_document(written, "Document") == inner
    assert write_document({}) == document() == b"\5\0\0\0\0"


def test_keys_have_no_case_and_the_last_one_counts():
    data = document(text(b"first", b"MESSAGE"), text(b"last", b"message"), text(b"x", b"messages"))
    assert read_texts(data, ["Message"]) == {"Message": "last"}
    documents = [document(element(10)), document()]
    assert find_document(document(*(element(3, each, b"Message") for each in documents)), "message") == documents[1]


def test_only_what_is_asked_for_is_read():
    assert read_texts(document(text(b"\xff", b"Stack"), text(b"m")), ["Message"]) == {"Message": "m"}


@pytest.mark.parametrize("padding", [b"", b"\0" * 100, b"\xff\xff"])
def test_padding_is_ignored(padding):
    assert read_texts(document(text(b"m")) + padding, ["Message"]) == {"Message": "m"}


SKIPPED = {
    "double": element(0x01, bytes(8)),
    "array": element(0x04, document(text(b"0"))),
    "binary": element(0x05, i32(3) + b"\x80abc"),
    "undefined": element(0x06),
    "object id": element(0x07, bytes(12)),
    "boolean": element(0x08, b"\1"),
    "UTC time": element(0x09, bytes(8)),
    "regular expression": element(0x0B, b"a.*\0i\0"),
    "pointer": element(0x0C, i32(2) + b"a\0" + bytes(12)),
    "code": element(0x0D, i32(2) + b"a\0"),
    "symbol": element(0x0E, i32(2) + b"a\0"),
    "code with scope": element(0x0F, i32(15) + i32(2) + b"a\0" + document()),
    "int32": element(0x10, bytes(4)),
    "timestamp": element(0x11, bytes(8)),
    "int64": element(0x12, bytes(8)),
    "decimal": element(0x13, bytes(16)),
    "largest key": element(0x7F),
    "smallest key": element(0xFF),
}


@pytest.mark.parametrize("kind", SKIPPED)
def test_other_types_are_stepped_over(kind):
    skipped = SKIPPED[kind]
    assert read_texts(document(skipped, text(b"m"), skipped), ["Message", "Other"]) == {"Message": "m"}


def test_nothing_is_entered():
    deep = document()
    for _ in range(2_000):
        deep = document(element(3, deep, b"Message"))
    assert read_texts(deep, ["Message"]) == {}
    assert find_document(deep, "Message") == deep[13:-1]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "size reaches beyond"),
        (b"\5\0\0", "size reaches beyond"),
        (b"\4\0\0\0", "says it has 4 bytes, there are 4"),
        (b"\0\0\0\0\0", "says it has 0 bytes, there are 5"),
        (i32(-1) + b"\0", "says it has -1 bytes"),
        (i32(2**31 - 1) + b"\0", "says it has 2147483647 bytes, there are 5"),
        (b"\6\0\0\0\0", "says it has 6 bytes, there are 5"),
        (b"\5\0\0\0\1", "does not end with a zero byte"),
        (document(b"\2Mes"), "key or pattern reaches beyond"),
        (document(b"\x0aMessage"), "key or pattern reaches beyond"),
        (document(element(0x0B, b"a\0i")), "key or pattern reaches beyond"),
        (document(element(0x0B, b"a")), "key or pattern reaches beyond"),
        (document(element(0x00)), "BSON has no type 0x00"),
        (document(element(0x14)), "BSON has no type 0x14"),
        (document(element(0x02)), "size reaches beyond"),
        (document(element(0x02, i32(2**31 - 1))), "needs 2147483651 bytes, 4 are left"),
        (document(element(0x02, i32(-1))), "impossible size 3"),
        (document(element(0x05, i32(-2))), "impossible size 3"),
        (document(element(0x03, i32(3))), "impossible size 3"),
        (document(element(0x03, i32(6) + b"\0")), "needs 6 bytes, 5 are left"),
        (document(element(0x10, bytes(3))), "needs 4 bytes, 3 are left"),
        (document(element(0x02, i32(0), b"Message")), "Message does not end with a zero byte"),
        (document(element(0x02, i32(2) + b"ab", b"Message")), "Message does not end with a zero byte"),
        (document(text(b"a\xff")), "Message is not valid UTF-8: invalid start byte at byte 1"),
    ],
)
def test_broken_documents_are_refused(data, reason):
    assert reason in refused(data)


@pytest.mark.parametrize(
    ("values", "code"),
    [({"n": 2**31}, "WIRE_OVERFLOW"), ({"text": "\ud800"}, "WIRE_BAD_TEXT"), ({"\ud800": None}, "WIRE_BAD_TEXT")],
    ids=["number", "text", "key"],
)
def test_what_does_not_fit_is_our_own_fault(values, code):
    with pytest.raises(EncodeError) as caught:
        write_document(values)
    assert caught.value.code == code

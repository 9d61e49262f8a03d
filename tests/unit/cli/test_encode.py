import json
import subprocess
import sys

import pytest

from hopline.wire import Extra, Message, encode
from hopline.wire.fields import message_to_json
from tests.unit.cli.conftest import hexed

HELLO = Message(identity=b"HELLO", version=1, body=b"hi")
LAYOUTS = [
    ("v3", "", None),
    ("v4", "", None),
    ("v4", "text-version", None),
    ("v4", "trailer-13", Extra(text_version=False)),
    ("v5", "uint16-stamp", None),
    ("v5", "int32-stamp", Extra(body_sizes=(1, 1), after_body=(b"new",))),
    ("v6", "", Extra(wire_version=4, trailing=b"new")),
    ("v6", "early", None),
]


def test_decode_then_encode_gives_the_same_bytes(hopline):
    lines = [hexed(encode(HELLO, *layout)) for layout in LAYOUTS]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    decoded = subprocess.run(
        [sys.executable, "-m", "hopline", "decode"], input=text.encode(), capture_output=True, check=True, timeout=50
    )
    result = hopline("encode", text=decoded.stdout)
    assert result.code == 0
    assert result.lines == [{"ok": True, **line} for line in lines]


def test_without_format_and_variant_it_is_v6_and_v5_gets_the_long_stamp(hopline):
    fields = message_to_json(HELLO)
    result = hopline("encode", objects=[{"fields": fields}, {"fields": fields, "format": "v5"}])
    assert result.lines == [{"ok": True, **hexed(encode(HELLO))}, {"ok": True, **hexed(encode(HELLO, "v5", "int32-stamp"))}]


def test_missing_fields_are_empty(hopline):
    assert hopline("encode", objects=[{"fields": {}}]).lines == [{"ok": True, **hexed(encode(Message()))}]


def test_options_overrule_the_line_and_leave_its_extra_behind(hopline):
    line = {"fields": message_to_json(HELLO), "format": "v6", "variant": "early", "extra": {"trailing": "6e6577"}}
    result = hopline("encode", "--format", "v5", objects=[line])
    assert result.lines == [{"ok": True, **hexed(encode(HELLO, "v5"))}]
    result = hopline("encode", "--format", "v5", "--variant", "uint16-stamp", objects=[line])
    assert result.lines == [{"ok": True, **hexed(encode(HELLO, "v5", "uint16-stamp"))}]
    result = hopline("encode", "--variant", "", objects=[line])
    assert result.lines == [{"ok": True, **hexed(encode(HELLO))}]
    result = hopline("encode", "--format", "v6", "--variant", "early", objects=[line])
    assert result.lines == [{"ok": True, **hexed(encode(HELLO, "v6", "early", Extra(trailing=b"new")))}]


def test_an_option_that_says_what_the_line_means_anyway_changes_nothing(hopline):
    fields = message_to_json(HELLO)
    early = {"fields": fields, "variant": "early"}
    assert hopline("encode", "--format", "v6", objects=[early]).lines == hopline("encode", objects=[early]).lines
    future = {"fields": fields, "extra": {"trailing": "6e6577"}}
    expected = [{"ok": True, **hexed(encode(HELLO, "v6", "", Extra(trailing=b"new")))}]
    for options in ((), ("--format", "v6"), ("--variant", ""), ("--format", "v6", "--variant", "")):
        assert hopline("encode", *options, objects=[future]).lines == expected
    v5 = {"fields": fields, "format": "v5", "extra": {"lead": ["ff"]}}
    expected = [{"ok": True, **hexed(encode(HELLO, "v5", None, Extra(lead=(b"\xff",))))}]
    for options in ((), ("--variant", "int32-stamp"), ("--variant", "")):
        assert hopline("encode", *options, objects=[v5]).lines == expected


def test_the_unit_of_v3_ttl(hopline):
    line = {"fields": {"ttl_ticks": 1}, "format": "v3"}
    assert hopline("encode", objects=[line]).lines[0]["frames"][-4] == "0100000000000000"
    assert (
        hopline("encode", "--v3-ttl", "ticks", objects=[{**line, "fields": {"ttl_ticks": 7}}]).lines[0]["frames"][-4]
        == "0700000000000000"
    )


def test_what_cannot_be_written_is_a_rejected_line(hopline):
    lines = [
        {"fields": {"domain": "dom"}, "format": "v3"},
        {"fields": {"hops": 65536}},
        {"fields": {"hops": 10**30}},
        {"fields": {"version": "abcd"}},
        {"fields": {"unknown": 1}},
        {"fields": {"identity": "xy"}},
        {"fields": {}, "format": "v7"},
        {"fields": {}, "variant": "late"},
        {"fields": {}, "extra": {"body_sizes": [5]}},
        {"fields": {}, "extra": {"unknown": 5}},
        {"format": "v6"},
        {"fields": {"identity": "48"}},
    ]
    result = hopline("encode", objects=lines)
    assert result.code == 1
    codes = [line["error"]["code"] for line in result.lines[:-1]]
    assert codes == [
        "WIRE_UNSUPPORTED_FIELD",
        "WIRE_OVERFLOW",
        "WIRE_OVERFLOW",
        "WIRE_BAD_VERSION",
        "INPUT_BAD_JSON",
        "INPUT_BAD_HEX",
        "INPUT_BAD_JSON",
        "WIRE_UNKNOWN_VARIANT",
        "WIRE_BAD_EXTRA",
        "INPUT_BAD_JSON",
        "INPUT_BAD_JSON",
    ]
    assert result.lines[-1]["ok"]


@pytest.mark.parametrize("arguments", [("--variant", "late"), ("--format", "v6", "--variant", "text-version")])
def test_a_variant_that_cannot_be_is_wrong_usage(hopline, arguments):
    result = hopline("encode", *arguments)
    assert result.code == 2
    assert "no variant" in result.errors

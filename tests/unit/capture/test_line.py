"""One line in and out."""

import json

import pytest

from hopline.capture.line import read_seen, write_seen
from hopline.errors import InputError

GOOD = {"seen_ns": 5, "node": "N1", "direction": "in", "socket": "s", "frames": ["4e32", ""]}


def again(line: bytes) -> bytes:
    seen = read_seen(line)
    return write_seen(seen.seen_ns, seen.node, seen.tap.removeprefix("wire_"), seen.socket, seen.extra, seen.frames)


@pytest.mark.parametrize(
    "line",
    [
        GOOD,
        GOOD | {"direction": "out"},
        GOOD | {"socket": ""},
        {key: value for key, value in GOOD.items() if key != "socket"},
        GOOD | {"frames": []},
        GOOD | {"node": ""},
        GOOD | {"node": 'Zoë "\\\n\u0000 😀'},
        GOOD | {"seen_ns": 0},
        GOOD | {"seen_ns": -(2**63)},
        GOOD | {"seen_ns": 2**63 - 1},
        GOOD | {"frames": ["4E32", "aB"]},
        GOOD | {"host": "a", "n": 1.50, "deep": {"x": [None, True, "ü"]}, "big": 10**30},
        GOOD | {"FRAMES": [], "extra": {"extra": None}, "tap": "hub_in", "seq": 7},
        GOOD | {"frames": ["4E32"], "host": None},
    ],
)
def test_an_equal_object_comes_out(line: dict) -> None:
    for text in (json.dumps(line), json.dumps(line, ensure_ascii=False), json.dumps(line, indent=1).replace("\n", "\r")):
        assert json.loads(again(text.encode())) == line


def test_keys_come_in_their_order_and_others_after_them() -> None:
    line = {"host": "a", "frames": [], "socket": "s", "direction": "in", "node": "N1", "seen_ns": 5, "also": 1}
    assert list(json.loads(again(json.dumps(line).encode()))) == [
        "seen_ns",
        "node",
        "direction",
        "socket",
        "frames",
        "host",
        "also",
    ]


def test_what_the_line_says_becomes_columns() -> None:
    seen = read_seen(json.dumps(GOOD | {"host": "a"}).encode())
    assert seen == (5, "N1", "wire_in", "s", '{"host":"a"}', [b"N2", b""])


def without(key: str) -> dict:
    return {name: value for name, value in GOOD.items() if name != key}


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"", "INPUT_BAD_JSON"),
        (b"junk", "INPUT_BAD_JSON"),
        (b"[]", "INPUT_BAD_JSON"),
        (b'{"seen_ns":5', "INPUT_BAD_JSON"),
        (b"[" * 100_000, "INPUT_BAD_JSON"),
        (b'{"seen_ns":5,"node":"\xff","direction":"in","frames":[]}', "INPUT_BAD_JSON"),
        (b'{"seen_ns":5,"node":"\\ud800","direction":"in","frames":[]}', "INPUT_BAD_JSON"),
        (b'{"seen_ns":5,"node":"a","direction":"in","frames":[],"host":"\xff"}', "INPUT_BAD_JSON"),
        (json.dumps(GOOD).encode() * 2, "INPUT_BAD_JSON"),
        *((json.dumps(without(key)).encode(), "INPUT_BAD_JSON") for key in ("seen_ns", "node", "direction", "frames")),
        *(
            (json.dumps(GOOD | change).encode(), "INPUT_BAD_JSON")
            for change in (
                {"seen_ns": "5"},
                {"seen_ns": 5.5},
                {"seen_ns": True},
                {"seen_ns": None},
                {"seen_ns": 2**63},
                {"seen_ns": 10**40},
                {"node": 1},
                {"direction": "up"},
                {"socket": None},
                {"socket": 5},
                {"frames": "4e32"},
                {"frames": [5]},
                {"frames": None},
                {"frames": [5], "host": "a"},
            )
        ),
        (json.dumps(GOOD | {"frames": ["4e3"]}).encode(), "INPUT_BAD_HEX"),
        (json.dumps(GOOD | {"frames": ["", "zz"]}).encode(), "INPUT_BAD_HEX"),
        (json.dumps(GOOD | {"frames": ["4e 32"]}).encode(), "INPUT_BAD_HEX"),
    ],
)
def test_a_bad_line_is_refused_with_a_reason(line: bytes, code: str) -> None:
    with pytest.raises(InputError) as caught:
        read_seen(line)
    assert caught.value.code == code


def test_bad_hex_names_the_frame() -> None:
    with pytest.raises(InputError, match="frame 1"):
        read_seen(json.dumps(GOOD | {"frames": ["", "zz"]}).encode())

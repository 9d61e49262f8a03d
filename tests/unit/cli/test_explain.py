import json

from hopline.wire import Message, encode
from tests.unit.cli.conftest import hexed
from tests.unit.cli.test_decode import on_a_terminal

*FRONT, META = encode(Message(identity=b"HELLO", version=1, body=b"hi"))


def test_the_map_holds_every_byte(hopline):
    result = hopline("explain", objects=[hexed([*FRONT, META])])
    assert result.code == 0
    answer = result.lines[0]
    assert (answer["ok"], answer["format"], answer["variant"]) == (True, "v6", "")
    assert "".join(row["bytes"] for row in answer["map"] if row["frame"] == 3) == META.hex()
    row = next(row for row in answer["map"] if row["field"] == "Identity")
    assert row == {"frame": 3, "offset": 12, "size": 5, "field": "Identity", "bytes": "48454c4c4f", "meaning": '"HELLO"'}


def test_a_broken_message_says_where_and_still_has_its_map(hopline):
    result = hopline("explain", objects=[hexed([*FRONT, META[:-1]]), {"frames": ["0"]}, {"frames": []}])
    assert result.code == 1
    broken, bad_hex, nothing = result.lines
    assert broken["error"]["code"] == "WIRE_TRUNCATED"
    assert (broken["error"]["frame"], broken["error"]["offset"]) == (3, len(META) - 8)
    assert broken["map"][-1]["field"] == "not readable"
    assert bad_hex["error"]["code"] == "INPUT_BAD_HEX"
    assert nothing["map"] == []


def test_on_a_terminal_it_is_a_table(tmp_path):
    path = tmp_path / "lines"
    path.write_text("\n".join(json.dumps(hexed([*FRONT, meta])) for meta in (META, META[:-1], META[:60])))
    code, shown = on_a_terminal("explain", str(path))
    assert code == 1
    for word in ("CorrelationId", "breaks here", "WIRE_TRUNCATED", "no format we know", "not v5"):
        assert word in shown

"""The columnar codec gives the row codec's answer for every frame list: fields, or code, reason and what was tried."""

import json
import struct
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.errors import DecodeError, EncodeError
from hopline.wire import Extra, FormatName, Message, MessageType, RoutingEntry, TtlUnit, decode, encode
from hopline.wire.columnar import decode_batch

Frames = list[bytes]

FRAME_LISTS = pa.list_(pa.binary())

SHARED = Path(__file__).resolve().parents[3] / "shared"
FILES = sorted([*SHARED.glob("vectors/v*.jsonl"), *SHARED.glob("captures/*.jsonl")])

LAYOUTS: list[tuple[FormatName, str]] = [
    ("v6", ""),
    ("v6", "early"),
    ("v5", "int32-stamp"),
    ("v5", "uint16-stamp"),
    ("v4", ""),
    ("v4", "text-version"),
    ("v4", "trailer-13"),
    ("v4", "trailer-14"),
    ("v4", "trailer-16"),
    ("v4", "trailer-17"),
    ("v4", "stamp-3"),
    ("v3", ""),
]
LACKING = {
    "v3": ("callback_key", "callback_receiver_node_identity", "domain", "signature"),
    "v4": ("callback_key", "callback_receiver_node_identity", "domain", "signature"),
}


# What the row codec says, spelled out as the columns should hold it.


def version_columns(version: int | bytes) -> dict[str, Any]:
    is_number = isinstance(version, int)
    return {"version": version if is_number else None, "version_bytes": None if is_number else version}


def row_answer(frames: Frames, v3_ttl: TtlUnit = "ms") -> dict[str, Any]:
    try:
        decoded = decode(frames, v3_ttl=v3_ttl)
    except DecodeError as error:
        tried = [{"format": attempt.format, "reason": attempt.reason} for attempt in error.tried]
        return {"code": error.code, "reason": str(error), "tried": tried}
    m = decoded.message
    return {
        "format": decoded.format,
        "variant": decoded.variant,
        "wire_version": decoded.wire_version,
        "socket_identity": m.socket_identity,
        "identity": m.identity,
        **version_columns(m.version),
        "partition": m.partition,
        "body": m.body,
        "correlation_id": m.correlation_id,
        "receiver_identity": m.receiver_identity,
        "receiver_node_identity": m.receiver_node_identity,
        "distribution": ("unicast", "broadcast")[m.distribution],
        "trace_options": m.trace_options,
        "callback_points": [
            {"identity": p.identity, **version_columns(p.version), "partition": p.partition} for p in m.callback_points
        ],
        "callback_key": m.callback_key,
        "callback_receiver_identity": m.callback_receiver_identity,
        "callback_receiver_node_identity": m.callback_receiver_node_identity,
        "domain": m.domain,
        "signature": m.signature,
        "ttl_ticks": m.ttl_ticks,
        "hops": m.hops,
        "routing": [{"uri": e.uri, "identity": e.identity} for e in m.routing],
        "body_size": len(m.body),
        "has_extra": decoded.extra is not None,
    }


def batch_answers(frames: pa.Array, v3_ttl: TtlUnit = "ms") -> list[dict[str, Any]]:
    """The answers of both batches by row; checks that each has its rows in order, and each row is in one of them."""
    messages, rejects = decode_batch(frames, v3_ttl=v3_ttl)
    messages.validate(full=True)
    rejects.validate(full=True)
    answers: dict[int, dict[str, Any]] = {}
    for batch in (messages, rejects):
        rows = batch["row"].to_pylist()
        assert rows == sorted(rows)
        answers |= {row.pop("row"): row for row in batch.to_pylist()}
    assert messages.num_rows + rejects.num_rows == len(answers) == len(frames)
    return [answers[row] for row in range(len(frames))]


def assert_same(rows: list[Frames], v3_ttl: TtlUnit = "ms") -> None:
    answers = batch_answers(pa.array(rows, FRAME_LISTS), v3_ttl)
    for frames, answer in zip(rows, answers, strict=True):
        assert answer == row_answer(frames, v3_ttl), frames


# Messages of all formats and variants, as senders write them and as later or odd senders might.

blobs = st.binary(max_size=12)
texts = st.text(max_size=8)
numbers = st.integers(0, 0xFFFF)
longs = st.integers(-(2**63), 2**63 - 1)
text_versions = numbers | st.sampled_from([b"", b"1.1", b"01.0", b"latest"])
few = st.integers(0, 3)
tails = st.lists(blobs, max_size=2).map(tuple)


def types(versions: st.SearchStrategy[int | bytes]) -> st.SearchStrategy[MessageType]:
    return st.builds(MessageType, identity=blobs, version=versions, partition=blobs)


@st.composite
def layouts(draw: st.DrawFn) -> Frames:
    """An encoded message: any format and variant, with or without an Extra that goes with it."""
    format, variant = draw(st.sampled_from(LAYOUTS) | st.sampled_from(LAYOUTS[:4]))
    has_text = format == "v3" or variant in {"text-version", "trailer-13", "trailer-14", "stamp-3"}
    versions: st.SearchStrategy[int | bytes] = text_versions if has_text else numbers
    message = draw(
        st.builds(
            Message,
            socket_identity=blobs,
            identity=blobs,
            version=versions,
            partition=blobs,
            body=blobs,
            correlation_id=blobs,
            receiver_identity=blobs,
            receiver_node_identity=blobs,
            distribution=st.sampled_from([0, 1]),
            trace_options=numbers,
            callback_points=st.lists(types(versions), max_size=3).map(tuple),
            callback_key=longs,
            callback_receiver_identity=blobs,
            callback_receiver_node_identity=blobs,
            domain=texts,
            signature=blobs,
            ttl_ticks=st.integers(-(10**9), 10**9) if format == "v3" else longs,
            hops=numbers,
            routing=st.lists(st.builds(RoutingEntry, uri=texts, identity=blobs), max_size=3).map(tuple),
        )
    )
    empty = Message()
    message = msgspec.structs.replace(message, **{field: getattr(empty, field) for field in LACKING.get(format, ())})
    extra = draw(st.none() | extras(message, format))
    try:
        return encode(message, format, variant, extra)
    except EncodeError:
        return encode(message, format, variant)


@st.composite
def extras(draw: st.DrawFn, message: Message, format: FormatName) -> Extra:
    """Some of what a message of that format can carry beside its fields."""
    lanes = st.sampled_from([b"", bytes(3) + b"\1", b"\xff" * 4])
    cut = draw(st.integers(0, len(message.body)))
    choices: dict[str, st.SearchStrategy[Any]] = {
        "lead": st.lists(blobs, min_size=1, max_size=2).map(tuple),
        "body_sizes": st.just((cut, len(message.body) - cut)) | st.just((0, len(message.body), 0)),
        "after_body": tails,
        "trace_reserved": lanes,
        "body_reserved": lanes,
    }
    rest = draw(st.integers(1, 2))
    for name, entries in (("routing_rest", message.routing), ("callback_rest", message.callback_points)):
        choices[name] = st.lists(
            st.lists(blobs, min_size=rest, max_size=rest).map(tuple), min_size=len(entries), max_size=len(entries)
        ).map(tuple)
    if format == "v6":
        choices |= {"wire_version": st.sampled_from([4, 5, 6]), "trailing": blobs, "routing_reserved": lanes}
    else:
        words = st.tuples(*[st.sampled_from([b"\0\0", b"\1\0", b"\2\0", b"\3\0"])] * 3).map(lambda w: (w[0], b"\0\0", w[2]))
        choices |= {
            "after_routing": tails,
            "after_callbacks": tails,
            "idle_routing": words,
            "idle_callbacks": words,
            "callback_reserved": st.sampled_from([b"", b"\1\0"]),
        }
    chosen = draw(st.lists(st.sampled_from(sorted(choices)), min_size=1, max_size=3, unique=True))
    return Extra(**{name: draw(choices[name]) for name in chosen})


# Damage.

WORDS = [struct.pack("<i", value) for value in (-1, -(2**31), 2**31 - 1, 0, 1, 2, 33, 0x10000, 0xFFFF, 1000)]


@st.composite
def damaged(draw: st.DrawFn) -> Frames:
    frames = list(draw(layouts()))
    for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
        # Counted from the end, where the formats have what they are told apart by.
        at = max(len(frames) - 1 - draw(st.integers(0, 21)), 0) if frames else 0
        frame = frames[at] if frames else b""
        where = draw(st.integers(0, len(frame)))
        match draw(st.sampled_from(["flip", "word", "word", "cut", "insert", "drop", "double", "new", "swap", "replace"])):
            case "flip" if frame:
                where %= len(frame)
                frames[at] = frame[:where] + bytes([frame[where] ^ draw(st.integers(1, 255))]) + frame[where + 1 :]
            case "word" if frame:
                frames[at] = (frame[:where] + draw(st.sampled_from(WORDS)) + frame[where + 4 :])[: len(frame)]
            case "cut" if frames:
                frames[at] = frame[:where] + frame[where + draw(few) + 1 :]
            case "insert" if frames:
                frames[at] = frame[:where] + draw(st.binary(min_size=1, max_size=4)) + frame[where:]
            case "drop" if frames:
                del frames[at]
            case "double" if frames:
                frames.insert(at, frame)
            case "new":
                frames.insert(at, draw(blobs | st.sampled_from([b"\3\0\0\0", b"\4\0\0\0", b"\5\0\0\0", b"\5\0"])))
            case "swap" if frames:
                other = draw(st.integers(0, len(frames) - 1))
                frames[at], frames[other] = frames[other], frames[at]
            case "replace" if frames:
                frames[at] = draw(blobs | st.sampled_from([b"\3\0\0\0", b"\4\0\0\0", b"\5\0\0\0", b"\5\0"]))
    return frames


@given(st.lists(layouts() | damaged(), min_size=1, max_size=4), st.integers(128, 250), st.randoms(use_true_random=False))
def test_many_of_few_shapes(few: list[Frames], times: int, chance: Random) -> None:
    """Flows repeat their shape, which has a way of its own: see `metaframes.py`."""
    answers = [row_answer(frames) for frames in few]
    order = [number for number in range(len(few)) for _ in range(chance.choice([1, times]))]
    chance.shuffle(order)
    found = batch_answers(pa.array([few[number] for number in order], FRAME_LISTS))
    assert found == [answers[number] for number in order]


@given(layouts(), st.integers(128, 160), st.randoms(use_true_random=False))
def test_many_of_one_shape_that_differ_in_their_bytes(frames: Frames, times: int, chance: Random) -> None:
    rows = [frames]
    for _ in range(times):
        *others, last = frames
        changed = bytearray(last)
        for _ in range(chance.randrange(4) if changed else 0):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        rows.append([*others, bytes(changed)])
    assert_same([*rows, frames])


def test_many_of_one_size_that_all_have_shapes_of_their_own() -> None:
    """The sizes of two fields add up to the same, each time in another way; one of two hundred is broken."""
    rows = [encode(Message(identity=b"i" * (1 + at), version=1, domain="d" * (400 - at), hops=at)) for at in range(400)]
    rows[::200] = [[*frames[:-1], frames[-1][:2] + b"\xff" * 4 + frames[-1][6:]] for frames in rows[::200]]
    assert len({len(frames[-1]) for frames in rows}) == 1
    assert_same(rows)


@given(st.lists(layouts(), min_size=1, max_size=8))
def test_whole_messages(rows: list[Frames]) -> None:
    assert_same(rows)


@given(st.lists(damaged(), min_size=1, max_size=8), st.sampled_from(["ms", "ticks"]))
def test_damaged_messages(rows: list[Frames], v3_ttl: TtlUnit) -> None:
    assert_same(rows, v3_ttl)


@given(st.lists(st.lists(blobs | st.binary(min_size=82, max_size=120), max_size=24), max_size=8))
def test_frames_that_are_nothing(rows: list[Frames]) -> None:
    assert_same(rows)


# Damage without chance: one message, everything that can be done to it in one place.

MESSAGE = Message(
    socket_identity=b"sock",
    identity=b"ORDER",
    version=258,
    partition=b"p",
    body=b"body",
    correlation_id=b"cid",
    receiver_identity=b"r",
    receiver_node_identity=b"rn",
    trace_options=1,
    callback_points=(MessageType(b"DONE", 1, b"q"), MessageType(b"KINO.EXCEPTION", 1)),
    callback_key=7,
    callback_receiver_identity=b"c",
    callback_receiver_node_identity=b"cn",
    domain="domain",
    signature=b"sig",
    ttl_ticks=10**7,
    hops=2,
    routing=(RoutingEntry("tcp://a", b"n1"), RoutingEntry("tcp://b", b"n2")),
)


def everywhere(frames: Frames, *, changes: list[bytes]) -> list[Frames]:
    """The frames with each change at each byte, each frame cut everywhere, and each frame missing, doubled or emptied."""
    rows = []
    for at, frame in enumerate(frames):
        before, after = frames[:at], frames[at + 1 :]
        for where in range(len(frame)):
            rows += [[*before, (frame[:where] + new + frame[where + len(new) :])[: len(frame)], *after] for new in changes]
            rows.append([*before, frame[:where], *after])
            rows.append([*before, frame[:where] + b"\0" + frame[where:], *after])
        rows += [before + after, [*before, frame, *frames[at:]], [*before, b"", *after], [*before, frame + b"\0", *after]]
    return rows


FOREIGN = msgspec.structs.replace(MESSAGE, domain="dömän", routing=(RoutingEntry("tcp://ä"), RoutingEntry("tcp://😀")))
BARE = Message(identity=b"HELLO", version=1, body=b"hi")


@pytest.mark.parametrize(("format", "variant"), LAYOUTS[:4])
@pytest.mark.parametrize("message", [MESSAGE, FOREIGN, BARE], ids=["full", "foreign", "bare"])
def test_every_byte(message: Message, format: FormatName, variant: str) -> None:
    changes = [bytes([value]) for value in (0, 1, 2, 3, 4, 5, 6, 33, 0x7F, 0x80, 0xFF)] + WORDS
    assert_same(everywhere(encode(message, format, variant), changes=changes))


@pytest.mark.skipif(not FILES, reason="reference vectors are not part of the project")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_reference_bytes(path: Path) -> None:
    rows = [[bytes.fromhex(frame) for frame in json.loads(line)["frames"]] for line in path.read_text().splitlines()]
    assert_same(rows)
    assert_same(rows, "ticks")
    assert "code" not in set().union(*batch_answers(pa.array(rows, FRAME_LISTS), "ticks"))


@pytest.mark.skipif(not FILES, reason="reference vectors are not part of the project")
def test_reference_bytes_in_one_batch() -> None:
    assert_same(
        [
            [bytes.fromhex(frame) for frame in json.loads(line)["frames"]]
            for path in FILES
            for line in path.read_text().splitlines()
        ]
    )

"""Format v4, document 002: its variants and its two kinds of versions; the rest is in test_trailer.py."""

import msgspec
import pytest

from hopline.errors import DecodeError, EncodeError
from hopline.wire import Extra, Message, MessageType, decode, detect, encode, select
from tests.vectors.golden import (
    V4_FRAMES,
    V4_MESSAGE,
    V4_TEXT_FRAMES,
    V4_TEXT_MESSAGE,
    V5_FRAMES,
    V5_MESSAGE,
    changed,
    decode_losslessly,
    inserted,
    lanes,
)

STAMP, BODY, VERSION, CALLBACKS, ROUTING = 1, 2, 7, 12, 13


def offsets(fixed: int) -> dict[int, bytes]:
    """The descriptions of the example over a trailer of so many frames (protocol 1.2.2)."""
    return {ROUTING: lanes(fixed + 7, 1, 2, 1), CALLBACKS: lanes(fixed + 1, 2, 3), BODY: lanes(fixed + 9, 1)}


def without(message: Message, *fields: str) -> Message:
    values = {field: getattr(message, field) for field in Message.__struct_fields__ if field not in fields}
    return Message(**values)


# protocol 1.4, "Sub-variants": the same frames with fewer or more of them on top; decisions: variants.
VARIANTS = {
    "": (V4_FRAMES, V4_MESSAGE),
    "text-version": (V4_TEXT_FRAMES, V4_TEXT_MESSAGE),
    "trailer-14": (
        changed(V4_TEXT_FRAMES[:11] + V4_TEXT_FRAMES[12:], offsets(14)),
        without(V4_TEXT_MESSAGE, "domain"),
    ),
    "trailer-13": (
        changed(V4_TEXT_FRAMES[:11] + V4_TEXT_FRAMES[13:], offsets(13)),
        without(V4_TEXT_MESSAGE, "domain", "signature"),
    ),
    "stamp-3": (
        changed(V4_TEXT_FRAMES[:11] + V4_TEXT_FRAMES[13:], offsets(13) | {STAMP: b"\x03\x00\x00\x00"}),
        without(V4_TEXT_MESSAGE, "domain", "signature"),
    ),
    "trailer-16": (
        changed(V5_FRAMES[:11] + V5_FRAMES[12:], offsets(16) | {STAMP: b"\x04\x00\x00\x00"}),
        without(V5_MESSAGE, "callback_receiver_node_identity"),
    ),
    "trailer-17": (changed(V5_FRAMES, offsets(17) | {STAMP: b"\x04\x00\x00\x00"}), V5_MESSAGE),
}
each_variant = pytest.mark.parametrize("variant", VARIANTS)

FIXED = {"": 15, "text-version": 15, "trailer-13": 13, "trailer-14": 14, "stamp-3": 13, "trailer-16": 16, "trailer-17": 17}


def bare(variant: str) -> list[bytes]:
    """The example of a variant without entries: only the body's offset tells the size of the trailer."""
    frames, _ = VARIANTS[variant]
    words = {ROUTING: lanes(0, 0, 2, 1), CALLBACKS: lanes(0, 0, 3), BODY: lanes(FIXED[variant] + 1, 1)}
    return changed(frames[:3] + frames[11:], words)


@each_variant
def test_variant_decodes_to_its_fields(variant: str) -> None:
    frames, message = VARIANTS[variant]
    decoded = decode(frames)
    assert decoded.message == message
    assert (decoded.format, decoded.variant, decoded.extra) == ("v4", variant, None)
    assert decoded.wire_version == (3 if variant == "stamp-3" else 4)


@each_variant
def test_variant_encodes_to_its_frames(variant: str) -> None:
    frames, message = VARIANTS[variant]
    assert encode(message, "v4", variant) == frames


@each_variant
def test_trailer_size_is_told_by_whichever_part_is_there(variant: str) -> None:
    # protocol 1.7, rule 4: callbacks, else routing, else the body.
    frames, message = VARIANTS[variant]
    fixed = FIXED[variant]
    no_callbacks = changed(
        frames[:5] + frames[11:],
        {ROUTING: lanes(fixed + 1, 1, 2, 1), CALLBACKS: lanes(0, 0, 3), BODY: lanes(fixed + 3, 1)},
    )
    no_routing = changed(
        frames[:3] + frames[5:], {ROUTING: lanes(0, 0, 2, 1), CALLBACKS: lanes(fixed + 1, 2, 3), BODY: lanes(fixed + 7, 1)}
    )
    for shorter, lost in (
        (no_callbacks, ["callback_points"]),
        (no_routing, ["routing"]),
        (bare(variant), ["routing", "callback_points"]),
    ):
        decoded = decode(shorter)
        assert (decoded.variant, decoded.extra) == (variant, None)
        assert decoded.message == without(message, *lost)
        assert encode(decoded.message, "v4", variant) == shorter


@each_variant
def test_selectors_are_those_of_the_message(variant: str) -> None:
    frames, message = VARIANTS[variant]
    selected = select(frames)
    assert (selected.format, selected.identity, selected.version) == ("v4", message.identity, message.version)


LACKING = {
    "": {"callback_key", "callback_receiver_node_identity"},
    "text-version": {"callback_key", "callback_receiver_node_identity"},
    "trailer-13": {"callback_key", "callback_receiver_node_identity", "domain", "signature"},
    "trailer-14": {"callback_key", "callback_receiver_node_identity", "domain"},
    "trailer-16": {"callback_receiver_node_identity"},
    "trailer-17": set(),
    "stamp-3": {"callback_key", "callback_receiver_node_identity", "domain", "signature"},
}


@each_variant
@pytest.mark.parametrize(
    ("field", "value"),
    [("callback_key", 1), ("callback_receiver_node_identity", b"N"), ("domain", "d"), ("signature", b"s")],
)
def test_a_field_without_a_place_is_refused(variant: str, field: str, value: object) -> None:
    message = msgspec.structs.replace(Message(version=1), **{field: value})
    if field in LACKING[variant]:
        with pytest.raises(EncodeError, match=field) as caught:
            encode(message, "v4", variant)
        assert caught.value.code == "WIRE_UNSUPPORTED_FIELD"
    else:
        assert decode(encode(message, "v4", variant)).message == message


def test_fifteen_frames_and_numbers_are_written_unless_asked_otherwise() -> None:
    # decisions: variants - "as in the vectors".
    assert encode(V4_MESSAGE, "v4") == V4_FRAMES


def test_unknown_variant_names_the_known_ones() -> None:
    with pytest.raises(EncodeError, match=r"'trailer-12'") as caught:
        encode(Message(), "v4", "trailer-12")
    assert caught.value.code == "WIRE_UNKNOWN_VARIANT"
    assert "'trailer-13'" in str(caught.value)


# --- versions as text -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "version"),
    [
        (b"1.0", 1),
        (b"0.0", 0),
        (b"65535.0", 65535),
        (b"65536.0", b"65536.0"),
        (b"01.0", b"01.0"),
        (b"1.1", b"1.1"),
        (b"1", b"1"),
        (b"", b""),
        (b"1.0\x00", b"1.0\x00"),
        (b"\xff\xfe\xfd", b"\xff\xfe\xfd"),
    ],
)
@pytest.mark.parametrize("variant", ["text-version", "trailer-13", "trailer-14", "stamp-3"])
def test_text_version_both_ways(variant: str, raw: bytes, version: int | bytes) -> None:
    # decisions: version in v3 (and v4 `text-version`).
    frames, _ = VARIANTS[variant]
    frames = [*frames[:6], raw, *frames[7:]]
    frames = changed(frames, {VERSION: raw})
    decoded = decode_losslessly(frames)
    assert (decoded.variant, decoded.extra) == (variant, None)
    assert decoded.message.version == select(frames).version == version
    assert decoded.message.callback_points[0] == MessageType(b"EHHLO", version, b"P")


def test_callback_version_of_two_bytes_is_text_where_versions_are_text() -> None:
    frames = [*V4_TEXT_FRAMES[:6], b"\x01\x00", *V4_TEXT_FRAMES[7:]]
    assert decode_losslessly(frames).message.callback_points[0].version == b"\x01\x00"


def test_text_version_of_two_bytes_would_be_read_as_a_number_and_is_refused() -> None:
    # protocol 1.7, rule 4: the width of frame n-7 decides.
    assert decode(changed(bare("text-version"), {VERSION: b".0"})).message.version == 0x302E
    with pytest.raises(EncodeError) as caught:
        encode(Message(version=b".0"), "v4", "text-version")
    assert caught.value.code == "WIRE_BAD_VERSION"


@pytest.mark.parametrize(
    ("variant", "raw", "text"),
    [
        ("trailer-13", b"\x01\x00", False),
        ("trailer-14", b"\x01\x00", False),
        ("stamp-3", b"\x01\x00", False),
        ("trailer-16", b"1.0", True),
        ("trailer-17", b"1.0", True),
    ],
)
def test_width_that_the_variant_does_not_tell_is_kept(variant: str, raw: bytes, text: bool) -> None:
    frames = changed(bare(variant), {VERSION: raw})
    decoded = decode_losslessly(frames)
    assert (decoded.variant, decoded.message.version) == (variant, 1)
    assert decoded.extra is not None
    assert decoded.extra.text_version is text


# --- future messages, see also test_trailer.py ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "new"),
    [
        ("", (b"not a callback key",)),
        ("", (b"12345678", b"no key here")),  # the frame next to the trailer decides
        ("", (b"", b"", b"")),
        ("text-version", (b"new",)),
        ("trailer-17", (b"new",)),
        ("trailer-17", (b"12345678", b"12345678")),
        ("stamp-3", (b"new",)),
        ("stamp-3", (b"a", b"12345678", b"c", b"d")),
    ],
)
def test_new_frames_on_top_are_skipped_and_kept(variant: str, new: tuple[bytes, ...]) -> None:
    frames, message = VARIANTS[variant]
    future = changed(inserted(frames, 11, *new), offsets(FIXED[variant] + len(new)) | {STAMP: frames[-1]})
    decoded = decode_losslessly(future)
    assert (decoded.variant, decoded.message) == (variant, message)
    assert decoded.extra is not None
    assert decoded.extra.after_callbacks == new


@pytest.mark.parametrize(
    ("variant", "read_as"),
    [("", ""), ("text-version", "text-version"), ("stamp-3", "stamp-3")],
)
def test_without_entries_and_body_the_trailer_is_the_one_of_the_document(variant: str, read_as: str) -> None:
    # Nothing says where it ends; document 002 has fifteen frames.
    empty = bare(variant)
    frames = changed([*empty[:2], *[b"lead"] * (variant == "stamp-3"), *empty[3:]], {BODY: lanes(0, 0)})
    decoded = decode_losslessly(frames)
    message = VARIANTS[variant][1]
    assert decoded.variant == read_as
    assert (decoded.message.body, decoded.message.domain, decoded.message.signature) == (
        b"",
        message.domain,
        message.signature,
    )


def test_stamp_3_needs_the_packed_descriptions() -> None:
    # protocol 1.7, rule 5: "packed 8-byte frames at n-2, n-5, n-12, n-13".
    frames, _ = VARIANTS["stamp-3"]
    for place in (2, 5, 12, 13):
        broken = changed(frames, {place: bytes(4)})
        with pytest.raises(DecodeError) as caught:
            decode(broken)
        assert caught.value.code == "WIRE_UNKNOWN_FORMAT"
        assert dict(caught.value.tried)["v4"].startswith("stamped 3, but")


@pytest.mark.parametrize("stamp", ["04 00", "04", "", "02 00 00 00", "04 00 00 00 00", "03 00"])
def test_other_stamps_are_not_v4(stamp: str) -> None:
    frames = changed(V4_FRAMES, {STAMP: bytes.fromhex(stamp)})
    with pytest.raises(DecodeError) as caught:
        detect(frames)
    assert caught.value.code == "WIRE_UNKNOWN_FORMAT"
    with pytest.raises(DecodeError, match=r"^not v4: the last frame is neither") as caught:
        decode(frames, format="v4")
    assert caught.value.code == "WIRE_OTHER_FORMAT"


def test_smallest_message_has_sixteen_frames() -> None:
    # protocol 1.7, rule 4: n >= 16.
    smallest = bare("trailer-13")
    assert (len(smallest), detect(smallest)) == (16, "v4")
    with pytest.raises(DecodeError, match=r"^not v4: 15 frames, at least 16 are needed$"):
        decode(smallest[1:], format="v4")


@pytest.mark.parametrize("place", [2, 5, 12, 13])
def test_packed_descriptions_of_another_size_are_refused(place: int) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(changed(V4_FRAMES, {place: bytes(4)}))
    assert (caught.value.code, caught.value.frame) == ("WIRE_BAD_LENGTH", 26 - place)


def test_a_message_without_any_part_above_its_trailer_has_the_documents_trailer() -> None:
    # Nothing says how long the trailer is; the document says 15 frames.
    frames = encode(Message(identity=b"HELLO", version=1, domain="dom", signature=b"sig"), "v4", "", Extra(body_sizes=()))
    frames[-2] = bytes(8)
    decoded = decode(frames)
    assert (decoded.variant, decoded.message.domain, decoded.message.signature) == ("", "dom", b"sig")
    assert encode(decoded.message, "v4", decoded.variant, decoded.extra) == frames

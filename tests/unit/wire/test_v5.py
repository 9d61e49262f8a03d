"""Format v5, document 001: the stamp; the rest is in test_trailer.py."""

import pytest

from hopline.errors import DecodeError, EncodeError
from hopline.wire import Message, decode, detect, encode, select
from tests.vectors.golden import V5_DEFAULT_FRAMES, V5_FRAMES, V5_MESSAGE, changed, i64, inserted, lanes

CALLBACK_KEY = 16


def test_four_bytes_are_written_unless_asked_otherwise() -> None:
    # decisions: number written, variants.
    assert encode(V5_MESSAGE, "v5")[-1] == b"\x05\x00\x00\x00"
    assert encode(V5_MESSAGE, "v5", "uint16-stamp")[-1] == b"\x05\x00"


def test_unknown_variant_names_the_known_ones() -> None:
    with pytest.raises(EncodeError, match=r"'early'; known are int32-stamp, uint16-stamp") as caught:
        encode(Message(), "v5", "early")
    assert caught.value.code == "WIRE_UNKNOWN_VARIANT"


@pytest.mark.parametrize("stamp", ["", "05", "05 00 00", "05 00 01 00", "06 00", "06 00 00 00", "05 00 00 00 00", "00 05"])
def test_other_stamps_are_not_v5(stamp: str) -> None:
    frames = changed(V5_FRAMES, {1: bytes.fromhex(stamp)})
    for read in (decode, detect, select):
        with pytest.raises(DecodeError) as caught:
            read(frames)
        assert caught.value.code == "WIRE_UNKNOWN_FORMAT"
    with pytest.raises(DecodeError) as caught:
        decode(frames, format="v5")
    assert caught.value.code == "WIRE_OTHER_FORMAT"
    assert str(caught.value) == "not v5: the last frame is not the number 5 in 2 or 4 bytes"


def test_too_few_frames_are_not_v5() -> None:
    # protocol 1.7, rule 3: n >= 20.
    with pytest.raises(DecodeError) as caught:
        decode(V5_DEFAULT_FRAMES[1:], format="v5")
    assert (caught.value.code, str(caught.value)) == ("WIRE_OTHER_FORMAT", "not v5: 19 frames, at least 20 are needed")


def test_v5_needs_its_seventeen_frames() -> None:
    # The descriptions of a v4 message, stamped 5: its trailer is two frames short.
    short = inserted(changed(V5_DEFAULT_FRAMES, {2: lanes(16, 1)}), 2, b"", b"")
    with pytest.raises(DecodeError, match=r"^the trailer has 15 frames, at least 17 are needed") as caught:
        decode(short)
    assert caught.value.code == "WIRE_BAD_OFFSET"


@pytest.mark.parametrize("key", [0, 7, -1, 2**63 - 1, -(2**63)])
def test_callback_key_is_a_long(key: int) -> None:
    frames = changed(V5_FRAMES, {CALLBACK_KEY: i64(key)})
    assert decode(frames).message.callback_key == key
    assert encode(Message(callback_key=key), "v5")[-CALLBACK_KEY] == i64(key)


@pytest.mark.parametrize("key", [2**63, -(2**63) - 1])
def test_callback_key_that_does_not_fit_is_refused(key: int) -> None:
    with pytest.raises(EncodeError, match=r"CallbackKey") as caught:
        encode(Message(callback_key=key), "v5")
    assert caught.value.code == "WIRE_OVERFLOW"


@pytest.mark.parametrize(("place", "size"), [(CALLBACK_KEY, 4), (CALLBACK_KEY, 0), (7, 3), (7, 0), (7, 4)])
def test_numbers_of_another_size_are_refused_with_their_place(place: int, size: int) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(changed(V5_FRAMES, {place: bytes(size)}))
    assert (caught.value.code, caught.value.frame) == ("WIRE_BAD_LENGTH", 28 - place)


def test_selectors_of_a_version_of_another_size_are_refused() -> None:
    with pytest.raises(DecodeError) as caught:
        select(changed(V5_FRAMES, {7: b"1.0"}))
    assert (caught.value.code, caught.value.frame) == ("WIRE_BAD_LENGTH", 21)

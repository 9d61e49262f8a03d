"""Bodies cut and left out: what is left decodes."""

import msgspec
import pytest

from hopline.capture.body import body_bytes, cut_body, cut_frames
from hopline.errors import WireError
from hopline.wire import Message, decode, encode
from tests.vectors.golden import GOLDEN, V6_EARLY_FRAMES, V6_FRAMES, Golden


@pytest.mark.parametrize(("policy", "most"), [("whole", None), ("none", 0), (0, 0), (16, 16)])
def test_policies(policy: object, most: int | None) -> None:
    assert body_bytes(policy) == most


@pytest.mark.parametrize("policy", ["all", -1, 1.5, None])
def test_what_is_no_policy(policy: object) -> None:
    with pytest.raises(ValueError, match="body must be"):
        body_bytes(policy)


@pytest.mark.parametrize("most", [0, 1, 3])
@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_a_cut_message_differs_in_its_body_only(golden: Golden, most: int) -> None:
    kept = cut_frames(golden.frames, most)
    decoded = decode(kept.what, v3_ttl=golden.v3_ttl)
    assert (decoded.format, decoded.variant, decoded.wire_version) == (golden.format, golden.variant, golden.wire_version)
    body = golden.message.body
    assert decoded.message == msgspec.structs.replace(golden.message, body=body[:most])
    if len(body) <= most:
        assert (kept.what, kept.body_kept, kept.body_size) == (golden.frames, "whole", None)
    else:
        assert (kept.body_kept, kept.body_size) == ("cut" if most else "none", len(body))


@pytest.mark.parametrize("frames", [V6_FRAMES, V6_EARLY_FRAMES])
def test_nothing_of_a_secret_is_left(frames: list[bytes]) -> None:
    secret = b"the secret of the body, which is long enough to be found"
    decoded = decode(frames)
    whole = encode(msgspec.structs.replace(decoded.message, body=secret), "v6", decoded.variant)
    assert any(secret in frame for frame in whole)
    assert not any(secret[:8] in frame for frame in cut_frames(whole, 0).what)


def test_a_copy_of_the_body_goes_too_however_it_ends() -> None:
    secret = b"the secret\x02\x00\x01\x00\x00\x00\x00\x00"
    frames = encode(Message(identity=b"X", version=1, body=secret), "v6", "early")
    frames[3] = b"\x06\x00" + frames[3][2:]
    assert decode(frames).message.body == secret
    assert not any(b"secret" in frame for frame in cut_frames(frames, 0).what)


def test_a_body_of_several_frames_is_cut_to_one() -> None:
    one = encode(Message(identity=b"X", version=1, body=b"abcdef"))
    several = [*one[:2], b"abc", b"def", one[3][:-8] + b"\x03\x00\x02\x00\x00\x00\x00\x00"]
    assert decode(several).message.body == b"abcdef"
    kept = cut_frames(several, 4)
    assert (decode(kept.what).message.body, kept.body_kept, kept.body_size) == (b"abcd", "cut", 6)
    assert decode(cut_frames(several, 0).what).message.body == b""


def test_what_is_no_message_cannot_be_cut() -> None:
    with pytest.raises(WireError):
        cut_frames([b"junk"], 0)


def test_bodies_alone() -> None:
    assert cut_body(b"abc", None) == (b"abc", "whole", None)
    assert cut_body(b"abc", 3) == (b"abc", "whole", None)
    assert cut_body(b"abc", 2) == (b"ab", "cut", 3)
    assert cut_body(b"abc", 0) == (b"", "none", 3)
    assert cut_body(b"", 0) == (b"", "whole", None)

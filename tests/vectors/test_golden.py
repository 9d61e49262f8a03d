"""The golden vectors in both directions."""

import pytest

from hopline.wire import decode, detect, encode, select
from tests.vectors.golden import GOLDEN, V6_EARLY_FRAMES, V6_FRAMES, Golden

each_golden = pytest.mark.parametrize("golden", [pytest.param(golden, id=golden.name) for golden in GOLDEN])


@each_golden
def test_frames_decode_to_the_fields(golden: Golden) -> None:
    decoded = decode(golden.frames, v3_ttl=golden.v3_ttl)
    assert decoded.message == golden.message
    assert (decoded.format, decoded.variant, decoded.wire_version) == golden[1:4]
    assert decoded.extra is None, "an ordinary message needs nothing kept beside it"


@each_golden
def test_fields_encode_to_the_frames(golden: Golden) -> None:
    assert encode(golden.message, golden.format, golden.variant, v3_ttl=golden.v3_ttl) == golden.frames


@each_golden
def test_selectors_are_those_of_the_fields(golden: Golden) -> None:
    selected, message = select(golden.frames), golden.message
    assert detect(golden.frames) == selected.format == golden.format
    assert (selected.identity, selected.version, selected.partition) == (b"HELLO", 1, b"")
    assert selected.receiver_identity == message.receiver_identity
    assert selected.receiver_node_identity == message.receiver_node_identity
    assert selected.distribution == message.distribution
    assert selected.frames == golden.frames


def test_metaframes_have_the_sizes_the_protocol_states() -> None:
    # Guards the typing above, not the codec: protocol 1.6 says 194 bytes, and 202 with the repeated body.
    assert [len(frames[-1]) for frames in (V6_FRAMES, V6_EARLY_FRAMES)] == [194, 202]

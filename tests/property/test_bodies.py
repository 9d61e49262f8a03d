"""Whatever message a body is cut out of, the rest of it stays, and nothing of the body does."""

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hopline.capture.body import cut_frames
from hopline.errors import WireError
from hopline.wire import FormatName, decode, encode
from tests.strategies import LAYOUTS, any_frames, messages_with_extras


@pytest.mark.parametrize(("name", "variant"), [pytest.param(*layout, id="-".join(layout)) for layout in LAYOUTS])
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), most=st.integers(0, 3))
def test_a_cut_message_differs_in_its_body_only(name: FormatName, variant: str, data: st.DataObject, most: int) -> None:
    message, extra = data.draw(messages_with_extras(name, variant))
    frames = encode(message, name, variant, extra)
    whole = decode(frames)
    kept = cut_frames(frames, most)
    cut = decode(kept.what)
    assert (cut.format, cut.variant) == (whole.format, whole.variant)
    assert cut.message == msgspec.structs.replace(whole.message, body=whole.message.body[:most])
    assert (kept.body_kept == "whole") == (len(whole.message.body) <= most)
    assert kept.body_size == (None if kept.body_kept == "whole" else len(whole.message.body))


@given(frames=any_frames, most=st.integers(0, 3))
def test_what_cannot_be_cut_is_refused(frames: list[bytes], most: int) -> None:
    try:
        kept = cut_frames(frames, most)
    except WireError:
        return
    assert len(decode(kept.what).message.body) <= most

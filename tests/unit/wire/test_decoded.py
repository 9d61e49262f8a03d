"""What is kept beside a message: nothing, unless the frames were not as we would write them."""

import pytest

from hopline.wire import FORMATS, Decoded, Extra, FormatName, Message, decode, encode
from tests.vectors.golden import GOLDEN, Golden, encode_again

each_golden = pytest.mark.parametrize("golden", [pytest.param(golden, id=golden.name) for golden in GOLDEN])


def test_nothing_is_kept_unless_said() -> None:
    nothing = {None, (), b""}
    assert {getattr(Extra(), field) for field in Extra.__struct_fields__} <= nothing
    assert Decoded("v6", "", 6, Message()).extra is None


@each_golden
def test_nothing_kept_writes_what_no_extra_writes(golden: Golden) -> None:
    written = encode(golden.message, golden.format, golden.variant, Extra(), v3_ttl=golden.v3_ttl)
    assert written == golden.frames


@each_golden
def test_decoded_is_what_encode_needs(golden: Golden) -> None:
    # decisions: lossless.
    decoded = decode(golden.frames, v3_ttl=golden.v3_ttl)
    assert encode_again(decoded, golden.v3_ttl) == golden.frames


@pytest.mark.parametrize(
    ("format_name", "variant"), [(name, variant) for name, module in FORMATS.items() for variant in module.VARIANTS]
)
def test_every_variant_of_every_format_comes_back_by_its_name(format_name: FormatName, variant: str) -> None:
    decoded = decode(encode(Message(identity=b"HELLO", version=1, body=b"hi"), format_name, variant))
    assert (decoded.format, decoded.variant, decoded.extra) == (format_name, variant, None)


def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Extra().trailing = b"x"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Decoded("v6", "", 6, Message()).variant = "early"  # type: ignore[misc]

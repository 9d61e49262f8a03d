"""Where the parts of a multi-frame message lie, and which descriptions cannot be right."""

import pytest

from hopline.errors import DecodeError, EncodeError
from hopline.wire import Message, MessageType, RoutingEntry
from hopline.wire.regions import (
    Description,
    Regions,
    callback_versions,
    check_rest,
    locate,
    read_callbacks,
    read_routing,
    refuse_fields,
    split_body,
)

NONE_R, NONE_C = Description(0, 0, 2), Description(0, 0, 3)


def one_body(offset: int, count: int = 1) -> Description:
    return Description(offset, count, 0)


# protocol 1.2.2. Regions: body, body_end, routing, routing_end, callbacks, trailer.
@pytest.mark.parametrize(
    ("n", "trailer", "routing", "callbacks", "body", "regions"),
    [
        pytest.param(
            28, 17, Description(24, 1, 2), Description(18, 2, 3), one_body(26), (2, 3, 3, 5, 5, 11), id="the v5 example"
        ),
        pytest.param(
            26, 13, Description(22, 1, 2), Description(16, 2, 3), one_body(24), (2, 3, 3, 5, 5, 11), id="the v4 example"
        ),
        pytest.param(30, 20, Description(27, 1, 2), Description(21, 2, 3), None, (1, 1, 2, 4, 4, 10), id="the v3 example"),
        pytest.param(
            20, 17, NONE_R, NONE_C, one_body(18), (2, 3, 3, 3, 3, 3), id="no entries: the body ends at the trailer"
        ),
        pytest.param(22, 20, NONE_R, NONE_C, None, (1, 1, 2, 2, 2, 2), id="v3, no entries"),
        pytest.param(22, 17, Description(18, 1, 2), NONE_C, one_body(20), (2, 3, 3, 5, 5, 5), id="routing alone"),
        pytest.param(23, 17, NONE_R, Description(18, 1, 3), one_body(21), (2, 3, 3, 3, 3, 6), id="callbacks alone"),
        pytest.param(24, 20, Description(21, 1, 2), NONE_C, None, (1, 1, 2, 4, 4, 4), id="v3, routing alone"),
        pytest.param(25, 20, NONE_R, Description(21, 1, 3), None, (1, 1, 2, 2, 2, 5), id="v3, callbacks alone"),
        pytest.param(22, 17, NONE_R, NONE_C, one_body(18), (4, 5, 5, 5, 5, 5), id="two more leading frames"),
        pytest.param(22, 17, NONE_R, NONE_C, one_body(20), (2, 3, 3, 3, 3, 3), id="two frames on top of the trailer"),
        pytest.param(22, 17, NONE_R, NONE_C, one_body(20, 3), (2, 5, 5, 5, 5, 5), id="three body frames"),
        pytest.param(19, 17, NONE_R, NONE_C, one_body(17, 0), (2, 2, 2, 2, 2, 2), id="no body frame, with an offset"),
        pytest.param(19, 17, NONE_R, NONE_C, one_body(0, 0), (2, 2, 2, 2, 2, 2), id="no body frame, without an offset"),
        pytest.param(
            25, 17, Description(18, 1, 2), NONE_C, one_body(0, 0), (6, 6, 6, 8, 8, 8), id="no body frame above routing"
        ),
        pytest.param(
            24, 17, Description(18, 1, 3), NONE_C, one_body(21), (3, 4, 4, 7, 7, 7), id="an unknown frame per routing entry"
        ),
        pytest.param(
            29, 17, Description(21, 1, 2), Description(18, 1, 3), one_body(24), (5, 6, 7, 9, 9, 12), id="gap after the body"
        ),
    ],
)
def test_parts_are_found_from_the_end(
    n: int, trailer: int, routing: Description, callbacks: Description, body: Description | None, regions: tuple[int, ...]
) -> None:
    assert locate(n, trailer, routing, callbacks, body) == Regions(*regions)


LIMIT = 65535


@pytest.mark.parametrize(
    ("routing", "callbacks", "body", "code"),
    [
        pytest.param(Description(18, -1, 2), NONE_C, one_body(20), "WIRE_BAD_COUNT", id="negative count"),
        pytest.param(Description(18, LIMIT + 1, 2), NONE_C, one_body(20), "WIRE_BAD_COUNT", id="count above the limit"),
        pytest.param(Description(18, 2**31 - 1, 2), NONE_C, one_body(20), "WIRE_BAD_COUNT", id="count far above it"),
        pytest.param(NONE_R, Description(18, LIMIT + 1, 3), one_body(20), "WIRE_BAD_COUNT", id="callbacks above the limit"),
        pytest.param(Description(18, LIMIT, 2), NONE_C, one_body(20), "WIRE_BAD_OFFSET", id="count above the frames"),
        pytest.param(Description(18, 1, 1), NONE_C, one_body(20), "WIRE_BAD_ENTRY", id="routing divisor too small"),
        pytest.param(Description(18, 1, 0), NONE_C, one_body(20), "WIRE_BAD_ENTRY", id="routing divisor 0"),
        pytest.param(Description(18, 1, -2), NONE_C, one_body(20), "WIRE_BAD_ENTRY", id="routing divisor negative"),
        pytest.param(NONE_R, Description(18, 1, 2), one_body(20), "WIRE_BAD_ENTRY", id="callback divisor too small"),
        pytest.param(Description(18, 1, 2**31 - 1), NONE_C, one_body(20), "WIRE_BAD_OFFSET", id="huge divisor"),
        pytest.param(Description(0, 1, 2), NONE_C, one_body(20), "WIRE_BAD_OFFSET", id="offset 0 with an entry"),
        pytest.param(Description(-5, 1, 2), NONE_C, one_body(20), "WIRE_BAD_OFFSET", id="negative offset"),
        pytest.param(Description(29, 1, 2), NONE_C, one_body(20), "WIRE_BAD_OFFSET", id="offset above the frames"),
        pytest.param(Description(17, 1, 2), NONE_C, one_body(20), "WIRE_BAD_OFFSET", id="routing inside the trailer"),
        pytest.param(NONE_R, Description(17, 1, 3), one_body(21), "WIRE_BAD_OFFSET", id="callbacks inside the trailer"),
        pytest.param(NONE_R, NONE_C, one_body(17), "WIRE_BAD_OFFSET", id="body inside the trailer"),
        pytest.param(NONE_R, NONE_C, one_body(18, 2), "WIRE_BAD_OFFSET", id="body reaches into the trailer"),
        pytest.param(NONE_R, NONE_C, one_body(0), "WIRE_BAD_OFFSET", id="body offset 0 with a body"),
        pytest.param(NONE_R, NONE_C, one_body(29), "WIRE_BAD_OFFSET", id="body offset above the frames"),
        pytest.param(NONE_R, NONE_C, one_body(27), "WIRE_BAD_OFFSET", id="body in the socket's frame 1"),
        pytest.param(NONE_R, NONE_C, one_body(28), "WIRE_BAD_OFFSET", id="body in the socket's frame 0"),
        pytest.param(NONE_R, NONE_C, one_body(26, LIMIT), "WIRE_BAD_OFFSET", id="more body frames than frames"),
        pytest.param(Description(18, 1, 2), NONE_C, one_body(19), "WIRE_BAD_OFFSET", id="body inside routing"),
        pytest.param(Description(18, 1, 2), NONE_C, one_body(18), "WIRE_BAD_OFFSET", id="body below routing"),
        pytest.param(
            Description(20, 1, 2), Description(18, 1, 3), one_body(26), "WIRE_BAD_OFFSET", id="routing in callbacks"
        ),
        pytest.param(
            Description(18, 1, 2), Description(20, 1, 3), one_body(26), "WIRE_BAD_OFFSET", id="routing below callbacks"
        ),
        pytest.param(Description(26, 1, 2), NONE_C, None, "WIRE_BAD_OFFSET", id="routing in the socket's frames"),
        pytest.param(NONE_R, Description(25, 1, 3), None, "WIRE_BAD_OFFSET", id="callbacks in the socket's frames"),
    ],
)
def test_descriptions_that_cannot_be_right_are_refused(
    routing: Description, callbacks: Description, body: Description | None, code: str
) -> None:
    # decisions: limits - "every length, count, offset and lane is checked before it is used".
    with pytest.raises(DecodeError) as caught:
        locate(28, 17, routing, callbacks, body)
    assert caught.value.code == code


@pytest.mark.parametrize("count", [-1, LIMIT + 1])
def test_a_count_above_the_limit_names_the_limit(count: int) -> None:
    with pytest.raises(DecodeError, match=rf"^{count} routing entries; the limit is 65535$"):
        locate(28, 17, Description(18, count, 2), NONE_C, one_body(20))


FRAMES = [b"%d" % index for index in range(12)]


@pytest.mark.parametrize(
    ("start", "divisor", "count", "entries", "rest"),
    [
        (2, 2, 2, [("2", b"3"), ("4", b"5")], ()),
        (2, 3, 2, [("3", b"4"), ("6", b"7")], ((b"2",), (b"5",))),
        (2, 5, 1, [("5", b"6")], ((b"2", b"3", b"4"),)),
    ],
)
def test_routing_entries_come_in_written_order_with_unknown_frames_on_top(
    start: int, divisor: int, count: int, entries: list[tuple[str, bytes]], rest: tuple[tuple[bytes, ...], ...]
) -> None:
    # decisions: entry order, versioning rules.
    end = start + divisor * count
    at = Regions(start, start, start, end, end, end)
    assert read_routing(FRAMES, at, divisor) == (tuple(RoutingEntry(*entry) for entry in entries), rest)


def test_routing_uri_that_is_no_text_names_its_frame() -> None:
    frames = [b"", b"", b"ok", b"N1", b"\xff", b"N2"]
    with pytest.raises(DecodeError) as caught:
        read_routing(frames, Regions(2, 2, 2, 6, 6, 6), 2)
    assert (caught.value.code, caught.value.frame) == ("WIRE_BAD_TEXT", 4)


@pytest.mark.parametrize(
    ("divisor", "count", "versions", "points", "rest"),
    [
        (3, 2, [3, 6], [(b"4", 11, b"2"), (b"7", 12, b"5")], ()),
        (4, 2, [4, 8], [(b"5", 11, b"3"), (b"9", 12, b"7")], ((b"2",), (b"6",))),
        (5, 1, [5], [(b"6", 11, b"4")], ((b"2", b"3"),)),
    ],
)
def test_callback_points_come_in_written_order_with_unknown_frames_on_top(
    divisor: int,
    count: int,
    versions: list[int],
    points: list[tuple[bytes, int, bytes]],
    rest: tuple[tuple[bytes, ...], ...],
) -> None:
    at = Regions(2, 2, 2, 2, 2, 2 + divisor * count)
    assert list(callback_versions(at, divisor)) == versions
    numbers: list[int | bytes] = [*range(11, 11 + count)]
    assert read_callbacks(FRAMES, at, divisor, numbers) == (tuple(MessageType(*point) for point in points), rest)


@pytest.mark.parametrize(("rest", "count", "size"), [((), 0, 0), ((), 5, 0), (((b"a",), (b"b",)), 2, 1), (((),), 1, 0)])
def test_kept_frames_fit_their_entries(rest: tuple[tuple[bytes, ...], ...], count: int, size: int) -> None:
    assert check_rest(rest, count, "routing") == size


@pytest.mark.parametrize(
    ("rest", "count"),
    [
        pytest.param(((b"a",),), 0, id="no entry left"),
        pytest.param(((b"a",),), 2, id="an entry more"),
        pytest.param(((b"a",), (b"b", b"c")), 2, id="not the same number each, and there is one divisor"),
    ],
)
def test_kept_frames_that_do_not_fit_are_refused(rest: tuple[tuple[bytes, ...], ...], count: int) -> None:
    with pytest.raises(EncodeError) as caught:
        check_rest(rest, count, "routing")
    assert caught.value.code == "WIRE_BAD_EXTRA"


@pytest.mark.parametrize(
    ("body", "sizes", "frames"),
    [
        (b"abc", None, [b"abc"]),
        (b"", None, [b""]),
        (b"abc", (1, 2), [b"a", b"bc"]),
        (b"abc", (0, 3, 0), [b"", b"abc", b""]),
        (b"", (), []),
    ],
)
def test_body_is_split_as_it_came(body: bytes, sizes: tuple[int, ...] | None, frames: list[bytes]) -> None:
    # decisions: body frames.
    assert split_body(body, sizes) == frames


@pytest.mark.parametrize("sizes", [(), (1,), (4,), (1, 3), (-1, 4)])
def test_split_that_does_not_add_up_is_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(EncodeError) as caught:
        split_body(b"abc", sizes)
    assert caught.value.code == "WIRE_BAD_EXTRA"


def test_a_field_without_a_place_is_refused_by_name() -> None:
    refuse_fields(Message(hops=1), ("domain", "signature"), "v3")
    with pytest.raises(EncodeError, match=r"^format v3 has no signature, and it is not empty$") as caught:
        refuse_fields(Message(signature=b"x"), ("domain", "signature"), "v3")
    assert caught.value.code == "WIRE_UNSUPPORTED_FIELD"

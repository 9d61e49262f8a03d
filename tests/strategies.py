"""Hypothesis strategies for the wire: messages, what is kept beside them, and broken frame lists.

Written from the documents and the decisions, not from the code: what a format can hold, what a real sender may add to it,
and what damage looks like. Only the public names of `hopline.wire` are used.
"""

from typing import Any, Final

from hypothesis import strategies as st

from hopline.wire import Distribution, Extra, FormatName, Message, MessageType, RoutingEntry

LAYOUTS: Final[tuple[tuple[FormatName, str], ...]] = (
    ("v3", ""),
    ("v4", ""),
    ("v4", "text-version"),
    ("v4", "trailer-13"),
    ("v4", "trailer-14"),
    ("v4", "trailer-16"),
    ("v4", "trailer-17"),
    ("v4", "stamp-3"),
    ("v5", "int32-stamp"),
    ("v5", "uint16-stamp"),
    ("v6", ""),
    ("v6", "early"),
)
"""Every format and variant (decisions: variants)."""

TRAILER: Final = {
    "": 15,
    "text-version": 15,
    "trailer-13": 13,
    "trailer-14": 14,
    "stamp-3": 13,
    "trailer-16": 16,
    "trailer-17": 17,
}
"""v4: frames of the trailer."""

TEXT_VERSIONS: Final = {"text-version", "trailer-13", "trailer-14", "stamp-3"}
"""v4: variants whose versions are text."""

LIMIT: Final = 0xFFFF

# Short, and with the values that parsers trip over.
blobs = st.one_of(st.just(b""), st.binary(max_size=8), st.binary(min_size=2, max_size=2), st.binary(max_size=200))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
u16s = st.one_of(st.sampled_from([0, 1, 2, 0x7FFF, 0x8000, LIMIT]), st.integers(0, LIMIT))
i32s = st.one_of(st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)]), st.integers(-(2**31), 2**31 - 1))
i64s = st.one_of(st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]), st.integers(-(2**63), 2**63 - 1))


def is_number(raw: bytes) -> bool:
    """Whether a version as text is one that stands for a number (decisions: version in v3)."""
    digits, dot, rest = raw.partition(b".")
    canonical = digits.isdigit() and str(int(digits)).encode() == digits and int(digits) <= LIMIT
    return canonical and (dot, rest) == (b".", b"0")


odd_versions = st.one_of(
    st.sampled_from([b"", b"1", b"1.1", b"01.0", b"65536.0", b"1.0\0", b"-1.0"]), st.binary(max_size=9)
).filter(lambda raw: not is_number(raw))
text_versions = st.one_of(u16s, odd_versions)


def ttls(*, whole_ms: bool) -> st.SearchStrategy[int]:
    """Times to live in ticks; in whole milliseconds for a v3 message that is to come back as it was."""
    if not whole_ms:
        return i64s
    longest = (2**63 - 1) // 10_000
    return st.one_of(st.sampled_from([0, 1, -1, longest, -longest]), st.integers(-longest, longest)).map(
        lambda ms: ms * 10_000
    )


@st.composite
def messages(
    draw: st.DrawFn, format: FormatName, variant: str, *, text_version: bool | None = None, whole_ms: bool = True
) -> Message:
    """Messages that a format and variant can hold, to the edges of each field.

    `text_version` tells how versions are written if it is not as the variant says; `whole_ms` is about v3 alone.
    """
    if text_version is None:
        text_version = format == "v3" or (format == "v4" and variant in TEXT_VERSIONS)
    versions = text_versions if text_version else u16s
    # A text of two bytes would be read back as a number (protocol 1.7, rule 4).
    own_versions = versions.filter(lambda v: not (isinstance(v, bytes) and len(v) == 2)) if format == "v4" else versions
    fixed = {"v3": 0, "v4": TRAILER.get(variant, 0), "v5": 17, "v6": 17}[format]
    v3 = format == "v3"
    return Message(
        socket_identity=draw(blobs),
        identity=draw(blobs),
        version=draw(own_versions),
        partition=draw(blobs),
        body=draw(blobs),
        correlation_id=draw(blobs),
        receiver_identity=draw(blobs),
        receiver_node_identity=draw(blobs),
        distribution=draw(st.sampled_from(Distribution)),
        trace_options=draw(i64s if v3 else u16s),
        callback_points=draw(st.lists(st.builds(MessageType, blobs, versions, blobs), max_size=4).map(tuple)),
        callback_key=draw(i64s) if fixed >= 16 else 0,
        callback_receiver_identity=draw(blobs),
        callback_receiver_node_identity=draw(blobs) if fixed >= 17 else b"",
        domain=draw(texts) if fixed >= 15 else "",
        signature=draw(blobs) if fixed >= 14 else b"",
        ttl_ticks=draw(ttls(whole_ms=v3 and whole_ms)),
        hops=draw(i32s if v3 else u16s),
        routing=draw(st.lists(st.builds(RoutingEntry, texts, blobs), max_size=4).map(tuple)),
    )


# --- what a real decode keeps beside a message ------------------------------------------------------------------------

frames_kept = st.lists(blobs, min_size=1, max_size=3).map(tuple)
leads = st.one_of(st.none(), st.lists(blobs, min_size=1, max_size=4).map(tuple).filter(lambda lead: lead != (b"",)))


def reserved(lanes: int) -> st.SearchStrategy[bytes]:
    """Reserved lanes: nothing kept if they are zero."""
    size = 2 * lanes
    return st.one_of(st.just(b""), st.binary(min_size=size, max_size=size).filter(any))


@st.composite
def splits(draw: st.DrawFn, size: int) -> tuple[int, ...] | None:
    """Sizes of the body frames: None for the usual one."""
    count = draw(st.sampled_from([1, 1, 2, 3] if size else [1, 1, 0, 2, 3]))
    if count == 1:
        return None
    cuts = sorted(draw(st.lists(st.integers(0, size), min_size=max(count - 1, 0), max_size=max(count - 1, 0))))
    return tuple(b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)) if count else ()


@st.composite
def entry_frames(draw: st.DrawFn, entries: int) -> tuple[tuple[bytes, ...], ...]:
    """Unknown frames on top of each entry: as many for each, for the divisor is one number."""
    per_entry = draw(st.sampled_from([0, 0, 1, 2])) if entries else 0
    if not per_entry:
        return ()
    return tuple(tuple(draw(blobs) for _ in range(per_entry)) for _ in range(entries))


@st.composite
def entry_bytes(draw: st.DrawFn, entries: int) -> tuple[tuple[bytes, ...], ...]:
    """Unknown bytes at the end of each entry of a metaframe."""
    kept = tuple(draw(st.one_of(st.just(()), st.tuples(st.binary(min_size=1, max_size=5)))) for _ in range(entries))
    return kept if any(kept) else ()


def lane(value: int) -> bytes:
    return value.to_bytes(2, "little")


def int32(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def idle_lanes(divisor: int) -> st.SearchStrategy[tuple[bytes, bytes, bytes] | None]:
    """Offset and divisor that a sender wrote although it had no entry (v4, v5); None if as usual."""
    usual = (lane(0), lane(0), lane(divisor))
    odd = st.tuples(u16s.map(lane), st.just(lane(0)), st.one_of(st.integers(0, 5), u16s).map(lane))
    return st.one_of(st.none(), odd.map(lambda kept: None if kept == usual else kept))


def idle_numbers(divisor: int) -> st.SearchStrategy[tuple[bytes, bytes, bytes] | None]:
    """The same in v3: an empty frame, 0 or -1 in one of offset and count is enough."""
    usual = (b"", b"", int32(divisor))
    none, some = st.sampled_from([b"", int32(0), int32(-1)]), i32s.map(int32)
    pairs = st.one_of(st.tuples(none, none), st.tuples(none, some), st.tuples(some, none))
    odd = st.builds(lambda pair, last: (*pair, last), pairs, i32s.map(int32))
    return st.one_of(st.none(), odd.map(lambda kept: None if kept == usual else kept))


@st.composite
def multi_frame_extras(draw: st.DrawFn, format: FormatName, variant: str, message: Message, text: bool | None) -> Extra:
    """What decoding keeps of a v3, v4 or v5 message."""
    routes, points = len(message.routing), len(message.callback_points)
    kept: dict[str, Any] = {
        "lead": draw(leads),
        "routing_rest": draw(entry_frames(routes)),
        "callback_rest": draw(entry_frames(points)),
        "text_version": text,
    }
    # A gap belongs to the part above it; where that part is missing, to the next one up.
    if routes and points:
        kept["after_routing"] = draw(st.one_of(st.just(()), frames_kept))
    idle = idle_numbers if format == "v3" else idle_lanes
    if not routes:
        kept["idle_routing"] = draw(idle(2))
    if not points:
        kept["idle_callbacks"] = draw(idle(3))
    if format == "v3":
        if routes or points:
            kept["after_callbacks"] = draw(st.one_of(st.just(()), frames_kept))
        return Extra(**kept)
    kept |= {
        "callback_reserved": draw(reserved(1)),
        "trace_reserved": draw(reserved(2)),
        "body_reserved": draw(reserved(2)),
        "body_sizes": draw(splits(len(message.body))),
    }
    if kept["body_sizes"] == () and not routes + points:
        kept["lead"] = (b"", b"", b"")  # v5 has 20 frames and more (protocol 1.7)
    if routes or points:
        kept["after_body"] = draw(st.one_of(st.just(()), frames_kept))
    # Frames on top of a v4 trailer may make it another variant: the next one has a frame more, and 8 bytes are a key.
    if format == "v5" or variant in {"trailer-17", "stamp-3"}:
        kept["after_callbacks"] = draw(st.one_of(st.just(()), frames_kept))
    elif TRAILER[variant] == 15:
        kept["after_callbacks"] = draw(st.one_of(st.just(()), frames_kept.filter(lambda new: len(new[-1]) != 8)))
    return Extra(**kept)


@st.composite
def metaframe_extras(draw: st.DrawFn, variant: str, message: Message) -> Extra:
    """What decoding keeps of a v6 message."""
    sizes = draw(splits(len(message.body)))
    count = 1 if sizes is None else len(sizes)
    lead = draw(leads)
    kept: dict[str, Any] = {
        "lead": lead,
        "body_sizes": sizes,
        "routing_rest": draw(entry_bytes(len(message.routing))),
        "callback_rest": draw(entry_bytes(len(message.callback_points))),
        "trace_reserved": draw(reserved(2)),
        "routing_reserved": draw(reserved(2)),
        "body_reserved": draw(reserved(2)),
        "trailing": draw(st.one_of(st.just(b""), st.binary(max_size=9))),
    }
    if variant == "early":
        # One body frame: the frame before meta, whatever the offset; several: an absolute index.
        kept["body_offset"] = draw(st.one_of(st.none(), u16s.filter(lambda offset: offset != 2))) if count == 1 else None
        kept["after_body"] = () if count == 1 else draw(st.one_of(st.just(()), frames_kept))
        copy = draw(st.one_of(st.none(), blobs))
        kept["body_copy"] = None if copy == message.body else copy
        return Extra(**kept)
    kept["wire_version"] = draw(st.sampled_from([None, None, 4, 5]))
    if kept["wire_version"] == 5:
        kept["trailing"] = kept["trailing"][:3]  # four bytes and more may look like the body again
    kept["after_body"] = draw(st.one_of(st.just(()), frames_kept))
    if not count and not kept["after_body"] and draw(st.booleans()):
        kept["body_offset"] = 0
    return Extra(**kept)


@st.composite
def messages_with_extras(draw: st.DrawFn, format: FormatName, variant: str) -> tuple[Message, Extra | None]:
    """A message and what a real decode could have kept beside it; None if that is nothing."""
    text = None
    if format == "v4" and TRAILER[variant] != 15 and draw(st.booleans()):
        text = variant not in TEXT_VERSIONS
    message = draw(messages(format, variant, text_version=text))
    if format == "v6":
        extra = draw(metaframe_extras(variant, message))
    else:
        extra = draw(multi_frame_extras(format, variant, message, text))
    return message, None if extra == Extra() else extra


# --- damage -----------------------------------------------------------------------------------------------------------

NUMBERS: Final = tuple(
    value.to_bytes(size, "little", signed=True)
    for size in (2, 4, 8)
    for value in (0, 1, 2, 3, 4, 5, 6, 13, 17, 18, 21, 127, -1, -2, 2 ** (8 * size - 1) - 1, -(2 ** (8 * size - 1)))
)
"""Numbers that mean something on the wire, and the edges of each width."""

any_frames = st.lists(
    st.one_of(st.binary(max_size=12), st.sampled_from(NUMBERS), st.binary(min_size=80, max_size=140)), max_size=40
)
"""Frame lists that nobody meant."""


@st.composite
def mutations(draw: st.DrawFn, frames: list[bytes]) -> list[bytes]:
    """Damage a frame list in a few places: whole frames, bytes inside one, and numbers inside one."""
    mutated = list(frames)
    for _ in range(draw(st.integers(1, 4))):
        if not mutated:
            break
        # Counted from the end, where the trailer and the metaframe are.
        index = len(mutated) - 1 - draw(st.integers(0, len(mutated) - 1))
        frame = mutated[index]
        where = draw(st.integers(0, len(frame)))
        match draw(st.integers(0, 8)):
            case 0:
                del mutated[index]
            case 1:
                mutated.insert(index, draw(blobs))
            case 2:
                mutated.insert(index, frame)
            case 3:
                other = draw(st.integers(0, len(mutated) - 1))
                mutated[index], mutated[other] = mutated[other], frame
            case 4:
                mutated[index] = draw(st.one_of(blobs, st.sampled_from(NUMBERS)))
            case 5:
                mutated[index] = frame[:where]
            case 6:
                mutated[index] = frame[:where] + draw(st.binary(max_size=6)) + frame[where:]
            case 7:
                number = draw(st.sampled_from(NUMBERS))
                mutated[index] = frame[:where] + number + frame[where + len(number) :]
            case _:
                flipped = bytearray(frame)
                if flipped:
                    flipped[where % len(frame)] ^= 1 << draw(st.integers(0, 7))
                mutated[index] = bytes(flipped)
    return mutated

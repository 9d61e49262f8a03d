"""The annotated byte map of a message: every frame and field with its place, its bytes and its meaning.

For a broken message the map goes as far as the bytes can be read, and the error says where they break. This file decodes
nothing itself: it asks the codec, and gives names to what the codec found.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from hopline.errors import DecodeError
from hopline.wire import trailer, v3, v6
from hopline.wire.decoded import NO_EXTRA, Decoded
from hopline.wire.formats import FormatName, decode, detect
from hopline.wire.primitives import I32, I64, LANES, U16, Reader, Span, show
from hopline.wire.v3 import TtlUnit


class Explanation(NamedTuple):
    """A byte map, and the error if the message is broken. `format` and `variant` are empty where they are not known."""

    format: str
    variant: str
    spans: tuple[Span, ...]
    error: DecodeError | None


def explain(frames: list[bytes], *, format: FormatName | None = None, v3_ttl: TtlUnit = "ms") -> Explanation:
    """Draw the byte map of a frame list; never raises for bytes, however broken.

    >>> from hopline.wire import Message, encode
    >>> explanation = explain(encode(Message(identity=b"HELLO", version=1)))
    >>> [(span.offset, span.meaning) for span in explanation.spans if span.field == "Identity"]
    [(12, '"HELLO"')]
    """
    try:
        decoded = decode(frames, format=format, v3_ttl=v3_ttl)
    except DecodeError as error:
        name = format or _detected(frames)
        return Explanation(name, "", tuple(_map(frames, name, "", _broken_labels(frames, name))), error)
    name, variant = decoded.format, decoded.variant
    return Explanation(name, variant, tuple(_map(frames, name, variant, _labels(decoded))), None)


def _detected(frames: list[bytes]) -> str:
    try:
        return detect(frames)
    except DecodeError:
        return ""


def _fixed_frames(format_name: str) -> dict[int, str]:
    """The fields that a format has at fixed places from the end."""
    if format_name == "v6":
        return {1: "Meta"}
    return v3.FIELDS if format_name == "v3" else trailer.FIELDS


def _labels(decoded: Decoded) -> list[str]:
    """Name each frame of a message that could be decoded, top to bottom."""
    message, keep = decoded.message, decoded.extra or NO_EXTRA
    lead = (b"",) if keep.lead is None else keep.lead
    body_frames = 1 if keep.body_sizes is None else len(keep.body_sizes)
    labels = ["SocketIdentity", *("unknown frame" if frame else "empty" for frame in lead)]
    if decoded.format != "v3":
        labels += ["Body"] * body_frames
    labels += ["unknown frame"] * len(keep.after_body)
    if decoded.format != "v6":
        for i in range(len(message.routing)):
            rest = keep.routing_rest[i] if keep.routing_rest else ()
            labels += [f"Routing[{i}] unknown"] * len(rest)
            labels += [f"Routing[{i}] URI", f"Routing[{i}] Identity"]
        labels += ["unknown frame"] * len(keep.after_routing)
        for i in range(len(message.callback_points)):
            rest = keep.callback_rest[i] if keep.callback_rest else ()
            labels += [f"Callback[{i}] unknown"] * len(rest)
            labels += [f"Callback[{i}] Partition", f"Callback[{i}] Version", f"Callback[{i}] Identity"]
        labels += ["unknown frame"] * len(keep.after_callbacks)
    fixed = _fixed_frames(decoded.format)
    size = max(fixed) if decoded.format != "v4" else _v4_trailer(decoded)
    return labels + [fixed[k] for k in range(size, 0, -1)]


def _v4_trailer(decoded: Decoded) -> int:
    return {"trailer-13": 13, "stamp-3": 13, "trailer-14": 14, "trailer-16": 16, "trailer-17": 17}.get(decoded.variant, 15)


def _broken_labels(frames: list[bytes], format_name: str) -> list[str]:
    """Name what stands at a fixed place; the rest cannot be told in a broken message."""
    n = len(frames)
    fixed = _fixed_frames(format_name) if format_name else {}
    if format_name == "v4":
        # How long the trailer is was to be read off the parts above it; only the shortest one is there for sure.
        fixed = {k: field for k, field in fixed.items() if k <= trailer.SHORTEST}
    labels = [fixed.get(n - i, "not located") for i in range(n)]
    if labels:
        labels[0] = "SocketIdentity"
    return labels


def _map(frames: list[bytes], format_name: str, variant: str, labels: list[str]) -> list[Span]:
    spans: list[Span] = []
    for i, (raw, label) in enumerate(zip(frames, labels, strict=True)):
        if label == "Meta":
            spans += _meta_map(raw, i, variant)
        else:
            spans.append(Span(i, 0, len(raw), label, _meaning(raw, label, format_name)))
    return spans


def _meta_map(meta: bytes, frame: int, variant: str) -> list[Span]:
    spans: list[Span] = []
    reader = Reader(meta, frame, spans)
    try:
        v6.walk(reader, is_early=variant == "early")
    except DecodeError:
        reader.end = len(meta)
        reader.skip("not readable", "")
    return spans


def _number(raw: bytes) -> str:
    shape = {2: U16, 4: I32, 8: I64}.get(len(raw))
    return str(shape.unpack(raw)[0]) if shape else show(raw)


def _lanes(*names: str) -> Callable[[bytes], str]:
    def meaning(raw: bytes) -> str:
        if len(raw) != LANES.size:
            return show(raw)
        return ", ".join(f"{name} {value}" for name, value in zip(names, LANES.unpack(raw), strict=False))

    return meaning


_MEANINGS: Final[dict[str, Callable[[bytes], str]]] = {
    "RoutingDescription": _lanes("offset", "count", "divisor", "hops"),
    "CallbackDescription": _lanes("offset", "count", "divisor"),
    "BodyDescription": _lanes("offset", "count"),
    "TraceOptions, Distribution": _lanes("trace", "distribution"),
} | dict.fromkeys(
    (
        "CallbackKey",
        "TTL",
        "WireFormatVersion",
        "CallbackFrameDivisor",
        "RoutingFrameDivisor",
        "Hops",
        "RoutingEntryCount",
        "RoutingStartFrame",
        "TraceOptions",
        "Distribution",
        "CallbackEntryCount",
        "CallbackStartFrame",
    ),
    _number,
)


def _meaning(raw: bytes, label: str, format_name: str) -> str:
    if label.endswith("Version") and format_name in ("v4", "v5") and len(raw) == U16.size:
        return _number(raw)
    return _MEANINGS.get(label, show)(raw)

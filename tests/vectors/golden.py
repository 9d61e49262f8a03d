"""The project's own golden vectors: the worked examples of the protocol, typed by hand, field by field.

Nothing here was made by our encoder, so an encoder and a decoder that are wrong in the same way do not pass. The example
message is the same in every format (protocol 1.3: "Sample used for all formats"); a format that has no place for a field
has the field empty. Tests elsewhere take these frames and change one of them to make a broken or a future message; the
few tools for that are here too.
"""

import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hopline.wire import Decoded, Distribution, FormatName, Message, MessageType, RoutingEntry, TtlUnit, decode, encode

NO_CORRELATION: Final = b"00000000-0000-0000-0000-000000000000"
"""What the reference writes for "none": text of 36 bytes."""


def frame_list(text: str) -> list[bytes]:
    """Turn a typed table into frames: one a line, hexadecimal, a dash for an empty one, then a comment."""
    lines = [line.split("#")[0].strip() for line in text.strip().splitlines()]
    return [b"" if line == "-" else bytes.fromhex(line) for line in lines]


def meta_fields(text: str) -> dict[str, bytes]:
    """Turn a typed table of a metaframe into its fields in order: hexadecimal, then the name as a comment."""
    rows = [line.split("#") for line in text.strip().splitlines()]
    return {name.strip(): bytes.fromhex(value) for value, name in rows}


def u16(value: int) -> bytes:
    """USHORT of protocol 1.1."""
    return struct.pack("<H", value)


def i32(value: int) -> bytes:
    """INT of protocol 1.1."""
    return struct.pack("<i", value)


def i64(value: int) -> bytes:
    """LONG of protocol 1.1."""
    return struct.pack("<q", value)


def lanes(*values: int) -> bytes:
    """Packed ULONG of protocol 1.1; lanes that are left out are zero."""
    return struct.pack("<4H", *values, *(0,) * (4 - len(values)))


def blob(raw: bytes) -> bytes:
    """BYTE[] of a metaframe, protocol 1.1."""
    return i32(len(raw)) + raw


def changed(frames: list[bytes], changes: Mapping[int, bytes]) -> list[bytes]:
    """Replace frames by their place from the end, as the documents count: 13 is n-13."""
    return [changes.get(len(frames) - index, frame) for index, frame in enumerate(frames)]


def inserted(frames: list[bytes], index: int, *new: bytes) -> list[bytes]:
    """Put new frames before frame `index`, counted from the start."""
    return [*frames[:index], *new, *frames[index:]]


def decode_losslessly(frames: list[bytes], v3_ttl: TtlUnit = "ms") -> Decoded:
    """Decode, and check the rule "lossless" on the way: what we decode we can encode to the same bytes."""
    decoded = decode(frames, v3_ttl=v3_ttl)
    assert encode_again(decoded, v3_ttl) == frames
    return decoded


def encode_again(decoded: Decoded, v3_ttl: TtlUnit = "ms") -> list[bytes]:
    """Encode a message in the layout it came in."""
    name: Any = decoded.format
    return encode(decoded.message, name, decoded.variant, decoded.extra, v3_ttl=v3_ttl)


V3_MESSAGE: Final = Message(
    socket_identity=b"N2",
    identity=b"HELLO",
    version=1,
    partition=b"",
    body=b"\x0a\x02hi",
    correlation_id=b"C1",
    receiver_identity=b"",
    receiver_node_identity=b"",
    distribution=Distribution.UNICAST,
    trace_options=1,
    callback_points=(MessageType(b"EHHLO", 1, b"P"), MessageType(b"KINO.EXCEPTION", 1, b"")),
    callback_key=0,
    callback_receiver_identity=b"\x00H1",
    callback_receiver_node_identity=b"",
    domain="",
    signature=b"",
    ttl_ticks=50_000_000,
    hops=1,
    routing=(RoutingEntry("tcp://10.0.0.1:5101", b"N1"),),
)

# protocol 1.3, "V3 example": the reference wrote ticks at n-4.
V3_FRAMES: Final = frame_list("""
    4e 32                                                        # 0     SocketIdentity
    -                                                            # 1     empty
    74 63 70 3a 2f 2f 31 30 2e 30 2e 30 2e 31 3a 35 31 30 31     # 2     ROUTER URI
    4e 31                                                        # 3     ROUTER ID
    50                                                           # 4     Callback[0] Partition
    31 2e 30                                                     # 5     Callback[0] Version
    45 48 48 4c 4f                                               # 6     Callback[0] Identity
    -                                                            # 7     Callback[1] Partition
    31 2e 30                                                     # 8     Callback[1] Version
    4b 49 4e 4f 2e 45 58 43 45 50 54 49 4f 4e                    # 9     Callback[1] Identity
    03 00 00 00                                                  # n-20  CallbackFrameDivisor
    02 00 00 00                                                  # n-19  RoutingFrameDivisor
    -                                                            # n-18  Partition
    -                                                            # n-17  ReceiverNodeIdentity
    01 00 00 00                                                  # n-16  Hops
    01 00 00 00                                                  # n-15  RoutingEntryCount
    1b 00 00 00                                                  # n-14  RoutingStartFrame, 27 = 21 + 3 * 2
    01 00 00 00 00 00 00 00                                      # n-13  TraceOptions
    31 2e 30                                                     # n-12  Version
    48 45 4c 4c 4f                                               # n-11  Identity
    -                                                            # n-10  ReceiverIdentity
    00 00 00 00                                                  # n-9   Distribution
    43 31                                                        # n-8   CorrelationId
    02 00 00 00                                                  # n-7   CallbackEntryCount
    15 00 00 00                                                  # n-6   CallbackStartFrame, 21
    00 48 31                                                     # n-5   CallbackReceiverIdentity
    80 f0 fa 02 00 00 00 00                                      # n-4   TTL, 50 000 000 ticks
    03 00 00 00                                                  # n-3   WireFormatVersion
    -                                                            # n-2   empty
    0a 02 68 69                                                  # n-1   Body
""")

# The same message as document 003 has it: "Message Time-to-Live in msec.", 5000 of them.
V3_MS_FRAMES: Final = [*V3_FRAMES[:-4], bytes.fromhex("88 13 00 00 00 00 00 00"), *V3_FRAMES[-3:]]

# Counts and offsets are empty frames where there is nothing (protocol 1.2.2), the divisors are written all the same.
V3_EMPTY_MESSAGE: Final = Message(identity=b"HELLO", version=1, correlation_id=NO_CORRELATION)
V3_EMPTY_FRAMES: Final = frame_list(f"""
    -                                                            # 0     SocketIdentity
    -                                                            # 1     empty
    03 00 00 00                                                  # n-20  CallbackFrameDivisor
    02 00 00 00                                                  # n-19  RoutingFrameDivisor
    -                                                            # n-18  Partition
    -                                                            # n-17  ReceiverNodeIdentity
    00 00 00 00                                                  # n-16  Hops
    -                                                            # n-15  RoutingEntryCount
    -                                                            # n-14  RoutingStartFrame
    00 00 00 00 00 00 00 00                                      # n-13  TraceOptions
    31 2e 30                                                     # n-12  Version
    48 45 4c 4c 4f                                               # n-11  Identity
    -                                                            # n-10  ReceiverIdentity
    00 00 00 00                                                  # n-9   Distribution
    {NO_CORRELATION.hex()}     # n-8   CorrelationId
    -                                                            # n-7   CallbackEntryCount
    -                                                            # n-6   CallbackStartFrame
    -                                                            # n-5   CallbackReceiverIdentity
    00 00 00 00 00 00 00 00                                      # n-4   TTL
    03 00 00 00                                                  # n-3   WireFormatVersion
    -                                                            # n-2   empty
    -                                                            # n-1   Body
""")

# protocol 1.4, "V4 example": versions are the text of document 002's own time.
V4_TEXT_MESSAGE: Final = Message(
    socket_identity=b"N2",
    identity=b"HELLO",
    version=1,
    partition=b"",
    body=b"\x0a\x02hi",
    correlation_id=b"C1",
    receiver_identity=b"",
    receiver_node_identity=b"",
    distribution=Distribution.UNICAST,
    trace_options=1,
    callback_points=(MessageType(b"EHHLO", 1, b"P"), MessageType(b"KINO.EXCEPTION", 1, b"")),
    callback_key=0,
    callback_receiver_identity=b"\x00H1",
    callback_receiver_node_identity=b"",
    domain="dom",
    signature=bytes.fromhex("06 7a f1 60 43 1f ce 17 81 3e 1f f7 53 f0 f4 86"),
    ttl_ticks=50_000_000,
    hops=1,
    routing=(RoutingEntry("tcp://10.0.0.1:5101", b"N1"),),
)
V4_TEXT_FRAMES: Final = frame_list("""
    4e 32                                                        # 0     SocketIdentity
    -                                                            # 1     empty
    0a 02 68 69                                                  # 2     Body
    74 63 70 3a 2f 2f 31 30 2e 30 2e 30 2e 31 3a 35 31 30 31     # 3     ROUTER URI
    4e 31                                                        # 4     ROUTER ID
    50                                                           # 5     Callback[0] Partition
    31 2e 30                                                     # 6     Callback[0] Version
    45 48 48 4c 4f                                               # 7     Callback[0] Identity
    -                                                            # 8     Callback[1] Partition
    31 2e 30                                                     # 9     Callback[1] Version
    4b 49 4e 4f 2e 45 58 43 45 50 54 49 4f 4e                    # 10    Callback[1] Identity
    64 6f 6d                                                     # n-15  Domain
    06 7a f1 60 43 1f ce 17 81 3e 1f f7 53 f0 f4 86              # n-14  Signature
    16 00 01 00 02 00 01 00                                      # n-13  RoutingDescription: offset 22, 1 entry, 2, 1 hop
    10 00 02 00 03 00 00 00                                      # n-12  CallbackDescription: offset 16, 2 entries, 3
    -                                                            # n-11  ReceiverIdentity
    00 48 31                                                     # n-10  CallbackReceiverIdentity
    -                                                            # n-9   ReceiverNodeIdentity
    -                                                            # n-8   Partition
    31 2e 30                                                     # n-7   Version
    48 45 4c 4c 4f                                               # n-6   Identity
    01 00 00 00 00 00 00 00                                      # n-5   Trace, Distribution
    43 31                                                        # n-4   CorrelationId
    80 f0 fa 02 00 00 00 00                                      # n-3   TTL
    18 00 01 00 00 00 00 00                                      # n-2   BodyDescription: offset 24, 1 frame
    04 00 00 00                                                  # n-1   WireFormatVersion
""")

# Since 119bdc3 versions are uint16 (protocol 1.0.1); the MAC is then over the same bytes as the one of v5.
V4_MESSAGE: Final = Message(
    socket_identity=b"N2",
    identity=b"HELLO",
    version=1,
    partition=b"",
    body=b"\x0a\x02hi",
    correlation_id=b"C1",
    receiver_identity=b"",
    receiver_node_identity=b"",
    distribution=Distribution.UNICAST,
    trace_options=1,
    callback_points=(MessageType(b"EHHLO", 1, b"P"), MessageType(b"KINO.EXCEPTION", 1, b"")),
    callback_key=0,
    callback_receiver_identity=b"\x00H1",
    callback_receiver_node_identity=b"",
    domain="dom",
    signature=bytes.fromhex("68 e9 95 3f b9 fa 0c af 08 ca d2 2f 21 c2 03 fe"),
    ttl_ticks=50_000_000,
    hops=1,
    routing=(RoutingEntry("tcp://10.0.0.1:5101", b"N1"),),
)
V4_FRAMES: Final = frame_list("""
    4e 32                                                        # 0     SocketIdentity
    -                                                            # 1     empty
    0a 02 68 69                                                  # 2     Body
    74 63 70 3a 2f 2f 31 30 2e 30 2e 30 2e 31 3a 35 31 30 31     # 3     ROUTER URI
    4e 31                                                        # 4     ROUTER ID
    50                                                           # 5     Callback[0] Partition
    01 00                                                        # 6     Callback[0] Version
    45 48 48 4c 4f                                               # 7     Callback[0] Identity
    -                                                            # 8     Callback[1] Partition
    01 00                                                        # 9     Callback[1] Version
    4b 49 4e 4f 2e 45 58 43 45 50 54 49 4f 4e                    # 10    Callback[1] Identity
    64 6f 6d                                                     # n-15  Domain
    68 e9 95 3f b9 fa 0c af 08 ca d2 2f 21 c2 03 fe              # n-14  Signature
    16 00 01 00 02 00 01 00                                      # n-13  RoutingDescription: offset 22, 1 entry, 2, 1 hop
    10 00 02 00 03 00 00 00                                      # n-12  CallbackDescription: offset 16, 2 entries, 3
    -                                                            # n-11  ReceiverIdentity
    00 48 31                                                     # n-10  CallbackReceiverIdentity
    -                                                            # n-9   ReceiverNodeIdentity
    -                                                            # n-8   Partition
    01 00                                                        # n-7   Version
    48 45 4c 4c 4f                                               # n-6   Identity
    01 00 00 00 00 00 00 00                                      # n-5   Trace, Distribution
    43 31                                                        # n-4   CorrelationId
    80 f0 fa 02 00 00 00 00                                      # n-3   TTL
    18 00 01 00 00 00 00 00                                      # n-2   BodyDescription: offset 24, 1 frame
    04 00 00 00                                                  # n-1   WireFormatVersion
""")

# protocol 1.5, "V5 example"; the last frame has 4 bytes up to v0.0.4.2 and 2 bytes from v0.0.5.2 on.
V5_MESSAGE: Final = Message(
    socket_identity=b"N2",
    identity=b"HELLO",
    version=1,
    partition=b"",
    body=b"\x0a\x02hi",
    correlation_id=b"C1",
    receiver_identity=b"",
    receiver_node_identity=b"",
    distribution=Distribution.UNICAST,
    trace_options=1,
    callback_points=(MessageType(b"EHHLO", 1, b"P"), MessageType(b"KINO.EXCEPTION", 1, b"")),
    callback_key=7,
    callback_receiver_identity=b"\x00H1",
    callback_receiver_node_identity=b"N1",
    domain="dom",
    signature=bytes.fromhex("68 e9 95 3f b9 fa 0c af 08 ca d2 2f 21 c2 03 fe"),
    ttl_ticks=50_000_000,
    hops=1,
    routing=(RoutingEntry("tcp://10.0.0.1:5101", b"N1"),),
)
V5_FRAMES: Final = frame_list("""
    4e 32                                                        # 0     SocketIdentity
    -                                                            # 1     empty
    0a 02 68 69                                                  # 2     Body
    74 63 70 3a 2f 2f 31 30 2e 30 2e 30 2e 31 3a 35 31 30 31     # 3     ROUTER URI
    4e 31                                                        # 4     ROUTER ID
    50                                                           # 5     Callback[0] Partition
    01 00                                                        # 6     Callback[0] Version
    45 48 48 4c 4f                                               # 7     Callback[0] Identity
    -                                                            # 8     Callback[1] Partition
    01 00                                                        # 9     Callback[1] Version
    4b 49 4e 4f 2e 45 58 43 45 50 54 49 4f 4e                    # 10    Callback[1] Identity
    4e 31                                                        # n-17  CallbackReceiverNodeIdentity
    07 00 00 00 00 00 00 00                                      # n-16  CallbackKey
    64 6f 6d                                                     # n-15  Domain
    68 e9 95 3f b9 fa 0c af 08 ca d2 2f 21 c2 03 fe              # n-14  Signature
    18 00 01 00 02 00 01 00                                      # n-13  RoutingDescription: offset 24, 1 entry, 2, 1 hop
    12 00 02 00 03 00 00 00                                      # n-12  CallbackDescription: offset 18, 2 entries, 3
    -                                                            # n-11  ReceiverIdentity
    00 48 31                                                     # n-10  CallbackReceiverIdentity
    -                                                            # n-9   ReceiverNodeIdentity
    -                                                            # n-8   Partition
    01 00                                                        # n-7   Version
    48 45 4c 4c 4f                                               # n-6   Identity
    01 00 00 00 00 00 00 00                                      # n-5   Trace, Distribution
    43 31                                                        # n-4   CorrelationId
    80 f0 fa 02 00 00 00 00                                      # n-3   TTL
    1a 00 01 00 00 00 00 00                                      # n-2   BodyDescription: offset 26, 1 frame
    05 00 00 00                                                  # n-1   WireFormatVersion
""")
V5_SHORT_STAMP_FRAMES: Final = [*V5_FRAMES[:-1], b"\x05\x00"]

# protocol 1.5, "Freshly created message with all defaults", n = 20.
DEFAULT_MESSAGE: Final = Message(identity=b"HELLO", version=1, correlation_id=NO_CORRELATION)
V5_DEFAULT_FRAMES: Final = frame_list(f"""
    -                                                            # 0     SocketIdentity
    -                                                            # 1     empty
    -                                                            # 2     Body
    -                                                            # n-17  CallbackReceiverNodeIdentity
    00 00 00 00 00 00 00 00                                      # n-16  CallbackKey
    -                                                            # n-15  Domain
    -                                                            # n-14  Signature
    00 00 00 00 02 00 00 00                                      # n-13  RoutingDescription
    00 00 00 00 03 00 00 00                                      # n-12  CallbackDescription
    -                                                            # n-11  ReceiverIdentity
    -                                                            # n-10  CallbackReceiverIdentity
    -                                                            # n-9   ReceiverNodeIdentity
    -                                                            # n-8   Partition
    01 00                                                        # n-7   Version
    48 45 4c 4c 4f                                               # n-6   Identity
    00 00 00 00 00 00 00 00                                      # n-5   Trace, Distribution
    {NO_CORRELATION.hex()}     # n-4   CorrelationId
    00 00 00 00 00 00 00 00                                      # n-3   TTL
    12 00 01 00 00 00 00 00                                      # n-2   BodyDescription: offset 18, 1 frame
    05 00                                                        # n-1   WireFormatVersion
""")

# protocol 1.6, "Metaframe example": 194 bytes; the early one has 202.
V6_MESSAGE: Final = V5_MESSAGE
V6_FIELDS: Final = meta_fields("""
    06 00                                                        # WireFormatVersion
    00 00 00 00                                                  # Partition
    01 00                                                        # Version
    05 00 00 00 48 45 4c 4c 4f                                   # Identity
    00 00 00 00                                                  # ReceiverIdentity
    00 00 00 00                                                  # ReceiverNodeIdentity
    01 00 00 00 00 00 00 00                                      # TraceOptions, Distribution
    02 00 00 00 4e 31                                            # CallbackReceiverNodeIdentity
    07 00 00 00 00 00 00 00                                      # CallbackKey
    03 00 00 00 64 6f 6d                                         # Domain
    10 00 00 00 68 e9 95 3f b9 fa 0c af 08 ca d2 2f 21 c2 03 fe  # Signature
    01 00 01 00 00 00 00 00                                      # RoutingEntryCount, Hops
    1d 00 00 00                                                  # Routing[0] size
    13 00 00 00 74 63 70 3a 2f 2f 31 30 2e 30 2e 30 2e 31 3a 35 31 30 31  # Routing[0] URI
    02 00 00 00 4e 31                                            # Routing[0] Identity
    02 00                                                        # CallbackEntryCount
    10 00 00 00                                                  # Callback[0] size
    01 00 00 00 50                                               # Callback[0] Partition
    01 00                                                        # Callback[0] Version
    05 00 00 00 45 48 48 4c 4f                                   # Callback[0] Identity
    18 00 00 00                                                  # Callback[1] size
    00 00 00 00                                                  # Callback[1] Partition
    01 00                                                        # Callback[1] Version
    0e 00 00 00 4b 49 4e 4f 2e 45 58 43 45 50 54 49 4f 4e        # Callback[1] Identity
    03 00 00 00 00 48 31                                         # CallbackReceiverIdentity
    02 00 00 00 43 31                                            # CorrelationId
    80 f0 fa 02 00 00 00 00                                      # TTL
    02 00 01 00 00 00 00 00                                      # BodyFirstFrameOffset, BodyFrameCount
""")
"""The metaframe of the example, field by field in wire order; the sizes of entries are fields of their own."""

BODY_COPY: Final = bytes.fromhex("04 00 00 00 0a 02 68 69")


def metaframe(**changes: bytes) -> bytes:
    """Join the fields of the example; a change names a field with underscores for anything else, and replaces its bytes.

    `end` appends bytes after the last field.
    """
    end = changes.pop("end", b"")
    fields = {"".join(c if c.isalnum() else "_" for c in name): raw for name, raw in V6_FIELDS.items()}
    assert changes.keys() <= fields.keys(), changes.keys() - fields.keys()
    return b"".join((fields | changes).values()) + end


V6_FRAMES: Final = [b"N2", b"", b"\x0a\x02hi", metaframe()]
V6_EARLY_FRAMES: Final = [b"N2", b"", b"\x0a\x02hi", metaframe(WireFormatVersion=b"\x05\x00", end=BODY_COPY)]

# protocol 1.6, "Defaults (Message.Create with identity HELLO, nothing else)".
V6_DEFAULT_FRAMES: Final = [
    b"",
    b"",
    b"",
    bytes.fromhex("06 00 00 00 00 00 01 00 05 00 00 00 48 45 4c 4c 4f")
    + bytes(8)  # two empty arrays
    + bytes(8)  # trace options, distribution
    + bytes(4)  # callback receiver node
    + bytes(8)  # callback key
    + bytes(4)  # domain
    + bytes(4)  # signature
    + bytes(8)  # routing
    + bytes(2)  # callbacks
    + bytes(4)  # callback receiver
    + bytes.fromhex("24 00 00 00")
    + b"00000000-0000-0000-0000-000000000000"
    + bytes(8)  # TTL
    + bytes.fromhex("02 00 01 00 00 00 00 00"),
]


class Golden(NamedTuple):
    """One example: what the frames are, and what they say."""

    name: str
    format: FormatName
    variant: str
    wire_version: int
    v3_ttl: TtlUnit
    message: Message
    frames: list[bytes]


GOLDEN: Final = (
    Golden("v3, TTL in ticks", "v3", "", 3, "ticks", V3_MESSAGE, V3_FRAMES),
    Golden("v3, TTL in milliseconds", "v3", "", 3, "ms", V3_MESSAGE, V3_MS_FRAMES),
    Golden("v3, defaults", "v3", "", 3, "ms", V3_EMPTY_MESSAGE, V3_EMPTY_FRAMES),
    Golden("v4, text versions", "v4", "text-version", 4, "ms", V4_TEXT_MESSAGE, V4_TEXT_FRAMES),
    Golden("v4", "v4", "", 4, "ms", V4_MESSAGE, V4_FRAMES),
    Golden("v5, stamp of 4 bytes", "v5", "int32-stamp", 5, "ms", V5_MESSAGE, V5_FRAMES),
    Golden("v5, stamp of 2 bytes", "v5", "uint16-stamp", 5, "ms", V5_MESSAGE, V5_SHORT_STAMP_FRAMES),
    Golden("v5, defaults", "v5", "uint16-stamp", 5, "ms", DEFAULT_MESSAGE, V5_DEFAULT_FRAMES),
    Golden("v6", "v6", "", 6, "ms", V6_MESSAGE, V6_FRAMES),
    Golden("v6, early", "v6", "early", 5, "ms", V6_MESSAGE, V6_EARLY_FRAMES),
    Golden("v6, defaults", "v6", "", 6, "ms", DEFAULT_MESSAGE, V6_DEFAULT_FRAMES),
)

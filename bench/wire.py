"""Row codec, selectors, templates and signatures against msgspec's msgpack of the same content."""

import msgspec

from bench.timing import Case
from hopline.flow import inherit_flow, message_uid, record_hop
from hopline.security import Domain, Keyring
from hopline.wire import FormatName, Message, MessageType, RoutingEntry, decode, encode, select
from hopline.wire.template import Templates

NODES = [RoutingEntry(f"tcp://10.0.0.{i}:5101", b"%032d-%03d" % (i, i)) for i in (1, 2, 3)]

SAMPLE = Message(
    socket_identity=NODES[1].identity,
    identity=b"ORDER.PLACE",
    version=1,
    body=b"x" * 200,
    correlation_id=b"0b6f3f0e-6f0c-4b62-9c9e-5f0a3e7d1c11",
    trace_options=1,
    callback_points=(MessageType(b"ORDER.PLACED", 1), MessageType(b"KINO.EXCEPTION", 1)),
    callback_key=77,
    callback_receiver_identity=b"\0" + b"5261539c-ab7d-e048-7b6b-41415acc7f61",
    callback_receiver_node_identity=NODES[0].identity,
    domain="orders",
    ttl_ticks=50_000_000,
    hops=2,
    routing=(NODES[0], NODES[1]),
)
"""36-byte correlation id, 2 callback points, 2 routing entries, 200-byte body."""

KINO = Keyring([Domain("orders", keys=(b"0123456789abcdef",), scheme="kino")])
FULL = Keyring([Domain("orders", keys=(b"0123456789abcdef",))])
NONCE = bytes(16)

TARGETS = {("v6", "decode"): 11.0, ("v6", "select"): 2.0, ("v6", "encode"): 7.0}


def for_format(message: Message, format: FormatName) -> Message:
    """Leave out what the format has no place for."""
    if format == "v3":
        return msgspec.structs.replace(
            message, callback_key=0, callback_receiver_node_identity=b"", domain="", signature=b""
        )
    if format == "v4":
        return msgspec.structs.replace(message, callback_key=0, callback_receiver_node_identity=b"")
    return message


def cases() -> list[Case]:
    """All row cases; the yardsticks come first."""
    signed = KINO.sign(SAMPLE)
    packed = msgspec.msgpack.encode(signed)
    decoder = msgspec.msgpack.Decoder(Message)
    encoder = msgspec.msgpack.Encoder()
    found = [
        Case("msgpack", "decode", lambda: decoder.decode(packed)),
        Case("msgpack", "encode", lambda: encoder.encode(signed)),
    ]
    formats: list[FormatName] = ["v3", "v4", "v5", "v6"]
    for format in formats:
        found += _format_cases(for_format(signed, format), format)
    return found + _template_cases() + _rule_cases(signed)


def _format_cases(message: Message, format: FormatName) -> list[Case]:
    frames = encode(message, format)
    decoded = decode(frames)
    unsigned = msgspec.structs.replace(message, signature=b"")
    signatures = [
        Case(format, "sign", lambda: KINO.sign(unsigned), yardstick="encode"),
        Case(format, "verify", lambda: KINO.verify(decoded), yardstick="decode"),
    ]
    return [
        *(signatures if message.signature else ()),
        Case(format, "decode", lambda: decode(frames), yardstick="decode", target_us=TARGETS.get((format, "decode"))),
        Case(format, "select", lambda: select(frames), yardstick="decode", target_us=TARGETS.get((format, "select"))),
        Case(
            format, "encode", lambda: encode(message, format), yardstick="encode", target_us=TARGETS.get((format, "encode"))
        ),
    ]


def _template_cases() -> list[Case]:
    """The fast path, with all that changes from message to message changing; a request and the reply made from it."""
    client, server = Templates(), Templates()
    requests = [KINO.sign(msgspec.structs.replace(SAMPLE, callback_key=i, correlation_id=b"%036d" % i)) for i in range(512)]
    replies = [
        KINO.sign(
            record_hop(
                inherit_flow(Message(identity=b"ORDER.PLACED", version=1, body=b"y" * 200, domain="orders"), request),
                NODES[2],
            ).message
        )
        for request in requests
    ]
    request_frames = [client.encode(message) for message in requests]
    reply_frames = [server.encode(message) for message in replies]

    def decode_all() -> None:
        for frames in request_frames:
            server.decode(frames)

    def encode_all() -> None:
        for message in requests:
            client.encode(message)

    def round_trips() -> None:
        for i, request in enumerate(requests):
            client.encode(request)
            server.decode(request_frames[i])
            server.encode(replies[i])
            client.decode(reply_frames[i])

    n = len(requests)
    return [
        Case("template", "decode", decode_all, n, yardstick="decode"),
        Case("template", "encode", encode_all, n, yardstick="encode"),
        Case("template", "request and reply, both ways", round_trips, n, yardstick="decode", target_us=12.0),
    ]


def _rule_cases(signed: Message) -> list[Case]:
    full = decode(encode(FULL.sign(SAMPLE, now_ns=1, nonce=NONCE)))
    return [
        Case("full", "sign", lambda: FULL.sign(SAMPLE, now_ns=1, nonce=NONCE), yardstick="encode"),
        Case("full", "verify", lambda: FULL.verify(full), yardstick="decode"),
        Case("flow", "message_uid", lambda: message_uid(signed), yardstick="encode"),
    ]

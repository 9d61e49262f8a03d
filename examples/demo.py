"""`make demo`: one order travels through nodes of four generations, and we read what they put on the wire.

Makes a small capture with our own encoder (formats v3, v4, v5 and v6, signed, with a forged and a broken message among
them), writes it as JSON lines, reads it back and shows it.
"""

import json
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hopline.errors import WireError
from hopline.flow import inherit_flow, record_hop
from hopline.security import Domain, Keyring
from hopline.wire import FormatName, Message, MessageType, RoutingEntry, decode, encode
from hopline.wire.explain import explain

CAPTURE = Path("build/demo/capture.jsonl")
KEYS = Keyring([Domain("shop", keys=(b"not a secret",), scheme="kino")])
SHOP, STORE, BANK = (RoutingEntry(f"tcp://10.0.0.{i}:5101", name) for i, name in enumerate((b"shop", b"store", b"bank"), 1))


def order(number: int) -> Message:
    """Place an order: a request that waits for one of two answers."""
    return Message(
        identity=b"ORDER.PLACE",
        version=1,
        body=msgspec.msgpack.encode({"order": number, "total": 1999}),
        correlation_id=b"flow-%d" % number,
        trace_options=1,
        ttl_ticks=50_000_000,
        callback_points=(MessageType(b"ORDER.PLACED", 1), MessageType(b"KINO.EXCEPTION", 1)),
        callback_receiver_identity=b"\0hub",
    )


def send(message: Message, at: RoutingEntry, to: bytes, *, signed: bool) -> Message:
    """Do what a router does before a message leaves for another node."""
    message = msgspec.structs.replace(record_hop(message, at).message, socket_identity=to)
    return KEYS.sign(msgspec.structs.replace(message, domain="shop")) if signed else message


def flow(number: int, format: FormatName) -> list[Message]:
    """One flow over three nodes: the shop asks the store, the store the bank, and the bank's answer goes to the shop."""
    signed = format != "v3"  # the oldest format has no signature
    request = send(order(number), SHOP, b"store", signed=signed)
    charge = inherit_flow(Message(identity=b"CARD.CHARGE", version=1, body=b"1999"), request)
    charge = send(charge, STORE, b"bank", signed=signed)
    placed = inherit_flow(Message(identity=b"ORDER.PLACED", version=1, body=b"ok"), charge)
    return [request, charge, send(placed, BANK, b"shop", signed=signed)]


def make_capture() -> list[list[bytes]]:
    """Write the capture, and return its frame lists."""
    layouts: list[FormatName] = ["v3", "v4", "v5", "v6"]
    frames = [encode(message, format) for i, format in enumerate(layouts) for message in flow(i, format)]
    forged = msgspec.structs.replace(flow(4, "v6")[0], body=msgspec.msgpack.encode({"order": 4, "total": 1}))
    frames.append(encode(forged))
    *front, meta = encode(flow(5, "v6")[0])
    frames.append([*front, meta[:120]])
    CAPTURE.parent.mkdir(parents=True, exist_ok=True)
    CAPTURE.write_text("".join(json.dumps({"frames": [frame.hex() for frame in item]}) + "\n" for item in frames))
    return frames


def main() -> None:
    """Make the capture, read it, show it."""
    console = Console(highlight=False, soft_wrap=True)
    make_capture()
    lines = CAPTURE.read_text().splitlines()
    console.print(f"{CAPTURE}: {len(lines)} messages in four formats", style="bold")
    table = Table(box=None, pad_edge=False)
    for name in ("format", "frames", "bytes", "message", "flow", "trail", "signature"):
        table.add_column(name, justify="right" if name in ("frames", "bytes") else "left", no_wrap=True)
    broken = []
    for line in lines:
        frames = [bytes.fromhex(frame) for frame in json.loads(line)["frames"]]
        size = f"{sum(map(len, frames))}"
        try:
            decoded = decode(frames)
        except WireError as error:
            broken.append((frames, error))
            table.add_row("?", f"{len(frames)}", size, Text("broken", style="bold red"), "", error.code)
            continue
        message = decoded.message
        verdict = KEYS.verify(decoded).value
        table.add_row(
            decoded.format,
            f"{len(frames)}",
            size,
            message.identity.decode(),
            message.correlation_id.decode(),
            " > ".join(entry.identity.decode() for entry in message.routing),
            Text(verdict, style={"valid": "green", "invalid": "bold red"}.get(verdict, "yellow")),
        )
    console.print(table)
    for frames, fault in broken:
        console.print(f"\nThe broken one breaks here: [bold red]{fault}[/bold red]")
        for span in explain(frames).spans[-4:]:
            console.print(f"  frame {span.frame} byte {span.offset:3}  {span.field:36} {span.meaning}", markup=False)
    console.print(
        f"\nNow you:  .venv/bin/hopline decode {CAPTURE}\n"
        f"          .venv/bin/hopline explain {CAPTURE}\n"
        f"          .venv/bin/hopline verify {CAPTURE} --key shop={b'not a secret'.hex()}"
    )


if __name__ == "__main__":
    main()

"""`make demo`: a shop of three processes at work, and then what nodes of four generations put on the wire.

First three nodes start on loopback, as processes of their own, and take orders: good ones, one that fails, one that nobody
handles. Then a small capture is made with our own encoder (formats v3, v4, v5 and v6, signed, with a forged and a broken
message among them), written as JSON lines, read back and shown.
"""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any, Self

import msgspec
from orders import DOMAINS, OrderPlaced, PlaceOrder, ReturnOrder  # type: ignore[import-not-found]  # beside this script
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hopline import DeliveryError, Node, Statistics, Tap
from hopline.errors import WireError
from hopline.flow import inherit_flow, record_hop
from hopline.security import Keyring
from hopline.wire import FormatName, Message, MessageType, RoutingEntry, decode, encode
from hopline.wire.explain import explain

CAPTURE = Path("build/demo/capture.jsonl")
KEYS = Keyring(DOMAINS)
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


class Process:
    """One part of the shop as a process; it ends with its input, so it does not outlive us."""

    def __init__(self, name: str, *peers: "Process") -> None:
        self.name = name
        self.address = ""
        self._options = [option for peer in peers for option in ("--peer", peer.address)]
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        """Start it, and wait for its address."""
        script = str(Path(__file__).with_name("orders.py"))
        pipe = asyncio.subprocess.PIPE
        quiet = asyncio.subprocess.DEVNULL  # a node logs handlers that fail; here the asker shows them
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, script, self.name, *self._options, stdin=pipe, stdout=pipe, stderr=quiet
        )
        assert self._process.stdout is not None
        line = await asyncio.wait_for(self._process.stdout.readline(), 10)
        self.address = line.decode().strip()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it, the hard way if need be."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> dict[str, Any]:
        """Let it end well; returns what it has seen, and its books."""
        assert self._process is not None
        output, _ = await asyncio.wait_for(self._process.communicate(b""), 10)
        report: dict[str, Any] = json.loads(output)
        return report


class LastAnswer(Tap):
    """A tap that keeps the last message which came back to us."""

    points = ("hub_in",)
    message = Message()

    def on_message(self, point: str, message: Message, frames: list[bytes] | None, payload: object) -> None:  # noqa: ARG002
        """Keep an answer."""
        self.message = message


def names(trail: list[str]) -> str:
    """A trail for people."""
    return " > ".join(trail)


async def run_shop(console: Console) -> None:
    """Three nodes, some orders, and what can be seen of them afterwards."""
    answer = LastAnswer()
    async with Process("bank") as bank, Process("store", bank) as store, Process("shop", store) as shop:
        console.print("Three nodes, three processes, every message signed", style="bold")
        for part in (shop, store, bank):
            console.print(f"  {part.name:6} {part.address}")
        addresses = [part.address for part in (shop, store, bank)]
        async with Node(peers=addresses, domains=DOMAINS, identity=b"demo", taps=[answer], hold_seconds=0.5) as node:
            console.print("\nOrders, asked of whoever handles them", style="bold")
            for request in (PlaceOrder("1", 1999), PlaceOrder("2", 5), PlaceOrder("3", 9999), ReturnOrder("1")):
                try:
                    outcome = Text(f"{await node.ask(request, OrderPlaced, timeout=10)}", style="green")
                except DeliveryError as error:
                    outcome = Text(f"{type(error).__name__} {error.code}: {error}", style="red")
                console.print(Text(f"  {request!s:42} ") + outcome)
            await node.ask(PlaceOrder("4", 7), OrderPlaced, timeout=10)
        reports = {part.name: await part.stop() for part in (shop, store, bank)}
    show_flow(console, answer.message, reports)
    reports["demo"] = {"statistics": msgspec.to_builtins(node.statistics())}
    show_books(console, reports)


def show_flow(console: Console, answer: Message, reports: dict[str, Any]) -> None:
    """The way of one order, as its own messages tell it."""
    console.print("\nThe way of order 4, as its messages tell it", style="bold")
    table = Table(box=None, pad_edge=False)
    for column in ("  handled at", "message", "hops", "came over"):
        table.add_column(column, no_wrap=True)
    flow = answer.correlation_id.decode()
    for name, report in reports.items():
        for seen in report["seen"]:
            if seen["flow"] == flow:
                table.add_row(f"  {name}", seen["message"], f"{seen['hops']}", names(seen["trail"]))
    trail = [entry.identity.decode() for entry in answer.routing]
    table.add_row("  demo", answer.identity.decode(), f"{answer.hops}", names(trail))
    console.print(table)


def show_books(console: Console, reports: dict[str, Any]) -> None:
    """How every message of every node ended."""
    console.print("\nHow every message ended", style="bold")
    table = Table(box=None, pad_edge=False)
    for column in ("  node", "taken", "handled", "answered", "forwarded", "served", "ended badly", "in flight"):
        table.add_column(column, justify="left" if column == "  node" else "right", no_wrap=True)
    for name, report in reports.items():
        books = Statistics(**report["statistics"])
        bad = books.expired + books.rejected + books.dead_lettered
        counts = (books.taken, books.handled, books.answered, books.forwarded, books.served, bad, books.in_flight)
        table.add_row(f"  {name}", *map(str, counts))
    console.print(table)
    console.print("  served: routes that nodes told each other; ended badly: the order that nobody handles")


def show_capture(console: Console) -> None:
    """Make the capture, read it, show it."""
    make_capture()
    lines = CAPTURE.read_text().splitlines()
    console.print(f"\nThe same flow in four formats: {len(lines)} messages in {CAPTURE}, some of them", style="bold")
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
        if message.identity != b"ORDER.PLACED" and verdict != "invalid":
            continue  # one line a flow is enough here
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


def main() -> None:
    """Run the shop, then show the formats."""
    logging.basicConfig(level=logging.ERROR)
    console = Console(highlight=False, soft_wrap=True)
    asyncio.run(run_shop(console))
    show_capture(console)


if __name__ == "__main__":
    main()

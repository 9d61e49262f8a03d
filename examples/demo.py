"""`make demo`: the whole story. A network of processes, what it did wrong, and the report that says so.

    1  a rendezvous, three nodes of a shop and a till that speaks an older format start as processes and find each other
    2  orders: good ones, some that fail, one that nobody handles; requests that come too late, as a node was held up; a
       forged one and a broken one; and a node is killed in the middle of it, and another one takes its place
    3  every node has recorded what it saw: Spark makes tables of that
    4  a report says where every message went, how long it took, and what expired, was lost or forged

Everything is left in build/demo, to look at.
"""

import asyncio
import json
import logging
import os
import shutil
import signal
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

import msgspec
import zmq
from orders import DOMAINS, CountStock, OrderPlaced, PlaceOrder, ReturnOrder  # type: ignore[import-not-found]
from rich.console import Console
from rich.table import Table

from hopline import DeliveryError, Node, Statistics
from hopline.security import Keyring
from hopline.wire import Message, encode

HERE = Path(os.path.relpath(Path(__file__).parent))
FOLDER = Path("build/demo")
CAPTURES, TABLES, REPORT = FOLDER / "captures", FOLDER / "tables", FOLDER / "report.html"
KEYS = HERE / "keys.toml"
MARKS = {"bad": "[red]✗[/red]", "note": "[yellow]·[/yellow]", "good": "[green]✓[/green]"}
PIPE, QUIET = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL


class Process:
    """One part of the network as a process; it ends with its input or with us, so nothing is left behind."""

    def __init__(self, *command: str) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self.first = ""
        """Its first line: where it is."""

    async def __aenter__(self) -> Self:
        """Start it, and wait until it says where it is."""
        # A node logs handlers that fail; here the asker shows them.
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *self._command, stdin=PIPE, stdout=PIPE, stderr=QUIET
        )
        assert self._process.stdout is not None
        self.first = (await asyncio.wait_for(self._process.stdout.readline(), 20)).decode().strip()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it, the hard way if need be."""
        await self.kill()

    def signal(self, number: int) -> None:
        """Hold it up, or let it go on."""
        assert self._process is not None
        self._process.send_signal(number)

    async def kill(self) -> None:
        """End it without a word, as a crash would."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> str:
        """Let it end well; returns its last words."""
        assert self._process is not None
        if self._command[0] == "-m":
            self._process.terminate()
        output, _ = await asyncio.wait_for(self._process.communicate(b""), 20)
        return output.decode()


def part(name: str, rendezvous: str) -> Process:
    """A node of the shop."""
    return Process(str(HERE / "orders.py"), name, "--cluster", rendezvous, "--capture", str(CAPTURES))


async def take_orders(node: Node, numbers: range) -> dict[str, int]:
    """Place orders, all at once; returns how many came to which end."""
    ends: dict[str, int] = {}

    async def place(number: int) -> None:
        total = 9999 if number % 10 == 0 else 100 + number  # one in ten is above the limit of the bank
        try:
            await node.ask(PlaceOrder(f"{number}", total), OrderPlaced, timeout=5)
            end = "placed"
        except DeliveryError as error:
            end = error.code
        ends[end] = ends.get(end, 0) + 1

    await asyncio.gather(*map(place, numbers))
    return ends


def attack(address: str) -> None:
    """Somebody without the key changes an order and sends it again, and then something that is no message at all."""
    order = Message(
        identity=b"ORDER.PLACE",
        version=1,
        body=msgspec.msgpack.encode(PlaceOrder("forged", 1999)),
        correlation_id=b"11111111-2222-4333-8444-555555555555",
        domain="shop",
    )
    signed = Keyring(DOMAINS).sign(order)
    forged = msgspec.structs.replace(signed, body=msgspec.msgpack.encode(PlaceOrder("forged", 1)))
    broken = encode(signed)
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(address)
    socket.send_multipart(encode(forged)[1:])
    socket.send_multipart([*broken[1:-1], broken[-1][:90]])
    socket.close(2000)
    context.term()


async def run_network(console: Console) -> None:
    """Start the network, let it work, and stop it."""
    command = ("-m", "hopline", "rendezvous", "--bind", "tcp://127.0.0.1:0", "--capture", str(CAPTURES), "--json")
    async with Process(*command) as rendezvous:
        where = json.loads(rendezvous.first)
        names = ("shop", "store", "bank")
        async with AsyncExitStack() as stack:
            parts = {name: await stack.enter_async_context(part(name, where["unicast"])) for name in names}
            console.print("A network: one rendezvous, three nodes, every message signed", style="bold")
            for name, address in {"rendezvous": where["unicast"], **{n: p.first for n, p in parts.items()}}.items():
                console.print(f"  {name:22} {address}")
            async with Node(
                cluster=where["unicast"], domains=DOMAINS, identity=b"demo", capture=CAPTURES, hold_seconds=0.5
            ) as node:
                await play(console, node, where, parts)
            reports = {name: json.loads(await process.stop()) for name, process in parts.items()}
        await rendezvous.stop()
    reports["demo"] = {"statistics": msgspec.to_builtins(node.statistics())}
    show_books(console, reports)


async def play(console: Console, node: Node, where: dict[str, str], parts: dict[str, Process]) -> None:
    """What happens in the network."""
    console.print("\nWhat happens", style="bold")
    console.print(f"  200 orders             {show(await take_orders(node, range(200)))}")
    async with Process(str(HERE / "till.py"), where["unicast"], where["broadcast"]) as till:
        console.print(f"  a till that speaks v5  {till.first}")
    parts["store"].signal(signal.SIGSTOP)
    for number in range(30):
        await node.tell(CountStock(f"shelf-{number}"), ttl=0.2)
    await asyncio.sleep(0.5)
    parts["store"].signal(signal.SIGCONT)
    console.print("  the store is held up   30 counts of stock come after 0.5 s; nobody wanted to wait more than 0.2 s")
    try:
        await node.ask(ReturnOrder("1"), OrderPlaced, timeout=5)
    except DeliveryError as error:
        console.print(f"  a return               {error.code}: {error}")
    await asyncio.to_thread(attack, parts["shop"].first)
    console.print("  a stranger             sends an order that it forged, and one that is broken")
    orders = asyncio.ensure_future(take_orders(node, range(1001, 1101)))
    await asyncio.sleep(0)  # they are on their way
    await parts["bank"].kill()
    parts["bank"] = await part("bank", where["unicast"]).__aenter__()
    console.print(f"  the bank is killed     and starts again; of 100 orders {show(await orders)}")


def show(ends: dict[str, int]) -> str:
    """How orders ended."""
    return ", ".join(f"{count} {end}" for end, count in sorted(ends.items(), key=lambda item: -item[1]))


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


async def command(console: Console, *arguments: str) -> dict[str, Any]:
    """Run a command of Hopline; returns what it found."""
    console.print(f"\n$ hopline {' '.join(arguments)}", style="bold", markup=False)
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "hopline", *arguments, "--json", stdout=PIPE)
    output, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"hopline {arguments[0]} failed")
    found: dict[str, Any] = json.loads(output)
    return found


async def main() -> None:
    """Network, capture, Spark, report."""
    started = time.monotonic()
    console = Console(highlight=False, soft_wrap=True)
    await run_network(console)
    made = await command(console, "pipeline", "run", str(CAPTURES), str(TABLES), "--keys", str(KEYS))
    rows = ", ".join(f"{table['rows']} {name}" for name, table in made["tables"].items())
    console.print(f"  {made['read']} sightings in {made['segments']} segments, with Spark: {rows}")
    report = await command(console, "report", str(TABLES), "-o", str(REPORT))
    for finding in report["found"]:
        console.print(f"  {MARKS[finding['grade']]} {finding['text']}")
    console.print(
        f"\nThat took {time.monotonic() - started:.0f} s. Look at {REPORT}, or ask more:\n"
        f"  .venv/bin/hopline flows {CAPTURES} --show failed\n"
        f"  .venv/bin/hopline stats {CAPTURES}"
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    asyncio.run(main())

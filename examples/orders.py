"""A small shop: three actors on one flow, in one process or in three.

    PlaceOrder -> Shop -> TakeStock -> Store -> ChargeCard -> Bank -> OrderPlaced -> whoever asked

Each part runs as a process of its own: `python examples/orders.py bank`, then `... store --peer ADDRESS`, and so on; see
docs/tutorial.md. `make demo` starts all three in a cluster.
"""

import argparse
import asyncio
import contextlib
import json
import sys
from dataclasses import asdict

from hopline import Actor, Domain, Domains, HoplineError, Node, Payload, Tap, message
from hopline.wire import Message


@message("ORDER.PLACE")
class PlaceOrder(Payload):
    """What a customer asks for."""

    order_id: str
    total: int


@message("STOCK.TAKE")
class TakeStock(Payload):
    """Take the goods from the shelf."""

    order_id: str
    total: int


@message("CARD.CHARGE")
class ChargeCard(Payload):
    """Take the money."""

    order_id: str
    total: int


@message("ORDER.PLACED")
class OrderPlaced(Payload):
    """What the customer waits for."""

    order_id: str


@message("STOCK.COUNT")
class CountStock(Payload):
    """Count what is on a shelf. After a while nobody wants to know any more."""

    shelf: str


@message("ORDER.RETURN")
class ReturnOrder(Payload):
    """Give the goods back. Nobody here handles it."""

    order_id: str


class Shop(Actor):
    """Takes orders."""

    async def place(self, order: PlaceOrder) -> TakeStock:
        """Send the order on; the answer will come from somebody else."""
        return TakeStock(order.order_id, order.total)


class Store(Actor):
    """Has the goods."""

    async def take(self, stock: TakeStock) -> ChargeCard:
        """Take them from the shelf."""
        return ChargeCard(stock.order_id, stock.total)

    async def count(self, _: CountStock) -> None:
        """Count."""


class Bank(Actor):
    """Has the money."""

    limit = 5000

    async def charge(self, card: ChargeCard) -> OrderPlaced:
        """Charge a card, up to its limit."""
        if card.total > self.limit:
            raise ValueError(f"{card.total} is above the limit of {self.limit}")
        return OrderPlaced(card.order_id)


ACTORS = {"shop": Shop, "store": Store, "bank": Bank}

# An example: real keys come from a file, see docs/security.md.
DOMAINS = Domains(
    [
        Domain(
            "shop",
            keys=(b"not a secret",),
            scheme="kino",
            identities=frozenset(
                {b"ORDER.PLACE", b"STOCK.TAKE", b"STOCK.COUNT", b"CARD.CHARGE", b"ORDER.PLACED", b"ORDER.RETURN"}
            ),
        )
    ]
)


class Visits(Tap):
    """A tap that notes which messages came to the actors of a node."""

    points = ("actor_in",)

    def __init__(self) -> None:
        self.seen: list[dict[str, object]] = []

    def on_message(self, point: str, message: Message, frames: list[bytes] | None, payload: object) -> None:  # noqa: ARG002
        """Note a message that an actor is given."""
        trail = [entry.identity.decode() for entry in message.routing]
        flow = message.correlation_id.decode()
        self.seen.append({"flow": flow, "message": message.identity.decode(), "hops": message.hops, "trail": trail})


async def serve(name: str, bind: str, peers: list[str], cluster: list[str], capture: str | None) -> None:
    """Run one part until the input ends; then print what was seen and the books, as JSON."""
    visits = Visits()
    node = Node(
        [ACTORS[name]()],
        bind=bind,
        peers=peers,
        cluster=cluster,
        domains=DOMAINS,
        identity=name.encode(),
        taps=[visits],
        capture=capture,
    )
    async with node:
        print(node.address, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    print(json.dumps({"seen": visits.seen, "statistics": asdict(node.statistics())}))


async def place(order_id: str, total: int, peers: list[str]) -> None:
    """Place one order and print the answer."""
    async with Node(peers=peers, domains=DOMAINS, identity=b"customer") as node:
        print(await node.ask(PlaceOrder(order_id, total), OrderPlaced, timeout=10))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="A part of a small shop, as a process of its own; or one order for it.")
    parser.add_argument("name", choices=[*ACTORS, "place"])
    parser.add_argument("order", nargs="*", help="place only: the number and the total of the order")
    parser.add_argument("--bind", default="tcp://127.0.0.1:0")
    parser.add_argument("--peer", action="append", default=[], help="the address of another part")
    parser.add_argument("--cluster", action="append", default=[], help="the address of a rendezvous, instead of peers")
    parser.add_argument("--capture", help="a folder to record messages in")
    options = parser.parse_args()
    try:
        if options.name == "place":
            order_id, total = options.order
            asyncio.run(place(order_id, int(total), options.peer))
        else:
            asyncio.run(serve(options.name, options.bind, options.peer, options.cluster, options.capture))
    except HoplineError as error:
        sys.exit(f"{error.code}: {error}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()

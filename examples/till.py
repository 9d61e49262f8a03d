"""A till of an older make: it speaks v5 and knows nothing of Hopline, and is part of the cluster all the same.

Written by hand on bare sockets, as a node of another system would be: it registers at the rendezvous, hears who takes
orders, places some and waits for the answers, which come from whoever made them. `make demo` runs it beside nodes that
speak v6.

    python examples/till.py tcp://127.0.0.1:8011 tcp://127.0.0.1:8001 --orders 20
"""

import argparse
import uuid

import msgspec
import zmq
from orders import DOMAINS, OrderPlaced, PlaceOrder  # type: ignore[import-not-found]  # beside this script

from hopline.payload.service import (
    RegisterExternalRoute,
    RequestClusterRoutes,
    RouteRegistration,
    ServicePayload,
    read_service,
)
from hopline.security import Keyring
from hopline.wire import Message, MessageType, RoutingEntry, decode, encode

KEYS = Keyring(DOMAINS)
DOMAIN = "shop"
NODE, HUB = b"till", b"\0till"
PATIENCE_MS = 10_000
Socket = zmq.Socket[bytes]


def frames_of(message: Message) -> list[bytes]:
    """Sign a message and write it as v5."""
    return encode(KEYS.sign(msgspec.structs.replace(message, domain=DOMAIN)), "v5")


def control(payload: ServicePayload) -> list[bytes]:
    """A message about routes."""
    flow = b"00000000-0000-0000-0000-000000000000"
    return frames_of(Message(identity=payload.identity, version=1, body=payload.write(), correlation_id=flow))


def receive(socket: Socket, waiting_for: str) -> Message:
    """The next message of a socket."""
    if not socket.poll(PATIENCE_MS):
        raise SystemExit(f"till: {waiting_for} did not come")
    return decode(socket.recv_multipart()).message


def find_shop(to_rendezvous: Socket, from_rendezvous: Socket, address: str) -> RegisterExternalRoute:
    """Tell the cluster where we are, and wait until somebody who takes orders tells the same."""
    hello = control(RegisterExternalRoute(address, NODE, (RouteRegistration(HUB),)))
    while True:
        # What is said before the subscription stands is missed, so it is said until something is heard.
        to_rendezvous.send_multipart(hello)
        to_rendezvous.send_multipart(control(RequestClusterRoutes(address, NODE)))
        while from_rendezvous.poll(500):
            message = decode(from_rendezvous.recv_multipart()).message
            if message.identity != RegisterExternalRoute.identity:
                continue
            found = read_service(message.identity, message.body)
            if isinstance(found, RegisterExternalRoute):
                types = {contract.type for route in found.routes for contract in route.message_contracts}
                if MessageType(b"ORDER.PLACE", 1) in types:
                    return found


def order(number: int, address: str, shop: bytes) -> Message:
    """An order, on its first hop."""
    return Message(
        socket_identity=shop,
        identity=b"ORDER.PLACE",
        version=1,
        body=msgspec.msgpack.encode(PlaceOrder(f"till-{number}", 100 + number)),
        correlation_id=str(uuid.uuid4()).encode(),
        callback_points=(MessageType(b"ORDER.PLACED", 1), MessageType(b"KINO.EXCEPTION", 1)),
        callback_key=number,
        callback_receiver_identity=HUB,
        callback_receiver_node_identity=NODE,
        hops=1,
        routing=(RoutingEntry(address, NODE),),
        trace_options=1,
    )


def main() -> None:
    """Place orders one after another, and say how many were answered."""
    parser = argparse.ArgumentParser(description="A till that speaks v5.")
    parser.add_argument("unicast", help="where the rendezvous is sent to")
    parser.add_argument("broadcast", help="where it is heard")
    parser.add_argument("--orders", type=int, default=20)
    options = parser.parse_args()
    context = zmq.Context()
    frontend, backend = context.socket(zmq.ROUTER), context.socket(zmq.DEALER)
    to_rendezvous, from_rendezvous = context.socket(zmq.DEALER), context.socket(zmq.SUB)
    for socket in (frontend, backend, to_rendezvous, from_rendezvous):
        socket.linger = 1000
    frontend.routing_id = NODE
    address = f"tcp://127.0.0.1:{frontend.bind_to_random_port('tcp://127.0.0.1')}"
    from_rendezvous.subscribe(b"")
    from_rendezvous.connect(options.broadcast)
    to_rendezvous.connect(options.unicast)
    shop = find_shop(to_rendezvous, from_rendezvous, address)
    backend.connect(shop.uri or "")
    answered = 0
    for number in range(1, options.orders + 1):
        backend.send_multipart(frames_of(order(number, address, shop.node_identity or b""))[1:])
        while True:
            answer = receive(frontend, f"the answer to order {number}")
            if answer.identity == b"ORDER.PLACED":
                answered += msgspec.msgpack.decode(answer.body, type=OrderPlaced).order_id == f"till-{number}"
                break
    context.destroy()
    print(f"{answered} of {options.orders} orders answered, in v5")


if __name__ == "__main__":
    main()

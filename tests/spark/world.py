"""One world for the tests of all tables: who is in it, and the order of what happens."""

from hopline.identity import MessageType
from hopline.payload.service import (
    MessageContract,
    Ping,
    RegisterExternalRoute,
    RouteRegistration,
    UnregisterMessageRoute,
    UnregisterNode,
    UnregisterUnreachableNode,
)
from tests.spark.generator import MS, Network, Node, Sighting
from tests.spark.stories import World

EVERYTHING = frozenset({"hub_out", "router_in", "scaleout_out", "scaleout_in", "actor_in", "actor_out", "hub_in"})
ORDER, PRICE = MessageType(b"ORDER", 1), MessageType(b"PRICE", 2, b"EU")


def make_world(seed: int, rounds: int = 3) -> World:
    """Build a network and let everything happen in it some times over."""
    network = Network(seed)
    add = network.add
    ada = add(Node("ada", "live", taps=EVERYTHING))
    bob = add(Node("bob", "live", clock_ns=3_600_000 * MS))
    eve = add(Node("eve", "live", clock_ns=-1_800_000 * MS, taps=EVERYTHING))
    fifth = [add(Node(name, "reference", "v5")) for name in ("gamma", "delta", "epsilon", "zeta")]
    fourth, third = add(Node("theta", "reference", "v4")), add(Node("iota", "reference", "v3"))
    stranger = add(Node("mallory", "stranger"))
    world = World(network)
    live, others = [ada, bob, eve], [ada, bob, eve, *fifth, fourth, third]
    announce(world, live)
    for node in others[1:]:  # everybody speaks and hears once before anything is lost, so that clocks can be compared
        world.ask([ada, node])
    world.ask([bob, eve])
    world.ask([eve, bob])
    for _ in range(rounds):
        tell_stories(world, ada, bob, eve, fifth, fourth, third, stranger)
    for node in (bob, eve):
        world.say(node, UnregisterNode(node.entry.uri, node.identity), [ada], "kino")
    close(world, ada, others)
    return world


def tell_stories(world, ada, bob, eve, fifth, fourth, third, stranger) -> None:
    network = world.network
    for domain in ("", "full", "kino"):
        world.ask([ada, bob], domain=domain)
        world.ask([bob, ada, eve], domain=domain)
    world.ask([ada])
    world.ask([ada], outcome="exception")
    for node in (bob, eve, *fifth, fourth, third):
        world.ask([ada, node], ttl_ms=800)
        world.ask([ada, node], outcome=network.rng.choice(["exception", "pending"]))
    world.ask([fifth[0], fifth[1]])
    world.ask([fifth[1], ada], outcome="exception")
    world.ask([fourth, ada])
    world.ask([third, bob])
    world.ask([stranger, bob])
    world.ask([stranger, ada], outcome="exception")
    world.ask([ada, stranger])
    # Time that runs out.
    world.ask([ada, bob], outcome="late", ttl_ms=200)
    world.ask([ada, eve, bob], outcome="slow", ttl_ms=150)
    world.ask([ada, bob], outcome="expired", ttl_ms=100)
    world.ask([ada, bob], outcome="expired", ttl_ms=100, lose="request")
    world.ask([ada, fourth], outcome="expired", ttl_ms=100, lose="request")
    world.ask([eve, ada], outcome="pending", lose="answer")
    world.ask([bob, eve], outcome="pending", lose="request")
    world.tell([ada, bob], ttl_ms=50, fate="in_time")
    world.tell([ada, eve, bob], ttl_ms=50, fate="late", slow=True)
    world.tell([bob, ada], ttl_ms=50, fate="expired_in_flight", lose=True)
    world.tell([ada], ttl_ms=50, fate="expired_in_flight")
    world.tell([ada, stranger], ttl_ms=50)
    world.tell([ada, stranger], lose=True)
    # More than one answer, none asked for, and receipts.
    world.ask([ada, bob], answers=2)
    world.ask([eve, ada], answers=3, domain="full")
    world.orphan(ada, bob, stranger)
    world.receipt(ada, bob)
    world.receipt(bob, eve)
    # Flows over many nodes.
    world.chain(ada, [bob, eve], domain="full")
    world.chain(eve, [ada, bob, ada])
    world.chain(ada, fifth[:2])
    world.chain(ada, fifth)
    world.chain(fifth[3], [fifth[0], fifth[1], fifth[2]])
    world.chain(bob, [ada, fourth])
    world.publish(ada, [bob, eve])
    world.publish(ada, [bob, eve, fifth[0]])
    world.publish(eve, [ada])
    world.publish(fifth[0], [fifth[1], fifth[2], fifth[3]])
    world.repeat(ada, bob, 3)
    world.repeat(bob, eve, 2)
    for _ in range(2):
        world.beat(fifth[0], fifth[1:])
        network.pause()
    for how in ("invalid", "unsigned", "unknown-domain"):
        world.attack(bob, stranger, how)
        world.attack(eve, stranger, how)
    world.attack(bob, ada, "replayed")
    world.attack(eve, ada, "replayed", socket=b"\0evil")


def announce(world: World, live: list[Node]) -> None:
    """Nodes tell each other what they serve, take some of it back, and tell again."""
    ada, bob, eve = live

    def register(node: Node, others: list[Node], domain: str) -> Sighting:
        actor = b"\1" + node.name.encode()
        contracts = tuple(MessageContract.of(kind) for kind in (ORDER, PRICE))
        routes = (RouteRegistration(actor, contracts), RouteRegistration(node.hub))
        return world.say(node, RegisterExternalRoute(node.entry.uri, node.identity, routes), others, domain)

    def note(node: Node, domain: str, begun: Sighting, *kinds: MessageType | None) -> None:
        for kind in kinds:
            receiver = b"\1" + node.name.encode() if kind else node.hub
            route = {"node": node, "uri": node.entry.uri, "receiver": receiver, "kind": kind, "domain": domain}
            world.routes.append(route | {"begun": begun, "ended": None})

    note(ada, "", register(ada, [bob, eve], ""), ORDER, PRICE, None)
    note(eve, "kino", register(eve, [ada, bob], "kino"), ORDER, PRICE, None)
    note(bob, "", register(bob, [ada, eve], ""), ORDER, PRICE, None)
    register(ada, [bob, eve], "")  # again: nothing changes
    taken = (RouteRegistration(b"\1ada", (MessageContract.of(PRICE),)),)
    ended = world.say(ada, UnregisterMessageRoute(ada.entry.uri, ada.identity, taken), [bob, eve])
    world.routes[1]["ended"] = ended
    note(ada, "", register(ada, [bob, eve], ""), PRICE)
    gone = world.say(ada, UnregisterUnreachableNode(bob.identity), [eve])
    for route in world.routes:
        if route["node"] is bob:
            route["ended"] = gone
    note(bob, "kino", register(bob, [ada, eve], "kino"), ORDER, PRICE, None)
    serving = (RouteRegistration(b"\1eve", (MessageContract.of(ORDER),)),)  # she says that bob has moved: nobody believes it
    world.say(eve, RegisterExternalRoute("tcp://evil:1", bob.identity, serving), [ada, bob], "kino", is_forged=True)


def close(world: World, ada: Node, others: list[Node]) -> None:
    """The end: whoever leaves ends its routes; and everybody is seen once more, as what comes later is not missed."""
    for route in world.routes:
        said = [each for each in world.network.sightings if each.message.identity == UnregisterNode.identity]
        mine = [each for each in said if each.node is route["node"] and each.tap == "scaleout_out"]
        if mine and route["ended"] is None:
            route["ended"] = mine[0]
    world.network.wait(5000)
    for node in others[1:]:
        world.ask([ada, node])
    world.say(ada, Ping(), [node for node in others[1:] if node.kind == "live"])

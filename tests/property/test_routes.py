"""The routing table against a model that keeps plain sets and recomputes every answer."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hopline.identity import MessageType
from hopline.node.routes import RoutingTable
from hopline.wire import Distribution, Message

TYPES = [MessageType(b"A", 1), MessageType(b"A", 2), MessageType(b"B", 1, b"P")]
ACTORS = [b"\1a%d" % i for i in range(4)]
HUBS = [b"\0h%d" % i for i in range(3)]
NODES = [b"n%d" % i for i in range(3)]

some_types = st.sets(st.sampled_from(TYPES), min_size=1)


class Routes(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.table = RoutingTable(b"me")
        self.local = {}
        self.hubs = set()
        self.remote = {}
        self.remote_hubs = {}

    @rule(actor=st.sampled_from(ACTORS), types=some_types)
    def add_actor(self, actor, types):
        if actor not in self.local:
            self.table.add_actor(actor, types, actor)
            self.local[actor] = set(types)

    @rule(actor=st.sampled_from(ACTORS))
    def remove_actor(self, actor):
        self.table.remove_actor(actor)
        self.local.pop(actor, None)

    @rule(hub=st.sampled_from(HUBS))
    def add_hub(self, hub):
        self.table.add_hub(hub, hub)
        self.hubs.add(hub)

    @rule(node=st.sampled_from(NODES), actor=st.sampled_from(ACTORS), types=some_types)
    def add_remote(self, node, actor, types):
        self.table.add_remote(node, "uri", actor, types)
        self.remote.setdefault(node, {}).setdefault(actor, set()).update(types)

    @rule(node=st.sampled_from(NODES), actor=st.sampled_from([b"", *ACTORS]), types=some_types)
    def remove_remote(self, node, actor, types):
        self.table.remove_remote(node, actor, types)
        for name in [actor] if actor else list(self.remote.get(node, {})):
            handled = self.remote.get(node, {}).get(name)
            if handled is not None:
                handled -= types
                if not handled:
                    del self.remote[node][name]

    @rule(node=st.sampled_from(NODES))
    def remove_node(self, node):
        self.table.remove_node(node)
        self.remote.pop(node, None)

    @invariant()
    def what_is_known_of_others_is_counted(self):
        nodes = self.table.nodes()
        assert self.table.node_count == len(nodes)
        assert self.table.size == sum(routes.size for routes in nodes.values())

    @invariant()
    def answers_are_those_of_the_model(self):
        for kind in TYPES:
            here = {actor for actor, types in self.local.items() if kind in types}
            there = {node for node, actors in self.remote.items() if any(kind in types for types in actors.values())}
            message = Message(identity=kind.identity, version=kind.version, partition=kind.partition)
            everybody = self.table.choose(
                Message(
                    identity=kind.identity,
                    version=kind.version,
                    partition=kind.partition,
                    distribution=Distribution.BROADCAST,
                )
            )
            assert (set(everybody.local), set(everybody.remote)) == (here, there)
            rounds = [self.table.choose(message) for _ in range(len(here) + len(there))]
            assert {target for choice in rounds for target in choice.local} == here
            assert {node for choice in rounds for node in choice.remote} == there


Routes.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestRoutes = Routes.TestCase

"""Keys of CURVE: who comes in, and who stays outside."""

import pytest
import zmq

from hopline.errors import TransportError
from hopline.transport import Curve
from hopline.transport.base import BAD_HANDSHAKE, UNKNOWN_KEY
from tests.transport.harness import (
    World,
    bodies,
    message,
    messages,
)

OURS, THEIRS, OTHERS = (zmq.curve_keypair() for _ in range(3))


def test_a_known_key_comes_in(loops: World):
    @loops.run
    async def scenario():
        server = await loops.node(curve=Curve(*OURS, allowed_keys=frozenset({THEIRS[0]})))
        keys = {server.address: OURS[0]}
        client = await loops.node("", curve=Curve(*THEIRS), server_keys=keys)
        link = await client.link(server)
        for frames in messages(1000):
            assert link.send(frames)
        await server.got(1000)
        assert server.bodies == bodies(1000)
        assert server.refused == []


def test_keys_of_peers_may_be_learned_later(tcp: World):
    @tcp.run
    async def scenario():
        keys: dict[str, bytes] = {}
        client = await tcp.node("", curve=Curve(*THEIRS), server_keys=keys)
        server = await tcp.node(curve=Curve(*OURS, allowed_keys=frozenset({THEIRS[0]})))
        with pytest.raises(TransportError, match="No server key") as caught:
            client.connect(server)
        assert caught.value.code == "TRANSPORT_BAD_KEY"
        keys[server.address] = OURS[0]
        await client.link(server)


@pytest.mark.parametrize(
    ("client_keys", "server_key", "reason"),
    [
        (OTHERS, OURS[0], UNKNOWN_KEY),
        (THEIRS, OTHERS[0], BAD_HANDSHAKE),
        (None, None, BAD_HANDSHAKE),
    ],
    ids=["unknown client", "wrong server", "no key"],
)
def test_any_other_key_stays_outside(tcp: World, client_keys, server_key, reason):
    @tcp.run
    async def scenario():
        server = await tcp.node(curve=Curve(*OURS, allowed_keys=frozenset({THEIRS[0]})))
        keys = {"curve": Curve(*client_keys), "server_keys": {server.address: server_key}} if client_keys else {}
        client = await tcp.node("", **keys)
        link = client.connect(server)
        link.send(message(1))
        await server.until(lambda: server.refused)
        assert set(server.refused) == {(reason, 0)}
        assert not link.is_connected
        assert link.pending == 1
        friend = await tcp.node("", curve=Curve(*THEIRS), server_keys={server.address: OURS[0]})
        (await friend.link(server)).send(message(2))
        await server.got(1)
        assert server.bodies == [b"2"]
        assert client.connected == []


def test_a_node_with_keys_says_nothing_to_one_without(tcp: World):
    @tcp.run
    async def scenario():
        server = await tcp.node()
        client = await tcp.node("", curve=Curve(*THEIRS), server_keys={server.address: OURS[0]})
        link = client.connect(server)
        link.send(message(1))
        await server.until(lambda: server.refused)
        assert not link.is_connected
        assert link.pending == 1
        assert server.messages == []


def test_without_allowed_keys_nobody_comes_in(tcp: World):
    @tcp.run
    async def scenario():
        server = await tcp.node(curve=Curve(*OURS))
        client = await tcp.node("", curve=Curve(*OURS), server_keys={server.address: OURS[0]})
        client.connect(server)
        await server.until(lambda: server.refused)
        assert set(server.refused) == {(UNKNOWN_KEY, 0)}


@pytest.mark.parametrize(
    "key",
    [b"", b"short", OURS[0][:-1], OURS[0] + b"x", b'"' * 40, b"\xff" * 40, "text" * 10],
    ids=["empty", "short", "39", "41", "not Z85", "not ASCII", "text"],
)
def test_what_is_no_key(tcp: World, key):
    for make in (
        lambda: Curve(key, OURS[1]),
        lambda: Curve(OURS[0], key),
        lambda: Curve(*OURS, allowed_keys=frozenset({key})),
    ):
        with pytest.raises(TransportError, match="CURVE key") as caught:
            make()
        assert caught.value.code == "TRANSPORT_BAD_KEY"
        assert not key or str(key) not in str(caught.value)

    @tcp.run
    async def scenario():
        client = await tcp.node("", curve=Curve(*OURS), server_keys={"tcp://127.0.0.1:9": key})
        with pytest.raises(TransportError, match="CURVE key"):
            client.connect("tcp://127.0.0.1:9")


def test_a_secret_is_not_shown():
    assert OURS[1].decode() not in repr(Curve(*OURS))

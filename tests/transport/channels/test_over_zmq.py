"""What holds for channels over ZeroMQ alone: bare sockets of others, garbage, keys."""

import asyncio
import contextlib
import random
import resource

import pytest
import zmq

from hopline.errors import TransportError
from hopline.transport import Curve, Limits
from hopline.transport.base import BAD_HANDSHAKE, UNKNOWN_KEY
from hopline.transport.bundle import GREETING
from tests.transport.channels.heard import Heard, every_bind, listening, until
from tests.transport.harness import SECONDS, World

ZMTP_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + bytes(32)
GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "ones": b"\xff" * 200,
    "half a greeting": ZMTP_GREETING[:20],
    "broken command": ZMTP_GREETING + b"\x04\xff" + b"no command",
    "a frame of many exabytes": ZMTP_GREETING + b"\x06" + (2**63 - 1).to_bytes(8, "big") + b"x",
    "the oldest ZeroMQ": b"\x05" + random.Random(1).randbytes(5000),
}


# --- ZeroMQ -----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def bare_socket(kind: int):
    with zmq.Context() as context, context.socket(kind) as bare:
        bare.linger = 0
        bare.rcvtimeo = bare.sndtimeo = SECONDS * 1000
        yield bare


def test_sockets_of_the_reference_understand_ours(tcp: World):
    # protocol.md 1.8 and 3.2: its DEALER sends to our pull, its SUB hears our publisher.
    @tcp.run
    async def scenario():
        heard = Heard()
        pull, publisher = tcp.channels().pull(tcp.address(), heard), tcp.channels().publish(tcp.address())
        with bare_socket(zmq.DEALER) as dealer, bare_socket(zmq.SUB) as sub:
            dealer.connect(pull.address)
            dealer.send_multipart([b"", b"", b"body", b"meta"])
            await heard.got(1)
            assert heard[0][1:] == [b"", b"", b"body", b"meta"]
            assert not heard[0][0].startswith(GREETING)
            assert pull.reply(heard[0][0], [b"", b"", b"answer"])
            assert dealer.recv_multipart() == [b"", b"", b"answer"]
            sub.subscribe(b"")
            sub.connect(publisher.address)
            await until(lambda: publisher.publish([b"?"]) or sub.poll(0))
            publisher.publish([b"id", b"", b"body"])
            while (frames := sub.recv_multipart()) == [b"?"]:
                pass
            assert frames == [b"id", b"", b"body"]


def test_ours_understand_sockets_of_the_reference(tcp: World):
    @tcp.run
    async def scenario():
        heard = Heard()
        with bare_socket(zmq.ROUTER) as router, bare_socket(zmq.PUB) as pub:
            ports = [bare.bind_to_random_port("tcp://127.0.0.1") for bare in (router, pub)]
            push = tcp.channels().push(f"tcp://127.0.0.1:{ports[0]}", heard)
            push.send([b"", b"", b"body", b"meta"])
            source, *frames = router.recv_multipart()
            assert frames == [b"", b"", b"body", b"meta"]
            router.send_multipart([source, b"", b"answer"])
            await heard.got(1)
            assert heard == [[b"", b"answer"]]
            heard.clear()
            tcp.channels().subscribe(heard).connect(f"tcp://127.0.0.1:{ports[1]}")
            await heard.hears_after(lambda: pub.send_multipart([b"", b"", b"news"]))
            assert heard[0] == [b"", b"", b"news"]


def test_a_send_does_not_take_away_the_news_of_a_message(tcp: World):
    # The descriptor tells of a message only once, and a send takes that away: nobody would ever read the message.
    @tcp.run
    async def scenario():
        heard, replies = Heard(), Heard()
        pull = tcp.channels().pull(tcp.address(), heard)
        with bare_socket(zmq.ROUTER) as router, bare_socket(zmq.DEALER) as dealer:
            push = tcp.channels().push(f"tcp://127.0.0.1:{router.bind_to_random_port('tcp://127.0.0.1')}", replies)
            dealer.connect(pull.address)
            dealer.send(b"hello")
            await heard.got(1)
            push.send([b"hello"])
            source, _ = router.recv_multipart()
            for number in range(20):
                router.send_multipart([source, b"%d" % number])
                dealer.send(b"%d" % number)
                router.poll(5)  # the event loop must not look before both are there, and nobody else can
                push.send([b"more"])
                pull.reply(heard[0][0], [b"more"])
                await replies.got(number + 1)
                await heard.got(number + 2)
                assert router.recv_multipart() == [source, b"more"]
                assert dealer.recv() == b"more"


def test_a_peer_that_does_not_read_replies_is_full(tcp: World):
    @tcp.run
    async def scenario():
        heard = Heard()
        pull = tcp.channels().pull(tcp.address(), heard)
        with bare_socket(zmq.DEALER) as dealer:
            dealer.rcvhwm, dealer.rcvbuf = 1, 4096
            dealer.connect(pull.address)
            dealer.send(b"ask")
            await heard.got(1)
            count = next(number for number in range(100_000) if not pull.reply(heard[0][0], [b"." * 20_000]))
            assert count >= 100
            tcp.channels().push(pull.address).send([b"others are heard"])
            await heard.got(2)


async def hear_a_stranger(address: str, greeting: bytes) -> None:
    """Say something to a socket, and wait until it hangs up."""
    host, port = address.removeprefix("tcp://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    with contextlib.suppress(OSError):
        writer.write(greeting)
        writer.write_eof()
        async with asyncio.timeout(SECONDS):
            await reader.read()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_stops_nobody(tcp: World, garbage: bytes):
    @tcp.run
    async def scenario():
        heard, news, refused = Heard(), Heard(), Heard()
        server = tcp.channels(on_refused=refused)
        pull, publisher = server.pull(tcp.address(), heard), server.publish(tcp.address())
        push = tcp.channels().push(pull.address)
        tcp.channels().subscribe(news).connect(publisher.address)
        await listening(publisher, news)
        for _ in range(5):
            await hear_a_stranger(pull.address, garbage)
            await hear_a_stranger(publisher.address, garbage)
        publisher.publish([b"still here"])
        await news.got(1)
        push.send([b"still here"])
        await heard.until(lambda: heard and heard[-1][1:] == [b"still here"])
        assert set(refused) <= {(BAD_HANDSHAKE, 0)}
        assert news == [[b"still here"]]


@pytest.mark.slow
def test_who_meets_nonsense_tries_again_and_others_are_served(tcp: World):
    # libzmq gives up for good on a server that breaks the protocol, without a word.
    @tcp.run
    async def scenario():
        async def talk(reader, writer):
            connections.append(writer)
            writer.write(ZMTP_GREETING + b"\x04\x05hello")
            with contextlib.suppress(OSError):
                await reader.read()
            writer.close()

        connections, heard, news = [], Heard(), Heard()
        server = await asyncio.start_server(talk, "127.0.0.1", 0)
        address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        publisher, pull = tcp.channels().publish(tcp.address()), tcp.channels().pull(tcp.address(), heard)
        channels = tcp.channels()
        subscription = channels.subscribe(news)
        subscription.connect(address)
        subscription.connect(publisher.address)
        patient, push = channels.push(address), channels.push(pull.address)
        await listening(publisher, news)
        push.send([b"1"])
        await heard.got(1)
        await until(lambda: len(connections) > 1)
        assert not patient.is_connected
        server.close()
        await server.wait_closed()
        await until(lambda: len(asyncio.all_tasks()) == 1)
        tcp.channels().pull(address, heard)
        await until(lambda: patient.is_connected)
        assert patient.send([b"2"])
        await heard.got(2)


@pytest.mark.slow
def test_a_socket_of_another_kind_is_no_connection(tcp: World):
    # A push at a publisher, a subscription at a pull: libzmq refuses them in the handshake, and would not try again.
    @tcp.run
    async def scenario():
        heard, news, connected, channels = Heard(), Heard(), Heard(), tcp.channels()
        servers = tcp.channels(), tcp.channels()
        pull, publisher = servers[0].pull(tcp.address(), heard), servers[1].publish(tcp.address())
        push, subscription = channels.push(publisher.address), channels.subscribe(news, connected)
        subscription.connect(pull.address)
        channels.push(pull.address).send([b"1"])
        await heard.got(1)
        assert not push.is_connected
        assert connected == []
        for server in servers:
            await server.close()
        tcp.channels().pull(publisher.address, heard)
        await until(lambda: push.is_connected)
        await listening(tcp.channels().publish(pull.address), news)
        assert connected == [pull.address]


@pytest.mark.slow
def test_a_frame_beyond_all_measure_costs_a_subscription_the_connection_but_not_for_good(tcp: World):
    @tcp.run
    async def scenario():
        news, connected = Heard(), Heard()
        publisher = tcp.channels().publish(tcp.address())
        subscription = tcp.channels(limits=Limits(message_bytes=1000)).subscribe(news, connected)
        subscription.connect(publisher.address)
        await listening(publisher, news)
        publisher.publish([b"x" * 100_000])
        await connected.got(2)
        await listening(publisher, news)


def test_a_frame_that_is_no_bytes_is_a_mistake_and_spoils_no_other_message(tcp: World):
    @tcp.run
    async def scenario():
        heard = Heard()
        pull = tcp.channels().pull(tcp.address(), heard)
        push = tcp.channels().push(pull.address)
        with pytest.raises(TypeError):
            push.send([b"head", "text", b"last"])
        push.send([b"whole"])
        await heard.until(lambda: heard and heard[-1][1:] == [b"whole"])
        assert len(heard) == 2


def test_sockets_run_out_with_a_sentence(tcp: World):
    @tcp.run
    async def scenario():
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
            heard, channels = Heard(), tcp.channels()
            pull = channels.pull(tcp.address(), heard)
            crowd = tcp.channels()
            subscription = crowd.subscribe(Heard(), Heard())
            for connect in (subscription.connect, crowd.push):
                with pytest.raises(TransportError, match="no more sockets") as caught:
                    list(map(connect, (f"tcp://127.0.0.1:{port}" for port in range(1000, 2000))))
                assert caught.value.code == "TRANSPORT_EXHAUSTED"
            await crowd.close()
            tcp.channels().push(pull.address).send([b"1"])
            await heard.got(1)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_libzmq_cannot_use_leaves_nothing_behind(tcp: World):
    @tcp.run
    async def scenario():
        channels = tcp.channels()
        subscription = channels.subscribe(Heard(), Heard())
        for use in (channels.push, subscription.connect):
            with pytest.raises(TransportError, match="Cannot connect to"):
                use("tcp://-:5")
        for bind in every_bind(channels):
            with pytest.raises(TransportError, match="Cannot bind"):
                bind("tcp://nowhere.invalid:0")
        assert subscription.addresses == frozenset()


# --- keys -------------------------------------------------------------------------------------------------------------

OURS, THEIRS, OTHERS = (zmq.curve_keypair() for _ in range(3))


def test_a_known_key_comes_in_and_no_other(tcp: World):
    @tcp.run
    async def scenario():
        heard, news, refused, connected = Heard(), Heard(), Heard(), Heard()
        server = tcp.channels(curve=Curve(*OURS, allowed_keys=frozenset({THEIRS[0]})), on_refused=refused)
        pull, publisher = server.pull(tcp.address(), heard), server.publish(tcp.address())
        keys = {end.address: OURS[0] for end in (pull, publisher)}
        strangers = [
            tcp.channels(curve=Curve(*OTHERS), server_keys=keys),
            tcp.channels(curve=Curve(*THEIRS), server_keys=dict.fromkeys(keys, OTHERS[0])),
            tcp.channels(),
        ]
        pushes = [stranger.push(pull.address) for stranger in strangers]
        for stranger, push in zip(strangers, pushes, strict=True):
            push.send([b"let me in"])
            stranger.subscribe(connected, connected).connect(publisher.address)
        await refused.until(lambda: set(refused) == {(UNKNOWN_KEY, 0), (BAD_HANDSHAKE, 0)})
        friend, replies = tcp.channels(curve=Curve(*THEIRS), server_keys=keys), Heard()
        friend.subscribe(news).connect(publisher.address)
        await listening(publisher, news)
        friend.push(pull.address, replies).send([b"it is me"])
        await heard.got(1)
        assert pull.reply(heard[0][0], [b"come in"])
        await replies.got(1)
        publisher.publish([b"for friends"])
        await news.got(1)
        assert [frames[1:] for frames in heard] == [[b"it is me"]]
        assert connected == []
        assert not any(push.is_connected for push in pushes)


def test_a_server_without_a_known_key_is_not_connected_to(tcp: World):
    @tcp.run
    async def scenario():
        keys: dict[str, bytes] = {}
        channels, heard = tcp.channels(curve=Curve(*THEIRS), server_keys=keys), Heard()
        pull = tcp.channels(curve=Curve(*OURS, allowed_keys=frozenset({THEIRS[0]}))).pull(tcp.address(), heard)
        subscription = channels.subscribe(Heard())
        for connect in (channels.push, subscription.connect):
            with pytest.raises(TransportError, match="No server key") as caught:
                connect(pull.address)
            assert caught.value.code == "TRANSPORT_BAD_KEY"
        keys[pull.address] = OURS[0]
        channels.push(pull.address).send([b"1"])
        await heard.got(1)

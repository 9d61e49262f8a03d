"""Publishers and subscriptions, as `hopline.transport.channels` promises them: over TCP, IPC, uvloop and in memory."""

import zmq

from tests.transport.channels.heard import Heard, listening, numbered, until
from tests.transport.harness import World


def test_all_subscribers_hear_all_frames_as_they_are(world: World):
    @world.run
    async def scenario():
        one, two = Heard(), Heard()
        publisher = world.channels().publish(world.address())
        for heard in (one, two):
            world.channels().subscribe(heard).connect(publisher.address)
            await listening(publisher, heard)
        await one.until(lambda: one and one[-1] == [b"good"])
        one.clear()
        shapes = [[b"", b"", b"body"], [b""], [b"topic", b"\0"], [b"dealer-id", b"", b"", bytes(range(256))]]
        for frames in shapes:
            publisher.publish(frames)
        await one.got(len(shapes))
        await two.got(len(shapes))
        assert one == two == shapes


def test_a_subscription_hears_many_publishers(world: World):
    @world.run
    async def scenario():
        heard, connected = Heard(), Heard()
        publishers = [world.channels().publish(world.address()) for _ in range(5)]
        subscription = world.channels().subscribe(heard, connected)
        assert subscription.addresses == frozenset()
        for publisher in publishers:
            subscription.connect(publisher.address)
            subscription.connect(publisher.address)
        assert subscription.addresses == {publisher.address for publisher in publishers}
        await connected.got(5)
        assert set(connected) == subscription.addresses
        for publisher in publishers:
            await listening(publisher, heard)
        for number, publisher in enumerate(publishers):
            publisher.publish([b"%d" % number])
        await heard.got(5)
        assert sorted(heard) == [[b"%d" % number] for number in range(5)], "once each, though connected twice"


def test_a_publisher_is_told_of_each_who_begins_to_listen_and_can_greet_them(world: World):
    @world.run
    async def scenario():
        came = Heard()
        publisher = world.channels().publish(world.address(), lambda: came(b""))
        for count in (1, 2, 3):
            heard = Heard()
            world.channels().subscribe(heard).connect(publisher.address)
            await came.got(count)
            publisher.publish([b"welcome", b"%d" % count])  # once is enough: it listens by now
            await heard.got(1)
            assert heard == [[b"welcome", b"%d" % count]]


def test_who_comes_late_has_missed_it(world: World):
    @world.run
    async def scenario():
        early, late = Heard(), Heard()
        publisher = world.channels().publish(world.address())
        publisher.publish([b"to nobody"])
        world.channels().subscribe(early).connect(publisher.address)
        await listening(publisher, early)
        publisher.publish([b"1"])
        await early.got(1)
        world.channels().subscribe(late).connect(publisher.address)
        await listening(publisher, late)
        publisher.publish([b"2"])
        await late.got(1)
        assert late == [[b"2"]]


def test_nothing_arrives_after_disconnect(world: World):
    @world.run
    async def scenario():
        heard, witness = Heard(), Heard()
        publisher, other = (world.channels().publish(world.address()) for _ in range(2))
        subscription = world.channels().subscribe(heard)
        subscription.connect(publisher.address)
        subscription.connect(other.address)
        world.channels().subscribe(witness).connect(publisher.address)
        await listening(publisher, heard)
        await listening(other, heard)
        await listening(publisher, witness)
        await heard.until(lambda: heard and heard[-1] == [b"good"])
        heard.clear()
        publisher.publish([b"on its way"])
        subscription.disconnect(publisher.address)
        subscription.disconnect(publisher.address)
        subscription.disconnect("tcp://127.0.0.1:1")
        assert subscription.addresses == {other.address}
        publisher.publish([b"too late"])
        await witness.got(2)
        other.publish([b"from another"])
        await heard.got(1)
        assert heard == [[b"from another"]]
        subscription.connect(publisher.address)
        await listening(publisher, heard)


def test_a_subscription_finds_a_publisher_that_was_restarted(world: World):
    @world.run
    async def scenario():
        heard, connected, server, address = Heard(), Heard(), world.channels(), world.address()
        subscription = world.channels().subscribe(heard, connected)
        subscription.connect(address)
        await listening(server.publish(address), heard)
        await server.close()
        publisher = world.channels().publish(address)
        await connected.got(2)
        await listening(publisher, heard)
        assert connected == [address, address]


def test_a_burst_is_heard_whole(world: World):
    @world.run
    async def scenario():
        heard = Heard()
        publisher = world.channels().publish(world.address())
        world.channels().subscribe(heard).connect(publisher.address)
        await listening(publisher, heard)
        for burst in range(20):
            for frames in numbered(500):
                publisher.publish(frames)
            await heard.got(500 * (burst + 1))
        assert heard == numbered(500) * 20


def test_a_subscriber_that_does_not_read_holds_up_nobody(world: World):
    @world.run
    async def scenario():
        heard, body = Heard(), b"." * 20_000
        publisher = world.channels().publish(world.address())
        if world.is_real:
            context = zmq.Context()
            slow = context.socket(zmq.SUB)
            slow.rcvhwm, slow.rcvbuf, slow.linger = 1, 4096, 0
            slow.subscribe(b"")
            slow.connect(publisher.address)
            await until(lambda: publisher.publish([b"?"]) or slow.poll(0))
        world.channels().subscribe(heard).connect(publisher.address)
        await listening(publisher, heard)
        if not world.is_real:
            # It reads in the next turn: so it is slow in this one.
            world.network.capacity = 100
            for frames in numbered(150):
                publisher.publish(frames)
            await heard.got(100)
            assert heard == numbered(150)[:100]
            assert world.network.dropped == 50
            return
        for number in range(4000):
            publisher.publish([b"%d" % number, body])
            if number % 100 == 99:
                await heard.got(number + 1)
        assert [frames[0] for frames in heard] == [b"%d" % number for number in range(4000)]
        missed = 4000
        while slow.poll(200):
            slow.recv_multipart()
            missed -= 1
        assert missed > 0, "it has not been full, and shows nothing"
        slow.close()
        context.term()

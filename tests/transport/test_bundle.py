"""Bundles: the bytes, and what a transport makes of good and bad ones."""

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from hopline.transport import Limits
from hopline.transport.base import BAD_BUNDLE, FRAME_TOO_BIG, TOO_MANY_FRAMES
from hopline.transport.bundle import GREETING, MARK, MOST_MESSAGES, Refused, pack, unpack
from tests.transport.harness import World, bodies, message, messages

frame_lists = st.lists(st.lists(st.binary(max_size=40), min_size=2, max_size=40), max_size=8)


def taken_apart(bundle, **limits):
    return list(unpack(bundle, Limits(**limits)))


@given(frame_lists)
def test_what_is_packed_comes_out_again_without_frame_0(packed):
    assert taken_apart(pack(packed)) == [frames[1:] for frames in packed]


@given(st.binary(max_size=60))
def test_junk_gives_no_more_than_it_holds(junk):
    found = [one for one in taken_apart(MARK + junk) if not isinstance(one, Refused)]
    assert sum(len(frame) for frames in found for frame in frames) <= len(junk)


@pytest.mark.parametrize("cut", range(1, len(pack(messages(1))) - len(MARK)))
def test_a_bundle_that_is_cut_off_is_read_up_to_there(cut):
    first, rest = taken_apart(pack(messages(2))[:-cut])
    assert first == message(0)[1:]
    assert rest.reason == BAD_BUNDLE


def test_a_message_that_breaks_a_limit_costs_no_other():
    three = [[b"", b"a"], [b"", b"x" * 11], [b"", *[b""] * 12], [b"", b"b"]]
    found = taken_apart(pack(three), message_bytes=10, message_frames=10)
    assert found == [[b"a"], Refused(FRAME_TOO_BIG, 11), Refused(TOO_MANY_FRAMES, 0), [b"b"]]


def test_many_messages_of_one_turn_arrive_in_order_and_once(tcp: World):
    async def scenario():
        a, b = await tcp.node(), await tcp.node()
        link = await a.link(b)
        link.takes_bundles = True
        count = 3 * MOST_MESSAGES + 5
        for one in messages(count):
            assert link.send(one)
        await b.got(count)
        assert b.bodies == bodies(count)
        assert link.pending == 0
        assert len({frames[0] for frames in b.messages}) == 1
        assert b.transport.takes_bundles(b.messages[0][0])
        # Told together, as they travelled, and each once.
        assert [one for together in a.sent for one in together] == messages(count)
        assert [one for together in b.received for one in together] == b.messages
        assert len(b.received) == len(a.sent) == a.sending < count / 10

    tcp.run(scenario)


def test_what_is_sent_is_told_when_it_leaves(tcp: World):
    async def scenario():
        a = await tcp.node()
        place = await tcp.node()
        await place.transport.close()
        link = a.connect(place.address)
        for one in messages(3):
            assert link.send(one)
        assert (link.pending, a.sent) == (3, [])
        assert link.close() == messages(3)
        assert a.sent == []

    tcp.run(scenario)


def test_a_large_message_goes_by_itself_and_in_its_turn(tcp: World):
    async def scenario():
        a, b = await tcp.node(), await tcp.node()
        link = await a.link(b)
        link.takes_bundles = True
        sizes = [0, 0, 100_000, 0, 0, 40_000, 0]
        for number, size in enumerate(sizes):
            assert link.send(message(number, size))
        await b.got(len(sizes))
        assert b.bodies == [message(number, size)[2] for number, size in enumerate(sizes)]

    tcp.run(scenario)


def test_who_pauses_inside_a_bundle_gets_the_rest_later(tcp: World):
    async def scenario():
        a, b = await tcp.node(), await tcp.node()
        link = await a.link(b)
        link.takes_bundles = True
        hear = b.on_message

        def take(frames):
            hear(frames)
            if len(b.messages) == 5:
                b.transport.pause()

        b.on_message = take
        for one in messages(20):
            assert link.send(one)
        await b.got(5)
        assert len(b.messages) == 5
        b.transport.resume()
        await b.got(20)
        assert b.bodies == bodies(20)

    tcp.run(scenario)


def test_bad_bundles_of_strangers_are_refused_and_reading_goes_on(tcp: World):
    async def scenario():
        b = await tcp.node()
        context = zmq.Context()
        stranger = context.socket(zmq.DEALER)
        try:
            stranger.connect(b.address)
            stranger.send(MARK + b"\xff")
            stranger.send(MARK + b"\x01\x00\xff\xff\xff\xff")
            stranger.send(MARK)
            stranger.send_multipart(message(7)[1:])
            await b.got(1)
            assert [reason for reason, _ in b.refused] == [BAD_BUNDLE, BAD_BUNDLE]
            assert b.received == [b.messages]
            assert b.bodies == bodies(8)[7:]
            assert not b.transport.takes_bundles(b.messages[0][0])
        finally:
            stranger.close(0)
            context.term()

    tcp.run(scenario)


def test_a_greeting_is_a_name_that_a_socket_can_bear():
    assert len(GREETING) + 16 <= 255
    assert GREETING[0] != 0

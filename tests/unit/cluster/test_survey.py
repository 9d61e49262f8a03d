"""A survey: rendezvous, those that they name, those that say nothing, and those that are not there."""

import asyncio

import pytest

from hopline.cluster.endpoints import Endpoint
from hopline.cluster.messages import HowAreYou, RendezvousReport, control_frames, read_control
from hopline.cluster.rendezvous import Rendezvous
from hopline.cluster.settings import RendezvousSettings
from hopline.cluster.survey import Survey
from hopline.node.clock import LoopClock
from hopline.payload.service import RendezvousNode
from hopline.testing import MemoryNetwork
from hopline.wire import decode

NAMES = ("memory://a", "memory://b", "memory://c")


def rendezvous(network, name, **settings):
    settings = RendezvousSettings(bind=f"memory://{name}", **settings)
    channels = network.channels(f"memory://{name}")
    return Rendezvous(settings, channels, clock=LoopClock(), random=lambda: 0.5)


def ask(network, *endpoints, seconds=0.05, **settings):
    return Survey(network.channels("memory://us"), **settings).ask(endpoints, seconds)


def play(test):
    asyncio.run(asyncio.wait_for(test(MemoryNetwork()), 10))


def test_one_that_is_alone_leads():
    async def test(network):
        one = rendezvous(network, "a")
        await one.start()
        (asked,) = await ask(network, Endpoint("memory://a"), seconds=5)
        assert asked.leads
        assert asked.is_reached
        assert asked.report.formats == (b"v6",)
        assert (asked.report.received, asked.report.refused) == (1, 0)
        await one.close()

    play(test)


def test_those_that_are_named_are_asked_too_each_once():
    async def test(network):
        made = [rendezvous(network, name[-1], nodes=NAMES) for name in NAMES]
        for one in made:
            await one.start()
        found = await ask(network, Endpoint("memory://b"), seconds=5)
        assert sorted(asked.name for asked in found) == list(NAMES)
        assert [one.books.received for one in made] == [1, 1, 1]
        for one in made:
            await one.close()

    play(test)


def test_whom_we_may_not_connect_to_is_not_asked():
    async def test(network):
        one = rendezvous(network, "a", nodes=NAMES)
        await one.start()
        found = await ask(network, Endpoint("memory://a"), may_connect=lambda address: not address.endswith("c"))
        assert sorted(asked.name for asked in found) == ["memory://a", "memory://b"]
        await one.close()

    play(test)


def test_one_that_is_not_there_is_not_reached():
    async def test(network):
        (asked,) = await ask(network, Endpoint("memory://nowhere"))
        assert (asked.is_reached, asked.report, asked.leads) == (False, None, False)

    play(test)


@pytest.mark.parametrize(
    ("are_ours", "both", "heard"), [(None, True, 0), (None, False, 1), (False, False, 0), (True, True, 1)]
)
def test_what_may_be_of_the_reference_is_not_asked(are_ours, both, heard):
    async def test(network):
        messages = []
        channels = network.channels("memory://r")
        channels.pull("memory://r", messages.append)
        endpoint = Endpoint("memory://r", "memory://r.broadcast" if both else "")
        (asked,) = await ask(network, endpoint, are_ours=are_ours)
        assert (asked.is_reached, asked.report) == (True, None)
        assert len(messages) == heard
        await channels.close()

    play(test)


def test_an_answer_that_is_none_is_not_believed():
    async def test(network):
        channels = network.channels("memory://r")
        answers = [
            [b"junk"],
            control_frames(HowAreYou()),
            control_frames(RendezvousReport()),
            control_frames(RendezvousReport(leader=RendezvousNode(unicast_uri="memory://evil"))),
        ]

        def on_frames(frames):
            for answer in answers:
                pull.reply(frames[0], answer)

        pull = channels.pull("memory://r", on_frames)
        (asked,) = await ask(network, Endpoint("memory://r"))
        assert asked.report is None
        await channels.close()

    play(test)


def test_who_names_too_many_is_not_followed_to_all_of_them():
    async def test(network):
        channels = network.channels("memory://r")
        nodes = tuple(RendezvousNode(unicast_uri=f"memory://{number}") for number in range(1000))
        report = control_frames(RendezvousReport(RendezvousNode(unicast_uri="memory://r"), nodes=nodes))
        pull = channels.pull("memory://r", lambda frames: pull.reply(frames[0], report))
        found = await ask(network, Endpoint("memory://r"))
        assert len(found) == 64
        await channels.close()

    play(test)


def test_a_report_is_read_as_it_was_written():
    node = RendezvousNode("tcp://10.0.0.1:8001", "tcp://10.0.0.1:8011")
    report = RendezvousReport(node, node, (node,), (b"v5", b"v6"), 5, 4, 3, 2, 1, 2**40)
    assert read_control(decode(control_frames(report))) == report
    assert read_control(decode(control_frames(report, "v5"))) == report

"""A node of a cluster is reached by its address alone too, by whoever is no member: tools, replays, sinks."""

import asyncio

import pytest

from hopline import Actor, DeliveryError, Node, Payload, message
from hopline.assembly import Settings, make_rendezvous
from hopline.cluster.settings import RendezvousSettings


@message("ADDRESS.ASK")
class Ask(Payload):
    number: int


@message("ADDRESS.ANSWER")
class Answer(Payload):
    number: int


class Answers(Actor):
    async def answer(self, ask: Ask) -> Answer:
        if ask.number < 0:
            raise ValueError("below zero")
        return Answer(ask.number)


@pytest.mark.parametrize("is_rendezvous_there", [True, False])
def test_a_member_answers_who_knows_its_address(is_rendezvous_there):
    async def test():
        rendezvous = make_rendezvous(Settings(rendezvous=RendezvousSettings(bind="tcp://127.0.0.1:0")))
        await rendezvous.start()
        try:
            where = rendezvous.endpoint.unicast
            async with Node([Answers()], bind="tcp://127.0.0.1:0", cluster=where) as member:
                if not is_rendezvous_there:
                    await rendezvous.close()
                for number in range(5):
                    async with Node(peers=[member.address]) as visitor:
                        assert await visitor.ask(Ask(number), Answer, timeout=10) == Answer(number)
        finally:
            await rendezvous.close()

    asyncio.run(test())


def test_an_error_says_in_which_flow_it_was():
    async def test():
        async with Node([Answers()]) as node:
            with pytest.raises(DeliveryError) as caught:
                await node.ask(Ask(-1), Answer)
            assert len(caught.value.correlation) == 36

    asyncio.run(test())

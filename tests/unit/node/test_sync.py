import threading

import pytest

from hopline import Actor, DeliveryError, Node, Payload, RemoteError, SyncNode, message
from hopline.errors import PayloadError


@message("SYNCTEST.HELLO")
class Hello(Payload):
    name: str


@message("SYNCTEST.HI")
class Hi(Payload):
    text: str


class Greeter(Actor):
    async def greet(self, hello: Hello) -> Hi:
        if hello.name == "bad":
            raise ValueError("no")
        return Hi(f"hi {hello.name}")


def test_a_script_asks_tells_and_gets_receipts():
    before = threading.active_count()
    with SyncNode(Node([Greeter()])) as node:
        assert node.ask(Hello("bob"), Hi, timeout=5) == Hi("hi bob")
        node.tell(Hello("x"))
        node.publish(Hello("y"))
        assert node.deliver(Hello("z"), until="handled", timeout=5).reached == "handled"
        with pytest.raises(RemoteError, match="no"):
            node.ask(Hello("bad"), Hi, timeout=5)
        assert node.statistics().handled == 5
        assert node.address == ""
        assert set(node.dead_letters.counts) == {"NO_ROUTE"}
    assert threading.active_count() == before
    with pytest.raises(DeliveryError) as caught:
        node.tell(Hello("late"))
    assert caught.value.code == "CLOSED"


def test_a_node_that_cannot_start_says_so_and_leaves_no_thread():
    class Nothing(Actor): ...

    before = threading.active_count()
    with pytest.raises(PayloadError), SyncNode(Node([Nothing()])):
        pass
    assert threading.active_count() == before


def test_an_error_in_the_script_stops_the_node_at_once():
    before = threading.active_count()
    with pytest.raises(RemoteError), SyncNode(Node([Greeter()])) as node:
        node.ask(Hello("bad"), Hi)
    assert threading.active_count() == before

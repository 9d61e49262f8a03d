from dataclasses import dataclass

import pytest

from hopline.errors import PayloadError
from hopline.identity import MessageType
from hopline.node.actor import Actor, Context, broadcast, handlers_of, to
from hopline.payload.registry import Payload, kind_of, message, type_of
from hopline.wire import Distribution


@message("ORDER.PLACE", version=2)
class Place(Payload):
    order: str


@message("ORDER.CLOSE", encoding="json")
@dataclass
class Close:
    order: str


@message("PRICE", partition_by="market")
class Price(Payload):
    market: str


class Everything(Actor):
    partition = "EU"

    async def place(self, order: Place) -> None: ...

    def close(self, order: Close, context: Context) -> None: ...

    async def prices(self, price: Price):
        yield price

    async def _hidden(self, order: Place) -> None: ...

    def help_out(self, count: int) -> int:
        return count

    def too_many(self, order: Place, context: Context, more: int) -> None: ...

    def not_context(self, order: Place, other: int) -> None: ...

    def no_annotation(self, order): ...


def test_handlers_are_found_by_their_annotation():
    found = {handler.type: (handler.mode, handler.wants_context) for handler in handlers_of(Everything())}
    assert found == {
        MessageType(b"ORDER.PLACE", 2): ("async", False),
        MessageType(b"ORDER.CLOSE", 1): ("thread", True),
        MessageType(b"PRICE", 1, b"EU"): ("generator", False),
    }


def test_a_union_is_handled_by_one_method():
    class Both(Actor):
        async def either(self, order: Place | Close) -> None: ...

    assert {handler.type.identity for handler in handlers_of(Both())} == {b"ORDER.PLACE", b"ORDER.CLOSE"}


def test_an_actor_must_handle_something_and_nothing_twice():
    class Idle(Actor):
        def help_out(self, count: int) -> int:
            return count

    class Double(Actor):
        async def one(self, order: Place) -> None: ...
        async def two(self, order: Place) -> None: ...

    class Undeclared(Actor):
        async def one(self, order: Everything) -> None: ...

    for actor, word in ((Idle(), "no handler"), (Double(), "twice"), (Undeclared(), "no payload")):
        with pytest.raises(PayloadError, match=word):
            handlers_of(actor)


def test_addresses():
    assert broadcast("x").distribution is Distribution.BROADCAST
    assert to("x", node=b"n", receiver=b"r", ttl=2)[1:] == (Distribution.UNICAST, b"n", b"r", 2)


def test_payloads_go_there_and_back():
    for payload in (Place("42"), Close("42"), Price("EU")):
        kind = kind_of(type(payload))
        assert kind.decode(kind.encode(payload)) == payload
        with pytest.raises(PayloadError) as caught:
            kind.decode(b"\xc1 no payload")
        assert caught.value.code == "PAYLOAD_BROKEN"
    assert kind_of(Close).encode(Close("1")) == b'{"order":"1"}'
    assert type_of(Price("US")).partition == b"US"


def test_declarations_that_cannot_work():
    for declare in (
        lambda: message("X", version=70000),
        lambda: message("X", partition="p", partition_by="q"),
        lambda: message("X")(int),
        lambda: message("X", encoding="protobuf")(Place),
        lambda: kind_of(int),
    ):
        with pytest.raises(PayloadError) as caught:
            declare()
        assert caught.value.code == "PAYLOAD_BAD_TYPE"


def test_protobuf_classes_bring_their_own_encoding():
    class Proto:
        """As protoc makes them, as far as we use it."""

        def __init__(self, text=""):
            self.text = text

        def SerializeToString(self):  # noqa: N802
            return self.text.encode()

        @classmethod
        def FromString(cls, body):  # noqa: N802
            return cls(body.decode())

    kind = kind_of(message("PROTO")(Proto))
    assert kind.decode(kind.encode(Proto("hi"))).text == "hi"
    with pytest.raises(PayloadError):
        kind.decode(b"\xff")
    with pytest.raises(PayloadError):
        message("PROTO", encoding="json")(Proto)

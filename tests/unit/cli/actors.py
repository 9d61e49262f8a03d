"""Actors for `hopline node`, as a user would write them."""

import asyncio
import time

from hopline import Actor, Payload, message


@message("HELLO")
class Hello(Payload):
    name: str = "you"


@message("EHHLO")
class Ehhlo(Payload):
    text: str


@message("NOTICE")
class Notice(Payload):
    text: str = ""


@message("PRICE", partition_by="market", encoding="json")
class Price(Payload):
    market: str


@message("PRICED", encoding="json")
class Priced(Payload):
    price: int


@message("BLOCK")
class Block(Payload):
    seconds: float


@message("WAIT")
class Wait(Payload):
    seconds: float


class Greeter(Actor):
    async def greet(self, hello: Hello) -> Ehhlo | None:
        if hello.name == "bad":
            raise ValueError("a bad name")
        return None if hello.name == "silent" else Ehhlo(f"hi {hello.name}")

    async def note(self, notice: Notice) -> None:
        if notice.text == "bad":
            raise ValueError("a bad notice")


class Market(Actor):
    partition = "EU"

    async def price(self, price: Price) -> Priced:
        return Priced(3)


class Sleeper(Actor):
    def block(self, block: Block) -> None:
        time.sleep(block.seconds)

    async def wait(self, wait: Wait) -> None:
        await asyncio.sleep(wait.seconds)


class Idle(Actor):
    """No handlers."""


class Picky(Actor):
    def __init__(self, wanted):
        self.wanted = wanted

    async def greet(self, hello: Hello) -> None: ...


ACTORS = [Greeter, Market()]
NOTHING = []
NUMBER = 5
MIXED = [Greeter, "Market"]


def make():
    asyncio.get_running_loop()
    return [Greeter(), Sleeper()]

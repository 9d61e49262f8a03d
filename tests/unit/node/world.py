"""What the tests of a node say to each other."""

import asyncio

from hopline.node.actor import Actor
from hopline.node.node import Node
from hopline.payload.registry import Payload, message


@message("HELLO")
class Hello(Payload):
    name: str


@message("EHHLO")
class Ehhlo(Payload):
    text: str


@message("OTHER")
class Other(Payload):
    text: str = ""


@message("STEP")
class Step(Payload):
    left: int


@message("ARRIVED")
class Arrived(Payload):
    trail: list[str] = []


class Greeter(Actor):
    async def greet(self, hello: Hello) -> Ehhlo:
        return Ehhlo(f"hi {hello.name}")


def run(test):
    asyncio.run(asyncio.wait_for(test(), 30))


def balanced(node: Node) -> bool:
    books = node.statistics()
    return books.taken == books.ended and books.in_flight == 0

"""A node for scripts that are not async: the same calls, each waiting for its end.

The node lives in an event loop of its own, in one thread; the calls may come from any other.
"""

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from hopline.errors import DeliveryError
from hopline.node.dead_letters import DeadLetters
from hopline.node.node import DEFAULT_TIMEOUT, Node, Receipt
from hopline.node.statistics import Statistics

_A = TypeVar("_A")
_B = TypeVar("_B")


class SyncNode:
    """Runs a node, and waits for it in your place.

    >>> from hopline import Actor, Node, Payload, SyncNode, message
    >>> @message("SYNC.HELLO")
    ... class Hello(Payload):
    ...     name: str
    >>> @message("SYNC.HI")
    ... class Hi(Payload):
    ...     text: str
    >>> class Greeter(Actor):
    ...     async def greet(self, hello: Hello) -> Hi:
    ...         return Hi(f"hi {hello.name}")
    >>> with SyncNode(Node([Greeter()])) as node:
    ...     node.ask(Hello("bob"), Hi)
    Hi(text='hi bob')
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hopline-node", daemon=True)

    def __enter__(self) -> Self:
        """Start the node; what it raises comes out here."""
        self._thread.start()
        try:
            self._wait(self._node.start())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop the node and its thread."""
        try:
            self._wait(self._node.stop(0 if error is not None else 5.0))
        finally:
            self._end()

    @overload
    def ask(
        self, payload: object, reply: type[_A], /, *, timeout: float = ..., node: bytes = ..., receiver: bytes = ...
    ) -> _A: ...
    @overload
    def ask(
        self,
        payload: object,
        reply: type[_A],
        other: type[_B],
        /,
        *,
        timeout: float = ...,
        node: bytes = ...,
        receiver: bytes = ...,
    ) -> _A | _B: ...
    def ask(
        self, payload: object, /, *replies: Any, timeout: float = DEFAULT_TIMEOUT, node: bytes = b"", receiver: bytes = b""
    ) -> Any:
        """Send a request and wait for its answer: see `Node.ask`."""
        return self._wait(self._node.ask(payload, *replies, timeout=timeout, node=node, receiver=receiver))

    def tell(self, payload: object, /, *, node: bytes = b"", receiver: bytes = b"", ttl: float = 0.0) -> None:
        """Send a message one way: see `Node.tell`."""
        self._wait(self._node.tell(payload, node=node, receiver=receiver, ttl=ttl))

    def publish(self, payload: object, /, *, ttl: float = 0.0) -> None:
        """Send a message to everybody who handles it: see `Node.publish`."""
        self._wait(self._node.publish(payload, ttl=ttl))

    def deliver(
        self, payload: object, /, *, until: Literal["node", "handled"] = "node", timeout: float = DEFAULT_TIMEOUT
    ) -> Receipt:
        """Send a message and wait for its receipt: see `Node.deliver`."""
        return self._wait(self._node.deliver(payload, until=until, timeout=timeout))

    @property
    def address(self) -> str:
        """Where other nodes reach us."""
        return self._node.address

    @property
    def dead_letters(self) -> DeadLetters:
        """Messages that came to a bad end."""
        return self._node.dead_letters

    def statistics(self) -> Statistics:
        """The books of the node."""
        return self._node.statistics()

    def _wait(self, coroutine: Coroutine[Any, Any, _A]) -> _A:
        if not self._thread.is_alive():
            coroutine.close()
            raise DeliveryError("CLOSED", "the node is not running: use it inside its `with` block")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

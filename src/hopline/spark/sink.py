"""The Spark sink: rows become messages in a live network, sent from the executors and confirmed one by one.

    rows.write.format("hopline").option("peers", "tcp://127.0.0.1:5101").mode("append").save()
    rows.writeStream.format("hopline").option("cluster", ...).option("checkpointLocation", ...).start()

Theory of operation. Each task has a node of its own, from its first row to its last; a bounded number of rows is under way
at once, in the order of the rows; only the first one goes alone, as the way has to be found. A row is done when its receipt
has come: from the node that it reached, or from the actor that has handled it. If that node was lost, or had no room, it is
sent again while its time lasts, after longer and longer pauses. One row that is not confirmed in time ends the task: no more
is sent, what is under way is waited for, and the error says how many.

So it is at least once: Spark runs a task again that has failed, and a stream a batch. Both send the same rows, and the same
row has the same correlation id each time (`letters.py`), so that an actor with `drop_copies_seconds` handles it once.

Columns are explained in `letters.py`, options in `options.py`. Keys are read here, from files, where rows are sent: they are
in no plan and in no log. What runs where: `write` in the Python workers of the executors, all else beside the driver.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.types import StructType

from hopline.assembly import Node, Settings, read_settings
from hopline.cluster.endpoints import read_endpoint
from hopline.errors import DeliveryError, InputError, RemoteError, SparkError, TransportError, clean
from hopline.node.node import Node as PlainNode
from hopline.security import Domains
from hopline.spark.letters import Letters
from hopline.spark.options import SinkOptions
from hopline.transport.address import check_to_connect
from hopline.wire import Message

_AGAIN: Final = {"PEER_LOST", "OVERFLOW", "NO_ROUTE", "CLOSED"}
"""Bad ends that are of the moment: another node may take the message, or the same one later."""

_STEP_S: Final = 0.05
_MOST_STEPS: Final = 20
"""Before a message is sent again there is a pause: of one step, then of twice as many as before, up to a second. A task may
have thousands of messages under way, and who has no room has none for all of them at every step."""


@dataclass(frozen=True, slots=True)
class Sent(spark.WriterCommitMessage):
    """What a task did: so many rows were sent and confirmed."""

    rows: int


class NetworkWriter(spark.DataSourceArrowWriter):
    """Sends the rows of a DataFrame."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        _refuse_overwrite(overwrite=overwrite)
        _check_addresses(options)
        self._options = options
        self._letters = Letters(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a task; raises SparkError SPARK_NOT_CONFIRMED, InputError. On an executor."""
        return _write(iterator, self._letters, self._options)


class NetworkStreamWriter(spark.DataSourceStreamArrowWriter):
    """Sends the rows of a stream."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        _refuse_overwrite(overwrite=overwrite)
        _check_addresses(options)
        self._options = options
        self._letters = Letters(schema)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send the rows of a task; raises SparkError SPARK_NOT_CONFIRMED, InputError. On an executor."""
        return _write(iterator, self._letters, self._options)


def _refuse_overwrite(*, overwrite: bool) -> None:
    if overwrite:
        raise InputError("INPUT_BAD_OPTION", 'what was sent cannot be overwritten: say mode("append")')


def _check_addresses(options: SinkOptions) -> None:
    """Raise InputError INPUT_BAD_OPTION at once, and not a minute later that nobody is at an address that cannot be."""
    for name, texts, read in (("peers", options.peers, lambda text: (text,)), ("cluster", options.cluster, read_endpoint)):
        for text in texts:
            try:
                for address in filter(None, read(text)):
                    check_to_connect(address)
            except (InputError, TransportError) as error:
                reason = f"the option {name} cannot be {text}: {error}"
                raise InputError("INPUT_BAD_OPTION", reason) from None


def _write(batches: Iterator[pa.RecordBatch], letters: Letters, options: SinkOptions) -> Sent:
    return Sent(asyncio.run(_send(_messages(batches, letters), options)))


async def _send(messages: AsyncIterator[Message], options: SinkOptions) -> int:
    """Send all messages of a task; returns how many. Without any there is no node."""
    first = await anext(messages, None)
    if first is None:
        return 0
    domains, node, silence = _node_of(options)
    async with node:
        try:
            async with asyncio.TaskGroup() as under_way:
                post = Post(node, options, under_way, domains, silence)
                await (await post.send(first))  # alone: once it is confirmed there is a way, and the others keep their pace
                async for message in messages:
                    if post.unconfirmed:
                        break
                    await post.send(message)
                await post.wait_until_due()  # or the next task, whose first row never waits, would be too early
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # the others are what followed from it
        post.check()
    return post.sent


async def _messages(batches: Iterator[pa.RecordBatch], letters: Letters) -> AsyncIterator[Message]:
    """The rows of a task as messages. Spark gives them when it likes: they are waited for in another thread."""
    loop = asyncio.get_running_loop()
    while (batch := await loop.run_in_executor(None, next, batches, None)) is not None:
        for message in letters.read(batch):
            yield message


class Post:
    """Sends messages through a node, some at a time, and hears what came of them.

    Args:
        node: what they are sent through.
        options: how.
        under_way: where those are that nothing is known of yet.
        domains: what they are signed in.
        silence: what to say if no other node was ever heard of.

    Attributes:
        sent: messages that were sent so far.
        unconfirmed: how many of them were not confirmed in time, by the code of their end.
    """

    def __init__(
        self,
        node: PlainNode,
        options: SinkOptions,
        under_way: asyncio.TaskGroup,
        domains: Domains | None = None,
        silence: str = "nobody answers",
    ) -> None:
        self.sent = 0
        self.unconfirmed: Counter[str] = Counter()
        self._node = node
        self._options = options
        self._under_way = under_way
        self._domains = domains
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(options.in_flight)
        self._first = ""
        self._due = 0.0

    async def send(self, message: Message) -> asyncio.Task[None]:
        """Send a message as soon as it is due and there is room; returns what ends when it is known what came of it."""
        self._check_domain(message)
        await self.wait_until_due()
        await self._room.acquire()
        self.sent += 1
        task = self._under_way.create_task(self._deliver(message))
        await asyncio.sleep(0)  # it is on its way before the next one: so they stay in order
        if self._options.rate is not None:
            self._due = self._loop.time() + 1 / self._options.rate  # from now: what was held up is not made up for
        return task

    async def wait_until_due(self) -> None:
        """Wait until the rate, if there is one, allows another message."""
        if self._options.rate is not None:
            await asyncio.sleep(self._due - self._loop.time())

    def check(self) -> None:
        """Raise SparkError SPARK_NOT_CONFIRMED if not all was confirmed. To be asked when nothing is under way."""
        if self.unconfirmed:
            ends = ", ".join(f"{code} {count}" for code, count in self.unconfirmed.most_common())
            count = self.unconfirmed.total()
            reason = f"{count} of {self.sent} messages were not confirmed ({ends}), and no more were sent: {self._first}"
            raise SparkError("SPARK_NOT_CONFIRMED", reason if self._node.routes() else f"{reason}; {self._silence}")

    async def _deliver(self, message: Message) -> None:
        left = self._options.timeout
        deadline = self._loop.time() + left
        pause = 1
        try:
            while True:
                try:
                    await self._node.deliver_message(message, until=self._options.until, timeout=left)
                except DeliveryError as error:
                    # In steps: messages that wait equally long share a timer.
                    steps = ceil((deadline - self._loop.time()) / _STEP_S)
                    if steps <= 1 or isinstance(error, RemoteError) or error.code not in _AGAIN:
                        self._note(message, error)
                        return
                    pause = min(pause, steps - 1)  # the last step is for the last try
                    left = (steps - pause) * _STEP_S
                    await asyncio.sleep(pause * _STEP_S)
                    pause = min(2 * pause, _MOST_STEPS)
                else:
                    return
        finally:
            self._room.release()

    def _note(self, message: Message, error: DeliveryError) -> None:
        self.unconfirmed[error.code] += 1
        if not self._first:
            identity, flow = (
                clean(part.decode(errors="backslashreplace")) for part in (message.identity, message.correlation_id)
            )
            self._first = f"{clean(str(error))} ({identity}, flow {flow})"

    def _check_domain(self, message: Message) -> None:
        """A row cannot choose the domain that it is signed in: its identity does."""
        if not message.domain or self._domains is None:
            return
        home = self._domains.of(message.identity).name
        if message.domain != home:
            reason = f"domain is {message.domain!r}, and {message.identity!r} belongs to {home!r}"
            raise InputError("INPUT_BAD_ROW", f"a row cannot be a message: {reason}")


# The node of a task.


def _node_of(options: SinkOptions) -> tuple[Domains | None, Node, str]:
    """The node that rows are sent through, the domains that it signs in, and what to say if it hears of no other."""
    settings = read_settings(options.config) if options.config else Settings()
    domains = read_settings(options.keys).domains if options.keys else settings.domains
    # Where the node of this file is bound is taken, if it runs; its name and what it records are its own affair.
    nameless = msgspec.structs.replace(settings.node, name="")
    settings = msgspec.structs.replace(settings, capture=None, node=nameless)
    peers = [*options.peers, *settings.node.peers]
    cluster = [*options.cluster, *settings.cluster.rendezvous]
    silence = [f"nobody answers at {', '.join(peers)}"] if peers else []
    silence += [f"no node is known through {', '.join(cluster)}"] if cluster else []
    node = Node(
        peers=options.peers,
        cluster=options.cluster,
        embed=False,
        config=settings,
        domains=domains,
        plain_tcp=options.plain_tcp or None,
        bind=options.bind or _own_address([*peers, *cluster]),
        hold_seconds=options.timeout,
    )
    return domains, node, ", and ".join(silence)


def _own_address(addresses: list[str]) -> str:
    """Where others reach this machine: where it would send from to reach the first of them. Nothing is sent for that."""
    for address in addresses:
        parts = urlsplit(address.partition("+")[0])
        if parts.scheme != "tcp" or not parts.hostname or not parts.port:
            continue
        try:
            family, kind, *_, place = socket.getaddrinfo(parts.hostname, parts.port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(place)
                own = probe.getsockname()[0]
        except OSError:
            continue  # connecting will say what is wrong
        return f"tcp://[{own}]:0" if family == socket.AF_INET6 else f"tcp://{own}:0"
    return ""

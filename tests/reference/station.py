"""A station: what a scripted reference node and a scripted rendezvous have in common.

Real sockets in one thread, one wire format, a record of every message (`traffic`) and of all that a reference process would
not have understood, would have refused or would have died of (`complaints`). It may use `hopline.wire` for bytes, which the
vectors hold; it must not know `hopline.node`, `hopline.cluster`, `hopline.transport`, `hopline.security`: those it tests.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

import msgspec
import zmq

from hopline.errors import DecodeError, PayloadError
from hopline.payload.service import ServicePayload, read_service
from hopline.wire import Message, decode, encode

NO_CORRELATION: Final = b"00000000-0000-0000-0000-000000000000"
LOOPBACK: Final = "tcp://127.0.0.1:0"
PATIENCE_S: Final = 20.0
"""How long a test waits for what must happen: far above what it takes, for machines that are busy."""

T = TypeVar("T")
Format = Literal["v5", "v6"]
Stamp = Literal["int32", "uint16"]


def new_identity() -> bytes:
    """A name as the reference makes them: the text of a GUID."""
    return str(uuid.uuid4()).encode()


class Sighting(NamedTuple):
    """One multipart message on one socket, as in the captures; `message` is None if it could not be read."""

    socket: str
    direction: Literal["in", "out"]
    frames: list[bytes]
    message: Message | None


class Complaint(NamedTuple):
    """Something that a reference process expects otherwise; `fatal` if it would have ended one of its threads."""

    kind: str
    why: str
    frames: list[bytes]
    fatal: bool = False


class Station:
    """A thread that owns sockets. Subclasses bind and connect in `_open`, and name a reader for each socket.

    Args:
        format: the one format of the process; it can neither read nor write another.
        stamp: the version frame of v5. `int32` is a release up to v0.0.4.2, which cannot read two bytes; `uint16` is later.
    """

    def __init__(self, format: Format, stamp: Stamp) -> None:
        self.format, self.stamp = format, stamp
        self.traffic: list[Sighting] = []
        self.complaints: list[Complaint] = []
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        self._readers: dict[zmq.Socket[bytes], Callable[[list[bytes]], None]] = {}
        self._timers: list[tuple[float, Callable[[], float | None]]] = []
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        self._changed = threading.Condition()
        self._crash: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self._waker = self._context.socket(zmq.PAIR)
        self._waker.bind("inproc://wake")
        self._alarm = self._context.socket(zmq.PAIR)
        self._alarm.connect("inproc://wake")
        self._watch(self._waker, lambda frames: None)

    # --- for tests ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Leave as a process does that is asked to; idempotent."""
        self._end(self._leave)

    def kill(self) -> None:
        """Vanish without a word."""
        self._end(lambda: None)

    def wait_for(self, look: Callable[[], T], timeout: float = PATIENCE_S) -> T:
        """Wait until `look` gives something true, and give it back; it is asked whenever something has happened."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not (found := look()):
                if self._crash is not None:
                    raise AssertionError(f"{self} has crashed") from self._crash
                left = deadline - time.monotonic()
                assert left > 0, f"{self} waited in vain; complaints: {self.complaints}; last seen: {self.seen()[-5:]}"
                self._changed.wait(left)
        return found

    def rest(self) -> None:
        """Wait until what has come in so far is dealt with."""
        self._call(lambda: None).result(PATIENCE_S)

    def seen(
        self, identity: bytes | None = None, *, socket: str | None = None, direction: str | None = None
    ) -> list[Message]:
        """The messages of the record that could be read, in order."""
        return [
            item.message
            for item in tuple(self.traffic)
            if item.message is not None
            and identity in {None, item.message.identity}
            and socket in {None, item.socket}
            and direction in {None, item.direction}
        ]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.format})"

    # --- bytes --------------------------------------------------------------------------------------------------------

    def write(self, message: Message) -> list[bytes]:
        return encode(message, self.format, f"{self.stamp}-stamp" if self.format == "v5" else "")

    def read(self, socket: str, frames: list[bytes], *, from_dealer: bool = False, fatal: bool = False) -> Message | None:
        """Read a message as the reference does, or complain. A DEALER's message has one more frame in front (1.8)."""
        try:
            decoded = decode(frames, format=self.format)
        except DecodeError as error:
            self.complain("unparsable", f"{socket}: not readable as {self.format}: {error}", frames, fatal=fatal)
            self.record(socket, "in", frames, None)
            return None
        if self.format == "v5" and self.stamp == "int32" and len(frames[-1]) != 4:
            self.complain("unparsable", f"{socket}: a version frame of {len(frames[-1])} bytes", frames, fatal=fatal)
            self.record(socket, "in", frames, None)
            return None
        message = decoded.message
        usual = [frames[0], *frames[2:]] if from_dealer else frames
        if encode(message, self.format, decoded.variant if self.format == "v5" else "") != usual:
            self.complain("layout", f"{socket}: {len(frames)} frames, not as the reference lays them out", frames)
        texts = (message.domain, *(entry.uri for entry in message.routing))
        if self.format == "v6" and not all(text.isascii() for text in texts):
            self.complain("text", f"{socket}: a text that is not ASCII cannot be written again", frames)
        if self.format == "v5":  # the reader hands lists back in reverse, and forgets frame 0
            reverse = {"callback_points": message.callback_points[::-1], "routing": message.routing[::-1]}
            message = msgspec.structs.replace(message, socket_identity=b"", **reverse)
        self.record(socket, "in", frames, message)
        return message

    def read_body(self, message: Message) -> ServicePayload | None:
        """Read the body of a service message, or complain."""
        frames = self.write(message)
        form = (message.partition, message.correlation_id, message.distribution, message.hops, message.routing)
        if form != (b"", NO_CORRELATION, 0, 0, ()):
            self.complain("form", f"no service message looks like this: {form}", frames)
        try:
            body = read_service(message.identity, message.body, era=self.format)
        except PayloadError as error:
            self.complain("body", f"{message.identity!r}: {error}", frames)
            return None
        if body.write() != message.body:
            self.complain("body", f"{message.identity!r}: {body} is written otherwise", frames)
        return body

    def service(self, body: ServicePayload, domain: str = "") -> Message:
        return Message(identity=body.identity, version=1, body=body.write(), correlation_id=NO_CORRELATION, domain=domain)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Bind, connect, set timers. Runs before the thread does, so that addresses are known at once."""
        raise NotImplementedError

    def _leave(self) -> None:
        """Say good-bye. Runs in the thread."""

    def _start(self) -> None:
        try:
            self._open()
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self._thread.start()

    def _call(self, do: Callable[[], T]) -> "Future[T]":
        """Let the thread do something."""
        future: Future[T] = Future()
        assert self._thread.is_alive(), f"{self} is closed"
        self._calls.put((do, future))
        self._alarm.send(b"")
        return future

    def _end(self, farewell: Callable[[], None]) -> None:
        if self._context.closed:
            return
        if self._thread.is_alive():
            self._call(farewell).result(PATIENCE_S)
            self._calls.put(None)
            self._alarm.send(b"")
            self._thread.join(PATIENCE_S)
        self._context.destroy(linger=0)

    def _run(self) -> None:
        try:
            while self._turn():
                pass
        except BaseException as error:  # noqa: BLE001 - a test must learn why nothing happens any more
            self._crash = error
            self.complain("crash", f"the equipment itself failed: {error!r}", [], fatal=True)

    def _turn(self) -> bool:
        now = time.monotonic()
        wait = min((due - now for due, _ in self._timers), default=1.0)
        for socket, _ in self._poller.poll(max(0.0, wait) * 1000):
            if socket in self._readers:  # a reader before it may have closed it
                self._readers[socket](socket.recv_multipart())
        now = time.monotonic()
        due = [timer for timer in self._timers if timer[0] <= now]
        for timer in due:
            self._timers.remove(timer)
            again = timer[1]()
            if again is not None:
                self._timers.append((time.monotonic() + again, timer[1]))
        return self._do_calls()

    def _do_calls(self) -> bool:
        while not self._calls.empty():
            item = self._calls.get()
            if item is None:
                return False
            do, future = item
            try:
                future.set_result(do())
            except Exception as error:  # noqa: BLE001 - it belongs to who asked
                future.set_exception(error)
        return True

    def later(self, seconds: float, do: Callable[[], float | None]) -> None:
        """Do something later; it gives the seconds until it wants to be done again, or None."""
        self._timers.append((time.monotonic() + seconds, do))

    def open_socket(
        self,
        kind: int,
        *,
        bind: str = "",
        connect: Iterable[str] = (),
        identity: bytes = b"",
        reader: Callable[[list[bytes]], None] | None = None,
    ) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.linger, socket.sndhwm, socket.rcvhwm, socket.sndtimeo = 0, 10_000, 10_000, 200
        if kind == zmq.ROUTER:
            socket.router_mandatory = True
        if identity:
            socket.routing_id = identity
        if kind == zmq.SUB:
            socket.subscribe(b"")
        if bind:
            socket.bind(bind)
        for address in connect:
            socket.connect(address)
        if reader is not None:
            self._watch(socket, reader)
        return socket

    def _watch(self, socket: "zmq.Socket[bytes]", reader: Callable[[list[bytes]], None]) -> None:
        self._readers[socket] = reader
        self._poller.register(socket, zmq.POLLIN)

    def _unwatch(self, socket: "zmq.Socket[bytes]") -> None:
        del self._readers[socket]
        self._poller.unregister(socket)

    def _drop(self, socket: "zmq.Socket[bytes]") -> None:
        if socket in self._readers:
            self._unwatch(socket)
        socket.close(linger=0)

    def send(self, name: str, socket: "zmq.Socket[bytes]", message: Message) -> None:
        frames = self.write(message)
        socket.send_multipart(frames)
        self.record(name, "out", frames, message)

    # --- the record ---------------------------------------------------------------------------------------------------

    def record(self, socket: str, direction: Literal["in", "out"], frames: list[bytes], message: Message | None) -> None:
        with self._changed:
            self.traffic.append(Sighting(socket, direction, frames, message))
            self._changed.notify_all()

    def complain(self, kind: str, why: str, frames: list[bytes], *, fatal: bool = False) -> None:
        with self._changed:
            self.complaints.append(Complaint(kind, why, frames, fatal))
            self._changed.notify_all()

    def note(self, change: Callable[[], None]) -> None:
        """Change what tests wait for."""
        with self._changed:
            change()
            self._changed.notify_all()

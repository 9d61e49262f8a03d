"""Copies: messages that come twice, because their sender could not know that they had arrived.

Who is told nothing sends again: after a timeout, or as a task of Spark that is run once more. Such a copy has the same
correlation id, the same type and the same body. An actor that asks for it (`Actor.drop_copies_seconds`) sees the first one
only, as long as that is remembered: for some time after it was handled well, and among the last MOST_KNOWN of them. What
failed is not remembered: its copy is the second try.

A copy that comes while the first one is being handled waits for its end, and then shares its luck or takes its place. What
belongs to no flow is never a copy. This file knows no mailbox and no clock.
"""

from hashlib import blake2b
from typing import Final, Literal

from hopline.flow.fingerprint import SIZE, length_prefixed
from hopline.node.envelope import Envelope
from hopline.wire import Message

MOST_KNOWN: Final = 100_000
"""Messages that are remembered for each actor: about 15 MB."""

_NO_FLOWS: Final = (b"", b"00000000-0000-0000-0000-000000000000", bytes(16))


class Copies:
    """What one actor is handling and has handled.

    >>> copies, first = Copies(60.0), Message(identity=b"PAY", version=1, body=b"5", correlation_id=b"f")
    >>> copies.begin(first, 0), copies.end(first, 0, is_well=True), copies.begin(first, 59), copies.begin(first, 61 * 10**9)
    ('new', [], 'known', 'new')
    """

    def __init__(self, seconds: float, most: int = MOST_KNOWN) -> None:
        self._known_ns = int(seconds * 1e9)
        self._most = most
        self._running: dict[bytes, list[Envelope]] = {}
        self._until: dict[bytes, int] = {}
        self.waiting = 0
        """Copies that wait for the end of the first one."""

    def begin(self, message: Message, now_ns: int) -> Literal["new", "running", "known"]:
        """Whether a message is a copy, and of what; a new one is running from now on."""
        key = _key_of(message)
        if not key:
            return "new"
        if key in self._running:
            return "running"
        if self._until.get(key, 0) > now_ns:
            return "known"
        self._running[key] = []
        return "new"

    def wait(self, copy: Envelope) -> None:
        """Keep a copy until the first one has ended."""
        self._running[_key_of(copy.message)].append(copy)
        self.waiting += 1

    def end(self, message: Message, now_ns: int, *, is_well: bool) -> list[Envelope]:
        """Hear that a message was handled, well or not; returns the copies that waited for that."""
        key = _key_of(message)
        copies = self._running.pop(key, [])
        self.waiting -= len(copies)
        if is_well and key:
            self._until.pop(key, None)  # the newest come last
            self._until[key] = now_ns + self._known_ns
            self._forget(now_ns)
        return copies

    def _forget(self, now_ns: int) -> None:
        while self._until:
            oldest = next(iter(self._until))
            if len(self._until) <= self._most and self._until[oldest] > now_ns:
                return
            del self._until[oldest]


def _key_of(message: Message) -> bytes:
    """What a message and its copies have in common; empty if it belongs to no flow."""
    if message.correlation_id in _NO_FLOWS:
        return b""
    version = message.version if isinstance(message.version, bytes) else b"%d" % message.version
    parts = (message.correlation_id, message.identity, version, message.partition, message.body)
    return blake2b(b"".join(map(length_prefixed, parts)), digest_size=SIZE).digest()

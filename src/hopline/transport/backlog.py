"""What a link holds for its peer: a queue bounded by messages and by bytes, which tells once when it has room again.

It is the same for every transport, so that full, half empty and handed back mean the same everywhere. It knows nothing of
sockets.
"""

from collections import deque

from hopline.transport.base import Limits

Entry = tuple[list[bytes], int]
"""A message and its bytes."""


class Backlog:
    """Messages that wait, oldest first.

    A message that is larger than `queue_bytes` is taken if nothing else waits: else it could never be sent.

    >>> backlog = Backlog(Limits(queue_messages=2))
    >>> [backlog.put([b"", body]) for body in (b"1", b"2", b"3")]
    [True, True, False]
    >>> backlog.take()
    ([b'', b'1'], 1)
    >>> backlog.has_room_again(), backlog.has_room_again()
    (True, False)
    """

    __slots__ = ("_bytes", "_entries", "_has_refused", "_most_bytes", "_most_messages")

    def __init__(self, limits: Limits) -> None:
        self._most_messages = limits.queue_messages
        self._most_bytes = limits.queue_bytes
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._has_refused = False

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, frames: list[bytes]) -> bool:
        """Let a message wait; False if there is no room for it."""
        size = sum(map(len, frames))
        entries = self._entries
        if len(entries) >= self._most_messages or (entries and self._bytes + size > self._most_bytes):
            self._has_refused = True
            return False
        entries.append((frames, size))
        self._bytes += size
        return True

    def take(self) -> Entry:
        """The oldest message; IndexError if nothing waits."""
        entry = self._entries.popleft()
        self._bytes -= entry[1]
        return entry

    def take_some(self, most: int, most_bytes: int) -> list[Entry]:
        """The oldest message, and those after it as long as they are no more and no larger together; at least one.

        Larger counts 4 bytes for each frame: that is what it takes to say its size.
        """
        entries = self._entries
        taken: list[Entry] = []
        room = most_bytes
        while entries and len(taken) < most:
            frames, size = entries[0]
            room -= size + 4 * len(frames)
            if taken and room < 0:
                break
            taken.append(entries.popleft())
            self._bytes -= size
        return taken

    def put_back(self, entry: Entry) -> None:
        """Let a message that was taken wait again, before all others."""
        self._entries.appendleft(entry)
        self._bytes += entry[1]

    def clear(self) -> list[list[bytes]]:
        """All that waited, oldest first."""
        waited = [frames for frames, _ in self._entries]
        self._entries.clear()
        self._bytes = 0
        return waited

    def has_room_again(self) -> bool:
        """Whether a message was refused and half of the room is free now; True once for each time of being full.

        At half and not at the first free place: whoever waits can then put in many at once.
        """
        if self._has_refused and len(self._entries) <= self._most_messages // 2 and self._bytes <= self._most_bytes // 2:
            self._has_refused = False
            return True
        return False

"""The tray: flat records on their way from the event loop of a node to the thread that writes them.

Two threads share a tray without a lock. One only appends, the other only cuts off the front, and each of these is one step
of the interpreter. It knows neither clocks nor files.
"""

from typing import Final

from hopline.capture.record import FLAT

TRAY_RECORDS: Final = 8192
"""Records that fill a tray, and make a batch. For each batch the thread takes the interpreter from the event loop a dozen
times, so there should be few of them; with more than this nothing was gained."""

TRAY_BYTES: Final = 4 * 1024 * 1024
"""Bytes that fill a tray, with what a record takes beside its frames: bodies may be large."""


class Tray:
    """Flat records that wait: a blob of the frames of each, and the numbers of all in one byte array.

    Of a record the blob comes first, then its numbers: who takes goes by the numbers.

    >>> tray = Tray()
    >>> tray.blobs.append(b"himeta")
    >>> tray.numbers += FLAT.pack(5, 16, 0, 0, 2, 4)
    >>> len(tray), tray.take()[1], len(tray)
    (1, b'himeta', 0)
    """

    __slots__ = ("blobs", "numbers")

    def __init__(self) -> None:
        self.blobs: list[bytes] = []
        self.numbers = bytearray()

    def __len__(self) -> int:
        return len(self.numbers) // FLAT.size

    def take(self) -> tuple[bytearray, bytes]:
        """Take the numbers and the frames of all records that are in it now; others may come meanwhile."""
        numbers = self.numbers[:]
        count = len(numbers) // FLAT.size
        data = b"".join(self.blobs[:count])
        del self.numbers[: len(numbers)]
        del self.blobs[:count]
        return numbers, data

"""The page of a tap: memory in which whole messages wait for the disk.

It is written to by the event loop of a node and read by the thread of its tap, never at once: `tap.py` sees to that. What
waits in lists would be looked at by the garbage collector again and again, and its memory is not there for the next
messages; what is copied to a page costs nothing more. Cleared and written to again, its memory stays in use: new memory
would have to be cleared by the system.
"""

from array import array
from io import SEEK_END, BytesIO
from itertools import chain
from typing import Final

from hopline.capture.record import FLAT_GROUP, FlatRecords

FULL_BYTES: Final = 5 * 1024 * 1024
"""What a page holds: some 12 000 short messages. The more, the less each of them costs: after a pause a batch takes a
millisecond to make and to write, however small it is."""


class Page:
    """Where messages wait: their frames one after another, the sizes of these, and what each group of them has in common.

    >>> page = Page()
    >>> page.write([[b"", b"", b"hi", b"meta"], [b"N1", b"", b"", b"meta"]], 5, 1, 2)
    12
    >>> page.records("N2").to_batch()["seq"].to_pylist()
    [1, 2]
    """

    def __init__(self) -> None:
        self.ahead_ns = 0
        """What the wall clock is ahead of the other one, for all of its records."""
        self._frames = BytesIO()
        self._sizes = BytesIO()
        self._groups = BytesIO()
        self._count = 0

    def __len__(self) -> int:
        """How many records there are."""
        return self._count

    @property
    def is_full(self) -> bool:
        """Whether it is time to turn it."""
        return self._frames.tell() >= FULL_BYTES

    def write(self, messages: list[list[bytes]], mono_ns: int, seq: int, code: int) -> int:
        """Copy messages that were seen together at one tap, `seq` the number of the first; says their bytes.

        All have the same number of frames. What it raises leaves a page that must be torn.
        """
        start = self._frames.tell()
        frames = list(chain.from_iterable(messages))
        self._frames.writelines(frames)
        self._sizes.write(array("I", [len(frame) for frame in frames]))
        count = len(messages)
        self._groups.write(FLAT_GROUP.pack(mono_ns, seq, code, count, len(messages[0])))
        self._count += count
        return self._frames.tell() - start

    def tear(self) -> None:
        """Take back what was written halfway."""
        records = self.records("")
        size, frames, self._count = records.size, records.frames, len(records)
        del records
        self._frames.seek(size)
        self._sizes.seek(4 * frames)

    def records(self, node: str) -> FlatRecords:
        """What it holds; nothing may be written to it, and it cannot be cleared, as long as somebody has them."""
        groups, sizes, frames = (file.getbuffer()[: file.tell()] for file in (self._groups, self._sizes, self._frames))
        return FlatRecords(groups, sizes, frames, node, self.ahead_ns)

    def clear(self) -> bool:
        """Forget it all, but for its memory; false if somebody still has its records, or if it has become too large."""
        try:
            if self._frames.seek(0, SEEK_END) > 2 * FULL_BYTES:
                return False
            for file in (self._frames, self._sizes, self._groups):
                file.seek(0)
                file.write(b"")  # raises
        except BufferError:
            return False
        self._count = 0
        return True

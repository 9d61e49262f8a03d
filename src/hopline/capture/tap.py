"""The tap of a node that writes a capture: cheap on the event loop, everything else in a thread of its own.

Theory of operation. The node calls what `at` gives it for a point, on its event loop; that takes the times, the next
sequence number of the point and the bytes. The thread takes what has come, builds batches and writes them. What waits is
bounded by records and by bytes: when the disk is slower than the node, messages are not recorded, but numbered and counted,
so the gap shows. Nothing the disk does reaches the node.

It waits in two places. What passes the network and is kept whole is copied to the end of a page (`page.py`), all that left
or came together at once: with a call for each message it took the event loop two and a half times as long, in a busy node.
A page is a batch: when it is full the event loop turns it, and when it is time to write the thread does. What never was
bytes, or is kept in part, waits in a list of rows. So what a node sees at one point waits in one place, whatever its format,
and is written in the order of its numbers: a number that is not there yet, behind one that is, will never come.

No lock is taken for a message. The list grows at its end and is cut at its front, and each of these is one step of the
interpreter. A page is turned by one of them at a time; the thread then waits until the event loop has left the old one,
which is the work of a microsecond. Counters that both look at are written by one of them only.

To look at two clocks was an eighth of what a record cost, so those on a page have the monotonic one only. The wall clock
runs at its pace, and what it is ahead is looked at when a page is turned, five times a second. When it is set, what was seen
up to a fifth of a second before has the time after.

The time of what leaves is taken before the network gets it, and it is recorded once the network has it: in between it may
have come, and even have been recorded, at the other end. Of what comes one by one the time is when all that came with it was
taken from the network.

A message at a local point never was bytes. Its payload is an object that its owner may change later, so its bytes are made
at once; the message around it cannot change, and is encoded by the thread.
"""

import logging
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow.fs as pa_fs

from hopline.capture.body import BodyPolicy, Kept, body_bytes, cut_body, cut_frames
from hopline.capture.choice import Choice
from hopline.capture.page import Page
from hopline.capture.record import DIRECTIONS, TAP_CODES, FlatRecords, Records, key_of
from hopline.capture.stream import Compression
from hopline.capture.writer import CaptureWriter, Limits
from hopline.errors import WireError
from hopline.payload.registry import kind_of
from hopline.payload.service import ExceptionMessage
from hopline.wire import Message, encode
from hopline.wire.template import Templates

logger = logging.getLogger(__name__)

POINTS: Final = frozenset(DIRECTIONS) - {"wire_in", "wire_out"}
"""Every point of a node. A rendezvous has the other two."""

DEFAULT_POINTS: Final = frozenset({"scaleout_out", "scaleout_in", "hub_out", "hub_in"})
"""What went over the network, and where flows begin and end."""

_STEP_BYTES: Final = 1024 * 1024
"""After so many bytes it is time to see whether the page is full, and how much waits."""

_SPARE_PAGES: Final = 2
"""Pages that are kept to be written to again: new memory would have to be cleared by the system."""

_BATCH_RECORDS: Final = 4096
_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Records and bytes from which on a batch of rows is not made larger, however many wait: bodies may be large."""

_FLUSH_S: Final = 0.2
"""Seconds that a record waits at most until it is handed to the disk."""

_OVERHEAD: Final = 256
"""Bytes that a record takes beside its frames, about: on a page 56, in a row lists, numbers, the heads of objects."""

_LOOKS: Final = 5
_LONG_LOOK_NS: Final = 100_000
"""How often to look at both clocks, and how long that may take: others may run in between."""

_MOMENT_S: Final = 0.0001
"""How long to wait for the event loop to write down one message."""

_size: Final = itemgetter(4)

See = Callable[[Message, list[bytes] | None, object], None]
"""What sees a message pass: the message, its bytes if it has any, its payload if that is an object."""

SeeBytes = Callable[[list[list[bytes]]], None]
"""What sees messages pass together: the frames of each."""

_Row = tuple[str, int, int, int, int, list[bytes], Message | None]
"""Point, sequence number, both clocks, size, frames; or the body alone, and the message it belongs to."""


@dataclass(frozen=True, slots=True)
class TapStatistics:
    """What a tap did: `seen` were chosen and numbered; each is written, lost or waiting."""

    seen: int
    waiting: int
    written: int
    lost: dict[str, int]
    size: int
    sealed: int
    deleted: int
    last_error: str


class _Eye(NamedTuple):
    """What sees the messages of one point: one by one, or many at once as bytes; the moment; and how many it numbered."""

    see: See
    see_bytes: SeeBytes
    at_moment: Callable[[], Callable[[], None]]
    numbered: Callable[[], int]


class CaptureTap:
    """Records what a node sees: a Tap (`hopline.node.taps`). One tap serves one node, or one rendezvous.

    Args:
        path: the folder of the capture, or a URI that pyarrow opens.
        owner: the identity of the node.
        points: where to look.
        identities: patterns of message identities, such as "ORDER.*"; empty for all.
        domains: patterns of domains; empty for all.
        sample: the share of flows, from 0 to 1: whole flows or none, the same ones at every node.
        body: "whole", "none", or how many bytes of a body to keep.
        limits: when a segment ends, and which are kept.
        most_records: messages that may wait for the disk.
        most_bytes: bytes that may wait for the disk.
        compression: of batches.
        wall_ns: the clock on the wall.
        mono_ns: a clock that never goes back.
        filesystem: where `path` is, if not in the local one.

    >>> from tempfile import TemporaryDirectory
    >>> from hopline.capture.store import open_capture
    >>> with TemporaryDirectory() as folder:
    ...     tap = CaptureTap(folder, owner=b"N1")
    ...     tap.start()
    ...     tap.on_message("hub_out", Message(identity=b"HELLO", version=1, body=b"hi"), None, None)
    ...     statistics = tap.close()
    ...     (segment, first_row, batch), = open_capture(folder).batches()
    >>> statistics.written, batch["tap"].to_pylist(), batch["encoded"].to_pylist()
    (1, ['hub_out'], [False])
    """

    def __init__(
        self,
        path: str,
        *,
        owner: bytes,
        points: Collection[str] = DEFAULT_POINTS,
        identities: Iterable[str] = (),
        domains: Iterable[str] = (),
        sample: float = 1.0,
        body: BodyPolicy = "whole",
        limits: Limits = Limits(),  # noqa: B008 - frozen
        most_records: int = 200_000,
        most_bytes: int = 64 * 1024 * 1024,
        compression: Compression = "lz4",
        wall_ns: Callable[[], int] = time.time_ns,
        mono_ns: Callable[[], int] = time.monotonic_ns,
        filesystem: pa_fs.FileSystem | None = None,
    ) -> None:
        if unknown := set(points) - DIRECTIONS.keys():
            raise ValueError(f"no such point: {', '.join(sorted(unknown))}; there are {', '.join(sorted(DIRECTIONS))}")
        self.points: Collection[str] = frozenset(points)
        self.sees_ends = False
        self._choice = Choice(identities, domains, sample)
        self._node = key_of(owner)
        self._most_body = body_bytes(body)
        self._writer = CaptureWriter(
            path,
            owner=owner,
            limits=limits,
            compression=compression,
            wall_ns=wall_ns,
            mono_ns=mono_ns,
            filesystem=filesystem,
            mark=self._choice.mark,
        )
        self._wall_ns = wall_ns
        self._mono_ns = mono_ns
        self._most_bytes = most_bytes
        # So heavy that `most_records` of them are `most_bytes` at least: one bound, and one look, for both.
        self._overhead = max(_OVERHEAD, -(-most_bytes // max(most_records, 1)))
        self._templates = Templates()
        # Written by the event loop only.
        self._rows: list[_Row] = []
        self._is_writing = False
        self._mark = min(_STEP_BYTES, most_bytes)  # when to look closer; 0 once it is closing
        self._dropped = dict.fromkeys(DIRECTIONS, 0)
        self._bytes_in = 0
        # Written by the thread only.
        self._reported = dict.fromkeys(DIRECTIONS, 0)
        self._bytes_out = 0
        self._full_at = most_bytes
        self._in_hand = 0
        # Between the two.
        self._turning = threading.Lock()
        self._ahead_ns = 0
        self._page = Page()
        self._write_down = self._page.write
        self._pages: list[Page] = []  # that are turned
        self._spare: list[Page] = []
        self._is_closing = False
        self._wake = threading.Event()
        self._flushes: list[threading.Event] = []
        self._thread: threading.Thread | None = None
        self._eyes = {point: self._eye(point) for point in DIRECTIONS}

    def start(self) -> None:
        """Begin the first segment and the thread; raises CaptureError if the folder cannot be written to."""
        self._writer.start()
        self._thread = threading.Thread(target=self._run, name=f"capture of {self._node}", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 30.0) -> TapStatistics:
        """Write what waits, seal the last segment and end the thread; says what was written and what was lost.

        A disk that hangs does not hang the node: after `timeout_s` what still waits is given up, and is in `waiting`.
        """
        self._is_closing = True
        self._mark = 0
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout_s)
        statistics = self.statistics()
        if statistics.lost or statistics.waiting:
            logger.warning("the capture of %s lost %s, and %d more wait", self._node, statistics.lost, statistics.waiting)
        return statistics

    def flush(self, timeout_s: float = 30.0) -> bool:
        """Wait until all that was seen so far is written or lost; false if that took too long. Not for the event loop."""
        done = threading.Event()
        self._flushes.append(done)
        self._wake.set()
        return done.wait(timeout_s)

    def statistics(self) -> TapStatistics:
        """What it did so far."""
        writer = self._writer.statistics()
        lost = Counter(writer.lost)
        for point, count in self._dropped.items():
            lost[point] += count - self._reported[point]
        with self._turning:
            flat = sum(map(len, (self._page, *self._pages)))
        return TapStatistics(
            seen=sum(eye.numbered() for eye in self._eyes.values()),
            waiting=len(self._rows) + flat + self._in_hand,
            written=writer.written,
            lost={point: count for point, count in sorted(lost.items()) if count},
            size=writer.size,
            sealed=writer.sealed,
            deleted=writer.deleted,
            last_error=writer.last_error,
        )

    # On the event loop.

    def at(self, point: str) -> See:
        """What to call when a message passes a point; it never blocks and never raises."""
        return self._eyes[point].see

    def at_network(self, point: str) -> SeeBytes | None:
        """What to call with all that passes the network; None if only some of it is wanted, or not all of its bodies.

        What is no message passes there too. Nobody could say whether it is wanted, or where its body is.
        """
        return self._eyes[point].see_bytes if self._choice.takes_all and self._most_body is None else None

    def at_moment(self, point: str) -> Callable[[], None]:
        """What to call when messages are about to leave or have just come: what is seen until the next call has that time.

        Without such a call it has the time when it is seen.
        """
        return self._eyes[point].at_moment()

    def on_message(self, point: str, message: Message, frames: list[bytes] | None, payload: object) -> None:
        """See a message pass: for those who do not ask `at` first."""
        self._eyes[point].see(message, frames, payload)

    def on_broken(self, frames: list[bytes]) -> None:
        """Not recorded here: see `at_network`."""

    def on_end(self, end: str, message: Message | None, reason: str) -> None:
        """Not called: a capture records what passes, not how it ends."""

    def _eye(self, point: str) -> "_Eye":
        """What sees the messages of a point. It runs for all that a busy node does, so it holds what does not change."""
        takes, is_whole = None if self._choice.takes_all else self._choice.takes, self._most_body is None
        overhead, code = self._overhead, TAP_CODES[point]
        rows, wall_ns, mono_ns = self._rows, self._wall_ns, self._mono_ns
        seq = 0
        moment: tuple[int, int] | None = None  # of rows: on both clocks
        moment_ns: int | None = None  # of what goes to a page

        def see(message: Message, frames: list[bytes] | None, payload: object) -> None:
            if takes is not None and not takes(message, frames):
                return
            if frames is None:
                see_row(message, payload)
            elif is_whole:
                see_bytes([frames])
            else:
                see_row(None, frames)

        def see_row(message: Message | None, content: Any) -> None:  # noqa: ANN401 - frames, or a payload of any kind
            nonlocal seq
            seq += 1
            load = self._bytes_in
            if load >= self._mark and self._is_full():
                self._dropped[point] += 1
                return
            frames = content if message is None else _body_of(message, content)
            if frames is None:
                self._dropped[point] += 1
                return
            size = sum(map(len, frames)) + overhead
            wall, mono = (wall_ns(), mono_ns()) if moment is None else moment
            rows.append((point, seq, wall, mono, size, frames, message))
            self._bytes_in = load + size

        def see_bytes(messages: list[list[bytes]], now_ns: int | None = None) -> None:
            nonlocal seq
            width = len(messages[0])
            for frames in messages:
                if len(frames) != width:
                    now_ns = mono_ns()
                    for _, alike in groupby(messages, len):
                        see_bytes(list(alike), now_ns)
                    return
            count = len(messages)
            first, seq = seq + 1, seq + count
            load = self._bytes_in
            if load >= self._mark and self._is_full():
                self._dropped[point] += count
                return
            self._is_writing = True
            try:
                if moment_ns is not None:
                    now_ns = moment_ns
                elif now_ns is None:
                    now_ns = mono_ns()
                # Which page to write to is looked up only now: see `_run`.
                self._bytes_in = load + self._write_down(messages, now_ns, first, code) + count * overhead
            except BaseException as error:
                self._page.tear()
                self._dropped[point] += count
                if not isinstance(error, Exception):
                    raise
                logger.exception("messages could not be recorded")
            finally:
                self._is_writing = False

        def mark() -> None:
            nonlocal moment, moment_ns
            if is_whole:
                moment_ns = mono_ns()
            else:
                moment = wall_ns(), mono_ns()

        def at_moment() -> Callable[[], None]:
            nonlocal moment, moment_ns
            moment = moment_ns = None
            return mark

        return _Eye(see, see_bytes, at_moment, lambda: seq)

    def _is_full(self) -> bool:
        """Whether no more may wait. If more may, a page that is full is turned."""
        if self._is_closing:
            return True
        load = self._bytes_in
        is_full = load >= self._full_at
        has_batch = self._page.is_full or len(self._rows) >= _BATCH_RECORDS
        if self._page.is_full and not is_full:
            self._turn()
        if (is_full or has_batch) and not self._wake.is_set():
            self._wake.set()
        self._mark = min(self._full_at, load + _STEP_BYTES)
        return is_full

    def _turn(self) -> None:
        """Go on with a new page, unless nothing is on the old one."""
        with self._turning:
            if len(self._page):
                self._page.ahead_ns = self._ahead_ns = self._compare_clocks()
                self._pages.append(self._page)
                self._page = self._spare.pop() if self._spare else Page()
                self._write_down = self._page.write

    def _compare_clocks(self) -> int:
        """What the wall clock is ahead of the other one: as before, unless more has changed than looking twice takes.

        So times of one page and the next are in order. The clocks run at one pace, and differ when one of them is set.
        """
        looks = []
        for _ in range(_LOOKS):
            before, wall, after = self._mono_ns(), self._wall_ns(), self._mono_ns()
            looks.append((after - before, wall - (before + after) // 2))
            if after - before <= _LONG_LOOK_NS:
                break
        error_ns, ahead_ns = min(looks)
        return self._ahead_ns if abs(ahead_ns - self._ahead_ns) <= error_ns else ahead_ns

    # In the thread.

    def _run(self) -> None:
        is_last = False
        emptied = time.monotonic()
        while not is_last:
            is_woken = self._wake.wait(_FLUSH_S)
            self._wake.clear()
            is_last = self._is_closing  # before the rows are looked at: what comes later is dropped by the other side
            flushes = self._flushes[:]
            del self._flushes[: len(flushes)]
            now = time.monotonic()
            # All that waits if it is time, or if no more may; else what makes a batch, for a small one costs as much.
            is_full = self._bytes_in >= self._full_at
            is_due = is_full or is_last or bool(flushes) or not is_woken or now - emptied >= _FLUSH_S
            emptied = now if is_due else emptied
            if is_due:
                self._turn()
                while self._is_writing:  # to the old page
                    time.sleep(_MOMENT_S)
            for _ in range(len(self._pages)):
                self._write_page()
            if is_due or len(self._rows) >= _BATCH_RECORDS:
                rows = len(self._rows)
                while rows:
                    rows -= self._write_rows(rows)
            self._report_dropped()
            try:
                self._writer.tick()
            except Exception:
                # A mistake of ours; it must not end the thread, for then nothing would be written any more.
                logger.exception("the capture could not be kept in order")
            for done in flushes:
                done.set()
        self._writer.close()

    def _write_page(self) -> None:
        """Write the first page that is turned, and keep it to be written to again."""
        page = self._pages[0]
        self._in_hand = len(page)
        del self._pages[0]
        self._write_flat(page.records(self._node))
        if len(self._spare) < _SPARE_PAGES and page.clear():
            self._spare.append(page)

    def _write_flat(self, records: FlatRecords) -> None:
        self._took(records.size + len(records) * self._overhead)
        self._write(lambda: records, records.counts)

    def _write_rows(self, most: int) -> int:
        """Take a batch of rows from the front, at most so many, and write it; says how many it took."""
        rows = self._rows[: min(most, _BATCH_RECORDS)]
        sizes = list(accumulate(map(_size, rows)))
        del rows[bisect_left(sizes, _BATCH_BYTES) + 1 :]
        self._in_hand = len(rows)
        del self._rows[: len(rows)]
        self._took(sizes[len(rows) - 1])
        self._write(lambda: self._records_of(rows), lambda: Counter(row[0] for row in rows))
        return len(rows)

    def _took(self, size: int) -> None:
        """Note that so many bytes wait no more, so that others may come."""
        self._bytes_out += size
        self._full_at = self._bytes_out + self._most_bytes
        self._report_dropped()

    def _write(self, make: Callable[[], Records | FlatRecords], counts: Callable[[], Counter[str]]) -> None:
        try:
            self._writer.write(make())
        except Exception:
            # A mistake of ours. The node must not know, and the next batch may be better.
            logger.exception("a batch of the capture could not be made")
            self._writer.lose(counts())
        self._in_hand = 0

    def _report_dropped(self) -> None:
        dropped = Counter({point: count - self._reported[point] for point, count in self._dropped.items()})
        if dropped.total():
            for point, count in dropped.items():
                self._reported[point] += count
            self._writer.lose(+dropped)

    def _records_of(self, rows: list[_Row]) -> Records:
        kept = []
        lost: Counter[str] = Counter()
        for point, seq, wall, mono, _, frames, message in rows:
            try:
                what = self._frames_of(frames, message)
            except WireError:
                lost[point] += 1
            else:
                kept.append((wall, seq, point, mono, message is None, *what))
        self._writer.lose(lost)
        walls, seqs, points, monos, encoded, lists, kinds, sizes = zip(*kept, strict=True) if kept else ((),) * 8
        return Records(
            seen_ns=walls,
            seq=seqs,
            tap=points,
            frames=lists,
            node=self._node,
            mono_ns=monos,
            encoded=encoded,
            body_kept=kinds,
            body_size=sizes,
        )

    def _frames_of(self, frames: list[bytes], message: Message | None) -> Kept:
        """What is kept of a row; raises WireError."""
        if message is None:
            return Kept(frames, "whole", None) if self._most_body is None else cut_frames(frames, self._most_body)
        body, kept, size = cut_body(frames[0], self._most_body)
        unsigned = msgspec.structs.replace(message, body=body, signature=b"")
        if isinstance(message.version, int):
            return Kept(self._templates.encode(unsigned), kept, size)
        # It came from a node that writes versions as text; no later format can hold such a one.
        return Kept(encode(unsigned, "v4", "text-version"), kept, size)


def _body_of(message: Message, payload: object) -> list[bytes] | None:
    """The bytes of a body as they are now, as the one frame of a row; None if its payload cannot be written."""
    if payload is None:
        return [message.body]
    try:
        return [payload.write() if isinstance(payload, ExceptionMessage) else kind_of(type(payload)).encode(payload)]
    except Exception:  # noqa: BLE001 - the payload is the user's, and so is what it raises; sending it will say so
        return None

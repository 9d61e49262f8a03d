"""The tap of a node that writes a capture: cheap on the event loop, everything else in a thread of its own.

Theory of operation. The node calls what `at` gives it for a point, on its event loop; that takes the times, the next
sequence number of the point and the frames, and puts them at the end of a list. The thread takes from the front of the list,
builds batches and writes them. The list is bounded by records and by bytes: when the disk is slower than the node, messages
are not recorded, but numbered and counted, so the gap shows. Nothing the disk does reaches the node.

There are two such lists. What is usual on the network, four frames that are kept whole, waits flat: numbers in one list,
frames in another, which cost the garbage collector nothing. Every hundred messages or so the event loop folds them into one
piece, while they are still in the caches of its core: done by the thread, later and on another core, the same steps took a
tenth more of all that a node does. Measured. All else waits in rows.

Two threads share a list without a lock. One only appends, the other only cuts off the front, and each of these is one
step of the interpreter; only folding, which the thread does for the last few, is for one of them at a time. Counters that
both look at are written by one of them only.

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
from itertools import accumulate, compress
from operator import itemgetter
from typing import Final, NamedTuple

import msgspec
import pyarrow.fs as pa_fs

from hopline.capture.body import BodyPolicy, Kept, body_bytes, cut_body, cut_frames
from hopline.capture.choice import Choice
from hopline.capture.record import DIRECTIONS, FLAT_FRAMES, FLAT_NUMBERS, TAP_CODES, FlatRecords, Records, key_of
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

_FOLD_BYTES: Final = 64 * 1024
"""After so many bytes the event loop folds: some hundred short messages, which takes it 50 us."""

_FULL_BYTES: Final = 1536 * 1024
"""What has come by then makes a batch: some 3000 short messages. The more, the less each of them costs: to make and to
write a batch takes 0.4 ms, however small it is."""

_BATCH_RECORDS: Final = 4096
_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Records and bytes from which on a batch is not made larger, however many wait: bodies may be large."""

_FLUSH_S: Final = 0.2
"""Seconds that a record waits at most until it is handed to the disk."""

_OVERHEAD: Final = 256
"""Bytes that a record in the list takes beside its frames, about: lists, numbers, the heads of objects."""

_size: Final = itemgetter(4)
_NO_MESSAGE: Final = Message()

See = Callable[[Message, list[bytes] | None, object], None]
"""What sees a message pass: the message, its bytes if it has any, its payload if that is an object."""

_Row = tuple[str, int, int, int, int, list[bytes], Message | None]
"""Point, sequence number, both clocks, size, frames; or the body alone, and the message it belongs to."""


class _Fold(NamedTuple):
    """Records in one piece; and what had to be left out."""

    records: FlatRecords
    lost: Counter[str] = Counter()  # noqa: RUF012 - never changed
    lost_bytes: int = 0


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
        self.points = frozenset(points)
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
        )
        self._wall_ns = wall_ns
        self._mono_ns = mono_ns
        self._most_bytes = most_bytes
        # So heavy that `most_records` of them are `most_bytes` at least: one bound, and one look, for both.
        self._overhead = max(_OVERHEAD, -(-most_bytes // max(most_records, 1)))
        scale = self._overhead / _OVERHEAD  # so that few records that weigh much are not folded and written one by one
        self._fold_bytes = min(int(_FOLD_BYTES * scale), most_bytes)
        self._batch_bytes = min(int(_FULL_BYTES * scale), most_bytes)
        self._templates = Templates()
        # Written by the event loop only.
        self._rows: list[_Row] = []
        self._numbers: list[int] = []
        self._frames: list[bytes] = []  # appended before their numbers
        self._mark = self._fold_bytes  # when to look closer; 0 once it is closing
        self._dropped = dict.fromkeys(DIRECTIONS, 0)
        self._bytes_in = 0
        # Written by the thread only.
        self._reported = dict.fromkeys(DIRECTIONS, 0)
        self._bytes_out = 0
        self._full_at = most_bytes
        self._in_hand = 0
        # Between the two.
        self._folding = threading.Lock()
        self._folds: list[_Fold] = []
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
        with self._folding:
            flat = len(self._numbers) // FLAT_NUMBERS + sum(len(fold.records) for fold in self._folds[:])
        return TapStatistics(
            seen=sum(count() for _, count in self._eyes.values()),
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
        return self._eyes[point][0]

    def on_message(self, point: str, message: Message, frames: list[bytes] | None, payload: object) -> None:
        """See a message pass: for those who do not ask `at` first."""
        self._eyes[point][0](message, frames, payload)

    def on_broken(self, frames: list[bytes]) -> None:
        """Record what came over the network and is no message.

        Not if only some messages are wanted, or not all of their bodies: nobody knows what this one is, or where its body.
        """
        if self._choice.takes_all and self._most_body is None:
            self.on_message("scaleout_in", _NO_MESSAGE, frames, None)

    def on_end(self, end: str, message: Message | None, reason: str) -> None:
        """Not called: a capture records what passes, not how it ends."""

    def _eye(self, point: str) -> tuple[See, Callable[[], int]]:
        """What sees the messages of a point, and what says how many it has numbered.

        It runs for every message of a busy node, so it holds all it needs: looking up attributes would be a third of it.
        """
        takes = None if self._choice.takes_all else self._choice.takes
        is_flat, overhead, code = self._most_body is None, self._overhead, TAP_CODES[point]
        rows, flat_frames, numbers = self._rows, self._frames, self._numbers
        wall_ns, mono_ns = self._wall_ns, self._mono_ns
        seq = 0

        def see(message: Message, frames: list[bytes] | None, payload: object) -> None:
            nonlocal seq, flat_frames, numbers  # the lists stay the same: `+=` is the cheapest way to add to one
            if takes is not None and not takes(message, frames):
                return
            seq += 1
            load = self._bytes_in
            if load >= self._mark and self._is_full():
                self._dropped[point] += 1
                return
            if is_flat and frames is not None and len(frames) == FLAT_FRAMES:
                # All that can be large: looking at each frame would be a quarter of the time spent here.
                self._bytes_in = load + len(frames[2]) + len(frames[3]) + overhead
                flat_frames += frames
                numbers += wall_ns(), mono_ns(), seq, code
                return
            if frames is None:
                body = _body_of(message, payload)
                if body is None:
                    self._dropped[point] += 1
                    return
                size = len(body) + overhead
                rows.append((point, seq, wall_ns(), mono_ns(), size, [body], message))
            else:
                size = sum(map(len, frames)) + overhead
                rows.append((point, seq, wall_ns(), mono_ns(), size, frames, None))
            self._bytes_in = load + size

        return see, lambda: seq

    def _is_full(self) -> bool:
        """Whether no more may wait. If more may, what has come is folded, and a whole batch handed over."""
        if self._is_closing:
            return True
        load = self._bytes_in
        if load - self._bytes_out >= self._batch_bytes and not self._wake.is_set():
            self._wake.set()
        if load >= self._full_at:
            return True
        self._fold()
        self._mark = min(self._full_at, load + self._fold_bytes)
        return False

    def _fold(self) -> None:
        """Make one piece of all that waits flat. The thread does it for the last few, when it is time to write."""
        with self._folding:
            count = len(self._numbers) // FLAT_NUMBERS
            if not count:
                return
            numbers, frames = self._numbers[: count * FLAT_NUMBERS], self._frames[: count * FLAT_FRAMES]
            self._folds.append(self._folded(numbers, frames))
            del self._numbers[: count * FLAT_NUMBERS]
            del self._frames[: count * FLAT_FRAMES]

    def _folded(self, numbers: list[int], frames: list[bytes]) -> _Fold:
        """Records of what waited flat. A frame that is no bytes is a mistake of ours; it costs its own message only."""
        try:
            return _Fold(FlatRecords.of(numbers, frames, self._node))
        except TypeError:
            logger.exception("a message of the capture has a frame that is no bytes")
        heads = range(0, len(frames), FLAT_FRAMES)
        is_good = [all(isinstance(frame, bytes) for frame in frames[at : at + FLAT_FRAMES]) for at in heads]
        good = FlatRecords.of(
            list(compress(numbers, [flag for flag in is_good for _ in range(FLAT_NUMBERS)])),
            list(compress(frames, [flag for flag in is_good for _ in range(FLAT_FRAMES)])),
            self._node,
        )
        lost = FlatRecords.of(numbers, [], self._node).counts() - good.counts()
        size = sum(map(len, frames[2::FLAT_FRAMES])) + sum(map(len, frames[3::FLAT_FRAMES]))
        return _Fold(good, lost, size - good.large_size)

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
            # All that waits if it is time, or if it makes a batch: a small one costs as much.
            is_due = is_last or bool(flushes) or not is_woken or now - emptied >= _FLUSH_S
            emptied = now if is_due else emptied
            if is_due:
                self._fold()
            if is_due or self._bytes_in - self._bytes_out >= self._batch_bytes:
                folds, rows = len(self._folds), len(self._rows)
                while folds:
                    folds -= self._write_folds(folds)
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

    def _write_folds(self, most: int) -> int:
        """Take folds for a batch from the front, at most so many, and write it; says how many it took."""
        folds, count, size = [], 0, 0
        for fold in self._folds[:most]:
            folds.append(fold)
            count += len(fold.records)
            size += len(fold.records.content)
            if count >= _BATCH_RECORDS or size >= _BATCH_BYTES:
                break
        records = FlatRecords.joined([fold.records for fold in folds])
        self._in_hand = count
        del self._folds[: len(folds)]
        lost = sum((fold.lost for fold in folds), Counter())
        self._writer.lose(lost)
        lost_bytes = sum(fold.lost_bytes for fold in folds)
        self._took(records.large_size + lost_bytes + (count + lost.total()) * self._overhead)
        self._write(lambda: records, records.counts)
        return len(folds)

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
        points, seqs, walls, monos, _, frames, messages = zip(*rows, strict=True)
        if self._most_body is None and messages.count(None) == len(messages):
            return Records(seen_ns=walls, seq=seqs, tap=points, frames=frames, node=self._node, mono_ns=monos)
        return self._kept(rows)

    def _kept(self, rows: list[_Row]) -> Records:
        """Records of rows of which some were never bytes, or of which not all is to be kept."""
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


def _body_of(message: Message, payload: object) -> bytes | None:
    """The bytes of a body as they are now; None if its payload cannot be written."""
    if payload is None:
        return message.body
    try:
        return payload.write() if isinstance(payload, ExceptionMessage) else kind_of(type(payload)).encode(payload)
    except Exception:  # noqa: BLE001 - the payload is the user's, and so is what it raises; sending it will say so
        return None

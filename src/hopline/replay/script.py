"""The script: the messages of a plan as they will be sent, read from the capture some at a time.

A plan knows where its messages stand; here they are read, bodies and all, and what answered them too. So however large a
capture is, a window of it is held. Addresses, ids, signatures and trails of then are left behind: what stays is what was
said (type, body), how (asked, told, to a node), and how long it may live. It knows no nodes and no network.
"""

from collections.abc import Iterator
from typing import Final, Literal

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hopline.capture.itinerary import NS_PER_MS
from hopline.capture.reading import Reading
from hopline.capture.record import key_of
from hopline.capture.segment import Segment
from hopline.capture.trace import read_failure
from hopline.errors import DecodeError, PayloadError
from hopline.identity import EXCEPTION, RECEIPT, MessageType
from hopline.node.guard import HANDLED
from hopline.node.hub import OUR_ERRORS, TICKS_PER_SECOND
from hopline.replay.outcome import NONE, Outcome, name_of
from hopline.replay.plan import Plan
from hopline.replay.sightings import NO_REPLIES, RECEIPTS
from hopline.wire import Distribution, Message, TtlUnit, decode

Way = Literal["ask", "deliver", "handled", "tell", "publish"]
"""How a message is sent: as who sent it then must have sent it. `handled` is to deliver until it was handled."""

_WINDOW_MESSAGES: Final = 20_000
_WINDOW_BYTES: Final = 64 * 1024 * 1024
"""What is held at once, twice: a window is read while the one before it is played. A segment is read again for each window
that has messages of it, so smaller ones would cost more than they save."""


class Play(msgspec.Struct, frozen=True):
    """A message to send, and what came of it then.

    Attributes:
        event_id: where it stands in the capture.
        flow: its correlation id then, in print.
        seen_ns: when it was seen first.
        kind: its type.
        body: its body.
        way: how it is sent.
        replies: the types that may answer it.
        is_to_node: whether it was addressed to one node.
        ttl_s: how long it may live; 0 for ever. Who asks has a deadline instead.
        then: what came of it.
    """

    event_id: str
    flow: str
    seen_ns: int
    kind: MessageType
    body: bytes
    way: Way
    replies: tuple[MessageType, ...] = ()
    is_to_node: bool = False
    ttl_s: float = 0.0
    then: Outcome = Outcome("sent")


class Script:
    """The messages of a plan.

    Args:
        plan: what is played.
        v3_ttl: the unit of TTL in v3, as for `decode`.
        window: how many messages are read at once.

    Attributes:
        gone: how many could not be read any more: their segment was deleted since it was looked at.
    """

    def __init__(self, plan: Plan, *, v3_ttl: TtlUnit = "ms", window: int = _WINDOW_MESSAGES) -> None:
        self.gone = 0
        self._plan = plan
        self._v3_ttl = v3_ttl
        self._window = window

    def windows(self) -> Iterator[list[Play]]:
        """The messages in the order of the plan, some at a time. Whoever takes them may do that in another thread."""
        for rows in self._slices():
            yield self._plays(rows)

    def _slices(self) -> Iterator[pa.Table]:
        messages = self._plan.messages
        sizes = _numbers(messages["size"]) + _numbers(messages["answer_size"])
        ends = np.cumsum(sizes)
        start = 0
        while start < len(messages):
            before = ends[start - 1] if start else 0
            by_size = int(np.searchsorted(ends, before + _WINDOW_BYTES, "right"))
            end = min(max(by_size, start + 1), start + self._window)
            yield messages.slice(start, end - start)
            start = end

    def _plays(self, rows: pa.Table) -> list[Play]:
        requests = self._read(rows["segment"], rows["place"])
        answers = self._read(rows["answer_segment"], rows["answer_place"])
        plays = []
        for row in rows.to_pylist():
            place = row["segment"], row["place"]
            request = requests.get(place)
            if request is None:
                self.gone += 1
                continue
            event_id = f"{self._plan.segments[place[0]].name}:{place[1]}"
            answer = answers.get((row["answer_segment"], row["answer_place"]))
            plays.append(make_play(request[0], event_id, row["seen_ns"], answer, row["wait_ns"]))
        return plays

    def _read(self, segments: pa.ChunkedArray, places: pa.ChunkedArray) -> dict[tuple[int, int], tuple[Message, bool]]:
        """The messages at these places, and whether their bodies are whole. What is not there any more is left out."""
        numbers, rows = _numbers(segments, -1), _numbers(places, -1)
        found = {}
        for number in np.unique(numbers[numbers >= 0]).tolist():
            wanted = np.sort(rows[numbers == number])
            for row, frames, kept in _records(self._plan.segments[number], wanted):
                try:
                    found[number, row] = decode(frames, v3_ttl=self._v3_ttl).message, kept == "whole"
                except DecodeError:
                    continue  # it was a message when the plan was made: somebody put another file there
        return found


def _records(segment: Segment, wanted: NDArray[np.int64]) -> Iterator[tuple[int, list[bytes], str]]:
    """The records in these rows of a segment: row, frames and how much of the body was kept."""
    for first_row, batch in Reading(segment, ["frames", "body_kept"]):
        start, end = np.searchsorted(wanted, [first_row, first_row + len(batch)])
        if start < end:
            rows = wanted[start:end]
            some = batch.take(pa.array(rows - first_row))
            yield from zip(rows.tolist(), some["frames"].to_pylist(), some["body_kept"].to_pylist(), strict=True)
        if end == len(wanted):
            return


def _numbers(column: pa.ChunkedArray, null: int = 0) -> NDArray[np.int64]:
    numbers: NDArray[np.int64] = column.fill_null(null).to_numpy().astype(np.int64)
    return numbers


def make_play(
    message: Message,
    event_id: str,
    seen_ns: int,
    answer: tuple[Message, bool] | None = None,
    wait_ns: int | None = None,
) -> Play:
    """Make what is sent of a message that was seen, and of its answer, if that was seen too: with its body whole, or not.

    >>> hello = Message(identity=b"HELLO", version=1, body=b"hi", callback_points=(MessageType(b"EHHLO", 1), EXCEPTION))
    >>> play = make_play(hello, "s:0", 0)
    >>> play.way, play.replies, play.then.end
    ('ask', (MessageType(identity=b'EHHLO', version=1, partition=b''),), 'none')
    """
    way, replies = _way(message)
    if answer is not None:
        wait_ms = None if wait_ns is None else wait_ns / NS_PER_MS
        then = outcome_of(answer[0], wait_ms, is_whole=answer[1])
    else:
        then = Outcome("sent" if way in ("tell", "publish") else NONE)
    return Play(
        event_id=event_id,
        flow=key_of(message.correlation_id),
        seen_ns=seen_ns,
        kind=message.type,
        body=message.body,
        way=way,
        replies=replies,
        is_to_node=bool(message.receiver_node_identity),
        ttl_s=max(message.ttl_ticks, 0) / TICKS_PER_SECOND,
        then=then,
    )


def _way(message: Message) -> tuple[Way, tuple[MessageType, ...]]:
    if message.distribution is Distribution.BROADCAST:
        return "publish", ()
    identities = {point.identity for point in message.callback_points}
    replies = tuple(point for point in message.callback_points if point.identity not in NO_REPLIES)
    if replies:
        return "ask", replies
    if HANDLED.identity in identities:
        return "handled", ()
    return ("deliver" if RECEIPT.identity in identities else "tell"), ()


def outcome_of(answer: Message, wait_ms: float | None, *, is_whole: bool = True) -> Outcome:
    """What an answer that was seen tells of the message it answers.

    >>> outcome_of(Message(identity=b"EHHLO", version=1, body=b"hi"), 2.5)
    Outcome(end='answer', type='EHHLO v1', wait_ms=2.5, body=b'hi')
    """
    if answer.identity in RECEIPTS:
        return Outcome("receipt", "", wait_ms)
    if answer.identity != EXCEPTION.identity:
        return Outcome("answer", name_of(answer.type), wait_ms, answer.body if is_whole else None)
    try:
        failure = read_failure(answer.body).type if is_whole else ""
    except PayloadError:
        failure = ""
    if failure.startswith(OUR_ERRORS):  # a node could not deliver it, and said so
        return Outcome(failure.removeprefix(OUR_ERRORS), "", wait_ms)
    return Outcome("exception", failure or "unknown", wait_ms)

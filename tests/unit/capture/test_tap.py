"""The tap: what it records of a node, and what it does when the disk is slow."""

import errno
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest

from hopline.capture.reading import Reading
from hopline.capture.store import open_capture
from hopline.capture.tap import DEFAULT_POINTS, POINTS, CaptureTap
from hopline.capture.writer import Limits
from hopline.errors import CaptureError
from hopline.payload.registry import Payload, message
from hopline.payload.service import ExceptionMessage
from hopline.wire import Message, decode, encode
from tests.unit.capture.world import START_NS, Clock, Disk

HELLO = Message(identity=b"HELLO", version=1, body=b"hello!", correlation_id=b"c1", domain="main", signature=b"s" * 16)


@message("TAP.ORDER")
class Order(Payload):
    text: str


@message("TAP.BROKEN")
class Broken(Payload):
    value: object


def tap_on(path: Path | str, **options: object) -> CaptureTap:
    tap = CaptureTap(str(path), owner=b"N1", **{"points": POINTS, **options})
    tap.start()
    return tap


def rows(path: Path) -> list[dict]:
    """What was recorded, in the order of time: in a segment each point alone is in that order."""
    found = [row for _, _, batch in open_capture(str(path)).batches() for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["seen_ns"])


# What is recorded.


@pytest.mark.parametrize(("options", "count"), [({}, 1), ({"identities": ["HELLO"]}, 0), ({"body": "none"}, 0)])
def test_what_is_no_message_is_recorded_unless_that_could_be_a_secret(tmp_path: Path, options: dict, count: int) -> None:
    tap = tap_on(tmp_path, **options)
    broken = [b"", b"", b"no", b"message", b"at all"]
    see = tap.at_network("scaleout_in")
    if see is not None:
        see([broken])
    tap.on_broken(broken)  # a node tells those who look at single messages
    tap.close()
    assert [row["frames"][2:] for row in rows(tmp_path)] == [[b"no", b"message", b"at all"]] * count


def test_frames_are_recorded_as_they_are(tmp_path: Path) -> None:
    wall, mono = Clock(START_NS), Clock(77)
    tap = tap_on(tmp_path, wall_ns=wall, mono_ns=mono)
    frames = encode(HELLO, "v5")
    tap.on_message("scaleout_in", HELLO, frames, None)
    wall.advance(1)
    mono.advance(1)
    tap.on_message("scaleout_out", Message(), encode(HELLO), None)
    tap.on_end("forwarded", HELLO, "")
    statistics = tap.close()
    first, second = rows(tmp_path)
    assert first == {
        "seen_ns": START_NS,
        "mono_ns": 77,
        "node": "N1",
        "tap": "scaleout_in",
        "direction": "in",
        "socket": None,
        "seq": 1,
        "encoded": True,
        "body_kept": "whole",
        "body_size": None,
        "source": None,
        "extra": None,
        "frames": frames,
    }
    assert (second["seen_ns"], second["mono_ns"]) == (START_NS + 10**9, 77 + 10**9)
    assert (second["tap"], second["direction"], second["seq"]) == ("scaleout_out", "out", 1)
    assert (statistics.seen, statistics.written, statistics.lost, statistics.waiting) == (2, 2, {}, 0)
    assert open_capture(str(tmp_path)).check().is_good


def test_what_passes_the_network_together_is_seen_at_one_time_and_numbered_one_by_one(tmp_path: Path) -> None:
    mono = Clock(77)
    tap = tap_on(tmp_path, wall_ns=Clock(START_NS), mono_ns=mono)
    first, second, third = (encode(msgspec.structs.replace(HELLO, body=body)) for body in (b"1", b"second", b"3rd"))
    old = encode(HELLO, "v5")
    see_in, see_out = tap.at_network("scaleout_in"), tap.at_network("scaleout_out")
    assert see_in is not None
    assert see_out is not None
    see_in([first, second])
    mono.advance(1)
    see_out([third])
    mono.advance(1)
    see_in([third, old, first])
    statistics = tap.close()
    assert (statistics.seen, statistics.written) == (6, 6)
    found = rows(tmp_path)
    assert {(row["tap"], row["seq"]): (row["mono_ns"], row["frames"]) for row in found} == {
        ("scaleout_in", 1): (77, first),
        ("scaleout_in", 2): (77, second),
        ("scaleout_out", 1): (77 + 10**9, third),
        ("scaleout_in", 3): (77 + 2 * 10**9, third),
        ("scaleout_in", 4): (77 + 2 * 10**9, old),
        ("scaleout_in", 5): (77 + 2 * 10**9, first),
    }


@pytest.mark.parametrize("options", [{}, {"identities": ["HELLO"]}, {"body": 3}])
@pytest.mark.parametrize("point", ["scaleout_in", "scaleout_out"])
def test_the_time_is_that_of_the_moment_if_somebody_says_when_it_is(options: dict, point: str, tmp_path: Path) -> None:
    wall, mono = Clock(START_NS), Clock(77)

    def pass_some(seconds: int) -> None:
        wall.advance(seconds)
        mono.advance(seconds)
        for format in ("v6", "v5"):
            tap.on_message(point, HELLO, encode(HELLO, format), None)

    tap = tap_on(tmp_path, **options, wall_ns=wall, mono_ns=mono)
    pass_some(1)
    mark = tap.at_moment(point)
    pass_some(1)
    mark()
    pass_some(1)
    pass_some(1)
    mark()
    pass_some(1)
    tap.at_moment(point)  # somebody else asks, and the moments of before are no more
    pass_some(1)
    tap.close()
    moments = [second for second in (1, 2, 2, 2, 4, 6) for _ in range(2)]
    found = [((row["seen_ns"] - START_NS) // 10**9, (row["mono_ns"] - 77) // 10**9) for row in rows(tmp_path)]
    assert found == [(moment, moment) for moment in moments]


def test_a_moment_is_that_of_one_point(tmp_path: Path) -> None:
    mono = Clock(77)
    tap = tap_on(tmp_path, wall_ns=Clock(START_NS), mono_ns=mono)
    tap.at_moment("scaleout_out")()
    mono.advance(1)
    tap.on_message("scaleout_in", HELLO, encode(HELLO), None)
    tap.on_message("hub_in", HELLO, None, None)
    tap.close()
    assert [row["mono_ns"] for row in rows(tmp_path)] == [77 + 10**9] * 2


@pytest.mark.parametrize("options", [{}, {"identities": ["HELLO"]}, {"body": 3}])
@pytest.mark.parametrize("point", ["scaleout_in", "scaleout_out", "wire_in"])
def test_messages_of_several_formats_are_written_in_the_order_of_their_numbers(
    options: dict, point: str, tmp_path: Path
) -> None:
    # In small segments, some of which are deleted: what is left must be whole without them.
    tap = tap_on(tmp_path, **options, limits=Limits(segment_bytes=1))
    formats = ["v6", "v5", "v6", "v6", "v4", "v5"]
    sent = [encode(HELLO, format) for format in formats]
    see = tap.at_network(point)
    for number in range(5):
        if see is not None:
            see(sent)
        for frames in sent:
            tap.on_message(point, HELLO, frames, None)
        if number % 2:
            assert tap.flush()
    tap.close()
    paths = sorted(tmp_path.iterdir())
    while paths:
        seqs = [row["seq"] for _, _, batch in open_capture(str(tmp_path)).batches() for row in batch.to_pylist()]
        assert seqs == sorted(set(seqs))
        assert open_capture(str(tmp_path)).check().is_good
        paths.pop(0).unlink()


def test_messages_that_come_together_are_lost_together_and_counted_one_by_one(tmp_path: Path) -> None:
    tap = CaptureTap(str(tmp_path), owner=b"N1", most_records=5)
    see = tap.at_network("scaleout_in")
    assert see is not None
    for _ in range(3):
        see([encode(HELLO)] * 4)
    assert (tap.statistics().seen, tap.statistics().waiting, tap.statistics().lost) == (12, 8, {"scaleout_in": 4})


def test_what_never_was_bytes_is_recorded_as_v6_without_a_signature(tmp_path: Path) -> None:
    tap = tap_on(tmp_path)
    tap.on_message("hub_in", HELLO, None, None)
    tap.close()
    (row,) = rows(tmp_path)
    decoded = decode(row["frames"])
    assert (row["encoded"], decoded.format) == (False, "v6")
    assert decoded.message == msgspec.structs.replace(HELLO, signature=b"")


def test_a_payload_is_recorded_as_it_was_when_it_passed(tmp_path: Path) -> None:
    tap = tap_on(tmp_path)
    order = Order("first")
    tap.on_message("actor_in", Message(identity=b"TAP.ORDER", version=1), None, order)
    order.text = "changed"
    failure = ExceptionMessage("no such order", "KeyError")
    tap.on_message("hub_in", Message(identity=b"KINO.EXCEPTION", version=1), None, failure)
    tap.close()
    first, second = (decode(row["frames"]).message.body for row in rows(tmp_path))
    assert msgspec.msgpack.decode(first) == {"text": "first"}
    assert ExceptionMessage.read(second) == failure


def test_a_payload_that_cannot_be_written_is_counted(tmp_path: Path) -> None:
    tap = tap_on(tmp_path)
    tap.on_message("hub_out", Message(identity=b"TAP.BROKEN", version=1), None, Broken(object()))
    tap.on_message("hub_out", Message(identity=b"X", version=1), None, object())
    tap.on_message("hub_out", HELLO, None, None)
    statistics = tap.close()
    assert (statistics.written, statistics.lost) == (1, {"hub_out": 2})
    (stream,) = open_capture(str(tmp_path)).check().streams
    assert (stream.gaps, stream.missing, stream.lost) == ([(1, 2)], 2, 2)


def test_a_version_that_is_a_text_is_recorded_too(tmp_path: Path) -> None:
    old = Message(identity=b"OLD", version=b"v1.0", correlation_id=b"c")
    impossible = Message(identity=b"OLD", version=b"v1.0", receiver_node_identity=b"N", callback_key=5)
    tap = tap_on(tmp_path)
    tap.on_message("actor_in", old, None, None)
    tap.on_message("actor_in", impossible, None, None)
    statistics = tap.close()
    (row,) = rows(tmp_path)
    assert decode(row["frames"]).message == old
    assert statistics.lost == {"actor_in": 1}


def test_by_default_it_looks_at_the_network_and_at_hubs() -> None:
    assert CaptureTap("unused", owner=b"N1").points == DEFAULT_POINTS
    assert frozenset({"scaleout_out", "scaleout_in", "hub_out", "hub_in"}) == DEFAULT_POINTS


def test_points_must_exist() -> None:
    with pytest.raises(ValueError, match="no such point: nowhere"):
        CaptureTap("unused", owner=b"N1", points={"nowhere", "wire_in"})


def test_what_is_not_chosen_is_neither_recorded_nor_numbered(tmp_path: Path) -> None:
    tap = tap_on(tmp_path, identities=["ORDER.*"])
    for identity in (b"ORDER.A", b"PRICE", b"ORDER.B"):
        tap.on_message("hub_out", Message(identity=identity, version=1), None, None)
    statistics = tap.close()
    assert [row["seq"] for row in rows(tmp_path)] == [1, 2]
    assert (statistics.seen, statistics.lost) == (2, {})


def test_flows_are_sampled_as_a_whole_on_every_node(tmp_path: Path) -> None:
    taps = [tap_on(tmp_path, sample=0.3, points=POINTS) for _ in range(2)]
    for number in range(200):
        flow = Message(identity=b"X", version=1, correlation_id=b"%036d" % number)
        for tap in taps:
            tap.on_message("hub_out", flow, None, None)
            tap.on_message("scaleout_out", flow, encode(flow), None)
    for tap in taps:
        tap.close()
    seen = [decode(row["frames"]).message.correlation_id for row in rows(tmp_path)]
    assert 0 < len(set(seen)) < 200
    assert all(seen.count(correlation_id) == 4 for correlation_id in set(seen))


@pytest.mark.parametrize(("body", "kept", "left"), [("none", "none", b""), (2, "cut", b"he"), (6, "whole", b"hello!")])
@pytest.mark.parametrize("format", ["v6", "v5", "v4", None])
def test_bodies_are_kept_as_asked_for(body: object, kept: str, left: bytes, format: str | None, tmp_path: Path) -> None:
    tap = tap_on(tmp_path, body=body)
    tap.on_message("hub_in", HELLO, None if format is None else encode(HELLO, format), None)
    tap.close()
    (row,) = rows(tmp_path)
    assert decode(row["frames"]).message.body == left
    assert (row["body_kept"], row["body_size"]) == (kept, None if kept == "whole" else 6)


def test_what_cannot_be_cut_is_lost_rather_than_shown(tmp_path: Path) -> None:
    tap = tap_on(tmp_path, body="none")
    tap.on_message("scaleout_in", HELLO, [b"secret"], None)
    tap.on_message("scaleout_in", HELLO, encode(HELLO), None)
    assert tap.close().lost == {"scaleout_in": 1}
    assert [row["seq"] for row in rows(tmp_path)] == [2]


def test_large_bodies_make_small_batches(tmp_path: Path) -> None:
    tap = CaptureTap(str(tmp_path), owner=b"N1", compression="none")
    large = encode(Message(identity=b"X", version=1, body=bytes(3_000_000)))
    for _ in range(5):
        tap.on_message("scaleout_in", HELLO, large, None)
    tap.start()
    tap.close()
    (segment,) = open_capture(str(tmp_path)).segments()
    assert [batch.num_rows for _, batch in Reading(segment, most_rows=1)] == [2, 2, 1]


# Thread and disk.


def test_what_was_seen_can_be_read_while_the_tap_runs(tmp_path: Path) -> None:
    tap = tap_on(tmp_path)
    for last in (1, 2, 3):
        tap.on_message("hub_out", HELLO, None, None)
        assert tap.flush()
        assert [row["seq"] for row in rows(tmp_path)] == list(range(1, last + 1))
    assert open_capture(str(tmp_path)).check().count("open") == 1
    tap.close()
    assert open_capture(str(tmp_path)).check().count("whole") == 1


def test_many_messages_arrive_in_order_and_none_is_missing(tmp_path: Path) -> None:
    tap = tap_on(tmp_path, limits=Limits(segment_bytes=50_000))
    frames = encode(HELLO)
    for _ in range(10_000):
        tap.on_message("scaleout_in", HELLO, frames, None)
        tap.on_message("scaleout_out", HELLO, frames, None)
    assert tap.close().written == 20_000
    report = open_capture(str(tmp_path)).check()
    assert (report.is_good, report.rows) == (True, 20_000)
    assert {stream.tap: stream.last_seq for stream in report.streams} == {"scaleout_in": 10_000, "scaleout_out": 10_000}


def test_what_is_seen_while_others_flush_is_recorded_once_and_in_order(tmp_path: Path) -> None:
    tap, is_done, flushed = tap_on(tmp_path), threading.Event(), []

    def flush() -> None:
        while not is_done.is_set():
            flushed.append(tap.flush())

    flushing = threading.Thread(target=flush)
    flushing.start()
    sent = [[b"", b"", b"." * (number % 300), b"%d" % number] for number in range(30_000)]
    see_in, see_out = tap.at("scaleout_in"), tap.at("scaleout_out")
    see_together = tap.at_network("scaleout_in")
    assert see_together is not None
    for start in range(0, len(sent), 30):
        for frames in sent[start : start + 10]:
            see_in(HELLO, frames, None)
        see_together(sent[start + 10 : start + 30])
        for frames in sent[start : start + 30]:
            see_out(HELLO, frames, None)
    is_done.set()
    flushing.join()
    assert all(flushed)
    assert (tap.close().written, tap.statistics().lost) == (60_000, {})
    found = rows(tmp_path)
    for point in ("scaleout_in", "scaleout_out"):
        assert [row["frames"] for row in found if row["tap"] == point] == sent


def test_a_clock_before_1970_is_recorded(tmp_path: Path) -> None:
    tap = tap_on(tmp_path, wall_ns=Clock(-5), mono_ns=Clock(-7))
    tap.at("scaleout_in")(HELLO, encode(HELLO), None)
    tap.close()
    assert [(row["seen_ns"], row["mono_ns"], row["seq"]) for row in rows(tmp_path)] == [(-5, -7, 1)]


def test_a_clock_that_is_set_is_followed(tmp_path: Path) -> None:
    wall, mono = Clock(START_NS), Clock(77)
    tap = tap_on(tmp_path, wall_ns=wall, mono_ns=mono)
    for _ in range(2):
        tap.on_message("scaleout_in", HELLO, encode(HELLO), None)
        assert tap.flush()
        wall.advance(3600)
        mono.advance(1)
    tap.close()
    assert [(row["seen_ns"], row["mono_ns"]) for row in rows(tmp_path)] == [
        (START_NS, 77),
        (START_NS + 3600 * 10**9, 77 + 10**9),
    ]


def test_being_held_up_between_two_clocks_does_not_change_the_time(tmp_path: Path) -> None:
    # A record; then, for the page is full, a look that takes 5 ms and one that takes 4 ns; then all the rest.
    now = iter([100, 200, 5_000_200, 5_000_300, 5_000_304])
    tap = CaptureTap(str(tmp_path), owner=b"N1", wall_ns=Clock(START_NS + 5_000_302), mono_ns=lambda: next(now, 5_000_400))
    large = encode(Message(identity=b"X", version=1, body=bytes(6_000_000)))
    for _ in range(2):
        tap.on_message("scaleout_in", HELLO, large, None)
    tap.start()
    tap.close()
    assert (100, START_NS + 100) in [(row["mono_ns"], row["seen_ns"]) for row in rows(tmp_path)]


def test_an_interrupt_in_the_middle_of_a_record_harms_no_other(tmp_path: Path) -> None:
    is_now, here = False, threading.get_ident()

    def mono_ns() -> int:
        if is_now and threading.get_ident() == here:
            raise KeyboardInterrupt
        return 5

    tap = tap_on(tmp_path, mono_ns=mono_ns)
    first, second, third = (encode(msgspec.structs.replace(HELLO, body=body)) for body in (b"1", b"second", b"3rd"))
    tap.on_message("scaleout_in", HELLO, first, None)
    is_now = True
    with pytest.raises(KeyboardInterrupt):
        tap.on_message("scaleout_in", HELLO, second, None)
    is_now = False
    tap.on_message("scaleout_in", HELLO, third, None)
    statistics = tap.close()
    assert (statistics.written, statistics.lost) == (2, {"scaleout_in": 1})
    assert [(row["seq"], row["frames"]) for row in rows(tmp_path)] == [(1, first), (3, third)]


def test_a_slow_disk_costs_messages_and_never_the_node(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    tap = tap_on("captures", filesystem=disk.filesystem, most_records=10)
    disk.gate.clear()
    disk.at_gate.clear()
    frames = encode(HELLO)
    tap.on_message("scaleout_in", HELLO, frames, None)
    flushing = threading.Thread(target=tap.flush)
    flushing.start()
    disk.at_gate.wait()  # the thread has the first message in hand, and hangs
    for _ in range(25):
        tap.on_message("scaleout_in", HELLO, frames, None)
    statistics = tap.statistics()
    assert (statistics.seen, statistics.waiting, statistics.lost) == (26, 11, {"scaleout_in": 15})
    disk.gate.set()
    flushing.join()
    assert tap.flush()
    tap.on_message("scaleout_in", HELLO, frames, None)
    statistics = tap.close()
    assert (statistics.written, statistics.lost, statistics.waiting) == (12, {"scaleout_in": 15}, 0)
    report = open_capture("captures", filesystem=disk.filesystem).check()
    (stream,) = report.streams
    assert (stream.gaps, stream.missing, stream.lost) == ([(12, 26)], 15, 15)


def test_what_waits_is_bounded_by_bytes_too(tmp_path: Path) -> None:
    tap = CaptureTap(str(tmp_path), owner=b"N1", most_bytes=10_000)
    frames = encode(Message(identity=b"X", version=1, body=bytes(3000)))
    for _ in range(10):
        tap.on_message("scaleout_in", HELLO, frames, None)
    assert (tap.statistics().waiting, tap.statistics().lost) == (3, {"scaleout_in": 7})
    tap.start()
    assert tap.flush()
    tap.on_message("scaleout_in", HELLO, frames, None)
    assert tap.close().written == 4


def test_rows_and_flat_records_share_the_bound(tmp_path: Path) -> None:
    tap = CaptureTap(str(tmp_path), owner=b"N1", points=POINTS, most_records=5)
    for _ in range(4):
        tap.on_message("scaleout_in", HELLO, encode(HELLO), None)
        tap.on_message("hub_in", HELLO, None, None)
    assert (tap.statistics().waiting, sum(tap.statistics().lost.values())) == (5, 3)


def test_a_tap_that_is_full_makes_no_body_of_a_payload(tmp_path: Path) -> None:
    made = []

    class Failure(ExceptionMessage):
        def write(self) -> bytes:
            made.append(self)
            return super().write()

    tap = CaptureTap(str(tmp_path), owner=b"N1", points=POINTS, most_records=2)
    for _ in range(5):
        tap.on_message("hub_in", Message(identity=b"KINO.EXCEPTION", version=1), None, Failure("no", "KeyError"))
    assert (len(made), tap.statistics().waiting, tap.statistics().lost) == (2, 2, {"hub_in": 3})


def test_a_disk_that_hangs_does_not_hang_the_end(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    tap = tap_on("captures", filesystem=disk.filesystem)
    disk.gate.clear()
    tap.on_message("hub_out", HELLO, None, None)
    statistics = tap.close(timeout_s=0.01)
    assert (statistics.written, statistics.waiting) == (0, 1)
    disk.gate.set()
    assert tap.close().written == 1


def test_a_disk_that_fails_is_counted_and_tried_again(tmp_path: Path) -> None:
    disk, mono = Disk(tmp_path), Clock(0)
    tap = tap_on("captures", filesystem=disk.filesystem, mono_ns=mono)
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    tap.on_message("hub_out", HELLO, None, None)
    assert tap.flush()
    assert tap.statistics().lost == {"hub_out": 1}
    assert "No space" in tap.statistics().last_error
    disk.error = None
    mono.advance(2)
    tap.on_message("hub_out", HELLO, None, None)
    statistics = tap.close()
    assert (statistics.written, statistics.lost) == (1, {"hub_out": 1})
    (stream,) = open_capture("captures", filesystem=disk.filesystem).check().streams
    assert (stream.gaps, stream.lost) == ([(1, 1)], 1)


def test_a_mistake_of_ours_costs_a_batch_and_not_the_thread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tap = tap_on(tmp_path)
    tap.on_message("hub_in", msgspec.structs.replace(HELLO, body="no bytes at all"), None, None)
    assert tap.flush()
    assert "could not be made" in caplog.text
    tap.on_message("hub_in", HELLO, None, None)
    statistics = tap.close()
    assert (statistics.written, statistics.lost) == (1, {"hub_in": 1})


@pytest.mark.parametrize("frames", [["no", "bytes", "at", "all"], [b"", b"", None, b""], ["no bytes at all"]])
def test_frames_that_are_no_bytes_are_counted_and_harm_no_other(frames: list, tmp_path: Path) -> None:
    tap = tap_on(tmp_path)
    tap.on_message("scaleout_in", HELLO, frames, None)
    tap.on_message("scaleout_in", HELLO, encode(HELLO), None)
    statistics = tap.close()
    assert (statistics.written, statistics.lost) == (1, {"scaleout_in": 1})
    assert [(row["seq"], row["frames"]) for row in rows(tmp_path)] == [(2, encode(HELLO))]


def test_what_is_no_bytes_costs_what_came_with_it_and_no_other(tmp_path: Path) -> None:
    tap = tap_on(tmp_path)
    see = tap.at_network("scaleout_in")
    assert see is not None
    good, bad = encode(HELLO), [b"", b"", None, b""]
    for messages in ([good, good], [good, bad, good], [good]):
        see(messages)  # type: ignore[arg-type]
    statistics = tap.close()
    assert (statistics.written, statistics.lost) == (3, {"scaleout_in": 3})
    assert [(row["seq"], row["frames"]) for row in rows(tmp_path)] == [(1, good), (2, good), (6, good)]


def test_it_does_not_start_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError):
        tap_on(tmp_path / "file")


def test_what_comes_after_the_end_is_counted(tmp_path: Path) -> None:
    tap = tap_on(tmp_path)
    tap.on_message("hub_out", HELLO, None, None)
    tap.close()
    tap.on_message("hub_out", HELLO, None, None)
    assert tap.statistics().lost == {"hub_out": 1}


def test_a_tap_that_never_started_can_be_closed() -> None:
    assert CaptureTap("unused", owner=b"N1").close().written == 0


def test_writing_does_not_import_compute() -> None:
    # It would take a tenth of a second, with the interpreter held, at the first batch of a node that is at work.
    probe = """
import sys, tempfile
from hopline.capture.tap import CaptureTap
from hopline.wire import Message, encode
with tempfile.TemporaryDirectory() as folder:
    tap = CaptureTap(folder, owner=b"N1")
    tap.start()
    tap.on_message("hub_out", Message(identity=b"A", version=1, body=b"12345"), None, None)
    tap.on_message("scaleout_out", Message(), encode(Message(identity=b"A", version=1)), None)
    assert tap.close().written == 2
print("pyarrow.compute" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_neither_writing_nor_reading_imports_pandas() -> None:
    # It takes half a second and 60 MB, and numpy and pyarrow would bring it in at many places if it is there.
    probe = """
import sys, tempfile
from pathlib import Path
from hopline.capture.jsonl import Import, export_lines
from hopline.capture.store import open_capture
from hopline.capture.tap import CaptureTap
from hopline.wire import Message, encode
with tempfile.TemporaryDirectory() as folder:
    tap = CaptureTap(folder, owner=b"N1", body=3)
    tap.start()
    tap.on_message("hub_out", Message(identity=b"A", version=1, body=b"12345"), None, None)
    tap.on_message("scaleout_out", Message(), encode(Message(identity=b"A", version=1)), None)
    tap.close()
    lines = Path(folder, "a.jsonl")
    lines.write_text("".join('{"seen_ns":%d,"node":"N1","direction":"in","frames":["4e32"]}\\n' % ns for ns in (9, 5)))
    with Import(folder) as target:
        target.add(lines)
    capture = open_capture(folder)
    assert capture.check().is_good
    assert len(list(export_lines(capture))) == 4
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=50, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")

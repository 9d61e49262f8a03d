"""The writer: rolling, keeping, losing and counting."""

import errno
import logging
import os
import resource
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from hopline.capture.reading import Reading
from hopline.capture.segment import list_segments
from hopline.capture.store import open_capture
from hopline.capture.writer import CaptureWriter, Limits
from hopline.errors import CaptureError
from tests.unit.capture.world import START_NS, Clock, Disk, make_segment, records


@pytest.fixture
def wall() -> Clock:
    return Clock(START_NS)


@pytest.fixture
def mono() -> Clock:
    return Clock(0)


def started(path: Path | str, wall: Clock, mono: Clock, **options: object) -> CaptureWriter:
    writer = CaptureWriter(str(path), owner=b"N1", wall_ns=wall, mono_ns=mono, **options)
    writer.start()
    return writer


def readings(path: Path) -> list[Reading]:
    return [Reading(segment).look() for segment in open_capture(str(path)).segments()]


def seqs(path: Path) -> list[int]:
    return [seq for _, _, batch in open_capture(str(path)).batches(columns=["seq"]) for seq in batch["seq"].to_pylist()]


# Segments.


def test_what_is_written_is_there_at_once_and_sealed_at_the_end(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    writer = started(tmp_path / "new" / "captures", wall, mono)
    path = tmp_path / "new" / "captures"
    assert writer.write(records(1, 3))
    assert seqs(path) == [1, 2, 3]
    assert writer.write(records(4, 2))
    statistics = writer.close()
    assert seqs(path) == [1, 2, 3, 4, 5]
    assert (statistics.written, statistics.lost, statistics.sealed) == (5, {}, 1)
    (reading,) = readings(path)
    assert reading.segment.is_sealed
    assert reading.segment.size == statistics.size
    assert (reading.head.owner, reading.head.run, reading.head.number) == ("N1", writer.run, 1)
    assert reading.head.started_ns == START_NS
    assert reading.head.pid
    assert reading.seal.reason == "closed"


def test_a_writer_that_saw_nothing_leaves_nothing(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    writer = started(tmp_path, wall, mono)
    assert len(list(tmp_path.iterdir())) == 1, "it shows that it lives"
    assert writer.write(records(1, 0))
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_a_segment_that_is_large_enough_is_sealed(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    writer = started(tmp_path, wall, mono, limits=Limits(segment_bytes=5000))
    for first in range(1, 61, 10):
        writer.write(records(first, 10))
        wall.advance(1)
    writer.close()
    found = readings(tmp_path)
    assert len(found) >= 3
    assert [reading.head.number for reading in found] == list(range(1, len(found) + 1))
    assert [reading.seal.reason for reading in found] == ["rolled"] * (len(found) - 1) + ["closed"]
    assert all(reading.segment.size >= 5000 for reading in found[:-1])
    assert seqs(tmp_path) == list(range(1, 61))


def test_a_segment_that_is_old_enough_is_sealed_also_if_nothing_comes(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    writer = started(tmp_path, wall, mono, limits=Limits(segment_s=10))
    mono.advance(60)
    writer.tick()
    assert len(readings(tmp_path)) == 1, "an empty one is kept"
    writer.write(records(1, 1))
    writer.tick()
    wall.advance(1)
    assert [reading.segment.is_sealed for reading in readings(tmp_path)] == [False], "its age counts from its first record"
    mono.advance(9.9)
    writer.write(records(2, 1))
    writer.tick()
    assert [reading.segment.is_sealed for reading in readings(tmp_path)] == [False]
    mono.advance(0.1)
    writer.tick()
    assert [reading.segment.is_sealed for reading in readings(tmp_path)] == [True, False]
    writer.close()
    assert [reading.seal.reason for reading in readings(tmp_path)] == ["rolled", "closed"]
    assert open_capture(str(tmp_path)).check().is_good


def test_runs_of_one_owner_do_not_get_into_each_others_way(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    writers = [started(tmp_path, wall, mono) for _ in range(3)]
    for writer in writers:
        writer.write(records(1, 2))
    for writer in writers:
        writer.close()
    assert len({reading.head.run for reading in readings(tmp_path)}) == 3
    assert seqs(tmp_path) == [1, 2] * 3


# Retention.


def test_segments_that_are_too_old_are_deleted(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    writer = started(tmp_path, wall, mono, limits=Limits(segment_bytes=1, keep_s=100))
    for first in range(1, 6):
        writer.write(records(first, 1))
        written = max(segment for segment in tmp_path.glob("*.arrows"))
        os.utime(written, ns=(wall.ns, wall.ns))
        wall.advance(60)
    statistics = writer.close()
    assert seqs(tmp_path) == [4, 5]
    assert statistics.deleted == 3


def test_segments_that_are_too_old_are_deleted_also_if_nothing_comes(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    writer = started(tmp_path, wall, mono, limits=Limits(segment_bytes=1, keep_s=100))
    writer.write(records(1, 1))
    wall.ns = time.time_ns()
    wall.advance(101)
    mono.advance(59)
    writer.tick()
    assert seqs(tmp_path) == [1]
    mono.advance(1)
    writer.tick()
    assert seqs(tmp_path) == []
    writer.close()


def test_the_oldest_are_deleted_when_all_are_too_large(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    earlier = make_segment(tmp_path, [records(1, 1)], owner="a run before", started_ns=START_NS - 5000)
    size = earlier.stat().st_size
    writer = started(tmp_path, wall, mono, limits=Limits(segment_bytes=1, keep_bytes=3 * size))
    for first in range(1, 8):
        wall.advance(1)
        writer.write(records(first, 1))
    writer.close()
    found = readings(tmp_path)
    assert sum(reading.segment.size for reading in found) <= 3 * size + size
    assert [reading.head.number for reading in found][-2:] == [7, 8], "7, and the empty one that says it ended well"
    assert not earlier.exists(), "a node that is started again has another identity"


def test_what_an_earlier_run_left_open_is_deleted_too_but_never_what_is_alive(
    tmp_path: Path, wall: Clock, mono: Clock
) -> None:
    dead = make_segment(tmp_path, [records(1, 1)], seal=None, started_ns=START_NS - 10**12)
    alive = started(tmp_path, Clock(START_NS - 10**12 + 5000), mono)
    alive.write(records(1, 1))
    writer = started(tmp_path, wall, mono, limits=Limits(keep_bytes=1))
    assert not dead.exists()
    assert [segment.run for segment in open_capture(str(tmp_path)).segments()] == [alive.run, writer.run]
    alive.close()
    writer.close()


def test_imported_segments_are_not_touched(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    imported = make_segment(tmp_path, [records(1, 1)], is_import=True, started_ns=1)
    foreign = tmp_path / "mine.arrows"
    foreign.write_bytes(b"somebody's own")
    started(tmp_path, wall, mono, limits=Limits(keep_s=1, keep_bytes=1)).close()
    assert imported.exists()
    assert foreign.exists()


# Losing.


def test_what_was_lost_is_said_in_the_next_batch(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    writer = started(tmp_path, wall, mono)
    writer.lose(Counter(hub_in=2))
    writer.lose(Counter(hub_in=1, hub_out=4))
    writer.write(records(1, 1))
    assert readings(tmp_path)[0].lost == {"hub_in": 3, "hub_out": 4}
    writer.write(records(2, 1))
    writer.lose(Counter(hub_in=10))
    statistics = writer.close()
    assert readings(tmp_path)[0].lost == {"hub_in": 13, "hub_out": 4}, "and what is lost at the end, when it is sealed"
    assert statistics.lost == {"hub_in": 13, "hub_out": 4}


def test_a_writer_that_lost_everything_still_says_so(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    writer = started(tmp_path, wall, mono)
    writer.lose(Counter(hub_in=2))
    writer.close()
    (reading,) = readings(tmp_path)
    assert (reading.rows, reading.lost) == (0, {"hub_in": 2})


def test_it_does_not_start_where_it_cannot_write(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CaptureError) as caught:
        started(tmp_path / "file", wall, mono)
    assert caught.value.code == "CAPTURE_CANNOT_WRITE"
    disk = Disk(tmp_path)
    writer = CaptureWriter("captures", owner=b"N1", filesystem=disk.filesystem)
    (tmp_path / "captures").mkdir()
    disk.create_dir = lambda path, recursive: None
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(CaptureError, match="No space left"):
        writer.start()


def test_a_disk_that_fails_costs_what_comes_meanwhile_and_is_tried_again(
    tmp_path: Path, wall: Clock, mono: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(tmp_path)
    writer = started("captures", wall, mono, filesystem=disk.filesystem)
    writer.write(records(1, 2))
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    with caplog.at_level(logging.WARNING):
        assert not writer.write(records(3, 2))
        assert not writer.write(records(5, 2))
        mono.advance(2)
        assert not writer.write(records(7, 2))
        writer.tick()
    assert [record.levelname for record in caplog.records] == ["WARNING"], "it is said once"
    assert "No space left" in writer.statistics().last_error
    disk.error = None
    assert not writer.write(records(9, 2)), "the disk is left alone for a second"
    mono.advance(2)
    wall.advance(2)
    with caplog.at_level(logging.WARNING):
        assert writer.write(records(11, 2))
    assert "again" in caplog.messages[-1]
    statistics = writer.close()
    assert (statistics.written, statistics.lost) == (4, {"scaleout_in": 8})
    path = tmp_path / "captures"
    assert seqs(path) == [1, 2, 11, 12]
    report = open_capture(str(path)).check()
    (stream,) = report.streams
    assert (stream.missing, stream.lost) == (8, 8)


@pytest.fixture
def most_file_bytes() -> Iterator[object]:
    """Sets how large a file of this process may become; writing beyond it fails after a part was written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_local_disk_that_is_full_leaves_a_whole_segment(
    tmp_path: Path, wall: Clock, mono: Clock, most_file_bytes: object
) -> None:
    writer = started(tmp_path, wall, mono, compression="none")
    writer.write(records(1, 2))
    most_file_bytes(writer.statistics().size + 2000)
    is_written = writer.write(records(3, 200))
    most_file_bytes(resource.RLIM_INFINITY)
    assert not is_written
    (reading,) = readings(tmp_path)
    assert (reading.rows, reading.problems, reading.segment.is_sealed) == (2, [], True)
    mono.advance(2)
    wall.advance(2)
    writer.write(records(203, 1))
    writer.close()
    assert seqs(tmp_path) == [1, 2, 203]
    assert readings(tmp_path)[1].lost == {"scaleout_in": 200}


def test_a_local_disk_without_any_room_leaves_an_open_segment_and_no_litter(
    tmp_path: Path, wall: Clock, mono: Clock, most_file_bytes: object
) -> None:
    writer = started(tmp_path, wall, mono)
    writer.write(records(1, 2))
    most_file_bytes(100)
    for first in range(3, 9):
        assert not writer.write(records(first, 1))
        mono.advance(2)
        wall.advance(2)
    most_file_bytes(resource.RLIM_INFINITY)
    (reading,) = readings(tmp_path)
    assert (reading.rows, reading.segment.is_sealed) == (2, False)
    statistics = writer.close()
    assert statistics.lost == {"scaleout_in": 6}
    assert [reading.lost for reading in readings(tmp_path)] == [{}, {"scaleout_in": 6}]


def test_a_folder_that_is_deleted_is_made_again_and_what_was_in_it_is_lost(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    path = tmp_path / "captures"
    writer = started(path, wall, mono, limits=Limits(segment_s=10))
    writer.write(records(1, 3))
    shutil.rmtree(path)
    writer.write(records(4, 1))  # into a file without a name: nobody can notice yet
    mono.advance(11)
    writer.tick()
    assert writer.statistics().lost == {"scaleout_in": 4}
    assert writer.statistics().written == 0
    mono.advance(2)
    writer.write(records(5, 1))
    writer.close()
    assert seqs(path) == [5]
    assert readings(path)[0].lost == {"scaleout_in": 4}


def test_a_batch_that_no_arrow_batch_can_hold_is_lost_and_nothing_else(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 2**31

    writer = started(tmp_path, wall, mono)
    huge = records(1, 1)
    huge.frames = [[Huge()]]
    assert not writer.write(huge)
    assert writer.write(records(2, 1))
    assert writer.close().lost == {"scaleout_in": 1}
    assert seqs(tmp_path) == [2]


def test_closing_a_disk_that_fails_says_what_was_lost(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    disk = Disk(tmp_path)
    writer = started("captures", wall, mono, filesystem=disk.filesystem)
    writer.write(records(1, 1))
    disk.error = OSError(errno.EIO, "Input/output error")
    writer.write(records(2, 1))
    statistics = writer.close()
    assert (statistics.written, statistics.lost) == (1, {"scaleout_in": 1})
    assert statistics.last_error == "Input/output error" or "Input/output error" in statistics.last_error


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_every_compression_reads_the_same(compression: str, tmp_path: Path, wall: Clock, mono: Clock) -> None:
    writer = started(tmp_path, wall, mono, compression=compression)
    writer.write(records(1, 2000))
    writer.close()
    assert seqs(tmp_path) == list(range(1, 2001))


def test_other_file_systems_will_do(tmp_path: Path, wall: Clock, mono: Clock) -> None:
    disk = Disk(tmp_path)
    writer = started("captures", wall, mono, filesystem=disk.filesystem, limits=Limits(segment_bytes=1))
    for first in (1, 2, 3):
        writer.write(records(first, 1))
        wall.advance(1)
    writer.close()
    capture = open_capture("captures", filesystem=disk.filesystem)
    assert [batch["seq"].to_pylist() for _, _, batch in capture.batches()] == [[1], [2], [3]]
    assert capture.check().is_good
    assert all(segment.is_sealed for segment in list_segments(capture.folder))

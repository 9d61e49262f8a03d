"""Pieces of segments: whatever the cuts, every record is read once, and what is wrong is said once."""

import pickle
import random
from itertools import pairwise
from pathlib import Path

import pytest

from hopline.capture import Problem, open_capture
from hopline.capture.folder import open_folder
from hopline.errors import CaptureError
from hopline.spark.pieces import Piece, PieceReading, Share, Stretch, Times, shares, whole_end
from tests.unit.capture.world import START_NS, Disk, make_segment, records

BATCHES = [records(1, 5), records(6, 1), records(7, 20), records(27, 4)]
ROWS = list(range(30))
HUGE = 1 << 40
ALWAYS = Times()


def plan(path: Path, share_bytes: int = HUGE) -> list[Share]:
    found = open_capture(str(path)).segments()
    ends = [(segment, segment.size if segment.is_sealed else whole_end(segment).end) for segment in found]
    return shares([Stretch(segment, 0, end) for segment, end in ends], share_bytes)


def read(path: Path, planned: list[Share], times: Times = ALWAYS) -> tuple[list[tuple[str, int]], list[Problem]]:
    """Segment and number of every row that is read, and the problems."""
    rows, problems = [], []
    for share in planned:
        for piece in share.pieces:
            reading = PieceReading(open_folder(str(path)), piece, ["seq", "frames"], times)
            for first_row, batch in reading:
                assert batch["seq"].to_pylist() == [first_row + 1 + place for place in range(len(batch))]
                rows += [(piece.segment, first_row + place) for place in range(len(batch))]
            problems += reading.problems
    return rows, problems


def numbers(path: Path, planned: list[Share], times: Times = ALWAYS) -> list[int]:
    rows, problems = read(path, planned, times)
    assert problems == []
    return [row for _, row in rows]


@pytest.mark.parametrize("is_sealed", [True, False])
def test_every_cut_gives_every_row_once(tmp_path, is_sealed):
    file = make_segment(tmp_path, BATCHES, seal="closed" if is_sealed else None)
    counts = set()
    for share_bytes in range(100, file.stat().st_size + 200, 37):
        planned = plan(tmp_path, share_bytes)
        counts.add(sum(len(share.pieces) for share in planned))
        assert numbers(tmp_path, planned) == ROWS, share_bytes
    assert len(counts) > 5


def test_a_cut_leaves_no_byte_out_and_takes_none_twice(tmp_path):
    make_segment(tmp_path, BATCHES)
    (segment,) = open_capture(str(tmp_path)).segments()
    pieces = [piece for share in shares([Stretch(segment, 7, 1007)], 100) for piece in share.pieces]
    assert (pieces[0].start, pieces[-1].stop) == (7, 1007)
    assert all(before.stop == after.start for before, after in pairwise(pieces))


@pytest.mark.parametrize(("cores", "count"), [(1, 8), (2, 8), (16, 16), (64, 16)])
def test_by_default_shares_are_large_unless_cores_would_have_nothing_to_do(tmp_path, monkeypatch, cores, count):
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    make_segment(tmp_path, BATCHES)
    (segment,) = open_capture(str(tmp_path)).segments()
    assert len(shares([Stretch(segment, 0, 1 << 30)])) == count


def test_small_segments_are_put_together_and_keep_their_order(tmp_path):
    for number in range(1, 301):
        make_segment(tmp_path, [records(1, 2)], number=number)
    planned = plan(tmp_path, 4 * 1024 * 1024)
    assert 2 <= len(planned) <= 6
    names = [piece.segment for share in planned for piece in share.pieces]
    assert names == sorted(names)
    assert len(read(tmp_path, planned)[0]) == 600


@pytest.mark.parametrize(("count", "size", "share_bytes"), [(1, 1_000_000, 1), (20_000, 1000, 1000)])
def test_there_is_an_end_to_how_many_shares_there_are(tmp_path, count, size, share_bytes):
    make_segment(tmp_path, BATCHES)
    (segment,) = open_capture(str(tmp_path)).segments()
    assert 5000 < len(shares([Stretch(segment, 0, size)] * count, share_bytes)) <= 10_000


def test_nothing_to_read_is_one_empty_share():
    assert shares([], 100) == [Share(())]


def test_shares_travel_to_executors():
    share = Share((Piece("name", 0, 1, 2, 3),))
    assert pickle.loads(pickle.dumps(share)) == share


# --- growing ----------------------------------------------------------------------------------------------------------


def test_an_open_segment_is_read_as_far_as_it_is_whole(tmp_path):
    file = make_segment(tmp_path, BATCHES, seal=None)
    size = file.stat().st_size
    ends = set()
    data = file.read_bytes()
    for cut in (*range(0, size, 13), size):
        file.write_bytes(data[:cut])
        (segment,) = open_capture(str(tmp_path)).segments()
        found = whole_end(segment)
        assert found.end <= cut
        assert not found.is_final
        ends.add(found.end)
        assert numbers(tmp_path, plan(tmp_path)) in ([], ROWS[:5], ROWS[:6], ROWS[:26], ROWS)
    assert len(ends) == 6  # nothing, the head, and each batch


def test_what_is_planned_is_what_is_read_though_the_segment_grows_and_is_sealed(tmp_path):
    file = make_segment(tmp_path, BATCHES, seal=None)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) - 300])
    planned = plan(tmp_path)
    before = numbers(tmp_path, planned)
    assert before == ROWS[:26]
    file.write_bytes(data)
    assert numbers(tmp_path, planned) == before
    file.unlink()
    make_segment(tmp_path, BATCHES)
    assert numbers(tmp_path, planned) == before


def test_reading_goes_on_where_it_stopped(tmp_path):
    file = make_segment(tmp_path, BATCHES, seal=None)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) - 300])
    (segment,) = open_capture(str(tmp_path)).segments()
    base = whole_end(segment).end
    file.write_bytes(data)
    (segment,) = open_capture(str(tmp_path)).segments()
    found = whole_end(segment, base)
    for share_bytes in (50, 150, HUGE):
        assert numbers(tmp_path, shares([Stretch(segment, base, found.end)], share_bytes)) == ROWS[26:]


def test_only_what_was_listed_counts(tmp_path):
    file = make_segment(tmp_path, BATCHES, seal=None)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) - 300])
    (segment,) = open_capture(str(tmp_path)).segments()
    before = whole_end(segment)
    file.write_bytes(data)
    assert whole_end(segment) == before


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_a_sealed_segment_is_final(tmp_path):
    file = make_segment(tmp_path, BATCHES)
    (segment,) = open_capture(str(tmp_path)).segments()
    assert whole_end(segment) == (file.stat().st_size, True, "")


@pytest.mark.parametrize("share_bytes", [200, HUGE])
def test_a_sealed_segment_that_just_stops_is_read_to_there_and_may_still_grow(tmp_path, share_bytes):
    file = make_segment(tmp_path, BATCHES)
    data = file.read_bytes()
    for cut in range(0, len(data), 61):
        file.write_bytes(data[:cut])
        (segment,) = open_capture(str(tmp_path)).segments()
        found = whole_end(segment)
        assert not found.is_final
        assert found.reason
        assert whole_end(segment, found.end).reason
        assert numbers(tmp_path, plan(tmp_path, share_bytes)) in ([], ROWS[:5], ROWS[:6], ROWS[:26], ROWS)


@pytest.mark.parametrize("share_bytes", [500, HUGE])
def test_garbage_is_one_problem_whatever_the_cuts(tmp_path, share_bytes):
    name = "20261115T231501123456Z-N1-9f86d081-000001"
    (tmp_path / f"{name}.arrows").write_bytes(random.Random(1).randbytes(5000))
    (segment,) = open_capture(str(tmp_path)).segments()
    assert whole_end(segment).is_final
    rows, problems = read(tmp_path, plan(tmp_path, share_bytes))
    assert rows == []
    assert [(problem.code, problem.segment, problem.position) for problem in problems] == [("CAPTURE_DAMAGED", name, 0)]


@pytest.mark.slow
def test_a_wrong_byte_costs_one_batch_and_is_said_once_and_in_the_same_words_whatever_the_cuts(tmp_path):
    file = make_segment(tmp_path, BATCHES)
    data = bytearray(file.read_bytes())
    whole = read(tmp_path, plan(tmp_path))
    assert whole[1] == []
    for place in range(0, len(data) - 8, 97):
        data[place] ^= 0x10
        file.write_bytes(bytes(data))
        answers = [read(tmp_path, plan(tmp_path, share_bytes)) for share_bytes in (HUGE, 1000, 333, 100)]
        assert all(answer == answers[0] for answer in answers), place
        assert set(answers[0][0]) <= set(whole[0])
        data[place] ^= 0x10


def test_a_deleted_segment_is_a_problem_and_not_an_error(tmp_path):
    file = make_segment(tmp_path, BATCHES)
    planned = plan(tmp_path)
    (segment,) = open_capture(str(tmp_path)).segments()
    file.unlink()
    rows, problems = read(tmp_path, planned)
    assert rows == []
    assert [problem.code for problem in problems] == ["CAPTURE_NOT_FOUND"]
    assert whole_end(segment) is None


@pytest.mark.parametrize("share_bytes", [1000, HUGE])
@pytest.mark.parametrize("end", ["arrows", "open"])
def test_a_segment_that_is_shorter_than_it_was_is_as_if_it_was_deleted(tmp_path, share_bytes, end):
    """It is copied again in place: what is there of it is read when it is planned anew."""
    file = make_segment(tmp_path, BATCHES, seal="closed" if end == "arrows" else None)
    data, planned = file.read_bytes(), plan(tmp_path, share_bytes)
    for size in (0, 10, len(data) - 3000, len(data) - 1):
        file.write_bytes(data[:size])
        rows, problems = read(tmp_path, planned)
        assert rows == []
        assert {(problem.code, problem.segment) for problem in problems} == {("CAPTURE_NOT_FOUND", file.stem)}
        assert {problem.reason for problem in problems} == {"it is shorter than it was when the work was planned"}
        assert numbers(tmp_path, plan(tmp_path, share_bytes)) in ([], ROWS[:5], ROWS[:6], ROWS[:26], ROWS)
    file.write_bytes(data)
    assert numbers(tmp_path, planned) == ROWS


def test_a_disk_that_fails_is_an_error(tmp_path):
    make_segment(tmp_path, BATCHES)
    disk = Disk(tmp_path)
    capture = open_capture(".", filesystem=disk.filesystem)
    (segment,) = capture.segments()
    disk.read_error = OSError(5, "Input/output error")
    with pytest.raises(CaptureError, match="Input/output error") as raised:
        list(PieceReading(capture.folder, Piece(segment.name, 0, 0, 100, 100), ["seq"], Times()))
    assert raised.value.code == "CAPTURE_CANNOT_READ"
    with pytest.raises(CaptureError, match="Input/output error"):
        whole_end(segment)


# --- time -------------------------------------------------------------------------------------------------------------


def seen_ns(seq: int) -> int:
    return START_NS + 1000 * seq


@pytest.mark.parametrize("share_bytes", [200, HUGE])
@pytest.mark.parametrize(
    ("times", "rows"),
    [
        (Times(seen_ns(6), seen_ns(7)), ROWS[5:6]),
        (Times(seen_ns(8), None), ROWS[6:]),
        (Times(None, seen_ns(6)), ROWS[:5]),
        (Times(seen_ns(31), None), []),
        (Times(None, seen_ns(1)), []),
    ],
)
def test_batches_of_another_time_are_not_read(tmp_path, times, rows, share_bytes):
    make_segment(tmp_path, BATCHES)
    assert numbers(tmp_path, plan(tmp_path, share_bytes), times) == rows

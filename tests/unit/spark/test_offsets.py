"""Offsets of the stream: every row once, whatever comes, grows and goes between two batches."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles

from hopline.capture import open_capture
from hopline.capture.jsonl import Import
from hopline.errors import CaptureError
from hopline.spark.offsets import CaptureStreamReader, Numbers, Taken
from hopline.spark.options import read_options
from hopline.spark.rows import Rows
from tests.unit.capture.world import killed_import, make_segment, records, write_lines

ALL = ReadAllAvailable()


class Stream:
    """A stream as Spark drives it: offsets go through JSON, and a reader may be a new one at any time."""

    def __init__(self, path: Path, **options: str) -> None:
        self._options = read_options({"path": str(path), "columns": "event_id,seq", **options})
        self.reader = self._new()
        self.offset = self.reader.initialOffset()

    def _new(self) -> CaptureStreamReader:
        return CaptureStreamReader(Rows(self._options, self._options.schema))

    def restart(self) -> None:
        self.reader = self._new()

    def rows_between(self, start: dict, end: dict) -> list[str]:
        shares = self.reader.partitions(start, end)
        return [each for share in shares for batch in self.reader.read(share) for each in batch["event_id"].to_pylist()]

    def latest(self, limit=ALL) -> dict:
        return json.loads(json.dumps(self.reader.latestOffset(json.loads(json.dumps(self.offset)), limit)))

    def batch(self, limit=ALL) -> list[str]:
        """Take one batch."""
        end = self.latest(limit)
        rows = [] if end == self.offset else self.rows_between(self.offset, end)
        self.offset = end
        return rows


def ids(file: Path, *rows: int) -> list[str]:
    return [f"{file.stem}:{row}" for row in rows]


# --- numbers ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 30)))
def test_numbers_are_a_set(added):
    numbers = Numbers()
    for number in added:
        numbers.add(number)
    assert [number in numbers for number in range(32)] == [number in set(added) for number in range(32)]
    assert len(numbers) == len(set(added))
    assert str(Numbers.read(str(numbers))) == str(numbers)


def test_numbers_that_follow_each_other_are_short():
    numbers = Numbers()
    for number in range(1, 100_001, 1):
        if number in (1, 2, 3, 5, 6, 100_000):
            numbers.add(number)
    assert str(numbers) == "1-3,5-6,100000"
    assert str(Numbers()) == ""


# --- taking -----------------------------------------------------------------------------------------------------------


def test_everything_comes_once_and_then_nothing(tmp_path):
    files = [make_segment(tmp_path, [records(1, 2)], number=number) for number in (1, 2)]
    stream = Stream(tmp_path)
    assert stream.batch() == [*ids(files[0], 0, 1), *ids(files[1], 0, 1)]
    assert stream.batch() == []
    stream.restart()
    assert stream.batch() == []


def test_nothing_new_is_the_same_offset(tmp_path):
    make_segment(tmp_path, [records(1, 2)])
    stream = Stream(tmp_path)
    stream.batch()
    assert stream.latest() == stream.offset
    assert stream.rows_between(stream.offset, stream.offset) == []


def test_an_open_segment_grows_and_is_sealed(tmp_path):
    batches = [records(1, 2), records(3, 3), records(6, 1)]
    file = make_segment(tmp_path, batches, seal=None)
    data = file.read_bytes()
    sealed = make_segment(tmp_path, batches, number=2)
    end = sealed.read_bytes()[len(data) - len(sealed.read_bytes()) :]  # the seal and the end mark
    sealed.unlink()
    stream = Stream(tmp_path)
    taken = []
    for cut in range(0, len(data), 101):
        file.write_bytes(data[:cut])
        taken += stream.batch()
        if cut % 2:
            stream.restart()
    file.write_bytes(data + end)
    file.rename(file.with_suffix(".arrows"))
    taken += stream.batch()
    assert taken == ids(file, *range(6))
    assert stream.batch() == []
    assert list(stream.offset["segments"]) == []


def test_a_batch_that_is_repeated_holds_the_same_rows(tmp_path):
    file = make_segment(tmp_path, [records(1, 2), records(3, 3)], seal=None)
    data = file.read_bytes()
    file.write_bytes(data[:-10])
    stream = Stream(tmp_path)
    start, end = stream.offset, stream.latest()
    before = stream.rows_between(start, end)
    assert before == ids(file, 0, 1)
    file.write_bytes(data)
    make_segment(tmp_path, [records(1, 2)], number=2)
    stream.restart()
    assert stream.rows_between(start, end) == before


def test_a_segment_with_an_earlier_name_is_not_missed(tmp_path):
    late = make_segment(tmp_path, [records(1, 1)], number=5)
    stream = Stream(tmp_path)
    assert stream.batch() == ids(late, 0)
    early = make_segment(tmp_path, [records(1, 1)], number=3)
    assert stream.batch() == ids(early, 0)
    assert stream.offset["runs"] == {"N1-0123abcd": "3,5"}


def test_a_segment_of_another_name_is_taken_too(tmp_path):
    file = make_segment(tmp_path, [records(1, 1)])
    other = file.rename(tmp_path / "yesterday.arrows")
    stream = Stream(tmp_path)
    assert stream.batch() == ids(other, 0)
    assert stream.batch() == []
    assert stream.offset == {"runs": {}, "segments": {"yesterday": other.stat().st_size}}


@pytest.mark.parametrize("limit", [ReadMaxFiles(1), ReadMaxBytes(1)])
def test_segments_of_other_names_do_not_hold_up_a_stream_with_a_limit(tmp_path, limit):
    others = [
        make_segment(tmp_path, [records(1, 1)], number=number).rename(tmp_path / f"{number}.arrows") for number in (1, 2)
    ]
    ours = make_segment(tmp_path, [records(1, 1)], number=3)
    stream = Stream(tmp_path)
    taken = [stream.batch(limit) for _ in range(4)]
    assert taken == [ids(others[0], 0), ids(others[1], 0), ids(ours, 0), []]
    assert stream.latest(limit) == stream.offset


def test_a_damaged_segment_of_another_name_is_not_said_to_stop_early(tmp_path, caplog):
    file = make_segment(tmp_path, [records(1, 2), records(3, 3)])
    data = bytearray(file.read_bytes())
    data[-8:] = b"\xff" * 8
    file.write_bytes(data)
    file.rename(tmp_path / "yesterday.arrows")
    stream = Stream(tmp_path)
    stream.batch()
    caplog.clear()
    assert stream.batch() == []
    assert caplog.messages == []


def test_a_copy_that_is_not_complete_yet_is_taken_as_it_grows(tmp_path):
    file = make_segment(tmp_path, [records(1, 2), records(3, 3)])
    data = file.read_bytes()
    stream = Stream(tmp_path)
    taken = []
    for cut in (0, 500, 2000, len(data) - 3000, len(data) - 9, len(data) - 1, len(data)):
        file.write_bytes(data[:cut])
        taken += stream.batch()
    assert taken == ids(file, *range(5))


def test_an_import_is_taken_when_it_is_sealed(tmp_path):
    file, path = write_lines(tmp_path / "a.jsonl", 1500), tmp_path / "c"
    killed_import(file, path)
    stream = Stream(path)
    taken = stream.batch()
    with Import(str(path)) as again:
        again.add(file)
    taken += stream.batch()
    (segment,) = path.glob("*.arrows")
    assert taken == ids(segment, *range(1500))


def test_that_a_segment_stops_before_its_end_is_said_once(tmp_path, caplog):
    file = make_segment(tmp_path, [records(1, 2), records(3, 3)])
    file.write_bytes(file.read_bytes()[:-8])
    stream = Stream(tmp_path)
    for _ in range(3):
        stream.batch()
    assert caplog.messages == [
        f"segment {file.stem} stops before its end: its end mark is missing; the rest is taken when it comes"
    ]


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_deleted_segments_are_forgotten_and_break_nothing(tmp_path):
    first = make_segment(tmp_path, [records(1, 1)], number=1)
    other = make_segment(tmp_path, [records(1, 1)], owner="N2", run="aaaaaaaa", number=1)
    stream = Stream(tmp_path)
    stream.batch()
    assert len(stream.offset["runs"]) == 2
    first.unlink()
    assert stream.batch() == []
    assert len(stream.offset["runs"]) == 2, "nothing new, so nothing is written"
    new = make_segment(tmp_path, [records(1, 1)], owner="N2", run="aaaaaaaa", number=2)
    assert stream.batch() == ids(new, 0)
    assert stream.offset["runs"] == {"N2-aaaaaaaa": "1-2"}
    other.unlink()
    stream.restart()
    assert stream.batch() == []


def test_a_batch_whose_segments_were_deleted_is_what_is_left(tmp_path):
    files = [make_segment(tmp_path, [records(1, 1)], number=number) for number in (1, 2, 3)]
    stream = Stream(tmp_path)
    start, end = stream.offset, stream.latest()
    files[1].unlink()
    assert stream.rows_between(start, end) == [*ids(files[0], 0), *ids(files[2], 0)]


def test_a_capture_that_is_gone_is_an_error(tmp_path):
    stream = Stream(tmp_path / "none")
    with pytest.raises(CaptureError):
        stream.batch()


# --- limits -----------------------------------------------------------------------------------------------------------


def test_limits_take_segments_in_their_order(tmp_path):
    files = [make_segment(tmp_path, [records(1, 1)], number=number) for number in range(1, 6)]
    size = files[0].stat().st_size
    stream = Stream(tmp_path)
    assert stream.batch(ReadMaxFiles(2)) == [*ids(files[0], 0), *ids(files[1], 0)]
    assert stream.batch(ReadMaxBytes(1)) == ids(files[2], 0), "one at least"
    assert stream.batch(ReadMaxBytes(2 * size)) == [*ids(files[3], 0), *ids(files[4], 0)]
    assert stream.batch(ReadMaxBytes(1)) == []


@pytest.mark.parametrize(("sizes", "files", "taken"), [(2, 9, [2, 2, 1]), (9, 2, [2, 2, 1]), (1, 2, [1] * 5)])
def test_of_two_limits_the_one_that_comes_first_ends_a_batch(tmp_path, sizes, files, taken):
    """So many segments' bytes, and so many segments."""
    made = [make_segment(tmp_path, [records(1, 1)], number=number) for number in range(1, 6)]
    most_bytes = sizes * made[0].stat().st_size
    stream = Stream(tmp_path, maxBytesPerTrigger=str(most_bytes), maxFilesPerTrigger=str(files))
    limit = stream.reader.getDefaultReadLimit()
    assert [len(stream.batch(limit)) for _ in taken] == taken
    assert stream.batch(limit) == []


def test_the_limit_is_an_option(tmp_path):
    assert Stream(tmp_path).reader.getDefaultReadLimit() == ALL
    assert Stream(tmp_path, maxBytesPerTrigger="5").reader.getDefaultReadLimit() == ReadMaxBytes(5)
    assert Stream(tmp_path, maxFilesPerTrigger="5").reader.getDefaultReadLimit() == ReadMaxFiles(5)


def test_available_now_takes_what_was_there_and_comes_to_an_end(tmp_path):
    files = [make_segment(tmp_path, [records(1, 1)], number=number) for number in (1, 2, 3)]
    growing = make_segment(tmp_path, [records(1, 2), records(3, 2)], number=4, seal=None)
    data = growing.read_bytes()
    growing.write_bytes(data[:-10])
    stream = Stream(tmp_path)
    stream.reader.prepareForTriggerAvailableNow()
    growing.write_bytes(data)
    make_segment(tmp_path, [records(1, 1)], number=5)
    taken = []
    while rows := stream.batch(ReadMaxFiles(1)):
        taken += rows
    assert taken == [*(each for file in files for each in ids(file, 0)), *ids(growing, 0, 1)]


# --- anything goes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_every_row_comes_once(tmp_path, seed):
    """Segments come in any order and in any parts, are sealed later or never; readers restart and repeat batches."""
    chance = random.Random(seed)
    whole = tmp_path / "whole"
    whole.mkdir()
    files = [
        make_segment(whole, [records(1 + 4 * i, 4) for i in range(chance.randint(1, 4))], run=f"{run:08x}", number=number)
        for run in range(3)
        for number in range(1, 5)
    ]
    path = tmp_path / "capture"
    path.mkdir()
    data = {file: file.read_bytes() for file in files}
    there = dict.fromkeys(files, 0)
    stream = Stream(path, shareBytes="3000")
    taken: list[str] = []
    while any(there[file] < len(data[file]) for file in files):
        file = chance.choice([file for file in files if there[file] < len(data[file])])
        there[file] = min(len(data[file]), there[file] + chance.randint(1, 8000))
        is_complete = there[file] == len(data[file])
        (path / f"{file.stem}.open").write_bytes(data[file][: there[file]])
        if is_complete:
            (path / f"{file.stem}.open").rename(path / file.name)
        start, end = stream.offset, stream.latest(chance.choice([ALL, ReadMaxFiles(1), ReadMaxBytes(2000)]))
        rows = stream.rows_between(start, end)
        if chance.random() < 0.3:
            stream.restart()
            assert stream.rows_between(start, end) == rows
        taken += rows
        stream.offset = end
    while rows := stream.batch(ReadMaxFiles(2)):
        taken += rows
    expected = [
        f"{segment.name}:{first_row + place}"
        for segment, first_row, batch in open_capture(str(whole)).batches(columns=["seq"])
        for place in range(len(batch))
    ]
    assert sorted(taken) == sorted(expected)
    assert Taken.read(stream.offset).to_offset() == stream.offset
    assert stream.offset == {"runs": {f"N1-{run:08x}": "1-4" for run in range(3)}, "segments": {}}

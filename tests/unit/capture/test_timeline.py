"""All records in the order of time, however the segments lie."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.capture.reading import Problem
from hopline.capture.store import open_capture
from hopline.capture.timeline import in_order
from tests.unit.capture.world import START_NS, make_segment, records


def batch(times: list[int], first_seq: int = 1, *, source: str | None = None):
    made = records(first_seq, len(times))
    made.seen_ns = [START_NS + time for time in times]
    made.source = source
    return made


def times(path: Path, problems: list[Problem] | None = None) -> list[int]:
    moments = in_order(open_capture(str(path)).segments(), [] if problems is None else problems)
    return [moment.seen_ns - START_NS for moment in moments]


def test_segments_that_overlap_are_merged(tmp_path: Path) -> None:
    make_segment(tmp_path, [batch([1, 4]), batch([9], 3)], number=1)
    make_segment(tmp_path, [batch([2, 3, 8])], number=2)
    make_segment(tmp_path, [batch([20, 30])], number=3)
    assert times(tmp_path) == [1, 2, 3, 4, 8, 9, 20, 30]


def test_a_segment_out_of_order_is_sorted(tmp_path: Path) -> None:
    make_segment(tmp_path, [batch([5, 1]), batch([7, 0], 3)], number=1)
    make_segment(tmp_path, [batch([3, 6])], number=2)
    assert times(tmp_path) == [0, 1, 3, 5, 6, 7]


def test_at_the_same_time_file_and_line_decide(tmp_path: Path) -> None:
    make_segment(tmp_path, [batch([1, 1], 5, source="b")], number=1, is_import=True)
    make_segment(tmp_path, [batch([1], 2, source="a"), batch([1, 1], 9, source="a")], number=2, is_import=True)
    make_segment(tmp_path, [batch([1], 7)], number=3)
    moments = in_order(open_capture(str(tmp_path)).segments(), [])
    assert [(moment.source, moment.place) for moment in moments] == [
        ("", 0),
        ("a", 2),
        ("a", 9),
        ("a", 10),
        ("b", 5),
        ("b", 6),
    ]


def test_what_is_wrong_is_said_once(tmp_path: Path) -> None:
    torn = make_segment(tmp_path, [batch([1]), batch([2], 2)], seal=None)
    torn.write_bytes(torn.read_bytes()[:-1])
    (tmp_path / "junk.arrows").write_bytes(b"junk")
    make_segment(tmp_path, [], number=7)
    problems: list[Problem] = []
    assert times(tmp_path, problems) == [1]
    assert sorted(problem.code for problem in problems) == ["CAPTURE_DAMAGED", "CAPTURE_TORN"]


def test_more_rows_than_are_objects_at_once(tmp_path: Path) -> None:
    make_segment(tmp_path, [batch(list(range(0, 3000, 3)))], number=1)
    make_segment(tmp_path, [batch(list(range(2999, 0, -3)))], number=2)
    assert times(tmp_path) == sorted([*range(0, 3000, 3), *range(2999, 0, -3)])


@settings(max_examples=15)
@given(st.lists(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), max_size=3), max_size=4))
def test_any_segments_come_out_sorted(tmp_path_factory, found: list[list[list[int]]]) -> None:
    path = tmp_path_factory.mktemp("captures")
    for number, batches in enumerate(found, 1):
        make_segment(path, [batch(each) for each in batches], number=number)
    assert times(path) == sorted(time for batches in found for each in batches for time in each)

"""News of a capture: every record is new once, whatever time was asked for before."""

import json
import random

import pytest

from hopline.capture import open_capture
from hopline.capture.jsonl import Import
from hopline.capture.writer import CaptureWriter
from hopline.errors import CaptureError
from hopline.spark.news import find_news
from hopline.spark.options import read_options
from hopline.spark.rows import Rows
from hopline.spark.state import State, read_state, write_state
from tests.unit.capture.world import START_NS, killed_import, make_segment, records, write_lines

COLUMNS = ("event_id",)


def ids_in(news):
    """The event ids of all messages among the news."""
    found = []
    for (since_ns, until_ns), share in news.work:
        given = {"path": news.path, "since": since_ns, "until": until_ns}
        options = read_options({name: str(value) for name, value in given.items() if value is not None})
        found += [each for batch in Rows(options, options.schema).read(share) for each in batch["event_id"].to_pylist()]
    return found


def all_ids(path):
    return [
        f"{segment.name}:{first + row}"
        for segment, first, batch in open_capture(str(path)).batches()
        for row in range(len(batch))
    ]


def stored(news):
    """What was taken, as it comes back from the disk."""
    return read_state(write_state(State(layers=list(news.layers)))).layers


def test_all_of_a_new_capture_is_new_and_then_nothing(tmp_path):
    make_segment(tmp_path, [records(1, 3), records(4, 2)])
    make_segment(tmp_path, [records(6, 2)], number=2)
    news = find_news(str(tmp_path))
    assert ids_in(news) == all_ids(tmp_path)
    assert (news.segments, news.known) == (2, 2)
    assert news.size == sum(file.stat().st_size for file in tmp_path.iterdir())
    again = find_news(str(tmp_path), stored(news))
    assert (again.work, again.segments, again.size, again.known) == ((), 0, 0, 2)
    assert again.layers == news.layers


def test_an_open_segment_is_new_as_far_as_it_has_grown(tmp_path):
    file = make_segment(tmp_path, [records(1, 3)], seal=None)
    first = find_news(str(tmp_path))
    file.unlink()
    make_segment(tmp_path, [records(1, 3), records(4, 2)])
    second = find_news(str(tmp_path), stored(first))
    assert ids_in(first) + ids_in(second) == all_ids(tmp_path)
    assert not find_news(str(tmp_path), stored(second)).work


def test_of_an_import_nothing_is_new_before_it_is_sealed(tmp_path):
    """An import that is repeated replaces what it had left open: it must not be taken twice."""
    file, path = write_lines(tmp_path / "a.jsonl", 1500), tmp_path / "c"
    killed_import(file, path)
    assert [segment.is_sealed for segment in open_capture(str(path)).segments()] == [False]
    left = find_news(str(path))
    taken = ids_in(left)
    with Import(str(path)) as again:
        assert again.add(file).replaced == 1
    rest = find_news(str(path), stored(left))
    assert sorted(taken + ids_in(rest)) == sorted(all_ids(path))
    assert len(all_ids(path)) == 1500


def test_of_a_sealed_import_that_just_stops_nothing_is_new_either(tmp_path):
    """It has not said up to where it covers its file: an import of that replaces it."""
    file, path = write_lines(tmp_path / "a.jsonl", 30), tmp_path / "c"
    with Import(str(path)) as capture:
        capture.add(file)
    (segment,) = path.glob("*.arrows")
    segment.write_bytes(segment.read_bytes()[:-9])
    left = find_news(str(path))
    taken = ids_in(left)
    with Import(str(path)) as again:
        assert again.add(file).replaced == 1
    rest = find_news(str(path), stored(left))
    assert sorted(taken + ids_in(rest)) == sorted(all_ids(path))


def test_what_was_not_asked_for_stays_new(tmp_path):
    make_segment(tmp_path, [records(1, 3), records(4, 3)])
    noon = START_NS + 4500
    before = find_news(str(tmp_path), until_ns=noon)
    rest = find_news(str(tmp_path), stored(before))
    assert len(ids_in(before)) == 4
    assert sorted(ids_in(before) + ids_in(rest)) == sorted(all_ids(tmp_path))
    assert len(rest.layers) == 1  # of all times the same was taken: it is as if nobody had asked for less


def test_a_segment_that_was_deleted_does_not_come_back_as_new(tmp_path):
    file = make_segment(tmp_path, [records(1, 3)])
    data = file.read_bytes()
    taken = stored(find_news(str(tmp_path)))
    file.unlink()
    taken = stored(find_news(str(tmp_path), taken))
    file.write_bytes(data)
    assert not find_news(str(tmp_path), taken).work


def test_a_segment_that_was_gone_when_it_was_read_is_new_if_it_comes_back(tmp_path):
    first, second = (make_segment(tmp_path, [records(1, 3)], number=number) for number in (1, 2))
    news = find_news(str(tmp_path))
    taken = read_state(write_state(State(layers=list(news.layers_without({second.stem}))))).layers
    assert ids_in(find_news(str(tmp_path), taken)) == [f"{second.stem}:{row}" for row in range(3)]
    assert ids_in(news)[:3] == [f"{first.stem}:{row}" for row in range(3)]


def test_what_stops_before_its_end_is_said_until_the_rest_comes(tmp_path):
    file = make_segment(tmp_path, [records(1, 3), records(4, 2)])
    data, taken = file.read_bytes(), []
    for cut, reason in (
        (0, "it is empty"),
        (len(data) - 1, "a message is cut to 7 bytes"),
        (len(data) - 8, "its end mark is missing"),
    ):
        file.write_bytes(data[:cut])
        for _ in range(2):  # also if nothing is new
            news = find_news(str(tmp_path), taken)
            assert news.unfinished == {file.stem: reason}
            taken = stored(news)
    file.write_bytes(data)
    assert find_news(str(tmp_path), taken).unfinished == {}


def test_of_open_segments_only_those_are_said_whose_writers_are_dead(tmp_path):
    torn = make_segment(tmp_path, [records(1, 3)], seal=None)
    torn.write_bytes(torn.read_bytes()[:-10])
    make_segment(tmp_path, [records(1, 3)], number=2, seal=None)  # killed between two messages: nothing of it is missing
    writer = CaptureWriter(str(tmp_path), owner=b"N2")
    writer.start()
    writer.write(records(1, 3))
    assert list(find_news(str(tmp_path)).unfinished) == [torn.stem]
    writer.close()


def test_an_import_that_was_interrupted_is_said(tmp_path):
    killed_import(write_lines(tmp_path / "a.jsonl", 1500), tmp_path / "c")
    (reason,) = find_news(str(tmp_path / "c")).unfinished.values()
    assert reason == "its import was interrupted: import the file again"


def test_a_large_segment_is_read_by_several_tasks(tmp_path):
    make_segment(tmp_path, [records(1 + 10 * number, 10) for number in range(20)])
    news = find_news(str(tmp_path), share_bytes=2000)
    assert len(news.work) > 3
    assert ids_in(news) == all_ids(tmp_path)


@pytest.mark.parametrize("seed", range(5))
def test_every_record_is_new_once_whatever_was_asked_for(tmp_path, seed):
    rng = random.Random(seed)
    found, taken = [], []
    for number in range(1, 7):
        make_segment(tmp_path, [records(rng.randrange(20), rng.randrange(1, 9)) for _ in range(3)], number=number)
        asked = [rng.choice([None, START_NS + rng.randrange(25) * 1000]) for _ in range(2)]
        news = find_news(str(tmp_path), taken, since_ns=asked[0], until_ns=asked[1])
        found += ids_in(news)
        taken = stored(news)
    found += ids_in(find_news(str(tmp_path), taken))
    assert sorted(found) == sorted(all_ids(tmp_path))


def test_a_capture_that_is_not_there_is_said(tmp_path):
    with pytest.raises(CaptureError):
        find_news(str(tmp_path / "nowhere"))


def test_what_was_taken_is_written_briefly(tmp_path):
    for number in range(1, 31):
        make_segment(tmp_path, [records(number, 1)], number=number)
    (layer,) = find_news(str(tmp_path)).layers
    assert json.dumps(layer.offset) == '{"runs": {"N1-0123abcd": "1-30"}, "segments": {}}'

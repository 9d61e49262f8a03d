"""Segments: their names, how they are written, and what is left when writing fails."""

from pathlib import Path

import pyarrow as pa
import pytest

from hopline.capture.folder import open_folder
from hopline.capture.reading import Reading
from hopline.capture.segment import MOST_RAW_BYTES, Seal, Segment, SegmentWriter, list_segments, name_of, safe_owner
from tests.unit.capture.world import START_NS, head, make_segment, records


def only(path: Path) -> Segment:
    (segment,) = list_segments(open_folder(str(path)))
    return segment


def test_the_name_says_when_whose_and_which(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(1, 1)], owner="node-1", number=12)
    segment = only(tmp_path)
    assert segment.name == "20261115T231501123456Z-node-1-0123abcd-000012"
    assert (segment.owner, segment.run, segment.number) == ("node-1", "0123abcd", 12)
    assert segment.started_ns == START_NS // 1000 * 1000


def test_names_sort_by_time() -> None:
    names = [name_of(head(started_ns=START_NS + step, number=9)) for step in (0, 1000, 10**9, 10**12, 10**16)]
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("owner", "safe"),
    [("N1", "N1"), ("a/b\\c:d", "a_b_c_d"), ("../../etc", ".._.._etc"), ("", "_"), ("x" * 300, "x" * 80), ("Zoë", "Zo_")],
)
def test_an_owner_cannot_break_out_of_a_name(owner: str, safe: str, tmp_path: Path) -> None:
    assert safe_owner(owner) == safe
    path = make_segment(tmp_path, [records(1, 1)], owner=owner)
    assert path.parent == tmp_path
    reading = Reading(only(tmp_path)).look()
    assert reading.head.owner == owner


def test_no_node_can_be_named_like_an_import() -> None:
    imported = name_of(head(owner="a.jsonl", is_import=True))
    assert "import~a.jsonl" in imported
    assert "~" not in name_of(head(owner="import~a.jsonl"))


def test_a_file_that_is_no_segment_by_its_name_has_no_owner(tmp_path: Path) -> None:
    (tmp_path / "junk.arrows").write_bytes(b"junk")
    segment = only(tmp_path)
    assert (segment.owner, segment.run, segment.number, segment.started_ns) == ("", "", 0, 0)


def test_a_name_with_an_impossible_time_has_none(tmp_path: Path) -> None:
    (tmp_path / "20269999T999999999999Z-N1-0123abcd-000001.arrows").write_bytes(b"junk")
    assert (only(tmp_path).owner, only(tmp_path).started_ns) == ("N1", 0)


def test_other_files_are_no_segments(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("read me")
    (tmp_path / "sub.arrows").mkdir()
    assert list_segments(open_folder(str(tmp_path))) == []


def test_of_two_with_one_name_the_sealed_one_counts(tmp_path: Path) -> None:
    sealed = make_segment(tmp_path, [records(1, 3)])
    sealed.with_suffix(".open").write_bytes(sealed.read_bytes()[:2000])
    assert only(tmp_path).is_sealed


def test_it_is_open_until_it_is_sealed(tmp_path: Path) -> None:
    writer = SegmentWriter(open_folder(str(tmp_path)), head(), "zstd")
    writer.write(records(1, 2).to_batch())
    opened = only(tmp_path)
    assert (opened.is_sealed, opened.is_being_written()) == (False, True)
    writer.seal(Seal(rows=2, reason="closed"))
    sealed = only(tmp_path)
    assert (sealed.is_sealed, sealed.is_being_written()) == (True, False)
    assert sealed.name == opened.name
    assert sealed.size == writer.size == Path(sealed.path).stat().st_size


def test_files_are_not_for_everybody(tmp_path: Path) -> None:
    assert make_segment(tmp_path, [records(1, 1)]).stat().st_mode & 0o007 == 0


def test_a_segment_is_never_written_over(tmp_path: Path) -> None:
    make_segment(tmp_path, [records(1, 1)], seal=None)
    with pytest.raises(FileExistsError):
        SegmentWriter(open_folder(str(tmp_path)), head(), "zstd")


def test_it_is_full_by_its_size_on_disk_or_in_memory(tmp_path: Path) -> None:
    writer = SegmentWriter(open_folder(str(tmp_path)), head(), "zstd")
    writer.write(records(1, 2).to_batch())
    assert not writer.is_full(writer.size + 1)
    assert writer.is_full(writer.size)
    writer.raw_size = MOST_RAW_BYTES
    assert writer.is_full(writer.size + 1)
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_giving_up_seals_what_is_whole(tmp_path: Path) -> None:
    writer = SegmentWriter(open_folder(str(tmp_path)), head(), "zstd")
    writer.write(records(1, 2).to_batch())
    with Path(only(tmp_path).path).open("ab") as file:
        file.write(b"half a batch")
    assert writer.give_up()
    reading = Reading(only(tmp_path)).look()
    assert (reading.problems, reading.rows, reading.seal.reason) == ([], 2, "failed")


def test_giving_up_deletes_what_holds_nothing(tmp_path: Path) -> None:
    writer = SegmentWriter(open_folder(str(tmp_path)), head(), "zstd")
    assert writer.give_up()
    assert list(tmp_path.iterdir()) == []


def test_giving_up_notices_that_the_file_is_gone(tmp_path: Path) -> None:
    writer = SegmentWriter(open_folder(str(tmp_path)), head(), "zstd")
    writer.write(records(1, 2).to_batch())
    Path(only(tmp_path).path).unlink()
    assert not writer.give_up()


def test_other_tools_read_it(tmp_path: Path) -> None:
    path = make_segment(tmp_path, [records(1, 3), records(4, 2)])
    assert pa.ipc.open_stream(path.read_bytes()).read_all()["seq"].to_pylist() == [1, 2, 3, 4, 5]

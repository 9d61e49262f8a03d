"""Folders: local ones, and others."""

import os
from pathlib import Path

import pyarrow.fs as pa_fs
import pytest

from hopline.capture.folder import open_folder
from hopline.errors import CaptureError


def test_a_path_is_local_also_as_a_uri(tmp_path: Path) -> None:
    for name in (str(tmp_path), f"file://{tmp_path}", f"{tmp_path}/"):
        folder = open_folder(name)
        assert (folder.is_local, folder.exists()) == (True, True)
        assert Path(folder.path) == tmp_path


def test_a_relative_path_is_meant_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(open_folder("captures").path) == tmp_path / "captures"


def test_a_uri_that_nobody_opens_is_said() -> None:
    with pytest.raises(CaptureError, match="cannot open") as caught:
        open_folder("nonsense://bucket/captures")
    assert caught.value.code == "CAPTURE_NOT_FOUND"


def test_listing_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="cannot list"):
        open_folder(str(tmp_path / "nothing")).files()


def test_a_file_whose_name_is_no_text_is_passed_over(tmp_path: Path) -> None:
    for name in (b"a", b"notes-\xff.txt"):
        Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).touch()
    assert [file.name for file in open_folder(str(tmp_path)).files()] == ["a"]


def test_a_folder_whose_name_is_no_text_is_said(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="cannot read"):
        open_folder(f"{tmp_path}/\udcff").exists()


def test_it_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path / "a" / "b"))
    assert not folder.exists()
    folder.make()
    folder.make()
    assert folder.exists()


def test_it_cannot_be_made_under_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(CaptureError) as caught:
        open_folder(str(tmp_path / "a" / "b")).make()
    assert caught.value.code == "CAPTURE_CANNOT_WRITE"


def test_files_have_their_size_and_order(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"22")
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "folder").mkdir()
    folder = open_folder(str(tmp_path))
    assert [file[:2] for file in folder.files()] == [("a", 1), ("b", 2)]
    assert folder.files()[0].changed_ns == (tmp_path / "a").stat().st_mtime_ns
    assert folder.size_of("b") == 2
    with pytest.raises(FileNotFoundError):
        folder.size_of("c")
    folder.delete("a")
    assert [file.name for file in folder.files()] == ["b"]


@pytest.mark.parametrize("is_local", [True, False])
def test_a_new_file_grows_and_is_sealed(is_local: bool, tmp_path: Path) -> None:
    other = None if is_local else pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    folder = open_folder(str(tmp_path) if is_local else "", other)
    assert folder.is_local is is_local
    sink = folder.create("x.open")
    sink.write([b"one", memoryview(b"two")])
    assert (tmp_path / "x.open").read_bytes() == b"onetwo"
    assert folder.is_being_written("x.open") is (True if is_local else None)
    sink.seal("x.arrows")
    assert [file.name for file in folder.files()] == ["x.arrows"]
    assert folder.is_being_written("x.arrows") is (False if is_local else None)
    sink.abandon()  # does no harm, however often
    sink.abandon()


def test_what_was_written_can_be_taken_back(tmp_path: Path) -> None:
    sink = open_folder(str(tmp_path)).create("x")
    sink.write([b"good", b"bad"])
    sink.cut(4)
    sink.write([b"!"])
    sink.abandon()
    assert (tmp_path / "x").read_bytes() == b"good!"


def test_many_pieces_and_a_disk_that_takes_them_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow_writev(descriptor: int, pieces: list[memoryview]) -> int:
        return os.write(descriptor, b"".join(pieces)[:7])

    monkeypatch.setattr(os, "writev", slow_writev)
    sink = open_folder(str(tmp_path)).create("x")
    pieces = [b"", b"a" * 20, b"", b"b", b"c" * 13]
    sink.write(pieces)
    sink.abandon()
    assert (tmp_path / "x").read_bytes() == b"".join(pieces)


def test_whether_a_writer_lives_is_told_by_its_lock(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path))
    sink = folder.create("x")
    assert folder.is_being_written("x") is True
    sink.abandon()
    assert folder.is_being_written("x") is False
    assert folder.is_being_written("gone") is None


def test_one_at_a_time(tmp_path: Path) -> None:
    folder = open_folder(str(tmp_path))
    with folder.only_me("lock"):
        with pytest.raises(CaptureError) as caught, folder.only_me("lock"):
            pass
        assert caught.value.code == "CAPTURE_BUSY"
    with folder.only_me("lock"):
        pass

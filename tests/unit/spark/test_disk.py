"""The disk: small files are whole, folders move at once, and one at a time may write."""

import pytest

from hopline.errors import TablesError
from hopline.spark.disk import Disk


@pytest.fixture
def disk(tmp_path):
    return Disk(tmp_path / "tables")


def test_a_file_is_written_read_and_replaced(disk):
    assert disk.read("a/b.json") is None
    disk.write("a/b.json", b"one")
    disk.write("a/b.json", b"two")
    assert disk.read("a/b.json") == b"two"
    assert disk.files("a") == ["a/b.json"]  # and nothing beside it


def test_folders_and_files_are_listed_in_order(disk):
    for name in ("t/date=2/b.parquet", "t/date=1/a.parquet", "t/date=1/a.txt"):
        disk.write(name, b"")
    assert disk.folders("t") == ["date=1", "date=2"]
    assert disk.files("t", ".parquet") == ["t/date=1/a.parquet", "t/date=2/b.parquet"]
    assert (disk.folders("nowhere"), disk.files("nowhere")) == ([], [])


def test_a_folder_moves_with_all_that_is_in_it(disk):
    disk.write("new/x/a", b"a")
    disk.sync("new")
    disk.move("new/x", "t/y")
    disk.sync_names("t")
    assert disk.files(".") == ["t/y/a"]


def test_what_is_there_is_never_moved_over(disk):
    disk.write("new/a", b"new")
    disk.write("t/a", b"old")
    with pytest.raises(OSError, match="not empty"):
        disk.move("new", "t")


@pytest.mark.parametrize("name", ["file", "folder", "nothing"])
def test_removing_leaves_nothing(disk, name):
    disk.write("file", b"")
    disk.write("folder/in/it", b"")
    disk.remove(name)
    assert not disk.exists(name)


def test_only_one_at_a_time(disk):
    with disk.only_me("lock", "run by process 7"):
        with pytest.raises(TablesError, match="run by process 7 is writing to") as caught, disk.only_me("lock", "me"):
            pass
        assert caught.value.code == "TABLES_BUSY"
    with disk.only_me("lock", "me"):
        assert disk.read("lock") == b"me"


def test_clearing_goes_as_far_as_it_can(disk):
    disk.write("staging/a/b", b"")
    disk.clear("staging")
    disk.clear("staging")
    assert not disk.exists("staging")


@pytest.mark.parametrize("can_link", [True, False])
def test_a_file_can_have_a_second_name_also_where_it_must_be_copied(disk, monkeypatch, can_link):
    def refuse(source, target):
        raise OSError("no links here")

    if not can_link:
        monkeypatch.setattr("os.link", refuse)
    disk.write("a/one", b"1")
    disk.link("a/one", "b/c/two")
    assert disk.read("b/c/two") == b"1"
    disk.remove("a")
    assert disk.read("b/c/two") == b"1"

"""The disk that tables lie on: the few things that a commit asks of it.

    write    a small file, whole or not at all
    move     a file or a folder of files, in one step
    link     a second name for a file
    remove   the same, gone; it need not be there
    clear    a folder, gone as far as possible
    sync     what was written is there after a power cut
    only_me  nobody else changes the tables meanwhile

All paths are relative to one root. Local folders, and what is mounted as one, are all there is; a store of objects, which
can move no folder, would be another class with these methods. This file does not know what the files are.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hopline.errors import TablesError

try:
    import fcntl
except ImportError:  # pragma: no cover - not on Windows: there nobody keeps others out
    fcntl = None  # type: ignore[assignment]

_PART: Final = ".part"
"""The end of a name while its file is written."""


class Disk:
    """A local folder. It need not exist before it is written to; errors are those of the operating system."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()

    def __str__(self) -> str:
        return str(self.root)

    def path_of(self, name: str) -> Path:
        """Where something is, for who reads and writes it otherwise: Spark and pyarrow."""
        return self.root / name

    def exists(self, name: str) -> bool:
        """Whether a file or a folder is there."""
        return self.path_of(name).exists()

    def folders(self, name: str) -> list[str]:
        """The names of the folders in a folder, sorted; none if it is not there."""
        path = self.path_of(name)
        return sorted(each.name for each in path.iterdir() if each.is_dir()) if path.is_dir() else []

    def files(self, name: str, end: str = "") -> list[str]:
        """The files in and below a folder, or that one file, whose names end so; sorted, as names of this disk."""
        place = self.path_of(name)
        found = (path for path in ([place] if place.is_file() else place.rglob(f"*{end}")) if path.is_file())
        return sorted(str(path.relative_to(self.root)) for path in found)

    def read(self, name: str) -> bytes | None:
        """A small file; None if it is not there."""
        try:
            return self.path_of(name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """Write or replace a small file: who reads it gets the old one or the new one, also after a power cut."""
        path = self.path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + _PART)
        with part.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
        _sync(path.parent)

    def move(self, name: str, target: str) -> None:
        """Give a file or a folder another name, which must be free. The folders above it are made."""
        path = self.path_of(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path_of(name).rename(path)

    def link(self, name: str, target: str) -> None:
        """Give a file a second name, which must be free; where files can have only one, a copy. Neither may be changed."""
        path = self.path_of(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(self.path_of(name), path)
        except OSError:
            shutil.copyfile(self.path_of(name), path)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it, if it is there."""
        path = self.path_of(name)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def clear(self, name: str) -> None:
        """Remove a folder as far as that goes: who was killed may have left others behind, who are still writing to it."""
        shutil.rmtree(self.path_of(name), ignore_errors=True)

    def sync(self, name: str) -> None:
        """Make a file, or a folder with all that is in it, durable."""
        path = self.path_of(name)
        for each in sorted(path.rglob("*")) if path.is_dir() else []:
            _sync(each)
        _sync(path)

    def sync_names(self, name: str) -> None:
        """Make durable which names are in a folder, if it is there."""
        path = self.path_of(name)
        if path.is_dir():
            _sync(path)

    @contextlib.contextmanager
    def only_me(self, name: str, owner: str) -> Iterator[None]:
        """Hold a lock of this name, which ends with us however we end; raises TABLES_BUSY if somebody else does.

        `owner` is what the others are told.
        """
        path = self.path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if fcntl is not None:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    holder = os.read(descriptor, 1000).decode("utf-8", "replace")
                    who = " ".join(holder.split()) or "another run"
                    raise TablesError("TABLES_BUSY", f"{who} is writing to {self.root}") from None
            os.ftruncate(descriptor, 0)
            os.write(descriptor, owner.encode())
            yield
        finally:
            os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

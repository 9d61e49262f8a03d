"""The folder that a capture is: files in a local folder or in anything else that `pyarrow.fs` opens.

Local files are written without a buffer, locked while their writer lives, and are on the disk once they are sealed. Other
file systems (object stores and the like) can do less: there a file may become visible only when it is closed, and nobody
can tell whether a writer still lives. This file knows nothing of what the files hold.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.fs as pa_fs

from hopline.errors import CaptureError

try:
    import fcntl
except ImportError:  # pragma: no cover - not on Windows: nobody can tell there whether a writer still lives
    fcntl = None  # type: ignore[assignment]

_MODE: Final = 0o640
"""Of new files, less the umask: bodies are in them, so the world reads nothing."""

_LISTINGS: Final = 5
"""How often a folder is listed in which files come and go; a link that leads nowhere stays as it is."""

Bytes = bytes | memoryview


class File(NamedTuple):
    """A file of the folder: its name, its size in bytes, and when it last changed; 0 if the file system does not say."""

    name: str
    size: int
    changed_ns: int


class Sink(Protocol):
    """A new file that grows at its end. Errors are those of the operating system: OSError."""

    def write(self, pieces: Sequence[Bytes]) -> None:
        """Append the pieces; they are out of our hands, and survive us, when this returns."""

    def cut(self, size: int) -> None:
        """Take back what was written after `size` bytes, where that is possible."""

    def seal(self, name: str) -> None:
        """Make all of it durable, give it its last name, in one step where the file system can, and close."""

    def abandon(self) -> None:
        """Close, whatever state it is in. Never raises."""


class Folder:
    """A folder in a file system. It need not exist before it is written to."""

    def __init__(self, filesystem: pa_fs.FileSystem, path: str) -> None:
        self.path = path
        self._filesystem = filesystem
        self.is_local = isinstance(filesystem, pa_fs.LocalFileSystem)

    def __str__(self) -> str:
        return self.path

    def exists(self) -> bool:
        """Whether it is there, and is a folder; raises CaptureError if that cannot be told."""
        with _as_capture_error("CAPTURE_CANNOT_READ", f"cannot read {self.path}"):
            return bool(self._filesystem.get_file_info(self.path).type == pa_fs.FileType.Directory)

    def make(self) -> None:
        """Make it, with its parents, if it is not there; raises CaptureError."""
        with _as_capture_error("CAPTURE_CANNOT_WRITE", f"cannot make {self.path}"):
            self._filesystem.create_dir(self.path, recursive=True)

    def files(self) -> list[File]:
        """All files in it, by name; raises CaptureError."""
        for _ in range(_LISTINGS):
            with _as_capture_error("CAPTURE_CANNOT_READ", f"cannot list {self.path}"):
                found = self._filesystem.get_file_info(pa_fs.FileSelector(self.path))
            if all(info.type != pa_fs.FileType.NotFound for info in found):
                break  # else one was renamed while we looked, and may be missing under both names
        files = []
        for info in found:
            if info.type == pa_fs.FileType.File:
                with contextlib.suppress(UnicodeDecodeError):  # a name that is no text, which none of ours is
                    files.append(File(info.base_name, info.size or 0, info.mtime_ns or 0))
        return sorted(files)

    def size_of(self, name: str) -> int:
        """Bytes of a file now; raises FileNotFoundError or another OSError."""
        info = self._filesystem.get_file_info(self.path_of(name))
        if info.type != pa_fs.FileType.File:
            raise FileNotFoundError(f"{self.path_of(name)} is gone")
        return int(info.size or 0)

    def path_of(self, name: str) -> str:
        """The path of a file in the file system."""
        return f"{self.path}/{name}" if self.path else name

    def open(self, name: str) -> pa.NativeFile:
        """Open a file for reading, also at other places than its start; raises OSError."""
        return self._filesystem.open_input_file(self.path_of(name))

    def create(self, name: str) -> Sink:
        """Start a file that does not exist yet; raises OSError."""
        if self.is_local:
            return _LocalSink(Path(self.path), name)
        return _RemoteSink(self._filesystem, self.path_of(name), self.path_of)

    def delete(self, name: str) -> None:
        """Delete a file; raises OSError, also if it is gone already."""
        self._filesystem.delete_file(self.path_of(name))

    def is_being_written(self, name: str) -> bool | None:
        """Whether the writer of a file lives; None if nobody can tell."""
        if not self.is_local or fcntl is None:
            return None
        try:
            descriptor = os.open(self.path_of(name), os.O_RDONLY)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # pragma: no cover - a file system without locks
            return None
        finally:
            os.close(descriptor)
        return False

    @contextlib.contextmanager
    def only_me(self, name: str) -> Iterator[None]:
        """Hold a lock of this name; raises CAPTURE_BUSY if somebody else does. It does nothing where files are not local."""
        if not self.is_local or fcntl is None:
            yield
            return
        with _as_capture_error("CAPTURE_CANNOT_WRITE", f"cannot write to {self.path}"):
            descriptor = os.open(self.path_of(name), os.O_RDWR | os.O_CREAT, _MODE)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CaptureError("CAPTURE_BUSY", f"another import is writing to {self.path}") from None
            yield
        finally:
            os.close(descriptor)


def open_folder(path_or_uri: str, filesystem: pa_fs.FileSystem | None = None) -> Folder:
    """The folder of a path, or of a URI such as s3://bucket/captures; or of a path in a given file system.

    >>> open_folder("captures/today").is_local
    True
    """
    if filesystem is not None:
        return Folder(filesystem, path_or_uri.rstrip("/"))
    if "://" not in path_or_uri:
        return Folder(pa_fs.LocalFileSystem(), str(Path(path_or_uri).absolute()))
    with _as_capture_error("CAPTURE_NOT_FOUND", f"cannot open {path_or_uri}"):
        found, path = pa_fs.FileSystem.from_uri(path_or_uri)
    return Folder(found, path.rstrip("/"))


@contextlib.contextmanager
def _as_capture_error(code: str, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise CaptureError(code, f"{what}: {reason_of(error)}") from None


def reason_of(error: Exception) -> str:
    """The reason in an error of Python or of pyarrow, in one line, without what is said anyway.

    >>> reason_of(FileNotFoundError(2, "No such file or directory", "/nowhere"))
    'No such file or directory'
    """
    return " ".join((getattr(error, "strerror", None) or str(error) or type(error).__name__).split())


class _LocalSink:
    """A local file: no buffer of ours, so that what is written survives our own end; locked as long as we live."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, _MODE)
        if fcntl is not None:
            # Who looks whether we live holds the lock for an instant: waiting for that is no wait.
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def write(self, pieces: Sequence[Bytes]) -> None:
        left = [memoryview(piece) for piece in pieces]
        while left:
            done = os.writev(self._descriptor, left)
            while left and done >= len(left[0]):
                done -= len(left.pop(0))
            if left:  # the disk took a part: offer the rest, and hear why
                left[0] = left[0][done:]

    def cut(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def seal(self, name: str) -> None:
        try:
            os.fsync(self._descriptor)
            (self._folder / self._name).rename(self._folder / name)
            self._sync_folder()
        finally:  # only now: without the lock, a file that is not sealed would seem to have lost its writer
            self.abandon()

    def _sync_folder(self) -> None:
        """The name is in the folder: without this it may come back as the old one after a power cut."""
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def abandon(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        with contextlib.suppress(OSError):
            os.close(descriptor)


class _RemoteSink:
    """A file of another file system: flushed after each batch, which an object store may ignore."""

    def __init__(self, filesystem: pa_fs.FileSystem, path: str, path_of: Callable[[str], str]) -> None:
        self._filesystem = filesystem
        self._path = path
        self._path_of = path_of
        self._stream = filesystem.open_output_stream(path, compression=None)

    def write(self, pieces: Sequence[Bytes]) -> None:
        for piece in pieces:
            self._stream.write(piece)
        self._stream.flush()

    def cut(self, size: int) -> None:
        raise OSError(f"cannot cut {self._path} to {size} bytes: its file system takes nothing back")

    def seal(self, name: str) -> None:
        self._stream.close()
        self._filesystem.move(self._path, self._path_of(name))

    def abandon(self) -> None:
        with contextlib.suppress(OSError, pa.ArrowException):
            self._stream.close()

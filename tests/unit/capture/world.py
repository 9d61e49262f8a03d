"""Captures to try things on: records, segments, clocks moved by hand, and a disk that fails or hangs on demand."""

import json
import shutil
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pa_fs

from hopline.capture.folder import open_folder
from hopline.capture.jsonl import Import
from hopline.capture.record import Records
from hopline.capture.segment import OPEN, SEALED, VERSION, Head, Seal, SegmentWriter
from hopline.wire import Message, encode

START_NS = 1_794_784_501_123_456_789
SECOND = 1_000_000_000


def frames(number: int = 0, body: bytes = b"hi") -> list[bytes]:
    return encode(Message(identity=b"HELLO", version=1, body=body, correlation_id=b"%036d" % number))


def records(
    first_seq: int, count: int, *, tap: str = "scaleout_in", start_ns: int = START_NS, body: bytes = b"hi"
) -> Records:
    seqs = range(first_seq, first_seq + count)
    return Records(
        seen_ns=[start_ns + 1000 * seq for seq in seqs],
        mono_ns=[1000 * seq for seq in seqs],
        seq=list(seqs),
        tap=[tap] * count,
        frames=[frames(seq, body) for seq in seqs],
        node="N1",
    )


def head(**changes: object) -> Head:
    known = {"version": VERSION, "owner": "N1", "run": "0123abcd", "number": 1, "started_ns": START_NS}
    return Head(**{**known, **changes})


def make_segment(
    path: Path, batches: list[Records], *, seal: str | None = "closed", lost: dict[str, int] | None = None, **changes: object
) -> Path:
    """Write a segment; without `seal` it stays open, as if its writer had been killed."""
    writer = SegmentWriter(open_folder(str(path)), head(**changes), "zstd")
    for batch in batches:
        writer.write(batch.to_batch(), lost)
        lost = None
    if seal is None:
        writer._sink.abandon()  # noqa: SLF001 - what a killed writer does: nothing
        return path / (writer.name + OPEN)
    writer.seal(Seal(rows=writer.rows, reason=seal), lost)
    return path / (writer.name + SEALED)


def write_lines(file: Path, count: int) -> Path:
    """Write so many messages as JSON lines, for an import."""
    known = {"node": "N1", "direction": "in"}
    lines = [
        {"seen_ns": START_NS + 1000 * number, "frames": [frame.hex() for frame in frames(number)], **known}
        for number in range(count)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def killed_import(file: Path, path: Path) -> None:
    """Leave in a folder what an import leaves there that is killed after a batch: an open segment. It takes 1024 lines."""
    with Import(str(path.with_name("not killed"))) as target:

        def copy(_done: int, _size: int) -> None:
            shutil.copytree(path.with_name("not killed"), path, dirs_exist_ok=True)

        target.add(file, on_progress=copy)


class Clock:
    """A clock that a test moves."""

    def __init__(self, ns: int = START_NS) -> None:
        self.ns = ns

    def __call__(self) -> int:
        return self.ns

    def advance(self, seconds: float) -> None:
        self.ns += int(seconds * SECOND)


class Disk(pa_fs.FileSystemHandler):
    """A file system that is none of the local ones; it fails while `error` is set, and writing waits for `gate`."""

    def __init__(self, path: Path) -> None:
        self._inner = pa_fs.SubTreeFileSystem(str(path), pa_fs.LocalFileSystem())
        self.error: OSError | None = None
        self.read_error: OSError | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.at_gate = threading.Event()

    @property
    def filesystem(self) -> pa_fs.PyFileSystem:
        return pa_fs.PyFileSystem(self)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    def get_type_name(self):
        return "disk"

    def get_file_info(self, paths):
        return self._inner.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self._inner.get_file_info(selector)

    def create_dir(self, path, recursive):
        self._check()
        self._inner.create_dir(path, recursive=recursive)

    def delete_file(self, path):
        self._inner.delete_file(path)

    def move(self, src, dest):
        self._check()
        self._inner.move(src, dest)

    def open_input_stream(self, path):
        return self._inner.open_input_stream(path)

    def open_input_file(self, path):
        if self.read_error is not None:
            raise self.read_error
        return self._inner.open_input_file(path)

    def open_output_stream(self, path, metadata):
        self._check()
        return pa.PythonFile(_SlowFile(self, self._inner.open_output_stream(path)), mode="w")

    def delete_dir(self, path):
        raise NotImplementedError

    delete_dir_contents = delete_root_dir_contents = copy_file = open_append_stream = delete_dir

    def normalize_path(self, path):
        return path


class _SlowFile:
    def __init__(self, disk: Disk, inner) -> None:
        self._disk = disk
        self._inner = inner
        self.closed = False

    def write(self, data):
        self._disk.at_gate.set()
        self._disk.gate.wait()
        self._disk._check()  # noqa: SLF001 - one thing in two classes
        self._inner.write(data)
        return len(data)

    def flush(self):
        self._inner.flush()

    def close(self):
        self._inner.close()
        self.closed = True

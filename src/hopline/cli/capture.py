"""`hopline capture`: captures out of JSON lines, into JSON lines, and checked."""

import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from hopline.cli.lines import error_to_json
from hopline.cli.terminal import JsonOption, complaint, failure, put
from hopline.errors import CaptureError

if TYPE_CHECKING:
    from rich.console import Console

    from hopline.capture.check import Report
    from hopline.capture.jsonl import Imported, Rejected
    from hopline.capture.reading import Problem

EXIT_CODES = """
Exit codes: 0 all is well, 1 lines were rejected or problems were found, 2 wrong usage, or it could not be done at all,
130 interrupted.
"""

_MOST_SHOWN: Final = 20
"""Rejected lines or problems that a person is shown one by one; as JSON all of them come."""

_PROGRESS_S: Final = 0.2
"""How often progress is shown."""

app = typer.Typer(name="capture", help="Import, export and check captures.", no_args_is_help=True, rich_markup_mode=None)

FilesArgument = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Files of JSON lines.", show_default=False)]
FolderArgument = Annotated[
    str, typer.Argument(metavar="DIR", help="The folder of a capture, or a URI that pyarrow opens.", show_default=False)
]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.", show_default="standard output")
]


@app.callback()
def _capture() -> None:
    """Import, export and check captures: folders of what nodes saw."""


@app.command("import", epilog=EXIT_CODES)
def import_(files: FilesArgument, folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Import JSON lines into a capture, which is made if it is not there.

    A line is an object with `seen_ns`, `node`, `direction` (in or out), `socket` (may be missing) and `frames` (hex); other
    keys are kept. A file is known by what it holds: what was imported before is not imported again, of a file that has
    grown only the new lines are, and an import that was interrupted goes on where it stopped. A bad line is rejected with
    its number and the reason; the others are imported.

    Example:  hopline capture import client.jsonl server.jsonl captures/
    """
    all_good = True
    with _complaining():
        from hopline.capture.jsonl import Import

        for file in files:  # before anything is written
            if not file.is_file():
                raise complaint(f"cannot read {file}: {'it is no file' if file.exists() else 'there is none'}")
        with Import(folder) as target:
            for file in files:
                progress = _Progress(file.name)
                rejects = _Rejects(progress, is_json=as_json or not sys.stdout.isatty())
                imported = target.add(file, rejects.show, progress.show)
                progress.clear()
                all_good = all_good and not imported.rejected
                put(_import_answer(imported), _show_import, as_json=as_json)
    if not all_good:
        raise typer.Exit(1)


@app.command("export", epilog=EXIT_CODES)
def export(folder: FolderArgument, output: OutputOption = None, as_json: JsonOption = False) -> None:
    """Write a capture as JSON lines, in the order of time, then of file and line.

    What was imported comes out as it was, object for object. What is torn or damaged is left out, and said on standard
    error. With -o a summary is printed, with --json as JSON.

    Example:  hopline capture export captures/ -o all.jsonl
    """
    with _complaining():
        from hopline.capture.jsonl import export_lines
        from hopline.capture.store import open_capture

        capture = open_capture(folder)
        lines = export_lines(capture)
        if output is None:
            count = _write(lines, sys.stdout.buffer)
        else:
            try:
                with output.open("wb") as stream:
                    count = _write(lines, stream)
            except OSError as error:
                raise complaint(f"cannot write {output}: {error.strerror}") from None
            summary = {"ok": not capture.problems, "file": str(output), "messages": count}
            put(summary, lambda console, _: console.print(f"{count} messages", highlight=False), as_json=as_json)
        _complain_of(capture.problems)
    if capture.problems:
        raise typer.Exit(1)


@app.command("check", epilog=EXIT_CODES)
def check(folder: FolderArgument, as_json: JsonOption = False) -> None:
    """Check a capture: which segments are whole, open, torn or damaged, what is missing, whose end was not clean.

    A segment that is being written now is no problem. A torn one loses its last batch only. Missing sequence numbers are
    messages that a node saw and did not write, or that somebody deleted.

    Example:  hopline capture check captures/
    """
    with _complaining():
        from hopline.capture.store import open_capture

        report = open_capture(folder).check()
        put(_check_answer(report), _show_check, as_json=as_json)
    if not report.is_good:
        raise typer.Exit(1)


@contextmanager
def _complaining() -> Iterator[None]:
    """What goes wrong altogether is one line on standard error."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "pyarrow"):
            raise
        raise complaint("captures need numpy and pyarrow: pip install 'hopline[columnar]'") from None
    except CaptureError as error:
        raise failure(error, code=2) from None
    except BrokenPipeError:  # as in `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise complaint(f"cannot go on: {error.strerror or error}") from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


# Import.


class _Progress:
    """How far an import is, on a terminal only."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_on = sys.stderr is not None and sys.stderr.isatty()
        self._shown_at = time.monotonic()

    def show(self, done: int, size: int) -> None:
        if self._is_on and time.monotonic() - self._shown_at >= _PROGRESS_S:
            self._shown_at = time.monotonic()
            typer.echo(f"\r\x1b[K{self._name}: {100 * done // max(size, 1)} %", err=True, nl=False)

    def clear(self) -> None:
        if self._is_on:
            typer.echo("\r\x1b[K", err=True, nl=False)


class _Rejects:
    """Rejected lines of a file: all of them as JSON, the first ones to a person."""

    def __init__(self, progress: _Progress, *, is_json: bool) -> None:
        self._progress = progress
        self._is_json = is_json
        self._count = 0

    def show(self, rejected: "Rejected") -> None:
        self._count += 1
        if self._is_json:
            place = {"file": rejected.file, "line": rejected.line}
            put(error_to_json(rejected.error) | place, lambda _console, _answer: None, as_json=True)
        elif self._count <= _MOST_SHOWN:
            self._progress.clear()
            typer.echo(f"{rejected.file}, line {rejected.line}: {rejected.error.code}: {rejected.error}", err=True)
        elif self._count == _MOST_SHOWN + 1:
            typer.echo(f"{rejected.file}: more lines were rejected; --json shows all of them", err=True)


def _import_answer(imported: "Imported") -> dict[str, Any]:
    return {
        "ok": not imported.rejected,
        "file": imported.file,
        "imported": imported.imported,
        "rejected": imported.rejected,
        "known": imported.known,
        "replaced": imported.replaced,
        "segments": imported.segments,
    }


def _show_import(console: "Console", answer: dict[str, Any]) -> None:
    parts = [f"{answer['imported']} imported"]
    if answer["known"]:
        parts.append(f"{answer['known']} were there already")
    if answer["rejected"]:
        parts.append(f"{answer['rejected']} lines rejected")
    if answer["replaced"]:
        parts.append("what an interrupted import had left was replaced")
    console.print(f"{answer['file']}: {', '.join(parts)}", markup=False)


# Export.


def _write(lines: Iterable[bytes], stream: BinaryIO) -> int:
    count = 0
    for line in lines:
        stream.write(line)
        stream.write(b"\n")
        count += 1
    stream.flush()
    return count


def _complain_of(problems: "list[Problem]") -> None:
    for problem in problems[:_MOST_SHOWN]:
        typer.echo(f"hopline: {_in_words(problem._asdict())}", err=True)
    if len(problems) > _MOST_SHOWN:
        typer.echo(f"hopline: {len(problems) - _MOST_SHOWN} problems more; see `hopline capture check`", err=True)


def _in_words(problem: dict[str, Any]) -> str:
    place = f" at byte {problem['position']}" if problem["position"] is not None else ""
    where = f"{problem['segment']}{place}: " if problem["segment"] else ""
    return f"{problem['code']}: {where}{problem['reason']}"


# Check.


def _check_answer(report: "Report") -> dict[str, Any]:
    states = {segment.state for segment in report.segments}
    return {
        "ok": report.is_good,
        "rows": report.rows,
        "states": {state: report.count(state) for state in sorted(states)},
        "problems": [problem._asdict() for problem in report.problems],
        "streams": report.streams,
        "segments": report.segments,
    }


def _show_check(console: "Console", answer: dict[str, Any]) -> None:
    states = ", ".join(f"{count} {state}" for state, count in answer["states"].items())
    count = len(answer["segments"])
    console.print(f"{answer['rows']} messages in {count} segments{f': {states}' if states else ''}", markup=False)
    for problem in answer["problems"][:_MOST_SHOWN]:
        console.print(problem["code"], style="bold red", end=" ")
        console.print(_in_words(problem).removeprefix(f"{problem['code']}: "), markup=False)
    if len(answer["problems"]) > _MOST_SHOWN:
        console.print(f"{len(answer['problems']) - _MOST_SHOWN} problems more; --json shows all of them")
    if answer["ok"]:
        console.print("no problems", style="green")

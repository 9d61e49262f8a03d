"""Lines in, answers out: what every command that works line by line shares.

One answer for one line, in order, written as it goes; a bad line is an answer too, not a crash. As JSON lines when piped or
asked for, else as something a person likes to read. Lines come from outside: their length is bounded.
"""

import os
import stat
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, TypeVar

import msgspec
import typer

from hopline.errors import DecodeError, HoplineError, InputError
from hopline.wire.fields import read_hex

if TYPE_CHECKING:
    from rich.console import Console

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes read for one line: a message of 32 MiB in hex. A longer line is rejected, and skipped without being held."""

_CHUNK: Final = 1024 * 1024

Answer = dict[str, Any]
Show = Callable[["Console", int, Answer], None]
Write = Callable[[int, Answer, Show], None]

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE|-", help="A file of JSON lines, or - for standard input.", show_default=False)
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON lines, also on a terminal.")]


_Line = TypeVar("_Line")


class _FramesLine(msgspec.Struct):
    frames: list[str]


_frames_decoder = msgspec.json.Decoder(_FramesLine)


def read_frames(line: bytes) -> list[bytes]:
    """Read a line of JSON with `frames`, a list of hex texts; other keys are ignored."""
    return [read_hex(text, f"frame {i}") for i, text in enumerate(read_line(line, _frames_decoder).frames)]


def read_line(line: bytes, decoder: msgspec.json.Decoder[_Line]) -> _Line:
    """Read a line of JSON of a given shape; raises InputError."""
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError("INPUT_BAD_JSON", f"not JSON of the expected shape: {error}") from None


def error_to_json(error: HoplineError) -> Answer:
    """The answer to a line that was rejected."""
    tried = error.tried if isinstance(error, DecodeError) else ()
    body = {"code": error.code, "message": str(error), "tried": [attempt._asdict() for attempt in tried]}
    return {"ok": False, "error": body}


def answer_lines(source: str, answer: Callable[[bytes], Answer], show: Show, *, as_json: bool) -> bool:
    """Answer each line of `source`; return whether every answer is good. An answer is good if its `ok` is true."""
    all_good = True
    if sys.stdout is None:
        raise usage_error("standard output is closed")
    with _opened(source) as stream, _quiet_end():
        write = _json_writer(stream) if as_json or not sys.stdout.isatty() else _terminal_writer()
        for number, line in _lines(stream):
            try:
                if line is None:
                    reason = f"line {number} is longer than {LONGEST_LINE} bytes"
                    raise InputError("INPUT_TOO_LONG", reason)
                result, shown = answer(line), show
            except HoplineError as error:
                result, shown = error_to_json(error), _show_error
            all_good = all_good and result["ok"]
            write(number, result, shown)
        sys.stdout.flush()
    return all_good


def _json_writer(stream: BinaryIO) -> Write:
    out = sys.stdout.buffer
    encoder = msgspec.json.Encoder()
    # A file is done when it is done; on a pipe somebody may be waiting for each answer.
    is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)

    def write(_number: int, result: Answer, _show: Show) -> None:
        out.write(encoder.encode(result) + b"\n")
        if not is_file:
            out.flush()

    return write


def _terminal_writer() -> Write:
    from rich.console import Console

    console = Console(highlight=False)
    return lambda number, result, show: show(console, number, result)


def _show_error(console: "Console", number: int, result: Answer) -> None:
    error = result["error"]
    console.print(f"line {number}: ", end="", style="bold red")
    console.print(f"{error['code']}  {error['message']}", markup=False)
    show_tried(console, error)


def show_tried(console: "Console", error: Answer) -> None:
    """Show a person which formats were tried and why each failed."""
    for attempt in error["tried"]:
        if attempt["reason"] == error["message"]:
            continue  # said already
        console.print(f"    not {attempt['format']}: {attempt['reason']}", markup=False, style="dim")


@contextmanager
def _opened(source: str) -> Iterator[BinaryIO]:
    if source == "-":
        if sys.stdin is None:
            raise usage_error("standard input is closed")
        if sys.stdin.isatty():
            typer.echo("reading JSON lines from the terminal; Ctrl-D ends, --help explains", err=True)
        yield sys.stdin.buffer
        return
    try:
        stream = Path(source).open("rb")  # noqa: SIM115 - closed below; opening is what may fail
    except OSError as error:
        raise usage_error(f"cannot read {source}: {error.strerror}") from None
    with stream:
        yield stream


def usage_error(text: str) -> typer.BadParameter:
    """The error of a wrong call: one line, exit code 2."""
    return typer.BadParameter(text)


@contextmanager
def _quiet_end() -> Iterator[None]:
    """End without a traceback when the reader of our output has gone, as in `| head`, or on Ctrl-C."""
    try:
        yield
    except BrokenPipeError:
        _drop_output()
    except OSError as error:
        _drop_output()
        typer.echo(f"hopline: cannot go on: {error.strerror or error}", err=True)
        raise typer.Exit(2) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _drop_output() -> None:
    """Give what the interpreter flushes at exit somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Number and text of each line that is not blank; None for one that is too long."""
    number = 0
    while line := stream.readline(LONGEST_LINE + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(BOM_UTF8)
        if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
            while (rest := stream.readline(_CHUNK)) and not rest.endswith(b"\n"):
                pass
            yield number, None
        elif line.strip():
            yield number, line

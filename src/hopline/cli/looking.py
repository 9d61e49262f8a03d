"""Looking at a capture: what `dump`, `trace`, `flows` and `stats` share.

Which capture, which of it, and how to end well: what is wrong altogether is one line and exit code 2, a folder that holds
nothing one line and exit code 1; what is torn or damaged is said on standard error, and the rest is shown.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from hopline.cli.lines import usage_error
from hopline.cli.terminal import complaint, failure
from hopline.errors import CaptureError, HoplineError
from hopline.wire import TtlUnit

if TYPE_CHECKING:
    from hopline.capture.query import Query
    from hopline.capture.store import Capture

LOOKING_EXIT_CODES: Final = """
Exit codes: 0 all is well, 1 nothing like that is in the capture, 2 wrong usage, or the capture cannot be read,
130 interrupted. What of a capture is torn or damaged is said on standard error, and the rest is shown.
"""

CaptureArgument = Annotated[
    str, typer.Argument(metavar="[DIR]", help="The folder of a capture, or a URI that pyarrow opens.")
]
WhereOption = Annotated[
    str, typer.Option("--where", "-w", metavar="FILTER", help="Only what passes the filter; see hopline dump --help.")
]
SinceOption = Annotated[
    str,
    typer.Option("--since", metavar="TIME", help="Only what was seen at that time (UTC) or later; or so long ago: 10m, 2h."),
]
UntilOption = Annotated[str, typer.Option("--until", metavar="TIME", help="Only what was seen before that time.")]

_MOST_SHOWN: Final = 5
"""Problems of a capture that are said one by one."""


def query_of(where: str, since: str, until: str, v3_ttl: TtlUnit) -> "Query":
    """Make the question of its options; ends the command if one of them cannot be understood."""
    from hopline.capture.filter import parse_filter
    from hopline.capture.query import Query

    try:
        parsed = parse_filter(where)
    except HoplineError as error:
        raise usage_error(str(error)) from None
    return Query(parsed, _time_of("--since", since), _time_of("--until", until), v3_ttl)


def _time_of(option: str, text: str) -> datetime | None:
    from hopline.capture.fields import read_duration, read_time

    if not text:
        return None
    try:
        return read_time(text)
    except ValueError:
        pass
    try:
        # A bare number would be milliseconds, which nobody means here.
        ago = read_duration(text if text[-1].isalpha() else "")
        return datetime.now(UTC) - timedelta(milliseconds=ago)
    except (ValueError, OverflowError):
        example = "a time such as 2026-11-15T18:09:40Z, or so long ago, such as 10m"
        raise usage_error(f"{option} must be {example}, and not {text}") from None


@contextmanager
def looking_at(folder: str) -> Iterator["Capture"]:
    """Open a capture, and say at the end what is wrong with it. Ends the command if it cannot be read, or holds nothing."""
    if sys.stdout is None:
        raise usage_error("standard output is closed")
    try:
        from hopline.capture.store import open_capture

        capture = open_capture(folder)
        if not capture.segments():
            raise complaint(f"{folder} holds no segments: nothing was recorded there yet, or it is no capture", code=1)
        try:
            yield capture
            sys.stdout.flush()
        finally:
            _complain_of(capture)
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "pyarrow"):
            raise
        raise complaint("captures need numpy and pyarrow: pip install 'hopline[columnar]'") from None
    except CaptureError as error:
        raise failure(error, code=2) from None
    except BrokenPipeError:  # as in `| head`
        _drop_output()
    except OSError as error:
        _drop_output()
        raise complaint(f"cannot go on: {error.strerror or error}") from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _drop_output() -> None:
    """Give what the interpreter flushes at exit somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain_of(capture: "Capture") -> None:
    for problem in capture.problems[:_MOST_SHOWN]:
        where = f"{problem.segment}: " if problem.segment else ""
        typer.echo(f"hopline: {problem.code}: {where}{problem.reason}", err=True)
    if len(capture.problems) > _MOST_SHOWN:
        typer.echo(f"hopline: {len(capture.problems) - _MOST_SHOWN} problems more; see `hopline capture check`", err=True)


def clock(seen_ns: int) -> str:
    """A time for a person, UTC.

    >>> clock(1_794_765_998_413_687_500)
    '2026-11-15 18:06:38.413687'
    """
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=seen_ns // 1000)
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}"

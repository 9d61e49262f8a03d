"""`hopline pipeline`: captures become tables, once or without end."""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer

from hopline.cli.attending import INTERRUPTED, TERMINATED, attended, ending, terminable
from hopline.cli.lines import usage_error
from hopline.cli.looking import SinceOption, UntilOption, query_of
from hopline.cli.terminal import JsonOption, complaint, failure, put
from hopline.cli.verify import KeyOption, KeysOption, domains_of
from hopline.errors import CaptureError, HoplineError
from hopline.security import Keyring
from hopline.wire import TtlUnit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from hopline.spark.batch import Summary
    from hopline.spark.run import Asked, Pipeline

EXIT_CODES = """
Exit codes: 0 all is well, also if some records were no messages; 1 the run failed, and the tables are as they were
before; 2 wrong usage; 130 interrupted; 143 ended by SIGTERM before all was done.
"""

_USAGE: Final = (
    "SPARK_BAD_MASTER",
    "SPARK_NOT_INSTALLED",
    "TABLES_NOT_OURS",
    "TABLES_OTHER_TERMS",
)
"""What is wrong before anything is begun."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PROGRESS_S: Final = 0.5
"""How often progress is shown."""

_LINE_S: Final = 30.0
"""How often it is a line of a log, where no terminal shows it."""

_LEFT: Final = "what is not in the tables yet is left for the next run"

_MOST_NAMES: Final = 3
"""Names of segments in one line."""

app = typer.Typer(name="pipeline", no_args_is_help=True, rich_markup_mode=None)

CapturesArgument = Annotated[
    str, typer.Argument(metavar="CAPTURES", help="The folder of a capture, or a URI that pyarrow opens.", show_default=False)
]
TablesArgument = Annotated[
    str, typer.Argument(metavar="TABLES", help="The folder of the tables, made if it is not there.", show_default=False)
]
OnlyOption = Annotated[
    str | None,
    typer.Option(
        "--only",
        metavar="A,B,...",
        help="Make only these tables, and messages and rejects; a later run makes up for the rest.",
    ),
]
TtlOption = Annotated[
    TtlUnit | None,
    typer.Option("--v3-ttl", help="Unit of TTL in v3: ms as documented, ticks as old senders wrote it.", show_default="ms"),
]
BodiesOption = Annotated[bool, typer.Option("--bodies", help="Keep bodies: messages gets a column body.")]
ReachOption = Annotated[
    str,
    typer.Option(
        "--reach",
        metavar="DURATION",
        help="Over midnight, so far apart may lie what belongs together; at most 12h.",
        show_default="6h",
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs: spark://host:7077.", show_default="this machine"),
]


@app.callback()
def _pipeline() -> None:
    """Make tables of captures, with Spark: messages, flows, hops, callbacks and more, as folders of Parquet.

    Example:  hopline pipeline run captures/ tables/ && hopline report tables/ -o report.html
    """


@app.command("run", epilog=EXIT_CODES)
def run(
    captures: CapturesArgument,
    tables: TablesArgument,
    since: SinceOption = "",
    until: UntilOption = "",
    only: OnlyOption = None,
    keys: KeysOption = None,
    key: KeyOption = None,
    v3_ttl: TtlOption = None,
    bodies: BodiesOption = False,
    reach: ReachOption = "",
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take what is new in a capture into the tables.

    What was taken before is not taken again: if nothing is new, nothing is changed, and Spark is not even started. A run
    that is interrupted changes nothing, or is finished by the next one. With --since and --until only what was seen in
    that time is taken; the rest is left for later runs. What is no message becomes a row of the table rejects. The
    options --v3-ttl, --bodies and --reach hold for tables once and for all.

    Example:  hopline pipeline run captures/ tables/ --keys keys.toml
    """
    with _ending_well() as progress:
        asked = _asked(since, until, only, keys, key, v3_ttl, bodies=bodies, reach=reach)
        pipeline = _pipeline_of(captures, tables, asked, master, progress)
        summary = attended(pipeline.run, interrupt=progress.interrupt)
        progress.clear()
        put(_answer(summary), _show, as_json=as_json)


@app.command("stream", epilog=EXIT_CODES)
def stream(
    captures: CapturesArgument,
    tables: TablesArgument,
    every: Annotated[
        float,
        typer.Option("--every", metavar="SECONDS", min=0.1, max=86_400.0, help="Look for something new so often."),
    ] = 10.0,
    until_drained: Annotated[bool, typer.Option("--until-drained", help="End when all is taken that is there now.")] = False,
    since: SinceOption = "",
    only: OnlyOption = None,
    keys: KeysOption = None,
    key: KeyOption = None,
    v3_ttl: TtlOption = None,
    bodies: BodiesOption = False,
    reach: ReachOption = "",
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take what is new in a capture into the tables, again and again, until Ctrl-C or SIGTERM.

    Each time tables are made anew as far as something new touches them, and become visible at once. Every message is in
    them exactly once, however this ends; `hopline pipeline run` may go on where it stopped, and the other way round.
    SIGTERM is how to end it well: it stops within seconds, and the exit code is 0.

    Example:  hopline pipeline stream captures/ tables/ --every 30
    """
    with _ending_well(terminated=TERMINATED if until_drained else 0) as progress:
        from hopline.spark.stream import stream as stream_of

        if isnan(every):  # it is in every range
            raise usage_error("--every must be a number of seconds, and not nan")
        asked = _asked(since, "", only, keys, key, v3_ttl, bodies=bodies, reach=reach)
        pipeline = _pipeline_of(captures, tables, asked, master, progress)
        end = threading.Event()

        def on_batch(summary: "Summary") -> None:
            progress.clear()
            put(_answer(summary), _show if summary.changed else _show_read, as_json=as_json)

        def wait(seconds: float) -> bool:
            if not end.is_set():
                progress.rest("waiting for something new")
            return end.wait(seconds)

        def interrupt() -> None:
            end.set()
            progress.interrupt()

        work = partial(stream_of, pipeline, every_s=every, is_endless=not until_drained, on_batch=on_batch, wait=wait)
        attended(work, interrupt=interrupt)


# What is asked.


def _asked(
    since: str,
    until: str,
    only: str | None,
    keys: Path | None,
    key: list[str] | None,
    v3_ttl: TtlUnit | None,
    *,
    bodies: bool,
    reach: str,
) -> "Asked":
    """Make sense of the options; ends the command if one of them cannot be understood."""
    from hopline.spark.batch import NAMES
    from hopline.spark.run import Asked

    query = query_of("", since, until, "ms")
    if query.since is not None and query.until is not None and query.since >= query.until:
        raise usage_error("--since must be before --until: else there is no time between them")
    names = frozenset(NAMES if only is None else (name.strip() for name in only.split(",") if name.strip()))
    if not names:
        raise usage_error(f"--only names no table; there are {', '.join(NAMES)}")
    if unknown := names - set(NAMES):
        raise usage_error(f"--only: no such table: {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    try:
        domains = tuple(domains_of(key or [], keys)) if key or keys else None
        if domains:
            Keyring(domains)
    except HoplineError as error:
        raise usage_error(str(error)) from None
    return Asked(
        since_ns=_ns_of(query.since),
        until_ns=_ns_of(query.until),
        only=names,
        domains=domains,
        v3_ttl=v3_ttl,
        bodies=bodies or None,
        reach_s=_reach_of(reach),
    )


def _ns_of(moment: datetime | None) -> int | None:
    return None if moment is None else (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _reach_of(text: str) -> int | None:
    from hopline.capture.fields import read_duration
    from hopline.spark.state import LONGEST_REACH_S

    if not text:
        return None
    try:
        seconds = read_duration(text if text[-1].isalpha() else "") / 1000
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_REACH_S:
        raise usage_error(f"--reach must be a duration from 0s to 12h, such as 6h or 30m, and not {text}")
    return round(seconds)


def _pipeline_of(captures: str, tables: str, asked: "Asked", master: str | None, progress: "_Progress") -> "Pipeline":
    from hopline.capture import open_capture
    from hopline.spark.master import check_master
    from hopline.spark.run import Pipeline
    from hopline.spark.warehouse import OWN

    try:
        open_capture(captures).segments()  # that it is not there, or was not imported yet, is the first thing to say
    except CaptureError as error:
        # One that goes away later was no wrong usage: then the run has failed.
        raise failure(error, code=2 if error.code == "CAPTURE_NOT_FOUND" else 1) from None
    if (Path(captures) / OWN).is_dir():
        raise usage_error(f"{captures} is a folder of tables, and no capture: was it meant the other way round?")
    if master is not None:
        check_master(master)  # also if nothing is new, and Spark is not started: a mistake is one every time
    if "://" not in captures and Path(captures).resolve() == Path(tables).resolve():
        raise usage_error("the tables need a folder of their own")

    def session(settings: Mapping[str, str]) -> "SparkSession":
        from hopline.spark.session import spark_session

        progress.go_on("starting Spark")
        progress.session = spark_session(master, conf=settings)
        return progress.session

    return Pipeline(captures, tables, asked, session=session, on_progress=progress.go_on)


# What is shown.


class _Progress:
    """What is being done, for how long, and how many tasks Spark has done of it. And its end.

    A terminal shows it all the time; a log has a line of it now and then, as long as there is work.
    """

    def __init__(self) -> None:
        self.session: SparkSession | None = None
        self.is_interrupted = False
        self.is_resting = False
        self._is_on = sys.stderr is not None
        self._is_terminal = self._is_on and sys.stderr.isatty()
        self._text = ""
        self._since_s = 0.0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        if self._is_on:
            self._ticker.start()

    def show(self, text: str) -> None:
        """Show something else."""
        with self._lock:
            self._text, self._since_s = text, time.monotonic()
        self._redraw()

    def go_on(self, text: str) -> None:
        """Show something else, unless it is not to be done any more: then raise KeyboardInterrupt."""
        if self.is_interrupted:
            raise KeyboardInterrupt
        self.is_resting = False
        self.show(text)

    def rest(self, text: str) -> None:
        """Show that there is nothing to do."""
        self.is_resting = True
        self.show(text)

    def interrupt(self) -> None:
        """Let nothing more be begun, and Spark drop what it is doing, without a word about it. From another thread."""
        from py4j.protocol import Py4JError

        session = self.session
        if not self.is_interrupted:
            self.show("interrupted, ending")
        self.is_interrupted = True
        if session is not None:
            with suppress(Py4JError):  # it may be gone
                session.sparkContext.setLogLevel("OFF")
                session.sparkContext.cancelAllJobs()

    def clear(self) -> None:
        """Show nothing, so that something else can be written."""
        with self._lock:
            self._text = ""
        self._redraw()

    def close(self) -> None:
        """Show nothing any more, and end the Spark session."""
        self.clear()
        self._end.set()
        if self._is_on:
            self._ticker.join()
        if self.session is not None:
            with ending():
                self.session.stop()

    def _tick(self) -> None:
        while not self._end.wait(_PROGRESS_S if self._is_terminal else _LINE_S):
            if self._text and (self._is_terminal or not self.is_resting):
                self._draw()

    def _redraw(self) -> None:
        if self._is_terminal:
            self._draw()

    def _draw(self) -> None:
        text, seconds = self._text, int(time.monotonic() - self._since_s)
        shown = f"{text}{self._tasks()}{f', {seconds} s' if seconds else ''}" if text else ""
        with self._lock:
            if text != self._text:  # it is no longer true: to ask Spark takes a while
                return
            if self._is_terminal:
                typer.echo(f"\r\x1b[K{shown}", err=True, nl=False)
            elif shown:
                typer.echo(f"hopline: {shown}", err=True)

    def _tasks(self) -> str:
        """How many tasks are done, of those that Spark works at."""
        session = self.session
        if session is None:
            return ""
        tracker = session.sparkContext.statusTracker()
        stages = [stage for number in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(number)) is not None]
        count = sum(stage.numTasks for stage in stages)
        return f", {sum(stage.numCompletedTasks for stage in stages)} of {count} tasks" if count else ""


def _answer(summary: "Summary") -> dict[str, Any]:
    return {"ok": True, **msgspec.to_builtins(summary)}


def _show_read(console: "Console", answer: dict[str, Any]) -> None:
    """What was read of the capture."""
    if answer["changed"]:
        rejected = f", {answer['rejected']} of them no messages (see rejects)" if answer["rejected"] else ""
        segments = f"{answer['segments']} segment{'' if answer['segments'] == 1 else 's'}"
        console.print(f"{answer['read']} records read of {segments} in {answer['seconds']:.1f} s{rejected}")
    else:
        console.print("nothing new; the tables are as they were")
    if gone := answer.get("gone"):
        is_one = len(gone) == 1
        what = "1 segment was gone" if is_one else f"{len(gone)} segments were gone"
        console.print(f"{what} before {'it was' if is_one else 'they were'} read: {_few(gone)}", markup=False)
    if unfinished := answer.get("unfinished"):
        what = (
            "1 segment stops before its end"
            if len(unfinished) == 1
            else f"{len(unfinished)} segments stop before their ends"
        )
        named = _few([f"{name} ({reason})" for name, reason in unfinished.items()])
        console.print(f"{what}: {named}; the rest is taken when it comes", markup=False)
    if unchecked := answer.get("unchecked"):
        what = "1 signature was not checked" if unchecked == 1 else f"{unchecked} signatures were not checked"
        console.print(f"{what}, as no keys were given. They are judged only when a message is taken:")
        console.print("to have these judged, make the tables anew with --keys")


def _show(console: "Console", answer: dict[str, Any]) -> None:
    """What was read, and what became of the tables."""
    from rich.table import Table
    from rich.text import Text

    _show_read(console, answer)
    reasons = {name: made["empty"] or "" for name, made in answer["tables"].items()}
    if len(set(reasons.values())) == 1 and (reason := next(iter(reasons.values()))):  # the same for all: once is enough
        console.print(Text(reason, style="yellow"))
        reasons = {}
    table = Table(box=None, pad_edge=False)
    table.add_column("table")
    for title in ("written", "rows"):
        table.add_column(title, justify="right")
    table.add_column("")
    for name, made in answer["tables"].items():
        said = "not up to date: it was left out by --only" if made["is_behind"] else reasons.get(name, "")
        table.add_row(name, str(made["written"]), str(made["rows"]), Text(said, style="yellow"))
    console.print(table)


def _few(names: list[str]) -> str:
    """Some names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


@contextmanager
def _ending_well(*, terminated: int = TERMINATED) -> Iterator[_Progress]:
    """What goes wrong is one line on standard error, and the exit code says whose fault it is.

    Args:
        terminated: the exit code of what SIGTERM has ended.
    """
    progress = _Progress()
    code = INTERRUPTED
    try:
        with terminable() as is_terminated:
            try:
                yield progress
            finally:
                progress.clear()
                code = terminated if is_terminated.is_set() else INTERRUPTED
        if progress.is_interrupted:  # too late: all was done
            raise KeyboardInterrupt  # noqa: TRY301 - told below, with those that came in time
    except ModuleNotFoundError as error:
        if error.name not in ("numpy", "pyarrow", "pyspark", "pandas"):
            raise
        raise complaint("the pipeline needs Spark: pip install 'hopline[spark]'") from None
    except HoplineError as error:
        raise failure(error, code=2 if error.code in _USAGE else 1) from None
    except OSError as error:
        raise complaint(f"cannot go on: {error.strerror or error}", code=1) from None
    except KeyboardInterrupt:
        left = "all that was there is in the tables" if progress.is_resting else _LEFT
        raise complaint(f"interrupted: {left}", code=code) from None
    finally:
        progress.close()

"""`python -m bench.spark_pipeline`: what the pipeline costs, as ratios to an identity, and as time and memory against size.

    ratios    jobs take turns over one capture (`traffic.py`) and the same frames in Parquet (`spark_jobs.py`)
    scaling   whole runs of the pipeline over captures of several sizes, each in processes of its own and with what Spark
              gives them by default, so that the memory of one says nothing about another

With --write the tables go into docs/benchmarks.md and docs/sizing.md, and the plot beside them.
"""

import argparse
import contextlib
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import linear_regression
from typing import Final, NamedTuple, get_args

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from bench.plot import Line, Panel, svg
from bench.spark_jobs import HEADER, METER, Job, Use, line, read_only, take_turns, yardstick
from bench.traffic import DOMAINS, write_traffic
from hopline.capture.stream import Compression
from hopline.spark.batch import NAMES
from hopline.spark.callbacks import find_answers
from hopline.spark.disk import Disk
from hopline.spark.expiries import find_fates
from hopline.spark.flows import flows
from hopline.spark.hops import find_moves
from hopline.spark.news import find_news
from hopline.spark.parts import Span
from hopline.spark.run import Asked, Pipeline, settings_for
from hopline.spark.session import spark_session
from hopline.spark.shelves import PASSING, days_on
from hopline.spark.signatures import signatures
from hopline.spark.window import Window, stage

PAGE: Final = Path("docs/benchmarks.md")
SIZING: Final = Path("docs/sizing.md")
PLOT: Final = Path("docs/pipeline-scaling.svg")

MESSAGES: Final = 2_000_000
ROUNDS: Final = 5
SCALE: Final = "0.5,1,2,4,8"
CORES: Final = 2
_MILLION: Final = 1_000_000
_BILLION: Final = 1_000_000_000
_GIB: Final = 2**30
_LOOK_S: Final = 0.5


# --- ratios -----------------------------------------------------------------------------------------------------------


def jobs(spark: SparkSession, folder: Path) -> tuple[Job, list[Job]]:
    """The yardstick, and what is held against it. They share what was made before, as tables of one day do."""
    capture = str(folder / "capture")
    news = find_news(capture)

    schemas: dict[str, StructType] = {}

    def read(name: str) -> DataFrame:
        # As a run of the pipeline does it: Spark is told the columns, and does not look for them in the files.
        if name not in schemas:
            schemas[name] = spark.read.parquet(str(folder / name)).schema
        return spark.read.schema(schemas[name]).parquet(str(folder / name))

    def kept(name: str, make: Callable[[], DataFrame]) -> DataFrame:
        if not (folder / name).exists():
            make().write.option("compression", PASSING).parquet(str(folder / name))
        return read(name)

    disk = Disk(folder)

    def write_sightings() -> None:
        disk.clear("sightings")
        stage(news, spark, disk, "sightings", "bench", bodies=False)

    def write_messages() -> None:
        write_sightings()
        disk.clear("messages")
        days = days_on(disk, "sightings")
        Window(spark, disk, ["sightings"], days, Span(0, 2**62), bodies=False).make("messages", "bench")

    def messages() -> DataFrame:
        return read("messages")

    def verdicts() -> DataFrame:
        return kept("verdicts", lambda: news.verdicts(spark, DOMAINS))

    def moves() -> DataFrame:
        return kept("moves", lambda: find_moves(messages()))

    def fates() -> DataFrame:
        return kept("fates", lambda: find_fates(messages(), moves()))

    def answers() -> DataFrame:
        return kept("answers", lambda: find_answers(messages()))

    def flows_alone() -> DataFrame:
        return flows(messages(), answers(), moves(), fates(), verdicts())

    def flows_of_messages() -> DataFrame:
        return flows(messages(), find_answers(messages()), find_moves(messages()))

    return yardstick(spark, folder / "frames.parquet"), [
        Job("capture to decoded rows in Parquet", write_sightings),
        Job("capture to `messages` in Parquet, by way of these", write_messages, 2.5),
        Job("`flows`, when hops and callbacks are made", read_only(flows_alone), 1.5),
        Job("`flows` of `messages` alone, hops and callbacks within", read_only(flows_of_messages)),
        Job("signature audit", read_only(lambda: signatures(news.verdicts(spark, DOMAINS))), 1.2),
    ]


def measure_ratios(folder: Path, messages: int, rounds: int) -> tuple[list[str], bool]:
    """Measure, and tell it as lines of Markdown; and whether a target was missed."""
    folder.mkdir()
    made = write_traffic(folder / "capture", messages, frames=folder / "frames.parquet")
    spark = spark_session(f"local[{CORES}]", conf={"spark.driver.memory": "2g"})
    loads = [os.getloadavg()[0]]
    try:
        for name, value in settings_for(_size(folder / "capture"), 0, CORES).items():
            spark.conf.set(name, value)  # as a run of the pipeline does
        by, others = jobs(spark, folder)
        take_turns((by, *others), rounds)
    finally:
        spark.stop()
    loads.append(os.getloadavg()[0])
    what = (
        f"{made} messages (v6), {rounds} interleaved rounds, {CORES} cores; load average {loads[0]:.1f} to {loads[1]:.1f}."
    )
    return [what, "", *HEADER, *(line(job, by, made) for job in (by, *others))], any(job.is_missed(by) for job in others)


# --- scaling ----------------------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """A run of the pipeline, and what it took. Bytes are those of all files, but for the memory of single processes."""

    name: str
    messages: int
    wall_s: float
    use: Use
    jvm_bytes: int
    python_bytes: int
    disk_bytes: int
    capture_bytes: int
    table_bytes: dict[str, int]
    load: float


def measure_run(
    folder: Path,
    messages: int,
    name: str = "",
    *,
    cores: int = CORES,
    is_one_flow: bool = False,
    segment_messages: int | None = None,
) -> Run:
    """Make a capture, if it is not there, and run the pipeline over it in processes of its own."""
    tables, spills = folder / "tables", folder / "spills"
    capture = folder / f"{messages}{' in one flow' if is_one_flow else ''}{' in pieces' if segment_messages else ''}"
    if not capture.exists():
        write_traffic(capture, messages, is_one_flow=is_one_flow, segment_messages=segment_messages)
    METER.forget_peaks()
    before, start, most = METER.use(), time.perf_counter(), 0
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe(duplex=False)
    process = spawning.Process(target=_run, args=(capture, tables, spills, cores, there))
    process.start()
    while process.is_alive():
        most = max(most, _size(tables) + _size(spills))
        process.join(_LOOK_S)
    wall_s = time.perf_counter() - start
    if process.exitcode != 0:
        raise RuntimeError(f"the run over {messages} messages failed")
    made = here.recv()
    jvm_bytes, python_bytes = METER.peaks()
    sizes = {table: _size(tables / table) for table in (*NAMES, "_hopline")}
    found = Run(
        name,
        made,
        wall_s,
        METER.use().since(before),
        jvm_bytes,
        python_bytes,
        most,
        _size(capture),
        sizes,
        os.getloadavg()[0],
    )
    shutil.rmtree(tables)
    shutil.rmtree(spills, ignore_errors=True)
    print(*run_table([found])[-1:], flush=True)
    return found


def _run(capture: Path, tables: Path, spills: Path, cores: int, answer: Connection) -> None:
    """Run the pipeline, in a process of its own, and answer how many messages it has read."""

    def session(settings: Mapping[str, str]) -> SparkSession:
        return spark_session(f"local[{cores}]", conf={**settings, "spark.local.dir": str(spills)})

    summary = Pipeline(str(capture), str(tables), Asked(domains=DOMAINS), session=session).run()
    answer.send(summary.tables["messages"].rows)


def _size(folder: Path) -> int:
    """Bytes of all files in and below a folder; what goes away meanwhile does not count."""
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += Path(place, name).stat().st_size
    return size


def run_table(runs: list[Run]) -> list[str]:
    """Runs as lines of Markdown."""
    lines = [
        "| messages | seconds | CPU s | CPU us a message | JVM GiB | Python GiB | disk, bytes a message | load average |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for run in runs:
        name = f"{run.messages / _MILLION:.2f} million{f', {run.name}' if run.name else ''}"
        cpu = run.use.all_s / run.messages * 1e6
        memory = f"{run.jvm_bytes / _GIB:.2f} | {run.python_bytes / _GIB:.2f}"
        disk = f"{run.disk_bytes / run.messages:.0f}"
        lines.append(f"| {name} | {run.wall_s:.0f} | {run.use.all_s:.0f} | {cpu:.1f} | {memory} | {disk} | {run.load:.1f} |")
    return lines


def size_table(run: Run, captures: Mapping[str, float]) -> list[str]:
    """Bytes a message: of captures by their compression, and of each table."""
    lines = ["| bytes a message | |", "|---|---:|"]
    lines += [f"| capture, {name} | {size:.1f} |" for name, size in captures.items()]
    for name, size in run.table_bytes.items():
        shown = "facts kept beside the tables" if name == "_hopline" else f"`{name}`"
        lines.append(f"| {shown} | {size / run.messages:.2f} |")
    return lines


def capture_sizes(folder: Path, messages: int) -> dict[str, float]:
    """Bytes a message of a capture, by its compression."""
    sizes = {}
    for compression in get_args(Compression):
        made = write_traffic(folder / compression, messages, compression=compression)
        sizes[compression] = _size(folder / compression) / made
    shutil.rmtree(folder)
    return sizes


def straightness(runs: list[Run]) -> str:
    """The straight line through the points by least squares, and how far the farthest point is from it."""
    line = _line_through(runs, lambda run: run.wall_s)
    far = max(abs(run.wall_s / line(run.messages) - 1) for run in runs)
    words = f"{line(0):.0f} s and {line(_MILLION) - line(0):.0f} s a million"
    return f"The straight line through the points is {words}; no point is more than {far:.0%} off."


def _line_through(runs: list[Run], what: Callable[[Run], float]) -> Callable[[float], float]:
    slope, start = linear_regression([run.messages for run in runs], [what(run) for run in runs])
    return lambda messages: start + slope * messages


def cost_table(runs: list[Run], captures: Mapping[str, float]) -> list[str]:
    """What a billion messages cost, from the slope of the lines and the sizes of the greatest run."""
    cpu = _line_through(runs, lambda run: run.use.all_s)
    hours = (cpu(_BILLION) - cpu(0)) / 3600
    last = runs[-1]
    tables = sum(last.table_bytes.values()) / last.messages
    disk = last.disk_bytes / last.messages
    widest = max(run.jvm_bytes for run in runs), max(run.python_bytes for run in runs)
    return [
        "| a billion messages | |",
        "|---|---:|",
        f"| CPU, all tables | {hours:.0f} core hours |",
        *(f"| capture, {name} | {size:.0f} GB |" for name, size in captures.items()),
        f"| all tables together | {tables:.0f} GB |",
        f"| disk while it runs, tables, staging and spills, if they are of one day | {disk:.0f} GB |",
        f"| memory of the JVM, whatever the number | {widest[0] / _GIB:.1f} GiB |",
        f"| memory of the largest Python process | {widest[1] / _GIB:.1f} GiB |",
    ]


def plot(runs: list[Run]) -> str:
    """Time and memory against messages."""

    def points(what: Callable[[Run], float]) -> list[tuple[float, float]]:
        return [(run.messages / _MILLION, what(run)) for run in runs]

    time_lines = [Line("CPU", points(lambda run: run.use.all_s)), Line("on the clock", points(lambda run: run.wall_s))]
    memory_lines = [
        Line("JVM", points(lambda run: run.jvm_bytes / _GIB)),
        Line("largest Python process", points(lambda run: run.python_bytes / _GIB)),
    ]
    return svg(
        [
            Panel("Time of a whole run", "million messages", "seconds", time_lines),
            Panel("Memory at its peak", "million messages", "GiB", memory_lines),
        ]
    )


# --- the command ------------------------------------------------------------------------------------------------------


def report(part: str, lines: list[str], page: Path | None) -> None:
    """Print a part, and put it between its marks on a page."""
    text = "\n".join(lines)
    print(text, flush=True)
    if page is not None:
        start, end = f"<!-- {part}: start -->", f"<!-- {part}: end -->"
        before, found, rest = page.read_text().partition(start)
        if found:
            page.write_text(f"{before}{start}\n\n{text}\n\n{end}{rest.partition(end)[2]}")


def measure_scaling(folder: Path, scale: str, *, is_written: bool) -> None:
    """Measure runs of several sizes, and tell of them after each."""
    sizes = [round(float(size) * _MILLION) for size in scale.split(",")]
    captures = capture_sizes(folder / "sizes", min(sizes))
    page, sizing, runs = PAGE if is_written else None, SIZING if is_written else None, list[Run]()
    for size in sizes:
        runs.append(measure_run(folder, size))
        if len(runs) > 1:  # a line has two ends
            image = f"![time and memory against messages]({PLOT.name})"
            report("pipeline scaling", [image, "", *run_table(runs), "", straightness(runs)], page)
            report(
                "pipeline sizes",
                ["What it leaves on the disk, from the greatest of these runs:", "", *size_table(runs[-1], captures)],
                page,
            )
            report("pipeline costs", cost_table(runs, captures), sizing)
            if is_written:
                PLOT.write_text(plot(runs))


def measure_shapes(folder: Path, messages: int, *, is_written: bool) -> None:
    """Measure runs that are odd in one way each."""
    shapes = [
        measure_run(folder, messages, "two cores"),
        measure_run(folder, messages, "one core", cores=1),
        measure_run(folder, messages, "one correlation id", is_one_flow=True),
        measure_run(folder, messages, "100 messages a segment", segment_messages=100),
    ]
    report("pipeline shapes", ["Odd in one way each:", "", *run_table(shapes)], PAGE if is_written else None)


def main() -> int:
    """Measure what is asked for; 1 if a target was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.spark_pipeline", description=__doc__)
    parser.add_argument("--messages", type=int, default=MESSAGES, help="for ratios; 0 leaves them out")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--scale", default=SCALE, help="millions of messages of whole runs, by commas; 0 leaves them out")
    parser.add_argument("--shapes", type=float, default=1, help="millions of messages of odd runs; 0 leaves them out")
    parser.add_argument("--captures", type=Path, help="a folder in which captures are kept for the next time")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {PAGE} and {SIZING}, and the plot beside")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hopline-bench-"))
    captures = options.captures or folder / "captures"
    captures.mkdir(parents=True, exist_ok=True)
    is_missed = False
    try:
        if options.messages:
            # In a process of its own: its JVM ends with it, and is not taken for that of a run.
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                asked = (folder / "ratios", options.messages, options.rounds)
                lines, is_missed = pool.submit(measure_ratios, *asked).result()
            report("pipeline ratios", lines, PAGE if options.write else None)
        if options.scale not in ("", "0"):
            measure_scaling(captures, options.scale, is_written=options.write)
        if options.shapes:
            measure_shapes(captures, round(options.shapes * _MILLION), is_written=options.write)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if is_missed else 0


if __name__ == "__main__":
    sys.exit(main())

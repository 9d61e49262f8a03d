"""The stream: runs without end, each of what has come since the last.

    look what is new -> make tables of it and commit -> wait -> look ...

It is a loop of the same runs that `run.py` makes one of, in one Spark session and under one lock. So what it has taken is
known from one place, the state that is committed together with the tables: every row is in them exactly once, whenever it is
killed, and `run` and `stream` may take turns.

Why not a streaming query of Spark with `foreachBatch`? Each batch is read several times - messages, rejects, bodies,
signatures - and a streaming DataFrame gives it once. And its checkpoint would be a second account of what was taken, beside
the state of the tables; after a crash the two would have to be reconciled, which is where streams lose rows or take them
twice. The source itself (`spark.readStream.format("hopline")`) is there for streams of your own.
"""

from collections.abc import Callable
from threading import Event
from typing import Final

from hopline.spark.batch import Summary
from hopline.spark.run import Pipeline

EVERY_S: Final = 10.0
"""Seconds between two looks. A batch makes the day so far anew: looking more often would only make more of the same."""

Wait = Callable[[float], bool]
"""Waits so many seconds, and says whether it is time to end."""


def stream(
    pipeline: Pipeline,
    *,
    every_s: float = EVERY_S,
    is_endless: bool = True,
    on_batch: Callable[[Summary], None],
    wait: Wait | None = None,
) -> None:
    """Take what is new again and again; raises TablesError, CaptureError, SparkError.

    Args:
        pipeline: what to do.
        every_s: seconds between two looks.
        is_endless: if not, it ends when all is taken that was there when it began.
        on_batch: is told what each batch did; if there was nothing new, only by a stream that then ends.
        wait: waits, and says whether it is time to end; by default it never is.
    """
    wait = Event().wait if wait is None else wait
    with pipeline.warehouse.only_me("stream"):
        while True:
            summary = pipeline.take("stream")
            if summary.changed or not is_endless:  # who waits for its end is owed a word
                on_batch(summary)
            if not is_endless or wait(every_s):
                return

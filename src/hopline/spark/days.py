"""Days: all tables of one day, made of the sightings of that day and of some hours before and after it.

Theory of operation. A row of the day D may need sightings of other days: a message that left before midnight arrives after
it. So the tables of D are made of a window, D and `reach` on both sides, and of the result the rows of D are kept. That
makes each day a function of the sightings in its window, and of nothing else: it does not matter in how many runs they came,
in which order, or which of them were interrupted. A new sighting touches the days in whose windows it lies, and only these
are made again; what it costs does not grow with the history, and neither does the memory, as days are made one by one.

    -reach            D                +reach
    |.......|==================|.......|          made of all of it; = is kept

The price is said plainly: what lies farther apart than `reach`, on two days, is not put together, and has a row on each of
them (`midnight.py`); and equal messages are numbered within the window.

The rules are in the files of the tables. This file only hands the result of one to the next.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from threading import Lock
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from hopline.spark.callbacks import callbacks, find_answers
from hopline.spark.edges import edges
from hopline.spark.expiries import expiries, find_fates
from hopline.spark.flows import flows
from hopline.spark.hops import find_moves, hops, skews
from hopline.spark.keeping import Keep
from hopline.spark.midnight import Midnights
from hopline.spark.nodes import AWAY, CAME, MADE, Nodes, find_nodes
from hopline.spark.parts import Span
from hopline.spark.signatures import signatures
from hopline.spark.tables import CALLBACKS, EDGES, EXPIRIES, FLOWS, HOPS, SIGNATURES

BY_DAY: Final = tuple(table.name for table in (HOPS, CALLBACKS, FLOWS, EDGES, EXPIRIES, SIGNATURES))
"""The tables that are made of `messages`, day by day."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NS_PER_S: Final = 1_000_000_000

_EVER: Final = Span(-(2**63), 2**63 - 1)
"""All times that a record can have: they are nanoseconds in 64 bits, and so is what Spark compares them with."""


def window_of(day: str, reach_s: int) -> Span:
    """The time that the tables of a day are made of: its first nanosecond, and its last. It ends where time does.

    >>> window_of("1970-01-02", 3600)
    Span(first=82800000000000, last=176399999999999)
    """
    start = (date.fromisoformat(day) - _EPOCH.date()).days * 86_400
    first, last = (start - reach_s) * _NS_PER_S, (start + 86_400 + reach_s) * _NS_PER_S - 1
    return Span(max(first, _EVER.first), min(last, _EVER.last))


def days_of(span: Span, reach_s: int) -> Iterator[str]:
    """The days in whose windows a time lies, also in part.

    >>> list(days_of(Span(0, 0), 3600))
    ['1969-12-31', '1970-01-01']
    """
    reach_ns = reach_s * _NS_PER_S
    first, last = (ns // (86_400 * _NS_PER_S) for ns in (span.first - reach_ns, span.last + reach_ns))
    for number in range(first, last + 1):
        yield (_EPOCH.date() + timedelta(days=number)).isoformat()


class Day:
    """The tables of one day, made of `messages` of its window. What several of them need is computed once, if at all.

    Several threads may ask for tables at once.

    Args:
        messages: rows of `messages` in the window.
        errors: what failures say, in the window.
        verdicts: what signatures are worth, in the window.
        midnights: what of the window is of the day.
        keep: keeps what several tables need. Written to files and not held by Spark: then the number of files of a table
            follows from how much there is, memory is left to the joins, and a lost executor costs nothing.
    """

    def __init__(
        self, messages: DataFrame, errors: DataFrame, verdicts: DataFrame, midnights: Midnights, keep: Keep
    ) -> None:
        self._messages = messages
        self._errors = errors
        self._verdicts = verdicts
        self._midnights = midnights
        self._keep = keep
        self._kept: dict[str, DataFrame] = {}
        self._known: Nodes | None = None
        self._locks = {name: Lock() for name in ("nodes", "moves", "answers", "fates")}

    def table(self, name: str) -> DataFrame:
        """The rows of a table of BY_DAY, or `clocks`, of the whole window; raises ValueError if it is none of them."""
        match name:
            case "hops":
                return hops(self._moves)
            case "callbacks":
                return callbacks(self._answers)
            case "flows":
                return self._flows()
            case "edges":
                return edges(self._messages, self._moves, self._answers)
            case "expiries":
                return expiries(self._fates)
            case "signatures":
                return signatures(self._verdicts)
            case "clocks":
                return skews(self._moves)
            case _:
                raise ValueError(f"{name} is not made by day")

    def _flows(self) -> DataFrame:
        joined = self._midnights.joined(self._messages, self._keep)

        def mine(rows: DataFrame, at_ns: Column) -> DataFrame:
            return self._midnights.mine(rows, at_ns, joined)

        return flows(
            mine(self._messages, sf.col("seen_ns")),
            mine(self._answers, sf.coalesce("requested_ns", "resolved_ns")),
            mine(self._moves, sf.coalesce("sent_ns", "received_ns")),
            mine(self._fates, sf.col("first_ns")),
            mine(self._verdicts, sf.col("first_ns")),
        )

    @property
    def _nodes(self) -> Nodes:
        """Who was captured in the window: of what is cut at midnight too, for that somebody looked remains true."""
        with self._locks["nodes"]:
            self._known = self._known or find_nodes(self._messages, self._keep)
        return self._known

    @property
    def _moves(self) -> DataFrame:
        def make() -> DataFrame:
            near = self._midnights.near(self._messages, _move(), "moves", self._keep, _place())
            return find_moves(near, self._keep, self._nodes)

        return self._once("moves", make)

    @property
    def _answers(self) -> DataFrame:
        def make() -> DataFrame:
            near = self._midnights.near(self._messages, _ask(), "asks", self._keep)
            return find_answers(near, self._errors, self._keep, self._nodes)

        return self._once("answers", make)

    @property
    def _fates(self) -> DataFrame:
        def make() -> DataFrame:
            near = self._midnights.near(self._messages, _message(), "fates", self._keep, _place())
            return find_fates(near, self._moves, self._nodes)

        return self._once("fates", make)

    def _once(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        with self._locks[name]:  # whoever comes second waits, and has it too
            if name not in self._kept:
                self._kept[name] = self._keep(name, make())
        return self._kept[name]


def _move() -> Column:
    """What the sightings of one move have in common; not its number, which is that of a window."""
    return sf.xxhash64("message_uid", "hops")


def _message() -> Column:
    """What the sightings of one message have in common, if it is one that can expire."""
    return sf.when(sf.col("ttl_ms") != 0, sf.xxhash64("message_uid"))


def _place() -> Column:
    """Where a message is seen once. What is inside a node is copies, some of them looked at again and again."""
    return sf.when(sf.col("tap").isin(*MADE, *AWAY, *CAME), sf.xxhash64("node_key", "hops", "tap", "peer_key"))


def _ask() -> Column:
    """What a request and its answers have in common."""
    return sf.when(sf.size("callback_points") > 0, sf.xxhash64("callback_receiver_key", "callback_key", "correlation_key"))
